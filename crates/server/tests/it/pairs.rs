//! Compare and Write over real sockets: atomic with respect to changes of the same block on any
//! queue.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Data, Options, QueuePair};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nqn, Nsid, Sqe, Status};
use ebof_server::{Settings, Target};

use crate::config::{NQN, one_subsystem};

const BLOCK: usize = 512;

/// In-capsule data of 0 bytes make the host send everything by R2T.
fn start(drive: &str, in_capsule_bytes: u32) -> (Target, SocketAddr) {
    let mut config = one_subsystem([drive]);
    config.ports[0].in_capsule_data_bytes = in_capsule_bytes;
    let target = Target::start(config, Settings { threads: Some(2), pin: false, ..Settings::default() }).unwrap();
    let address = target.addresses()[0].1;
    (target, address)
}

fn host(address: SocketAddr) -> (Controller, QueuePair<Vec<u8>>) {
    let options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    let controller = Controller::connect(&options).unwrap();
    let queue = controller.queue_pair().unwrap();
    (controller, queue)
}

fn command(opcode: u8, fuse: u8, slba: u64) -> Sqe {
    let mut sqe = BlockRange::new(slba, 1).encode(opcode, Nsid(1));
    sqe.flags |= fuse;
    sqe
}

fn block(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(BLOCK / 8)
}

/// Waits for all outstanding commands; their statuses, by the number given at submission.
fn collect(queue: &mut QueuePair<Vec<u8>>) -> BTreeMap<u64, (Status, Vec<u8>)> {
    let mut all = BTreeMap::new();
    while queue.in_flight() > 0 {
        let done = queue.wait(None).unwrap().unwrap();
        let status = done.result.unwrap().status();
        assert!(all.insert(done.user, (status, done.data.into_buffer().unwrap_or_default())).is_none());
    }
    all
}

/// The contents of a block. If it is a mixture, because it is being written in the page cache, it
/// is read again.
fn read(queue: &mut QueuePair<Vec<u8>>, slba: u64) -> u64 {
    loop {
        queue.submit(command(nvm::READ, 0, slba), Data::ToHost(vec![0; BLOCK]), 0).unwrap();
        let (status, data) = collect(queue).remove(&0).unwrap();
        assert_eq!(status, Status::SUCCESS);
        let value = u64::from_le_bytes(data[..8].try_into().unwrap());
        if data == block(value) {
            return value;
        }
    }
}

fn write(queue: &mut QueuePair<Vec<u8>>, slba: u64, value: u64) {
    queue.submit(command(nvm::WRITE, 0, slba), Data::FromHost(block(value)), 0).unwrap();
    assert_eq!(collect(queue)[&0].0, Status::SUCCESS);
}

/// The statuses of both halves.
fn compare_and_write(queue: &mut QueuePair<Vec<u8>>, slba: u64, old: u64, new: u64) -> (Status, Status) {
    queue.submit(command(nvm::COMPARE, 1, slba), Data::FromHost(block(old)), 1).unwrap();
    queue.submit(command(nvm::WRITE, 2, slba), Data::FromHost(block(new)), 2).unwrap();
    let done = collect(queue);
    (done[&1].0, done[&2].0)
}

#[test]
fn a_pair_writes_only_if_the_compare_matches() {
    for in_capsule in [8192, 0] {
        let (_target, address) = start("mem:1Mi", in_capsule);
        let (_controller, mut queue) = host(address);
        write(&mut queue, 3, 7);
        assert_eq!(compare_and_write(&mut queue, 3, 7, 8), (Status::SUCCESS, Status::SUCCESS));
        assert_eq!(read(&mut queue, 3), 8);
        let (first, second) = compare_and_write(&mut queue, 3, 7, 9);
        assert!(first.is(Status::COMPARE_FAILURE) && second.is(Status::ABORTED_FAILED_FUSED), "{first} {second}");
        assert_eq!(read(&mut queue, 3), 8);
    }
}

#[test]
fn many_pairs_among_other_commands_each_with_its_own_status() {
    for in_capsule in [8192, 0] {
        let (_target, address) = start("mem:1Mi", in_capsule);
        let (_controller, mut queue) = host(address);
        // Pairs of block 0 count up; every second one fails its compare.
        for round in 0..20_u64 {
            queue.submit(command(nvm::COMPARE, 1, 0), Data::FromHost(block(round / 2)), 4 * round).unwrap();
            queue.submit(command(nvm::WRITE, 2, 0), Data::FromHost(block(round / 2 + 1)), 4 * round + 1).unwrap();
            queue.submit(command(nvm::WRITE, 0, 1 + round), Data::FromHost(block(round)), 4 * round + 2).unwrap();
            // A first half without a second one.
            queue.submit(command(nvm::COMPARE, 1, 0), Data::FromHost(block(0)), 4 * round + 3).unwrap();
        }
        queue.submit(command(nvm::READ, 0, 20), Data::ToHost(vec![0; BLOCK]), 1000).unwrap();
        let done = collect(&mut queue);
        for round in 0..20 {
            let first = done[&(4 * round)].0;
            let second = done[&(4 * round + 1)].0;
            if round % 2 == 0 {
                assert_eq!((first, second), (Status::SUCCESS, Status::SUCCESS), "{round}");
            } else {
                assert!(first.is(Status::COMPARE_FAILURE) && second.is(Status::ABORTED_FAILED_FUSED), "{round}");
            }
            assert_eq!(done[&(4 * round + 2)].0, Status::SUCCESS);
            assert!(done[&(4 * round + 3)].0.is(Status::ABORTED_MISSING_FUSED));
        }
        assert_eq!(read(&mut queue, 0), 10);
    }
}

/// Threads with separate queues count up in one block, and the sum equals the successes.
fn count_together(drive: &str, in_capsule: u32) {
    const THREADS: u64 = 4;
    const EACH: u64 = 100;
    let (_target, address) = start(drive, in_capsule);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let (_controller, mut queue) = host(address);
                let mut done = 0;
                while done < EACH {
                    let old = read(&mut queue, 5);
                    match compare_and_write(&mut queue, 5, old, old + 1) {
                        (Status::SUCCESS, Status::SUCCESS) => done += 1,
                        (first, second) => {
                            assert!(first.is(Status::COMPARE_FAILURE) && second.is(Status::ABORTED_FAILED_FUSED));
                        }
                    }
                }
            });
        }
    });
    let (_controller, mut queue) = host(address);
    assert_eq!(read(&mut queue, 5), THREADS * EACH);
}

#[test]
fn successful_pairs_of_many_hosts_are_all_kept() {
    count_together("mem:1Mi", 8192);
    let directory = tempfile::tempdir().unwrap();
    count_together(&format!("{}:1Mi", directory.path().join("disk.img").display()), 0);
}

#[test]
fn an_acknowledged_write_is_not_overwritten_by_a_pair_that_missed_it() {
    let directory = tempfile::tempdir().unwrap();
    for drive in ["mem:4Mi".to_owned(), format!("{}:4Mi", directory.path().join("disk.img").display())] {
        let (_target, address) = start(&drive, 8192);
        let over = Over(AtomicBool::new(false));
        let starving = AtomicU32::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let (_controller, mut queue) = host(address);
                    let mut has_succeeded = false;
                    while !over.0.load(Relaxed) {
                        let old = read(&mut queue, 5);
                        let (first, _) = compare_and_write(&mut queue, 5, old, old + 1);
                        if first.is_success() && !has_succeeded {
                            has_succeeded = true;
                            starving.fetch_sub(1, Relaxed);
                        }
                    }
                });
            }
            // Writes have their number in the upper half; pairs count only in the lower one.
            let (_controller, mut queue) = host(address);
            let _over = Guard(&over);
            let end = Instant::now() + Duration::from_secs(60);
            let mut number = 0_u64;
            // At least this often, and until both other threads have written something: on a busy
            // machine they may not run for a while.
            while number < 300 || starving.load(Relaxed) > 0 {
                assert!(Instant::now() < end, "{starving:?} hosts never wrote anything in {number} rounds");
                number += 1;
                // Also long ones, which stay at the device for a while.
                let blocks = if number.is_multiple_of(2) { 1 } else { 1024 };
                let sqe = BlockRange::new(5, blocks).encode(nvm::WRITE, Nsid(1));
                let data = block(number << 32).repeat(blocks as usize);
                queue.submit(sqe, Data::FromHost(data), 0).unwrap();
                assert_eq!(collect(&mut queue)[&0].0, Status::SUCCESS);
                assert_eq!(read(&mut queue, 5) >> 32, number);
                // Other blocks are not delayed for ever either.
                write(&mut queue, 4, number);
            }
        });
    }
}

struct Over(AtomicBool);

/// The other threads end even if this one fails.
struct Guard<'a>(&'a Over);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Relaxed);
    }
}

#[test]
fn hosts_that_disconnect_during_a_pair_leave_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let (target, address) = start(&format!("{}:1Mi", directory.path().join("disk.img").display()), 8192);
    for _ in 0..20 {
        let (controller, mut queue) = host(address);
        for _ in 0..20 {
            queue.submit(command(nvm::COMPARE, 1, 5), Data::FromHost(block(0)), 1).unwrap();
            queue.submit(command(nvm::WRITE, 2, 5), Data::FromHost(block(0)), 2).unwrap();
        }
        queue.submit(command(nvm::COMPARE, 1, 5), Data::FromHost(block(0)), 1).unwrap();
        queue.flush().unwrap();
        drop(queue);
        drop(controller);
    }
    let (controller, mut queue) = host(address);
    write(&mut queue, 5, 0);
    assert_eq!(compare_and_write(&mut queue, 5, 0, 1), (Status::SUCCESS, Status::SUCCESS));
    // A half without the other does not delay the end of the target.
    queue.submit(command(nvm::COMPARE, 1, 5), Data::FromHost(block(0)), 1).unwrap();
    queue.flush().unwrap();
    target.stop(Duration::from_secs(20));
    drop(controller);
}

#[test]
fn both_halves_can_be_aborted() {
    let (_target, address) = start("mem:1Mi", 8192);
    let (_controller, mut queue) = host(address);
    write(&mut queue, 5, 0);
    queue.submit(command(nvm::COMPARE, 1, 5), Data::FromHost(block(0)), 1).unwrap();
    queue.flush().unwrap();
    queue.abort(1);
    let done = collect(&mut queue);
    assert!(done[&1].0.is(Status::ABORT_REQUESTED), "{}", done[&1].0);
    // Its second half has no first half any more.
    queue.submit(command(nvm::WRITE, 2, 5), Data::FromHost(block(1)), 2).unwrap();
    assert!(collect(&mut queue)[&2].0.is(Status::ABORTED_FAILED_FUSED));
    assert_eq!(read(&mut queue, 5), 0);
    assert_eq!(compare_and_write(&mut queue, 5, 0, 1), (Status::SUCCESS, Status::SUCCESS));
}
