//! `bench --raw` and `bench --hold`, for comparisons. The first runs the raw program of
//! `ebof_bench::raw` with the message sizes of a load. The second connects and then waits, so that
//! the CPU time of an idle host and its target can be measured from outside.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ebof_bench::{Job, Mix, Source, raw};
use ebof_initiator::Controller;

use crate::failure::Failure;
use crate::global::{Global, OutputFormat};
use crate::output::json::Object;
use crate::output::{View, print, show};
use crate::program::verb::Outcome;

/// The arguments of both.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Ends {
    /// Measure raw TCP on the loopback with the messages that the load would send, both ends in
    /// this process; --cpus-allowed has pairs of processors, for the responding and the requesting
    /// end of each connection, and --size has the payloads at random places of so much memory
    #[arg(long, help_heading = super::limit::HEADING, conflicts_with_all = ["sources", "compare_raw"])]
    pub(super) raw: bool,
    /// Connect N controllers with an I/O queue each, and wait for the time of --runtime
    #[arg(long, value_name = "N", help_heading = super::limit::HEADING, conflicts_with = "raw",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) hold: Option<u16>,
}

/// The largest `--size` of the raw program, for each connection.
const MEMORY_BYTES_MAX: u64 = 64 << 30;

/// The result of the raw program.
struct Carried {
    writes: bool,
    block_bytes: u32,
    processors: Vec<[usize; 2]>,
    raw: raw::Raw,
}

/// Runs the raw program with the messages of `job`.
pub(super) fn raw(job: &Job, global: &Global) -> Outcome {
    let load = load(job)?;
    let raw = raw::run(&load).context("raw TCP")?;
    let writes = load.writes;
    let block_bytes = load.block_bytes;
    let processors = load.processors;
    show(global, &Carried { writes, block_bytes, processors, raw })?;
    Ok(ExitCode::SUCCESS)
}

fn load(job: &Job) -> Result<raw::Load, Failure> {
    let writes = match job.rw {
        Mix::Read | Mix::RandRead => false,
        Mix::Write | Mix::RandWrite => true,
        Mix::Rw | Mix::RandRw => {
            return Err(Failure::usage("--raw does not mix reads and writes", "say --rw randread or --rw randwrite"));
        }
    };
    if job.block_bytes > raw::BLOCK_BYTES_MAX || job.depth > raw::DEPTH_MAX {
        let hint = format!("up to --bs {} and --iodepth {}", raw::BLOCK_BYTES_MAX, raw::DEPTH_MAX);
        return Err(Failure::usage("the load is too large for --raw", hint));
    }
    let Some(time) = job.runtime else {
        return Err(Failure::usage("--raw has no medium to go over once", "say how long, as in --runtime 2"));
    };
    let processors = pairs(job)?;
    let memory_bytes = job.size_bytes.unwrap_or(0);
    if memory_bytes > MEMORY_BYTES_MAX {
        let hint = "up to --size 64G; without, the payload is one buffer that stays in the cache";
        return Err(Failure::usage("--raw has no room for that much memory", hint));
    }
    let (block_bytes, depth, ramp) = (job.block_bytes, job.depth, job.ramp);
    Ok(raw::Load { writes, block_bytes, depth, memory_bytes, ramp, time, processors })
}

/// The processors of each connection: the given ones in pairs. By default one connection uses the
/// first two; of several connections, each uses one processor for both ends.
fn pairs(job: &Job) -> Result<Vec<[usize; 2]>, Failure> {
    let (given, odd) = job.processors.as_chunks::<2>();
    let connections = usize::from(job.threads.max(1));
    if !odd.is_empty() {
        return Err(Failure::usage("--cpus-allowed wants pairs with --raw", "as in --cpus-allowed 0,1"));
    }
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    Ok((0..connections)
        .map(|index| match given.len() {
            0 if connections == 1 => [0, 1 % count],
            0 => [index % count; 2],
            length => given[index % length],
        })
        .collect())
}

/// Connects, prints a line, and waits.
pub(super) fn hold(
    controllers: u16,
    sources: &[Source],
    time: Option<Duration>,
    global: &Global,
    stop: &AtomicBool,
) -> Outcome {
    let [Source::Fabric(options, _)] = sources else {
        return Err(Failure::usage("--hold wants one source, and a target", "as in nvme+tcp://HOST/NQN/1").into());
    };
    let mut options = (**options).clone();
    options.nr_io_queues = 1;
    let mut held = Vec::new();
    for _ in 0..controllers {
        let controller = Controller::connect(&options)?;
        // An I/O queue is connected on first use.
        let queue = controller.queue_pair::<Vec<u8>>()?;
        held.push((queue, controller));
    }
    let line = if global.format == OutputFormat::Json {
        Object::document("bench-hold", 1).with("controllers", held.len() as u64).to_line()?
    } else {
        format!("{} controllers connected, each with an Admin Queue and an I/O queue\n", held.len())
    };
    print(line.as_bytes())?;
    let until = time.map(|time| Instant::now() + time);
    while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
        // Long enough not to affect the CPU time of an idle process.
        std::thread::sleep(Duration::from_millis(500));
    }
    drop(held);
    Ok(ExitCode::SUCCESS)
}

impl View for Carried {
    fn text(&self, _verbose: bool) -> String {
        let Self { raw, .. } = self;
        format!(
            "raw TCP, {}, {} B, depth {}, {} connection(s)\n  {:.0} requests/s, {:.1} MB/s, mean {:.1} us\n",
            if self.writes { "writes" } else { "reads" },
            self.block_bytes,
            raw.depth,
            raw.connections,
            raw.requests_per_s,
            raw.bytes_per_s / 1e6,
            raw.mean_us
        )
    }

    fn json(&self, _verbose: bool) -> Object {
        let value = |value: serde_json::Result<serde_json::Value>| value.unwrap_or_default();
        Object::document("bench-limit", 1)
            .with("writes", self.writes)
            .with("block_bytes", u64::from(self.block_bytes))
            .with("processors", value(serde_json::to_value(&self.processors)))
            .with("raw", value(serde_json::to_value(self.raw)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_counts_messages_and_processor_time() {
        let job = Job { runtime: Some(Duration::from_secs(1)), ..Job::new(Mix::RandWrite) };
        let one = load(&Job { processors: vec![1, 0], ..job.clone() }).unwrap();
        assert!(one.writes && one.processors == [[1, 0]]);
        let two = load(&Job { threads: 2, processors: vec![0, 0, 1, 1], ..job.clone() }).unwrap();
        assert_eq!(two.processors, [[0, 0], [1, 1]]);
        let default = load(&Job { threads: 2, ..job.clone() }).unwrap();
        assert!(default.processors.iter().all(|[answering, asking]| answering == asking));
        assert!(load(&Job { processors: vec![0], ..job.clone() }).is_err());
        assert!(load(&Job { rw: Mix::RandRw, ..job.clone() }).is_err());
        assert!(load(&Job { block_bytes: 2 << 20, ..job.clone() }).is_err());
        assert!(load(&Job { runtime: None, ..job }).is_err());
    }
}
