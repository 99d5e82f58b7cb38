//! What a drive remembers: its identity and capacity, its namespaces and who is attached to them,
//! reservations, health, error log, firmware slots; and how all of that, with the map of its
//! extents, lies on the medium.
//!
//! Pure: requests and the time come in; changes to be made durable, effects and answers come out.
//! Every change goes through a record: what is not in the journal has not happened. It does no I/O,
//! knows no clock, no socket and no queue.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod allocator;
pub mod block_format;
pub mod budget;
pub mod change;
pub mod drive;
pub mod error_log;
pub mod event_log;
pub mod firmware;
pub mod frame;
pub mod health;
mod hex;
pub mod keys;
pub mod layout;
pub mod map;
pub mod mark;
pub mod namespace;
pub mod profile;
pub mod request;
pub mod reservation;
pub mod sanitize;
pub mod self_test;
pub mod tag;
pub mod telemetry;
pub mod view;

pub use block_format::BlockFormat;
pub use change::{Change, Identity, RestoreError, State};
pub use drive::{
    Capacity, Decision, Drive, Effect, Facts, LogQuery, Managers, Request, Sanitized, Settings, Turned, is_offered,
    keeps,
};
pub use namespace::{FORMATS, Format, Namespace, NewNamespace, Protection, Shape, VolumeId};
pub use profile::Profile;
pub use request::{Answer, DecisionInput, Origin, Refusal};
pub use view::View;
