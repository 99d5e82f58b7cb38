//! A file that is modified outside of the drive: with checksums hosts get errors, and never wrong
//! data.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ebof_initiator::Event;
use ebof_nvme::feature::{AsyncEventConfig, Fid};
use ebof_nvme::log::Lid;
use ebof_nvme::{Nsid, Sqe, Status, opcode};

use crate::drive_rig::{self, admin, connect, create, errors, health, serve, status, wait};
use crate::drive_trouble::{lines_with, listen};

const BLOCK: usize = 512;

fn block(lba: u64) -> Vec<u8> {
    (0..BLOCK / 8).flat_map(|_| (0xdead_0000_0000 + lba).to_le_bytes()).collect()
}

/// Flips a bit of the block in the file.
fn damage(file: &Path, lba: u64) {
    let wanted = block(lba);
    let image = std::fs::read(file).unwrap();
    let at = image.chunks_exact(BLOCK).position(|block| block == wanted).expect("it is in the file as it is") * BLOCK;
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.write_all_at(&[image[at + 100] ^ 4], u64::try_from(at).unwrap() + 100).unwrap();
}

#[test]
fn a_damaged_block_is_an_error_with_a_log_entry_and_an_event_until_it_is_written() {
    listen();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("drive.img");
    let mut drive = drive_rig::drive(&file, Some(64 << 20));
    drive.checksums = true;
    let (_target, address) = serve(&drive);
    let host = connect(address);
    let events = host.events();
    let config = AsyncEventConfig::NAMESPACE_ATTRIBUTE.with(AsyncEventConfig::DEGRADED);
    let set =
        Sqe::new(opcode::admin::SET_FEATURES).with_cdw(10, Fid::ASYNC_EVENT_CONFIG.0.into()).with_cdw(11, config.0);
    assert!(admin(&host, set).is_success());
    assert_eq!(create(&host, 32 << 11), Nsid(1));
    let namespace = host.namespace(Nsid(1)).unwrap();
    for lba in 0..64 {
        namespace.write(lba, &block(lba), false).unwrap();
    }
    namespace.flush().unwrap();
    let before = health(&host).mdie.get();
    damage(&file, 21);
    let mut data = vec![0; 64 * BLOCK];
    let refused = status(namespace.read(0, &mut data));
    assert!(refused.is(Status::UNRECOVERED_READ_ERROR), "{refused}");
    assert!(data.iter().all(|&byte| byte == 0), "nothing of it came");
    // The drive's thread says so, and the command was done without it.
    wait("the line", || (lines_with(&["a block is damaged", "block=21"]) == 1).then_some(()));
    let entry = errors(&host, 1).remove(0);
    assert!(entry.status().is(Status::UNRECOVERED_READ_ERROR));
    assert_eq!((entry.nsid.get(), entry.lba.get()), (1, 21), "the entry names the block, not where the command began");
    assert_eq!(health(&host).mdie.get(), before + 1);
    let raised = Event::Asynchronous { kind: 1, info: 0, log_page: Lid::SMART_HEALTH.0 };
    wait("the event", || events.try_iter().any(|event| event == raised).then_some(()));
    assert_eq!(health(&host).cw & 4, 4, "the drive's reliability is degraded");
    // Adjacent blocks are unchanged, also for Verify.
    for lba in (0..64).filter(|lba| *lba != 21) {
        namespace.read(lba, &mut data[..BLOCK]).unwrap();
        assert_eq!(data[..BLOCK], block(lba));
    }
    assert!(status(namespace.verify(20, 3)).is(Status::UNRECOVERED_READ_ERROR));
    namespace.write(21, &block(99), false).unwrap();
    namespace.read(21, &mut data[..BLOCK]).unwrap();
    assert_eq!(data[..BLOCK], block(99));
    namespace.verify(0, 64).unwrap();
}
