//! `qualify`: runs a procedure of measurement, and leaves its report in a directory.
//!
//! Owns the arguments, the question before data are destroyed, the progress and the table at the
//! end. Procedures, their runner and the report are in `ebof-qualify`.

mod attach;
mod progress;
mod view;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use clap::ValueEnum;
use ebof_initiator::Options;
use ebof_nvme::uri::Uri;
use ebof_qualify::device::Device;
use ebof_qualify::document::{Document, EngineName, Procedure, State};
use ebof_qualify::engine::programs;
use ebof_qualify::guard;
use ebof_qualify::procedure::{DeviceUnderTest, Plan, Wish};
use ebof_qualify::runner::{Provenance, Runner, RunnerError};
use ebof_qualify::store::Store;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::device::{QueueArgs, UriArgs, check_options};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::{say, show};
use crate::program::verb::Outcome;
use crate::verbs::bench::bytes;
use crate::verbs::question::ask_for_name;
use attach::Connecting;
use progress::Bar;
use view::Finished;

/// What `--quick` divides by, if it does not say.
const QUICK: &str = "200";

/// A procedure of measurement.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The procedure
    #[arg(value_enum)]
    procedure: Word,
    /// The devices: nvme+tcp://HOST[:PORT]/NQN/NSID, the same with nvme+rdma, a file, a block
    /// device, mem:SIZE or null:SIZE; with fio also iscsi://HOST[:PORT]/IQN/LUN and
    /// nbd://HOST[:PORT]/NAME
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<String>,
    /// A local device that the others are compared with
    #[arg(long, value_name = "DEVICE")]
    against: Option<String>,
    /// The directory of the report
    #[arg(long, value_name = "DIRECTORY", default_value = "report")]
    report: PathBuf,
    /// The load generator: ebof, fio, or both beside each other [default: ebof; fio where a device
    /// needs it]
    #[arg(long, value_enum)]
    engine: Option<Engines>,
    /// Runs of each measurement
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Divide all times by N (200), and the part of the devices that is used: for a trial
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = QUICK,
        value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    quick: Option<u32>,
    /// Use only so many bytes of each device, from its beginning
    #[arg(long, value_name = "SIZE", value_parser = bytes)]
    size: Option<u64>,
    /// Leave out everything that writes
    #[arg(long)]
    reads_only: bool,
    /// Fairness: also measure writes
    #[arg(long)]
    writes: bool,
    /// Overwrite the devices without a question
    #[arg(long)]
    yes_destroy_data: bool,
    /// Overwrite partition tables and file systems, too. A device in use is never overwritten
    #[arg(long)]
    force: bool,
    /// Do not repeat runs that were disturbed
    #[arg(long)]
    no_repeat: bool,
    /// Go on with the report in the directory
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    uri: UriArgs,
    #[command(flatten)]
    queues: QueueArgs,
}

/// The procedures, as they are named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Word {
    /// The white paper on Ethernet SSDs: preconditioning and four tests
    Odcc,
    /// 128K sequential and 4K random, depth 128, four jobs; raw and on ext4
    Corners,
    /// Seq, Rand-512K, Rand-4K, Rand-4K-QD32, reads and writes
    Cdm,
    /// 16 synchronous readers beside a writer of 1 MiB, over shared and separate queue maps
    Mixed,
    /// IOPS against latency over depth and threads, with and without batches
    Curve,
    /// Several hosts at the same time: shares, spread, Jain's index
    Fairness,
    /// The same load over several protocols
    Compare,
}

impl Word {
    const fn procedure(self) -> Procedure {
        match self {
            Self::Odcc => Procedure::Odcc,
            Self::Corners => Procedure::Corners,
            Self::Cdm => Procedure::Cdm,
            Self::Mixed => Procedure::Mixed,
            Self::Curve => Procedure::Curve,
            Self::Fairness => Procedure::Fairness,
            Self::Compare => Procedure::Compare,
        }
    }
}

/// Load generators, as they are named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Engines {
    /// ebof's own
    Ebof,
    /// The stock fio
    Fio,
    /// Both, so that one can be checked with the other
    Both,
}

/// Runs the procedure.
pub(crate) fn run(args: &Args, global: &Global) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("catching signals")?;
    }
    // First what costs nothing and fails most.
    let old = if args.resume { Some(Store::open(&args.report)?) } else { None };
    let (wish, plan) = args.permitted()?;
    let attach = Connecting;
    let runner = match old {
        Some(old) => Runner::resume(&wish, plan, provenance(&wish), old, &attach)?,
        None => Runner::new(&wish, plan, provenance(&wish), Store::create(&args.report)?, &attach)?,
    };
    let mut bar = Bar::new(stop);
    let (document, error) = match runner.run(&mut bar) {
        Ok(document) => (document, None),
        Err((error, document)) => (*document, Some(error)),
    };
    bar.finish();
    finish(args, global, &document, error)
}

fn finish(args: &Args, global: &Global, document: &Document, error: Option<RunnerError>) -> Outcome {
    // What was measured is shown even if it could not be written.
    show(global, &Finished { document, directory: &args.report })?;
    if let Some(error) = error {
        return Err(error.into());
    }
    Ok(match document.state {
        State::Complete | State::Running => ExitCode::SUCCESS,
        State::Interrupted => ExitCode::from(130),
        State::Failed => ExitCode::FAILURE,
    })
}

impl Args {
    /// What is to be measured, and how, if that may be.
    fn permitted(&self) -> anyhow::Result<(Wish, Plan)> {
        let wish = self.wish()?;
        let new = NewFiles::from_devices(&wish.devices);
        let plan = wish.plan()?;
        for phase in plan.phases.iter().filter(|phase| phase.skipped.is_some()) {
            say(&format!("left out: {}: {}", phase.title, phase.skipped.as_deref().unwrap_or_default()));
        }
        self.permit(&wish, &plan)?;
        new.keep();
        Ok((wish, plan))
    }

    fn wish(&self) -> anyhow::Result<Wish> {
        let names: Vec<&String> = self.devices.iter().chain(&self.against).collect();
        let mut devices = Vec::new();
        for name in names {
            let new = NewFiles::from_devices(&devices);
            devices.push(self.inspect(name)?);
            new.keep();
        }
        let new = NewFiles::from_devices(&devices);
        let needs_others = devices.iter().any(|one| one.device.source().is_none());
        let engines = match self.engine {
            None if needs_others => vec![EngineName::Fio],
            None | Some(Engines::Ebof) => vec![EngineName::Ebof],
            Some(Engines::Fio) => vec![EngineName::Fio],
            Some(Engines::Both) => vec![EngineName::Ebof, EngineName::Fio],
        };
        if engines.contains(&EngineName::Fio) {
            // Better now than after the preconditioning.
            programs::find_fio()?;
        }
        if self.size == Some(0) {
            return Err(Failure::usage("--size 0 leaves nothing to be measured", "as in --size 1G").into());
        }
        new.keep();
        Ok(Wish {
            procedure: self.procedure.procedure(),
            devices,
            against: self.against.is_some(),
            engines,
            rounds: self.rounds,
            quick: self.quick,
            reads_only: self.reads_only,
            size_bytes: self.size,
            with_writes: self.writes,
            repeats: if self.no_repeat { 0 } else { 2 },
        })
    }

    fn inspect(&self, name: &str) -> anyhow::Result<DeviceUnderTest> {
        let overrides = self.queues.overrides(self.uri.overrides());
        if Uri::looks_like(name)
            && let Ok(uri) = Uri::parse(name)
        {
            check_options(uri.transport, &overrides)?;
        }
        let device = Device::parse(name, |uri| {
            let mut options = Options::from_uri(uri);
            overrides.apply(&mut options);
            options
        })?;
        let device = if self.only_reads() { device.for_reading() } else { device };
        let seen = device.inspect()?;
        Ok(DeviceUnderTest { device, seen })
    }

    /// Whether nothing is written, so that a device that is read-only will do.
    fn only_reads(&self) -> bool {
        match self.procedure {
            Word::Curve => true,
            Word::Fairness => !self.writes || self.reads_only,
            _ => self.reads_only,
        }
    }

    /// Makes sure that everything that is overwritten may be.
    fn permit(&self, wish: &Wish, plan: &Plan) -> anyhow::Result<()> {
        let phases = || plan.phases.iter().filter(|phase| phase.skipped.is_none());
        for (index, DeviceUnderTest { device, seen }) in wish.devices.iter().enumerate() {
            let of_device = |phase: &&ebof_qualify::document::Phase| {
                phase.columns.iter().any(|&column| plan.columns[column].device == index)
            };
            let mut writes = phases().filter(of_device).flat_map(|phase| &phase.jobs);
            if !writes.any(|job| job.rw.writes()) {
                continue;
            }
            guard::check(device, seen, self.force, ebof_attach::usage::used_by)?;
            if seen.is_new {
                continue;
            }
            let size = crate::output::text::si(seen.identity.capacity_bytes.into());
            let items = [format!("{} ({}, {size})", device.name, seen.identity.kind)];
            let given = self.yes_destroy_data.then_some(device.name.as_str());
            let warning = "WARNING: everything on this device will be lost.";
            // The option has no value: a name behind it would be another device to measure.
            ask_for_name(warning, &items, "--yes-destroy-data", &device.name, given)?;
        }
        Ok(())
    }
}

/// Files that were made for devices. Dropped, it removes them: a run that is refused leaves nothing
/// behind.
struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    fn from_devices(devices: &[DeviceUnderTest]) -> Self {
        let new = devices.iter().filter(|one| one.seen.is_new);
        Self(new.filter_map(|one| one.device.path()).map(Path::to_owned).collect())
    }

    /// They are used from now on.
    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for path in &self.0 {
            let _left_there = std::fs::remove_file(path);
        }
    }
}

fn provenance(wish: &Wish) -> Provenance {
    let mut programs = Vec::new();
    if wish.engines.contains(&EngineName::Fio) {
        programs.extend(programs::fio_version());
    }
    Provenance { command: std::env::args().collect(), program: format!("ebof {}", env!("CARGO_PKG_VERSION")), programs }
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
        Line::try_parse_from(std::iter::once("qualify").chain(line.split(' '))).map(|line| line.args)
    }

    #[test]
    fn a_procedure_has_devices_and_may_be_shortened() {
        let args = parse("odcc mem:64Mi --against null:64Mi --quick").unwrap();
        assert_eq!((args.quick, args.rounds, args.report), (Some(200), 3, PathBuf::from("report")));
        assert_eq!(parse("cdm mem:64Mi --quick=50").unwrap().quick, Some(50));
        for wrong in
            ["odcc", "cdm mem:1Mi --quick=0", "cdm mem:1Mi --rounds 0", "all mem:1Mi", "cdm mem:1Mi --engine dd"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        let nothing = parse("cdm mem:1Mi --size 0").unwrap().wish().unwrap_err().to_string();
        assert!(nothing.contains("--size 0"), "{nothing}");
    }

    #[test]
    fn a_run_that_is_refused_leaves_no_file_behind() {
        let directory = tempfile::tempdir().unwrap();
        let (new, old) = (directory.path().join("new.img"), directory.path().join("old.img"));
        std::fs::write(&old, vec![1; 8 << 20]).unwrap();
        let refused = |devices: &str| {
            let args = parse(&format!("compare {devices}")).unwrap();
            assert!(args.permitted().is_err());
            assert!(!new.exists(), "{devices}");
        };
        refused(&format!("{}:16Mi {}", new.display(), old.display()));
        refused(&format!("{}:16Mi {}", new.display(), directory.path().join("absent.img").display()));
    }

    #[test]
    fn a_device_with_data_is_overwritten_only_if_its_name_is_given() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        std::fs::write(&path, vec![1; 8 << 20]).unwrap();
        let permit = |more: &str| {
            let args = parse(&format!("cdm {}{more}", path.display())).unwrap();
            let wish = args.wish().unwrap();
            args.permit(&wish, &wish.plan().unwrap()).map_err(|error| crate::failure::text(&error))
        };
        let refused = permit("").unwrap_err();
        assert!(refused.contains("--yes-destroy-data") && refused.contains("disk.img"), "{refused}");
        permit(" --yes-destroy-data").unwrap();
        permit(" --reads-only").unwrap();
        // Memory has nothing that could be lost.
        let args = parse("cdm mem:64Mi").unwrap();
        let wish = args.wish().unwrap();
        args.permit(&wish, &wish.plan().unwrap()).unwrap();
    }
}
