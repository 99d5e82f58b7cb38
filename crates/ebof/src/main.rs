//! The one binary: argument parsing, configuration, logging, signals, output and wiring; no logic.
#![forbid(unsafe_code)]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the comments of arguments are help texts: brackets mean optional parts"
)]

mod bench;
mod cli;
mod command;
mod demo;
mod device;
mod explain;
mod failure;
mod file;
mod global;
mod metrics;
mod output;
mod serve;
mod verbs;

use cli::Program;
use cli::verb::{Group, Of, Verb};
use tracing_subscriber::filter::LevelFilter;

/// The verbs that start a target, and what measures.
static VERBS: [Verb; 3] = [
    Verb::new(Group::Serve, "serve", &Of::<serve::Args>(|args, global| serve::run(&args, global)))
        .about("Serve drives to hosts")
        .example("ebof serve disk.img:100G --nqn nqn.2014-08.org.example:drive0")
        .logs(LevelFilter::INFO),
    Verb::new(Group::Measure, "bench", &Of::<bench::Args>(|args, global| bench::run(&args, global)))
        .about("Measure a load on namespaces, files and devices")
        .example("ebof bench disk.img --rw randread --bs 4K --iodepth 32"),
    Verb::new(Group::Measure, "demo", &Of::<demo::Args>(|args, global| demo::run(&args, global)))
        .about("Show the whole line on this machine: serve, attach, mount, compare, measure (`make run`)")
        .example("ebof demo")
        .hidden(),
];

fn main() -> std::process::ExitCode {
    Program::new(&VERBS).main()
}
