//! Many concurrent requests, on both engines: batches, the limit, cancelling, waiting on the
//! descriptor, dropping.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{
    LIMIT, direct_works, engines, open_text, read, read_pieces, read_shared, run, shared, write, write_of,
    write_pieces, write_shared,
};
use ebof_backend::{
    Buffer, Class, Completion, CompletionHook, Device, Engine, Io, Operation, Request, Segments, Submitted,
};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

const BLOCK: usize = 4096;

/// A new file of `blocks` blocks, in a directory that is removed with the first value.
fn disk(blocks: usize) -> (tempfile::TempDir, std::sync::Arc<dyn Device>) {
    let directory = tempfile::tempdir().unwrap();
    let device = open_text(&format!("{}/disk.img:{}", directory.path().display(), blocks * BLOCK));
    (directory, device)
}

fn submit(device: &dyn Device, io: &mut Io, tag: u64, operation: Operation) {
    let submitted = device.submit(io, Request::new(tag, operation));
    assert!(matches!(submitted, Submitted::Pending), "{submitted:?}");
}

fn block_of(tag: u64) -> Vec<u8> {
    vec![tag.to_le_bytes()[0] | 1; BLOCK]
}

fn write_block(tag: u64) -> Operation {
    write_of(tag * BLOCK as u64, &block_of(tag), false)
}

fn read_block(tag: u64) -> Operation {
    Operation::Read { offset: tag * BLOCK as u64, len: BLOCK, data: Buffer::zeroed(BLOCK).into() }
}

/// Waits for everything in flight and returns the sorted tags; all results must be successes.
fn drain(io: &mut Io) -> Vec<u64> {
    let mut tags = Vec::new();
    while let Some(completion) = io.wait(LIMIT).unwrap() {
        completion.result.unwrap();
        tags.push(completion.tag);
    }
    assert_eq!(io.in_flight(), 0);
    tags.sort_unstable();
    tags
}

/// It is done when it is accepted, and only one at a time.
#[test]
fn the_submitting_thread_does_its_requests_itself() {
    let (_directory, device) = disk(4);
    let mut io = Io::with_engine(60, Engine::Caller).unwrap();
    assert_eq!((io.engine(), io.descriptor().is_none()), (Some(Engine::Caller), true));
    submit(&*device, &mut io, 1, write_block(1));
    // Another engine reads it although nobody has waited.
    let mut other = Io::with_engine(4, Engine::Threads).unwrap();
    assert_eq!(read(&*device, &mut other, BLOCK as u64, BLOCK).unwrap(), block_of(1));
    let second = device.submit(&mut io, Request::new(2, read_block(2)));
    assert!(matches!(second, Submitted::Busy(_)), "{second:?}");
    assert!(io.cancel(1) && !io.cancel(2), "too late, but known");
    assert_eq!(drain(&mut io), [1]);
    for operation in [Operation::Flush, write_of(0, &block_of(0), true), read_block(1)] {
        assert!(run(&*device, &mut io, operation).result.is_ok());
    }
    let ranges = vec![0..BLOCK as u64, 2 * BLOCK as u64..3 * BLOCK as u64];
    assert!(run(&*device, &mut io, Operation::Deallocate { ranges }).result.is_ok());
    assert_eq!(read(&*device, &mut io, 0, BLOCK).unwrap(), vec![0; BLOCK]);
    assert!(io.remote().is_none() && io.wait(None).unwrap().is_none());
    assert_eq!((io.stats().accepted, io.stats().completed), (6, 6));
}

#[test]
fn many_requests_begin_before_the_kick_and_each_completes_once() {
    for mut io in engines(60) {
        let (_directory, device) = disk(60);
        // A ring does not let more than 15 wait.
        let early = if io.engine() == Some(Engine::Uring) { 3 } else { 0 };
        for tag in 0..60 {
            submit(&*device, &mut io, tag, write_block(tag));
        }
        assert_eq!((io.in_flight(), io.stats().handovers), (60, early));
        io.kick().unwrap();
        io.kick().unwrap();
        assert_eq!(io.stats().handovers, early + 1, "one hand-over for what is left, none for nothing");
        assert_eq!(drain(&mut io), (0..60).collect::<Vec<u64>>());
        for tag in 0..60 {
            submit(&*device, &mut io, tag, read_block(tag));
        }
        while let Some(completion) = io.wait(LIMIT).unwrap() {
            completion.result.unwrap();
            assert_eq!(completion.data.unwrap().as_buffer().unwrap().as_slice(), block_of(completion.tag));
        }
        assert_eq!((io.stats().accepted, io.stats().completed), (120, 120));
    }
}

#[test]
fn a_request_beyond_the_limit_is_returned_unchanged() {
    for mut io in engines(8) {
        let (_directory, device) = disk(16);
        for tag in 0..8 {
            submit(&*device, &mut io, tag, write_block(tag));
        }
        let Submitted::Busy(request) = device.submit(&mut io, Request::new(8, write_block(8))) else {
            panic!("only 8 are allowed");
        };
        assert_eq!(request.tag, 8);
        let first = io.wait(LIMIT).unwrap().unwrap();
        first.result.unwrap();
        assert!(matches!(device.submit(&mut io, request), Submitted::Pending));
        assert_eq!(drain(&mut io).len(), 8);
        assert_eq!(read(&*device, &mut io, 8 * BLOCK as u64, BLOCK).unwrap(), block_of(8));
    }
}

#[test]
fn the_descriptor_is_readable_only_when_a_completion_is_pending() {
    for mut io in engines(8) {
        let (_directory, device) = disk(64);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&set, io.descriptor().unwrap(), epoll::EventData::new_u64(0), epoll::EventFlags::IN).unwrap();
        let readable = |seconds| {
            let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
            let mut events = Vec::with_capacity(1);
            loop {
                match epoll::wait(&set, spare_capacity(&mut events), Some(&timeout)) {
                    // A completion that arrives during the sleep may interrupt it.
                    Err(Errno::INTR) => {}
                    ready => break ready.unwrap() == 1,
                }
            }
        };
        for round in 0..32 {
            assert!(!readable(0), "nothing is in flight");
            // A write and a flush, which take longer in the kernel.
            submit(&*device, &mut io, round, write_block(round));
            submit(&*device, &mut io, 100 + round, Operation::Flush);
            io.kick().unwrap();
            let mut completed = 0;
            while completed < 2 {
                assert!(readable(60), "{:?}: a completion in time", io.engine());
                while let Some(completion) = io.poll() {
                    completion.result.unwrap();
                    completed += 1;
                }
            }
        }
    }
}

#[test]
fn a_cancelled_request_completes_once_and_an_unknown_one_is_not_found() {
    for mut io in engines(64) {
        let (_directory, device) = disk(64);
        assert!(!io.cancel(1));
        for round in 0..50 {
            for tag in 0..32 {
                submit(&*device, &mut io, tag, if tag % 4 == 3 { Operation::Flush } else { write_block(tag) });
                if tag == 16 && round % 2 == 0 {
                    io.kick().unwrap();
                }
            }
            for tag in (0..32).step_by(2).chain([3, 31]) {
                assert!(io.cancel(tag), "{tag} is in flight");
            }
            assert!(!io.cancel(99));
            let mut tags = Vec::new();
            while let Some(completion) = io.wait(LIMIT).unwrap() {
                if let Err(error) = &completion.result {
                    assert_eq!(error.class(), Class::Aborted, "{error}");
                    assert!(completion.tag.is_multiple_of(2) || [3, 31].contains(&completion.tag));
                }
                assert_eq!(completion.data.is_some(), completion.tag % 4 != 3);
                tags.push(completion.tag);
            }
            tags.sort_unstable();
            assert_eq!(tags, (0..32).collect::<Vec<u64>>());
        }
        // The slots are all usable again.
        for tag in 0..64 {
            submit(&*device, &mut io, tag, write_block(tag));
        }
        assert_eq!(drain(&mut io).len(), 64);
    }
}

#[test]
fn on_threads_requests_that_have_not_begun_are_cancelled() {
    let mut io = Io::with_engine(8, Engine::Threads).unwrap();
    let (_directory, device) = disk(8);
    submit(&*device, &mut io, 1, write_block(1));
    assert!(io.cancel(1));
    let completion = io.wait(LIMIT).unwrap().unwrap();
    assert_eq!(completion.result.unwrap_err().to_string(), "write cancelled");
    assert_eq!(read(&*device, &mut io, BLOCK as u64, BLOCK).unwrap(), vec![0; BLOCK]);
}

#[test]
fn dropping_waits_for_accepted_requests() {
    for kicked in [false, true] {
        for mut io in engines(64) {
            let (_directory, device) = disk(64);
            for tag in 0..64 {
                submit(&*device, &mut io, tag, write_block(tag));
            }
            if kicked {
                io.kick().unwrap();
            }
            drop(io);
            for mut io in engines(1) {
                for tag in 0..64 {
                    assert_eq!(read(&*device, &mut io, tag * BLOCK as u64, BLOCK).unwrap(), block_of(tag));
                }
            }
        }
    }
}

#[test]
fn pieces_that_direct_io_cannot_use_are_refused_with_their_memory() {
    let directory = tempfile::tempdir().unwrap();
    if !direct_works(directory.path()) {
        return;
    }
    let device = open_text(&format!("{}/disk.img,size=64Ki,direct", directory.path().display()));
    let block = device.geometry().block_bytes as usize;
    for mut io in engines(4) {
        let error = write_pieces(&*device, &mut io, 0, (&vec![1; 2 * block], block / 2), false).unwrap_err();
        assert_eq!(error.class(), Class::Invalid);
        assert_eq!(read_pieces(&*device, &mut io, 0, 2 * block, block).unwrap(), vec![0; 2 * block]);
    }
}

#[test]
fn more_pieces_than_one_system_call_accepts_are_several_steps() {
    let directory = tempfile::tempdir().unwrap();
    let device = open_text(&format!("{}/disk.img:4Mi", directory.path().display()));
    let bytes: Vec<u8> = (0..3000 * 64_usize).map(|at| (at / 64).to_le_bytes()[0] ^ at.to_le_bytes()[0]).collect();
    for mut io in engines(4) {
        write_pieces(&*device, &mut io, 4096, (&bytes, 64), true).unwrap();
        assert_eq!(read_pieces(&*device, &mut io, 4096, bytes.len(), 64).unwrap(), bytes);
    }
}

#[test]
fn more_shared_pieces_than_one_system_call_accepts_are_several_steps() {
    let directory = tempfile::tempdir().unwrap();
    let device = open_text(&format!("{}/disk.img:4Mi", directory.path().display()));
    let bytes: Vec<u8> = (0..3000 * 64_usize).map(|at| (at / 64).to_le_bytes()[0] ^ at.to_le_bytes()[0]).collect();
    for mut io in engines(4) {
        write_shared(&*device, &mut io, 4096, &bytes, (64, 12), true).unwrap();
        assert_eq!(read_shared(&*device, &mut io, 4096, bytes.len(), (64, 4)).unwrap(), bytes);
    }
}

/// Counts its calls, as a device on top does with what it holds for a request.
#[derive(Debug, Default)]
struct Count(AtomicUsize);

impl CompletionHook for Count {
    fn finish(&self, completion: &mut Completion) {
        assert!(completion.data.as_ref().is_some_and(|data| data.as_shared().is_some()), "the memory is back");
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn shared_memory_that_direct_io_cannot_use_is_copied_and_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    if !direct_works(directory.path()) {
        return;
    }
    let device = open_text(&format!("{}/disk.img,size=64Ki,direct", directory.path().display()));
    let block = device.geometry().block_bytes as usize;
    for mut io in engines(1) {
        let count = Arc::new(Count::default());
        let request = |tag: u64| {
            let mut data = Segments::from(shared(2 * block, block, 20).1);
            data.scatter(&vec![u8::try_from(tag).unwrap(); 2 * block]);
            let operation = Operation::Write { offset: 0, len: 2 * block, data, fua: false };
            Request { hook: Some(Arc::clone(&count) as Arc<dyn CompletionHook>), ..Request::new(tag, operation) }
        };
        assert!(matches!(device.submit(&mut io, request(1)), Submitted::Pending));
        // One that has not begun is as it was, hook and memory, and can be submitted again.
        let Submitted::Busy(refused) = device.submit(&mut io, request(2)) else { panic!("only one is allowed") };
        let Operation::Write { data, .. } = &refused.operation else { panic!("it is a write") };
        assert!(data.as_shared().is_some() && refused.hook.is_some());
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        io.wait(LIMIT).unwrap().unwrap().result.unwrap();
        assert!(matches!(device.submit(&mut io, refused), Submitted::Pending));
        let done = io.wait(LIMIT).unwrap().unwrap();
        assert!(done.result.is_ok() && done.data.is_some_and(|data| data.as_shared().is_some()));
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert_eq!(read_shared(&*device, &mut io, 0, 2 * block, (block / 2, 4)).unwrap(), vec![2; 2 * block]);
    }
}

#[test]
fn waiting_without_requests_returns_immediately() {
    for mut io in engines(1) {
        assert!(io.wait(None).unwrap().is_none());
        assert!(io.poll().is_none());
        io.kick().unwrap();
    }
}

#[test]
fn deallocation_frees_the_blocks_of_a_file() {
    for mut io in engines(4) {
        let (directory, device) = disk(1024);
        if !device.geometry().deallocates {
            println!("SKIPPED: no holes on this file system");
            return;
        }
        let used = || std::fs::metadata(directory.path().join("disk.img")).unwrap().blocks() * 512;
        let size = 1024 * BLOCK as u64;
        assert!(used() < size / 4, "a new file is sparse");
        write(&*device, &mut io, 0, &vec![5; 1024 * BLOCK], true).unwrap();
        assert!(used() >= size);
        let ranges = vec![0..size / 4, size / 4..size / 2];
        run(&*device, &mut io, Operation::Deallocate { ranges }).result.unwrap();
        run(&*device, &mut io, Operation::Flush).result.unwrap();
        assert!(used() <= size / 2 + size / 8, "{}", used());
        let zeroes = Operation::WriteZeroes { offset: size / 2, len: size / 2, deallocate: true, fua: true };
        run(&*device, &mut io, zeroes).result.unwrap();
        assert!(used() < size / 8, "{}", used());
        assert_eq!(read(&*device, &mut io, 0, 1024 * BLOCK).unwrap(), vec![0; 1024 * BLOCK]);
    }
}

#[test]
fn requests_out_of_range_or_to_read_only_devices_return_their_buffer() {
    for mut io in engines(4) {
        let (directory, device) = disk(4);
        let completion = run(&*device, &mut io, read_block(4));
        assert_eq!(
            completion.result.unwrap_err().to_string(),
            "read of 4096 bytes at offset 16384 goes beyond the end of the device, which has 16384 bytes"
        );
        assert!(completion.data.is_some());
        drop(device);
        let device = open_text(&format!("{}/disk.img,readonly", directory.path().display()));
        let completion = run(&*device, &mut io, write_block(0));
        assert_eq!(completion.result.unwrap_err().to_string(), "write refused: the device was opened read-only");
        run(&*device, &mut io, Operation::Flush).result.unwrap();
        assert_eq!(read(&*device, &mut io, 0, BLOCK).unwrap(), vec![0; BLOCK]);
    }
}

#[test]
fn a_read_of_a_file_truncated_while_open_fails() {
    for mut io in engines(4) {
        let (directory, device) = disk(4);
        std::fs::OpenOptions::new().write(true).open(directory.path().join("disk.img")).unwrap().set_len(4096).unwrap();
        let error = read(&*device, &mut io, 0, 2 * BLOCK).unwrap_err();
        assert_eq!(error.class(), Class::MediumRead, "{error}");
        assert!(error.to_string().contains("has become shorter than the 16384 bytes"), "{error}");
    }
}

#[test]
fn a_full_file_system_is_out_of_space() {
    // A sparse file behind a limit on file sizes would need a signal; a tmpfs of its own needs
    // root.
    let directory = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(directory.path())
        .stderr(std::process::Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("SKIPPED: no permission to mount a small file system");
        return;
    }
    let result = std::panic::catch_unwind(|| {
        let path = directory.path().join("disk.img");
        for mut io in engines(4) {
            let device = open_text(&format!("{}:4Mi", path.display()));
            let error = write(&*device, &mut io, 0, &vec![1; 2 << 20], false).unwrap_err();
            assert_eq!(error.class(), Class::OutOfSpace, "{error}");
            // The device remains usable: space is freed, and a flush succeeds.
            let ranges = vec![0..2 << 20, 2 << 20..4 << 20];
            run(&*device, &mut io, Operation::Deallocate { ranges }).result.unwrap();
            write(&*device, &mut io, 0, &[1; 4096], true).unwrap();
            run(&*device, &mut io, Operation::Flush).result.unwrap();
        }
    });
    let unmounted = std::process::Command::new("umount").arg(directory.path()).status();
    assert!(unmounted.unwrap().success());
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Run by the test below in a process of its own, because the environment belongs to the whole
/// process.
#[test]
#[ignore = "needs an environment of its own"]
fn threads_are_used_in_this_environment() {
    assert_eq!(Io::new(4).unwrap().engine(), Some(Engine::Threads));
}

#[test]
fn the_environment_can_forbid_io_uring() {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "flight::threads_are_used_in_this_environment"])
        .env("EBOF_IO_URING", "0")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&status.stdout);
    assert!(status.status.success() && output.contains("1 passed"), "{output}");
    if Io::with_engine(4, Engine::Uring).is_ok() && std::env::var_os("EBOF_IO_URING").is_none() {
        assert_eq!(Io::new(4).unwrap().engine(), Some(Engine::Uring));
    }
}

#[test]
fn a_new_file_is_private_sparse_and_of_its_size() {
    let (directory, device) = disk(4096);
    let metadata = std::fs::metadata(directory.path().join("disk.img")).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.len()), (0o600, 16 << 20));
    assert!(metadata.blocks() * 512 < 1 << 20);
    let geometry = device.geometry();
    assert_eq!((geometry.capacity_bytes, geometry.block_bytes, geometry.logical_block_bytes), (16 << 20, 1, 512));
    assert!(geometry.volatile_cache && !geometry.read_only);
    let path = directory.path().join("disk.img").canonicalize().unwrap();
    assert_eq!(device.describe(), format!("file {}, 16Mi, buffered", path.display()));
}
