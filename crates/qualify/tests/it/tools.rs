//! hdparm, dd and xfs on a file behind a loop device; interrupts and queues of a curve. Skipped
//! without the programs, or without root.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

use std::path::{Path, PathBuf};

use ebof_initiator::Options;
use ebof_qualify::device::Device;
use ebof_qualify::document::{Document, EngineName, Phase, Procedure};
use ebof_qualify::engine::programs;
use ebof_qualify::file_system::{Attach, AttachedNamespace};
use ebof_qualify::procedure::{DeviceUnderTest, Wish};
use ebof_qualify::report;
use ebof_qualify::runner::{Begun, Observer, Provenance, Runner};
use ebof_qualify::store::Store;

struct NoAttach;

impl Attach for NoAttach {
    fn attach(&self, _: &Device) -> Result<AttachedNamespace, String> {
        Err("no namespaces here".to_owned())
    }
}

struct Silent;

impl Observer for Silent {
    fn begin(&mut self, _: &Begun<'_>) {}
    fn progress(&mut self, _: &ebof_bench::LoadProgress) {}
    fn end(&mut self, _: &Phase, _: &ebof_qualify::document::Run) {}
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Runs some phases of a procedure once.
fn run(procedure: Procedure, device: &str, quick: Option<u32>, wanted: impl Fn(&Phase) -> bool) -> Document {
    let device = Device::parse(device, Options::from_uri).unwrap();
    let seen = device.inspect().unwrap();
    let wish = Wish {
        procedure,
        devices: vec![DeviceUnderTest { device, seen }],
        against: false,
        engines: vec![EngineName::Ebof],
        rounds: 1,
        quick,
        reads_only: false,
        size_bytes: None,
        with_writes: false,
        repeats: 0,
    };
    let mut plan = wish.plan().unwrap();
    plan.phases.retain(wanted);
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create(&directory.path().join("report")).unwrap();
    let origin = Provenance { command: Vec::new(), program: "ebof".to_owned(), programs: Vec::new() };
    let runner = Runner::new(&wish, plan, origin, store, &NoAttach).unwrap();
    runner.run(&mut Silent).map_err(|(error, _)| error).unwrap()
}

/// A file that can be behind a loop device; `None` where nothing can.
fn file(directory: &Path, mib: u64, programs: &[&str]) -> Option<PathBuf> {
    for program in programs {
        let found = programs::find(program).is_some() || Path::new("/usr/sbin").join(program).exists();
        if !found {
            println!("SKIPPED: there is no {program}");
            return None;
        }
    }
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        println!("SKIPPED: a block device of a file needs root and loop devices");
        return None;
    }
    let path = directory.join("disk.img");
    std::fs::File::create(&path).unwrap().set_len(mib << 20).unwrap();
    Some(path)
}

#[test]
fn hdparm_and_dd_measure_the_block_device() {
    let directory = tempfile::tempdir().unwrap();
    let Some(path) = file(directory.path(), 64, &["hdparm", "dd", "losetup"]) else { return };
    let wanted = |phase: &Phase| ["hdparm-disk", "dd-write"].contains(&phase.id.as_str());
    let document = run(Procedure::Cdm, path.to_str().unwrap(), None, wanted);
    for (phase, program) in document.phases.iter().zip(["hdparm", "dd"]) {
        let run = &phase.runs[0];
        assert_eq!(run.failed, None, "{phase:?}");
        assert!(run.reports[0].total.bytes_per_s > 1e6, "{run:?}");
        assert_eq!(run.command.as_ref().unwrap()[0], program);
    }
    // dd has written all of it.
    assert_eq!(document.phases[1].runs[0].reports[0].total.bytes, 64 << 20);
    let text = report::markdown(&document);
    assert!(text.contains("hdparm -t --direct /dev/loop") && text.contains("the command of dd"), "{text}");
    assert!(!text.contains("same load by fio"), "{text}");
    let left = std::process::Command::new("losetup").arg("-j").arg(&path).output().unwrap();
    assert!(left.stdout.is_empty(), "the loop device stayed");
}

#[test]
fn patterns_are_measured_on_xfs() {
    let directory = tempfile::tempdir().unwrap();
    let Some(path) = file(directory.path(), 320, &["mkfs.xfs", "losetup"]) else { return };
    if !std::fs::read_to_string("/proc/filesystems").unwrap_or_default().contains("\txfs\n") {
        println!("SKIPPED: this kernel has no xfs");
        return;
    }
    let wanted = |phase: &Phase| phase.id == "rand-read-4k-xfs";
    let document = run(Procedure::Cdm, path.to_str().unwrap(), Some(1000), wanted);
    let phase = &document.phases[0];
    assert_eq!(phase.skipped, None);
    assert!(phase.runs[0].failed.is_none() && phase.runs[0].reports[0].total.iops > 0.0, "{phase:?}");
    assert!(!std::fs::read_to_string("/proc/self/mounts").unwrap().contains("ebof-qualify."));
}

#[test]
fn sizes_are_measured_over_16_queues_and_the_state_of_interrupts_is_told() {
    let document = run(Procedure::Curve, "mem:64Mi", Some(1000), |phase| phase.id == "q16-64k");
    let run = &document.phases[0].runs[0];
    assert!(run.failed.is_none() && run.reports[0].total.bytes_per_s > 0.0, "{run:?}");
    assert_eq!(run.reports[0].job.threads, 16);
    assert!(document.machine.settings.iter().any(|(name, _)| name == "irqbalance"));
    // Where the kernel counts the time of interrupts, it is a part of what a processor did.
    let of = &run.conditions;
    assert_eq!(of.interrupts_percent.is_some(), of.interrupts_processor.is_some());
    assert!(of.interrupts_percent.unwrap_or_default() <= of.interrupts_busy_percent.unwrap_or_default());
    let text = report::markdown(&document);
    assert!(text.contains("irqbalance") && text.contains("interrupts"), "{text}");
}
