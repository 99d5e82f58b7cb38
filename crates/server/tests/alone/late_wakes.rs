//! Both ends on a machine that wakes sleeping threads late, as a busy hypervisor does: they must
//! not make each other sleep with every batch. The delay is set for the process.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Data, Options, QueuePair};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{Settings, Target};

use crate::config::{NQN, one_subsystem};
use crate::is_alone;

/// One measurement.
const TIME: Duration = Duration::from_millis(200);
const ROUNDS: usize = 5;
const BLOCKS: u32 = 8;
const LATE_US: u64 = 200;

fn submit(queue: &mut QueuePair<Vec<u8>>, number: u64, buffer: Vec<u8>) {
    let slba = number % 1024 * u64::from(BLOCKS);
    let sqe = BlockRange::new(slba, BLOCKS).encode(nvm::READ, Nsid(1));
    queue.submit(sqe, Data::ToHost(buffer), 0).unwrap();
}

/// Reads of 4 KiB in [`TIME`], `depth` of them outstanding. Both ends were asleep before.
fn reads(queue: &mut QueuePair<Vec<u8>>, depth: usize) -> u64 {
    std::thread::sleep(Duration::from_millis(10));
    let mut submitted = 0;
    let mut over = 0;
    for _ in 0..depth {
        submit(queue, submitted, vec![0; BLOCKS as usize * 512]);
        submitted += 1;
    }
    let end = Instant::now() + TIME;
    loop {
        let mut next = queue.wait(None).unwrap();
        if next.is_none() {
            return over;
        }
        let more = Instant::now() < end;
        while let Some(completion) = next {
            assert!(completion.result.unwrap().status().is_success());
            over += 1;
            if more {
                submit(queue, submitted, completion.data.into_buffer().unwrap());
                submitted += 1;
            }
            next = queue.next_ready();
        }
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}

fn connect(address: SocketAddr) -> Controller {
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    options.nr_io_queues = 1;
    Controller::connect(&options).unwrap()
}

// @test speed.late-wake-ups
#[test]
fn late_wake_ups_cost_a_busy_pair_less_than_half() {
    if !is_alone("late_wakes::late_wake_ups_cost_a_busy_pair_less_than_half") {
        return;
    }
    let settings = Settings { threads: Some(1), ..Settings::default() };
    let target = Target::start(one_subsystem(["mem:64Mi"]), settings).unwrap();
    let controller = connect(target.addresses()[0].1);
    let mut queue = controller.queue_pair().unwrap();
    for depth in [1, 32] {
        let mut punctual = Vec::new();
        let mut late = Vec::new();
        for _ in 0..ROUNDS {
            ebof_idle::late::set(0);
            punctual.push(reads(&mut queue, depth));
            ebof_idle::late::set(LATE_US);
            late.push(reads(&mut queue, depth));
        }
        ebof_idle::late::set(0);
        println!("depth {depth}: punctual {punctual:?}, late {late:?}");
        let punctual = median(punctual);
        let late = median(late);
        assert!(late * 2 > punctual, "depth {depth}: {late} reads with late wake-ups, {punctual} without");
    }
    drop(queue);
    controller.disconnect();
    target.stop(Duration::from_secs(5));
}
