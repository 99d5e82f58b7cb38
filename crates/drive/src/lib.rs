//! The durable state of a drive: identity and capacity, namespaces and their attachment,
//! reservations, health, error log, firmware slots; and the formats of all that, and of the extent
//! maps, on the medium.
//!
//! Pure: requests and the time come in; changes to be made durable, effects and answers come out.
//! Every change is a record in the journal before it is applied. No I/O, no clock, no socket, no
//! queue.
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
pub mod function;
pub mod health;
pub mod keys;
pub mod layout;
pub mod map;
pub mod mark;
pub mod namespace;
pub mod placement;
pub mod profile;
pub mod request;
pub mod reservation;
pub mod sanitize;
pub mod self_test;
mod stored;
pub mod tag;
pub mod telemetry;
pub mod unfinished;
pub mod view;

pub use block_format::BlockFormat;
pub use change::{Change, Identity, RestoreError, State};
pub use drive::{
    Capacity, Decision, Drive, Effect, HealthUpdate, LogQuery, Managers, MediumStatus, Ordered, Request, Sanitized,
    Settings, is_offered, keeps_page,
};
pub use function::{Function, FunctionId, PortNames, PortNamesError, Primary, Share};
pub use namespace::{FORMATS, Format, Namespace, NewNamespace, Protection, Shape, VolumeId};
pub use placement::{Attachments, Placement};
pub use profile::Profile;
pub use request::{Answer, DecisionInput, Origin, Refusal};
pub use unfinished::Unfinished;
pub use view::View;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
