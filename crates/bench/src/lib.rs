//! The load generator: jobs as fio users know them, over a namespace of a target or over a local
//! file or device with the same code, and reports that both people and programs can compare.
//!
//! Owns what a load is, how latencies are counted and what a report contains. How bytes travel is
//! in `ebof-initiator` and `ebof-backend`; printing, progress bars and arguments are the caller's.
//!
//! ```no_run
//! use ebof_bench::{Job, Mix, Source, run};
//!
//! let source = Source::Local("disk.img".parse()?);
//! let job = Job { block_bytes: 4096, depth: 32, ..Job::new(Mix::RandRead) };
//! let report = run(&source, &job, |_| std::ops::ControlFlow::Continue(()))?;
//! println!("{:.0} IOPS", report.total.iops);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod block;
pub mod corner;
pub mod direct;
mod job;
mod lane;
mod pattern;
mod plan;
mod process;
pub mod raw;
pub mod rdma;
mod report;
mod run;
mod shared;
mod source;
mod worker;

pub use job::{Ioengine, Job, JobError, Mix, Rate};
pub use report::{Latency, PERCENTILES, ProcessCost, REPORT_SCHEMA, Report, Side};
pub use run::{BenchError, Load, LoadProgress, Phase, run, run_all, run_together};
pub use source::{QueueUse, Source, SourceError, open_direct};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
