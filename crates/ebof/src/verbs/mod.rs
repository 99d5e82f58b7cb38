//! The verbs: what each takes on the command line, and what it does. How results look is in `output`.

pub(crate) mod ana;
pub(crate) mod blocks;
pub(crate) mod config;
pub(crate) mod connect;
pub(crate) mod controller;
pub(crate) mod copy;
mod directive;
pub(crate) mod discover;
pub(crate) mod drive_logs;
pub(crate) mod fabric;
pub(crate) mod features;
pub(crate) mod firmware;
pub(crate) mod firmware_image;
pub(crate) mod generate;
mod guard;
pub(crate) mod host;
pub(crate) mod identify;
pub(crate) mod identify_more;
pub(crate) mod io;
pub(crate) mod lba_status;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod media;
pub(crate) mod namespaces;
mod number;
pub(crate) mod passthru;
pub(crate) mod property;
mod question;
pub(crate) mod reservations;
pub(crate) mod security;
pub(crate) mod self_test;
mod tags;

use std::process::ExitCode;

/// What a verb ends with when nothing went wrong.
pub(crate) type Outcome = anyhow::Result<ExitCode>;
