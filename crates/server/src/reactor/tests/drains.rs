//! Queues that end while their writes are at a device, and responses to their host in the meantime.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ebof_backend::{Device, Geometry, Io, Operation, Remote, Request, Submitted};
use ebof_fabrics::registry::SILENT_MS;
use ebof_nvme::connect::Property;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::property::{Cc, Csts, offset};
use ebof_nvme::{Cqe, Nsid, Sgl};
use zerocopy::FromBytes;

use super::Rig;
use super::hosts::{Host, Load, capsule};

/// A device that keeps reads and writes until it is opened.
#[derive(Debug)]
struct Gate {
    below: Arc<dyn Device>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    is_shut: AtomicBool,
    kept: Mutex<Vec<Kept>>,
}

/// A request with its two threads.
type Kept = (Remote, Arc<dyn Device>, Request);

impl Device for Gate {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
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

    fn open(&self) {
        self.is_shut.store(false, Ordering::Relaxed);
        let mut io = Io::new(16).unwrap();
        for (remote, below, request) in self.kept.lock().unwrap().drain(..) {
            let Submitted::Done(completion) = below.submit(&mut io, request) else { panic!("memory is quick") };
            remote.deliver(completion);
        }
    }
}

/// A reactor, its device, which is shut, and a host.
fn shut() -> (Rig, Arc<State>, Host, Host) {
    let state = Arc::new(State::default());
    let of_device = Arc::clone(&state);
    let mut rig = Rig::with(None, move |below| Arc::new(Gate { below, state: Arc::clone(&of_device) }));
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
