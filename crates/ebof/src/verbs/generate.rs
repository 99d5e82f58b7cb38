//! `completions` and `man`: what is made from the command line's own description.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use super::Outcome;
use crate::cli::Cli;
use crate::output::{print, say};

/// Shell completions.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Completions {
    /// For which shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self) -> Outcome {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "ebof", &mut text);
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Man pages.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Man {
    /// Write the pages of all verbs here; the main page goes to standard output where nothing is said
    #[arg(value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self) -> Outcome {
        let Some(directory) = self.directory else {
            let mut text = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut text)?;
            print(&text)?;
            return Ok(ExitCode::SUCCESS);
        };
        let writing = || format!("writing man pages to {}", directory.display());
        std::fs::create_dir_all(&directory).with_context(writing)?;
        clap_mangen::generate_to(Cli::command(), &directory).with_context(writing)?;
        say(&format!("man pages are in {}", directory.display()));
        Ok(ExitCode::SUCCESS)
    }
}
