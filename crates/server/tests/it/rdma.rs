//! The target over a simulated RDMA network: what hosts may do, and what they must not.

use std::time::Duration;

use ebof_manage::api::{RefusalReason, Target as _};
use ebof_manage::{Config, Listen};
use ebof_nvme::connect::Property;
use ebof_nvme::log::{DiscoveryEntries, RdmaProvider, TrType};
use ebof_nvme::property::offset;
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Sgl, Sqe, Status};
use ebof_rdma::private_data::RejectStatus;
use ebof_server::{Settings, SteppedTarget, Target};
use ebof_verbs::simulated::Side;
use ebof_verbs::{DeviceAttributes, Event, simulated};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use zerocopy::IntoBytes;

use crate::config::one_subsystem;
use crate::raw::{self, Raw};
use crate::rdma_rig::{
    Data, MEMORY_BYTES, Queue, over_rdma, refuses_bad_sgls, reject_of, request, settings, target, target_on, transfer,
};
use crate::waiting::until;

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const COMPARE: u8 = 0x05;
const IDENTIFY: u8 = 0x06;
const ABORT: u8 = 0x08;

fn pattern(seed: usize) -> Vec<u8> {
    (0..64 << 10).map(|at: usize| (at / 512 + seed) as u8).collect()
}

fn reads_what_it_writes(network: simulated::Network, drive: &str) {
    let (network, target, address) = target_on(network, drive);
    let (mut admin, controller) = Queue::admin(&network, address);
    admin.done(Sqe::new(IDENTIFY).with_cdw(10, 1), Data::Memory(4096));
    assert_eq!(admin.memory.as_slice()[78..80], controller.to_le_bytes());
    let mut queue = Queue::io(&network, address, controller, 1);
    let data = pattern(0);
    queue.memory.as_mut_slice()[..data.len()].copy_from_slice(&data);
    queue.done(transfer(WRITE, 8, 128), Data::Memory(64 << 10));
    queue.memory.as_mut_slice().fill(0);
    queue.done(transfer(READ, 8, 128), Data::Memory(64 << 10));
    assert!(queue.memory.as_slice()[..data.len()] == data, "what is read is not what was written");
    queue.done(transfer(COMPARE, 8, 128), Data::Memory(64 << 10));
    assert!(queue.call(transfer(COMPARE, 9, 128), Data::Memory(64 << 10)).cqe.status().is(Status::COMPARE_FAILURE));
    // Data in the capsule.
    queue.done(transfer(WRITE, 0, 8), Data::InCapsule(&[9; 4096]));
    queue.done(Sqe::new(FLUSH).with_nsid(ebof_nvme::Nsid(1)), Data::None);
    let key = queue.pair.remote_key(queue.memory.region()).unwrap();
    let read = queue.done(transfer(READ, 0, 8), Data::Invalidated(4096));
    assert_eq!((read.invalidated, &queue.memory.as_slice()[..4096]), (Some(key), &[9; 4096][..]));
    let status = target.status();
    assert_eq!((status.connections, status.controllers.len()), (2, 1));
    assert_eq!(status.ports[0].transport, "rdma");
    drop((admin, queue));
    until("queue pairs are left", || network.queue_pairs() == 0);
    until("connections are left", || target.status().connections == 0);
}

#[test]
fn a_host_reads_what_it_has_written_in_memory() {
    reads_what_it_writes(simulated::Network::new(), "mem:16M");
}

/// As with soft-iWARP.
// @test rdma.completed-once
#[test]
fn a_host_reads_what_it_has_written_where_work_overtakes_reads() {
    let network = simulated::Network::new();
    network.overtake_reads();
    reads_what_it_writes(network, "mem:16M");
}

#[test]
fn a_host_reads_what_it_has_written_to_a_file() {
    let directory = tempfile::tempdir().unwrap();
    reads_what_it_writes(simulated::Network::new(), &format!("{}:16M", directory.path().join("disk.img").display()));
}

// @test rdma.invalidate
#[test]
fn a_device_that_cannot_send_with_invalidate_sends_plainly() {
    let device = DeviceAttributes { send_with_invalidate: false, ..simulated::device() };
    let (network, _target, address) = target_on(simulated::Network::with_device(device), "mem:16M");
    let (_admin, controller) = Queue::admin(&network, address);
    let mut queue = Queue::io(&network, address, controller, 1);
    let key = queue.pair.remote_key(queue.memory.region()).unwrap();
    for _ in 0..3 {
        let read = queue.done(transfer(READ, 0, 8), Data::Invalidated(4096));
        assert_eq!(read.invalidated, None);
    }
    assert_eq!(queue.pair.remote_key(queue.memory.region()).unwrap(), key);
}

#[test]
fn queues_are_no_deeper_than_those_of_the_device() {
    let device = DeviceAttributes { queue_entries: 200, ..simulated::device() };
    let (network, _target, address) = target_on(simulated::Network::with_device(device), "mem:16M");
    let (mut admin, _) = Queue::admin(&network, address);
    let capabilities = admin.done(Property::get(offset::CAP, 8), Data::None).cqe.dw0.get();
    assert_eq!(capabilities & 0xffff, 199, "MQES is 0's based");
    assert!(matches!(Queue::ask(&network, address, &request(1, 200, 1)).1, Event::Established { .. }));
    let (_, refused) = Queue::ask(&network, address, &request(2, 201, 1));
    assert_eq!(reject_of(&refused), RejectStatus::INVALID_HSQSIZE);
}

// @test rdma.completed-once
#[test]
fn each_of_many_outstanding_commands_completes_once() {
    let directory = tempfile::tempdir().unwrap();
    let (network, _target, address) = target(&format!("{}:16M", directory.path().join("disk.img").display()));
    let (_admin, controller) = Queue::admin(&network, address);
    let mut queue = Queue::io(&network, address, controller, 1);
    for round in 0..20_u16 {
        for cid in 0..63 {
            let block = u32::from(cid) * 8;
            match cid % 3 {
                0 => queue.send(transfer(WRITE, block, 8), cid, Data::Memory(4096)),
                1 => queue.send(transfer(WRITE, block, 8), cid, Data::InCapsule(&[round as u8; 4096])),
                _ => queue.send(transfer(READ, block, 8), cid, Data::Memory(4096)),
            }
        }
        let mut answered: Vec<u16> = (0..63)
            .map(|_| {
                let response = queue.response().unwrap();
                assert!(response.cqe.status().is_success(), "{}", response.cqe.status());
                response.cqe.cid().0
            })
            .collect();
        answered.sort_unstable();
        assert!(answered.into_iter().eq(0..63));
    }
}

/// The same subsystem over both transports: `rdma`, with the TCP port behind it.
fn over_both() -> Config {
    let mut config = over_rdma(one_subsystem(["mem:16M"]));
    let mut tcp = ebof_manage::config::Port::new(2, Listen::new([127, 0, 0, 1].into(), 0));
    tcp.name = "tcp".to_owned();
    config.subsystems[0].ports.push(tcp.name.clone());
    config.ports.push(tcp);
    config
}

// @test rdma.beside-tcp
#[test]
fn one_subsystem_is_served_over_both_transports_and_discovery_lists_both() {
    let network = simulated::Network::new();
    let target = Target::start(over_both(), settings(&network)).unwrap();
    let addresses = target.addresses();
    let (mut admin, controller) = Queue::admin(&network, addresses[0].1);
    let mut queue = Queue::io(&network, addresses[0].1, controller, 1);
    queue.done(transfer(WRITE, 0, 8), Data::InCapsule(&[5; 4096]));
    let (mut tcp, other) = Raw::admin_and_controller(addresses[1].1);
    assert_ne!(other, controller);
    tcp.send(Sqe::new(IDENTIFY).with_cdw(10, 1), 7, &[]);
    assert_eq!(target.status().controllers.len(), 2);
    admin.done(Sqe::new(IDENTIFY).with_cdw(10, 1), Data::Memory(4096));

    let mut discovery = Queue::accepted(&network, addresses[0].1, 0, 32);
    let mut data = raw::connect_data(0xffff);
    data.subnqn = ebof_nvme::Nqn::discovery().to_field();
    discovery.memory.as_mut_slice()[..1024].copy_from_slice(data.as_bytes());
    discovery.done(raw::connect(0, 32), Data::Memory(1024));
    let enable = ebof_nvme::connect::Property::set(ebof_nvme::property::offset::CC, ebof_nvme::property::Cc::ENABLE.0);
    discovery.done(enable, Data::None);
    let bytes = 5 * 1024;
    let log = Sqe::new(0x02).with_cdw(10, 0x70 | ((bytes / 4 - 1) << 16));
    discovery.done(log, Data::Memory(bytes));
    let (_, entries) = DiscoveryEntries::new(&discovery.memory.as_slice()[..bytes as usize]).unwrap();
    let entries: Vec<_> = entries.collect();
    let rdma = entries.iter().find(|entry| entry.transport() == TrType::RDMA).unwrap();
    assert_eq!(rdma.rdma_address().unwrap().provider, RdmaProvider::ROCE_V2);
    assert!(entries.iter().any(|entry| entry.transport() == TrType::TCP));
}

// @test rdma.rejects
#[test]
fn requests_that_cannot_be_served_are_rejected_with_the_reason() {
    let network = simulated::Network::new();
    let limited = Settings { message_memory_bytes: 600 << 10, ..settings(&network) };
    let target = Target::start(over_rdma(one_subsystem(["mem:16M"])), limited).unwrap();
    let address = target.addresses()[0].1;
    let with = |at: usize, value: u16| {
        let mut bytes = request(1, 32, 1);
        bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    for (private_data, expected) in [
        (with(0, 1).to_vec(), RejectStatus::INVALID_FORMAT),
        (with(2, 5000).to_vec(), RejectStatus::INVALID_QID),
        (with(4, 0).to_vec(), RejectStatus::INVALID_HRQSIZE),
        (with(6, 9000).to_vec(), RejectStatus::INVALID_HSQSIZE),
    ] {
        assert_eq!(reject_of(&Queue::ask(&network, address, &private_data).1), expected);
    }
    // 32 capsules of 8256 bytes are 258 KiB: there is room for two such queues.
    let held: Vec<Queue> = (1..=2).map(|id| Queue::accepted(&network, address, id, 32)).collect();
    let third = Queue::ask(&network, address, &request(3, 32, 1)).1;
    assert_eq!(reject_of(&third), RejectStatus::NO_RESOURCES);
    drop(held);
    until("the memory is not free again", || {
        matches!(Queue::ask(&network, address, &request(3, 32, 1)).1, Event::Established { .. })
    });
    let reasons: Vec<_> = target.refused().into_iter().map(|refusal| refusal.reason).collect();
    for reason in [RefusalReason::NotNvme, RefusalReason::QueueRefused, RefusalReason::NoResources] {
        assert!(reasons.contains(&reason), "{reasons:?}");
    }
}

// @test rdma.wrong-sgl
#[test]
fn what_is_wrong_with_an_sgl_fails_the_command_only() {
    let (network, _target, address) = target("mem:16M");
    let (mut admin, controller) = Queue::admin(&network, address);
    let mut queue = Queue::io(&network, address, controller, 1);
    refuses_bad_sgls(&mut admin, &mut queue);
    queue.done(transfer(WRITE, 0, 8), Data::InCapsule(&[1; 4096]));
}

// @test rdma.wrong-sgl
#[test]
fn a_host_that_breaks_the_transport_loses_its_connection_and_nobody_else_does() {
    let (network, target, address) = target("mem:16M");
    let (mut admin, controller) = Queue::admin(&network, address);
    let mut id = 0;
    let mut io = || {
        id += 1;
        Queue::io(&network, address, controller, id)
    };
    let mut good = io();

    let mut short = io();
    short.send_capsule(&[0; 63]);
    assert!(short.response().is_none());

    // A key that does not exist, and a range that is not in the region.
    for (opcode, key, beyond) in [(READ, 1, 0), (WRITE, 1, 0), (READ, 0, 1 << 20), (WRITE, 0, 1 << 20)] {
        let mut queue = io();
        let own = queue.pair.remote_key(queue.memory.region()).unwrap();
        let base = queue.memory.region().address() as u64 + beyond;
        let mut sqe = transfer(opcode, 0, 8);
        let key = own.wrapping_add(key << 20);
        sqe.dptr = SglDescriptor::encode(Sgl::Keyed { address: base, length: 4096, key, invalidate: false });
        queue.send(sqe, 1, Data::None);
        assert!(queue.response().is_none());
    }

    let mut long = io();
    long.send_capsule(&[0; 64 + (8 << 10) + 16]);
    assert!(long.response().is_none());

    good.done(transfer(WRITE, 0, 8), Data::InCapsule(&[1; 4096]));
    good.done(transfer(READ, 0, 8), Data::Memory(4096));
    admin.done(Sqe::new(IDENTIFY).with_cdw(10, 1), Data::Memory(4096));
    until("connections are left", || target.status().connections == 2);
    drop((admin, good, short, long));
    until("queue pairs are left", || network.queue_pairs() == 0);
}

#[test]
fn a_connect_for_another_queue_than_the_request_was_for_ends_the_connection() {
    let (network, target, address) = target("mem:16M");
    let (mut admin, controller) = Queue::admin(&network, address);
    let mut queue = Queue::accepted(&network, address, 3, 64);
    queue.memory.as_mut_slice()[..1024].copy_from_slice(raw::connect_data(controller).as_bytes());
    queue.send(raw::connect(2, 64), 1, Data::Memory(1024));
    while queue.response().is_some() {}
    until("the connection is left", || target.status().connections == 1);
    admin.done(Sqe::new(IDENTIFY).with_cdw(10, 1), Data::Memory(4096));
    Queue::io(&network, address, controller, 2);
}

// @test rdma.slow-host
#[test]
fn a_host_that_never_connects_is_given_up() {
    let network = simulated::Network::new();
    let impatient = Settings { handshake_ms: 100, ..settings(&network) };
    let target = Target::start(over_rdma(one_subsystem(["mem:16M"])), impatient).unwrap();
    let address = target.addresses()[0].1;
    let mut idle = Queue::accepted(&network, address, 0, 32);
    assert!(idle.response().is_none());
    until("the connection is left", || target.status().connections == 0);
    assert!(target.refused().iter().any(|refusal| refusal.reason == RefusalReason::HandshakeTimeout));
}

// @test rdma.slow-host
#[test]
fn a_host_that_posts_no_receives_delays_only_itself() {
    let (network, _target, address) = target("mem:16M");
    let (_admin, controller) = Queue::admin(&network, address);
    let mut queue = Queue::io(&network, address, controller, 1);
    let mut deaf = Queue::silent(&network, address, &request(2, 64, controller), 1);
    until("it is not connected", || deaf.look() && deaf.pair.unflushed() == 0);
    deaf.connect(2, 64, controller);
    for cid in 0..32 {
        deaf.send(transfer(READ, 0, 8), cid, Data::Memory(4096));
    }
    queue.done(transfer(WRITE, 0, 8), Data::InCapsule(&[1; 4096]));
    queue.done(transfer(READ, 0, 8), Data::Memory(4096));
}

// @test rdma.removed-device
#[test]
fn the_device_goes_and_comes_back() {
    let (network, target, address) = target("mem:16M");
    let (mut admin, _) = Queue::admin(&network, address);
    network.remove_device();
    assert!(admin.response().is_none());
    drop(admin);
    until("connections are left", || target.status().connections == 0);
    network.restore_device();
    let end = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let (_queue, answer) = Queue::ask(&network, address, &request(0, 32, 0xffff));
        if matches!(answer, Event::Established { .. }) {
            break;
        }
        assert!(std::time::Instant::now() < end, "nobody listens again: {answer:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (mut admin, _) = Queue::admin(&network, address);
    admin.done(Sqe::new(IDENTIFY).with_cdw(10, 1), Data::Memory(4096));
}

// @test rdma.without-rdma-core
#[test]
fn a_target_without_rdma_says_what_is_missing() {
    let config = over_rdma(one_subsystem(["mem:16M"]));
    let Err(error) = Target::start(config, Settings { threads: Some(1), ..Settings::default() }) else {
        // This machine has a device at 127.0.0.1.
        return;
    };
    assert!(error.to_string().starts_with("listening on rdma://127.0.0.1:4420: "), "{error}");
}

// @test rdma.removed-device
#[test]
fn ports_over_rdma_come_and_go_with_a_reload() {
    let network = simulated::Network::new();
    let target = Target::start(over_both(), settings(&network)).unwrap();
    let address = target.addresses()[0].1;
    let (mut admin, _) = Queue::admin(&network, address);
    let mut without = target.config();
    let removed = without.ports.remove(0);
    without.subsystems[0].ports.retain(|name| *name != removed.name);
    target.apply(without).unwrap();
    assert!(admin.response().is_none());
    until("somebody listens", || {
        !matches!(Queue::ask(&network, address, &request(0, 32, 0xffff)).1, Event::Established { .. })
    });
    target.apply(over_both()).unwrap();
    let (mut admin, _) = Queue::admin(&network, address);
    admin.done(Sqe::new(IDENTIFY).with_cdw(10, 1), Data::Memory(4096));
}

#[test]
fn completions_are_polled_while_the_configuration_says_so() {
    let network = simulated::Network::new();
    let with = |prefer_busy_poll| {
        let mut config = over_rdma(one_subsystem(["mem:16M"]));
        config.ports[0].prefer_busy_poll = prefer_busy_poll;
        config
    };
    let settings = Settings { threads: Some(1), ..settings(&network) };
    let target = Target::start(with(true), settings).unwrap();
    let address = target.addresses()[0].1;
    let (mut admin, controller) = Queue::admin(&network, address);
    let mut polled = Queue::io(&network, address, controller, 1);
    polled.done(transfer(WRITE, 0, 8), Data::InCapsule(&[1; 4096]));
    // Its connections stay.
    target.apply(with(false)).unwrap();
    let mut queue = Queue::io(&network, address, controller, 2);
    for _ in 0..20 {
        polled.done(transfer(READ, 0, 8), Data::Memory(4096));
        queue.done(transfer(READ, 0, 8), Data::Memory(4096));
    }
    drop(polled);
    until("it is left", || target.status().connections == 2);
    queue.done(transfer(READ, 0, 8), Data::Memory(4096));
    admin.done(Sqe::new(IDENTIFY).with_cdw(10, 1), Data::Memory(4096));
}

#[test]
fn a_write_that_is_aborted_while_its_data_are_read_says_so() {
    let network = simulated::Network::new();
    let settings = Settings { threads: Some(1), ..settings(&network) };
    let target = Target::start(over_rdma(one_subsystem(["mem:16M"])), settings).unwrap();
    let address = target.addresses()[0].1;
    let (mut admin, controller) = Queue::admin(&network, address);
    let mut queue = Queue::io(&network, address, controller, 1);
    let connection = network.connections().pop().unwrap();
    connection.hold_work(Side::Target, true);
    queue.send(transfer(WRITE, 0, 8), 7, Data::Memory(4096));
    let identify = Sqe::new(IDENTIFY).with_cdw(10, 1);
    // The reactor has posted the READ then.
    admin.done(identify, Data::Memory(4096));
    let aborted = admin.call(Sqe::new(ABORT).with_cdw(10, 0x0007_0001), Data::None);
    assert_eq!(aborted.cqe.dw0.get() & 1, 0, "it is aborted");
    connection.hold_work(Side::Target, false);
    assert_eq!(queue.response().unwrap().cqe.status(), Status::ABORT_REQUESTED);
}

#[test]
fn a_stepped_target_serves_a_host_over_rdma() {
    let network = simulated::Network::new();
    let mut target = SteppedTarget::start(over_rdma(one_subsystem(["mem:16M"])), settings(&network)).unwrap();
    let address = target.target().addresses()[0].1;
    let mut queue = Queue::silent(&network, address, &request(0, 32, 0xffff), 32);
    let mut run = |queue: &mut Queue| {
        for _ in 0..1000 {
            target.keep_time();
            (0..target.reactors()).for_each(|reactor| _ = target.step(reactor));
            queue.look();
            if let Some(response) = queue.take() {
                return Some(response);
            }
        }
        None
    };
    assert!(run(&mut queue).is_none());
    queue.memory.as_mut_slice()[..1024].copy_from_slice(raw::connect_data(0xffff).as_bytes());
    queue.send(raw::connect(0, 32), 1, Data::Memory(1024));
    assert!(run(&mut queue).unwrap().cqe.status().is_success());
}

#[test]
fn a_stepped_target_listens_again_when_its_device_is_back() {
    let network = simulated::Network::new();
    let mut target = SteppedTarget::start(over_rdma(one_subsystem(["mem:16M"])), settings(&network)).unwrap();
    let address = target.target().addresses()[0].1;
    network.remove_device();
    target.keep_time();
    network.restore_device();
    target.keep_time();
    let mut queue = Queue::silent(&network, address, &request(0, 32, 0xffff), 32);
    target.keep_time();
    assert!(matches!(queue.pair.poll_event().unwrap(), Some(Event::Established { .. })));
}

#[test]
fn no_more_payload_is_registered_than_buffers_may_be() {
    exhaust_buffers();
}

/// Whoever rings rings once: what comes while a queue is not read, for want of buffers or of its
/// share of the turn, is found when it is read again. With one processor for both ends the target
/// often sleeps in between.
#[test]
fn queues_without_buffers_lose_no_command_on_one_processor() {
    let mut one = CpuSet::new();
    one.set(sched_getcpu());
    // This thread, and those that it starts.
    sched_setaffinity(None, &one).unwrap();
    for _ in 0..10 {
        exhaust_buffers();
    }
}

/// Three queues ask for more than there are buffers, several times.
fn exhaust_buffers() {
    let network = simulated::Network::new();
    let most: u64 = 8 << 20;
    let limits = Settings { threads: Some(1), reactor_buffer_bytes: 8 << 20, ..settings(&network) };
    let target = Target::start(over_rdma(one_subsystem(["mem:16M"])), limits).unwrap();
    let address = target.addresses()[0].1;
    let (admin, controller) = Queue::admin(&network, address);
    let mut queues: Vec<Queue> = (1..=3).map(|id| Queue::io(&network, address, controller, id)).collect();
    for round in 0..4 {
        let opcode = if round % 2 == 0 { WRITE } else { READ };
        for cid in 0..20 {
            queues.iter_mut().for_each(|queue| queue.send(transfer(opcode, 0, 1024), cid, Data::Memory(512 << 10)));
        }
        for queue in &mut queues {
            (0..20).for_each(|_| assert!(queue.response().unwrap().cqe.status().is_success()));
        }
    }
    let of_hosts = (queues.len() + 1) * MEMORY_BYTES;
    let registered = network.registered_bytes();
    assert!(registered <= most + of_hosts as u64, "{registered} bytes");
    drop((queues, admin));
    drop(target);
    assert_eq!((network.queue_pairs(), network.registered_bytes()), (0, 0));
}
