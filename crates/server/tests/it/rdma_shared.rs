//! Shared receives: what they save, and that no host is at the mercy of another one with which it
//! shares.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ebof_manage::Config;
use ebof_manage::api::Target as _;
use ebof_nvme::{Nsid, Sqe};
use ebof_rdma::private_data::RejectStatus;
use ebof_server::{Exposition, MetricsDetail, Settings, SteppedTarget, Target};
use ebof_verbs::{DeviceAttributes, Event, Protocol, simulated};
use zerocopy::IntoBytes;

use crate::config::one_subsystem;
use crate::gate::Gates;
use crate::raw;
use crate::rdma_rig::{Data, Queue, over_rdma, reject_of, request, settings, transfer};
use crate::reload_rig::Over;
use crate::waiting::until;

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;

/// One thread, and one port with so many shared receives.
fn config(srq_size: u32) -> Config {
    let mut config = over_rdma(one_subsystem(["mem:16M"]));
    config.ports[0].srq_size = Some(srq_size);
    config
}

fn one_thread(network: &simulated::Network) -> Settings {
    Settings { threads: Some(1), ..settings(network) }
}

fn target(network: &simulated::Network, config: Config) -> (Target, SocketAddr) {
    let target = Target::start(config, one_thread(network)).unwrap();
    let address = target.addresses()[0].1;
    (target, address)
}

fn capsule_memory(target: &Target) -> usize {
    let metrics = target.metrics(Exposition::OpenMetrics, MetricsDetail::Namespace);
    let value = metrics.lines().find_map(|line| line.strip_prefix("ebof_rdma_capsule_memory_bytes "));
    value.unwrap().parse().unwrap()
}

// @test rdma.shared-receives
#[test]
fn connections_that_share_receives_take_less_memory_and_give_it_back() {
    let network = simulated::Network::new();
    let own = 64 * 128 * (64 + 8192 + 16);
    let shared = 1024 * (64 + 8192) + 64 * 128 * 16;
    assert!(shared * 7 < own);
    for (config, expected) in [(over_rdma(one_subsystem(["mem:16M"])), own), (config(1024), shared)] {
        let (target, address) = target(&network, config);
        let queues: Vec<_> = (1..=64).map(|id| Queue::ask(&network, address, &request(id, 128, 1))).collect();
        assert!(queues.iter().all(|(_, answer)| matches!(answer, Event::Established { .. })));
        assert_eq!(capsule_memory(&target), expected);
        drop(queues);
        until("memory is left", || capsule_memory(&target) == 0);
    }
}

// @test rdma.shared-receives
#[test]
fn more_commands_are_outstanding_than_there_are_receives() {
    let network = simulated::Network::new();
    let (_target, address) = target(&network, config(64));
    let (_admin, controller) = Queue::admin(&network, address);
    let mut queues: Vec<Queue> = (1..=4).map(|id| Queue::io(&network, address, controller, id)).collect();
    for _ in 0..10 {
        for cid in 0..63 {
            for (queue, from) in queues.iter_mut().zip([0, 1000, 2000, 3000]) {
                let block = from + u32::from(cid) * 8;
                match cid % 3 {
                    0 => queue.send(transfer(WRITE, block, 8), cid, Data::Memory(4096)),
                    1 => queue.send(transfer(WRITE, block, 8), cid, Data::InCapsule(&[cid as u8; 4096])),
                    _ => queue.send(transfer(READ, block, 8), cid, Data::Memory(4096)),
                }
            }
        }
        for queue in &mut queues {
            for _ in 0..63 {
                assert!(queue.response().unwrap().cqe.status().is_success());
            }
        }
    }
}

/// Commands take their receives only until they have begun.
#[test]
fn a_slow_device_does_not_keep_receives_from_others() {
    let network = simulated::Network::new();
    let open = Arc::new(AtomicBool::new(true));
    let mut settings = one_thread(&network);
    settings.environment.storage = Arc::new(Gates(Arc::clone(&open)));
    let target = Target::start(config(64), settings).unwrap();
    let address = target.addresses()[0].1;
    // A target ends when its devices have answered.
    let _last = Over(&open);
    let (mut admin, controller) = Queue::admin(&network, address);
    let mut queues: Vec<Queue> = (1..=3).map(|id| Queue::io(&network, address, controller, id)).collect();
    open.store(false, Relaxed);
    for cid in 0..60 {
        queues.iter_mut().for_each(|queue| queue.send(transfer(READ, 0, 8), cid, Data::Memory(4096)));
    }
    admin.done(Sqe::new(0x06).with_cdw(10, 1), Data::Memory(4096));
    open.store(true, Relaxed);
    for queue in &mut queues {
        (0..60).for_each(|_| assert!(queue.response().unwrap().cqe.status().is_success()));
    }
}

/// A host that sends more commands than its queue holds takes receives from others. It loses its
/// connection, and they have them again.
// @test rdma.shared-receives
#[test]
fn a_flood_ends_its_connection_and_no_receive_is_lost() {
    let network = simulated::Network::new();
    let mut target = SteppedTarget::start(config(256), one_thread(&network)).unwrap();
    let address = target.target().addresses()[0].1;
    let mut run = |queues: &mut [&mut Queue], until: &dyn Fn(&[&mut Queue]) -> bool| {
        for _ in 0..1000 {
            target.keep_time();
            target.step(0);
            queues.iter_mut().for_each(|queue| _ = queue.look());
            if until(queues) {
                return;
            }
        }
        panic!("nothing comes of it");
    };
    let mut good = Queue::silent(&network, address, &request(0, 32, 0xffff), 64);
    run(&mut [&mut good], &|queues| queues[0].is_connected());
    good.memory.as_mut_slice()[..1024].copy_from_slice(raw::connect_data(0xffff).as_bytes());
    good.send(raw::connect(0, 32), 1, Data::Memory(1024));
    run(&mut [&mut good], &|queues| queues[0].responses() == 1);
    good.take();
    let identify = || Sqe::new(0x06).with_cdw(10, 1);
    for round in 0..8 {
        let mut flood = Queue::silent(&network, address, &request(1, 64, 1), 64);
        run(&mut [&mut flood, &mut good], &|queues| queues[0].is_connected());
        // Without a Connect these commands are wrong; that many are, before anything is looked at.
        for cid in 0..100 {
            flood.send(Sqe::new(FLUSH).with_nsid(Nsid(1)), cid, Data::None);
        }
        good.send(identify(), round, Data::Memory(4096));
        run(&mut [&mut flood, &mut good], &|queues| queues[0].has_ended() && queues[1].responses() == 1);
        assert_eq!(good.take().unwrap().cqe.cid().0, round);
    }
    let refused = target.target().refused();
    assert!(refused.iter().any(|refusal| refusal.detail.contains("more than 64 commands")), "{refused:?}");
    drop(good);
    for _ in 0..100 {
        target.step(0);
        target.keep_time();
    }
    assert_eq!((capsule_memory(target.target()), network.queue_pairs()), (0, 0));
}

#[test]
fn connections_come_and_go_with_commands_under_way() {
    let network = simulated::Network::new();
    let (target, address) = target(&network, config(64));
    let (mut admin, controller) = Queue::admin(&network, address);
    for round in 0..50_u16 {
        let mut queue = Queue::io(&network, address, controller, 1 + round % 3);
        for cid in 0..60 {
            match cid % 2 {
                0 => queue.send(transfer(WRITE, 0, 8), cid, Data::InCapsule(&[1; 4096])),
                _ => queue.send(transfer(READ, 0, 8), cid, Data::Memory(4096)),
            }
        }
        if round % 2 == 0 {
            queue.pair.disconnect();
        }
        drop(queue);
        admin.done(Sqe::new(0x06).with_cdw(10, 1), Data::Memory(4096));
        until("the queue is left", || target.status().connections == 1);
    }
    drop(admin);
    until("memory is left", || capsule_memory(&target) == 0 && network.queue_pairs() == 0);
}

#[test]
fn the_device_goes_and_its_shared_receives_with_it() {
    let network = simulated::Network::new();
    let (target, address) = target(&network, config(64));
    let (mut admin, controller) = Queue::admin(&network, address);
    let mut queue = Queue::io(&network, address, controller, 1);
    network.remove_device();
    assert!(admin.response().is_none() && queue.response().is_none());
    drop((admin, queue));
    until("memory is left", || capsule_memory(&target) == 0 && network.queue_pairs() == 0);
    network.restore_device();
    until("somebody listens", || {
        matches!(Queue::ask(&network, address, &request(0, 32, 0xffff)).1, Event::Established { .. })
    });
    let (mut admin, _) = Queue::admin(&network, address);
    admin.done(Sqe::new(0x06).with_cdw(10, 1), Data::Memory(4096));
}

#[test]
fn a_reload_changes_the_receives_of_new_connections() {
    let network = simulated::Network::new();
    let (target, address) = target(&network, over_rdma(one_subsystem(["mem:16M"])));
    let (mut admin, controller) = Queue::admin(&network, address);
    let own = capsule_memory(&target);
    let mut expected = own;
    let mut queues = Vec::new();
    for (id, size) in [(1, 100), (2, 200)] {
        target.apply(config(size)).unwrap();
        expected += size as usize * (64 + 8192) + 64 * 16;
        // Those that come at the same moment are of either configuration.
        until("new connections share", || {
            let _probe = Queue::accepted(&network, address, id, 64);
            capsule_memory(&target) == expected
        });
        queues.push(Queue::io(&network, address, controller, id));
        until("only the new queue is left", || capsule_memory(&target) == expected);
    }
    admin.done(Sqe::new(0x06).with_cdw(10, 1), Data::Memory(4096));
    for mut queue in queues {
        queue.done(transfer(WRITE, 0, 8), Data::InCapsule(&[1; 4096]));
    }
    until("memory is left", || capsule_memory(&target) == own);
}

#[test]
fn shared_receives_are_within_the_memory_for_capsules() {
    let network = simulated::Network::new();
    let settings = Settings { message_memory_bytes: 1 << 20, ..one_thread(&network) };
    let target = Target::start(config(1024), settings).unwrap();
    let address = target.addresses()[0].1;
    let refused = Queue::ask(&network, address, &request(0, 32, 0xffff)).1;
    assert_eq!(reject_of(&refused), RejectStatus::NO_RESOURCES);
    assert!(target.refused()[0].detail.contains("8454144 bytes"), "{:?}", target.refused());
}

/// With iWARP a message without a receive ends its connection.
#[test]
fn with_iwarp_queues_beyond_the_shared_receives_have_their_own() {
    let network =
        simulated::Network::with_device(DeviceAttributes { protocol: Protocol::Iwarp, ..simulated::device() });
    let (target, address) = target(&network, config(100));
    let (_admin, controller) = Queue::admin(&network, address);
    let of_set = 100 * (64 + 8192);
    assert_eq!(capsule_memory(&target), of_set + 32 * 16);
    let _shares = Queue::io(&network, address, controller, 1);
    assert_eq!(capsule_memory(&target), of_set + (32 + 64) * 16);
    let mut has_own = Queue::io(&network, address, controller, 2);
    assert_eq!(capsule_memory(&target), of_set + (32 + 64) * 16 + 64 * (64 + 8192 + 16));
    has_own.done(transfer(WRITE, 0, 8), Data::InCapsule(&[1; 4096]));
}
