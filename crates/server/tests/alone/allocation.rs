//! Reads and writes do not allocate after warming up: target and host are in this process, whose
//! allocator counts.

use std::alloc::System;
use std::ops::RangeInclusive;

use ebof_backend::Buffer as Registered;
use ebof_initiator::{Controller, Data, IoBuffer, Options, QueuePair, Transport};
use ebof_manage::Listen;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nqn, Nsid};
use ebof_server::{Environment, RdmaNetwork, Settings, Target};
use ebof_verbs::{Network, simulated};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::config::{NQN, one_subsystem};
use crate::is_alone;

#[global_allocator]
pub(crate) static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Commands of one round.
const ROUND: usize = 4000;

/// The number of rounds without an allocation that is sufficient, and the number of rounds for it.
/// Reused memory grows when a turn has more work than any before, which happens a few times only,
/// and other threads take memory once a second (the sampler), which on a busy machine is in every
/// second round. What a command takes is in each.
const QUIET: usize = 3;
const ROUNDS_MAX: usize = 25;

/// The size of a read or write.
#[derive(Clone, Copy, Debug)]
struct Corner {
    nsid: u32,
    opcode: u8,
    bytes: usize,
    depth: usize,
}

/// Keeps `depth` commands outstanding until `commands` have completed.
fn run<B: IoBuffer>(queue: &mut QueuePair<B>, buffers: &mut Vec<B>, corner: Corner, commands: usize) {
    let Corner { nsid, opcode, bytes, .. } = corner;
    let places = (32 << 20) / bytes as u64;
    let mut begun = 0;
    let mut over = 0;
    while over < commands {
        while begun < commands
            && let Some(buffer) = buffers.pop()
        {
            let slba = begun as u64 * 7919 % places * (bytes as u64 / 512);
            let sqe = BlockRange::new(slba, (bytes / 512) as u32).encode(opcode, Nsid(nsid));
            let data = if opcode == nvm::READ { Data::ToHost(buffer) } else { Data::FromHost(buffer) };
            queue.submit(sqe, data, 0).unwrap();
            begun += 1;
        }
        let mut next = queue.wait(None).unwrap();
        while let Some(completion) = next {
            assert!(completion.result.unwrap().status().is_success());
            buffers.push(completion.data.into_buffer().unwrap());
            over += 1;
            next = queue.next_ready();
        }
    }
}

/// Runs rounds until a few did not allocate. Returns the allocations of the rounds.
fn rounds<B: IoBuffer>(queue: &mut QueuePair<B>, corner: Corner, buffer: fn(usize) -> B) -> Vec<usize> {
    let mut buffers: Vec<B> = (0..corner.depth).map(|_| buffer(corner.bytes)).collect();
    let mut counts = Vec::with_capacity(ROUNDS_MAX);
    while counts.len() < ROUNDS_MAX && !are_quiet(&counts) {
        let region = Region::new(ALLOCATOR);
        run(queue, &mut buffers, corner, ROUND * 4096 / corner.bytes.clamp(4096, 128 << 10));
        let change = region.change();
        counts.push(change.allocations + change.reallocations + change.deallocations);
    }
    counts
}

fn are_quiet(counts: &[usize]) -> bool {
    counts.iter().filter(|count| **count == 0).count() >= QUIET
}

/// The corners whose allocations do not end.
#[expect(clippy::print_stdout, reason = "the test's output")]
fn loud_corners<B: IoBuffer>(
    queue: &mut QueuePair<B>,
    namespaces: RangeInclusive<u32>,
    buffer: fn(usize) -> B,
) -> Vec<Corner> {
    let mut loud = Vec::new();
    for nsid in namespaces {
        for opcode in [nvm::READ, nvm::WRITE] {
            for (bytes, depth) in [(4096, 1), (4096, 127), (128 << 10, 32), (1 << 20, 64)] {
                let corner = Corner { nsid, opcode, bytes, depth };
                let counts = rounds(queue, corner, buffer);
                println!("{corner:?}: {counts:?}");
                if !are_quiet(&counts) {
                    loud.push(corner);
                }
            }
        }
    }
    loud
}

// @test speed.no-allocation
#[test]
fn reads_and_writes_do_not_allocate_after_warming_up() {
    if !is_alone("allocation::reads_and_writes_do_not_allocate_after_warming_up") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive");
    std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let mut loud = Vec::new();
    for (digests, zerocopy) in [(false, false), (true, false), (false, true)] {
        let mut config = one_subsystem(["mem:64Mi", path.to_str().unwrap()]);
        config.ports[0].zerocopy_send_bytes = zerocopy.then_some(4096);
        let settings = Settings { threads: Some(1), pin: false, zerocopy_copied_max: u32::MAX, ..Settings::default() };
        let target = Target::start(config, settings).unwrap();
        let address = target.addresses()[0].1;
        let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
        options.nr_io_queues = 1;
        options.hdr_digest = digests;
        options.data_digest = digests;
        options.zerocopy_send = zerocopy.then_some(4096);
        options.zerocopy_copied_max = u32::MAX;
        // No background activity.
        options.keep_alive_ms = 0;
        let controller = Controller::connect(&options).unwrap();
        let mut queue = controller.queue_pair().unwrap();
        // Data of memory drives are copied.
        let namespaces = if zerocopy { 2..=2 } else { 1..=2 };
        let loud_corners = loud_corners(&mut queue, namespaces, |bytes| vec![0x5a; bytes]);
        loud.extend(loud_corners.into_iter().map(|corner| (corner, digests, zerocopy)));
        drop(queue);
        controller.disconnect();
    }
    assert!(loud.is_empty(), "allocations do not end: {loud:#?}");
}

// @test rdma.no-allocation
#[test]
fn reads_and_writes_over_rdma_do_not_allocate_after_warming_up() {
    if !is_alone("allocation::reads_and_writes_over_rdma_do_not_allocate_after_warming_up") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("drive");
    std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let network = Network::from(simulated::Network::new());
    let mut config = one_subsystem(["mem:64Mi", path.to_str().unwrap()]);
    config.ports[0].listen = Listen::rdma([127, 0, 0, 1].into(), 4420);
    let environment = Environment { rdma: RdmaNetwork::Other(network.clone()), ..Environment::default() };
    let settings = Settings { threads: Some(1), pin: false, environment, ..Settings::default() };
    let target = Target::start(config, settings).unwrap();
    let address = target.addresses()[0].1;
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    options.transport = Transport::QueuePairs(network);
    options.nr_io_queues = 2;
    options.keep_alive_ms = 0;
    let controller = Controller::connect(&options).unwrap();
    // Data that are copied, and data in registered regions.
    let mut queue = controller.queue_pair().unwrap();
    let copied = loud_corners(&mut queue, 1..=2, |bytes| vec![0x5a; bytes]);
    drop(queue);
    let mut queue = controller.queue_pair().unwrap();
    let registered = loud_corners(&mut queue, 1..=2, Registered::zeroed);
    drop(queue);
    controller.disconnect();
    assert!(copied.is_empty() && registered.is_empty(), "allocations do not end: {copied:#?}, {registered:#?}");
}
