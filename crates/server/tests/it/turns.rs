//! What a target does from turn to turn, as only one without threads shows it.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebof_backend::{Device, Geometry, Io, Memory, Remote, Request, Submitted};
use ebof_clock::Clock;
use ebof_loopback::{Capsule, CompletionMessage};
use ebof_manage::Config;
use ebof_manage::api::Target;
use ebof_nvme::connect::Property;
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Cqe, Sgl, Sqe, Status};
use ebof_server::{Environment, Settings, SteppedTarget};
use ebof_sockets::SimulatedStream;
use zerocopy::FromBytes;

use crate::config::one_subsystem;
use crate::raw::Raw;
use crate::stepped::{Host, Shelf, completion, environment, exchange, settle, start, tcp_queues, transfer};

const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const COMPARE: u8 = 0x05;

/// A disk that keeps its requests while it is told to.
#[derive(Debug)]
pub(crate) struct Held {
    memory: Memory,
    holds: AtomicBool,
    requests: Mutex<Vec<(Request, Remote)>>,
}

impl Held {
    pub(crate) fn new() -> Arc<Self> {
        let memory = Memory::new(16 << 20, 512, false);
        Arc::new(Self { memory, holds: AtomicBool::new(false), requests: Mutex::default() })
    }

    /// What is asked for from now on waits.
    pub(crate) fn hold(&self) {
        self.holds.store(true, Relaxed);
    }

    /// How many requests wait.
    pub(crate) fn waiting(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// What waits succeeds, and nothing waits any more.
    pub(crate) fn release(&self) {
        self.holds.store(false, Relaxed);
        for (request, remote) in self.requests.lock().unwrap().drain(..) {
            remote.deliver(request.complete(Ok(())));
        }
    }
}

impl Device for Held {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        if !self.holds.load(Relaxed) {
            return self.memory.submit(io, request);
        }
        let Some(remote) = io.remote() else { return Submitted::Busy(request) };
        self.requests.lock().unwrap().push((request, remote));
        Submitted::Pending
    }

    fn describe(&self) -> String {
        "a disk that is held".to_owned()
    }
}

fn start_one(config: Config, environment: Environment) -> SteppedTarget {
    let settings = Settings { threads: Some(1), environment, ..Settings::default() };
    SteppedTarget::start(config, settings).unwrap()
}

/// An enabled controller: its Admin Queue and its identifier.
fn controller(target: &mut SteppedTarget, clock: &Clock) -> (Host, u16) {
    let (mut admin, connected) = Host::connect(target, clock, 0, 0xffff);
    admin.call(target, clock, Property::set(offset::CC, Cc::ENABLE.0), 0, None);
    (admin, connected.dw0.get() as u16)
}

fn submit(host: &mut Host, mut sqe: Sqe, cid: u16, length: u32, data: Option<&[u8]>) {
    sqe.cid = cid.into();
    sqe.dptr = SglDescriptor::encode(Sgl::Transport { length });
    host.0.submit(Capsule { sqe, data: data.map(Arc::from) }).unwrap();
}

fn half(opcode: u8, fuse: u8) -> Sqe {
    let mut sqe = transfer(opcode, 0, 1);
    sqe.flags |= fuse;
    sqe
}

/// All completions that have come: identifiers and statuses.
fn arrived(host: &mut Host) -> Vec<(u16, Status)> {
    let next = || host.0.poll().unwrap().map(|CompletionMessage { cqe, .. }| (cqe.cid().0, cqe.status()));
    std::iter::from_fn(next).collect()
}

/// Both halves are answered, whichever of them fails.
#[test]
fn a_namespace_that_goes_while_a_pair_waits_for_its_lock_fails_both_halves() {
    let environment = environment(20, &Arc::new(Shelf::default()));
    let clock = environment.clock.clone();
    let mut target = start(one_subsystem(["disk:16M"]), environment);
    let (_admin, id) = controller(&mut target, &clock);
    let (mut queue, _) = Host::connect(&mut target, &clock, 1, id);
    submit(&mut queue, half(COMPARE, 1), 1, 512, Some(&[0; 512]));
    submit(&mut queue, half(WRITE, 2), 2, 512, Some(&[1; 512]));
    // The other reactor has not said yet that it has no older change of the block.
    target.step(1);
    let mut config = target.target().config();
    config.subsystems[0].namespaces.clear();
    target.target().apply(config).unwrap();
    settle(&mut target, &clock);
    let ends = arrived(&mut queue);
    let status = |cid| ends.iter().find(|(of, _)| *of == cid).map(|(_, status)| *status);
    assert!(status(1).is_some_and(|status| status.is(Status::INVALID_NAMESPACE)), "{ends:?}");
    assert!(status(2).is_some_and(|status| status.is(Status::ABORTED_FAILED_FUSED)), "{ends:?}");
}

#[test]
fn a_second_half_whose_capsule_has_too_little_data_fails_both_halves() {
    let environment = environment(21, &Arc::new(Shelf::default()));
    let clock = environment.clock.clone();
    let mut target = start(one_subsystem(["disk:16M"]), environment);
    let (_admin, mut queue) = tcp_queues(&mut target, &clock);
    let mut pdus = Raw::capsule(half(COMPARE, 1), 5, &[0; 512]);
    let mut second = Raw::capsule(half(WRITE, 2), 6, &[1; 512]);
    second.truncate(72 + 256);
    second[4..8].copy_from_slice(&(72_u32 + 256).to_le_bytes());
    pdus.extend(second);
    let got = exchange(&mut target, &clock, &mut queue, &pdus);
    let ends: Vec<Cqe> = got.chunks(24).map(|pdu| Cqe::read_from_bytes(&pdu[8..]).unwrap()).collect();
    let status = |cid| ends.iter().find(|cqe| cqe.cid().0 == cid).map(Cqe::status);
    assert!(status(6).is_some_and(|status| status.is(Status::DATA_SGL_LENGTH_INVALID)), "{ends:?}");
    assert!(status(5).is_some_and(|status| status.is(Status::ABORTED_FAILED_FUSED)), "{ends:?}");
}

/// Queues 1 to 3 of one controller; the last two have just sent something, so that each has a small
/// share of a turn.
fn crowd(target: &mut SteppedTarget, clock: &Clock, id: u16) -> Vec<Host> {
    let mut queues: Vec<Host> = (1..4).map(|queue| Host::connect(target, clock, queue, id).0).collect();
    queues[1..].iter_mut().for_each(|queue| submit(queue, transfer(READ, 0, 1), 1, 512, None));
    target.step(0);
    queues
}

/// Its share of the turn was used up when its host went, and the device keeps what it has.
#[test]
fn a_queue_in_memory_that_has_ended_asks_for_no_more_turns() {
    let shelf = Arc::new(Shelf::default());
    let disk = Held::new();
    shelf.put("held", Arc::clone(&disk) as Arc<dyn Device>);
    let environment = environment(22, &shelf);
    let clock = environment.clock.clone();
    let mut target = start_one(one_subsystem(["held:16M"]), environment);
    let (_admin, id) = controller(&mut target, &clock);
    disk.hold();
    let mut queues = crowd(&mut target, &clock, id);
    let mut gone = queues.remove(0);
    submit(&mut gone, transfer(READ, 0, 2048), 1, 1 << 20, None);
    target.step(0);
    drop(gone);
    assert!((0..1000).any(|_| !target.step(0)), "the reactor finds work in every turn");
    assert_eq!(target.target().status().connections, 4, "its request is still at the device");
    disk.release();
    settle(&mut target, &clock);
    assert_eq!(target.target().status().connections, 3);
}

/// What waited while the queue was stalled is no exception.
#[test]
fn a_queue_in_memory_begins_no_command_beyond_its_share_of_a_turn() {
    let environment = environment(23, &Arc::new(Shelf::default()));
    let clock = environment.clock.clone();
    let mut target = start_one(one_subsystem(["disk:16M"]), environment);
    let (_admin, id) = controller(&mut target, &clock);
    let mut queues = crowd(&mut target, &clock, id);
    // Each uses up the share of several turns.
    let mut read = |cid| submit(&mut queues[0], transfer(READ, 0, 2048), cid, 1 << 20, None);
    read(1);
    read(2);
    target.step(0);
    read(3);
    read(4);
    let mut done = 0;
    for _ in 0..100 {
        let ended = arrived(&mut queues[0]);
        assert!(ended.len() <= 1 && ended.iter().all(|(_, status)| status.is_success()), "{ended:?} in one turn");
        done += ended.len();
        target.step(0);
    }
    assert_eq!(done, 4);
}

#[test]
fn a_write_behind_the_end_of_the_connection_changes_nothing() {
    let shelf = Arc::new(Shelf::default());
    let disk: Arc<dyn Device> = Arc::new(Memory::new(16 << 20, 512, false));
    shelf.put("disk", Arc::clone(&disk));
    let environment = environment(24, &shelf);
    let clock = environment.clock.clone();
    let mut target = start(one_subsystem(["disk:16M"]), environment);
    let (_admin, mut queue) = tcp_queues(&mut target, &clock);
    let write = |byte| Raw::capsule(transfer(WRITE, 0, 1), 3, &[byte; 512]);
    let first_byte = || disk.resident().and_then(|bytes| Some(bytes.lend(0, 1, true)?.as_ref()[0]));
    completion(&exchange(&mut target, &clock, &mut queue, &write(1)));
    assert_eq!(first_byte(), Some(1));
    // The target has closed its end of this queue, and waits for the host's; the other reactor, and
    // with it the Admin Queue, has heard of nothing yet.
    target.shut_down(Duration::from_secs(1));
    while target.step(1) {}
    assert!(queue.readiness().closed);
    let late = write(2);
    assert_eq!(queue.send(&[IoSlice::new(&late)]).unwrap(), late.len());
    while target.step(1) {}
    assert_eq!(first_byte(), Some(1), "the write was carried out");
}
