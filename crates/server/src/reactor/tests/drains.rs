//! Queues that end while their writes are at a device, and responses to their host in the meantime.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ebof_backend::{Device, Geometry, Io, Operation, Remote, Request, Submitted};
use ebof_fabrics::registry::SILENT_MS;
use ebof_nvme::connect::Property;
use ebof_nvme::copy::{Copy, CopyFormat, CopySource};
use ebof_nvme::feature::{Fid, HostBehaviorSupport};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::property::{Cc, Csts, offset};
use ebof_nvme::{Cqe, Nsid, Sgl, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use super::Rig;
use super::config::one_subsystem;
use super::hosts::{Host, Load, capsule};
use crate::drives::device::DeviceTable;
use crate::drives::drain::DrainToken;
use crate::shared::mailbox::Message;

/// A device that keeps reads and writes until it is opened.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) below: Arc<dyn Device>,
    pub(super) state: Arc<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) is_shut: AtomicBool,
    /// It has no room for anything.
    is_full: AtomicBool,
    kept: Mutex<Vec<Kept>>,
}

/// A request with its two threads.
type Kept = (Remote, Arc<dyn Device>, Request);

impl Device for Gate {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        if self.state.is_full.load(Ordering::Relaxed) {
            return Submitted::Busy(request);
        }
        let is_kept = matches!(request.operation, Operation::Read { .. }) || request.operation.action().modifies();
        if !(is_kept && self.state.is_shut.load(Ordering::Relaxed)) {
            return self.below.submit(io, request);
        }
        let Some(remote) = io.remote() else { return Submitted::Busy(request) };
        self.state.kept.lock().unwrap().push((remote, Arc::clone(&self.below), request));
        Submitted::Pending
    }

    fn describe(&self) -> String {
        "a gate".to_owned()
    }
}

impl State {
    fn kept(&self) -> usize {
        self.kept.lock().unwrap().len()
    }

    /// In how many pieces of shared memory the data of each request are; `None`: in a buffer.
    pub(super) fn pieces(&self) -> Vec<Option<usize>> {
        let kept = self.kept.lock().unwrap();
        let pieces = kept.iter().map(|(_, _, request)| match &request.operation {
            Operation::Read { data, .. } | Operation::Write { data, .. } => data.as_shared().map(<[_]>::len),
            _ => None,
        });
        pieces.collect()
    }

    pub(super) fn open(&self) {
        self.is_shut.store(false, Ordering::Relaxed);
        let mut io = Io::new(16).unwrap();
        for (remote, below, request) in self.kept.lock().unwrap().drain(..) {
            let Submitted::Done(completion) = below.submit(&mut io, request) else { panic!("memory is quick") };
            remote.deliver(completion);
        }
    }
}

/// A reactor, its devices, which are shut together, and a host.
fn shut() -> (Rig, Arc<State>, Host, Host) {
    let state = Arc::new(State::default());
    let of_device = Arc::clone(&state);
    let config = one_subsystem(["mem:64Mi"; 2]);
    let mut rig = Rig::with_devices(&config, move |below| Arc::new(Gate { below, state: Arc::clone(&of_device) }));
    let (admin, queue) = Host::connect(&mut rig, Load::writes(4096, 1));
    state.is_shut.store(true, Ordering::Relaxed);
    (rig, state, admin, queue)
}

/// The same, and a write of the host at the device.
fn rig() -> (Rig, Arc<State>, Host, Host) {
    let (mut rig, state, admin, mut queue) = shut();
    queue.go_on();
    turns(&mut rig);
    assert_eq!(state.kept(), 1);
    (rig, state, admin, queue)
}

fn turns(rig: &mut Rig) {
    for _ in 0..20 {
        rig.turn(100);
    }
}

fn status_of(pdu: &[u8]) -> bool {
    Cqe::read_from_bytes(&pdu[8..24]).unwrap().status().is_success()
}

// @test data.old-association
#[test]
fn the_next_associations_io_queues_wait_for_writes_of_the_last() {
    let (mut rig, device, admin, queue) = rig();
    drop((admin, queue));
    let (_admin, controller) = Host::admin(&mut rig, Load::writes(4096, 1));
    let mut io = Host::asking(&mut rig, Load::writes(4096, 1), controller);
    turns(&mut rig);
    assert!(io.answer().is_none(), "what it wrote before may still land");
    device.open();
    turns(&mut rig);
    assert!(status_of(&io.answer().expect("an answer")));
}

// @test data.old-association
#[test]
fn a_connection_whose_end_nobody_has_read_counts_as_ended() {
    let (mut rig, device, admin, queue) = rig();
    let (_new, controller) = Host::admin(&mut rig, Load::writes(4096, 1));
    let mut io = Host::asking(&mut rig, Load::writes(4096, 1), controller);
    // All of this has arrived when the reactor runs: it may process the Connect first.
    drop((admin, queue));
    turns(&mut rig);
    assert!(io.answer().is_none());
    device.open();
    turns(&mut rig);
    assert!(status_of(&io.answer().expect("an answer")));
}

// @test data.reset-and-shutdown
#[test]
fn a_reset_during_a_shutdown_keeps_rdy_until_the_old_writes_have_ended() {
    let (mut rig, device, mut admin, _queue) = rig();
    let set = |cc: Cc, cid| capsule(Property::set(offset::CC, cc.0), cid, Sgl::None, &[]);
    admin.put(&set(Cc::ENABLE.with_shutdown(1), 3));
    turns(&mut rig);
    admin.put(&set(Cc(0), 4));
    turns(&mut rig);
    assert!(admin.answer().is_none(), "neither is done");
    let csts = |admin: &mut Host, rig: &mut Rig| {
        let answer = admin.exchange(rig, &capsule(Property::get(offset::CSTS, 4), 5, Sgl::None, &[]));
        Cqe::read_from_bytes(&answer[8..24]).unwrap().result()
    };
    assert_eq!(csts(&mut admin, &mut rig) & u64::from(Csts::READY), 1);
    device.open();
    turns(&mut rig);
    for _ in 0..2 {
        assert!(status_of(&admin.answer().expect("both are done")));
    }
    assert_eq!(csts(&mut admin, &mut rig), 0);
}

/// The network has lost the end of the old connection.
#[test]
fn what_a_silent_association_has_at_a_device_is_over_before_a_new_one_begins() {
    let (mut rig, device, _admin, mut queue) = rig();
    rig.turn(1000 * SILENT_MS);
    let (_new, controller) = Host::admin(&mut rig, Load::writes(4096, 1));
    let mut io = Host::asking(&mut rig, Load::writes(4096, 1), controller);
    turns(&mut rig);
    assert!(io.answer().is_none(), "what it wrote before may still land");
    device.open();
    // Later writes are not waited for.
    device.is_shut.store(true, Ordering::Relaxed);
    turns(&mut rig);
    queue.go_on();
    turns(&mut rig);
    assert!(status_of(&io.answer().expect("an answer")));
    assert_eq!(device.kept(), 1, "the old one goes on");
}

#[test]
fn a_pair_of_a_silent_association_is_over_before_a_new_one_begins() {
    let (mut rig, device, _admin, mut queue) = shut();
    for (opcode, fuse) in [(nvm::COMPARE, 1), (nvm::WRITE, 2)] {
        let mut half = BlockRange::new(0, 1).encode(opcode, Nsid(1));
        half.flags |= fuse;
        queue.put(&capsule(half, fuse.into(), Sgl::InCapsule { offset: 0, length: 512 }, &[0; 512]));
    }
    turns(&mut rig);
    assert_eq!(device.kept(), 1, "the first half reads");
    rig.turn(1000 * SILENT_MS);
    let (_new, controller) = Host::admin(&mut rig, Load::writes(4096, 1));
    let mut io = Host::asking(&mut rig, Load::writes(4096, 1), controller);
    turns(&mut rig);
    assert!(io.answer().is_none(), "the second half has still to write");
    device.open();
    turns(&mut rig);
    assert!(status_of(&io.answer().expect("an answer")));
}

/// A Copy of 1 MiB to namespace 1, from there or from namespace 2: eight pieces.
fn copy(queue: &mut Host, from: Nsid) {
    let mut ranges = Vec::new();
    CopySource { nsid: from, ..CopySource::new(8192, 2048) }.encode(CopyFormat::Format2, &mut ranges);
    let command = Copy { ranges: 1, format: CopyFormat::Format2.encode(), ..Copy::default() }.encode(Nsid(1));
    queue.put(&capsule(command, 7, Sgl::InCapsule { offset: 0, length: 32 }, &ranges));
}

/// Has the reactor tell when nothing of the queue reaches a namespace any more.
fn drain(rig: &Rig, queue: &Host, nsid: u32) -> Arc<AtomicBool> {
    let handle = rig.reactor.connection_at(queue.index()).unwrap().handle;
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let token = DrainToken::new(move || over.store(true, Ordering::Relaxed));
    rig.reactor.mailbox.post(Message::Drain { handle, nsid: Nsid(nsid), token });
    is_over
}

fn last_status(queue: &mut Host) -> Option<Status> {
    let pdu = queue.answer()?;
    Some(Cqe::read_from_bytes(&pdu[8..24]).unwrap().status())
}

#[test]
fn a_copy_ends_with_the_piece_at_the_device_when_one_of_its_namespaces_is_lost() {
    // What is lost; the copy reads or writes a piece; whether it ends.
    for (nsid, is_writing, ends) in
        [(1, false, true), (1, true, true), (2, false, true), (2, true, true), (3, true, false)]
    {
        let (mut rig, device, mut admin, mut queue) = shut();
        let behavior = HostBehaviorSupport { cdfe: (1 << 2).into(), ..HostBehaviorSupport::default() };
        let set = Sqe::new(admin::SET_FEATURES).with_cdw(10, Fid::HOST_BEHAVIOR_SUPPORT.0.into());
        admin.call(&mut rig, &capsule(set, 3, Sgl::InCapsule { offset: 0, length: 512 }, behavior.as_bytes()));
        copy(&mut queue, Nsid(2));
        turns(&mut rig);
        let step = |rig: &mut Rig| {
            device.open();
            device.is_shut.store(true, Ordering::Relaxed);
            turns(rig);
        };
        if is_writing {
            step(&mut rig);
        }
        assert_eq!(device.kept(), 1, "a piece is at the device");
        let is_over = drain(&rig, &queue, nsid);
        turns(&mut rig);
        assert_eq!(is_over.load(Ordering::Relaxed), !ends, "namespace {nsid}: the piece may still land");
        step(&mut rig);
        let (left, over) = (device.kept(), is_over.load(Ordering::Relaxed));
        assert_eq!((left, over), (usize::from(!ends), true), "namespace {nsid}, writing: {is_writing}");
        let is_refused = last_status(&mut queue).map(|status| status.is(Status::INVALID_NAMESPACE));
        assert_eq!(is_refused, ends.then_some(true), "namespace {nsid}, writing: {is_writing}");
    }
}

#[test]
fn what_a_device_had_no_room_for_is_cancelled_with_the_namespace_that_was_lost() {
    let (mut rig, device, _admin, mut queue) = shut();
    device.is_full.store(true, Ordering::Relaxed);
    for (nsid, cid) in [(1, 5), (2, 6)] {
        let write = BlockRange::new(0, 1).encode(nvm::WRITE, Nsid(nsid));
        queue.put(&capsule(write, cid, Sgl::InCapsule { offset: 0, length: 512 }, &[1; 512]));
    }
    turns(&mut rig);
    let handle = rig.reactor.connection_at(queue.index()).unwrap().handle;
    let is_over = drain(&rig, &queue, 1);
    turns(&mut rig);
    assert!(!is_over.load(Ordering::Relaxed) && queue.answer().is_none(), "it is not cancelled yet");
    rig.reactor.mailbox.post(Message::Cancel { handle, nsid: Nsid(1) });
    turns(&mut rig);
    assert!(is_over.load(Ordering::Relaxed));
    assert!(last_status(&mut queue).unwrap().is(Status::ABORT_REQUESTED));
    assert!(queue.answer().is_none(), "the other namespace is still there");
    device.is_full.store(false, Ordering::Relaxed);
    device.is_shut.store(false, Ordering::Relaxed);
    turns(&mut rig);
    assert!(last_status(&mut queue).unwrap().is_success());
}

/// A reload takes the namespace off while the host is asked for its data.
#[test]
fn a_write_whose_namespace_goes_before_its_data_come_gives_its_buffer_back() {
    let mut rig = Rig::new();
    let (_admin, mut queue) = Host::connect(&mut rig, Load::writes_by_r2t(4096, 1));
    queue.go_on();
    turns(&mut rig);
    assert!(queue.has_input(), "it is asked for its data");
    assert_eq!(rig.reactor.connections.pool.outstanding_bytes(), 4096);
    rig.reactor.mailbox.post(Message::Devices(Arc::new(DeviceTable::new([]))));
    queue.load.depth = 0;
    for _ in 0..2 {
        queue.go_on();
        turns(&mut rig);
    }
    assert!(queue.last.is(Status::INVALID_NAMESPACE) && queue.outstanding == 0, "{}", queue.last);
    assert_eq!(rig.reactor.connections.pool.outstanding_bytes(), 0);
    let connection = rig.reactor.connection_at(queue.index()).unwrap();
    assert_eq!(connection.commands.execution.buffers.used_bytes(), 0);
}

/// Each half takes the other one with it, and both are among the commands that are ended.
#[test]
fn halves_of_pairs_that_lose_their_namespace_are_answered_once() {
    let (mut rig, device, _admin, mut queue) = shut();
    for (opcode, fuse, cid) in [(nvm::COMPARE, 1, 1), (nvm::WRITE, 2, 2), (nvm::COMPARE, 1, 3), (nvm::WRITE, 2, 4)] {
        let mut half = BlockRange::new(0, 1).encode(opcode, Nsid(1));
        half.flags |= fuse;
        queue.put(&capsule(half, cid, Sgl::InCapsule { offset: 0, length: 512 }, &[0; 512]));
    }
    turns(&mut rig);
    assert_eq!(device.kept(), 1, "the first pair reads, and the second one waits for it");
    let is_over = drain(&rig, &queue, 1);
    turns(&mut rig);
    device.open();
    turns(&mut rig);
    let answers: Vec<Status> = std::iter::from_fn(|| last_status(&mut queue)).collect();
    assert!(answers.len() == 4 && !answers.iter().any(|status| status.is_success()), "{answers:?}");
    assert!(is_over.load(Ordering::Relaxed));
    assert_eq!(rig.reactor.connections.pool.outstanding_bytes(), 0);
}
