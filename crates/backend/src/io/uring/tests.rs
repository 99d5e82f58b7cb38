//! Tests with a request that stays in the kernel as long as needed: a read of an empty pipe.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use crate::job::open_file::{Kind, OpenFile};
use crate::{Buffer, Class, Geometry, Operation, Request};

/// A ring, and a file whose reads end when something is written to the file.
fn ring_and_pipe() -> Option<(Ring, Arc<OpenFile>, File)> {
    let ring = match Ring::new(4) {
        Ok(ring) => ring,
        Err(error) => {
            println!("SKIPPED: no io_uring: {error}");
            return None;
        }
    };
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let geometry = Geometry {
        capacity_bytes: 1 << 20,
        block_bytes: 1,
        logical_block_bytes: 512,
        read_only: false,
        deallocates: false,
        deallocate_granularity_bytes: 0,
        writes_zeroes: false,
        volatile_cache: false,
    };
    let file = OpenFile {
        handle: File::from(reader).into(),
        path: "pipe".into(),
        name: "pipe".into(),
        kind: Kind::File,
        uncached: false,
        geometry,
        capacity_bytes: std::sync::atomic::AtomicU64::new(geometry.capacity_bytes),
        punches: AtomicBool::new(false),
        zeroes: AtomicBool::new(false),
        cache_lost: AtomicBool::new(false),
    };
    Some((ring, Arc::new(file), writer.into()))
}

fn read(file: &Arc<OpenFile>, tag: u64, len: usize) -> Job {
    let operation = Operation::Read { offset: 0, len, data: Buffer::zeroed(len).into() };
    Job::new(Arc::clone(file), Request::new(tag, operation))
}

const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

#[test]
fn a_request_in_the_kernel_is_cancelled() {
    let Some((mut ring, file, _writer)) = ring_and_pipe() else { return };
    for tag in 0..3 {
        ring.start(read(&file, tag, 512)).unwrap();
    }
    ring.kick().unwrap();
    assert!(ring.wait(Some(Duration::from_millis(1))).unwrap().is_none());
    assert!(ring.cancel(1));
    let completion = ring.wait(LIMIT).unwrap().unwrap();
    assert_eq!(completion.tag, 1);
    assert_eq!(completion.result.unwrap_err().class(), Class::Aborted);
    assert_eq!(completion.data.unwrap().into_buffer().unwrap().capacity(), 4096);
    assert_eq!(ring.in_flight(), 2);
    assert!(ring.cancel(0) && ring.cancel(2));
    while let Some(completion) = ring.wait(LIMIT).unwrap() {
        assert_eq!(completion.result.unwrap_err().class(), Class::Aborted);
    }
}

#[test]
fn no_request_is_lost_if_there_are_more_cancels_than_entries() {
    let Some((mut ring, file, mut writer)) = ring_and_pipe() else { return };
    ring.start(read(&file, 0, 1)).unwrap();
    ring.kick().unwrap();
    // These fill the submission queue, so that the next requests do not fit.
    for _ in 0..10 {
        assert!(ring.cancel(0));
    }
    for tag in 1..4 {
        ring.start(read(&file, tag, 1)).unwrap();
    }
    assert!(ring.start(read(&file, 4, 1)).is_err());
    ring.kick().unwrap();
    writer.write_all(&[1; 3]).unwrap();
    let mut tags = Vec::new();
    while let Some(completion) = ring.wait(LIMIT).unwrap() {
        assert_eq!(completion.result.is_err(), completion.tag == 0);
        tags.push(completion.tag);
    }
    tags.sort_unstable();
    assert_eq!(tags, [0, 1, 2, 3]);
}

#[test]
fn a_short_read_continues_without_a_call() {
    let Some((mut ring, file, mut writer)) = ring_and_pipe() else { return };
    ring.start(read(&file, 7, 1000)).unwrap();
    ring.kick().unwrap();
    writer.write_all(&[1; 400]).unwrap();
    // Only poll: it has to submit the continued request.
    assert!(ring.poll().is_none());
    writer.write_all(&[2; 600]).unwrap();
    let completion = loop {
        if let Some(completion) = ring.poll() {
            break completion;
        }
        std::thread::yield_now();
    };
    completion.result.unwrap();
    let buffer = completion.data.unwrap().into_buffer().unwrap();
    assert_eq!(buffer.as_slice()[..400], [1; 400]);
    assert_eq!(buffer.as_slice()[400..1000], [2; 600]);
}

#[test]
fn dropping_waits_for_the_kernel() {
    let Some((mut ring, file, mut writer)) = ring_and_pipe() else { return };
    ring.start(read(&file, 1, 512)).unwrap();
    ring.kick().unwrap();
    let written = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&written);
    let thread = std::thread::spawn(move || {
        // Long enough for a drop that does not wait to be over.
        std::thread::sleep(Duration::from_millis(50));
        flag.store(true, Ordering::SeqCst);
        writer.write_all(&[1; 512]).unwrap();
    });
    drop(ring);
    assert!(written.load(Ordering::SeqCst), "the ring was gone while the kernel still held the buffer");
    thread.join().unwrap();
}
