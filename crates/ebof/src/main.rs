//! The program: `serve`, logging, signals and wiring. The other verbs, and what all of them share,
//! are in `ebof_cli`.
#![forbid(unsafe_code)]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the comments of arguments are help texts: brackets mean optional parts"
)]

mod control;
mod doors;
mod generations;
mod https;
mod identity;
mod limits;
mod logging;
mod made;
mod managed;
mod metrics;
mod missing;
mod news;
mod notify;
mod page;
mod reload;
mod remembered;
mod rights;
mod serve;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use ebof_attach::daemon;
use ebof_cli::{Group, Of, Program, Verb};
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
    let program = Program::new(&VERBS);
    if ebof_cli::complete(&program, &args) {
        return ExitCode::SUCCESS;
    }
    program.run(&args, logging::start)
}

#[cfg(test)]
mod advice;
#[cfg(test)]
mod manual;
