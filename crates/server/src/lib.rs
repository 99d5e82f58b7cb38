//! The target's I/O: threads, sockets and buffers.
//!
//! Drives a transport core (`ebof_tcp`) and the meaning of commands (`ebof_fabrics`) over block
//! devices (`ebof_backend`). Owns everything that blocks, waits or is shared between threads;
//! decides nothing about NVMe.
//!
//! A [`Target`] runs one control thread, which accepts connections and keeps time, and reactors:
//! threads that each own the connections that were given to them, from socket to device and back.
#![forbid(unsafe_code)]

mod commands;
mod direct;
mod drives;
mod enclosure;
mod environment;
mod life;
mod link;
mod observe;
mod ports;
mod reactor;
mod report;
mod shared;

/// Firmware images of drives, for those who make them.
pub mod firmware {
    pub use ebof_drive::firmware::{Image, ImageError, Personality};
}

pub use drives::DriveOpenError;
pub use enclosure::{Observer, RunningEnclosure};
pub use environment::making::{Making, backings};
pub use environment::remembered::ObjectStore;
pub use environment::settings::Settings;
pub use environment::{Environment, RdmaNetwork, Storage};
pub use life::interrupted::settle;
pub use life::liveness::Silent;
pub use life::serve::{Target, TextError};
pub use life::startup::StartError;
pub use life::stepped::SteppedTarget;
pub use observe::stats::{Kind, KindTotals, Series, Totals};
pub use report::function_load::FunctionLoad;
pub use report::metrics::{Exposition, MetricsDetail};
