//! The configuration of a target, its status, and the changes from one configuration to another.
//!
//! This crate owns the declarative configuration ([`config`], [`load`](mod@load)), the importer of
//! the Linux target's saved state ([`nvmetcli`]), the difference of two configurations ([`plan`]),
//! the types of the management API ([`api`]) and the management of a box's drives ([`enclosure`]).
//! It deliberately owns no HTTP, no files and no sockets: text comes in, values and messages come
//! out, and whoever runs a target implements [`api::Target`].
#![forbid(unsafe_code)]

pub mod api;
pub mod config;
pub mod diagnostic;
pub mod drive;
pub mod edit;
pub mod enclosure;
pub mod events;
pub mod history;
mod keys;
pub mod listen;
pub mod load;
pub mod manual;
mod nearest;
pub mod nvmetcli;
pub mod plan;
mod read;
pub mod slow;

pub use api::Target;
pub use config::Config;
pub use diagnostic::{Diagnostic, Diagnostics, Message, Severity};
pub use drive::Drive;
pub use ebof_grammar::{keys as written_keys, units};
pub use listen::Listen;
pub use load::{FileFormat, Loaded, load};
pub use nearest::is_near;
pub use plan::{Change, Plan};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
