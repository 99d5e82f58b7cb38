//! NVMe/RDMA 1.1 without verbs: both ends of a connection as state machines over capsules.
//!
//! This crate owns the connection manager's private data, the layout of capsules, what the SGLs of
//! this transport mean, and the order of work: when data are read from and written to the host's
//! memory, and when a response may follow. It deliberately owns no queue pair, no memory that an
//! adapter accesses, no clock and no opinion about what a command means: capsules and completions
//! of work come in, work to be posted comes out.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod capsule;
pub mod controller;
pub mod error;
pub mod host;
pub mod private_data;
pub mod segments;

pub use error::FatalError;
pub use segments::{Remote, Segments};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
