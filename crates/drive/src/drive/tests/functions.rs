//! Statuses of Virtualization Management, and what holds after any sequence of requests.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;

use ebof_nvme::firmware::Commit;
use ebof_nvme::reservation::{
    Acquire, AcquireAction, AcquireKeys, PersistenceChange, Register, RegisterAction, RegisterKeys, ReservationType,
};
use ebof_nvme::virtualization::{ResourceType, VirtualizationAction, VirtualizationManagement};
use ebof_nvme::{ControllerId, Sqe, media};
use proptest::prelude::*;

use super::super::*;
use super::rig::{Bench, host};
use crate::change::unfinished::Unfinished;
use crate::function::{self, FunctionId, PortNames, Share};
use crate::namespace::NewNamespace;
use crate::namespace::placement::{Attachments, Placement};
use crate::reservation::{self, Reservations};

const FUNCTIONS: u16 = 4;
const TOTAL: u32 = 4 * 65;

/// A drive whose managers are hosts 0 and 1.
fn managed(exclusive: bool) -> Bench {
    let managers = Managers::Only([0, 1].map(|number| host(number).host.to_string()).into());
    let settings = Settings { functions: FUNCTIONS, exclusive, managers, ..Settings::default() };
    Bench::new(State::default(), settings, 3)
}

impl Bench {
    fn virt(&mut self, action: VirtualizationAction, cntlid: u16, resource: ResourceType, count: u16) -> Status {
        let command = VirtualizationManagement { cntlid: ControllerId(cntlid), resource, action, count };
        match self.ask(&host(0), &Request::Virtualize(command)) {
            Ok(_) => Status::SUCCESS,
            Err(status) => status,
        }
    }

    fn function(&self, id: u16) -> Function {
        self.drive.functions()[&id].clone()
    }

    /// Ends, and is opened with another number of functions.
    fn come_up(&mut self, functions: u16) {
        let state = State::restore(b"", &self.journal).unwrap();
        let settings = Settings { functions, ..self.drive.settings().clone() };
        self.drive = Drive::new(state, settings, self.drive.capacity());
        for change in self.drive.opened(&Origin::box_(), &DecisionInput::default()) {
            self.journal.push(change.to_bytes());
            self.drive.apply(change);
        }
    }
}

fn ports<N: Into<String>>(names: impl IntoIterator<Item = N>) -> PortNames {
    PortNames::new(names).unwrap()
}

use VirtualizationAction::{AllocateToPrimary, Assign, Offline, Online};

#[test]
fn statuses_are_those_of_the_specification() {
    let mut bench = managed(false);
    let queues = ResourceType::Queues;
    for (action, cntlid, resource, count, status) in [
        (Assign, 0, queues, 1, Status::INVALID_CONTROLLER_ID),
        (Assign, FUNCTIONS + 1, queues, 1, Status::INVALID_CONTROLLER_ID),
        (Assign, 128, queues, 1, Status::INVALID_CONTROLLER_ID),
        (Offline, 0, queues, 0, Status::INVALID_CONTROLLER_ID),
        (AllocateToPrimary, 1, queues, 1, Status::INVALID_CONTROLLER_ID),
        (AllocateToPrimary, 0, queues, 261, Status::INVALID_CONTROLLER_RESOURCES),
        (AllocateToPrimary, 0, ResourceType::Reserved(2), 1, Status::INVALID_RESOURCE_ID),
        (Assign, 1, ResourceType::Reserved(7), 1, Status::INVALID_RESOURCE_ID),
        (Assign, 1, queues, 130, Status::INVALID_CONTROLLER_RESOURCES),
        (Assign, 1, queues, 129, Status::SUCCESS),
        (Assign, 2, queues, 129, Status::SUCCESS),
        // Two are left.
        (Assign, 3, queues, 3, Status::INVALID_RESOURCE_ID),
        (AllocateToPrimary, 0, queues, 3, Status::INVALID_RESOURCE_ID),
        (AllocateToPrimary, 0, queues, 2, Status::SUCCESS),
        // To a manager its own controller is the primary one.
        (AllocateToPrimary, host(0).cntlid.0, queues, 2, Status::SUCCESS),
        (AllocateToPrimary, host(1).cntlid.0, queues, 2, Status::INVALID_CONTROLLER_ID),
        (Online, 1, queues, 0, Status::INVALID_SECONDARY_STATE),
        (Assign, 1, ResourceType::Interrupts, 1, Status::SUCCESS),
        (Online, 1, queues, 0, Status::SUCCESS),
        (Online, 1, queues, 0, Status::SUCCESS),
        (Assign, 1, queues, 4, Status::INVALID_SECONDARY_STATE),
        (VirtualizationAction::Reserved(3), 1, queues, 0, Status::INVALID_FIELD),
    ] {
        let answered = bench.virt(action, cntlid, resource, count);
        assert!(answered.is(status), "{action:?} {cntlid} {resource:?} {count}: {answered}");
    }
    // One queue is the Admin Queue: a controller needs another one.
    assert!(bench.virt(Offline, 1, queues, 0).is_success());
    assert!(bench.virt(Assign, 1, queues, 1).is_success());
    assert!(bench.virt(Assign, 1, ResourceType::Interrupts, 1).is_success());
    assert!(bench.virt(Online, 1, queues, 0).is(Status::INVALID_SECONDARY_STATE));
    // What is allocated to the primary is its own from its reset on.
    assert_eq!((bench.drive.state().primary.queues, bench.drive.state().primary.next_queues), (0, 2));
    bench.ask(&Origin::box_(), &Request::ResetPrimary).unwrap();
    assert_eq!(bench.drive.state().primary.queues, 2);
    assert_eq!(bench.function(2), Function::default());
}

#[test]
fn only_managers_and_the_box_change_functions() {
    let mut bench = managed(false);
    let through_function = Origin { function: Some(FunctionId(1)), ..host(0) };
    let command =
        VirtualizationManagement { cntlid: ControllerId(1), resource: ResourceType::Queues, action: Assign, count: 2 };
    let zeros = Sqe::new(0);
    let block_erase = media::Sanitize::decode(&Sqe::new(0).with_cdw(10, 2));
    for request in [
        Request::Virtualize(command),
        Request::GiveTo(FunctionId(1), PortNames::default()),
        Request::SetShare(FunctionId(1), Share::default()),
        Request::Map(Nsid(1), None),
        Request::ResetPrimary,
        Request::Create(NewNamespace { blocks: 8, capacity_blocks: 8, ..NewNamespace::default() }),
        Request::Delete(Nsid(1)),
        Request::Place(FunctionId(1), Placement::default()),
        Request::Shift(FunctionId(1), ports(["a"])),
        Request::AttachExactly(Nsid(1), Attachments::default()),
        Request::Attach(Nsid(1), vec![ControllerId(1)]),
        Request::Detach(Nsid(1), vec![ControllerId(1)]),
        Request::Format(Nsid(1), media::Format::decode(&zeros)),
        Request::Sanitize(block_erase),
        Request::SanitizeConfig(true),
        Request::Download(0, vec![0; 4096]),
        Request::Commit(Commit::decode(&zeros)),
    ] {
        for origin in [&host(2), &through_function] {
            assert!(bench.ask(origin, &request).unwrap_err().is(Status::OPERATION_DENIED), "{request:?}");
        }
    }
    bench.ask(&Origin::box_(), &Request::Virtualize(command)).unwrap();
    // The name that the box has in logs makes no host the box.
    let disguised = Origin { is_box: false, ..Origin::box_() };
    assert!(bench.ask(&disguised, &Request::ResetPrimary).unwrap_err().is(Status::OPERATION_DENIED));
    let mut without = managed(false);
    without.drive.configure(Settings { functions: 0, ..without.drive.settings().clone() });
    assert!(without.ask(&host(0), &Request::Virtualize(command)).unwrap_err().is(Status::INVALID_OPCODE));
}

#[test]
fn hosts_of_a_function_change_nothing_of_namespaces_that_it_has_not() {
    let mut bench = managed(false);
    let wanted = NewNamespace { blocks: 8, capacity_blocks: 8, ..NewNamespace::default() };
    bench.ask(&host(0), &Request::Create(wanted)).unwrap();
    bench.ask(&Origin::box_(), &Request::Map(Nsid(1), Some(FunctionId(1)))).unwrap();
    let [own, other] = [1, 2].map(|id| Origin { function: Some(FunctionId(id)), ..host(2) });
    let register =
        Register { action: RegisterAction::Register, ignore_existing_key: false, persistence: PersistenceChange::None };
    let keys = RegisterKeys { crkey: 0.into(), nrkey: 5.into() };
    for request in [
        Request::Reserve(Nsid(1), reservation::Command::Register(register, keys)),
        Request::Persist(Nsid(1), true),
        Request::Protect(Nsid(1), true),
    ] {
        let name = request.name();
        assert!(bench.ask(&other, &request).unwrap_err().is(Status::INVALID_NAMESPACE), "{name}");
        assert!(bench.ask(&own, &request).is_ok(), "{name}");
    }
}

#[test]
fn a_reserved_namespace_is_moved_by_the_box_and_keeps_its_registrants() {
    let mut bench = managed(false);
    let wanted = NewNamespace { blocks: 8, capacity_blocks: 8, ..NewNamespace::default() };
    bench.ask(&host(0), &Request::Create(wanted)).unwrap();
    bench.ask(&Origin::box_(), &Request::Map(Nsid(1), Some(FunctionId(1)))).unwrap();
    let user = Origin { function: Some(FunctionId(1)), ..host(2) };
    let register = |key: u64| {
        let register = Register {
            action: RegisterAction::Register,
            ignore_existing_key: false,
            persistence: PersistenceChange::None,
        };
        let keys = RegisterKeys { crkey: 0.into(), nrkey: key.into() };
        Request::Reserve(Nsid(1), reservation::Command::Register(register, keys))
    };
    bench.ask(&user, &register(5)).unwrap();
    let elsewhere = Origin { function: Some(FunctionId(2)), ..host(2) };
    assert!(bench.ask(&elsewhere, &register(6)).unwrap_err().is(Status::INVALID_NAMESPACE));
    let before: Arc<Reservations> = Arc::clone(&bench.drive.state().reservations[&1]);
    let moved = bench.ask(&Origin::box_(), &Request::Map(Nsid(1), Some(FunctionId(2)))).unwrap();
    assert_eq!(moved.changes.len(), 1, "one record");
    assert_eq!(bench.drive.state().reservations[&1], before);
    assert_eq!(before.key_of(user.host_id), Some(5));
}

#[test]
fn a_function_is_placed_by_one_record_or_not_at_all() {
    let mut bench = managed(false);
    let id = FunctionId(1);
    let online = Placement { queues: 65, interrupts: 65, online: true, ports: ports(["a"]) };
    assert_eq!(bench.ask(&Origin::box_(), &Request::Place(id, online.clone())).unwrap().changes.len(), 1);
    assert_eq!(Placement::from(&bench.function(1)), online);
    for (wrong, status) in [
        (Placement { queues: 1, ..online.clone() }, Status::INVALID_SECONDARY_STATE),
        (Placement { interrupts: 0, ..online.clone() }, Status::INVALID_SECONDARY_STATE),
        (Placement { queues: 130, ..online.clone() }, Status::INVALID_CONTROLLER_RESOURCES),
    ] {
        assert!(bench.ask(&Origin::box_(), &Request::Place(id, wrong)).unwrap_err().is(status));
    }
    for other in [2, 3] {
        assert!(bench.virt(Assign, other, ResourceType::Queues, 90).is_success());
    }
    let more = Placement { queues: 81, ..online.clone() };
    assert!(bench.ask(&Origin::box_(), &Request::Place(id, more)).unwrap_err().is(Status::INVALID_RESOURCE_ID));
    assert_eq!(Placement::from(&bench.function(1)), online);
    // All that the others leave, its own among them.
    let most = Placement { queues: 80, ..online.clone() };
    bench.ask(&Origin::box_(), &Request::Place(id, most)).unwrap();
    let back = bench.ask(&Origin::box_(), &Request::Place(id, Placement::default())).unwrap();
    assert_eq!((back.changes.len(), back.lost), (1, vec![(Nsid::ALL, Some(id))]));
    assert_eq!(bench.function(1), Function::default());
}

#[test]
fn a_function_that_gets_another_port_loses_nothing_and_one_that_is_taken_from_a_port_does() {
    let mut bench = managed(false);
    let id = FunctionId(1);
    let online = Placement { queues: 2, interrupts: 1, online: true, ports: ports(["a"]) };
    bench.ask(&Origin::box_(), &Request::Place(id, online)).unwrap();
    let all = vec![(Nsid::ALL, Some(id))];
    for (to, lost) in [
        (ports(["b", "a"]), vec![]),
        (ports(["a", "b", "c"]), vec![]),
        (ports(["a", "c"]), all.clone()),
        (ports(["c"]), all.clone()),
        (ports(["d"]), all.clone()),
        (PortNames::default(), all),
        (ports(["a", "b"]), vec![]),
    ] {
        let given = bench.ask(&Origin::box_(), &Request::GiveTo(id, to.clone())).unwrap();
        assert_eq!((given.lost, given.changes.len(), bench.function(1).ports), (lost, 1, to));
        bench.come_up(FUNCTIONS);
    }
    let again = bench.ask(&Origin::box_(), &Request::GiveTo(id, ports(["b", "a"]))).unwrap();
    assert!(again.changes.is_empty() && again.lost.is_empty());
}

#[test]
fn a_function_whose_ports_are_shifted_loses_nothing_and_has_to_be_online() {
    let mut bench = managed(false);
    let id = FunctionId(1);
    let shift = |to| Request::Shift(id, to);
    let offline = bench.ask(&Origin::box_(), &shift(ports(["a"]))).unwrap_err();
    assert!(offline.is(Status::INVALID_SECONDARY_STATE));
    let online = Placement { queues: 2, interrupts: 1, online: true, ports: ports(["a"]) };
    bench.ask(&Origin::box_(), &Request::Place(id, online.clone())).unwrap();
    for to in [["b", "a"], ["b", "c"], ["d", "e"]].map(ports) {
        let shifted = bench.ask(&Origin::box_(), &shift(to.clone())).unwrap();
        assert_eq!((shifted.lost, shifted.changes.len()), (vec![], 1));
        assert_eq!(Placement::from(&bench.function(1)), Placement { ports: to, ..online.clone() });
    }
    let nowhere = bench.ask(&Origin::box_(), &shift(PortNames::default())).unwrap_err();
    assert!(nowhere.is(Status::INVALID_SECONDARY_STATE));
    assert!(bench.ask(&Origin::box_(), &shift(ports(["d", "e"]))).unwrap().changes.is_empty());
}

#[test]
fn a_namespace_has_exactly_whom_it_had_before() {
    let mut bench = managed(false);
    let wanted = NewNamespace { blocks: 8, capacity_blocks: 8, shared: true, ..NewNamespace::default() };
    bench.ask(&host(0), &Request::Create(wanted)).unwrap();
    let list = [1, 2, 128, 129].map(ControllerId).to_vec();
    bench.ask(&host(0), &Request::Attach(Nsid(1), list)).unwrap();
    let before = Attachments::from(&bench.drive.state().namespaces[&1]);
    assert_eq!((before.functions.len(), before.hosts.len()), (2, 2));
    bench.ask(&Origin::box_(), &Request::Map(Nsid(1), Some(FunctionId(3)))).unwrap();
    bench.ask(&host(0), &Request::Detach(Nsid(1), vec![ControllerId(129)])).unwrap();
    let exactly = bench.ask(&Origin::box_(), &Request::AttachExactly(Nsid(1), before.clone())).unwrap();
    assert_eq!(exactly.lost, [(Nsid(1), Some(FunctionId(3)))]);
    assert_eq!(Attachments::from(&bench.drive.state().namespaces[&1]), before);
    bench.drive.configure(Settings { exclusive: true, ..bench.drive.settings().clone() });
    let alone = bench.ask(&Origin::box_(), &Request::AttachExactly(Nsid(1), before));
    assert!(alone.unwrap_err().is(Status::NAMESPACE_IS_PRIVATE));
}

#[test]
fn transactions_are_bounded_and_take_back_what_is_left() {
    let mut bench = managed(false);
    let begin = |id: String| Request::Begin(id, Unfinished::default());
    for at in 0..Unfinished::MAX {
        bench.ask(&Origin::box_(), &begin(format!("t{at}"))).unwrap();
    }
    assert!(bench.ask(&Origin::box_(), &begin("more".into())).unwrap_err().is(Status::INVALID_FIELD));
    for at in 0..Unfinished::MAX {
        assert_eq!(bench.ask(&Origin::box_(), &Request::End(format!("t{at}"))).unwrap().changes.len(), 1);
    }
    assert!(bench.ask(&Origin::box_(), &Request::End("t0".into())).unwrap().changes.is_empty());
    let hosts = (0..2000).map(|at| format!("nqn.2014-08.org.example:a-host-with-a-long-name-{at}")).collect();
    let large = Attachments { hosts, ..Attachments::default() };
    let large = Unfinished { namespaces: [(1, large)].into(), ..Unfinished::default() };
    assert!(bench.ask(&Origin::box_(), &Request::Begin("t".into(), large)).unwrap_err().is(Status::INVALID_FIELD));
    // Its resources went to others meanwhile.
    let online = Placement { queues: 129, interrupts: 2, online: true, ports: ports(["a"]) };
    bench.ask(&Origin::box_(), &Request::Place(FunctionId(1), online.clone())).unwrap();
    let before = Unfinished { functions: [(1, bench.function(1))].into(), ..Unfinished::default() };
    bench.ask(&Origin::box_(), &Request::Begin("t".into(), before)).unwrap();
    bench.ask(&Origin::box_(), &Request::Place(FunctionId(1), Placement::default())).unwrap();
    for other in [2, 3] {
        assert!(bench.virt(Assign, other, ResourceType::Queues, 129).is_success());
    }
    bench.ask(&Origin::box_(), &Request::Undo("t".into())).unwrap();
    assert_eq!(Placement::from(&bench.function(1)), Placement { ports: online.ports, ..Placement::default() });
}

#[test]
fn a_reservation_binds_registrants_of_other_functions_wherever_the_namespace_goes() {
    let mut bench = managed(false);
    let wanted = NewNamespace { blocks: 8, capacity_blocks: 8, shared: true, ..NewNamespace::default() };
    bench.ask(&host(0), &Request::Create(wanted)).unwrap();
    bench.ask(&host(0), &Request::Attach(Nsid(1), [1, 2].map(ControllerId).to_vec())).unwrap();
    let [holder, other] =
        [(1, 2), (2, 1)].map(|(id, number)| Origin { function: Some(FunctionId(id)), ..host(number) });
    let register =
        Register { action: RegisterAction::Register, ignore_existing_key: false, persistence: PersistenceChange::None };
    for (origin, key) in [(&holder, 5), (&other, 6)] {
        let keys = RegisterKeys { crkey: 0.into(), nrkey: key.into() };
        let command = reservation::Command::Register(register, keys);
        bench.ask(origin, &Request::Reserve(Nsid(1), command)).unwrap();
    }
    let acquire = |action, crkey: u64, prkey: u64| {
        let acquire = Acquire { action, ignore_existing_key: false, rtype: ReservationType::WriteExclusive.encode() };
        let keys = AcquireKeys { crkey: crkey.into(), prkey: prkey.into() };
        Request::Reserve(Nsid(1), reservation::Command::Acquire(acquire, keys))
    };
    bench.ask(&holder, &acquire(AcquireAction::Acquire, 5, 0)).unwrap();
    let before = Arc::clone(&bench.drive.state().reservations[&1]);
    // Only one function has it now, which is another one than either was at.
    bench.ask(&Origin::box_(), &Request::Map(Nsid(1), Some(FunctionId(3)))).unwrap();
    assert_eq!(bench.drive.state().reservations[&1], before);
    let denied = |origin: &Origin| before.conflicts(origin.host_id, reservation::Access::Write);
    assert_eq!((denied(&holder), denied(&other)), (false, true));
    assert!(bench.ask(&other, &acquire(AcquireAction::Preempt, 6, 5)).unwrap_err().is(Status::INVALID_NAMESPACE));
    // The registration is the host's, through whichever function it comes.
    let moved = Origin { function: Some(FunctionId(3)), ..other };
    let preempted = bench.ask(&moved, &acquire(AcquireAction::PreemptAndAbort, 6, 5)).unwrap();
    assert_eq!(preempted.abort, [(Nsid(1), holder.host_id)]);
}

fn requests() -> impl Strategy<Value = (usize, Request)> {
    let resource = prop_oneof![4 => Just(ResourceType::Queues), 4 => Just(ResourceType::Interrupts), 1 => Just(ResourceType::Reserved(3))];
    let action = prop_oneof![1 => Just(AllocateToPrimary), 1 => Just(Offline), 4 => Just(Assign), 3 => Just(Online)];
    let virt = (0..6_u16, resource, action, prop_oneof![1 => 0..8_u16, 1 => 0..300_u16]).prop_map(
        |(cntlid, resource, action, count)| {
            let cntlid = ControllerId(cntlid);
            Request::Virtualize(VirtualizationManagement { cntlid, resource, action, count })
        },
    );
    let id = || (0..6_u16).prop_map(FunctionId);
    let nsid = || (1..4_u32).prop_map(Nsid);
    let controllers =
        || proptest::collection::vec(prop_oneof![3 => 0..6_u16, 1 => 128..132_u16].prop_map(ControllerId), 1..3);
    let at = || proptest::collection::btree_set("[a-c]", 0..3).prop_map(ports);
    let place =
        (id(), 0..150_u16, 0..150_u16, any::<bool>(), at()).prop_map(|(id, queues, interrupts, online, ports)| {
            Request::Place(id, Placement { queues, interrupts, online, ports })
        });
    let hosts = || proptest::collection::btree_set("[a-c]", 0..3);
    let attachments = || {
        let all = (proptest::collection::btree_set(0..6_u16, 0..3), hosts(), any::<bool>());
        all.prop_map(|(functions, hosts, for_everyone)| Attachments { functions, hosts, for_everyone })
    };
    let exactly = (nsid(), attachments()).prop_map(|(nsid, to)| Request::AttachExactly(nsid, to));
    let transaction = proptest::option::of(Just("t".to_string()));
    let ordered = (any::<bool>(), proptest::option::of(1..4_u32), proptest::option::of(attachments()), transaction)
        .prop_map(|(shared, nsid, attachments, transaction)| {
            let namespace = NewNamespace { blocks: 8, capacity_blocks: 8, shared, ..NewNamespace::default() };
            Request::CreateOrdered(Ordered { namespace, nsid, attachments, transaction })
        });
    let share = (0..1100_u16, proptest::option::of(0..9_u64), proptest::option::of(0..9_u64));
    let share = share.prop_map(|(weight, iops, minimum_iops)| Share { weight, iops, minimum_iops, ..Share::default() });
    let request = prop_oneof![
        8 => virt,
        2 => any::<bool>().prop_map(|shared| {
            Request::Create(NewNamespace { blocks: 8, capacity_blocks: 8, shared, ..NewNamespace::default() })
        }),
        1 => nsid().prop_map(Request::Delete),
        3 => (nsid(), controllers()).prop_map(|(nsid, list)| Request::Attach(nsid, list)),
        2 => (nsid(), controllers()).prop_map(|(nsid, list)| Request::Detach(nsid, list)),
        3 => (nsid(), proptest::option::of(id())).prop_map(|(nsid, to)| Request::Map(nsid, to)),
        2 => (id(), at()).prop_map(|(id, ports)| Request::GiveTo(id, ports)),
        1 => (id(), share).prop_map(|(id, share)| Request::SetShare(id, share)),
        3 => place,
        1 => (id(), at()).prop_map(|(id, ports)| Request::Shift(id, ports)),
        2 => exactly,
        2 => ordered,
        1 => (0..6_u64).prop_map(|volume| Request::Withdraw(VolumeId(volume))),
        2 => (nsid(), attachments()).prop_map(|(nsid, more)| Request::AttachMore(nsid, more)),
        2 => (nsid(), attachments()).prop_map(|(nsid, from)| Request::DetachFrom(nsid, from)),
        1 => (nsid(), any::<bool>()).prop_map(|(nsid, on)| Request::Protect(nsid, on)),
        1 => Just(Request::ResetPrimary),
    ];
    (0..4_usize, request)
}

/// Whether a request is one record of the journal: of a namespace that is created or deleted there
/// is an event, too.
fn is_one_record(request: &Request) -> bool {
    !matches!(request, Request::Create(_) | Request::Delete(_) | Request::CreateOrdered(_) | Request::Withdraw(_))
}

/// What holds at any time.
fn check(bench: &Bench, before: &State, request: &Request) {
    let state = bench.drive.state();
    let functions = bench.drive.functions();
    for resource in [ResourceType::Queues, ResourceType::Interrupts] {
        let primary = u32::from(state.primary.resources(resource));
        assert!(function::assigned(&functions, resource) + primary <= TOTAL, "more {resource:?} than there are");
    }
    for (id, function) in &functions {
        assert!(!function.online || function.can_go_online(), "vf{id} is online without what it needs");
        assert!(function.share.is_legal());
        let was = before.functions.get(id).cloned().unwrap_or_default();
        let placed = matches!(request, Request::Place(to, _) if to.0 == *id);
        if was.online && function.online && !placed {
            let resources = |function: &Function| (function.queues, function.interrupts);
            assert_eq!(resources(&was), resources(function), "vf{id} was online");
        }
        let given = placed || matches!(request, Request::GiveTo(to, _) | Request::Shift(to, _) if to.0 == *id);
        assert!(given || was.ports == function.ports, "the ports of vf{id}");
    }
    for (nsid, namespace) in &state.namespaces {
        let owners = namespace.hosts.len() + namespace.functions.len();
        // One that all hosts had, as the configuration may say of private ones, too, has those that
        // are left by name when one of them is detached. It gains none.
        let before = before.namespaces.get(nsid);
        let was_of_all = before.is_some_and(|before| before.for_everyone) && namespace.functions.is_empty();
        let were = before.map_or(0, |before| before.hosts.len() + before.functions.len());
        let is_legal = owners <= 1 || was_of_all || owners <= were;
        assert!(
            !bench.drive.attachments().is_alone(namespace) || is_legal,
            "namespace {nsid} has {owners} controllers"
        );
        assert!(namespace.functions.iter().all(|id| functions.contains_key(id)));
    }
    let moves = matches!(
        request,
        Request::Virtualize(_)
            | Request::GiveTo(..)
            | Request::Map(..)
            | Request::SetShare(..)
            | Request::Place(..)
            | Request::Shift(..)
            | Request::AttachExactly(..)
            | Request::AttachMore(..)
            | Request::DetachFrom(..)
            | Request::ResetPrimary
    );
    assert!(!moves || state.reservations == before.reservations, "reservations survive a move");
    if matches!(request, Request::ResetPrimary) {
        assert!(
            functions.values().all(|function| (function.queues, function.interrupts, function.online) == (0, 0, false))
        );
    }
    assert_eq!(State::restore(b"", &bench.journal).unwrap(), *state, "all of it is in the journal");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn nothing_breaks_what_always_holds(exclusive: bool, story in proptest::collection::vec(requests(), 1..60)) {
        let mut bench = managed(exclusive);
        for (from, request) in story {
            let origin = if from == 3 { Origin::box_() } else { host(u16::try_from(from).unwrap()) };
            let before = bench.drive.state().clone();
            let done = bench.ask(&origin, &request);
            if done.is_err() {
                prop_assert_eq!(bench.drive.state(), &before);
            } else if matches!(request, Request::ResetPrimary) || from == 2 {
                // Whoever has a namespace may protect it.
                let is_own = matches!(request, Request::Protect(..));
                prop_assert!(from != 2 || is_own, "a stranger changed something: {:?}", request);
            }
            let request = if done.is_ok() { request } else { Request::AssignCntlid };
            check(&bench, &before, &request);
        }
    }

    /// Whatever a transaction did, and wherever it was interrupted, it is taken back whole.
    #[test]
    fn a_transaction_is_taken_back_to_what_was_before(
        first in proptest::collection::vec(requests(), 1..30),
        then in proptest::collection::vec(requests(), 1..30),
    ) {
        let mut bench = managed(false);
        for (_, request) in first {
            let _refused = bench.ask(&Origin::box_(), &request);
        }
        let state = bench.drive.state().clone();
        let namespaces = |state: &State| -> BTreeMap<u32, Attachments> {
            state.namespaces.iter().map(|(&nsid, namespace)| (nsid, Attachments::from(namespace))).collect()
        };
        let protected = |state: &State| -> BTreeMap<u32, bool> {
            state.namespaces.iter().map(|(&nsid, namespace)| (nsid, namespace.write_protected)).collect()
        };
        let before = Unfinished {
            functions: bench.drive.functions(),
            namespaces: namespaces(&state),
            protected: protected(&state),
            ..Unfinished::default()
        };
        let begin = Request::Begin("t".into(), before.clone());
        prop_assert!(bench.ask(&host(0), &begin).unwrap_err().is(Status::OPERATION_DENIED));
        bench.ask(&Origin::box_(), &begin).unwrap();
        let is_part = |request: &Request| match request {
            Request::Create(_) | Request::Delete(_) | Request::Withdraw(_) | Request::ResetPrimary => false,
            Request::CreateOrdered(ordered) => ordered.transaction.is_some(),
            _ => true,
        };
        for (_, request) in then.into_iter().filter(|(_, request)| is_part(request)) {
            let _refused = bench.ask(&Origin::box_(), &request);
        }
        // The drive is opened again.
        let state = State::restore(b"", &bench.journal).unwrap();
        prop_assert_eq!(&state, bench.drive.state());
        bench.ask(&Origin::box_(), &Request::Undo("t".into())).unwrap();
        prop_assert_eq!(bench.drive.functions(), before.functions);
        prop_assert_eq!(namespaces(bench.drive.state()), before.namespaces);
        prop_assert_eq!(protected(bench.drive.state()), before.protected);
        prop_assert!(bench.drive.state().transactions.is_empty());
        let again = bench.ask(&Origin::box_(), &Request::Undo("t".into())).unwrap();
        prop_assert!(again.changes.is_empty());
    }

    /// The journal is written record by record: a crash leaves a prefix of it.
    #[test]
    fn a_crash_leaves_a_state_of_before_or_after_each_request(story in proptest::collection::vec(requests(), 1..40)) {
        let mut bench = managed(false);
        let mut states = vec![bench.drive.state().clone()];
        for (_, request) in story.into_iter().filter(|(_, request)| is_one_record(request)) {
            let from = bench.journal.len();
            let Ok(decision) = bench.ask(&Origin::box_(), &request) else { continue };
            // A list of functions and hosts takes a record each; everything else is one.
            let is_list = matches!(
                request,
                Request::Attach(..)
                    | Request::Detach(..)
                    | Request::AttachExactly(..)
                    | Request::AttachMore(..)
                    | Request::DetachFrom(..)
            );
            prop_assert!(is_list || decision.changes.len() <= 1, "{:?}", request);
            prop_assert_eq!(bench.journal.len(), from + decision.changes.len());
            states.push(bench.drive.state().clone());
        }
        let whole = State::restore(b"", &bench.journal).unwrap();
        prop_assert_eq!(&whole, states.last().unwrap());
    }
}

#[test]
fn a_drive_that_comes_up_with_fewer_functions_lets_go_of_the_others() {
    let mut bench = managed(false);
    let queues = ResourceType::Queues;
    for (id, count) in [(1, 129), (2, 60), (4, 70)] {
        assert!(bench.virt(Assign, id, queues, count).is_success());
        assert!(bench.virt(Assign, id, ResourceType::Interrupts, 1).is_success());
        assert!(bench.virt(Online, id, queues, 0).is_success());
    }
    bench.ask(&host(0), &Request::GiveTo(FunctionId(4), ports(["a"]))).unwrap();
    let wanted = NewNamespace { blocks: 8, capacity_blocks: 8, ..NewNamespace::default() };
    bench.ask(&host(0), &Request::Create(wanted)).unwrap();
    bench.ask(&host(0), &Request::Attach(Nsid(1), vec![ControllerId(4)])).unwrap();
    bench.come_up(2);
    // What is in use stays there, and the functions that are left get nothing beyond that.
    assert_eq!(function::flexible_total(&bench.drive.state().primary, &bench.drive.functions(), queues), 189);
    assert!(bench.virt(AllocateToPrimary, 0, queues, 1).is(Status::INVALID_RESOURCE_ID));
    assert!(bench.virt(Offline, 1, queues, 0).is_success());
    assert!(bench.virt(Assign, 1, queues, 71).is(Status::INVALID_RESOURCE_ID));
    assert!(bench.virt(Assign, 1, queues, 70).is_success());
    // A private namespace of a function that is only remembered is detached as any other.
    let attach = |bench: &mut Bench, id| bench.ask(&host(0), &Request::Attach(Nsid(1), vec![ControllerId(id)]));
    assert!(attach(&mut bench, 2).unwrap_err().is(Status::NAMESPACE_IS_PRIVATE));
    assert!(attach(&mut bench, 4).unwrap_err().is(Status::CONTROLLER_LIST_INVALID));
    bench.ask(&host(0), &Request::Detach(Nsid(1), vec![ControllerId(4)])).unwrap();
    attach(&mut bench, 2).unwrap();
    bench.come_up(4);
    let back = bench.function(4);
    assert_eq!((back.queues, back.interrupts, back.online, back.ports), (0, 0, false, ports(["a"])));
    assert_eq!(function::flexible_total(&bench.drive.state().primary, &bench.drive.functions(), queues), TOTAL);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    /// Whatever number of functions the drive comes up with: nobody gets more than there is.
    #[test]
    fn resources_stay_within_what_functions_bring(
        stories in proptest::collection::vec((0..6_u16, proptest::collection::vec(requests(), 1..30)), 1..5)
    ) {
        let mut bench = managed(false);
        let in_use = |bench: &Bench, resource| {
            let primary = bench.drive.state().primary;
            let now = function::assigned(&bench.drive.functions(), resource) + u32::from(primary.resources(resource));
            now.max(primary.after_reset().resources(resource).into())
        };
        for (functions, story) in stories {
            bench.come_up(functions);
            for (_, request) in story {
                let before = [ResourceType::Queues, ResourceType::Interrupts].map(|resource| in_use(&bench, resource));
                let _refused = bench.ask(&Origin::box_(), &request);
                let after = [ResourceType::Queues, ResourceType::Interrupts].map(|resource| in_use(&bench, resource));
                for (before, after) in before.into_iter().zip(after) {
                    prop_assert!(after <= before.max(u32::from(functions) * 65), "{:?}: {} of {}", request, after, functions);
                }
            }
        }
    }
}
