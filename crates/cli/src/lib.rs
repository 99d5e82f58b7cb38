//! nvme-cli's verbs and ebof's own as a table, with their arguments, output and explanations.
//! [`Program`] builds the command line from them and from further verbs. It serves nothing, and
//! does not set up logging.
#![forbid(unsafe_code)]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "the comments of arguments are help texts: brackets mean optional parts"
)]

mod bench;
mod command;
mod control;
mod device;
mod explain;
mod failure;
mod file;
mod global;
pub mod output;
mod program;
mod qualify;
mod screen;
mod supervisor;
mod top;
mod verb;
mod verbs;

pub use bench::server::Server;
pub use control::{CONTROL_SOCKET, Proven};
pub use device::strange_name;
pub use ebof_initiator::overrides::parse::zerocopy_send;
pub use failure::Failure;
pub use file::Kind;
pub use global::{Global, LogFormat, OutputFormat};
pub use program::{Program, fail};
pub use supervisor::Supervisor;
pub use verb::{Group, Of, Outcome, Run, Takes, Verb};
pub use verbs::completion::answer as complete;
pub use verbs::config::load as load_configuration;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
