//! Fair shares of a drive between its functions: start-time fair queueing with a limited depth,
//! SFQ(D), with weights, limits and minimums.
//!
//! Owns the order in which requests go to a device, and how many are there at a time. It does not
//! own the requests, the device or a clock: times are parameters, in microseconds of any monotonic
//! clock, and what waits is named by its owner.
//!
//! While two flows have requests waiting, what they have got of the device differs by no more than
//! `|S1/w1 - S2/w2| <= c (1/w1 + 1/w2) (D + 1)`, where `S` is cost, `w` the weight, `c` the cost of
//! the largest request and `D` the depth. A flow without requests gains nothing by that, and leaves
//! its part to the others.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bucket;
mod cost;
mod depth;
mod flow;
mod requests;
mod scheduler;
mod state;

pub use cost::{COST_MIN, Kind, Request};
pub use depth::Depth;
pub use flow::{Figures, Flow, Share};
pub use requests::Ticket;
pub use scheduler::{Scheduler, Verdict};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
