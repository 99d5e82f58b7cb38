//! `completions`, `man`, `help` and `version`, generated from the description of the command line.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
use clap_complete::Shell;

use super::Outcome;
use crate::output::{print, say};
use crate::program::Program;

/// Shell completions.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, program: &Program) -> Outcome {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut program.command(), "ebof", &mut text);
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Man pages.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Man {
    /// Show the page of this verb, or write the pages of all verbs to this directory (./NAME if it
    /// has the name of a verb) [default: show the main page]
    #[arg(value_name = "VERB|DIRECTORY")]
    what: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self, program: &Program) -> Outcome {
        // As for all pages: names begin with `ebof`, and each verb has the global options.
        let mut pages = program.command();
        pages.build();
        let Some(directory) = self.what else {
            return page(pages);
        };
        if let Some(verb) = directory.to_str().and_then(|word| pages.find_subcommand(word)) {
            return page(verb.clone());
        }
        let writing = || format!("writing man pages to {}", directory.display());
        std::fs::create_dir_all(&directory).with_context(writing)?;
        clap_mangen::generate_to(program.command(), &directory).with_context(writing)?;
        say(&format!("man pages are in {}", directory.display()));
        Ok(ExitCode::SUCCESS)
    }
}

/// Shows a page: with the system's `man` on a terminal, otherwise its source.
fn page(command: clap::Command) -> Outcome {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    if std::io::stdout().is_terminal() {
        let viewer = Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn();
        // Without `man`, the source is printed.
        if let Ok(mut viewer) = viewer {
            if let Some(mut input) = viewer.stdin.take() {
                // The reader may quit early.
                let _left = input.write_all(&text);
            }
            let status = viewer.wait().context("waiting for man")?;
            return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Help.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Help {
    /// The verb
    #[arg(value_name = "VERB")]
    verb: Option<String>,
}

impl Help {
    pub(crate) fn run(self, program: &Program) -> Outcome {
        Ok(match self.verb.as_deref() {
            Some(verb) => program.asked(&[verb, "--help"]),
            None => program.asked(&["--help"]),
        })
    }
}

/// The version.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Version {}

impl Version {
    pub(crate) fn run(self, program: &Program) -> Outcome {
        Ok(program.asked(&["--version"]))
    }
}
