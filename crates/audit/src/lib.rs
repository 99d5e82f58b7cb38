//! Who has changed what of a target, and what was refused: records in files of the state directory,
//! each with the hash of the one before it ([0111](../../../docs/adr/0111-parts-and-audit.md)).
//!
//! Owns what a record is ([`AuditRecord`]), the files, their chain and how they are bounded
//! ([`AuditLog`]), what is wrong with them ([`verify()`]), the thread that writes ([`Audit`]) and
//! syslog ([`Syslog`]). Who asks for what is up to those who note it; no password, key or token is
//! given to this crate.
#![forbid(unsafe_code)]

mod chain;
mod files;
mod log;
mod record;
mod suppressed;
mod syslog;
mod time;
mod verify;
mod writer;

pub use chain::{ChainHead, ChainHeadError, Hash};
pub use files::{LogCopy, Source};
pub use log::{AuditError, AuditLog, Sizes};
pub use record::{AuditRecord, NewRecord, RecordKind, RecordOutcome};
pub use syslog::{Destination, DestinationError, Syslog};
pub use time::{date_time, unix_ms};
pub use verify::{AuditAnswer, Finding, KnownHead, Report, records_since, verify};
pub use writer::{Audit, AuditSettings, Feed};

/// The version of the JSON shape of [`AuditRecord`] and [`Report`].
pub const AUDIT_SCHEMA: u32 = 1;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
