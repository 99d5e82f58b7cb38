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
//!
//! # Modules
//!
//! A folder imports from those on lower layers only. `cargo xtask tidy` compares this table with
//! the code.
//!
//! | layer | folder | what is in it |
//! |---|---|---|
//! | 8 | `bench/lib.rs` | what the crate offers |
//! | 7 | `corner` | the four-corner test, and two runs of it side by side |
//! | 7 | `run` | runs jobs: threads, their start, the progress |
//! | 6 | `report` | results in numbers that can be compared |
//! | 5 | `worker` | one thread of a load |
//! | 4 | `lane` | one thread's access: a queue pair, shared queues, or a local device |
//! | 3 | `source` | what a load runs against |
//! | 2 | `direct` | loads over a direct port, without a guest |
//! | 2 | `job` | the description of a load, and the sequence of operations and offsets that follows from it |
//! | 2 | `raw` | the limit of the loopback, without NVMe |
//! | 1 | `block` | the buffer of one operation |
//! | 1 | `pattern` | a pattern by which a read is verified |
//! | 1 | `process` | CPU time of this process |
//! | 1 | `rdma` | the limit of an RDMA link, without NVMe |
#![forbid(unsafe_code)]

mod block;
pub mod corner;
pub mod direct;
mod job;
mod lane;
mod pattern;
mod process;
pub mod raw;
pub mod rdma;
mod report;
mod run;
mod source;
mod worker;

pub use job::{Ioengine, Job, JobError, Mix, Rate};
pub use report::{Latency, PERCENTILES, ProcessCost, REPORT_SCHEMA, Report, Side};
pub use run::{BenchError, Load, LoadPhase, LoadProgress, run, run_all, run_together};
pub use source::{QueueUse, Source, SourceError, open_direct};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
