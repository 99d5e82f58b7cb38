//! Where the buffers of reads over RDMA are: with the pool, with the connection, or nowhere.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ebof_backend::{Device, Geometry, Io, Memory, Request, Submitted};
use ebof_fabrics::DeviceId;
use ebof_verbs::simulated;

use super::Rig;
use super::drains::{Gate, State};
use super::rdma_host::{RdmaHost, RdmaWay};
use super::zerocopy::Plain;
use crate::drives::device::DeviceTable;

const READS: usize = 5;
const READ_BYTES: u32 = 4096;

fn read(rig: &mut Rig, host: &mut RdmaHost) {
    host.submit(RdmaWay::Read, READS, READ_BYTES);
    let mut answered = 0;
    for _ in 0..4 {
        host.carry();
        rig.turn(20);
        host.carry();
        answered += host.take();
    }
    assert_eq!(answered, READS);
}

#[test]
fn buffers_for_copies_stay_with_a_connection_until_its_reactor_is_idle() {
    let mut rig = Rig::over_rdma();
    let (_admin, mut host) = RdmaHost::connect(&mut rig);
    for _ in 0..3 {
        read(&mut rig, &mut host);
        let pool = &rig.reactor.connections.pool;
        assert_eq!((pool.outstanding_bytes(), pool.kept_bytes()), (0, READS * READ_BYTES as usize));
    }
    rig.reactor.connections.shrink();
    assert_eq!((rig.reactor.connections.pool.outstanding_bytes(), rig.reactor.connections.pool.kept_bytes()), (0, 0));
    read(&mut rig, &mut host);
    host.submit_nonsense();
    ends(&mut rig, &mut host);
}

#[test]
fn buffers_of_devices_go_back_to_the_pool() {
    let mut rig = Rig::over_rdma();
    let (_admin, mut host) = RdmaHost::connect(&mut rig);
    Plain::replace(&mut rig);
    for _ in 0..3 {
        read(&mut rig, &mut host);
        assert_eq!(
            (rig.reactor.connections.pool.outstanding_bytes(), rig.reactor.connections.pool.kept_bytes()),
            (0, 0)
        );
    }
}

#[test]
fn a_connection_that_ends_in_the_turn_of_its_last_commands_leaves_no_buffer_behind() {
    for is_resident in [true, false] {
        let mut rig = Rig::over_rdma();
        let (_admin, mut host) = RdmaHost::connect(&mut rig);
        if !is_resident {
            Plain::replace(&mut rig);
        }
        read(&mut rig, &mut host);
        // Their responses are posted, and not flushed yet, when the connection ends.
        host.submit(RdmaWay::Read, READS, READ_BYTES);
        host.submit_nonsense();
        ends(&mut rig, &mut host);
    }
}

/// Memory whose accesses take so long that adapters do everything meanwhile.
#[derive(Debug)]
struct Slow {
    memory: Memory,
    network: simulated::Network,
}

impl Device for Slow {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        while self.network.step() {}
        self.memory.submit(io, request)
    }

    fn describe(&self) -> String {
        "slow".to_owned()
    }
}

#[test]
fn responses_begin_while_later_commands_of_the_turn_execute() {
    let mut rig = Rig::over_rdma();
    let (_admin, mut host) = RdmaHost::connect(&mut rig);
    let slow: Arc<dyn Device> = Arc::new(Slow { memory: Memory::new(64 << 20, 512, false), network: host.network() });
    rig.reactor.connections.devices.table = Arc::new(DeviceTable::new([(DeviceId(1), slow)]));
    // What follows the commands in the same turn ends the connection, with what has not begun then.
    host.submit(RdmaWay::Read, READS, READ_BYTES);
    host.submit_nonsense();
    host.carry();
    rig.turn(20);
    assert_eq!(host.answered_before_end(), 4);
    ends(&mut rig, &mut host);
}

/// Only what is at a device keeps the connection: its queue pair is destroyed long before.
#[test]
fn a_reactor_that_is_idle_does_without_the_queue_pair_of_a_connection_that_waits_for_a_device() {
    let mut rig = Rig::over_rdma();
    let (_admin, mut host) = RdmaHost::connect(&mut rig);
    let state = Arc::new(State::default());
    let gate: Arc<dyn Device> =
        Arc::new(Gate { below: Arc::new(Memory::new(64 << 20, 512, false)), state: Arc::clone(&state) });
    rig.reactor.connections.devices.table = Arc::new(DeviceTable::new([(DeviceId(1), gate)]));
    state.is_shut.store(true, Ordering::Relaxed);
    host.submit(RdmaWay::Read, READS, READ_BYTES);
    host.carry();
    rig.turn(20);
    host.submit_nonsense();
    for _ in 0..10 {
        host.carry();
        rig.turn(6_000);
    }
    rig.reactor.connections.shrink();
    let left = READS * READ_BYTES as usize;
    assert_eq!(rig.reactor.connections.pool.outstanding_bytes(), left, "they are at the device");
    state.open();
    ends(&mut rig, &mut host);
}

/// Everything comes back much sooner than the queue pair would be given up.
fn ends(rig: &mut Rig, host: &mut RdmaHost) {
    for _ in 0..10 {
        host.carry();
        rig.turn(6_000);
    }
    assert_eq!((rig.reactor.connections.pool.outstanding_bytes(), rig.reactor.connections.pool.kept_bytes()), (0, 0));
}
