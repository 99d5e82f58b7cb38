//! The target's I/O: threads, sockets and buffers.
//!
//! Drives a transport core (`ebof_tcp`) and the meaning of commands (`ebof_fabrics`) over block
//! devices (`ebof_backend`). Owns everything that blocks, waits or is shared between threads;
//! decides nothing about NVMe.
//!
//! A [`Target`] runs one control thread, which accepts connections and keeps time, and reactors:
//! threads that each own the connections that were given to them, from socket to device and back.
#![forbid(unsafe_code)]

mod admission;
mod buffer;
mod closing;
mod command;
mod commands;
mod connect;
mod connection;
mod contradictions;
mod control;
mod copy;
mod copy_steps;
mod device;
mod direct;
mod drain;
mod drive_commands;
mod drive_requests;
mod drives;
mod enclosure;
mod environment;
mod execute;
mod fairness;
mod function_load;
mod functions;
mod fused;
mod handle;
mod heartbeat;
mod host_labels;
mod interrupted;
mod link;
mod listener;
mod liveness;
mod log_limit;
mod looking;
mod mailbox;
mod making;
mod metrics;
mod missing;
mod object;
mod peer;
mod port;
mod protection;
mod queues;
mod range_lock;
mod rdma_admission;
mod rdma_connection;
mod reactor;
mod reactor_context;
mod readiness;
mod reload;
mod remembered;
mod report;
mod resident;
mod rings;
mod sampler;
mod sampling;
mod sent;
mod serve;
mod settings;
mod share;
mod shared;
mod shared_receives;
mod shares;
mod slots;
mod slow;
mod sockets;
mod startup;
mod stats;
mod stepped;
mod submit;
mod troubles;
mod unfinished;
mod uptime;
mod watched;

/// Firmware images of drives, for those who make them.
pub mod firmware {
    pub use ebof_drive::firmware::{Image, ImageError, Personality};
}

pub use drives::DriveOpenError;
pub use enclosure::{Observer, RunningEnclosure};
pub use environment::{Environment, RdmaNetwork, Storage};
pub use function_load::FunctionLoad;
pub use interrupted::settle;
pub use liveness::Silent;
pub use making::{Making, backings};
pub use metrics::{Exposition, MetricsDetail};
pub use remembered::ObjectStore;
pub use serve::{Target, TextError};
pub use settings::Settings;
pub use startup::StartError;
pub use stats::{Kind, KindTotals, Series, Totals};
pub use stepped::SteppedTarget;
