//! Hosts that share a namespace and reserve it.

use ebof_nvme::event::AsyncEvent;
use ebof_nvme::feature::Fid;
use ebof_nvme::identify::ControllerList;
use ebof_nvme::io::BlockRange;
use ebof_nvme::log::{Lid, ReservationEvent, ReservationNotification};
use ebof_nvme::namespace::{AttachmentSelect, NewNamespace};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::reservation::{
    Acquire, AcquireAction, AcquireKeys, PersistenceChange, Register, RegisterAction, RegisterKeys, Release,
    ReleaseAction, ReleaseKey, Report, ReservationType, read_report,
};
use ebof_nvme::{ControllerId, Nsid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use crate::support::{ALICE, BOB, DRIVE, Done, MANAGED, World, host_id, with_data};

const NSID: Nsid = Nsid(1);

/// A namespace that Alice and Bob are attached to, each with an I/O queue.
struct Shared {
    world: World,
    alice: u64,
    bob: u64,
    bob_admin: u64,
}

impl Shared {
    fn new() -> Self {
        let mut world = World::managed();
        // Another controller of hers, which reports do not name.
        world.controller(DRIVE, ALICE);
        let (alice_admin, alice) = world.controller(MANAGED, ALICE);
        let (bob_admin, bob) = world.controller(MANAGED, BOB);
        let mut wanted = NewNamespace::new(64);
        wanted.nmic = 1;
        let create = with_data(Sqe::new(admin::NAMESPACE_MANAGEMENT), 4096);
        assert_eq!(world.run_with(alice_admin, create, wanted.as_bytes()).result(), 1);
        let list = ControllerList::starting_at(ControllerId(0), [alice, bob]);
        let attach = with_data(AttachmentSelect::Attach.encode(NSID), 4096);
        assert!(world.run_with(alice_admin, attach, list.as_bytes()).status().is_success());
        let alice = world.io_queue(MANAGED, ALICE, alice, 1);
        let bob = world.io_queue(MANAGED, BOB, bob, 1);
        // Bob knows about the new namespace.
        let changed = Sqe::new(admin::GET_LOG_PAGE).with_cdw(10, u32::from(Lid::CHANGED_NAMESPACES.0) | 1023 << 16);
        assert_eq!(world.run(bob_admin, with_data(changed, 4096)).data[..4], [1, 0, 0, 0]);
        let states = Sqe::new(admin::GET_LOG_PAGE).with_cdw(10, u32::from(Lid::ANA.0) | 1023 << 16);
        assert!(world.run(bob_admin, with_data(states, 4096)).status().is_success());
        Self { world, alice, bob, bob_admin }
    }

    fn register(&mut self, at: u64, current: u64, new: u64, action: RegisterAction) -> Status {
        let register = Register { action, ignore_existing_key: false, persistence: PersistenceChange::None };
        let keys = RegisterKeys { crkey: current.into(), nrkey: new.into() };
        self.world.run_with(at, with_data(register.encode(NSID), 16), keys.as_bytes()).status()
    }

    fn acquire(&mut self, at: u64, key: u64, preempt: u64, action: AcquireAction, kind: ReservationType) -> Status {
        let acquire = Acquire { action, ignore_existing_key: false, rtype: kind.encode() };
        let keys = AcquireKeys { crkey: key.into(), prkey: preempt.into() };
        self.world.run_with(at, with_data(acquire.encode(NSID), 16), keys.as_bytes()).status()
    }

    fn transfer(&mut self, at: u64, opcode: u8) -> Status {
        self.world.run(at, with_data(BlockRange::new(0, 1).encode(opcode, NSID), 512)).status()
    }

    fn report(&mut self, at: u64, bytes: u32) -> Done {
        let report = Report { bytes: bytes.into(), extended: true };
        self.world.run(at, with_data(report.encode(NSID), bytes))
    }

    fn notice(&mut self) -> ReservationNotification {
        let dwords = 64 / 4 - 1;
        let get = Sqe::new(admin::GET_LOG_PAGE).with_cdw(10, u32::from(Lid::RESERVATION_NOTIFICATION.0) | dwords << 16);
        let data = self.world.run(self.bob_admin, with_data(get, 64)).data;
        ReservationNotification::read_from_bytes(&data).unwrap()
    }
}

const CONFLICT: Status = Status(Status::RESERVATION_CONFLICT.dnr().0);

#[test]
fn a_reservation_prevents_writes_of_others_until_it_is_preempted() {
    let mut shared = Shared::new();
    let alice = shared.alice;
    let bob = shared.bob;
    assert!(shared.register(alice, 0, 0xa, RegisterAction::Register).is_success());
    assert!(shared.acquire(alice, 0xa, 0, AcquireAction::Acquire, ReservationType::WriteExclusive).is_success());
    assert!(shared.transfer(alice, nvm::WRITE).is_success());
    assert!(shared.transfer(bob, nvm::READ).is_success());
    assert!(shared.transfer(bob, nvm::WRITE).is(CONFLICT));
    let flush = Sqe::new(nvm::FLUSH).with_nsid(NSID);
    assert!(shared.world.run(bob, with_data(flush, 0)).status().is(CONFLICT));
    // Bob registers, and preempts Alice.
    assert!(shared.register(bob, 0, 0xb, RegisterAction::Register).is_success());
    assert!(shared.acquire(bob, 0xb, 0xa, AcquireAction::Preempt, ReservationType::ExclusiveAccess).is_success());
    assert!(shared.transfer(alice, nvm::READ).is(CONFLICT) && shared.transfer(alice, nvm::WRITE).is(CONFLICT));
    assert!(shared.transfer(bob, nvm::WRITE).is_success());
}

#[test]
fn a_report_has_registrants_with_their_current_controllers() {
    let mut shared = Shared::new();
    let alice = shared.alice;
    let bob = shared.bob;
    let bob_admin = shared.bob_admin;
    let empty = shared.report(alice, 4096);
    assert_eq!(read_report(&empty.data, true).unwrap().1, []);
    shared.register(alice, 0, 0xa, RegisterAction::Register);
    shared.register(bob, 0, 0xb, RegisterAction::Register);
    shared.acquire(bob, 0xb, 0, AcquireAction::Acquire, ReservationType::WriteExclusiveRegistrants);
    let registrants = |shared: &mut Shared| {
        let data = shared.report(shared.alice, 4096).data;
        let (_, mut registrants) = read_report(&data, true).unwrap();
        registrants.sort_by_key(|registrant| registrant.key);
        registrants.iter().map(|one| (one.key, one.holder, one.controller.0, one.host_id)).collect::<Vec<_>>()
    };
    let id_a = host_id(ALICE).0;
    let id_b = host_id(BOB).0;
    assert_eq!(registrants(&mut shared), [(0xa, false, 0, id_a), (0xb, true, 1, id_b)]);
    shared.world.close(bob);
    shared.world.close(bob_admin);
    assert_eq!(registrants(&mut shared), [(0xa, false, 0, id_a), (0xb, true, 0xffff, id_b)]);
    // A host with room for the header only gets only that.
    assert_eq!(shared.report(alice, 64).data.len(), 64);
    let short = Report { bytes: 4096, extended: false };
    let status = shared.world.run(alice, with_data(short.encode(NSID), 4096)).status();
    assert!(status.is(Status::HOST_ID_INCONSISTENT));
}

#[test]
fn hosts_are_notified_of_their_registrations_unless_masked() {
    let mut shared = Shared::new();
    let alice = shared.alice;
    let bob = shared.bob;
    let bob_admin = shared.bob_admin;
    assert_eq!(shared.world.run(bob_admin, Sqe::new(admin::ASYNC_EVENT_REQUEST)).step, "held");
    assert_eq!(shared.notice(), ReservationNotification::default());
    shared.register(alice, 0, 0xa, RegisterAction::Register);
    shared.register(bob, 0, 0xb, RegisterAction::Register);
    shared.acquire(alice, 0xa, 0xb, AcquireAction::Preempt, ReservationType::WriteExclusive);
    let event = u64::from(AsyncEvent::RESERVATION_LOG_AVAILABLE.encode());
    assert_eq!(
        shared.world.events.iter().map(|(at, cqe)| (*at, cqe.result())).collect::<Vec<_>>(),
        [(bob_admin, event)]
    );
    let notice = shared.notice();
    assert_eq!((notice.kind(), notice.nsid.get()), (Some(ReservationEvent::RegistrationPreempted), 1));
    assert_eq!(shared.notice(), ReservationNotification::default());
    // Masked: no notification is created.
    let mask = Sqe::new(admin::SET_FEATURES)
        .with_nsid(NSID)
        .with_cdw(10, u32::from(Fid::RESERVATION_NOTIFICATION_MASK.0))
        .with_cdw(11, ReservationEvent::RegistrationPreempted.mask_bit());
    assert!(shared.world.run(bob_admin, mask).status().is_success());
    let read = mask_of(Fid::RESERVATION_NOTIFICATION_MASK);
    assert_eq!(
        shared.world.run(bob_admin, read).result(),
        u64::from(ReservationEvent::RegistrationPreempted.mask_bit())
    );
    shared.register(bob, 0, 0xb, RegisterAction::Register);
    shared.acquire(alice, 0xa, 0xb, AcquireAction::Preempt, ReservationType::WriteExclusive);
    assert_eq!(shared.notice(), ReservationNotification::default());
}

#[test]
fn the_event_comes_again_while_there_are_notifications() {
    let mut shared = Shared::new();
    let (alice, bob, bob_admin) = (shared.alice, shared.bob, shared.bob_admin);
    for _ in 0..3 {
        assert_eq!(shared.world.run(bob_admin, Sqe::new(admin::ASYNC_EVENT_REQUEST)).step, "held");
    }
    shared.register(alice, 0, 0xa, RegisterAction::Register);
    for _ in 0..2 {
        shared.register(bob, 0, 0xb, RegisterAction::Register);
        shared.acquire(alice, 0xa, 0xb, AcquireAction::Preempt, ReservationType::WriteExclusive);
    }
    for (events, kind) in [
        (1, Some(ReservationEvent::RegistrationPreempted)),
        (2, Some(ReservationEvent::RegistrationPreempted)),
        (2, ReservationNotification::default().kind()),
    ] {
        assert_eq!((shared.world.events.len(), shared.notice().kind()), (events, kind));
    }
}

fn mask_of(fid: Fid) -> Sqe {
    Sqe::new(admin::GET_FEATURES).with_nsid(NSID).with_cdw(10, u32::from(fid.0))
}

#[test]
fn persistence_is_set_for_each_namespace() {
    let mut shared = Shared::new();
    let bob = shared.bob;
    let bob_admin = shared.bob_admin;
    let set = |value| {
        Sqe::new(admin::SET_FEATURES)
            .with_nsid(NSID)
            .with_cdw(10, u32::from(Fid::RESERVATION_PERSISTENCE.0))
            .with_cdw(11, value)
    };
    assert_eq!(shared.world.run(bob_admin, mask_of(Fid::RESERVATION_PERSISTENCE)).result(), 0);
    assert!(shared.world.run(bob_admin, set(1)).status().is_success());
    assert_eq!(shared.world.run(bob_admin, mask_of(Fid::RESERVATION_PERSISTENCE)).result(), 1);
    assert!(shared.world.run(bob_admin, set(2)).status().is(Status::INVALID_FIELD));
    shared.register(bob, 0, 0xb, RegisterAction::Register);
    shared.world.drive.apply(ebof_drive::Change::PoweredOn { at_ms: 1 });
    assert!(shared.world.drive.state().reservations[&1].key_of(host_id(BOB)).is_some());
}

#[test]
fn invalid_commands_are_refused() {
    let mut shared = Shared::new();
    let alice = shared.alice;
    let bob = shared.bob;
    let key = ReleaseKey { crkey: 1.into() };
    let release = Release { action: ReleaseAction::Release, ignore_existing_key: false, rtype: 1 };
    let cases = [
        (release.encode(NSID), 8, Status::RESERVATION_CONFLICT),
        (release.encode(NSID), 4, Status::DATA_SGL_LENGTH_INVALID),
        (release.encode(Nsid(9)), 8, Status::INVALID_NAMESPACE),
        (Sqe::new(nvm::RESERVATION_REGISTER).with_nsid(NSID).with_cdw(10, 3), 16, Status::INVALID_FIELD),
        (
            Sqe::new(nvm::RESERVATION_REPORT).with_nsid(NSID).with_cdw(10, u32::MAX).with_cdw(11, 1),
            4096,
            Status::INVALID_FIELD,
        ),
    ];
    assert!(shared.register(alice, 0, 0xa, RegisterAction::Register).is_success());
    assert!(shared.acquire(alice, 0xa, 0, AcquireAction::Acquire, ReservationType::WriteExclusive).is_success());
    for (sqe, bytes, status) in cases {
        let done = shared.world.run_with(bob, with_data(sqe, bytes), key.as_bytes());
        assert!(done.status().is(status), "{sqe:?}: {:?}", done.status());
    }
    // Plain namespaces do not support persistence.
    let (_, cntlid) = shared.world.controller(DRIVE, ALICE);
    let plain = shared.world.io_queue(DRIVE, ALICE, cntlid, 1);
    let register = Sqe::new(nvm::RESERVATION_REGISTER).with_nsid(NSID);
    assert!(shared.world.run(plain, with_data(register, 16)).status().is(Status::INVALID_OPCODE));
}
