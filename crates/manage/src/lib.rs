//! The configuration of a target, its status, and the changes from one configuration to another.
//!
//! This crate owns the declarative configuration ([`config`], [`load`](mod@load)), the importer of
//! the Linux target's saved state ([`nvmetcli`]), the difference of two configurations ([`plan`]),
//! the types of the management API ([`api`]) and the management of a box's drives ([`enclosure`]).
//! It deliberately owns no HTTP, no files and no sockets: text comes in, values and messages come
//! out, and whoever runs a target implements [`api::Target`].
//!
//! # Modules
//!
//! A folder imports from those on lower layers only. `cargo xtask tidy` compares this table with
//! the code.
//!
//! | layer | folder | what is in it |
//! |---|---|---|
//! | 9 | `manage/lib.rs` | what the crate offers |
//! | 8 | `edit` | changes of single objects of a configuration |
//! | 8 | `events` | what happened to a running target |
//! | 7 | `api` | what a running target reports, and what it is asked for |
//! | 7 | `enclosure` | the management of the box: inventory, changes, tasks |
//! | 6 | `load` | from a text to a configuration: ebof's keys, and what `nvmetcli save` writes |
//! | 5 | `plan` | the changes from one configuration to another, in order |
//! | 4 | `manual` | the tables of keys in docs/config.md |
//! | 3 | `config` | the desired state of a target: its types and their keys |
//! | 2 | `drive` | where a namespace stores its data, as written |
//! | 2 | `history` | what objects did in each second; slow commands |
//! | 1 | `diagnostic` | messages that point at a place in a text; suggestions for misspelt names |
//! | 1 | `keys` | rows that describe keys |
//! | 1 | `listen` | the address that a port listens on |
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
pub mod plan;

pub use api::Target;
pub use config::Config;
pub use diagnostic::nearest::is_near;
pub use diagnostic::{Diagnostic, Diagnostics, Message, Severity};
pub use drive::Drive;
pub use ebof_grammar::{keys as written_keys, units};
pub use history::slow;
pub use listen::Listen;
pub use load::nvmetcli;
pub use load::{FileFormat, Loaded, load};
pub use plan::{Change, Plan};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
