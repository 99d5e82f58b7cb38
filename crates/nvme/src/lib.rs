//! The words of NVMe on the wire: commands, completions, status codes, names, registers and data
//! structures.
//!
//! This crate owns layouts and meanings of bytes; it deliberately owns no behaviour: no state, no
//! I/O, no clock. Multi-byte fields are little-endian; structs carry the specification's field
//! names. 0's based numbers never leave the wire structs: accessors give plain counts. The
//! revisions of the documents are pinned in docs/specs.md.
//!
//! # Modules
//!
//! A folder imports from those on lower layers only. `cargo xtask tidy` compares this table with
//! the code.
//!
//! | layer | folder | what is in it |
//! |---|---|---|
//! | 6 | `nvme/lib.rs` | what the crate offers |
//! | 5 | `admin` | commands of the Admin Queue beyond Identify, features and log pages: firmware, media, namespaces, security, virtualization |
//! | 5 | `event` | asynchronous events |
//! | 4 | `feature` | features: identifiers and values |
//! | 4 | `io` | commands of I/O queues: blocks, Copy, reservations |
//! | 4 | `log` | log pages and their layouts |
//! | 3 | `connect` | Fabrics commands: Connect, Property Get and Set, Disconnect |
//! | 3 | `identify` | Identify and its data structures |
//! | 3 | `protection` | end-to-end data protection |
//! | 2 | `command` | queue entries: command and completion, data pointer and SGL, opcodes, statuses |
//! | 1 | `name` | numbers that name things, NQNs, and one word for a remote controller |
//! | 1 | `property` | controller properties |
//! | 1 | `table` | the specification's tables as tables |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod admin;
pub mod command;
pub mod connect;
pub mod event;
pub mod feature;
pub mod identify;
pub mod io;
pub mod log;
mod name;
pub mod property;
pub mod protection;
mod table;

pub use admin::{firmware, lba_status, media, namespace, security, virtualization};
pub use command::{data_pointer, opcode, sgl, status};
pub use io::{copy, reservation};
pub use name::{id, nqn, uri};

pub use command::data_pointer::{DataLocation, DataPointer};
pub use command::sgl::Sgl;
pub use command::status::Status;
pub use command::{Cqe, Sqe};
pub use name::id::uuid::{self, HostId, Uuid};
pub use name::id::{Cid, ControllerId, Nsid, QueueId};
pub use name::nqn::Nqn;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
