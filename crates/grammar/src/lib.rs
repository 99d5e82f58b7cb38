//! The syntax of values on command lines and in configurations: numbers, sizes, durations, and what
//! a drive stores its data in; and which texts are keys, that nobody repeats. Parsing, formatting,
//! and error messages, so that all programs and files of ebof accept the same.
//!
//! Text only: no file is accessed, and ranges are checked by the caller.

#![forbid(unsafe_code)]

pub mod backing;
pub mod keys;
pub mod units;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
