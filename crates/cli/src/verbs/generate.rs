//! `completions`, `man`, `help` and `version`, generated from the description of the command line.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
use clap_complete::Shell;

use super::{Outcome, completion, pages};
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
        print(&completion::registration(self.shell, program)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Man pages.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Man {
    /// Show the page of this verb or document (ebof.toml, ebof-connections.toml, ebof.service,
    /// ebof-manual, ebof-json, ebof-operations, ebof-errors, ebof-security, ebof-firmware,
    /// ebof-fio), or write all pages to this directory (./NAME if it has the name of a page)
    /// [default: show the main page]
    #[arg(value_name = "VERB|DIRECTORY")]
    what: Option<PathBuf>,
}

impl Man {
    pub(crate) fn run(self, program: &Program) -> Outcome {
        let Some(what) = self.what else {
            return show_page(&pages::main_page(program)?);
        };
        let word = what.to_str().unwrap_or_default();
        if let Some(verb) = program.verbs().find(|verb| verb.name == word) {
            let page = pages::of_verb(program, verb)?.pop().map(|(_, page)| page);
            return show_page(&page.unwrap_or_default());
        }
        if let Some(document) = pages::DOCUMENTS.iter().find(|document| document.name == word) {
            return show_page(&document.page());
        }
        write_pages(program, &what).with_context(|| format!("writing man pages to {}", what.display()))?;
        say(&format!("man pages are in {}", what.display()));
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes all pages to a directory.
fn write_pages(program: &Program, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join("ebof.1"), pages::main_page(program)?)?;
    for verb in program.verbs() {
        for (name, page) in pages::of_verb(program, verb)? {
            std::fs::write(directory.join(format!("{name}.1")), page)?;
        }
    }
    for document in &pages::DOCUMENTS {
        std::fs::write(directory.join(format!("{}.{}", document.name, document.section)), document.page())?;
    }
    Ok(())
}

/// Shows a page: with the system's `man` on a terminal, otherwise its source.
fn show_page(text: &[u8]) -> Outcome {
    if std::io::stdout().is_terminal() {
        let viewer = Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn();
        // Without `man`, the source is printed.
        if let Ok(mut viewer) = viewer {
            if let Some(mut input) = viewer.stdin.take() {
                // The reader may quit early.
                let _left = input.write_all(text);
            }
            let status = viewer.wait().context("waiting for man")?;
            return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }
    print(text)?;
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
