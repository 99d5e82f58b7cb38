//! What a command means: subsystems, controllers, queues, discovery.
//!
//! Pure: commands, parameter data and the time come in; completions and steps for the target come
//! out. It owns no socket, no thread, no device and no lock, and never sees a data byte of an I/O
//! command.
//!
//! A [`Queue`] belongs to the thread that serves its connection. What queues share is in the
//! [`Registry`], which the target keeps behind one lock and needs only for the control path
//! ([`Task::Connect`], [`Task::Shared`], teardown, a new [`Model`], time-outs). What the registry
//! has to tell a queue travels as a [`Notice`].
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod admin;
pub mod association;
mod authentication;
pub mod connect;
mod controller;
mod copy;
mod discovery;
mod drive;
mod error_log;
mod event;
mod executing;
mod extent;
mod feature;
mod function;
mod handle;
mod identify;
mod io;
mod lba_status;
mod log;
pub mod memory;
pub mod model;
mod notice;
mod outcome;
mod property;
mod protection;
mod provision;
pub mod queue;
pub mod registry;
mod reservation;
mod secrets;
pub mod step;
mod task;

pub use ebof_drive::reservation::Right;

pub use association::{Association, Counters, Counts};
pub use connect::{Arrival, Attachment, Refusal, RefusalReason, SubmissionQueue, Tolerated};
pub use executing::Executing;
pub use function::{Function, function_nqn};
pub use handle::Handle;
pub use model::{
    DataId, DeviceId, DiscoveryIdentity, GROUPS_MAX, GroupStates, Health, Limits, Metadata, Model, Namespace,
    NamespaceTable, Port, PortId, Provision, Referral, Subsystem, TableError, TlsUse, Usage, refusal,
};
pub use notice::{CloseReason, Notice, Notices};
pub use provision::Backing;
pub use queue::{Failure, Queue};
pub use registry::{
    Announced, ControllerInfo, Drain, ObjectRecord, Objects, ProtectionChange, QueueInfo, Registry, WAITING_MAX,
};
pub use secrets::{Channel, HostSecrets, PskSource, SecureChannelId, TlsPeer};
pub use step::Step;
pub use task::{
    Authenticate, ByteRange, Copy, CopyChecks, CopyPlan, CopyRange, DriveTask, Extent, FusedHalf, IoTask,
    LbaStatusQuery, ProtectionChecks, Quiesce, QuiesceStep, RingTask, Task, Transfer, TransferKind,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
