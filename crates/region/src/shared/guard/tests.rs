//! Places, and signals that are not about them.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;

use rustix::fs::MemfdFlags;

use super::*;
use crate::shared::{MappingAccess, SharedMapping};

fn unsealed(bytes: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create(c"test", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    file
}

fn mapped(file: &OwnedFd, bytes: u64) -> Arc<SharedMapping> {
    SharedMapping::map_any(file, 0, bytes, MappingAccess::ALL, &Arc::default()).unwrap()
}

#[test]
fn every_mapping_has_a_place_of_its_own() {
    let files: Vec<OwnedFd> = (0..3 * BLOCK_PLACES).map(|_| unsealed(8192)).collect();
    let mappings: Vec<_> = files.iter().map(|file| mapped(file, 8192)).collect();
    for (index, mapping) in mappings.iter().enumerate().filter(|(index, _)| index % 2 == 0) {
        rustix::fs::ftruncate(&files[index], 0).unwrap();
        assert_eq!(mapping.write(5000, &[1]), None, "{index}");
    }
    for (index, mapping) in mappings.iter().enumerate() {
        assert_eq!(mapping.write(0, &[1]).is_none(), index % 2 == 0, "{index}");
    }
}

#[test]
fn a_place_is_new_for_each_mapping() {
    for round in 0..3 * BLOCK_PLACES {
        let file = unsealed(4096);
        let mapping = mapped(&file, 4096);
        assert_eq!(mapping.write(0, &[1]), Some(()), "{round}");
        rustix::fs::ftruncate(&file, 0).unwrap();
        assert_eq!(mapping.write(0, &[1]), None, "{round}");
    }
}

#[test]
fn what_is_replaced_at_once_is_of_the_mapping() {
    const PART: usize = PART_BYTES;
    let range = |bytes, page_bytes| Range { first: 4096, bytes, page_bytes, protection: 0 };
    for (range, address, part) in [
        (range(8192, 4096), 4096, 4096..12288),
        (range(8192, 4096), 12287, 4096..12288),
        (range(3 * PART, 4096), 4095 + PART, 4096..4096 + PART),
        (range(3 * PART, 4096), 4096 + PART, 4096 + PART..4096 + 2 * PART),
        (range(2 * PART + 5 * 4096, 4096), 4096 + 2 * PART + 7, 4096 + 2 * PART..4096 + 2 * PART + 5 * 4096),
        (range(4 * PART, 2 * PART), 4096 + 3 * PART, 4096 + 2 * PART..4096 + 4 * PART),
    ] {
        assert_eq!(range.part(address), part);
    }
}

/// Begin and end of what is mapped of a range without a file.
fn mapped_parts(range: Range) -> Vec<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let of_line = |line: &str| {
        let (addresses, rest) = line.split_once(' ').unwrap();
        let (begin, end) = addresses.split_once('-').unwrap();
        let address = |digits| usize::from_str_radix(digits, 16).unwrap();
        let (begin, end) = (address(begin).max(range.first), address(end).min(range.first + range.bytes));
        (begin < end && !rest.contains("memfd:")).then_some((begin, end))
    };
    maps.lines().filter_map(of_line).collect()
}

#[test]
fn a_part_of_a_mapping_is_replaced() {
    const BYTES: usize = 3 * PART_BYTES;
    let file = unsealed(BYTES as u64);
    let mapping = mapped(&file, BYTES as u64);
    let range = mapping.guard.as_ref().unwrap().0.get().unwrap();
    rustix::fs::ftruncate(&file, 0).unwrap();
    assert_eq!(mapping.write(PART_BYTES + 5000, &[1]), None);
    let begin = range.first + PART_BYTES;
    assert_eq!(mapped_parts(range), [(begin, begin + PART_BYTES)]);
}

/// As if no part of a mapping could be replaced alone: a process has only so many mappings.
#[test]
fn all_of_a_mapping_is_replaced_where_a_part_cannot_be() {
    const BYTES: usize = 2 * PART_BYTES;
    let file = unsealed(BYTES as u64);
    let mapping = mapped(&file, BYTES as u64);
    let place = mapping.guard.as_ref().unwrap().0;
    let range = place.get().unwrap();
    // The second part does not begin with a page, so the system refuses to map it.
    place.set(Range { page_bytes: PART_BYTES + 1, ..range });
    rustix::fs::ftruncate(&file, 0).unwrap();
    assert_eq!(mapping.write(PART_BYTES + 5000, &[1]), None);
    assert_eq!(mapped_parts(range), [(range.first, range.first + BYTES)]);
}

/// A process of its own, which is to end: [`what_is_no_such_memory_still_ends_the_process`].
#[test]
#[ignore = "ends the process: what_is_no_such_memory_still_ends_the_process"]
fn accesses_what_nobody_guards() {
    let (guarded, file) = (unsealed(4096), unsealed(8192));
    let _guarded = mapped(&guarded, 4096);
    let mapping = mapped(&file, 8192);
    let place = mapping.guard.as_ref().unwrap().0;
    place.set(Range { first: 0, bytes: 0, page_bytes: 0, protection: 0 });
    rustix::fs::ftruncate(&file, 0).unwrap();
    let _ = mapping.write(0, &[1]);
}

/// As above, with a signal that somebody sends.
#[test]
#[ignore = "ends the process: what_is_no_such_memory_still_ends_the_process"]
fn is_sent_the_signal() {
    let file = unsealed(4096);
    let mapping = mapped(&file, 4096);
    let address = mapping.pages.0.as_ptr().expose_provenance();
    assert!(find(address).is_some() && find(address + 4096).is_none() && find(address - 1).is_none());
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::BUS).unwrap();
    // Another thread may take it.
    std::thread::sleep(std::time::Duration::from_secs(60));
}

// @test limits.lost-memory
#[test]
fn what_is_no_such_memory_still_ends_the_process() {
    for name in ["accesses_what_nobody_guards", "is_sent_the_signal"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--test-threads=1"]).arg(format!("shared::guard::tests::{name}"));
        let output = command.output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{name}: {output:?}");
    }
}
