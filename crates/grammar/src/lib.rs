//! What people write on command lines and in configurations where a value is more than a word:
//! numbers, sizes, durations, and what a drive stores its data in. Reading, writing, and what is
//! wrong with a text, so that all programs and files of ebof take the same.
//!
//! Text only: whether a file exists is for whoever opens it, which values make sense for whoever
//! asked.

#![forbid(unsafe_code)]

pub mod backing;
pub mod units;
