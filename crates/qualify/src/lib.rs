//! Procedures that qualify a drive, a host or a fabric: the order of their loads, the rules of a
//! fair comparison, the document that they produce, and the reports that are made from it.
//!
//! Owns what is run when, what counts, and what is reported. How a load is generated and measured
//! is in `ebof-bench`; arguments, questions and progress bars are the caller's.
#![forbid(unsafe_code)]

pub mod conditions;
pub mod device;
pub mod document;
pub mod engine;
pub mod file_system;
pub mod guard;
mod interrupts;
pub mod machine;
pub mod procedure;
pub mod report;
mod results;
pub mod runner;
pub mod steady;
pub mod store;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
