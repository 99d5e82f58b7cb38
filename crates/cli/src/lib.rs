//! nvme-cli's verbs and ebof's own as a table, with their arguments, output and explanations.
//! [`Program`] builds the command line from them and from further verbs. It serves nothing, and
//! does not set up logging.
//!
//! # Modules
//!
//! A folder imports from those on lower layers only. `cargo xtask tidy` compares this table with
//! the code.
//!
//! | layer | folder | what is in it |
//! |---|---|---|
//! | 7 | `cli/lib.rs` | what the crate offers |
//! | 6 | `verbs` | the table of verbs; the arguments of each, and what it does |
//! | 5 | `top` | what objects do, shown once in a second, and the terminal for it |
//! | 4 | `command` | commands of verbs, and what their status means |
//! | 4 | `control` | the API of a running target, from the client's side |
//! | 4 | `program` | the command line: parser, help, man pages, completions; a row of the table of verbs |
//! | 3 | `device` | the DEVICE argument |
//! | 3 | `file` | files that a user names |
//! | 2 | `failure` | errors as text and as JSON |
//! | 2 | `output` | how results look, as text and as JSON |
//! | 1 | `global` | options that every verb has |
//! | 1 | `supervisor` | what systemd is told |
#![forbid(unsafe_code)]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the comments of arguments are help texts: brackets mean optional parts"
)]

mod command;
mod control;
mod device;
mod failure;
mod file;
mod global;
pub mod output;
mod program;
mod supervisor;
mod top;
mod verbs;

pub use control::{CONTROL_SOCKET, Proven};
pub use device::strange_name;
pub use ebof_initiator::overrides::parse::zerocopy_send;
pub use failure::Failure;
pub use file::Kind;
pub use global::{Global, LogFormat, OutputFormat};
pub use program::verb::{Group, Of, Outcome, Run, Takes, Verb};
pub use program::{Program, fail};
pub use supervisor::Supervisor;
pub use verbs::bench::server::Server;
pub use verbs::completion::answer as complete;
pub use verbs::config::load as load_configuration;
pub use verbs::program_with;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
