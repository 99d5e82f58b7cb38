//! The project's own checks and chores, as `cargo xtask <chore>`. Owns no build logic of ebof
//! itself.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool speaks to the terminal")]

mod audit;
mod bench;
mod instructions;
mod licences;
mod metadata;
mod mutations;
mod simulate;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask <chore>

  tidy            the project's rules: layering, unsafe code, file headers and lengths, documents
  wrap PATH...    wraps comments and documents at 100 columns
  guarantees      writes the lists of tests in SPECIFICATION.md, from the marks over the tests
  licences        every dependency's licence against the list in deny.toml; works offline
  deny            licences, and all of cargo-deny's own checks where it is installed
  audit           RustSec advisories, where cargo-deny or cargo-audit is installed
  instructions    instructions per command of the data path's steps against xtask/instructions.txt; needs valgrind
  instructions --update   writes that file
  simulate        hosts, target, drive, medium and disk in one thread, from a seed; simulate --help tells more
  mutations [NAME...]   rules of paths, broken one by one: the simulation has to find each
  bench           ebof, the raw limit and peers side by side; bench --help tells more";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["tidy"] => tidy::run(&root()),
        ["wrap", paths @ ..] if !paths.is_empty() => tidy::wrap::run(&root(), paths),
        ["guarantees"] => tidy::guarantees::run(&root()),
        ["licences"] => licences::run(&root()),
        ["deny"] => licences::run(&root()).and_then(|clean| Ok(audit::deny(&root())? && clean)),
        ["audit"] => audit::run(&root()),
        ["instructions"] => instructions::run(&root(), false),
        ["instructions", "--update"] => instructions::run(&root(), true),
        ["mutations", names @ ..] => mutations::run(&root(), names),
        ["simulate", words @ ..] => simulate::run(&root(), words),
        ["bench", words @ ..] => bench::run(&root(), words),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(true)
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The directory of the workspace, relative to that of the package, which cargo sets.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    package.and_then(|package| package.parent().map(PathBuf::from)).unwrap_or_else(|| PathBuf::from("."))
}
