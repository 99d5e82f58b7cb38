//! The output of verbs. A verb makes a view of its result; here the view becomes text, JSON or
//! bytes on standard output. Messages that are not a verb's result go to standard error, and are
//! not written by this module.

pub(crate) mod ana;
pub(crate) mod attached;
pub(crate) mod audit;
pub(crate) mod command_sets;
pub(crate) mod comparison;
pub(crate) mod configuration;
pub(crate) mod connections;
pub(crate) mod controller;
pub(crate) mod cross_controller_reset;
pub(crate) mod directive;
pub(crate) mod discovery;
pub(crate) mod done;
pub(crate) mod drive;
pub(crate) mod effects;
pub(crate) mod endurance;
mod feature_tables;
pub(crate) mod features;
pub(crate) mod functions;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod host_keys;
pub(crate) mod host_metrics;
pub(crate) mod identify_more;
pub mod json;
pub(crate) mod lba_status;
pub(crate) mod lists;
pub(crate) mod managed;
pub(crate) mod namespace;
pub(crate) mod ocp;
pub(crate) mod passthru;
pub(crate) mod paths;
pub(crate) mod persistent;
pub(crate) mod raw;
pub(crate) mod rdma;
pub(crate) mod registers;
pub(crate) mod remote;
pub(crate) mod reservation;
pub(crate) mod sanitize;
pub(crate) mod self_test;
pub(crate) mod status;
pub(crate) mod structure;
pub(crate) mod target;
pub mod text;
pub(crate) mod top;
pub(crate) mod tune;
pub(crate) mod watch;

use std::io::{self, Write as _};

use crate::failure::Failure;
use crate::global::{Global, OutputFormat};
use json::Object;

/// Something that a verb prints.
pub trait View {
    /// As text, in nvme-cli's format; with more details if `verbose`.
    fn text(&self, verbose: bool) -> String;

    /// As JSON, beginning with its schema.
    fn json(&self, verbose: bool) -> Object;

    /// As the bytes that the controller returned, if there are any.
    fn binary(&self) -> Option<&[u8]> {
        None
    }
}

/// Something that a verb prints, and whose JSON is a list, because it is one in nvme-cli.
pub(crate) trait ListView {
    /// As text, in nvme-cli's format; with more details if `verbose`.
    fn text(&self, verbose: bool) -> String;

    /// The elements of the JSON list, each of which begins with the schema.
    fn json(&self, verbose: bool) -> Vec<Object>;

    /// As the bytes that the controller returned, if there are any.
    fn binary(&self) -> Option<&[u8]> {
        None
    }
}

/// Prints a view as the options say.
///
/// # Errors
/// Standard output cannot be written; the view has no binary form.
pub fn show(global: &Global, view: &dyn View) -> anyhow::Result<()> {
    match global.format {
        OutputFormat::Normal => print(view.text(global.is_verbose()).as_bytes()),
        OutputFormat::Json => print(view.json(global.is_verbose()).to_text()?.as_bytes()),
        OutputFormat::Binary => print(view.binary().ok_or_else(no_binary)?),
    }
}

/// As [`show`], for a view whose JSON is a list.
///
/// # Errors
/// As [`show`].
pub(crate) fn show_list(global: &Global, view: &dyn ListView) -> anyhow::Result<()> {
    match global.format {
        OutputFormat::Normal => print(view.text(global.is_verbose()).as_bytes()),
        OutputFormat::Json => print(json::list_text(&view.json(global.is_verbose()))?.as_bytes()),
        OutputFormat::Binary => print(view.binary().ok_or_else(no_binary)?),
    }
}

fn no_binary() -> Failure {
    Failure::usage("this verb has no binary output", "use -o normal or -o json")
}

/// Writes to standard output.
///
/// # Errors
/// It cannot be written; a reader that has gone away is [`io::ErrorKind::BrokenPipe`], which `main`
/// takes for an end.
pub fn print(bytes: &[u8]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()?;
    Ok(())
}

/// Writes a line for people to standard error: what was done, where that is not the verb's result.
pub fn say(line: &str) {
    // If standard error is closed, there is nowhere to report it.
    let _unheard = writeln!(io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod golden;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::example_state;
