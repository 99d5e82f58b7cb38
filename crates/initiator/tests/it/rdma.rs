//! The host over a simulated RDMA network.
#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation, reason = "test code")]

use std::time::{Duration, Instant};

use ebof_initiator::{
    ConnectErrorKind, Controller, Data, Error, Event, Loss, QueuePair, Queues, Step, discover, stepped,
};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nsid, Status};
use ebof_rdma::private_data::RejectStatus;
use ebof_region::Buffer;
use ebof_verbs::DeviceAttributes;
use ebof_verbs::simulated::{self, Side};

use crate::peer::{Action, BLOCK, Shared, options};
use crate::rdma_peer::{RdmaPeer, Server, Target};

const LONG: Duration = Duration::from_secs(20);

/// Waits until so many bytes are registered at both ends together.
fn await_registered(peer: &RdmaPeer, bytes: u64) {
    let deadline = Instant::now() + LONG;
    while peer.network.registered_bytes() != bytes {
        assert!(Instant::now() < deadline, "{} and not {bytes}", peer.network.registered_bytes());
        std::thread::yield_now();
    }
}

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at * 7 + at / 256 + seed) % 251) as u8).collect()
}

#[test]
fn data_are_the_same_after_every_way() {
    let peer = RdmaPeer::new();
    let controller = Controller::connect(&peer.options()).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    for (seed, blocks) in [1, 8, 9, 64, 257, 3000].into_iter().enumerate() {
        let data = pattern(seed, blocks * BLOCK);
        namespace.write(11, &data, false).unwrap();
        let mut back = vec![0; data.len()];
        namespace.read(11, &mut back).unwrap();
        assert!(back == data, "{blocks} blocks");
        assert!(namespace.compare(11, &data).unwrap());
    }
    assert_eq!(peer.target.ways(8 * 512), ["capsule", "keyed", "capsule"], "write, read, compare");
    assert_eq!(peer.target.ways(9 * 512), ["keyed", "keyed", "keyed"]);
    namespace.write_zeroes(12, 300, false).unwrap();
    namespace.deallocate(&[(400, 3), (500, 1)]).unwrap();
    namespace.flush().unwrap();
    drop(namespace);
    controller.disconnect();
    let deadline = Instant::now() + LONG;
    while peer.network.queue_pairs() > 0 {
        assert!(Instant::now() < deadline, "queue pairs are left");
        std::thread::yield_now();
    }
    await_registered(&peer, 0);
}

// @test rdma.registered-buffers
#[test]
fn a_buffer_in_a_region_is_registered_once_and_not_copied() {
    let peer = RdmaPeer::new();
    let controller = Controller::connect(&peer.options()).unwrap();
    let mut queue: QueuePair<Buffer> = controller.queue_pair().unwrap();
    let before = peer.network.registered_bytes();
    let blocks = 16;
    let mut buffers = Buffer::zeroed_together(blocks * BLOCK, 4);
    let bytes = buffers[0].region().capacity() as u64;
    for round in 0..20 {
        for opcode in [nvm::WRITE, nvm::READ] {
            for (user, mut buffer) in buffers.drain(..).enumerate() {
                let sqe = BlockRange::new((user * blocks) as u64, blocks as u32).encode(opcode, Nsid(1));
                let data = if opcode == nvm::WRITE {
                    buffer.as_mut_slice().copy_from_slice(&pattern(user + round, blocks * BLOCK));
                    Data::FromHost(buffer)
                } else {
                    buffer.as_mut_slice().fill(0);
                    Data::ToHost(buffer)
                };
                queue.submit(sqe, data, user as u64).unwrap();
            }
            for _ in 0..4 {
                let done = queue.wait(Some(Instant::now() + LONG)).unwrap().expect("in time");
                assert!(done.result.unwrap().status().is_success());
                let buffer = done.data.into_buffer().unwrap();
                assert!(buffer.as_slice() == pattern(done.user as usize + round, blocks * BLOCK));
                buffers.push(buffer);
            }
        }
        // The target frees its buffers after the response.
        await_registered(&peer, before + bytes);
    }
}

// @test rdma.registered-buffers
#[test]
fn more_data_than_bounce_memory_wait_for_it() {
    let peer = RdmaPeer::new();
    peer.state().mdts = 8;
    let controller = Controller::connect(&peer.options()).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    let blocks = (1 << 20) / BLOCK;
    for user in 0..40_u64 {
        let sqe = BlockRange::new(user % 2 * blocks as u64, blocks as u32).encode(nvm::WRITE, Nsid(1));
        queue.submit(sqe, Data::FromHost(pattern((user % 2) as usize, 1 << 20)), user).unwrap();
    }
    for _ in 0..40 {
        let done = queue.wait(Some(Instant::now() + LONG)).unwrap().expect("in time");
        assert!(done.result.unwrap().status().is_success());
    }
    assert!(peer.state().disk[..1 << 20] == pattern(0, 1 << 20));
    assert!(peer.network.registered_bytes() < 40 << 20);
    let refused = queue.submit(BlockRange::new(0, 1).encode(nvm::WRITE, Nsid(1)), Data::FromHost(vec![0; 9 << 20]), 0);
    assert!(matches!(refused.unwrap_err().reason, Error::TooLarge { .. }));
}

#[test]
fn a_transfer_is_bounded_by_what_a_descriptor_can_name() {
    let peer = RdmaPeer::new();
    peer.state().mdts = 12;
    let controller = Controller::connect(&peer.options()).unwrap();
    assert_eq!((controller.max_transfer_bytes(), controller.limits().transfer_bytes), (Some(8 << 20), Some(8 << 20)));
    assert_eq!(controller.namespace(Nsid(1)).unwrap().max_transfer_blocks(), (8 << 20) / BLOCK as u32);
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    let refused = queue.submit(BlockRange::new(0, 1).encode(nvm::WRITE, Nsid(1)), Data::FromHost(vec![0; 9 << 20]), 0);
    assert!(matches!(refused.unwrap_err().reason, Error::TooLarge { .. }));
}

#[test]
fn a_key_of_a_command_is_invalid_when_the_command_is_over() {
    // The controller invalidates it, or this end does.
    for by_peer in [true, false] {
        let device = DeviceAttributes { window_invalidation: by_peer, ..simulated::device() };
        let peer = RdmaPeer::with_device(device);
        let mut options = peer.options();
        options.memory_windows = true;
        let controller = Controller::connect(&options).unwrap();
        let mut queue: QueuePair<Buffer> = controller.queue_pair().unwrap();
        let (blocks, commands) = (16, queue.capacity() as u64);
        for round in 0..300_u64 {
            let opcode = if round % 2 == 0 { nvm::WRITE } else { nvm::READ };
            for user in 0..commands {
                let mut buffer = Buffer::zeroed(blocks * BLOCK);
                let sqe = BlockRange::new(user * blocks as u64, blocks as u32).encode(opcode, Nsid(1));
                buffer.as_mut_slice().fill((user + round) as u8);
                let data = if opcode == nvm::WRITE { Data::FromHost(buffer) } else { Data::ToHost(buffer) };
                queue.submit(sqe, data, user).unwrap();
            }
            for _ in 0..commands {
                let done = queue.wait(Some(Instant::now() + LONG)).unwrap().expect("in time");
                assert!(done.result.unwrap().status().is_success(), "round {round}");
                let buffer = done.data.into_buffer().unwrap();
                let wanted = (done.user + round / 2 * 2) as u8;
                assert!(buffer.as_slice().iter().all(|byte| *byte == wanted), "round {round}");
                // Windows keep the regions of keys that are valid.
                assert_eq!(std::sync::Arc::strong_count(buffer.region()), 1, "round {round}");
            }
        }
        let ways = peer.target.ways(16 * 512);
        assert!(ways.iter().all(|way| *way == if by_peer { "own key" } else { "keyed" }), "{:?}", ways[0]);
        // Buffers that are copied, too.
        let namespace = controller.namespace(Nsid(1)).unwrap();
        let data = pattern(1, 3000 * BLOCK);
        namespace.write(11, &data, false).unwrap();
        let mut back = vec![0; data.len()];
        namespace.read(11, &mut back).unwrap();
        assert!(back == data);
    }
    let device = DeviceAttributes { memory_windows: 0, ..simulated::device() };
    let peer = RdmaPeer::with_device(device);
    let mut options = peer.options();
    options.memory_windows = true;
    let error = Controller::connect(&options).unwrap_err();
    assert!(matches!(error.kind(), ConnectErrorKind::RdmaLimit { .. }), "{error:?}");
    assert!(format!("{error:#}").contains("memory windows"), "{error:#}");
}

#[test]
fn a_controller_with_few_receives_gets_few_commands_at_a_time() {
    let peer = RdmaPeer::new();
    peer.manners.lock().unwrap().receives = Some(3);
    let controller = Controller::connect(&peer.options()).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    for user in 0..100 {
        let sqe = BlockRange::new(user, 1).encode(nvm::READ, Nsid(1));
        queue.submit(sqe, Data::ToHost(vec![0; BLOCK]), user).unwrap();
    }
    for _ in 0..100 {
        let done = queue.wait(Some(Instant::now() + LONG)).unwrap().expect("in time");
        assert!(done.result.unwrap().status().is_success());
    }
}

// @test rdma.connect-errors
#[test]
fn every_reject_is_explained() {
    let peer = RdmaPeer::new();
    let connect = || Controller::connect(&peer.options()).unwrap_err();
    for status in 1..=9 {
        peer.manners.lock().unwrap().reject = Some(status);
        let error = connect();
        assert_eq!(*error.kind(), ConnectErrorKind::Rejected { status: RejectStatus(status) });
        assert_eq!((error.tried().step, error.is_transient()), (Step::Rdma, status == 6));
        let text = format!("{error:#}");
        assert!(text.contains("the target rejects the Admin Queue") && !text.contains("TCP"), "{text}");
    }
    peer.manners.lock().unwrap().reject = None;
    // A record of another format.
    peer.manners.lock().unwrap().reject_with = Some(vec![9, 9, 1, 0]);
    assert_eq!(*connect().kind(), ConnectErrorKind::RejectedByManager { reason: 28 });
    peer.manners.lock().unwrap().reject_with = None;
    peer.manners.lock().unwrap().accept_with = Some(vec![1, 0, 32, 0]);
    assert!(matches!(connect().kind(), ConnectErrorKind::Protocol { .. }));
}

// @test rdma.connect-errors
#[test]
fn each_step_of_connecting_that_fails_is_reported() {
    let peer = RdmaPeer::new();
    let mut options = peer.options();
    options.connect_timeout_ms = 100;
    options.trsvcid = 4421;
    let error = Controller::connect(&options).unwrap_err();
    assert_eq!(*error.kind(), ConnectErrorKind::Refused);
    assert!(error.to_do().contains("for RDMA"), "{error:#}");
    options.trsvcid = 4420;
    peer.manners.lock().unwrap().silent = true;
    let error = Controller::connect(&options).unwrap_err();
    assert_eq!((error.kind(), error.tried().step), (&ConnectErrorKind::TimedOut { after_ms: 100 }, Step::Rdma));
    peer.network.set_reachable(peer.address.ip(), false);
    let error = Controller::connect(&options).unwrap_err();
    assert_eq!(error.tried().step, Step::Address, "{error:?}");
    peer.network.remove_device();
    let error = Controller::connect(&options).unwrap_err();
    assert!(matches!(error.kind(), ConnectErrorKind::NoRdmaDevice { .. }), "{error:?}");
}

#[test]
fn a_queue_that_the_device_is_too_small_for_is_reported() {
    let peer = RdmaPeer::new();
    let device = DeviceAttributes { queue_entries: 8, ..simulated::device() };
    let network = simulated::Network::with_device(device);
    let _listener = ebof_verbs::Network::from(network.clone()).listen(peer.address, 1).unwrap();
    let mut options = peer.options();
    options.transport = ebof_initiator::Transport::QueuePairs(network.into());
    let error = Controller::connect(&options).unwrap_err();
    assert!(matches!(error.kind(), ConnectErrorKind::RdmaLimit { .. }), "{error:?}");
}

// @test rdma.protocol-errors
#[test]
fn a_controller_that_breaks_the_protocol_loses_the_connection() {
    for (action, reason) in [
        (Action::Garbage, "a response capsule of 7 bytes"),
        (Action::Stray, "not outstanding"),
        (Action::Twice, "not outstanding"),
        (Action::Invalidate, "invalidated the key"),
    ] {
        let peer = RdmaPeer::new();
        let controller = Controller::connect(&peer.options()).unwrap();
        let events = controller.events();
        let mut queue: QueuePair = controller.queue_pair().unwrap();
        peer.state().on_io = Box::new(move |_| action);
        let read = BlockRange::new(0, 1).encode(nvm::READ, Nsid(1));
        queue.submit(read, Data::ToHost(vec![0; BLOCK]), 1).unwrap();
        if action == Action::Twice {
            // The first one is legal.
            let done = queue.wait(Some(Instant::now() + LONG)).unwrap().unwrap();
            assert!(done.result.unwrap().status().is(Status::INTERNAL_ERROR));
            let _ = queue.poll();
            peer.state().on_io = Box::new(|_| Action::Ignore);
            let _ = queue.submit(read, Data::ToHost(vec![0; BLOCK]), 2);
        }
        if queue.in_flight() > 0 {
            let done = queue.wait(Some(Instant::now() + LONG)).unwrap().expect("in time");
            let Err(Error::Lost(loss)) = done.result else { panic!("{action:?}") };
            if action != Action::Twice {
                assert!(matches!(&loss, Loss::Protocol(text) if text.contains(reason)), "{action:?}: {loss}");
            }
            assert_eq!(done.data.into_buffer().unwrap().len(), BLOCK);
        }
        peer.state().on_io = Box::new(|_| Action::Serve);
        let deadline = Instant::now() + LONG;
        while events.recv_timeout(deadline - Instant::now()).expect("reconnects") != Event::Reconnected {}
        let mut block = [0; BLOCK];
        let again = queue.execute(read, ebof_initiator::AdminData::ToHost(&mut block));
        assert!(again.unwrap().status().is_success(), "{action:?}");
    }
}

// @test rdma.protocol-errors
#[test]
fn a_lost_connection_gives_buffers_back_and_comes_back() {
    type Fault = fn(&RdmaPeer);
    let faults: [(&str, Fault); 6] = [
        ("hung up", RdmaPeer::hang_up),
        ("severed", |peer| peer.network.connections().iter().for_each(|connection| connection.sever())),
        ("failed", |peer| peer.network.connections().iter().for_each(|connection| connection.fail(Side::Host))),
        ("address changed", |peer| peer.network.change_address(peer.address.ip())),
        ("device removed", |peer| {
            peer.network.remove_device();
            std::thread::sleep(Duration::from_millis(100));
            peer.network.restore_device();
        }),
        ("timed out", |peer| {
            for connection in peer.network.connections() {
                connection.lose();
                connection.time_out();
            }
        }),
    ];
    for (name, fault) in faults {
        let peer = RdmaPeer::new();
        let mut options = peer.options();
        options.command_timeout_ms = 500;
        options.keep_alive_ms = 1000;
        let controller = Controller::connect(&options).unwrap();
        let events = controller.events();
        let mut queue: QueuePair<Buffer> = controller.queue_pair().unwrap();
        peer.state().on_io = Box::new(|_| Action::Ignore);
        let read = BlockRange::new(0, 8).encode(nvm::READ, Nsid(1));
        for user in 0..10 {
            queue.submit(read, Data::ToHost(Buffer::zeroed(4096)), user).unwrap();
        }
        queue.flush().unwrap();
        fault(&peer);
        for _ in 0..10 {
            let done = queue.wait(Some(Instant::now() + LONG)).unwrap().expect("in time");
            assert!(matches!(done.result, Err(Error::Lost(_))), "{name}: {:?}", done.result);
            assert!(done.data.into_buffer().is_some());
        }
        peer.state().on_io = Box::new(|_| Action::Serve);
        let deadline = Instant::now() + LONG;
        while events.recv_timeout(deadline - Instant::now()).expect(name) != Event::Reconnected {}
        queue.submit(read, Data::ToHost(Buffer::zeroed(4096)), 1).unwrap();
        let done = queue.wait(Some(Instant::now() + LONG)).unwrap().expect("in time");
        assert!(done.result.unwrap().status().is_success(), "{name}");
    }
}

#[test]
fn an_unanswered_command_is_aborted_and_then_the_connection_is_reset() {
    let peer = RdmaPeer::new();
    let mut options = peer.options();
    options.command_timeout_ms = 200;
    let controller = Controller::connect(&options).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    peer.state().on_io = Box::new(|_| Action::Ignore);
    let read = BlockRange::new(0, 1).encode(nvm::READ, Nsid(1));
    queue.submit(read, Data::ToHost(vec![0; BLOCK]), 1).unwrap();
    let done = queue.wait(Some(Instant::now() + LONG)).unwrap().expect("in time");
    assert!(matches!(done.result, Err(Error::Lost(Loss::CommandTimeout))), "{:?}", done.result);
    assert_eq!(peer.state().aborts.len(), 1);
}

#[test]
fn a_descriptor_wakes_a_sleeping_owner() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let peer = RdmaPeer::new();
    let mut options = peer.options();
    options.spin_us = 0;
    let controller = Controller::connect(&options).unwrap();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    for round in 0..200 {
        let read = BlockRange::new(0, 1).encode(nvm::READ, Nsid(1));
        queue.submit(read, Data::ToHost(vec![0; BLOCK]), round).unwrap();
        loop {
            if let Some(done) = queue.poll().unwrap() {
                assert_eq!(done.user, round);
                break;
            }
            let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
            let ready = poll(&mut [PollFd::new(&queue, PollFlags::IN)], Some(&limit)).unwrap();
            assert_eq!(ready, 1, "the notification is missing");
        }
        queue.submit(read, Data::ToHost(vec![0; BLOCK]), round).unwrap();
        assert!(queue.wait(Some(Instant::now() + LONG)).unwrap().is_some());
    }
}

#[test]
fn threads_share_queues_and_discovery_works() {
    let peer = RdmaPeer::new();
    let controller = Controller::connect(&peer.options()).unwrap();
    let queues: Queues = Queues::new(&controller).unwrap();
    let drive = queues.namespace(Nsid(1)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let drive = drive.clone();
            scope.spawn(move || {
                for round in 0..50 {
                    let data = pattern(thread * 100 + round, 8 * BLOCK);
                    let lba = (thread * 500 + round * 8) as u64;
                    drive.write(lba, data.clone(), false).unwrap();
                    assert!(drive.read(lba, vec![0; 8 * BLOCK]).unwrap() == data);
                }
            });
        }
    });
    peer.state().kind = ebof_nvme::identify::ControllerType::Discovery;
    let mut options = peer.options();
    options.nqn = ebof_nvme::Nqn::discovery();
    assert_eq!(discover(&options).unwrap().generation, 9);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one life of a host")]
fn a_stepped_host_does_the_same_in_any_order_of_events() {
    for seed in 0..30 {
        let network = ebof_verbs::simulated::Network::stepped(seed);
        let address = std::net::SocketAddr::from(([192, 0, 2, 1], 4420));
        let shared = Shared::new();
        let mut server =
            Server::new(&network, address, std::sync::Arc::clone(&shared), Default::default(), Target::default());
        let mut options = options(address);
        options.clock = ebof_clock::Clock::simulated(seed);
        options.transport = ebof_initiator::Transport::QueuePairs(network.clone().into());
        let mut turn = || {
            let moved = network.step();
            server.turn() || moved
        };
        let mut connecting = stepped::connect(&options);
        let (controller, mut admin_queue) = loop {
            if let Some(done) = connecting.step() {
                break done.unwrap();
            }
            turn();
        };
        let mut opening = stepped::queue_pair::<Buffer>(&controller);
        let mut queue = loop {
            if let Some(done) = opening.step() {
                break done.unwrap();
            }
            admin_queue.step();
            turn();
        };
        for opcode in [nvm::WRITE, nvm::READ] {
            for user in 0..16 {
                // In the capsule, and not.
                let blocks = if user % 2 == 0 { 8 } else { 16 };
                let mut buffer = Buffer::zeroed(blocks * BLOCK);
                let sqe = BlockRange::new(user * 16, blocks as u32).encode(opcode, Nsid(1));
                let data = if opcode == nvm::WRITE {
                    buffer.as_mut_slice().copy_from_slice(&pattern(user as usize, blocks * BLOCK));
                    Data::FromHost(buffer)
                } else {
                    Data::ToHost(buffer)
                };
                queue.submit(sqe, data, user).unwrap();
            }
            for _ in 0..16 {
                let done = loop {
                    if let Some(done) = queue.poll().unwrap() {
                        break done;
                    }
                    turn();
                };
                assert!(done.result.unwrap().status().is_success(), "seed {seed}");
                let buffer = done.data.into_buffer().unwrap();
                assert!(buffer.as_slice() == pattern(done.user as usize, buffer.capacity()), "seed {seed}");
            }
        }
        // A loss with commands outstanding: everything comes back, and the queue again.
        let read = BlockRange::new(0, 16).encode(nvm::READ, Nsid(1));
        queue.submit(read, Data::ToHost(Buffer::zeroed(16 * BLOCK)), 1).unwrap();
        queue.flush().unwrap();
        network.connections().iter().for_each(|connection| connection.sever());
        let done = loop {
            if let Some(done) = queue.poll().unwrap() {
                break done;
            }
            turn();
        };
        assert!(done.data.into_buffer().is_some());
        let mut again = false;
        for _ in 0..100_000 {
            if queue.poll().is_ok() && controller.state() == ebof_initiator::State::Live {
                again = true;
                break;
            }
            admin_queue.step();
            if !turn()
                && let Some(due) = admin_queue.due()
            {
                options.clock.advance_to(due);
            }
        }
        assert!(again, "seed {seed}: it does not come back");
    }
}
