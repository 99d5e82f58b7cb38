//! The host library against the target, over NVMe/TCP and over loopback: the same scenarios, since
//! nothing above a link depends on it.

use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use ebof_initiator::{
    AdminData, ConnectErrorKind, Controller, Data, Error, Event, Options, QueuePair, Queues, State, discover, stepped,
};
use ebof_nvme::identify::Cns;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::{Nqn, Nsid, Sqe};
use ebof_server::{Settings, Target};

use crate::config::one_subsystem;

const LONG: Duration = Duration::from_secs(20);
const BLOCK: usize = 512;

/// A target, and options that reach it over each link.
fn target() -> (Target, [Options; 2]) {
    let config = one_subsystem(["mem:16M"]);
    let name = config.ports[0].name.clone();
    let nqn = config.subsystems[0].nqn.clone();
    let target = Target::start(config, Settings { threads: Some(2), pin: false, ..Settings::default() }).unwrap();
    let address = target.addresses()[0].1;
    let mut both = [
        Options::new(address.ip().to_string(), address.port(), nqn.clone()),
        Options::loopback(target.loopback(&name).unwrap(), nqn),
    ];
    for options in &mut both {
        options.nr_io_queues = 2;
        options.reconnect_delay_ms = 50;
    }
    (target, both)
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
    let (_target, both) = target();
    for options in both {
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
    let (_target, both) = target();
    for options in both {
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
    let (_target, both) = target();
    for options in both {
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
    let (_target, both) = target();
    for options in both {
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
    let (target, both) = target();
    let hosts = both.map(|mut options| {
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
    let (_target, both) = target();
    for options in both {
        let mut unknown = options.clone();
        unknown.nqn = Nqn::parse("nqn.2014-08.org.example:nobody").unwrap();
        assert_eq!(*Controller::connect(&unknown).unwrap_err().kind(), ConnectErrorKind::WrongNqn);
        let mut service = options.clone();
        service.nqn = Nqn::discovery();
        service.nr_io_queues = 0;
        let log = discover(&service).unwrap();
        assert!(log.entries.iter().any(|entry| Nqn::from_field(&entry.subnqn).is_ok_and(|nqn| nqn == options.nqn)));
        let controller = Controller::connect(&options).unwrap();
        let queues: Vec<QueuePair> = (0..2).map(|_| controller.queue_pair().unwrap()).collect();
        assert!(matches!(controller.queue_pair::<Vec<u8>>(), Err(Error::NoFreeQueue { granted: 2 })));
        drop(queues);
    }
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
    let (_target, [_, options]) = target();
    let (controller, mut admin_queue) = finish(&mut stepped::connect(&options), || {}).unwrap();
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
