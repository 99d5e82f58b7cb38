//! A remote namespace as a local block device, and the process that holds it.
//!
//! This crate owns three things: how a namespace becomes a block device ([`device`]: ublk where the
//! kernel has it, else a file served over FUSE behind a loop device), the attach daemon that keeps
//! the connection and the devices after the shell is gone ([`daemon`]), and the directory that says
//! who holds what ([`state`]). It deliberately owns neither the NVMe conversation
//! (`ebof-initiator`) nor any command line.
//!
//! A program that uses it calls [`connect`], [`disconnect`], [`list`] and [`open`], and calls
//! [`daemon::run`] when it is started with the hidden argument [`daemon::ARGUMENT`].

pub mod block_queue;
mod client;
pub mod control;
pub mod daemon;
pub mod device;
mod error;
pub mod fuse;
pub mod loopdev;
mod repair;
mod request;
pub mod state;
pub mod ublk;
pub mod usage;

pub use block_queue::buffer;
pub use client::{
    Authenticated, Client, Report, Select, connect, connect_in, connected_by_root, disconnect, disconnect_in, list,
    open, open_in, paths::PathSettings, unreachable,
};
pub use control::stats;
pub use error::{Error, Existing, time};
pub use repair::{Repaired, repair};
pub use request::{Attached, Device, Kind, Request};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
