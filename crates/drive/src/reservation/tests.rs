//! Tests: access by type of reservation, and random commands of several hosts.

use super::*;
use alloc::vec;
use ebof_nvme::log::ReservationNotification;
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::reservation::{ReportedRegistrant, read_report};
use ebof_nvme::{ControllerId, Nsid};
use proptest::prelude::*;
use zerocopy::IntoBytes;

use ReservationEvent::{RegistrationPreempted, ReservationPreempted, ReservationReleased};
use ReservationType::{
    ExclusiveAccess, ExclusiveAccessAll, ExclusiveAccessRegistrants, WriteExclusive, WriteExclusiveAll,
    WriteExclusiveRegistrants,
};

const A: HostId = HostId([0xa; 16]);
const B: HostId = HostId([0xb; 16]);
const C: HostId = HostId([0xc; 16]);
const D: HostId = HostId([0xd; 16]);

fn register(key: u64) -> Command {
    registering(RegisterAction::Register, PersistenceChange::None, false, 0, key)
}

fn unregister(key: u64) -> Command {
    registering(RegisterAction::Unregister, PersistenceChange::None, false, key, 0)
}

fn replace(current: u64, new: u64) -> Command {
    registering(RegisterAction::Replace, PersistenceChange::None, false, current, new)
}

fn registering(
    action: RegisterAction,
    persistence: PersistenceChange,
    ignore: bool,
    current: u64,
    new: u64,
) -> Command {
    let register = Register { action, ignore_existing_key: ignore, persistence };
    Command::Register(register, RegisterKeys { crkey: current.into(), nrkey: new.into() })
}

fn acquire(key: u64, kind: ReservationType) -> Command {
    acquiring(AcquireAction::Acquire, kind.encode(), key, 0)
}

fn preempt(key: u64, victim: u64, kind: ReservationType) -> Command {
    acquiring(AcquireAction::Preempt, kind.encode(), key, victim)
}

fn acquiring(action: AcquireAction, rtype: u8, key: u64, victim: u64) -> Command {
    let acquire = Acquire { action, ignore_existing_key: false, rtype };
    Command::Acquire(acquire, AcquireKeys { crkey: key.into(), prkey: victim.into() })
}

fn release(key: u64, kind: ReservationType) -> Command {
    releasing(ReleaseAction::Release, kind.encode(), key)
}

fn clear(key: u64) -> Command {
    releasing(ReleaseAction::Clear, 0, key)
}

fn releasing(action: ReleaseAction, rtype: u8, key: u64) -> Command {
    Command::Release(Release { action, ignore_existing_key: false, rtype }, ReleaseKey { crkey: key.into() })
}

impl Reservations {
    /// Executes a command that succeeds, as the drive would: what is applied has been in the
    /// journal.
    #[track_caller]
    fn run(&mut self, host: HostId, command: Command) -> Done {
        let done = self.execute(host, &command).expect("the command succeeds");
        if let Some(change) = &done.change {
            let journaled = serde_json::to_vec(change).unwrap();
            self.apply(serde_json::from_slice(&journaled).unwrap());
        }
        done
    }

    #[track_caller]
    fn refused(&self, host: HostId, command: Command) -> Status {
        self.execute(host, &command).expect_err("the command is refused").status
    }
}

/// A, B and C registered with keys 1, 2 and 3; D not.
fn three() -> Reservations {
    let mut namespace = Reservations::default();
    for (host, key) in [(A, 1), (B, 2), (C, 3)] {
        assert_eq!(namespace.run(host, register(key)).notices, []);
    }
    namespace
}

/// The same, with a reservation of A.
fn held(kind: ReservationType) -> Reservations {
    let mut namespace = three();
    let done = namespace.run(A, acquire(1, kind));
    assert_eq!((done.notices, done.abort), (vec![], vec![]));
    namespace
}

/// Figure "Command Behavior in the Presence of a Reservation", with a column for the holder: C for
/// a conflict. The columns of a type: holder, registrant, stranger.
#[rustfmt::skip]
const BEHAVIOR: [(Access, [&str; 6]); 5] = [
    //                    WE     EA     WE-RO  EA-RO  WE-AR  EA-AR
    (Access::Read,       ["AAA", "ACC", "AAA", "AAC", "AAA", "AAC"]),
    (Access::Write,      ["ACC", "ACC", "AAC", "AAC", "AAC", "AAC"]),
    (Access::Acquire,    ["ACC", "ACC", "ACC", "ACC", "AAC", "AAC"]),
    (Access::Registrant, ["AAC", "AAC", "AAC", "AAC", "AAC", "AAC"]),
    (Access::Other,      ["AAA", "AAA", "AAA", "AAA", "AAA", "AAA"]),
];

#[test]
fn commands_are_allowed_as_in_the_figure_of_the_specification() {
    for (access, row) in BEHAVIOR {
        for (kind, cells) in ReservationType::ALL.into_iter().zip(row) {
            let namespace = held(kind);
            let view = namespace.view();
            for (host, cell) in [A, B, D].into_iter().zip(cells.chars()) {
                let conflict = cell == 'C';
                assert_eq!(namespace.conflicts(host, access), conflict, "{kind:?} {access:?} {host}");
                if matches!(access, Access::Read | Access::Write) {
                    assert_eq!(view.right(host).allows(access), !conflict, "{kind:?} {access:?} {host}");
                }
            }
            assert!(view.is_reserved());
        }
    }
}

#[test]
fn without_a_reservation_all_commands_are_allowed() {
    let namespace = three();
    for (access, _) in BEHAVIOR {
        assert!(!namespace.conflicts(B, access) && !namespace.conflicts(D, access));
    }
    assert_eq!(namespace.view(), ReservationView::default());
    assert_eq!(namespace.view().right(D), Right::Free);
}

#[test]
fn commands_belong_to_their_groups() {
    let reading = [nvm::READ, nvm::COMPARE, nvm::VERIFY];
    let writing =
        [nvm::WRITE, nvm::WRITE_ZEROES, nvm::WRITE_UNCORRECTABLE, nvm::DATASET_MANAGEMENT, nvm::FLUSH, nvm::COPY];
    assert!(reading.iter().all(|&opcode| Access::of_nvm(opcode, 0) == Access::Read));
    assert!(writing.iter().all(|&opcode| Access::of_nvm(opcode, 0) == Access::Write));
    let actions = [0, 1, 2].map(|racqa| Access::of_nvm(nvm::RESERVATION_ACQUIRE, racqa | 1 << 8));
    assert_eq!(actions, [Access::Acquire, Access::Registrant, Access::Registrant]);
    assert_eq!(Access::of_nvm(nvm::RESERVATION_RELEASE, 0), Access::Registrant);
    assert_eq!(Access::of_nvm(nvm::RESERVATION_REGISTER, 0), Access::Other);
    assert_eq!(Access::of_nvm(nvm::RESERVATION_REPORT, 0), Access::Other);
    let managing = [
        admin::FORMAT_NVM,
        admin::SANITIZE,
        admin::NAMESPACE_MANAGEMENT,
        admin::NAMESPACE_ATTACHMENT,
        admin::SECURITY_SEND,
        admin::CAPACITY_MANAGEMENT,
    ];
    assert!(managing.iter().all(|&opcode| Access::of_admin(opcode) == Access::Write));
    assert_eq!(Access::of_admin(admin::SECURITY_RECEIVE), Access::Read);
    assert_eq!(Access::of_admin(admin::IDENTIFY), Access::Other);
}

#[test]
fn a_key_is_registered_replaced_and_unregistered() {
    let mut namespace = Reservations::default();
    namespace.run(A, register(7));
    assert_eq!(namespace.key_of(A), Some(7));
    // The same key again, as through another controller of the host, is accepted; another is not.
    namespace.run(A, register(7));
    assert!(namespace.refused(A, register(8)).is(Status::RESERVATION_CONFLICT));
    assert!(namespace.refused(A, replace(8, 9)).is(Status::RESERVATION_CONFLICT));
    namespace.run(A, replace(7, 9));
    assert_eq!(namespace.key_of(A), Some(9));
    // Hosts may have the same key.
    namespace.run(B, register(9));
    assert!(namespace.refused(C, unregister(9)).is(Status::RESERVATION_CONFLICT));
    assert!(namespace.refused(B, unregister(7)).is(Status::RESERVATION_CONFLICT));
    namespace.run(B, unregister(9));
    assert_eq!((namespace.key_of(B), namespace.generation()), (None, 5));
    assert!(namespace.refused(B, unregister(9)).is(Status::RESERVATION_CONFLICT));
}

#[test]
fn ignoring_the_key_replaces_without_one_and_unregisters_with_any() {
    let mut namespace = Reservations::default();
    let ignoring = |action, new| registering(action, PersistenceChange::None, true, 0xbad, new);
    assert!(namespace.refused(A, replace(0, 5)).is(Status::RESERVATION_CONFLICT));
    namespace.run(A, ignoring(RegisterAction::Replace, 5));
    namespace.run(A, ignoring(RegisterAction::Replace, 6));
    assert_eq!(namespace.key_of(A), Some(6));
    // Register ignores the current key, and does not replace a key.
    assert!(namespace.refused(A, ignoring(RegisterAction::Register, 7)).is(Status::RESERVATION_CONFLICT));
    namespace.run(A, ignoring(RegisterAction::Unregister, 0));
    assert!(namespace.is_empty());
    assert!(namespace.refused(A, ignoring(RegisterAction::Unregister, 0)).is(Status::RESERVATION_CONFLICT));
}

#[test]
fn reserved_values_are_refused_with_their_location_and_change_nothing() {
    let namespace = held(WriteExclusive);
    let none = PersistenceChange::None;
    let ignoring_acquire = Command::Acquire(
        Acquire { action: AcquireAction::Acquire, ignore_existing_key: true, rtype: 1 },
        AcquireKeys { crkey: 1.into(), prkey: 0.into() },
    );
    let ignoring_release = Command::Release(
        Release { action: ReleaseAction::Release, ignore_existing_key: true, rtype: 1 },
        ReleaseKey { crkey: 1.into() },
    );
    let table = [
        (registering(RegisterAction::Reserved(3), none, false, 1, 1), 40),
        (registering(RegisterAction::Replace, PersistenceChange::Reserved, false, 1, 9), 43),
        (acquiring(AcquireAction::Reserved(7), 1, 1, 0), 40),
        (acquiring(AcquireAction::Acquire, 0, 1, 0), 41),
        (acquiring(AcquireAction::Acquire, 7, 1, 0), 41),
        (acquiring(AcquireAction::Preempt, 0xff, 1, 1), 41),
        // Here a reservation would be created.
        (acquiring(AcquireAction::Preempt, 0, 1, 1), 41),
        (ignoring_acquire, 40),
        (releasing(ReleaseAction::Reserved(2), 1, 1), 40),
        (ignoring_release, 40),
        (release(1, WriteExclusiveAll), 41),
        (releasing(ReleaseAction::Release, 0, 1), 41),
    ];
    for (command, byte) in table {
        let refusal = namespace.execute(A, &command).expect_err("a reserved value");
        assert!(refusal.status.is(Status::INVALID_FIELD) && refusal.status.is_dnr(), "{command:?}");
        assert_eq!(refusal.location.map(|at| at.byte), Some(byte), "{command:?}");
    }
}

#[test]
fn a_host_without_an_identifier_has_no_reservations() {
    let namespace = Reservations::default();
    assert!(namespace.refused(HostId::default(), register(1)).is(Status::HOST_ID_NOT_INITIALIZED));
}

#[test]
fn acquire_needs_the_registrants_key_and_no_other_holder() {
    let mut namespace = three();
    assert!(namespace.refused(D, acquire(4, WriteExclusive)).is(Status::RESERVATION_CONFLICT));
    assert!(namespace.refused(A, acquire(2, WriteExclusive)).is(Status::RESERVATION_CONFLICT));
    namespace.run(A, acquire(1, WriteExclusive));
    assert!(namespace.is_holder(A) && !namespace.is_holder(B));
    assert!(namespace.refused(B, acquire(2, WriteExclusive)).is(Status::RESERVATION_CONFLICT));
    assert!(namespace.refused(A, acquire(1, ExclusiveAccess)).is(Status::RESERVATION_CONFLICT));
    // A repetition by the holder has no visible effect.
    assert_eq!(namespace.run(A, acquire(1, WriteExclusive)), Done::default());
    // With the all-registrants types every registrant is a holder.
    let mut namespace = held(ExclusiveAccessAll);
    assert_eq!(namespace.run(B, acquire(2, ExclusiveAccessAll)), Done::default());
    assert!(namespace.refused(B, acquire(2, WriteExclusiveAll)).is(Status::RESERVATION_CONFLICT));
    assert!(namespace.is_holder(A) && namespace.is_holder(B) && !namespace.is_holder(D));
    // Acquire and Release do not change the generation.
    assert_eq!(namespace.generation(), 3);
}

#[test]
fn release_notifies_registrants_if_they_had_access() {
    for kind in ReservationType::ALL {
        let mut namespace = held(kind);
        assert!(namespace.refused(B, release(9, kind)).is(Status::RESERVATION_CONFLICT));
        if !kind.all_registrants() {
            // Release by another host succeeds without effect, even with the wrong type.
            assert_eq!(namespace.run(B, releasing(ReleaseAction::Release, 0, 2)), Done::default());
        }
        let told = namespace.run(A, release(1, kind)).notices;
        let expected = match kind {
            WriteExclusive | ExclusiveAccess => vec![],
            _ => vec![(B, ReservationReleased), (C, ReservationReleased)],
        };
        assert_eq!(told, expected, "{kind:?}");
        assert_eq!((namespace.kind(), namespace.generation()), (None, 3));
        assert_eq!(namespace.run(A, release(1, kind)), Done::default());
    }
}

#[test]
fn unregistering_the_holder_releases_and_notifies_for_registrants_only_types() {
    for kind in ReservationType::ALL {
        let mut namespace = held(kind);
        let told = namespace.run(A, unregister(1)).notices;
        let registrants_only = matches!(kind, WriteExclusiveRegistrants | ExclusiveAccessRegistrants);
        let expected = if registrants_only { vec![(B, ReservationReleased), (C, ReservationReleased)] } else { vec![] };
        assert_eq!(told, expected, "{kind:?}");
        // With the all-registrants types the others remain holders, until the last one unregisters.
        assert_eq!(namespace.kind(), kind.all_registrants().then_some(kind));
        assert_eq!(namespace.run(B, unregister(2)).notices, []);
        assert_eq!(namespace.is_holder(C), kind.all_registrants());
        assert_eq!(namespace.run(C, unregister(3)).notices, []);
        assert_eq!((namespace.kind(), namespace.is_empty()), (None, true));
    }
}

#[test]
fn preempting_the_holder_transfers_the_reservation() {
    let mut namespace = held(WriteExclusive);
    let done = namespace.run(B, preempt(2, 1, WriteExclusive));
    // The type is unchanged: only the preempted host is notified.
    assert_eq!((done.notices, done.abort), (vec![(A, RegistrationPreempted)], vec![]));
    assert!(namespace.is_holder(B) && namespace.key_of(A).is_none());
    assert_eq!(namespace.generation(), 4);

    let mut namespace = held(WriteExclusive);
    let done = namespace.run(B, acquiring(AcquireAction::PreemptAndAbort, ExclusiveAccess.encode(), 2, 1));
    assert_eq!(done.notices, [(A, RegistrationPreempted), (C, ReservationReleased)]);
    assert_eq!(done.abort, [A]);
    assert_eq!(namespace.kind(), Some(ExclusiveAccess));
}

#[test]
fn preempting_a_registrant_leaves_the_reservation() {
    let mut namespace = held(WriteExclusiveRegistrants);
    // No type is needed if no reservation is created.
    let done = namespace.run(C, acquiring(AcquireAction::PreemptAndAbort, 0, 3, 2));
    assert_eq!((done.notices, done.abort), (vec![(B, RegistrationPreempted)], vec![B]));
    assert!(namespace.is_holder(A) && namespace.key_of(B).is_none());
    // A key without registrants: executed, without effect on others.
    assert_eq!(namespace.run(C, preempt(3, 99, WriteExclusive)).notices, []);
    assert_eq!(namespace.generation(), 5);
    // Key 0 means all registrants only with the all-registrants types.
    assert!(namespace.refused(C, preempt(3, 0, WriteExclusive)).is(Status::INVALID_FIELD));
    assert!(namespace.refused(C, preempt(1, 1, WriteExclusive)).is(Status::RESERVATION_CONFLICT));
    assert!(namespace.refused(D, preempt(0, 1, WriteExclusive)).is(Status::RESERVATION_CONFLICT));
}

#[test]
fn preempting_without_a_reservation_unregisters_only() {
    let mut namespace = three();
    let done = namespace.run(A, preempt(1, 2, ExclusiveAccess));
    assert_eq!(done.notices, [(B, RegistrationPreempted)]);
    assert_eq!((namespace.kind(), namespace.key_of(A)), (None, Some(1)));
    // Even the host itself, which is not notified.
    assert_eq!(namespace.run(A, preempt(1, 1, ExclusiveAccess)).notices, []);
    assert_eq!((namespace.key_of(A), namespace.key_of(C)), (None, Some(3)));
}

#[test]
fn a_holder_can_preempt_itself_to_change_the_type() {
    let mut namespace = held(WriteExclusive);
    namespace.run(D, register(1));
    let done = namespace.run(A, preempt(1, 1, ExclusiveAccessRegistrants));
    // D had the same key.
    assert_eq!(done.notices, [(D, RegistrationPreempted), (B, ReservationReleased), (C, ReservationReleased)]);
    assert!(namespace.is_holder(A) && namespace.key_of(A) == Some(1));
    assert_eq!(namespace.kind(), Some(ExclusiveAccessRegistrants));
}

#[test]
fn preempting_all_registrants() {
    // Key 0: all others.
    let mut namespace = held(WriteExclusiveAll);
    let done = namespace.run(B, acquiring(AcquireAction::PreemptAndAbort, ExclusiveAccess.encode(), 2, 0));
    assert_eq!(done.notices, [(A, RegistrationPreempted), (C, RegistrationPreempted)]);
    assert_eq!(done.abort, [A, C]);
    assert_eq!((namespace.kind(), namespace.is_holder(B), namespace.key_of(A)), (Some(ExclusiveAccess), true, None));
    // A key: only its registrants, and the type is unchanged.
    let mut namespace = held(WriteExclusiveAll);
    assert!(namespace.refused(B, preempt(2, 99, ExclusiveAccess)).is(Status::RESERVATION_CONFLICT));
    assert_eq!(namespace.run(B, preempt(2, 1, ExclusiveAccess)).notices, [(A, RegistrationPreempted)]);
    assert_eq!((namespace.kind(), namespace.is_holder(C)), (Some(WriteExclusiveAll), true));
    // The last registrant by its own key: the reservation ends, too.
    namespace.run(B, preempt(2, 3, ExclusiveAccess));
    namespace.run(B, preempt(2, 2, ExclusiveAccess));
    assert_eq!((namespace.kind(), namespace.is_empty()), (None, true));
}

#[test]
fn clear_removes_everything_and_notifies_the_others() {
    for mut namespace in [held(ExclusiveAccess), held(WriteExclusiveAll), three()] {
        assert!(namespace.refused(B, clear(1)).is(Status::RESERVATION_CONFLICT));
        assert!(namespace.refused(D, clear(0)).is(Status::RESERVATION_CONFLICT));
        let done = namespace.run(B, clear(2));
        assert_eq!(done.notices, [(A, ReservationPreempted), (C, ReservationPreempted)]);
        assert_eq!((namespace.kind(), namespace.is_empty(), namespace.generation()), (None, true, 4));
    }
}

#[test]
fn persistence_through_power_loss_is_the_hosts_choice() {
    let mut namespace = held(WriteExclusive);
    assert!(namespace.after_power_loss().is_empty());
    namespace.run(A, registering(RegisterAction::Register, PersistenceChange::Set, false, 0, 1));
    assert!(namespace.is_persistent());
    assert_eq!(namespace.after_power_loss(), namespace);
    // A refused command changes nothing.
    assert!(
        namespace
            .refused(D, registering(RegisterAction::Unregister, PersistenceChange::Clear, false, 1, 0))
            .is(Status::RESERVATION_CONFLICT)
    );
    assert!(namespace.is_persistent());
    namespace.run(B, registering(RegisterAction::Replace, PersistenceChange::Clear, false, 2, 5));
    assert_eq!(namespace.after_power_loss().kind(), None);
    // Feature 83h.
    let change = namespace.set_persistent(true).unwrap();
    namespace.apply(change);
    assert!(namespace.is_persistent() && namespace.is_holder(A) && namespace.set_persistent(true).is_none());
}

#[test]
fn a_report_has_every_registrant_and_the_controller_of_its_host() {
    let mut namespace = held(WriteExclusiveRegistrants);
    namespace.run(A, registering(RegisterAction::Replace, PersistenceChange::Set, false, 1, 0x1122_3344_5566_7788));
    let controller_of = |host| (host == B).then_some(ControllerId(5));
    let data = namespace.report(true, controller_of).unwrap();
    let (status, registrants) = read_report(&data, true).unwrap();
    assert_eq!(data.len(), 64 * 4);
    assert_eq!((status.r#gen.get(), status.rtype, status.regstrnt.get(), status.ptpls), (4, 3, 3, 1));
    let entry = |host: HostId, controller, holder, key| ReportedRegistrant {
        controller: ControllerId(controller),
        holder,
        key,
        host_id: host.0,
    };
    let expected = [entry(A, 0xffff, true, 0x1122_3344_5566_7788), entry(B, 5, false, 2), entry(C, 0xffff, false, 3)];
    assert_eq!(registrants, expected);
    let refusal = namespace.report(false, controller_of).unwrap_err();
    assert!(refusal.status.is(Status::HOST_ID_INCONSISTENT));
    let (_, all) = read_report(&held(ExclusiveAccessAll).report(true, |_| None).unwrap(), true).unwrap();
    assert!(all.iter().all(|one| one.holder));
}

#[test]
fn registrants_are_limited_and_existing_ones_are_kept_beyond_the_limit() {
    let mut namespace = Reservations::default();
    let host = |n: usize| HostId(u128::try_from(n + 1).unwrap().to_be_bytes());
    for n in 0..REGISTRANTS_MAX {
        namespace.run(host(n), register(1));
    }
    let refusal = namespace.execute(host(REGISTRANTS_MAX), &register(1)).unwrap_err();
    assert!(refusal.status.is(Status::INSUFFICIENT_RESOURCES) && !refusal.status.is_dnr());
    namespace.run(host(0), replace(1, 2));
    // A single change is small for any number of registrants.
    let done = namespace.run(host(0), acquire(2, WriteExclusiveAll));
    assert!(serde_json::to_vec(&done.change).unwrap().len() < 200);
    assert_eq!(namespace.report(true, |_| None).unwrap().len(), 64 * (REGISTRANTS_MAX + 1));
    let done = namespace.run(host(1), preempt(1, 0, ExclusiveAccess));
    assert_eq!(done.notices.len(), REGISTRANTS_MAX - 1);
    assert_eq!(namespace.view().right(host(1)), Right::Full);
}

#[test]
fn notifications_are_queued_masked_and_counted_if_lost() {
    let mut log = NotificationLog::default();
    assert_eq!(log.page(), ReservationNotification::default());
    log.push(Nsid(1), RegistrationPreempted);
    log.push(Nsid(2), ReservationReleased);
    let page = log.page();
    assert_eq!((page.lpc.get(), page.rnlpt, page.nalp, page.nsid.get()), (1, 1, 1, 1));
    log.pop();
    assert_eq!((log.page().lpc.get(), log.page().rnlpt, log.page().nalp, log.page().nsid.get()), (2, 2, 0, 2));
    log.pop();
    assert!(log.is_empty() && log.page().as_bytes().iter().all(|&byte| byte == 0));
    for _ in 0..300 {
        log.push(Nsid(3), ReservationPreempted);
    }
    // The count continues from the last notification; of 300, 256 are kept.
    assert_eq!((log.len(), log.page().lpc.get(), log.page().nalp), (256, 3, 255));
    let mut last = 0;
    while !log.is_empty() {
        last = log.page().lpc.get();
        log.pop();
    }
    assert_eq!(last, 302);
    log.count = u64::MAX;
    log.push(Nsid(3), ReservationPreempted);
    assert_eq!(log.page().lpc.get(), 1);

    let mask = NotificationMask::decode(0b0100).unwrap();
    assert!(mask.hides(ReservationReleased) && !mask.hides(RegistrationPreempted) && !mask.hides(ReservationPreempted));
    assert_eq!([1, 16, 1 << 31].map(NotificationMask::decode), [None; 3]);
}

fn any_command() -> impl Strategy<Value = Command> {
    let key = 0_u64..4;
    let persistence = prop_oneof![
        4 => Just(PersistenceChange::None),
        1 => Just(PersistenceChange::Reserved),
        1 => Just(PersistenceChange::Clear),
        1 => Just(PersistenceChange::Set),
    ];
    let registers = (0_u8..4, persistence, proptest::bool::weighted(0.2), key.clone(), key.clone()).prop_map(
        |(action, persistence, ignore, current, new)| {
            let action = [RegisterAction::Register, RegisterAction::Unregister, RegisterAction::Replace]
                .get(usize::from(action))
                .copied()
                .unwrap_or(RegisterAction::Reserved(action));
            registering(action, persistence, ignore, current, new)
        },
    );
    let acquires = (0_u8..4, 0_u8..8, key.clone(), key.clone()).prop_map(|(action, rtype, current, victim)| {
        let action = [AcquireAction::Acquire, AcquireAction::Preempt, AcquireAction::PreemptAndAbort]
            .get(usize::from(action))
            .copied()
            .unwrap_or(AcquireAction::Reserved(action));
        acquiring(action, rtype, current, victim)
    });
    let releases = (0_u8..6, 0_u8..8, key).prop_map(|(action, rtype, key)| {
        let action = if action == 0 { ReleaseAction::Clear } else { ReleaseAction::Release };
        releasing(action, rtype, key)
    });
    prop_oneof![3 => registers, 3 => acquires, 2 => releases]
}

fn check(namespace: &Reservations, hosts: &[HostId]) -> Result<(), TestCaseError> {
    let holders = hosts.iter().filter(|&&host| namespace.is_holder(host)).count();
    let registered = hosts.iter().filter(|&&host| namespace.key_of(host).is_some()).count();
    match namespace.kind() {
        None => prop_assert_eq!(holders, 0),
        Some(kind) if kind.all_registrants() => {
            prop_assert_eq!(holders, registered);
            prop_assert!(registered > 0);
        }
        Some(_) => prop_assert_eq!(holders, 1),
    }
    let view = namespace.view();
    for &host in hosts {
        prop_assert!(!namespace.is_holder(host) || namespace.key_of(host).is_some());
        for access in [Access::Read, Access::Write] {
            prop_assert_eq!(view.right(host).allows(access), !namespace.conflicts(host, access));
        }
    }
    let data = namespace.report(true, |_| None).unwrap();
    let (status, registrants) = read_report(&data, true).unwrap();
    prop_assert_eq!(status.rtype, namespace.kind().map_or(0, ReservationType::encode));
    prop_assert_eq!(registrants.len(), registered);
    prop_assert_eq!(registrants.iter().filter(|one| one.holder).count(), holders);
    let kept: Reservations = serde_json::from_slice(&serde_json::to_vec(namespace).unwrap()).unwrap();
    prop_assert_eq!(&kept, namespace);
    Ok(())
}

proptest! {
    #[test]
    fn any_sequence_of_commands_keeps_the_invariants(
        commands in proptest::collection::vec((0_usize..5, any_command()), 1..60),
    ) {
        let hosts = [A, B, C, D, HostId([0xe; 16])];
        let mut namespace = Reservations::default();
        for (who, command) in commands {
            let before = namespace.clone();
            let host = hosts[who];
            let Ok(done) = namespace.execute(host, &command) else { continue };
            if let Some(change) = done.change.clone() {
                let journaled = serde_json::to_vec(&change).unwrap();
                namespace.apply(serde_json::from_slice(&journaled).unwrap());
            }
            check(&namespace, &hosts)?;
            let steps = match command {
                Command::Register(..) => 1,
                Command::Acquire(acquire, _) => u32::from(acquire.action != AcquireAction::Acquire),
                Command::Release(release, _) => u32::from(release.action == ReleaseAction::Clear),
            };
            prop_assert_eq!(namespace.generation(), before.generation() + steps);
            // A host is not notified of its own commands, and only registrants are notified.
            for (told, what) in &done.notices {
                prop_assert!(*told != host && before.key_of(*told).is_some());
                let gone = namespace.key_of(*told).is_none();
                prop_assert_eq!(gone, *what != ReservationReleased);
            }
            prop_assert!(done.abort.iter().all(|victim| namespace.key_of(*victim).is_none() && *victim != host));
            // A host that lost its registration to another one is notified.
            for &other in hosts.iter().filter(|&&other| other != host) {
                if before.key_of(other).is_some() && namespace.key_of(other).is_none() {
                    prop_assert!(done.notices.iter().any(|(told, _)| *told == other));
                }
            }
        }
    }
}
