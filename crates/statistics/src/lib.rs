//! Statistics of several runs of a measurement, and the time that a hypervisor took from them: for
//! `ebof-qualify` and for the project's own benchmarks.
//!
//! Owns the rules by which runs are summed up and left out; it runs nothing.
#![forbid(unsafe_code)]

mod stolen;
mod summary;

pub use stolen::{STEAL_PERCENT_MAX, Stolen};
pub use summary::{Summary, jain, median};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
