//! A host that breaks the rules, over an RDMA adapter, with a target that others use meanwhile.
//!
//! The target serves the usual subsystem at `EBOF_RDMA_TARGET`; the host has the address
//! `EBOF_RDMA_HOST`. `tests/vm` starts it in a guest, runs these tests, and looks what the target
//! has logged and what is left of it. The same over a simulated network is in `rdma.rs`.

use std::net::{IpAddr, SocketAddr};

use ebof_backend::Buffer;
use ebof_nvme::connect::Property;
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cqe, Nsid, Sgl, Sqe, Status};
use ebof_rdma::private_data::{ConnectReject, RejectStatus};
use ebof_verbs::{Event, Network, Protocol, Remote, WorkCompletion};
use zerocopy::{FromBytes, IntoBytes};

use crate::raw;
use crate::rdma_rig::{Data, Queue, Way, refuses_bad_sgls, request, transfer};

const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const IDENTIFY: u8 = 0x06;

/// The adapters of this machine.
struct Adapter {
    network: Network,
    from: Option<IpAddr>,
    target: SocketAddr,
}

impl Way for Adapter {
    fn network(&self) -> Network {
        self.network.clone()
    }

    fn from(&self) -> Option<IpAddr> {
        self.from
    }
}

impl Adapter {
    fn new() -> Self {
        let target = std::env::var("EBOF_RDMA_TARGET").expect("the address of a target is in EBOF_RDMA_TARGET");
        let from = std::env::var("EBOF_RDMA_HOST").ok().map(|address| address.parse().unwrap());
        Self { network: Network::system().unwrap(), from, target: target.parse().unwrap() }
    }

    fn is_iwarp(&self) -> bool {
        self.network.devices().unwrap().iter().any(|device| device.attributes.protocol == Protocol::Iwarp)
    }

    /// A controller with an I/O queue, whose host has looked at the namespace: the process before
    /// served another object under its NSID.
    fn connected(&self) -> (Queue, Queue) {
        let (mut admin, controller) = Queue::admin(self, self.target);
        admin.done(Sqe::new(IDENTIFY).with_nsid(Nsid(1)), Data::Memory(4096));
        let io = Queue::io(self, self.target, controller, 1);
        (admin, io)
    }

    /// Others are served.
    fn serves(&self) {
        let (_admin, mut io) = self.connected();
        io.done(transfer(READ, 0, 8), Data::Memory(4096));
    }
}

/// What a request was rejected with; `None` if it was accepted.
fn rejected(answer: &Event) -> Option<RejectStatus> {
    match answer {
        Event::Established { .. } => None,
        Event::Rejected { private_data, .. } => Some(ConnectReject::decode(private_data).unwrap().status),
        other => panic!("{other:?}"),
    }
}

/// The target ends the connection, without a response.
fn ends(queue: &mut Queue) {
    let response = queue.response();
    assert!(response.is_none(), "{response:?}");
}

#[test]
#[ignore = "needs an RDMA target: tests/vm"]
fn requests_that_mean_nothing_are_rejected_with_the_reason() {
    let adapter = Adapter::new();
    let with = |at: usize, value: u16| {
        let mut bytes = request(1, 32, 1).to_vec();
        bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    // RoCE pads private data with zeros, which are a queue without entries.
    let short = if adapter.is_iwarp() { RejectStatus::INVALID_LENGTH } else { RejectStatus::INVALID_HSQSIZE };
    for (private_data, expected) in [
        (Vec::new(), short),
        (request(1, 32, 1)[..4].to_vec(), short),
        (with(0, 1), RejectStatus::INVALID_FORMAT),
        (vec![0xff; 56], RejectStatus::INVALID_FORMAT),
        (with(2, 5000), RejectStatus::INVALID_QID),
        (with(4, 0), RejectStatus::INVALID_HRQSIZE),
        (with(6, 0), RejectStatus::INVALID_HSQSIZE),
        (with(6, 9000), RejectStatus::INVALID_HSQSIZE),
        (with(6, 0xffff), RejectStatus::INVALID_HSQSIZE),
    ] {
        let (_queue, answer) = Queue::ask(&adapter, adapter.target, &private_data);
        assert_eq!(rejected(&answer), Some(expected), "{private_data:02x?}");
    }
    adapter.serves();
}

#[test]
#[ignore = "needs an RDMA target: tests/vm"]
fn capsules_of_a_wrong_length_end_the_connection() {
    let adapter = Adapter::new();
    for bytes in [1, 63, 64 + (8 << 10) + 16] {
        let (_admin, mut io) = adapter.connected();
        io.send_capsule(&vec![0; bytes]);
        ends(&mut io);
    }
    adapter.serves();
}

#[test]
#[ignore = "needs an RDMA target: tests/vm"]
fn what_comes_before_connect_or_is_for_another_queue_does_no_harm() {
    let adapter = Adapter::new();
    let mut early = Queue::accepted(&adapter, adapter.target, 1, 32);
    let refused = early.call(transfer(READ, 0, 8), Data::Memory(4096)).cqe;
    assert!(refused.status().is(Status::COMMAND_SEQUENCE_ERROR), "{}", refused.status());
    let (_admin, controller) = Queue::admin(&adapter, adapter.target);
    let mut other = Queue::accepted(&adapter, adapter.target, 3, 64);
    other.memory.as_mut_slice()[..1024].copy_from_slice(raw::connect_data(controller).as_bytes());
    other.send(raw::connect(2, 64), 1, Data::Memory(1024));
    while other.response().is_some() {}
}

#[test]
#[ignore = "needs an RDMA target: tests/vm"]
fn sgls_that_point_nowhere_fail_their_command_and_are_logged() {
    let adapter = Adapter::new();
    let (mut admin, mut io) = adapter.connected();
    refuses_bad_sgls(&mut admin, &mut io);
    // A list in the capsule that has too many descriptors, or such of another type.
    let key = SglDescriptor::encode(Sgl::Keyed { address: 0, length: 512, key: 1, invalidate: false });
    for (descriptors, status) in [
        (vec![key; 17], Status::INVALID_SGL_COUNT),
        (vec![SglDescriptor::encode(Sgl::Transport { length: 4096 })], Status::SGL_TYPE_INVALID),
    ] {
        let mut sqe = transfer(WRITE, 0, 8);
        sqe.dptr = SglDescriptor::encode(Sgl::LastSegment { offset: 0, length: 16 * descriptors.len() as u32 });
        sqe.cid = 9_u16.into();
        io.send_capsule(&[sqe.as_bytes(), descriptors.as_bytes()].concat());
        let refused = io.response().unwrap().cqe;
        assert!(refused.status().is(status), "{}", refused.status());
    }
    io.done(transfer(READ, 0, 8), Data::Memory(4096));
}

#[test]
#[ignore = "needs an RDMA target: tests/vm"]
fn keys_that_do_not_exist_and_ranges_beyond_the_region_end_the_connection() {
    let adapter = Adapter::new();
    for (opcode, key, beyond) in [(READ, 0x5500, 0), (WRITE, 0x5500, 0), (READ, 0, 1 << 20), (WRITE, 0, 1 << 20)] {
        let (mut admin, mut io) = adapter.connected();
        let own = io.pair.remote_key(io.memory.region()).unwrap();
        let address = io.memory.region().address() as u64 + beyond;
        let mut sqe = transfer(opcode, 0, 8);
        sqe.dptr = SglDescriptor::encode(Sgl::Keyed { address, length: 4096, key: own ^ key, invalidate: false });
        io.send(sqe, 1, Data::None);
        ends(&mut io);
        // It is the queue's end, not the controller's.
        admin.done(Sqe::new(IDENTIFY).with_cdw(10, 1), Data::Memory(4096));
    }
}

/// Its own adapter keeps a host from reading: the target serves no RDMA READs.
#[test]
#[ignore = "needs an RDMA target: tests/vm"]
fn the_memory_of_the_target_is_out_of_reach() {
    let adapter = Adapter::new();
    for guess in [0x100, 0x5500] {
        let (_admin, mut io) = adapter.connected();
        let held = io.pair.hold(Buffer::zeroed(4096)).unwrap();
        let own = io.pair.remote_key(io.memory.region()).unwrap();
        let to = Remote { address: io.memory.region().address() as u64, key: own.wrapping_sub(guess) };
        io.pair.post_write(held, 0, 64, to, Some(1));
        io.pair.flush().unwrap();
        is_over(&mut io);
    }
    adapter.serves();
}

/// A message that invalidates a key that the target has never given away.
#[test]
#[ignore = "needs an RDMA target: tests/vm"]
fn a_key_that_is_invalidated_without_reason_harms_nobody_else() {
    let adapter = Adapter::new();
    if adapter.is_iwarp() {
        return;
    }
    for key in [1, 0x1234_5600] {
        let (_admin, mut io) = adapter.connected();
        let slot = io.pair.take_send_slot().unwrap();
        io.pair.post_send(slot, 64, Some(key));
        io.pair.flush().unwrap();
        is_over(&mut io);
    }
    adapter.serves();
}

/// Until the connection has ended. Nothing is given back meanwhile.
fn is_over(queue: &mut Queue) {
    loop {
        queue.pair.arm().unwrap();
        while let Some(completion) = queue.pair.poll().unwrap() {
            match completion {
                WorkCompletion::Failed { .. } => return,
                // With iWARP a write is over when it is sent.
                WorkCompletion::Done { .. } | WorkCompletion::Received { .. } | WorkCompletion::Sent { .. } => {}
            }
        }
        while let Some(event) = queue.pair.poll_event().unwrap() {
            if !matches!(event, Event::Established { .. }) {
                return;
            }
        }
        queue.wait();
    }
}

#[test]
#[ignore = "needs an RDMA target: tests/vm"]
fn more_capsules_than_the_queue_has_entries_end_the_connection_or_wait() {
    let adapter = Adapter::new();
    let (_admin, controller) = Queue::admin(&adapter, adapter.target);
    let mut flood = Queue::accepted(&adapter, adapter.target, 1, 16);
    flood.connect(1, 16, controller);
    let mut sent = 0;
    let mut answered = 0;
    while sent < 120 && !flood.has_ended() {
        let Some(slot) = flood.pair.take_send_slot() else {
            flood.pair.arm().unwrap();
            if !flood.look() {
                flood.wait();
            }
            answered += std::iter::from_fn(|| flood.take()).count();
            continue;
        };
        let mut sqe = transfer(READ, 0, 8);
        sqe.cid = (sent as u16).into();
        sqe.dptr = flood.descriptor(4096, false);
        flood.pair.send_slot(slot)[..64].copy_from_slice(sqe.as_bytes());
        flood.pair.post_send(slot, 64, None);
        // Fails when the connection is over, which is told below.
        let _ = flood.pair.flush();
        sent += 1;
    }
    while answered < sent && flood.response().is_some() {
        answered += 1;
    }
    println!("{answered} of {sent} commands were answered");
    assert!(flood.has_ended() || answered == sent);
    drop(flood);
    adapter.serves();
}

#[test]
#[ignore = "needs an RDMA target: tests/vm"]
fn connections_that_do_not_go_on_are_only_so_many() {
    let adapter = Adapter::new();
    let mut held = Vec::new();
    let mut refused = 0;
    for queue in 0..40 {
        let (pair, answer) = Queue::ask(&adapter, adapter.target, &request(queue % 3, 32, 0xffff));
        match rejected(&answer) {
            None => held.push(pair),
            Some(status) => {
                assert_eq!(status, RejectStatus::NO_RESOURCES);
                refused += 1;
            }
        }
    }
    println!("{} connections, {refused} refused", held.len());
    assert!(refused >= 5 && !held.is_empty());
    drop(held);
    // The target has learnt of their ends when it takes others again.
    while rejected(&Queue::ask(&adapter, adapter.target, &request(0, 32, 0xffff)).1).is_some() {
        std::thread::yield_now();
    }
}

/// Those that a target has patience with.
mod patient {
    use super::*;

    /// The connection manager at the other end waits for the last message of three.
    #[test]
    #[ignore = "needs an RDMA target: tests/vm"]
    fn a_host_that_never_completes_the_handshake_is_given_up() {
        let adapter = Adapter::new();
        let mut silent: Vec<Queue> =
            (0..2).map(|id| Queue::silent(&adapter, adapter.target, &request(id, 32, 0xffff), 32)).collect();
        // Whoever takes the event, answers it. There is nothing else to wait for.
        std::thread::sleep(std::time::Duration::from_secs(12));
        for queue in &mut silent {
            is_over(queue);
        }
    }

    #[test]
    #[ignore = "needs an RDMA target: tests/vm"]
    fn a_host_that_sends_no_connect_is_given_up() {
        let adapter = Adapter::new();
        let mut idle = Queue::accepted(&adapter, adapter.target, 0, 32);
        ends(&mut idle);
    }

    #[test]
    #[ignore = "needs an RDMA target: tests/vm"]
    fn a_host_that_posts_no_receives_is_given_up() {
        let adapter = Adapter::new();
        // Three, not 32 as it says.
        let mut deaf = Queue::silent(&adapter, adapter.target, &request(0, 32, 0xffff), 3);
        while !matches!(deaf.event(), Event::Established { .. }) {}
        deaf.memory.as_mut_slice()[..1024].copy_from_slice(raw::connect_data(0xffff).as_bytes());
        deaf.send(raw::connect(0, 32), 1, Data::Memory(1024));
        assert!(kept(&mut deaf).status().is_success());
        deaf.send(Property::set(offset::CC, Cc::ENABLE.0), 2, Data::None);
        assert!(kept(&mut deaf).status().is_success());
        for cid in 0..20 {
            deaf.send(Sqe::new(IDENTIFY).with_cdw(10, 1), cid, Data::Memory(4096));
        }
        is_over(&mut deaf);
    }

    /// The next response, whose receive is not given back.
    fn kept(queue: &mut Queue) -> Cqe {
        loop {
            queue.pair.arm().unwrap();
            while let Some(completion) = queue.pair.poll().unwrap() {
                match completion {
                    WorkCompletion::Received { slot, .. } => {
                        return Cqe::read_from_bytes(&queue.pair.received(slot)[..16]).unwrap();
                    }
                    WorkCompletion::Sent { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            queue.wait();
        }
    }
}
