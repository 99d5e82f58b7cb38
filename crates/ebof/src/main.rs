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

fn main() -> std::process::ExitCode {
    cli::main()
}
