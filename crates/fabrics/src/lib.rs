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
//!
//! # Modules
//!
//! A folder imports from those on lower layers only. `cargo xtask tidy` compares this table with
//! the code.
//!
//! | layer | folder | what is in it |
//! |---|---|---|
//! | 8 | `fabrics/lib.rs` | what the crate offers |
//! | 7 | `registry` | the state that queues share: the model in force, controllers, timers, notices |
//! | 6 | `queue` | one queue of a controller: commands in, completions out |
//! | 5 | `admin` | the commands of an Admin Queue: Identify, features, log pages, what a drive decides, queues in memory |
//! | 4 | `controller` | a controller as its Admin Queue's thread sees it: properties, events |
//! | 4 | `io` | the commands of an I/O queue, checked and turned into extents |
//! | 4 | `notice` | what the registry tells queues |
//! | 3 | `association` | what the queues of a controller share; its error log |
//! | 3 | `connect` | which hosts may have a queue, and how they prove who they are |
//! | 2 | `task` | what the target has to do for a command: its ticket, its steps, its outcome |
//! | 1 | `model` | what is served: ports, subsystems, functions, namespaces, secrets; what is discovered of it |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod admin;
pub mod association;
pub mod connect;
mod controller;
mod io;
pub mod model;
mod notice;
pub mod queue;
pub mod registry;
mod task;

pub use admin::memory;
pub use task::step;

pub use ebof_drive::reservation::Right;

pub use association::{Association, Counters, Counts};
pub use connect::{Arrival, Attachment, Refusal, RefusalReason, SubmissionQueue, Tolerated};
pub use model::function::{Function, function_nqn};
pub use model::provision::{Backing, adopt_drive};
pub use model::secrets::{Channel, HostSecrets, PskSource, SecureChannelId, TlsPeer};
pub use model::{
    DataId, DeviceId, DiscoveryIdentity, GROUPS_MAX, GroupStates, Health, Limits, Metadata, Model, Namespace,
    NamespaceTable, Port, PortId, Provision, Referral, Subsystem, TableError, TlsUse, Usage, refusal,
};
pub use notice::{CloseReason, Notice, Notices};
pub use queue::{Failure, Queue};
pub use registry::{
    Announced, ControllerInfo, Drain, ObjectRecord, Objects, ProtectionChange, QueueInfo, Registry, WAITING_MAX,
};
pub use task::executing::Executing;
pub use task::handle::Handle;
pub use task::step::Step;
pub use task::{
    Authenticate, ByteRange, Copy, CopyChecks, CopyPlan, CopyRange, DriveTask, Extent, FusedHalf, IoTask,
    LbaStatusQuery, ProtectionChecks, Quiesce, QuiesceStep, RingTask, Task, Transfer, TransferKind,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
