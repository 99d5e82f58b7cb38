//! The one binary: argument parsing, configuration, logging, signals, output and wiring; no logic.
#![forbid(unsafe_code)]

mod bench;
mod cli;
mod command;
mod demo;
mod device;
mod explain;
mod failure;
mod global;
mod metrics;
mod output;
mod serve;
mod verbs;

fn main() -> std::process::ExitCode {
    cli::main()
}
