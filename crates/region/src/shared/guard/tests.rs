//! Places, and signals that are not about them.

use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;

use rustix::fs::MemfdFlags;

use super::*;
use crate::shared::{Access, SharedMapping};

fn unsealed(bytes: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create(c"test", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    file
}

fn mapped(file: &OwnedFd, bytes: u64) -> Arc<SharedMapping> {
    SharedMapping::map_any(file, 0, bytes, Access::ALL, &Arc::default()).unwrap()
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
    // The handler of Rust's library lets one go by, and another thread may take them.
    for _ in 0..1000 {
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::BUS).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn what_is_no_such_memory_still_ends_the_process() {
    for name in ["accesses_what_nobody_guards", "is_sent_the_signal"] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "--test-threads=1"]).arg(format!("shared::guard::tests::{name}"));
        let output = command.output().unwrap();
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{name}: {output:?}");
    }
}
