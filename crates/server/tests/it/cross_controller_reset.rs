//! A host that has lost a path has the controller behind it reset through another one: what it had
//! at a device has ended before it is told that this succeeded.

use std::sync::Arc;
use std::time::Duration;

use ebof_clock::Clock;
use ebof_initiator::{AdminData, Controller, Options};
use ebof_loopback::Capsule;
use ebof_nvme::command::{ControllerInstance, is_reset_at_once};
use ebof_nvme::connect::Property;
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::feature::{AsyncEventConfig, Fid, SetFeature};
use ebof_nvme::identify::IdentifyController;
use ebof_nvme::log::{
    CrossControllerResetState, GetLogPage, Lid, cross_controller_reset_lsp, read_cross_controller_reset_log,
};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{Nqn, Nsid, Sgl, Sqe, Status};
use ebof_server::{Settings, SteppedTarget, Target};
use zerocopy::FromBytes;

use crate::config::{NQN, one_subsystem};
use crate::raw::Raw;
use crate::stepped::{Host, Shelf, environment, exchange, settle, start, tcp_queues, transfer};
use crate::turns::Held;
use crate::waiting::until;

/// A target whose disk can be held, and its clock.
struct Rig {
    target: SteppedTarget,
    clock: Clock,
    disk: Arc<Held>,
}

impl Rig {
    fn new(seed: u64) -> Self {
        let shelf = Arc::new(Shelf::default());
        let disk = Held::new();
        shelf.put("disk", Arc::clone(&disk) as _);
        let environment = environment(seed, &shelf);
        let clock = environment.clock.clone();
        Self { target: start(one_subsystem(["disk:16M"]), environment), clock, disk }
    }

    /// The Admin Queue of an enabled controller, which instance that is, and its identifier.
    fn controller(&mut self) -> (Host, ControllerInstance) {
        let (mut admin, _) = Host::connect(&mut self.target, &self.clock, 0, 0xffff);
        self.call(&mut admin, Property::set(offset::CC, Cc::ENABLE.0));
        let data = self.data(&mut admin, Sqe::new(admin::IDENTIFY).with_cdw(10, 1));
        let identify = IdentifyController::read_from_bytes(&data).unwrap();
        assert!(identify.ccrl > 0);
        let instance = identify.instance().expect("it is told");
        (admin, instance)
    }

    fn io_queue(&mut self, instance: ControllerInstance) -> Host {
        Host::connect(&mut self.target, &self.clock, 1, instance.id.0).0
    }

    fn call(&mut self, host: &mut Host, sqe: Sqe) -> ebof_nvme::Cqe {
        host.call(&mut self.target, &self.clock, sqe, 0, None).cqe
    }

    fn data(&mut self, host: &mut Host, sqe: Sqe) -> Vec<u8> {
        host.call(&mut self.target, &self.clock, sqe, 4096, None).data.to_vec()
    }

    fn settle(&mut self) {
        settle(&mut self.target, &self.clock);
    }

    /// The state of the only entry of the log.
    fn state(&mut self, host: &mut Host, lsp: u8) -> Option<CrossControllerResetState> {
        let log = GetLogPage { lsp, ..GetLogPage::new(Lid::CROSS_CONTROLLER_RESET, 4096) };
        let data = self.data(host, log.encode(Nsid::NONE));
        let entries = read_cross_controller_reset_log(&data).unwrap();
        assert!(entries.len() <= 1);
        entries.first().map(|entry| entry.state())
    }

    /// Switches the event on, and waits for it.
    fn listen(&mut self, host: &mut Host) {
        let set = SetFeature { fid: Fid::ASYNC_EVENT_CONFIG, save: false }.encode();
        let bits = AsyncEventConfig::CROSS_CONTROLLER_RESET.0;
        self.call(host, Sqe::new(admin::SET_FEATURES).with_cdw(10, set).with_cdw(11, bits));
        let mut request = Sqe::new(admin::ASYNC_EVENT_REQUEST);
        request.cid = 77.into();
        host.0.submit(Capsule { sqe: request, data: None }).unwrap();
        self.settle();
    }
}

fn is_closed(host: &mut Host) -> bool {
    host.0.poll().is_err()
}

// @test data.cross-controller-reset
#[test]
fn a_reset_succeeds_when_the_device_has_given_everything_back() {
    for (seed, opcode) in [(40, nvm::WRITE), (41, nvm::READ)] {
        let mut rig = Rig::new(seed);
        let (mut lost, impacted) = rig.controller();
        let mut queue = rig.io_queue(impacted);
        let (mut other, own) = rig.controller();
        assert_ne!((impacted.id, impacted.random), (own.id, own.random));
        rig.disk.hold();
        let mut sqe = transfer(opcode, 0, 8);
        sqe.cid = 5.into();
        sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: 4096 });
        let data = (opcode == nvm::WRITE).then(|| Arc::from([1; 4096].as_slice()));
        queue.0.submit(Capsule { sqe, data }).unwrap();
        rig.settle();
        assert_eq!(rig.disk.waiting(), 1, "it is at the device");
        rig.listen(&mut other);
        let accepted = rig.call(&mut other, impacted.reset_command());
        assert!(!is_reset_at_once(&accepted));
        // However long that takes.
        for _ in 0..20 {
            rig.clock.advance(Duration::from_secs(3));
            rig.settle();
            assert_eq!(rig.state(&mut other, 0), Some(CrossControllerResetState::InProgress));
        }
        assert!(is_closed(&mut lost) && is_closed(&mut queue), "its connections end at once");
        rig.disk.release();
        rig.settle();
        let event = other.0.poll().unwrap().expect("an event").cqe;
        assert_eq!(event.result(), u64::from(AsyncEvent::CROSS_CONTROLLER_RESET_COMPLETED.encode()));
        let remove = cross_controller_reset_lsp::REMOVE_COMPLETED;
        assert_eq!(rig.state(&mut other, remove), Some(CrossControllerResetState::Successful));
        assert_eq!(rig.state(&mut other, remove), None);
        assert!(is_reset_at_once(&rig.call(&mut other, impacted.reset_command())), "it has gone");
        let (_next, instance) = rig.controller();
        assert_ne!((instance.id, instance.uniquifier), (impacted.id, impacted.uniquifier));
        assert!(![impacted.random, own.random].contains(&instance.random));
        rig.target.close();
    }
}

/// The host neither closes its end nor reads: nothing of that is waited for.
#[test]
fn a_host_that_cannot_be_reached_over_tcp_delays_no_reset() {
    let mut rig = Rig::new(42);
    let (mut silent, _queue) = tcp_queues(&mut rig.target, &rig.clock);
    let mut identify = Sqe::new(admin::IDENTIFY).with_cdw(10, 1);
    identify.dptr = SglDescriptor::encode(Sgl::Transport { length: 4096 });
    let got = exchange(&mut rig.target, &rig.clock, &mut silent, &Raw::capsule(identify, 3, &[]));
    let data = IdentifyController::read_from_bytes(&got[24..24 + 4096]).unwrap();
    let impacted = data.instance().unwrap();
    let (mut other, _) = rig.controller();
    assert!(!is_reset_at_once(&rig.call(&mut other, impacted.reset_command())));
    rig.settle();
    assert_eq!(rig.state(&mut other, 0), Some(CrossControllerResetState::Successful));
}

/// The random numbers come from the target's environment.
#[test]
fn the_same_seed_gives_the_same_instances_and_another_one_others() {
    let instances = |seed| {
        let mut rig = Rig::new(seed);
        let (_admin, instance) = rig.controller();
        let (_other, next) = rig.controller();
        assert_ne!(instance.random, next.random);
        (instance, next)
    };
    assert_eq!(instances(7), instances(7));
    assert_ne!(instances(7).0.random, instances(8).0.random);
}

// @test data.command-quiesce-time
#[test]
fn after_cqt_nothing_overtakes_what_a_device_that_hangs_has_of_a_lost_controller() {
    let shelf = Arc::new(Shelf::default());
    let disks = [Held::new(), Held::new()];
    for (path, disk) in ["hangs", "works"].into_iter().zip(&disks) {
        shelf.put(path, Arc::clone(disk) as _);
    }
    let environment = environment(50, &shelf);
    let clock = environment.clock.clone();
    let target = start(one_subsystem(["hangs:16M", "works:16M"]), environment);
    let mut rig = Rig { target, clock, disk: Arc::clone(&disks[0]) };
    let (mut lost, impacted) = rig.controller();
    let mut queue = rig.io_queue(impacted);
    let (mut other, own) = rig.controller();
    let mut path = rig.io_queue(own);
    let cqt = Duration::from_millis(cqt_ms(&mut rig, &mut other));
    rig.disk.hold();
    let write = |host: &mut Host, rig: &mut Rig, nsid, byte: u8| {
        let mut sqe = transfer(nvm::WRITE, 0, 8).with_nsid(Nsid(nsid));
        sqe.cid = 5.into();
        sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: 4096 });
        host.0.submit(Capsule { sqe, data: Some(Arc::from([byte; 4096].as_slice())) }).unwrap();
        rig.settle();
        host.0.poll().unwrap().map(|completion| completion.cqe.status())
    };
    assert_eq!(write(&mut queue, &mut rig, 1, 1), None, "the old one is at the device");
    // The host goes silent on one path, and uses the other one: KATO is 60 s.
    while !is_closed(&mut lost) {
        rig.clock.advance(Duration::from_secs(1));
        rig.settle();
        assert!(write(&mut path, &mut rig, 2, 2).is_some_and(|status| status.is_success()));
        rig.call(&mut other, Sqe::new(admin::KEEP_ALIVE));
    }
    // A target looks at its deadlines when they are due.
    let end = rig.clock.now() + cqt;
    while rig.clock.now() < end {
        rig.clock.advance(Duration::from_millis(50));
        rig.settle();
    }
    for _ in 0..3 {
        let status = write(&mut path, &mut rig, 1, 3).expect("it does not wait");
        assert!(status.is(Status::ANA_TRANSITION) && !status.is_dnr(), "{status}");
        assert_eq!(rig.disk.waiting(), 1, "nothing of it is at the device");
        assert!(write(&mut path, &mut rig, 2, 2).is_some_and(|status| status.is_success()), "another device");
        rig.clock.advance(Duration::from_secs(9));
        rig.call(&mut other, Sqe::new(admin::KEEP_ALIVE));
    }
    rig.disk.release();
    rig.settle();
    assert!(write(&mut path, &mut rig, 1, 3).is_some_and(|status| status.is_success()));
}

fn cqt_ms(rig: &mut Rig, host: &mut Host) -> u64 {
    let data = rig.data(host, Sqe::new(admin::IDENTIFY).with_cdw(10, 1));
    IdentifyController::read_from_bytes(&data).unwrap().cqt.get().into()
}

/// Over sockets and between threads: hosts come and go while others have them reset.
#[test]
fn every_reset_of_many_at_once_is_told() {
    const PATHS: usize = 4;
    let settings = Settings { threads: Some(2), pin: false, ..Settings::default() };
    let target = Target::start(one_subsystem(["mem:16Mi"]), settings).unwrap();
    let address = target.addresses()[0].1;
    let identify = |host: &Controller| {
        let mut data = vec![0; 4096];
        let command = Sqe::new(admin::IDENTIFY).with_cdw(10, 1);
        assert!(host.admin(command, AdminData::ToHost(&mut data), None).unwrap().status().is_success());
        IdentifyController::read_from_bytes(&data).unwrap().instance().unwrap()
    };
    for _ in 0..10 {
        let mut lost: Vec<_> = (0..PATHS).map(|_| Raw::admin_and_controller(address).0).collect();
        let instances: Vec<_> = lost.iter_mut().map(raw_instance).collect();
        let mut by = Raw::admin_and_controller(address).0;
        for (cid, instance) in (10..).zip(&instances) {
            by.send(instance.reset_command(), cid, &[]);
            assert!(by.completion().status().is_success());
        }
        // Its end was not asked for by the host: it reads it.
        for raw in &mut lost {
            let mut rest = Vec::new();
            let _ = std::io::Read::read_to_end(&mut raw.0, &mut rest);
        }
        until("all are reset", || {
            let data = raw_data(&mut by, GetLogPage::new(Lid::CROSS_CONTROLLER_RESET, 4096).encode(Nsid::NONE));
            let entries = read_cross_controller_reset_log(&data).unwrap();
            assert_eq!(entries.len(), PATHS);
            entries.iter().all(|entry| entry.state() == CrossControllerResetState::Successful)
        });
        // Another host's controllers stay.
        let options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
        let other = Controller::connect(&options).unwrap();
        by.send(identify(&other).reset_command(), 50, &[]);
        assert!(by.completion().status().is(Status::OPERATION_DENIED));
        assert!(other.admin(Sqe::new(admin::KEEP_ALIVE), AdminData::None, None).unwrap().status().is_success());
    }
}

fn raw_data(raw: &mut Raw, mut sqe: Sqe) -> Vec<u8> {
    sqe.dptr = SglDescriptor::encode(Sgl::Transport { length: 4096 });
    raw.send(sqe, 40, &[]);
    let pdu = raw.pdu();
    assert_eq!((pdu[0], pdu.len()), (7, 24 + 4096), "data");
    // C2HData with SUCCESS is the completion as well.
    if pdu[1] & 0x08 == 0 {
        assert!(raw.completion().status().is_success());
    }
    pdu[24..].to_vec()
}

fn raw_instance(raw: &mut Raw) -> ControllerInstance {
    let data = raw_data(raw, Sqe::new(admin::IDENTIFY).with_cdw(10, 1));
    IdentifyController::read_from_bytes(&data).unwrap().instance().unwrap()
}
