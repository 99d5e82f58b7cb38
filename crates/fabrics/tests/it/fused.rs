//! Compare and Write as a host submits it: two commands, one after the other.

use ebof_fabrics::Step;
use ebof_nvme::identify::field::fuses;
use ebof_nvme::identify::{Cns, IdentifyController};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::FromBytes;

use crate::support::{ALICE, DRIVE, World, with_data};

const FIRST: u8 = 1;
const SECOND: u8 = 2;
const MISSING: Status = Status::ABORTED_MISSING_FUSED.dnr().more();
const FAILED: Status = Status::ABORTED_FAILED_FUSED.more();
const FIELD: Status = Status::INVALID_FIELD.dnr().more();

fn half(fuse: u8, opcode: u8, nsid: u32, slba: u64, blocks: u32) -> Sqe {
    let shift = if nsid == 2 { 12 } else { 9 };
    let mut sqe = with_data(BlockRange::new(slba, blocks).encode(opcode, Nsid(nsid)), blocks << shift);
    sqe.flags |= fuse;
    sqe
}

fn compare(slba: u64) -> Sqe {
    half(FIRST, nvm::COMPARE, 1, slba, 1)
}

fn write(slba: u64) -> Sqe {
    half(SECOND, nvm::WRITE, 1, slba, 1)
}

fn read() -> Sqe {
    half(0, nvm::READ, 1, 0, 1)
}

fn world() -> (World, u64, u64) {
    let mut world = World::new();
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    (world, admin, io)
}

#[test]
fn a_pair_is_compared_and_written() {
    let (mut world, admin, io) = world();
    let first = world.run(io, compare(7));
    assert!(first.cqe.is_none() && first.step.starts_with("compare first"));
    let second = world.run(io, write(7));
    assert_eq!(second.status(), Status::SUCCESS);
    assert!(second.step.contains("offset_bytes: 7680, length_bytes: 512"), "{}", second.step);
    assert_eq!(world.ended.iter().map(|cqe| cqe.status()).collect::<Vec<_>>(), [Status::SUCCESS]);
    assert_eq!((world.queues[&io].outstanding(), world.queues[&io].executing()), (0, 0));
    // The announced limits.
    let identify = Sqe::new(admin::IDENTIFY).with_cdw(10, Cns::CONTROLLER.0.into());
    let data = world.run(admin, with_data(identify, 4096)).data;
    let controller = IdentifyController::ref_from_bytes(&data).unwrap();
    assert_eq!((controller.fuses.get(), controller.acwu.get()), (fuses::COMPARE_AND_WRITE, 0));
}

#[test]
fn a_failed_compare_fails_the_write_too() {
    let (mut world, _, io) = world();
    world.device_status = Status::COMPARE_FAILURE;
    world.run(io, compare(0));
    assert_eq!(world.run(io, write(0)).status(), FAILED);
    assert_eq!(world.ended[0].status(), Status::COMPARE_FAILURE);
}

/// As where its data cannot be fetched.
#[test]
fn a_first_half_that_fails_before_its_second_comes_fails_that_too() {
    let (mut world, _, io) = world();
    let queue = world.queues.get_mut(&io).unwrap();
    let Step::Execute(first, _) = queue.submit(&Sqe { cid: 7.into(), ..compare(0) }, 1000) else {
        panic!("it is taken")
    };
    assert!(queue.awaits_second());
    assert!(queue.complete(first, Status::DATA_TRANSFER_ERROR).status().is(Status::DATA_TRANSFER_ERROR));
    assert!(!queue.awaits_second());
    assert_eq!(world.run(io, write(0)).status(), FAILED);
}

/// Each row: first half, second half, and the statuses of both.
#[test]
fn halves_that_do_not_match() {
    let unit = Status::ATOMIC_WRITE_UNIT_EXCEEDED.dnr().more();
    let protected = Status::NAMESPACE_WRITE_PROTECTED.dnr().more();
    let range = Status::LBA_OUT_OF_RANGE.dnr().more();
    let length = Status::DATA_SGL_LENGTH_INVALID.dnr().more();
    let rows = [
        ("another block", compare(0), write(1), FIELD, FIELD),
        ("another namespace", compare(0), half(SECOND, nvm::WRITE, 2, 0, 1), FIELD, FIELD),
        ("another length", compare(0), half(SECOND, nvm::WRITE, 1, 0, 2), FIELD, FIELD),
        ("a second that is no write", compare(0), half(SECOND, nvm::COMPARE, 1, 0, 1), MISSING, FIELD),
        ("a second that is reserved", compare(0), half(3, nvm::WRITE, 1, 0, 1), MISSING, FIELD),
        ("a write that is not fused", compare(0), half(0, nvm::WRITE, 1, 0, 1), MISSING, Status::SUCCESS),
        ("something else in between", compare(0), read(), MISSING, Status::SUCCESS),
        ("a first that is no compare", half(FIRST, nvm::WRITE, 1, 0, 1), write(0), FIELD, FAILED),
        ("a first that is a read", half(FIRST, nvm::READ, 1, 0, 1), write(0), FIELD, FAILED),
        ("two blocks", half(FIRST, nvm::COMPARE, 1, 0, 2), half(SECOND, nvm::WRITE, 1, 0, 2), unit, FAILED),
        ("beyond the end", compare(1024), write(1024), range, FAILED),
        ("write protected", half(FIRST, nvm::COMPARE, 3, 0, 1), half(SECOND, nvm::WRITE, 3, 0, 1), FAILED, protected),
        ("a second without data", compare(0), with_data(write(0), 0), FAILED, length),
    ];
    for (name, first, second, of_first, of_second) in rows {
        let (mut world, _, io) = world();
        let first = world.run(io, first);
        let second = world.run(io, second);
        let first = first.cqe.unwrap_or_else(|| world.ended[0]);
        assert_eq!((first.status(), second.status()), (of_first, of_second), "{name}");
        assert_eq!((world.queues[&io].outstanding(), world.queues[&io].executing()), (0, 0), "{name}");
        // The next pair is not affected.
        world.run(io, compare(3));
        assert_eq!(world.run(io, write(3)).status(), Status::SUCCESS, "{name}");
    }
}

#[test]
fn halves_that_the_link_refuses() {
    let refused = Status::SGL_OFFSET_INVALID.dnr();
    for (name, next, of_first) in
        [("the second", write(0), FAILED), ("another", read(), MISSING), ("another first", compare(1), MISSING)]
    {
        let (mut world, _, io) = world();
        world.run(io, compare(0));
        assert_eq!(world.refuse(io, next, refused).status(), refused.more(), "{name}");
        assert_eq!(world.ended[0].status(), of_first, "{name}");
        assert_eq!((world.queues[&io].outstanding(), world.queues[&io].executing()), (0, 0), "{name}");
        let expected = if name == "another first" { FAILED } else { MISSING };
        assert_eq!(world.run(io, write(1)).status(), expected, "{name}");
        world.run(io, compare(3));
        assert_eq!(world.run(io, write(3)).status(), Status::SUCCESS, "{name}");
    }
    let (mut world, _, io) = world();
    assert_eq!(world.refuse(io, compare(0), refused).status(), refused.more());
    assert_eq!(world.run(io, write(0)).status(), FAILED);
}

#[test]
fn a_second_half_without_a_first_and_two_first_halves() {
    let (mut world, admin, io) = world();
    assert_eq!(world.run(io, write(0)).status(), MISSING);
    world.run(io, compare(0));
    assert!(world.run(io, compare(1)).cqe.is_none());
    assert_eq!(world.ended[0].status(), MISSING);
    assert_eq!(world.run(io, write(1)).status(), Status::SUCCESS);
    assert_eq!(world.run(io, write(1)).status(), MISSING);
    // Pairs belong to one queue: commands of others do not separate them, and are not second
    // halves.
    let (_, cntlid) = world.controller(DRIVE, ALICE);
    let other = world.io_queue(DRIVE, ALICE, cntlid, 1);
    world.run(io, compare(2));
    assert_eq!(world.run(other, write(2)).status(), MISSING);
    assert_eq!(world.run(other, read()).status(), Status::SUCCESS);
    assert_eq!(world.run(io, write(2)).status(), Status::SUCCESS);
    // Admin commands cannot be fused.
    let mut keep_alive = Sqe::new(admin::KEEP_ALIVE);
    keep_alive.flags |= FIRST;
    assert_eq!(world.run(admin, keep_alive).status(), FIELD);
}

#[test]
fn pairs_of_blocks_of_4_kib() {
    let (mut world, _, io) = world();
    world.run(io, half(FIRST, nvm::COMPARE, 2, 5, 1));
    let second = world.run(io, half(SECOND, nvm::WRITE, 2, 5, 1));
    assert!(second.step.contains("length_bytes: 4096"), "{}", second.step);
}
