//! Shares of simulated devices, in virtual time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail by panicking")]

mod bound;
mod limits;
mod sequences;
mod shares;
mod support;
