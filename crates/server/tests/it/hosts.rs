//! The host library against the target, over NVMe/TCP, NVMe/RDMA (with and without keys of single
//! commands) and loopback: the same scenarios, since nothing above a link depends on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use ebof_backend::Buffer;
use ebof_initiator::{
    AdminData, ConnectErrorKind, Controller, Data, Error, Event, Loss, Options, QueuePair, Queues, State, Transport,
    discover, stepped,
};
use ebof_manage::api::Target as _;
use ebof_manage::config::{Namespace, Port};
use ebof_manage::{Config, Listen};
use ebof_nvme::identify::Cns;
use ebof_nvme::io::BlockRange;
use ebof_nvme::log::TrType;
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{Nqn, Nsid, Sqe};
use ebof_server::Target;
use ebof_verbs::simulated;

use crate::config::one_subsystem;
use crate::gate::Gates;
use crate::rdma_rig::settings;
use crate::reload_rig::{Over, a_number};
use crate::waiting::until;

const LONG: Duration = Duration::from_secs(20);
const BLOCK: usize = 512;

/// The configuration of a target that is reached over each link.
fn config(tcp: u16, drive: &str) -> Config {
    let mut config = one_subsystem([drive]);
    let subsystem = &mut config.subsystems[0];
    config.ports = vec![
        Port::new(1, Listen::new([127, 0, 0, 1].into(), tcp)),
        Port::new(2, Listen::rdma([127, 0, 0, 1].into(), 4420)),
        Port { srq_size: Some(64), busy_poll_us: Some(500), ..Port::new(3, Listen::rdma([127, 0, 0, 1].into(), 4421)) },
    ];
    subsystem.ports = config.ports.iter().map(|port| port.name.clone()).collect();
    config
}

/// Options that reach the target over NVMe/TCP, NVMe/RDMA with keys of regions and of commands and
/// with receives that queue pairs share and completions that are polled for longer, and loopback.
fn links(target: &Target, network: &simulated::Network) -> [Options; 5] {
    let nqn = Nqn::parse(crate::config::NQN).unwrap();
    let addresses = target.addresses();
    let over = |at: usize| {
        let address: std::net::SocketAddr = addresses[at].1;
        Options::new(address.ip().to_string(), address.port(), nqn.clone())
    };
    let [rdma, shared] = [1, 2].map(|at| {
        let mut options = over(at);
        options.transport = Transport::QueuePairs(network.clone().into());
        options
    });
    let mut windows = rdma.clone();
    windows.memory_windows = true;
    let loopback = Options::loopback(target.loopback(&addresses[0].0).unwrap(), nqn.clone());
    let mut links = [over(0), rdma, windows, shared, loopback];
    for options in &mut links {
        options.nr_io_queues = 2;
        options.reconnect_delay_ms = 50;
    }
    links
}

/// A target, and options that reach it over each link.
fn target() -> (Target, [Options; 5]) {
    let network = simulated::Network::new();
    let target = Target::start(config(0, "mem:16M"), settings(&network)).unwrap();
    let links = links(&target, &network);
    (target, links)
}

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| ((at * 7 + at / 256 + seed) % 251) as u8).collect()
}

fn await_event(events: &Receiver<Event>, wanted: &Event) {
    let deadline = Instant::now() + LONG;
    while events.recv_timeout(deadline - Instant::now()).expect("the event") != *wanted {}
}

#[test]
fn written_data_are_read_back_in_every_size() {
    let (_target, links) = target();
    for options in links {
        let controller = Controller::connect(&options).unwrap();
        let namespace = controller.namespace(Nsid(1)).unwrap();
        for (seed, blocks) in [1, 2, 9, 64, 257, 5000].into_iter().enumerate() {
            let data = pattern(seed, blocks * BLOCK);
            namespace.write(11, &data, seed % 2 == 0).unwrap();
            let mut back = vec![0; data.len()];
            namespace.read(11, &mut back).unwrap();
            assert!(back == data, "{} {blocks} blocks", options.address());
            assert!(namespace.compare(11, &data).unwrap());
            back[blocks * BLOCK - 1] ^= 1;
            assert!(!namespace.compare(11, &back).unwrap());
        }
        namespace.write_zeroes(12, 300, false).unwrap();
        namespace.deallocate(&[(400, 3), (500, 1)]).unwrap();
        namespace.flush().unwrap();
        let mut back = vec![1; BLOCK];
        for lba in [12, 311, 402, 500] {
            namespace.read(lba, &mut back).unwrap();
            assert!(back.iter().all(|&byte| byte == 0), "block {lba} was zeroed");
        }
        assert!(matches!(namespace.read(u64::MAX, &mut back), Err(Error::OutOfRange { .. })));
        drop(namespace);
        controller.disconnect();
    }
}

#[test]
fn every_command_of_a_full_queue_completes() {
    let (_target, links) = target();
    for options in links {
        let controller = Controller::connect(&options).unwrap();
        let mut queue: QueuePair = controller.queue_pair().unwrap();
        let commands = queue.capacity() as u64;
        for opcode in [nvm::WRITE, nvm::READ] {
            for user in 0..commands {
                let sqe = BlockRange::new(user * 8, 8).encode(opcode, Nsid(1));
                let data = match opcode {
                    nvm::WRITE => Data::FromHost(pattern(user as usize, 8 * BLOCK)),
                    _ => Data::ToHost(vec![0; 8 * BLOCK]),
                };
                queue.submit(sqe, data, user).unwrap();
            }
            let refused = queue.submit(Sqe::new(nvm::FLUSH).with_nsid(Nsid(1)), Data::None, 0).unwrap_err();
            assert!(matches!(refused.reason, Error::QueueFull));
            let mut seen = vec![false; commands as usize];
            for _ in 0..commands {
                let completion = queue.wait(Some(Instant::now() + LONG)).unwrap().expect("in time");
                assert!(completion.result.unwrap().status().is_success());
                let user = completion.user as usize;
                assert!(!std::mem::replace(&mut seen[user], true), "{user} was answered twice");
                assert!(completion.data.into_buffer().unwrap() == pattern(user, 8 * BLOCK));
            }
            assert_eq!(queue.in_flight(), 0);
        }
    }
}

#[test]
fn threads_and_futures_share_queues() {
    let (_target, links) = target();
    for options in links {
        let controller = Controller::connect(&options).unwrap();
        let queues: Queues = Queues::new(&controller).unwrap();
        let drive = queues.namespace(Nsid(1)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let drive = drive.clone();
                scope.spawn(move || {
                    for round in 0..50 {
                        let data = pattern(thread * 100 + round, 4096);
                        let lba = (thread * 1000 + round * 8) as u64;
                        drive.write(lba, data.clone(), false).unwrap();
                        assert!(drive.read(lba, vec![0; 4096]).unwrap() == data);
                    }
                });
            }
        });
    }
}

#[test]
fn a_host_reconnects_after_a_reset_with_its_queues() {
    let (_target, links) = target();
    for options in links {
        let controller = Controller::connect(&options).unwrap();
        let events = controller.events();
        let mut queue: QueuePair = controller.queue_pair().unwrap();
        let write = BlockRange::new(7, 1).encode(nvm::WRITE, Nsid(1));
        assert!(queue.execute(write, AdminData::FromHost(&[9; BLOCK])).unwrap().status().is_success());
        controller.reset();
        await_event(&events, &Event::Reconnected);
        let mut block = [0; BLOCK];
        let read = BlockRange::new(7, 1).encode(nvm::READ, Nsid(1));
        assert!(queue.execute(read, AdminData::ToHost(&mut block)).unwrap().status().is_success());
        assert_eq!(block, [9; BLOCK]);
    }
}

#[test]
fn the_end_of_a_target_is_reported() {
    let (target, links) = target();
    let hosts = links.map(|mut options| {
        options.ctrl_loss_tmo = Some(Duration::from_millis(300));
        let controller = Controller::connect(&options).unwrap();
        let queue: QueuePair = controller.queue_pair().unwrap();
        (controller, queue, options)
    });
    drop(target);
    for (controller, mut queue, options) in hosts {
        let deadline = Instant::now() + LONG;
        while controller.state() != State::Dead {
            assert!(Instant::now() < deadline, "{} is not given up", options.address());
            std::thread::yield_now();
        }
        let flush = Sqe::new(nvm::FLUSH).with_nsid(Nsid(1));
        assert!(matches!(queue.execute(flush, AdminData::None), Err(Error::NotConnected(_))));
        let error = Controller::connect(&options).unwrap_err();
        assert_eq!(*error.kind(), ConnectErrorKind::Refused);
    }
}

#[test]
fn a_forbidden_connection_is_refused_with_the_reason() {
    let (_target, links) = target();
    for options in links {
        let mut unknown = options.clone();
        unknown.nqn = Nqn::parse("nqn.2014-08.org.example:nobody").unwrap();
        assert_eq!(*Controller::connect(&unknown).unwrap_err().kind(), ConnectErrorKind::WrongNqn);
        let mut service = options.clone();
        service.nqn = Nqn::discovery();
        service.nr_io_queues = 0;
        let log = discover(&service).unwrap();
        let entries =
            log.entries.iter().filter(|entry| Nqn::from_field(&entry.subnqn).is_ok_and(|nqn| nqn == options.nqn));
        // Whatever it is asked over.
        let transports: Vec<TrType> = entries.map(|entry| entry.transport()).collect();
        assert_eq!(transports, [TrType::TCP, TrType::RDMA, TrType::RDMA], "{}", options.address());
        let controller = Controller::connect(&options).unwrap();
        let queues: Vec<QueuePair> = (0..2).map(|_| controller.queue_pair().unwrap()).collect();
        assert!(matches!(controller.queue_pair::<Vec<u8>>(), Err(Error::NoFreeQueue { granted: 2 })));
        drop(queues);
    }
}

#[test]
fn buffers_in_a_region_have_the_data_that_others_have() {
    let (_target, links) = target();
    for options in links {
        let controller = Controller::connect(&options).unwrap();
        let mut queue: QueuePair<Buffer> = controller.queue_pair().unwrap();
        let namespace = controller.namespace(Nsid(1)).unwrap();
        let blocks = 24;
        for (round, mut buffer) in Buffer::zeroed_together(blocks * BLOCK, 8).into_iter().enumerate() {
            buffer.as_mut_slice().copy_from_slice(&pattern(round, blocks * BLOCK));
            let range = BlockRange::new((round * blocks) as u64, blocks as u32);
            queue.submit(range.encode(nvm::WRITE, Nsid(1)), Data::FromHost(buffer), 0).unwrap();
            let done = queue.wait(Some(Instant::now() + LONG)).unwrap().expect("in time");
            assert!(done.result.unwrap().status().is_success());
            let mut back = vec![0; blocks * BLOCK];
            namespace.read((round * blocks) as u64, &mut back).unwrap();
            assert!(back == pattern(round, blocks * BLOCK), "{}", options.address());
            let mut buffer = done.data.into_buffer().unwrap();
            buffer.as_mut_slice().fill(0);
            queue.submit(range.encode(nvm::READ, Nsid(1)), Data::ToHost(buffer), 0).unwrap();
            let done = queue.wait(Some(Instant::now() + LONG)).unwrap().expect("in time");
            assert!(done.data.into_buffer().unwrap().as_slice() == back, "{}", options.address());
        }
    }
}

#[test]
fn changes_of_namespaces_are_reported() {
    let (target, links) = target();
    let hosts = links.map(|options| {
        let controller = Controller::connect(&options).unwrap();
        let events = controller.events();
        (controller, events)
    });
    let mut config = config(0, "mem:16M");
    let subsystem = &mut config.subsystems[0];
    subsystem.namespaces.push(Namespace::new(2, "mem:1Mi".parse().unwrap()));
    let both = config.clone();
    target.apply(config).unwrap();
    for (controller, events) in &hosts {
        await_event(events, &Event::NamespaceAdded(Nsid(2)));
        assert_eq!(controller.namespace(Nsid(2)).unwrap().blocks(), 2048);
    }
    let mut config = both;
    config.subsystems[0].namespaces.pop();
    target.apply(config).unwrap();
    for (controller, events) in hosts {
        await_event(&events, &Event::NamespaceRemoved(Nsid(2)));
        assert!(controller.namespace(Nsid(2)).is_err());
    }
}

#[test]
fn hosts_come_back_to_a_target_that_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let drive = format!("{}:16M", directory.path().join("disk.img").display());
    let network = simulated::Network::new();
    // Another process may take the port.
    let first = (0..100).find_map(|_| Target::start(config(a_number(), &drive), settings(&network)).ok());
    let first = first.expect("a hundred free ports were taken at once");
    let port = first.addresses()[0].1.port();
    let [tcp, rdma, windows, shared, _] = links(&first, &network);
    let mut hosts = [tcp, rdma, windows, shared].map(|mut options| {
        options.command_timeout_ms = 60_000;
        let controller = Controller::connect(&options).unwrap();
        let queue: QueuePair = controller.queue_pair().unwrap();
        let events = controller.events();
        (controller, queue, events)
    });
    let at = |host: usize| BlockRange::new(host as u64 * 64, 64);
    for (host, (_, queue, _)) in hosts.iter_mut().enumerate() {
        let write = at(host).encode(nvm::WRITE, Nsid(1));
        let data = pattern(host, 64 * BLOCK);
        assert!(queue.execute(write, AdminData::FromHost(&data)).unwrap().status().is_success());
        for user in 0..20 {
            let read = at(host).encode(nvm::READ, Nsid(1));
            queue.submit(read, Data::ToHost(vec![0; 64 * BLOCK]), user).unwrap();
        }
        queue.flush().unwrap();
    }
    drop(first);
    for (_, queue, events) in &mut hosts {
        // Those that were answered before the end have succeeded.
        for _ in 0..20 {
            let done = queue.wait(Some(Instant::now() + LONG)).unwrap().expect("in time");
            assert!(done.data.into_buffer().is_some());
        }
        let deadline = Instant::now() + LONG;
        while !matches!(events.recv_timeout(deadline - Instant::now()).expect("a loss"), Event::ConnectionLost(_)) {}
    }
    let _second = Target::start(config(port, &drive), settings(&network)).unwrap();
    for (host, (_, queue, events)) in hosts.iter_mut().enumerate() {
        await_event(events, &Event::Reconnected);
        let mut back = vec![0; 64 * BLOCK];
        let read = at(host).encode(nvm::READ, Nsid(1));
        assert!(queue.execute(read, AdminData::ToHost(&mut back)).unwrap().status().is_success());
        assert!(back == pattern(host, 64 * BLOCK));
    }
    drop(hosts);
    until("queue pairs are left", || network.queue_pairs() == 0);
}

#[test]
fn commands_that_a_device_keeps_time_out_and_do_nothing_after_the_reconnect() {
    let network = simulated::Network::new();
    // It is read once at the start.
    let open = Arc::new(AtomicBool::new(true));
    let mut settings = settings(&network);
    settings.environment.storage = Arc::new(Gates(Arc::clone(&open)));
    let target = Target::start(config(0, "disk:16M"), settings).unwrap();
    // A target ends when its devices have answered.
    let _last = Over(&open);
    for mut options in links(&target, &network) {
        options.command_timeout_ms = 200;
        let controller = Controller::connect(&options).unwrap();
        let events = controller.events();
        let mut queue: QueuePair = controller.queue_pair().unwrap();
        open.store(false, Relaxed);
        for user in 0..8 {
            // In capsules and not, where the link makes a difference.
            let blocks = if user % 2 == 0 { 8 } else { 64 };
            let opcode = if user % 4 < 2 { nvm::WRITE } else { nvm::READ };
            let buffer = vec![0xee; blocks as usize * BLOCK];
            let data = if opcode == nvm::WRITE { Data::FromHost(buffer) } else { Data::ToHost(buffer) };
            queue.submit(BlockRange::new(user * 64, blocks).encode(opcode, Nsid(1)), data, user).unwrap();
        }
        for _ in 0..8 {
            let done = queue.wait(Some(Instant::now() + LONG)).unwrap().expect("in time");
            let lost = matches!(done.result, Err(Error::Lost(Loss::CommandTimeout | Loss::Association)));
            assert!(lost, "{}: {:?}", options.address(), done.result);
            assert!(done.data.into_buffer().is_some());
        }
        open.store(true, Relaxed);
        await_event(&events, &Event::Reconnected);
        let data = pattern(5, 512 * BLOCK);
        let range = BlockRange::new(0, 512);
        let write = range.encode(nvm::WRITE, Nsid(1));
        assert!(queue.execute(write, AdminData::FromHost(&data)).unwrap().status().is_success());
        let mut back = vec![0; 512 * BLOCK];
        let read = range.encode(nvm::READ, Nsid(1));
        assert!(queue.execute(read, AdminData::ToHost(&mut back)).unwrap().status().is_success());
        assert!(back == data, "{}: an old write has landed", options.address());
    }
}

#[test]
fn a_host_whose_packets_are_lost_connects_again() {
    let network = simulated::Network::new();
    let target = Target::start(config(0, "mem:16M"), settings(&network)).unwrap();
    let [_, mut options, ..] = links(&target, &network);
    options.keep_alive_ms = 1000;
    let controller = Controller::connect(&options).unwrap();
    let events = controller.events();
    let mut queue: QueuePair = controller.queue_pair().unwrap();
    let flush = Sqe::new(nvm::FLUSH).with_nsid(Nsid(1));
    assert!(queue.execute(flush, AdminData::None).unwrap().status().is_success());
    network.connections().iter().for_each(simulated::Connection::lose);
    queue.submit(flush, Data::None, 1).unwrap();
    let done = queue.wait(Some(Instant::now() + LONG)).unwrap().expect("in time");
    assert!(matches!(done.result, Err(Error::Lost(_))), "{:?}", done.result);
    await_event(&events, &Event::Reconnected);
    assert!(queue.execute(flush, AdminData::None).unwrap().status().is_success());
    // The target has found out by itself, too.
    until("a controller is left", || target.status().controllers.len() == 1);
    until("queue pairs are left", || network.queue_pairs() == 4);
}

/// Steps until the end.
fn finish<T>(sequence: &mut stepped::Sequence<T>, mut meanwhile: impl FnMut()) -> T {
    let deadline = Instant::now() + LONG;
    loop {
        if let Some(result) = sequence.step() {
            return result;
        }
        assert!(Instant::now() < deadline, "it does not end");
        meanwhile();
        std::thread::yield_now();
    }
}

#[test]
fn a_host_without_threads_connects_and_reconnects() {
    let (_target, [_, rdma, windows, shared, loopback]) = target();
    for options in [rdma, windows, shared, loopback] {
        connects_and_reconnects(&options);
    }
}

fn connects_and_reconnects(options: &Options) {
    let (controller, mut admin_queue) = finish(&mut stepped::connect(options), || {}).unwrap();
    let mut opening = stepped::queue_pair::<Vec<u8>>(&controller);
    let mut queue = finish(&mut opening, || _ = admin_queue.step()).unwrap();
    let identify = Sqe::new(admin::IDENTIFY).with_cdw(10, u32::from(Cns::CONTROLLER.0));
    let mut command = stepped::admin(&controller, identify, Data::ToHost(vec![0; 4096]), None).unwrap();
    let (cqe, data) = loop {
        admin_queue.step();
        if let Some(answer) = command.poll() {
            break answer.unwrap();
        }
    };
    assert!(cqe.status().is_success() && data.into_buffer().unwrap().len() == 4096);
    let mut run = |queue: &mut stepped::QueuePair, opcode, data: Data| {
        let sqe = BlockRange::new(3, 1).encode(opcode, Nsid(1));
        queue.submit(sqe, data, 5).unwrap();
        loop {
            admin_queue.step();
            if let Some(completion) = queue.poll().unwrap() {
                assert!(completion.result.unwrap().status().is_success());
                break completion.data.into_buffer().unwrap();
            }
        }
    };
    run(&mut queue, nvm::WRITE, Data::FromHost(vec![6; BLOCK]));
    assert!(run(&mut queue, nvm::READ, Data::ToHost(vec![0; BLOCK])) == [6; BLOCK]);
    controller.reset();
    let deadline = Instant::now() + LONG;
    while queue.poll().is_err() || controller.state() != State::Live {
        assert!(Instant::now() < deadline, "it does not come back");
        admin_queue.step();
    }
    let sqe = BlockRange::new(3, 1).encode(nvm::READ, Nsid(1));
    queue.submit(sqe, Data::ToHost(vec![0; BLOCK]), 1).unwrap();
    let completion = loop {
        if let Some(completion) = queue.poll().unwrap() {
            break completion;
        }
        admin_queue.step();
    };
    assert!(completion.result.unwrap().status().is_success());
    drop(queue);
    controller.disconnect();
    finish(&mut admin_queue, || {});
}
