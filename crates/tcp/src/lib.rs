//! NVMe/TCP 1.1 without sockets: both ends of a connection as state machines over bytes.
//!
//! This crate owns PDU layouts, digests, the order of PDUs and the data transfer rules (R2T,
//! H2CData, C2HData). It deliberately owns no socket, no clock, no buffer of user data and no
//! opinion about what a command means: bytes come in, [`controller::Event`]s or [`host::Event`]s
//! come out, and what is to be sent is appended to a vector of the caller's. User data never pass
//! through here: the caller learns where the next bytes of the stream belong.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod controller;
pub mod digest;
pub mod error;
pub mod host;
pub mod parameters;
pub mod pdu;
mod receive;

pub use error::{FatalError, FatalStatus, Termination};
pub use parameters::{Digest, Parameters, Trailer};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
