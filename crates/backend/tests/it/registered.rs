//! Memory that is registered with the kernel: transfers have the same result, and it is unpinned
//! when it is freed.

use std::sync::Arc;

use ebof_backend::{Buffer, Device, Engine, Io, Operation, Request, Submitted};
use tempfile::TempDir;

use crate::common::{LIMIT, direct_works, open_text, run};

const MIB: usize = 1 << 20;
/// The most regions that a ring registers, and a larger number.
const ENTRIES: u64 = 1024;
const MANY: usize = 1124;
/// Transfers of a region before it is registered.
const USES: u64 = 8;

/// A file with direct I/O and a ring that registers; `None`, with a message, if not available.
fn uncached_file() -> Option<(TempDir, Arc<dyn Device>, Io)> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if !direct_works(directory.path()) {
        return None;
    }
    let device = open_text(&format!("{},size=16Mi,direct", directory.path().join("disk.img").display()));
    let mut io = match Io::with_engine(16, Engine::Uring) {
        Ok(io) => io,
        Err(error) => {
            println!("SKIPPED: no io_uring: {error}");
            return None;
        }
    };
    let mut buffer = Buffer::zeroed(4096);
    for _ in 0..=USES {
        buffer = read(&*device, &mut io, 0, buffer);
    }
    if io.stats().registered == 0 {
        println!("SKIPPED: memory cannot be registered here (RLIMIT_MEMLOCK, or a kernel before 5.19)");
        return None;
    }
    Some((directory, device, io))
}

fn read(device: &dyn Device, io: &mut Io, offset: u64, buffer: Buffer) -> Buffer {
    let operation = Operation::Read { offset, len: buffer.capacity(), data: buffer.into() };
    let completion = run(device, io, operation);
    completion.result.unwrap();
    completion.data.unwrap().into_buffer().unwrap()
}

fn write(device: &dyn Device, io: &mut Io, offset: u64, buffer: Buffer, fua: bool) -> Buffer {
    let operation = Operation::Write { offset, len: buffer.capacity(), data: buffer.into(), fua };
    let completion = run(device, io, operation);
    completion.result.unwrap();
    completion.data.unwrap().into_buffer().unwrap()
}

#[test]
fn registered_memory_transfers_the_same_bytes() {
    let Some((_directory, device, mut io)) = uncached_file() else { return };
    let registered = io.stats().registered;
    // Sixteen buffers of one region, two with regions of their own.
    let mut buffers = Buffer::zeroed_together(16 << 10, 16);
    buffers.extend([Buffer::zeroed(MIB), Buffer::zeroed(20 << 10)]);
    let mut model = vec![0; 16 * MIB];
    for round in 0..8_u8 {
        for (at, number) in (0..18).zip(1_u8..) {
            let (offset, byte) = ((at * 37 % 60 + usize::from(round)) * (64 << 10), round * 16 + number);
            let mut buffer = buffers.remove(0);
            buffer.as_mut_slice().fill(byte);
            buffer = write(&*device, &mut io, offset as u64, buffer, at % 3 == 0);
            model[offset..offset + buffer.capacity()].fill(byte);
            let from = usize::from(round) * MIB + at * 4096;
            buffer = read(&*device, &mut io, from as u64, buffer);
            assert!(buffer.as_slice() == &model[from..from + buffer.capacity()], "round {round}, buffer {at}");
            buffers.push(buffer);
        }
    }
    let transfers = 8 * 2 * 18;
    assert_eq!(io.stats().registered - registered, transfers - 3 * USES, "all but the first ones of each region");
}

#[test]
fn there_may_be_more_regions_than_registration_entries() {
    let Some((_directory, device, mut io)) = uncached_file() else { return };
    let registered = io.stats().registered;
    let mut write_and_read = |mut buffer: Buffer, byte: u8| {
        buffer.as_mut_slice().fill(byte);
        buffer = write(&*device, &mut io, 0, buffer, false);
        buffer.as_mut_slice().fill(0);
        buffer = read(&*device, &mut io, 0, buffer);
        assert!(buffer.as_slice() == [byte; 4096]);
        buffer
    };
    for byte in (1..=u8::MAX).cycle().take(MANY) {
        drop((0..=USES / 2).fold(Buffer::zeroed(4096), |buffer, _| write_and_read(buffer, byte)));
    }
    let mut kept: Vec<Buffer> = (0..MANY).map(|_| Buffer::zeroed(4096)).collect();
    for round in 0..6 {
        kept = (round..=u8::MAX).cycle().zip(kept).map(|(byte, buffer)| write_and_read(buffer, byte)).collect();
    }
    // For the first ones the last two of ten transfers; for those that are kept, four of twelve if
    // there is an entry.
    assert_eq!(io.stats().registered - registered, 2 * MANY as u64 + 4 * ENTRIES);
}

#[test]
fn memory_registered_with_one_ring_can_be_used_by_others_and_after_its_end() {
    let Some((_directory, device, mut first)) = uncached_file() else { return };
    let mut second = Io::with_engine(16, Engine::Uring).unwrap();
    let mut buffer = (0..=USES).fold(Buffer::zeroed(8192), |buffer, _| read(&*device, &mut first, 0, buffer));
    for round in 0..3_u8 {
        buffer.as_mut_slice().fill(round + 1);
        buffer = write(&*device, &mut first, 0, buffer, false);
        buffer.as_mut_slice().fill(0);
        buffer = read(&*device, &mut second, 0, buffer);
        assert!(buffer.as_slice() == [round + 1; 8192]);
    }
    assert_eq!(second.stats().registered, 0);
    drop(first);
    buffer.as_mut_slice().fill(0);
    assert!(read(&*device, &mut second, 0, buffer).as_slice() == [3; 8192]);
}

#[test]
fn a_region_given_to_a_memory_drive_frees_its_entry() {
    let Some((_directory, device, mut io)) = uncached_file() else { return };
    let memory = open_text("mem:4Mi");
    let mut buffer = Buffer::zeroed(MIB);
    for _ in 0..=USES {
        buffer.as_mut_slice().fill(1);
        buffer = write(&*device, &mut io, 0, buffer, false);
    }
    // The drive exchanges the buffer's pages for others.
    buffer.as_mut_slice().fill(2);
    buffer = write(&*memory, &mut io, 0, buffer, false);
    buffer.as_mut_slice().fill(3);
    for _ in 0..3 {
        buffer = read(&*device, &mut io, 0, buffer);
        assert!(buffer.as_slice().iter().all(|byte| *byte == 1));
        buffer = write(&*device, &mut io, 0, buffer, false);
    }
    let buffer = read(&*memory, &mut io, 0, buffer);
    assert!(buffer.as_slice().iter().all(|byte| *byte == 2), "nothing else came into the drive's pages");
}

/// Memory that the process has pinned, MiB. Other tests pin some, too, but less than 16 MiB.
fn pinned_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:")).expect("Linux tells");
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() >> 10
}

/// 48 MiB in registered regions of `bytes`.
fn registered_buffers(device: &dyn Device, io: &mut Io, bytes: usize) -> Vec<Buffer> {
    let before = pinned_mib();
    let buffer = |_| (0..=USES).fold(Buffer::zeroed(bytes), |buffer, _| read(device, io, 0, buffer));
    let buffers = (0..48 * MIB / bytes).map(buffer).collect();
    assert!(pinned_mib() >= before + 32, "{} after {before} MiB", pinned_mib());
    buffers
}

#[test]
fn freed_memory_is_unpinned() {
    let Some((_directory, device, mut io)) = uncached_file() else { return };
    let before = pinned_mib();
    let is_pinned = || pinned_mib() >= before + 24;

    // Immediately, if the caller is idle.
    drop(registered_buffers(&*device, &mut io, MIB));
    assert!(is_pinned());
    io.release_memory();
    assert!(!is_pinned(), "{} after {before} MiB", pinned_mib());

    // Otherwise in small steps: requests do not wait for all of it.
    drop(registered_buffers(&*device, &mut io, MIB));
    io.kick().unwrap();
    assert!(is_pinned());
    for _ in 0..5 {
        io.kick().unwrap();
    }
    assert!(!is_pinned(), "{} after {before} MiB", pinned_mib());

    // Pages that now belong to a memory drive.
    let memory = open_text("mem:48Mi");
    let buffers = registered_buffers(&*device, &mut io, 128 << 10);
    for (buffer, offset) in buffers.into_iter().zip((0..).step_by(128 << 10)) {
        let buffer = write(&*memory, &mut io, offset, buffer, false);
        drop(write(&*memory, &mut io, offset, buffer, false));
    }
    for _ in 0..48 {
        io.kick().unwrap();
    }
    assert!(!is_pinned(), "{} after {before} MiB", pinned_mib());
}

#[test]
fn nothing_is_registered_while_freed_memory_is_still_pinned() {
    let Some((_directory, device, mut io)) = uncached_file() else { return };
    let registered = io.stats().registered;
    let many = |io: &mut Io, buffers: Vec<Buffer>| -> Vec<Buffer> {
        let mut back = Vec::new();
        for buffer in buffers {
            let operation = Operation::Read { offset: 0, len: buffer.capacity(), data: buffer.into() };
            assert!(matches!(device.submit(io, Request::new(0, operation)), Submitted::Pending));
        }
        while let Some(completion) = io.wait(LIMIT).unwrap() {
            completion.result.unwrap();
            back.push(completion.data.unwrap().into_buffer().unwrap());
        }
        back
    };
    let buffers = |count| (0..count).map(|_| Buffer::zeroed(4096)).collect::<Vec<_>>();
    let mut old = buffers(16);
    let mut new = buffers(16);
    for _ in 0..USES {
        old = many(&mut io, old);
        new = many(&mut io, new);
    }
    old = many(&mut io, old);
    assert_eq!(io.stats().registered - registered, 16);
    drop(old);
    new = many(&mut io, new);
    assert_eq!(io.stats().registered - registered, 16, "the entries of the old ones are not cleared yet");
    io.kick().unwrap();
    io.kick().unwrap();
    drop(many(&mut io, new));
    assert_eq!(io.stats().registered - registered, 32);
}

#[test]
fn a_request_with_registered_memory_may_be_in_progress_when_the_ring_ends() {
    let Some((_directory, device, mut io)) = uncached_file() else { return };
    let mut buffers = Buffer::zeroed_together(64 << 10, 8);
    for round in 0..3 {
        for (tag, buffer) in (0..).zip(buffers.drain(..)) {
            let operation = Operation::Read { offset: 0, len: buffer.capacity(), data: buffer.into() };
            assert!(matches!(device.submit(&mut io, Request::new(tag, operation)), Submitted::Pending));
        }
        io.kick().unwrap();
        if round == 2 {
            break;
        }
        while let Some(completion) = io.wait(LIMIT).unwrap() {
            completion.result.unwrap();
            buffers.push(completion.data.unwrap().into_buffer().unwrap());
        }
    }
    assert!(io.stats().registered > 8);
    drop(io);
}
