//! Steps and their results without a kernel: short transfers, refusals, fallbacks, and the effect
//! of a failed flush on the next one.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::job::open_file::Kind;
use crate::{Buffer, Class, Geometry};

fn file(block_bytes: u32, uncached: bool) -> Arc<OpenFile> {
    let geometry = Geometry {
        capacity_bytes: 1 << 30,
        block_bytes,
        logical_block_bytes: 512,
        read_only: false,
        deallocates: true,
        deallocate_granularity_bytes: 4096,
        writes_zeroes: true,
        volatile_cache: true,
    };
    Arc::new(OpenFile {
        handle: File::open("/dev/null").unwrap().into(),
        path: "/a/disk.img".into(),
        name: "/a/disk.img".into(),
        kind: Kind::File,
        uncached,
        geometry,
        capacity_bytes: std::sync::atomic::AtomicU64::new(geometry.capacity_bytes),
        punches: AtomicBool::new(true),
        zeroes: AtomicBool::new(true),
        cache_lost: AtomicBool::new(false),
    })
}

fn job(file: &Arc<OpenFile>, operation: Operation) -> Job {
    Job::new(Arc::clone(file), Request::new(1, operation))
}

fn read(offset: u64, len: usize) -> Operation {
    Operation::Read { offset, len, data: Buffer::zeroed(len).into() }
}

fn write(offset: u64, len: usize, fua: bool) -> Operation {
    Operation::Write { offset, len, data: Buffer::zeroed(len).into(), fua }
}

fn zeroes(len: u64, deallocate: bool, fua: bool) -> Operation {
    Operation::WriteZeroes { offset: 4096, len, deallocate, fua }
}

/// The step in a form that can be compared.
fn step(job: &mut Job) -> String {
    match job.step() {
        JobStep::Read { offset, into } => format!("read {offset}+{}", into.len()),
        JobStep::Write { offset, from, sync } => {
            format!("write {offset}+{}{}", from.len(), if sync { " sync" } else { "" })
        }
        JobStep::ReadSegments { offset, into } => {
            format!("read {offset}+{:?}", lengths(into.iter().map(|part| part.len())))
        }
        JobStep::WriteSegments { offset, from, sync } => {
            let lengths = lengths(from.iter().map(|part| part.len()));
            format!("write {offset}+{lengths:?}{}", if sync { " sync" } else { "" })
        }
        JobStep::ReadShared { offset, into } => {
            format!("read {offset}+{:?} shared", lengths(into.io_slices().map(|part| part.length())))
        }
        JobStep::WriteShared { offset, from, sync } => {
            let lengths = lengths(from.io_slices().map(|part| part.length()));
            format!("write {offset}+{lengths:?} shared{}", if sync { " sync" } else { "" })
        }
        JobStep::Allocate { mode: PUNCH, offset, len } => format!("punch {offset}+{len}"),
        JobStep::Allocate { offset, len, .. } => format!("zero {offset}+{len}"),
        JobStep::Sync => "sync".to_owned(),
    }
}

fn lengths(parts: impl Iterator<Item = usize>) -> Vec<usize> {
    parts.collect()
}

#[track_caller]
fn again(job: &mut Job, outcome: Result<usize, Errno>) {
    let progress = job.advance(outcome);
    assert!(matches!(progress, Progress::Again), "{progress:?}");
}

#[track_caller]
fn ends(job: &mut Job, outcome: Result<usize, Errno>) -> Result<(), Error> {
    match job.advance(outcome) {
        Progress::Finished(result) => result,
        Progress::Again => panic!("should have ended, next: {}", step(job)),
    }
}

#[test]
fn a_short_read_continues_where_it_stopped() {
    let file = file(1, false);
    let mut job = job(&file, read(1000, 5000));
    assert_eq!(step(&mut job), "read 1000+5000");
    again(&mut job, Ok(1));
    assert_eq!(step(&mut job), "read 1001+4999");
    again(&mut job, Ok(4998));
    assert_eq!(step(&mut job), "read 5999+1");
    ends(&mut job, Ok(1)).unwrap();
}

#[test]
fn a_short_uncached_write_continues_at_the_start_of_a_block() {
    let file = file(4096, true);
    let mut job = job(&file, write(8192, 16384, true));
    assert_eq!(step(&mut job), "write 8192+16384 sync");
    again(&mut job, Ok(5000));
    assert_eq!(step(&mut job), "write 12288+12288 sync");
    let error = ends(&mut job, Ok(4095)).unwrap_err();
    assert_eq!(error.class(), Class::MediumWrite);
    assert_eq!(error.to_string(), "write of 12288 bytes at offset 12288 of /a/disk.img: write zero");
}

#[test]
fn a_file_that_was_cut_off_is_an_error_and_not_zeros() {
    let file = file(1, false);
    let mut job = job(&file, read(0, 8192));
    again(&mut job, Ok(4096));
    let error = ends(&mut job, Ok(0)).unwrap_err();
    assert_eq!(error.class(), Class::MediumRead);
    assert_eq!(
        error.to_string(),
        "read at offset 4096 of /a/disk.img: the file has become shorter than the 1073741824 bytes it had when it was \
         opened; do not truncate a file that is in use"
    );
}

#[test]
fn eagain_is_retried_a_limited_number_of_times() {
    let file = file(1, false);
    let mut job = job(&file, read(0, 4096));
    for _ in 0..RETRIES_MAX {
        again(&mut job, Err(Errno::AGAIN));
    }
    assert_eq!(ends(&mut job, Err(Errno::AGAIN)).unwrap_err().class(), Class::Busy);
}

#[test]
fn zeroing_uses_what_the_medium_supports_and_remembers_what_it_does_not() {
    let file = file(1, false);
    let len = (ZEROS.as_slice().as_bytes().len() + 512) as u64;
    let mut first = job(&file, zeroes(len, true, true));
    assert_eq!(step(&mut first), format!("punch 4096+{len}"));
    again(&mut first, Err(Errno::OPNOTSUPP));
    assert_eq!(step(&mut first), format!("zero 4096+{len}"));
    again(&mut first, Err(Errno::OPNOTSUPP));
    assert_eq!(step(&mut first), "write 4096+131072");
    again(&mut first, Ok(131_072));
    assert_eq!(step(&mut first), "write 135168+512");
    again(&mut first, Ok(512));
    assert_eq!(step(&mut first), "sync");
    ends(&mut first, Ok(0)).unwrap();

    let mut second = job(&file, zeroes(512, true, false));
    assert_eq!(step(&mut second), "write 4096+512");
    ends(&mut second, Ok(512)).unwrap();
}

#[test]
fn no_hole_is_punched_unless_deallocation_is_allowed() {
    let file = file(1, false);
    let mut job = job(&file, zeroes(8192, false, false));
    assert_eq!(step(&mut job), "zero 4096+8192");
    ends(&mut job, Ok(0)).unwrap();
}

#[test]
fn deallocation_processes_all_ranges_and_ignores_failures() {
    let file = file(1, false);
    let mut all = job(&file, Operation::Deallocate { ranges: vec![0..4096, 8192..16384] });
    assert_eq!(step(&mut all), "punch 0+4096");
    again(&mut all, Ok(0));
    assert_eq!(step(&mut all), "punch 8192+8192");
    let error = ends(&mut all, Err(Errno::IO)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "deallocate of 8192 bytes at offset 8192 of /a/disk.img: Input/output error (os error 5); the medium failed: \
         see the kernel log"
    );
    let mut unable = job(&file, Operation::Deallocate { ranges: vec![0..4096, 8192..16384] });
    ends(&mut unable, Err(Errno::OPNOTSUPP)).unwrap();
    assert!(!file.punches.load(Ordering::Relaxed));
}

// @test data.failed-flush
#[test]
fn after_a_failed_flush_later_flushes_fail() {
    let file = file(1, false);
    // Both are in progress; the kernel reports the failure to only one of them.
    let (mut told, mut untold) = (job(&file, Operation::Flush), job(&file, Operation::Flush));
    assert_eq!(ends(&mut told, Err(Errno::IO)).unwrap_err().class(), Class::MediumWrite);
    let error = ends(&mut untold, Ok(0)).unwrap_err();
    assert_eq!(error.class(), Class::MediumWrite);
    assert_eq!(
        error.to_string(),
        "flush refused: an earlier flush of /a/disk.img failed, so data written before it may be lost; check the \
         medium, then open the device again"
    );
}

#[test]
fn a_failed_fua_write_counts_as_a_failed_flush_only_behind_a_page_cache() {
    for (uncached, lost) in [(false, true), (true, false)] {
        let file = file(512, uncached);
        let mut job = job(&file, write(0, 4096, true));
        assert_eq!(ends(&mut job, Err(Errno::IO)).unwrap_err().class(), Class::MediumWrite);
        assert_eq!(file.check_cache(Action::Flush).is_err(), lost);
    }
    let file = file(1, false);
    let mut full = job(&file, write(0, 4096, true));
    let error = ends(&mut full, Err(Errno::NOSPC)).unwrap_err();
    assert_eq!(error.class(), Class::OutOfSpace);
    assert!(error.to_string().ends_with("free space on the file system that holds it"), "{error}");
    assert!(file.check_cache(Action::Flush).is_ok());
}

#[test]
fn shared_memory_is_given_to_the_system_where_it_is() {
    let file = file(512, true);
    let (_file, mapping) = ebof_region::SharedMapping::create("test", 16384).unwrap();
    let pieces =
        || [(0, 1024), (4096, 512), (8192, 2048)].map(|(at, bytes)| mapping.piece(at, bytes).unwrap()).to_vec();
    let mut reading = job(&file, Operation::Read { offset: 512, len: 3072, data: pieces().into() });
    let JobStep::ReadShared { into, .. } = reading.step() else { panic!("shared memory is no slices") };
    let first = into.io_slices().next().unwrap().as_iovec();
    assert_eq!(first.iov_base.cast(), pieces()[0].address());
    assert_eq!(step(&mut reading), "read 512+[1024, 512, 1536] shared");
    // A short transfer goes on within a piece.
    again(&mut reading, Ok(2048));
    assert_eq!(step(&mut reading), "read 2560+[1024] shared");
    ends(&mut reading, Ok(1024)).unwrap();
    let mut writing = job(&file, Operation::Write { offset: 0, len: 1536, data: pieces().into(), fua: true });
    assert_eq!(step(&mut writing), "write 0+[1024, 512] shared sync");
    assert!(reading.region().is_none(), "nothing that could be registered");
}

#[test]
fn a_cancelled_request_ends_with_its_current_step() {
    let file = file(1, false);
    let mut between = job(&file, read(0, 8192));
    between.cancel();
    assert_eq!(ends(&mut between, Ok(4096)).unwrap_err().class(), Class::Aborted);
    for errno in [Errno::CANCELED, Errno::INTR] {
        let mut stopped = job(&file, read(0, 8192));
        stopped.cancel();
        assert_eq!(ends(&mut stopped, Err(errno)).unwrap_err().class(), Class::Aborted);
    }
    let mut too_late = job(&file, read(0, 8192));
    too_late.cancel();
    ends(&mut too_late, Ok(8192)).unwrap();
}

#[test]
fn errors_are_classified_by_what_the_caller_can_do() {
    let class = |operation: Operation, errno: Errno| {
        let file = file(1, false);
        ends(&mut job(&file, operation), Err(errno)).unwrap_err().class()
    };
    assert_eq!(class(read(0, 512), Errno::IO), Class::MediumRead);
    assert_eq!(class(write(0, 512, false), Errno::IO), Class::MediumWrite);
    assert_eq!(class(write(0, 512, false), Errno::NOSPC), Class::OutOfSpace);
    assert_eq!(class(write(0, 512, false), Errno::ROFS), Class::ReadOnly);
    assert_eq!(class(read(0, 512), Errno::NODEV), Class::Gone);
    assert_eq!(class(read(0, 512), Errno::NOMEM), Class::Busy);
    assert_eq!(class(read(0, 512), Errno::OPNOTSUPP), Class::Unsupported);
}
