//! `bench`: runs a load on namespaces, files and devices, with fio's options; with `--compare-raw`,
//! compares a memory drive with the raw limit of the loopback.
//!
//! Owns the arguments and the output. Loads are defined and measured in `ebof-bench`; the
//! comparison is in `limit`.

mod ends;
mod jobs;
mod limit;
pub(crate) mod server;
mod view;

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use ebof_bench::{Ioengine, Job, LoadPhase, LoadProgress, Mix, QueueUse, Rate, Report, Source};
use ebof_initiator::{Options, split_paths};
use ebof_manage::units::parse_fio_size;
use ebof_nvme::Nsid;
use ebof_nvme::uri::Uri;
use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::device::{QueueArgs, UriArgs, check_local, check_options, parse_uri};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::show;
use crate::output::text::si;
use crate::program::verb::Outcome;
use view::Reports;

/// A load.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The sources, one after the other: nvme+tcp://HOST[:PORT]/NQN/NSID, the same with nvme+rdma,
    /// several of these with commas between them (paths to one namespace), a file, a block device,
    /// mem:SIZE or null:SIZE
    #[arg(value_name = "SOURCE", required_unless_present_any = ["compare_raw", "raw"])]
    sources: Vec<String>,
    /// read, write, randread, randwrite, rw or randrw
    #[arg(long, value_name = "MIX", default_value_t = Mix::RandRead)]
    rw: Mix,
    /// Bytes of an operation
    #[arg(long, value_name = "SIZE", default_value = "4K", value_parser = bytes)]
    bs: u64,
    /// Operations outstanding in each thread
    #[arg(long, value_name = "N", default_value_t = 32)]
    iodepth: u16,
    /// Threads, each with a queue of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    numjobs: u16,
    /// Seconds to measure; 0 is one pass over the medium
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    runtime: Duration,
    /// Seconds to run before measuring begins
    #[arg(long, alias = "ramp_time", value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    ramp_time: Duration,
    /// Accepted without effect: a load with a runtime always uses all of it
    #[arg(long, alias = "time_based")]
    time_based: bool,
    /// Percentage of reads in a mix
    #[arg(long, value_name = "PERCENT", default_value_t = 50)]
    rwmixread: u8,
    /// First byte of the part that is used
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = bytes)]
    offset: u64,
    /// Bytes of that part [default: all that follows]
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    size: Option<u64>,
    /// Maximum bytes per second of each thread, for reads and for writes; READ,WRITE sets them
    /// separately
    #[arg(long, value_name = "SIZE", value_parser = jobs::rate)]
    rate: Option<Rate>,
    /// Maximum operations per second of each thread, for reads and for writes
    #[arg(long, alias = "rate_iops", value_name = "IOPS")]
    rate_iops: Option<u64>,
    /// A group of threads, like a section of a job file:
    /// name=readers,rw=randread,bs=4k,numjobs=16,iodepth=1. Several groups run at the same time and
    /// are reported separately; their defaults are the options outside of --job
    #[arg(long = "job", value_name = "KEY=VALUE,...")]
    jobs: Vec<String>,
    /// 1: bypass the page cache, or fail; 0: use it [default: bypass it if possible]
    #[arg(long, value_name = "0|1", value_parser = jobs::switch)]
    direct: Option<bool>,
    /// How local files and devices are accessed: auto, io_uring or threads
    #[arg(long, value_name = "ENGINE", default_value = "auto")]
    ioengine: Ioengine,
    /// Use the poll queues (--nr-poll-queues) of a namespace
    #[arg(long)]
    hipri: bool,
    /// Write a pattern, and compare what is read with it
    #[arg(long)]
    verify: bool,
    /// Seed of random addresses and of the pattern
    #[arg(long, value_name = "NUMBER")]
    randseed: Option<u64>,
    /// Processors of the threads, separated by commas
    #[arg(long, alias = "cpus_allowed", value_name = "LIST", value_delimiter = ',')]
    cpus_allowed: Vec<usize>,
    /// Count failed operations and go on
    #[arg(long, alias = "continue_on_error")]
    continue_on_error: bool,
    /// Permit a load that writes to overwrite a file, a device or a namespace
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    uri: UriArgs,
    #[command(flatten)]
    queues: QueueArgs,
    #[command(flatten)]
    limit: limit::Limit,
    #[command(flatten)]
    ends: ends::Ends,
}

/// Values of fio's option of the same name.
const VERIFY_OF_FIO: [&str; 12] = [
    "md5",
    "crc64",
    "crc32c",
    "crc32c-intel",
    "crc32",
    "crc16",
    "crc7",
    "xxhash",
    "sha1",
    "sha256",
    "sha512",
    "pattern",
];

/// Runs the loads.
pub(crate) fn run(args: &Args, global: &Global) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("catching signals")?;
    }
    if args.limit.is_wanted() {
        return limit::run(&args.limit, global, &stop);
    }
    if let Some(kind) = args.sources.iter().find(|source| args.verify && VERIFY_OF_FIO.contains(&source.as_str())) {
        let message = format!("--verify takes no value: `{kind}` was taken for a source");
        return Err(
            Failure::usage(message, "say --verify alone: a pattern of ebof's own is written and compared").into()
        );
    }
    let job = args.job()?;
    if args.ends.raw {
        return ends::raw(&job, global);
    }
    let jobs = args.groups(&job)?;
    let sources = args.sources.iter().map(|text| args.source(text, &jobs)).collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(controllers) = args.ends.hold {
        return ends::hold(controllers, &sources, job.runtime, global, &stop);
    }
    let mut reports = Vec::new();
    for source in &sources {
        reports.extend(measure(source, &jobs, args.queue_use(), &stop)?);
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    let clean = reports.iter().all(|report| report.errors == 0);
    show(global, &Reports { all: &reports, groups: jobs.len() })?;
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Args {
    fn job(&self) -> anyhow::Result<Job> {
        let too_large = || Failure::usage(format!("--bs {} is too large", self.bs), "4K and 128K are usual");
        let job = Job::new(self.rw);
        Ok(Job {
            read_percent: self.rwmixread,
            block_bytes: u32::try_from(self.bs).map_err(|_out_of_range| too_large())?,
            depth: self.iodepth,
            threads: self.numjobs,
            offset_bytes: self.offset,
            size_bytes: self.size,
            runtime: (!self.runtime.is_zero()).then_some(self.runtime),
            ramp: if self.runtime.is_zero() { Duration::ZERO } else { self.ramp_time },
            rate_iops: self.rate_iops,
            rate: self.rate.unwrap_or_default(),
            hipri: self.hipri,
            ioengine: self.ioengine,
            verify: self.verify,
            seed: self.randseed.unwrap_or(job.seed),
            continue_on_error: self.continue_on_error,
            processors: self.cpus_allowed.clone(),
            ..job
        })
    }

    /// The groups that run at the same time: one without --job.
    fn groups(&self, job: &Job) -> Result<Vec<Job>, Failure> {
        if self.jobs.is_empty() {
            return Ok(vec![job.clone()]);
        }
        self.jobs.iter().enumerate().map(|(index, text)| jobs::parse(text, index, job)).collect()
    }

    fn queue_use(&self) -> QueueUse {
        QueueUse { shared: self.queues.shared(), size: self.queues.queue_size }
    }

    fn source(&self, text: &str, jobs: &[Job]) -> anyhow::Result<Source> {
        let forgets = text.starts_with("mem:") || text.starts_with("null:");
        if let Some(job) = jobs.iter().find(|job| job.rw.writes())
            && !forgets
            && !self.overwrite
        {
            let message = format!("--rw {} destroys the data that {text} holds", job.rw);
            return Err(Failure::usage(
                message,
                "measure reads, or a device without data; say --overwrite if they may be lost",
            )
            .into());
        }
        if !Uri::looks_like(text) {
            check_local(text, &self.uri.overrides())?;
            return Ok(Source::local(text, self.direct)
                .map_err(|error| Failure::usage(format!("the source `{text}`: {error}"), error.advice()))?);
        }
        let uris = split_paths(text).map(parse_uri).collect::<Result<Vec<_>, _>>()?;
        let overrides = self.queues.overrides(self.uri.overrides());
        let nsid = |uri: &Uri| uri.nsid.unwrap_or(Nsid(1));
        let mut paths = Vec::new();
        for uri in &uris {
            if nsid(uri) != nsid(&uris[0]) {
                let message = format!("`{text}` names namespaces {} and {}", nsid(&uris[0]), nsid(uri));
                let advice = "URIs with a comma between them are paths to one namespace; several sources have a blank";
                return Err(Failure::usage(message, advice).into());
            }
            check_options(uri.transport, &overrides)?;
            let mut options = Options::from_uri(uri);
            overrides.apply(&mut options);
            paths.push(options);
        }
        Ok(match <[Options; 1]>::try_from(paths) {
            Ok([only]) => Source::Fabric(Box::new(only), nsid(&uris[0])),
            Err(paths) => Source::Paths(paths, nsid(&uris[0])),
        })
    }
}

/// Runs jobs together with a live line on a terminal.
fn measure(source: &Source, jobs: &[Job], queues: QueueUse, stop: &AtomicBool) -> anyhow::Result<Vec<Report>> {
    let bar = match jobs.first().and_then(|job| job.runtime.map(|runtime| runtime + job.ramp)) {
        Some(total) => {
            let style = ProgressStyle::with_template("{bar:30} {percent:>3}%  {msg}")?;
            ProgressBar::new(u64::try_from(total.as_millis())?).with_style(style)
        }
        None => ProgressBar::new_spinner(),
    };
    let reports = ebof_bench::run_together(source, jobs, queues, |progress| {
        bar.set_position(u64::try_from(progress.elapsed.as_millis()).unwrap_or(u64::MAX));
        bar.set_message(live(progress));
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    bar.finish_and_clear();
    Ok(reports?)
}

fn live(progress: &LoadProgress) -> String {
    let phase = if progress.phase == LoadPhase::Ramp { "ramp: " } else { "" };
    let mut text = format!("{phase}{:.0} IOPS, {:.1} MB/s", progress.iops, progress.bytes_per_s / 1e6);
    if progress.total.is_none() {
        text += &format!(", {} so far", si(progress.bytes.into()));
    }
    if progress.errors > 0 {
        text += &format!(", {} errors", progress.errors);
    }
    text
}

/// A size with fio's units: `4K` is 4096.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    text.parse().or_else(|_not_plain| parse_fio_size(text).map_err(|error| error.to_string()))
}

/// Seconds with a fraction; a day at most, so that sums of them stay in range.
fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = || "want seconds, as in 5 or 0.5, up to 86400".to_owned();
    let value: f64 = text.trim_end_matches('s').parse().map_err(|_not_a_number| wrong())?;
    if !(0.0..=86_400.0).contains(&value) {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(value).map_err(|_out_of_range| wrong())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &str) -> Result<Args, clap::Error> {
        Line::try_parse_from(std::iter::once("bench").chain(line.split(' '))).map(|line| line.args)
    }

    #[test]
    fn a_job_is_parsed_from_fios_arguments() {
        let args =
            parse("mem:1Gi --rw randrw --bs 128K --iodepth 64 --numjobs 2 --runtime 0.5 --rwmixread 70").unwrap();
        let job = args.job().unwrap();
        assert_eq!((job.rw, job.block_bytes, job.depth, job.threads), (Mix::RandRw, 131_072, 64, 2));
        assert_eq!((job.runtime, job.read_percent), (Some(Duration::from_millis(500)), 70));
        let once = parse("mem:1Gi --runtime 0 --bs 4096").unwrap().job().unwrap();
        assert_eq!((once.runtime, once.ramp, once.block_bytes), (None, Duration::ZERO, 4096));
        for wrong in
            ["mem:1Gi --runtime -1", "mem:1Gi --runtime nan", "mem:1Gi --rw trim", "mem:1Gi --bs 4X", "--rw read"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("--compare-raw").is_ok());
    }

    #[test]
    fn overwriting_data_requires_confirmation() {
        let source = |line: &str, text: &str| {
            let args = parse(line).unwrap();
            let groups = args.groups(&args.job().unwrap()).unwrap();
            args.source(text, &groups)
        };
        assert!(source("x --rw randwrite", "/tmp/x").unwrap_err().to_string().contains("--overwrite"));
        assert!(source("x --job rw=read --job rw=write", "/tmp/x").unwrap_err().to_string().contains("--overwrite"));
        assert!(source("x --rw randwrite", "nvme+tcp://127.0.0.1/nqn.2014-08.org.example:a/1").is_err());
        assert!(source("x --rw randwrite", "mem:1Mi").is_ok());
        assert!(source("x --rw randwrite --overwrite", "/tmp/x").is_ok());
        assert!(source("x --rw randread", "/tmp/x").is_ok());
    }

    #[test]
    fn queues_are_requested_as_by_connect() {
        let args =
            parse("x -i 2 -W 1 --nr-poll-queues 1 -Q 64 --tos 32 --hdr-digest --zerocopy-send 64Ki --rate 1M,2M")
                .unwrap();
        assert_eq!(args.queue_use(), QueueUse { shared: true, size: Some(64) });
        let Source::Fabric(options, _) = args.source("nvme+tcp://127.0.0.1/nqn.2014-08.org.example:a/1", &[]).unwrap()
        else {
            panic!("a URI is a namespace");
        };
        assert_eq!((options.nr_io_queues, options.nr_write_queues, options.nr_poll_queues), (2, 1, 1));
        assert_eq!((options.queue_size, options.tos, options.hdr_digest), (64, Some(32), true));
        assert_eq!(options.zerocopy_send, Some(64 << 10));
        let refused = parse("x --zerocopy-send 2K").unwrap_err().to_string();
        assert!(refused.contains("want 4Ki to 16Mi: less than a page"), "{refused}");
        assert_eq!(args.job().unwrap().rate, Rate { read: Some(1 << 20), write: Some(2 << 20) });
        assert_eq!(parse("x -Q 64").unwrap().queue_use(), QueueUse { shared: false, size: Some(64) });
        assert!(parse("x -Q 1").is_err() && parse("x --direct 2").is_err() && parse("x --ioengine libaio").is_err());
        assert!(parse("x --time_based --ramp_time 1 --rate_iops 5 --direct=1 --ioengine=io_uring").is_ok());
    }

    #[test]
    fn a_uri_names_the_namespace() {
        let args = parse("x").unwrap();
        let Source::Fabric(options, nsid) =
            args.source("nvme+tcp://127.0.0.1:4421/nqn.2014-08.org.example:a/7", &[]).unwrap()
        else {
            panic!("a URI is a namespace");
        };
        assert_eq!((options.trsvcid, nsid), (4421, Nsid(7)));
        for uri in [
            "nvme+tcp://127.0.0.1:4421/nqn.2014-08.org.example:a/7",
            "nvme+rdma://[::1]:4420/nqn.2014-08.org.example:a/1",
        ] {
            assert_eq!(args.source(uri, &[]).unwrap().describe(), uri);
            let both = format!("{uri},{uri}");
            assert_eq!(args.source(&both, &[]).unwrap().describe(), both);
            let error = args.source(&format!("{uri},{uri}1"), &[]).unwrap_err().to_string();
            assert!(error.contains("names namespaces"), "{error}");
        }
    }
}
