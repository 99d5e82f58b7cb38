//! A network over RDMA that is cut for a while: what the adapter gives up is not what the host has
//! said.

use std::net::SocketAddr;
use std::time::Duration;

use ebof_clock::Clock;
use ebof_manage::api::Target as _;
use ebof_nvme::Sqe;
use ebof_nvme::connect::Property;
use ebof_nvme::property::{Cc, offset};
use ebof_server::{Environment, Settings, SteppedTarget};
use ebof_verbs::simulated;
use ebof_verbs::simulated::Side;
use zerocopy::IntoBytes;

use crate::config::one_subsystem;
use crate::raw;
use crate::rdma_rig::{Data, Queue, Response, over_rdma, request, settings, transfer};

const READ: u8 = 0x02;
const IDENTIFY: u8 = 0x06;

struct Rig {
    network: simulated::Network,
    clock: Clock,
    target: SteppedTarget,
    address: SocketAddr,
}

impl Rig {
    fn new() -> Self {
        let (network, clock) = (simulated::Network::new(), Clock::simulated(1));
        let settings = settings(&network);
        let environment = Environment { clock: clock.clone(), ..settings.environment };
        let settings = Settings { environment, ..settings };
        let target = SteppedTarget::start(over_rdma(one_subsystem(["mem:16M"])), settings).unwrap();
        let address = target.target().addresses()[0].1;
        Self { network, clock, target, address }
    }

    /// Everything happens that can happen now.
    fn turn(&mut self) {
        for _ in 0..50 {
            self.target.keep_time();
            (0..self.target.reactors()).for_each(|reactor| _ = self.target.step(reactor));
        }
    }

    /// So many seconds go by.
    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.clock.advance_to(self.clock.now() + Duration::from_secs(1));
            self.turn();
        }
    }

    fn call(&mut self, queue: &mut Queue, sqe: Sqe, data: Data<'_>) -> Response {
        queue.send(sqe, 1, data);
        for _ in 0..100 {
            self.turn();
            queue.look();
            if let Some(response) = queue.take() {
                assert!(response.cqe.status().is_success());
                return response;
            }
        }
        panic!("no response");
    }

    fn queue(&mut self, id: u16, entries: u16, controller: u16) -> (Queue, u16) {
        let mut queue = Queue::silent(&self.network, self.address, &request(id, entries, controller), entries.into());
        self.turn();
        queue.look();
        queue.memory.as_mut_slice()[..1024].copy_from_slice(raw::connect_data(controller).as_bytes());
        let connected = self.call(&mut queue, raw::connect(id, entries.into()), Data::Memory(1024));
        let controller = u16::try_from(connected.cqe.dw0.get() & 0xffff).unwrap();
        (queue, controller)
    }

    /// An Admin Queue and an I/O queue of a host.
    fn host(&mut self) -> (Queue, Queue) {
        let (mut admin, controller) = self.queue(0, 32, 0xffff);
        self.call(&mut admin, Property::set(offset::CC, Cc::ENABLE.0), Data::None);
        let (mut io, _) = self.queue(1, 64, controller);
        self.call(&mut io, transfer(READ, 0, 8), Data::Memory(4096));
        (admin, io)
    }

    /// The network is cut while the target answers, and its adapter gives up.
    fn cut(&mut self, (admin, io): (&mut Queue, &mut Queue)) {
        let connections = self.network.connections();
        connections.iter().for_each(|connection| connection.hold_work(Side::Target, true));
        admin.send(Sqe::new(IDENTIFY).with_cdw(10, 1), 2, Data::Memory(4096));
        io.send(transfer(READ, 0, 8), 2, Data::Memory(4096));
        self.turn();
        connections.iter().for_each(simulated::Connection::lose);
        connections.iter().for_each(simulated::Connection::time_out);
        self.turn();
    }

    fn connections(&self) -> (u32, usize, u32) {
        let status = self.target.target().status();
        (status.connections, status.controllers.len(), self.network.queue_pairs())
    }
}

// @test rdma.lost-connection
#[test]
fn a_connection_that_the_adapter_gives_up_ends_with_the_keep_alive_time_out() {
    let mut rig = Rig::new();
    let (mut admin, mut io) = rig.host();
    let before = rig.connections();
    assert_eq!((before.0, before.1), (2, 1));
    rig.cut((&mut admin, &mut io));
    assert_eq!(rig.connections(), before, "nobody has said that the host is gone");
    rig.wait(40);
    assert_eq!(rig.connections(), before, "its time-out is 60 s");
    rig.wait(90);
    assert_eq!(rig.connections(), (0, 0, before.2 - 2), "the target's ends are gone");
}

// @test rdma.lost-connection
#[test]
fn a_host_that_disconnects_is_heard_on_a_connection_that_the_adapter_has_given_up() {
    let mut rig = Rig::new();
    let (mut admin, mut io) = rig.host();
    let before = rig.connections();
    rig.cut((&mut admin, &mut io));
    rig.wait(1);
    rig.network.connections().iter().for_each(simulated::Connection::sever);
    rig.turn();
    assert_eq!(rig.connections(), (0, 0, before.2 - 2));
}

// @test rdma.lost-connection
#[test]
fn a_host_that_comes_back_ends_the_connections_that_the_adapter_has_given_up() {
    let mut rig = Rig::new();
    let (mut admin, mut io) = rig.host();
    let before = rig.connections();
    rig.cut((&mut admin, &mut io));
    rig.wait(8);
    let (_admin, mut io) = rig.host();
    rig.turn();
    assert_eq!(rig.connections(), (2, 1, before.2 + 2), "of the old ones only the host's ends are left");
    rig.call(&mut io, transfer(READ, 0, 8), Data::Memory(4096));
}
