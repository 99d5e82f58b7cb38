//! The program: `serve`, logging, signals and wiring. The other verbs, and what all of them share,
//! are in `ebof_cli`.
//!
//! # Modules
//!
//! A folder imports from those on lower layers only. `cargo xtask tidy` compares this table with
//! the code.
//!
//! | layer | folder | what is in it |
//! |---|---|---|
//! | 8 | `ebof/main.rs` | the verb `serve` beside those of `ebof_cli`, and logging |
//! | 7 | `serve` | `serve` from its arguments to its end; what could not be had at the start, what the state directory remembers |
//! | 6 | `mdns` | tells other machines where discovery is, by multicast DNS |
//! | 5 | `https` | management over the network, and the web page |
//! | 4 | `control` | the control socket |
//! | 3 | `managed` | what is managed, for all who reach it; the audit log |
//! | 2 | `metrics` | metrics and status over HTTP |
//! | 2 | `reload` | changes of the configuration that is served, and those that were in force |
//! | 1 | `doors` | where management listens; limits of connections |
//! | 1 | `identity` | the certificate of HTTPS |
//! | 1 | `logging` | logs, on standard error, in the journal or a file |
//! | 1 | `manual` | tests: documents and messages against the verbs |
//! | 1 | `notify` | the supervisor's watchdog |
//! | 1 | `rights` | what the target gives up before it serves |
#![forbid(unsafe_code)]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the comments of arguments are help texts: brackets mean optional parts"
)]

mod control;
mod doors;
mod https;
mod identity;
mod logging;
mod managed;
mod mdns;
mod metrics;
mod notify;
mod reload;
mod rights;
mod serve;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use ebof_attach::daemon;
use ebof_cli::{Group, Of, Verb};
use tracing::level_filters::LevelFilter;

/// The verbs beside those of `ebof_cli`.
static VERBS: [Verb; 1] =
    [Verb::new(Group::Serve, "serve", &Of::<serve::Args>(|args, global| serve::run(&args, global)))
        .about("Serve drives to hosts")
        .example("ebof serve disk.img:100G --nqn nqn.2014-08.org.example:drive0")
        .logs(LevelFilter::INFO)];

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    if let [_, argument, directory] = args.as_slice()
        && argument == daemon::ARGUMENT
    {
        let directory = Path::new(directory);
        logging::start_of_daemon(directory);
        return daemon::run(directory);
    }
    let program = ebof_cli::program_with(&VERBS);
    if ebof_cli::complete(&program, &args) {
        return ExitCode::SUCCESS;
    }
    program.run(&args, logging::start)
}

#[cfg(test)]
mod manual;
