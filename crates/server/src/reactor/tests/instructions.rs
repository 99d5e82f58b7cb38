//! What `cargo xtask instructions` counts of the target: a whole turn, from the socket or the queue
//! pair to the device in memory and back, for one connection. The system's part is not counted, nor
//! is an adapter's: `xtask` subtracts what the simulated network takes in its place.

use super::Rig;
use super::hosts::{Host, Load};
use super::rdma_host::{RdmaHost, RdmaWay};
use super::zerocopy::Plain;

/// Commands per turn: `xtask` divides by it.
const BATCH: usize = 100;
/// Turns of each kind.
const ROUNDS: usize = 20;
/// Data of a read, bytes: enough to be lent instead of copied.
const READ_BYTES: u32 = 2048;
/// Data of other commands, bytes: copying more would count the C library.
const SMALL_BYTES: u32 = 512;

/// Makes the cases different: the compiler merges functions with the same code.
#[inline(always)]
fn unmerged(line: u32) {
    std::hint::black_box(line);
}

#[inline(never)]
fn case_target_read(rig: &mut Rig) {
    unmerged(line!());
    rig.turn(20);
}

#[inline(never)]
fn case_target_write(rig: &mut Rig) {
    unmerged(line!());
    rig.turn(20);
}

fn round(rig: &mut Rig, host: &mut Host, case: fn(&mut Rig)) {
    let before = host.count.commands;
    host.load.depth = BATCH;
    host.go_on();
    case(rig);
    host.take();
    assert_eq!((host.count.commands - before, host.outstanding), (BATCH as u64, 0), "one turn serves all of them");
}

/// Of a device that takes buffers, as files do.
#[inline(never)]
fn case_target_device_read(rig: &mut Rig) {
    unmerged(line!());
    rig.turn(20);
}

#[inline(never)]
fn case_target_device_read_over_rdma(rig: &mut Rig) {
    unmerged(line!());
    rig.turn(20);
}

#[inline(never)]
fn case_target_read_over_rdma(rig: &mut Rig) {
    unmerged(line!());
    rig.turn(20);
}

#[inline(never)]
fn case_target_write_over_rdma(rig: &mut Rig) {
    unmerged(line!());
    rig.turn(20);
}

#[inline(never)]
fn case_target_fetch_over_rdma(rig: &mut Rig) {
    unmerged(line!());
    rig.turn(20);
}

/// In each turn a round's commands come, and adapters have ended what the turns before have posted:
/// so each turn has the work of one round, although a command takes several turns.
fn rounds_over_rdma(rig: &mut Rig, host: &mut RdmaHost, way: RdmaWay, case: fn(&mut Rig)) {
    let mut turn = |submits, case: fn(&mut Rig)| {
        if submits {
            host.submit(way, BATCH, SMALL_BYTES);
        }
        host.carry();
        case(rig);
        host.carry();
        host.take()
    };
    let uncounted: fn(&mut Rig) = |rig| _ = rig.turn(20);
    for _ in 0..3 {
        turn(true, uncounted);
    }
    for _ in 0..ROUNDS {
        assert_eq!(turn(true, case), BATCH, "as many come as end");
    }
    let left: usize = (0..4).map(|_| turn(false, uncounted)).sum();
    assert_eq!(left, if way == RdmaWay::Fetched { BATCH } else { 0 });
}

#[test]
fn cases() {
    let mut rig = Rig::new();
    let mut reads = rig.host(Load::reads(READ_BYTES, BATCH));
    for _ in 0..ROUNDS {
        round(&mut rig, &mut reads, case_target_read);
    }
    let mut writes = rig.host(Load::writes(SMALL_BYTES, BATCH));
    for _ in 0..ROUNDS {
        round(&mut rig, &mut writes, case_target_write);
    }
    Plain::replace(&mut rig);
    let mut reads = rig.host(Load::reads(SMALL_BYTES, BATCH));
    for _ in 0..ROUNDS {
        round(&mut rig, &mut reads, case_target_device_read);
    }

    let mut rig = Rig::over_rdma();
    let (_admin, mut queue) = RdmaHost::connect(&mut rig);
    rounds_over_rdma(&mut rig, &mut queue, RdmaWay::Read, case_target_read_over_rdma);
    rounds_over_rdma(&mut rig, &mut queue, RdmaWay::InCapsule, case_target_write_over_rdma);
    rounds_over_rdma(&mut rig, &mut queue, RdmaWay::Fetched, case_target_fetch_over_rdma);
    Plain::replace(&mut rig);
    rounds_over_rdma(&mut rig, &mut queue, RdmaWay::Read, case_target_device_read_over_rdma);
}
