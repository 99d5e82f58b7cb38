//! The durable state of a drive: identity and capacity, namespaces and their attachment,
//! reservations, health, error log, firmware slots; and the formats of all that, and of the extent
//! maps, on the medium.
//!
//! Pure: requests and the time come in; changes to be made durable, effects and answers come out.
//! Every change is a record in the journal before it is applied. No I/O, no clock, no socket, no
//! queue.
//!
//! # Modules
//!
//! A folder imports from those on lower layers only. `cargo xtask tidy` compares this table with
//! the code.
//!
//! | layer | folder | what is in it |
//! |---|---|---|
//! | 6 | `drive/lib.rs` | what the crate offers |
//! | 5 | `drive` | a drive: what becomes of its hosts' requests; a snapshot of it for controllers |
//! | 4 | `change` | the state, and the changes of it in the journal; limits of the state; transactions of the box |
//! | 4 | `layout` | the medium: superblock, frames, marks, keys, tags of blocks |
//! | 3 | `logs` | errors, events, health, telemetry, and their log pages |
//! | 3 | `maintenance` | firmware, sanitize and self-test |
//! | 3 | `namespace` | namespaces, the formats of their blocks, where they are attached |
//! | 3 | `reservation` | reservations of a namespace |
//! | 2 | `request` | input of decisions besides the request, and their results |
//! | 1 | `extents` | which extents are free, and which part of a namespace each holds |
//! | 1 | `function` | secondary controllers: resources, ports, share |
//! | 1 | `profile` | the limits of a kind of drive |
//! | 1 | `stored` | forms of values in the state, for serde |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod change;
pub mod drive;
mod extents;
pub mod function;
pub mod layout;
mod logs;
mod maintenance;
pub mod namespace;
pub mod profile;
pub mod request;
pub mod reservation;
mod stored;

pub use change::{budget, unfinished};
pub use drive::view;
pub use extents::{allocator, map};
pub use layout::{frame, keys, mark, tag};
pub use logs::{error_log, event_log, health, telemetry};
pub use maintenance::{firmware, sanitize, self_test};
pub use namespace::{block_format, placement};

pub use change::unfinished::Unfinished;
pub use change::{Change, Identity, RestoreError, State};
pub use drive::view::View;
pub use drive::{
    Capacity, Decision, Drive, Effect, HealthUpdate, LogQuery, Managers, MediumStatus, Ordered, Request, Sanitized,
    Settings, is_offered, keeps_page,
};
pub use function::{Function, FunctionId, PortNames, PortNamesError, Primary, Share};
pub use namespace::block_format::BlockFormat;
pub use namespace::placement::{Attachments, Placement};
pub use namespace::{ANA_GROUPS_MAX, FORMATS, Format, Namespace, NewNamespace, Protection, Shape, VolumeId};
pub use profile::Profile;
pub use request::{Answer, DecisionInput, Origin, Refusal};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
