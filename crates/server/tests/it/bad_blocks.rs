//! Write Uncorrectable and Get LBA Status on a drive over real sockets: unreadable blocks stay so,
//! even after a restart.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use ebof_initiator::{AdminData, Controller, Error};
use ebof_nvme::identify::field::{oacs, oncs};
use ebof_nvme::io::BlockRange;
use ebof_nvme::lba_status::{CompletionCondition, GetLbaStatus, StatusAction, read_status_list};
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nsid, Status};
use ebof_server::Target;

use crate::drive_rig::{self, create, io, wait};

const BLOCKS: u64 = 32 << 11;

fn start(directory: &Path) -> (Target, SocketAddr) {
    drive_rig::start(&directory.join("drive.img"), Some(64 << 20))
}

fn connect(address: SocketAddr) -> Controller {
    drive_rig::connect_with(address, |options| options.nr_io_queues = 16)
}

fn uncorrectable(controller: &Controller, slba: u64, blocks: u32) -> Status {
    io(controller, BlockRange::new(slba, blocks).encode(nvm::WRITE_UNCORRECTABLE, Nsid(1)))
}

/// The status of a read of one block.
fn read(controller: &Controller, lba: u64) -> Status {
    match controller.namespace(Nsid(1)).unwrap().read(lba, &mut [0; 512]) {
        Ok(()) => Status::SUCCESS,
        Err(Error::Status { status, .. }) => status,
        Err(error) => panic!("{error}"),
    }
}

/// Ranges, and whether the list is complete.
fn ranges(
    controller: &Controller,
    action: StatusAction,
    slba: u64,
    blocks: u16,
    room: usize,
) -> (Vec<(u64, u32)>, bool) {
    let mut list = vec![0; 8 + 16 * room];
    let get = GetLbaStatus { slba, bytes: list.len() as u64, blocks, action };
    let cqe = controller.admin(get.encode(Nsid(1)), AdminData::ToHost(&mut list), None).unwrap();
    assert_eq!(cqe.status(), Status::SUCCESS);
    let (header, entries) = read_status_list(&list).unwrap();
    let entries = entries.iter().map(|entry| (entry.dslba.get(), entry.nlb.get())).collect();
    (entries, header.condition() == CompletionCondition::Complete)
}

#[test]
fn uncorrectable_blocks_cannot_be_read_until_they_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let (target, address) = start(directory.path());
    let controller = connect(address);
    create(&controller, BLOCKS);
    let namespace = wait("the namespace", || controller.namespace(Nsid(1)).ok());
    let identify = controller.identify();
    assert_ne!(identify.oncs.get() & oncs::WRITE_UNCORRECTABLE, 0);
    assert_ne!(identify.oacs.get() & oacs::GET_LBA_STATUS, 0);
    namespace.write(0, &[5; 64 * 512], false).unwrap();
    assert_eq!(ranges(&controller, StatusAction::TRACKED, 0, 0, 4), (vec![], true));
    assert_eq!(uncorrectable(&controller, 10, 4), Status::SUCCESS);
    assert_eq!(uncorrectable(&controller, 20_000, 1), Status::SUCCESS);
    for (lba, bad) in [(9, false), (10, true), (13, true), (14, false), (20_000, true), (20_001, false)] {
        assert_eq!(read(&controller, lba).is(Status::UNRECOVERED_READ_ERROR), bad, "block {lba}");
    }
    let verify = BlockRange::new(0, 64).encode(nvm::VERIFY, Nsid(1));
    assert!(io(&controller, verify).is(Status::UNRECOVERED_READ_ERROR));
    let bad = vec![(10, 4), (20_000, 1)];
    for action in [StatusAction::TRACKED, StatusAction::SCAN] {
        assert_eq!(ranges(&controller, action, 0, 0, 4), (bad.clone(), true));
    }
    // A part of the namespace, and a buffer that is too small for all ranges.
    assert_eq!(ranges(&controller, StatusAction::TRACKED, 11, 2, 4), (vec![(11, 2)], true));
    assert_eq!(ranges(&controller, StatusAction::TRACKED, 0, 0, 1), (vec![(10, 4)], false));
    controller.disconnect();
    target.stop(Duration::from_secs(20));
    drop(target);

    let (_target, address) = start(directory.path());
    let controller = connect(address);
    assert_eq!(ranges(&controller, StatusAction::TRACKED, 0, 0, 4), (bad, true));
    let namespace = controller.namespace(Nsid(1)).unwrap();
    namespace.write(11, &[6; 512], false).unwrap();
    assert_eq!(read(&controller, 11), Status::SUCCESS);
    assert_eq!(ranges(&controller, StatusAction::TRACKED, 0, 100, 4), (vec![(10, 1), (12, 2)], true));
    namespace.deallocate(&[(0, 64)]).unwrap();
    assert_eq!(ranges(&controller, StatusAction::TRACKED, 0, 100, 4), (vec![], true));
    assert_eq!(read(&controller, 10), Status::SUCCESS);
}

#[test]
fn allocated_blocks_are_listed_and_invalid_commands_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (_target, address) = start(directory.path());
    let controller = connect(address);
    create(&controller, BLOCKS);
    let namespace = wait("the namespace", || controller.namespace(Nsid(1)).ok());
    assert_eq!(ranges(&controller, StatusAction::ALLOCATED, 0, 0, 4), (vec![], true));
    namespace.write(0, &[1; 512], false).unwrap();
    namespace.write(BLOCKS - 1, &[1; 512], false).unwrap();
    let (allocated, complete) = ranges(&controller, StatusAction::ALLOCATED, 0, 0, 4);
    assert!(complete && allocated.len() == 2, "{allocated:?}");
    assert_eq!(allocated[0].0, 0);
    assert_eq!(allocated[1].0 + u64::from(allocated[1].1), BLOCKS);
    assert_eq!(ranges(&controller, StatusAction::ALLOCATED, 0, 0, 1), (vec![allocated[0]], false));

    let beyond = uncorrectable(&controller, BLOCKS - 1, 2);
    assert!(beyond.is(Status::LBA_OUT_OF_RANGE), "{beyond}");
    let get = |slba, bytes, blocks, action| GetLbaStatus { slba, bytes, blocks, action }.encode(Nsid(1));
    let mut list = [0; 40];
    for (sqe, expected) in [
        (get(BLOCKS, 40, 0, StatusAction::TRACKED), Status::LBA_OUT_OF_RANGE),
        (get(BLOCKS - 1, 40, 2, StatusAction::TRACKED), Status::LBA_OUT_OF_RANGE),
        (get(u64::MAX, 40, 0, StatusAction::TRACKED), Status::LBA_OUT_OF_RANGE),
        (get(0, 40, 0, StatusAction(3)), Status::INVALID_FIELD),
        (get(0, 44, 0, StatusAction::TRACKED), Status::DATA_SGL_LENGTH_INVALID),
        (get(0, 1 << 34, 0, StatusAction::TRACKED), Status::INVALID_FIELD),
        (get(0, 4, 0, StatusAction::TRACKED), Status::INVALID_FIELD),
        (get(0, 40, 0, StatusAction::TRACKED).with_nsid(Nsid(2)), Status::INVALID_FIELD),
        (get(0, 40, 0, StatusAction::TRACKED).with_nsid(Nsid::ALL), Status::INVALID_NAMESPACE),
    ] {
        let cqe = controller.admin(sqe, AdminData::ToHost(&mut list), None).unwrap();
        assert!(cqe.status().is(expected), "{sqe:?}: {}", cqe.status());
    }
}
