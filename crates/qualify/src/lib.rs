//! Procedures that qualify a drive, a host or a fabric: the order of their loads, the rules of a
//! fair comparison, the document that they produce, and the reports that are made from it.
//!
//! Owns what is run when, what counts, and what is reported. How a load is generated and measured
//! is in `ebof-bench`; arguments, questions and progress bars are the caller's.
//!
//! # Modules
//!
//! A folder imports from those on lower layers only. `cargo xtask tidy` compares this table with
//! the code.
//!
//! | layer | folder | what is in it |
//! |---|---|---|
//! | 9 | `qualify/lib.rs` | what the crate offers |
//! | 8 | `runner` | runs a plan: rounds, columns, conditions, repetitions |
//! | 7 | `file_system` | a file system on a device, with the file that is measured |
//! | 6 | `guard` | what a procedure would destroy |
//! | 6 | `procedure` | procedures as data: phases and columns |
//! | 5 | `device` | the devices that are measured, and what they say of themselves |
//! | 4 | `conditions` | what else the machine did during a run |
//! | 4 | `report` | HTML and Markdown, from documents alone |
//! | 3 | `engine` | load generators that are other programs |
//! | 3 | `interrupts` | where the interrupts of network interfaces go |
//! | 3 | `steady` | whether a run was in a steady state |
//! | 3 | `store` | the directory of a report |
//! | 2 | `document` | what was measured, on what, how; its results: medians, ratios, shares |
//! | 1 | `machine` | what the machine is that measures |
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
pub mod runner;
pub mod steady;
pub mod store;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
