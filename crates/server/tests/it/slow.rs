//! Slow commands are remembered, with where their time went.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ebof_initiator::{Controller, Data, Options, QueuePair};
use ebof_manage::Target as _;
use ebof_manage::slow::SlowCommand;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Nqn, Nsid, Sgl};
use ebof_server::{Settings, Target};
use zerocopy::IntoBytes as _;

use crate::config::{NQN, one_subsystem};
use crate::drive_rig::wait;
use crate::enclosure_rig::{Rig, assign, config, function};
use crate::gate::Gates;
use crate::raw::{Raw, connect, connect_data};

/// How long something is held up on purpose: much longer than a command takes by itself.
const HELD_UP: Duration = Duration::from_millis(120);

const SLOW: Duration = Duration::from_millis(60);

fn settings() -> Settings {
    Settings { threads: Some(1), pin: false, slow_threshold: SLOW, ..Settings::default() }
}

/// The only slow command.
fn slow(target: &Target) -> SlowCommand {
    let slow = target.slow();
    assert_eq!((slow.total, slow.commands.len()), (1, 1), "{slow:?}");
    slow.commands[0].clone()
}

/// What had most of the time of a command, and that the parts are all of it.
fn reason(command: &SlowCommand) -> &'static str {
    let parts = command.parts.named();
    assert_eq!(parts.iter().map(|(_, us)| us).sum::<u64>(), command.total_us, "{command:?}");
    assert!(u128::from(command.total_us) >= SLOW.as_micros(), "{command:?}");
    let (name, us) = parts.into_iter().max_by_key(|(_, us)| *us).unwrap();
    assert!(us * 10 >= command.total_us * 6, "{command:?}");
    name
}

#[test]
fn a_slow_device_is_told_from_the_rest() {
    let open = Arc::new(AtomicBool::new(true));
    let mut settings = settings();
    settings.environment.storage = Arc::new(Gates(Arc::clone(&open)));
    let target = Target::start(one_subsystem(["disk:16M"]), settings).unwrap();
    let address = target.addresses()[0].1;
    let controller =
        Controller::connect(&Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap())).unwrap();
    let namespace = controller.namespace(Nsid(1)).unwrap();
    namespace.write(0, &[7; 4096], false).unwrap();
    assert_eq!(target.slow().total, 0);
    open.store(false, Relaxed);
    let reader = std::thread::spawn(move || namespace.read(16, &mut [0; 8192]).unwrap());
    std::thread::sleep(HELD_UP);
    open.store(true, Relaxed);
    reader.join().unwrap();
    let command = slow(&target);
    assert_eq!(reason(&command), "device");
    assert_eq!((command.command.as_str(), command.lba, command.bytes), ("read", Some(16), 8192));
    assert_eq!((command.object.as_str(), command.nsid, command.id), (NQN, 1, 1));
    assert_eq!(command.host_nqn, controller.options().host_nqn.to_string());
    assert_eq!(target.slow().threshold_us, Some(60_000));
}

fn write(raw: &mut Raw, cid: u16, bytes: u32) {
    let mut sqe = BlockRange::new(0, bytes / 512).encode(nvm::WRITE, Nsid(1));
    sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: bytes });
    raw.send(sqe, cid, &[]);
}

fn io_queue(address: SocketAddr) -> (Raw, Raw) {
    let (admin, controller) = Raw::admin_and_controller(address);
    let mut raw = Raw::initialized(address);
    raw.send(connect(1, 32), 1, connect_data(controller).as_bytes());
    assert!(raw.completion().status().is_success());
    (admin, raw)
}

#[test]
fn a_host_that_sends_late_and_buffers_that_others_have_are_told_apart() {
    const BYTES: u32 = 1 << 20;
    let settings = Settings { connection_buffer_bytes: BYTES as usize + (BYTES as usize >> 1), ..settings() };
    let target = Target::start(one_subsystem(["mem:16Mi"]), settings).unwrap();
    let (_admin, mut raw) = io_queue(target.addresses()[0].1);
    write(&mut raw, 2, BYTES);
    write(&mut raw, 3, BYTES);
    let first = raw.pdu();
    assert_eq!(first[0], 9, "an R2T");
    std::thread::sleep(HELD_UP);
    raw.send_data(&first, &[1; BYTES as usize]);
    for _ in 0..2 {
        // The answer to the first, and what the second wants now.
        let pdu = raw.pdu();
        if pdu[0] == 9 {
            raw.send_data(&pdu, &[2; BYTES as usize]);
        }
    }
    let noted = wait("two slow commands", || Some(target.slow().commands).filter(|commands| commands.len() == 2));
    assert_eq!(noted.iter().map(reason).collect::<Vec<_>>(), ["network", "buffer"], "{noted:?}");
}

#[test]
fn a_share_of_a_drive_is_waited_for() {
    let rig = Rig::new();
    rig.namespace("d0/vf1");
    rig.made(&assign("d0/vf1", "a"));
    // The threshold changes while the target runs.
    let mut changed = config("mem:256Mi");
    changed.target.slow_threshold = SLOW;
    rig.target.apply(changed).unwrap();
    assert_eq!(rig.target.slow().threshold_us, Some(60_000));
    rig.made(r#"{"change": "limit", "function": "d0/vf1", "iops": 20}"#);
    let host = rig.connect("a", &function(1));
    let mut queue: QueuePair = host.queue_pair().unwrap();
    for user in 0..12 {
        let write = BlockRange::new(user * 8, 8).encode(nvm::WRITE, Nsid(1));
        queue.submit(write, Data::FromHost(vec![7; 4096]), user).unwrap();
    }
    for _ in 0..12 {
        let done = queue.wait(Some(Instant::now() + Duration::from_secs(20))).unwrap().expect("in time");
        assert!(done.result.unwrap().status().is_success());
    }
    let noted = rig.target.slow().commands;
    assert!(!noted.is_empty());
    assert!(noted.iter().all(|command| reason(command) == "queue" && command.object == "d0/vf1"), "{noted:?}");
}
