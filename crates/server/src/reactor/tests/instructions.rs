//! What `cargo xtask instructions` counts of the target: a whole turn, from the socket to the
//! device in memory and back, for one connection. The system's part is not counted.

use super::Rig;
use super::hosts::{Host, Load};

/// Commands per turn: `xtask` divides by it.
const BATCH: usize = 100;
/// Turns of each kind.
const ROUNDS: usize = 20;
/// Data of a read, bytes: enough to be lent instead of copied.
const READ_BYTES: u32 = 2048;
/// Data of a write, bytes: copying more would count the C library.
const WRITE_BYTES: u32 = 512;

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

#[test]
fn cases() {
    let mut rig = Rig::new();
    let mut reads = rig.host(Load::reads(READ_BYTES, BATCH));
    for _ in 0..ROUNDS {
        round(&mut rig, &mut reads, case_target_read);
    }
    let mut writes = rig.host(Load::writes(WRITE_BYTES, BATCH));
    for _ in 0..ROUNDS {
        round(&mut rig, &mut writes, case_target_write);
    }
}
