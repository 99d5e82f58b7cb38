//! The words of NVMe on the wire: commands, completions, status codes, names, registers and data
//! structures.
//!
//! This crate owns layouts and meanings of bytes; it deliberately owns no behaviour: no state, no
//! I/O, no clock. Multi-byte fields are little-endian; structs carry the specification's field
//! names. 0's based numbers never leave the wire structs: accessors give plain counts. The
//! revisions of the documents are pinned in docs/specs.md.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod command;
pub mod connect;
pub mod copy;
pub mod data_pointer;
pub mod event;
pub mod feature;
pub mod firmware;
pub mod id;
pub mod identify;
pub mod io;
pub mod lba_status;
pub mod log;
pub mod media;
pub mod namespace;
pub mod nqn;
pub mod opcode;
pub mod property;
pub mod protection;
pub mod reservation;
pub mod security;
pub mod sgl;
pub mod status;
mod table;
pub mod uri;
pub mod virtualization;

pub use command::{Cqe, Sqe};
pub use data_pointer::{DataLocation, DataPointer};
pub use id::uuid::{self, HostId, Uuid};
pub use id::{Cid, ControllerId, Nsid, QueueId};
pub use nqn::Nqn;
pub use sgl::Sgl;
pub use status::Status;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
