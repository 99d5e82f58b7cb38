//! Hosts that have to prove who they are: what they may do before, what opens, and that others
//! notice nothing of those who do not.

use std::sync::Arc;

use ebof_authentication::host::{Credentials, Next, Offer, Proof, Refusal};
use ebof_authentication::message::SecureChannel;
use ebof_authentication::response::Names;
use ebof_authentication::{Explanation, Group, HostEnd, KeyMaterial, Secret};
use ebof_fabrics::{CloseReason, Handle, HostSecrets, Limits, RefusalReason};
use ebof_nvme::connect::{Connect, ConnectResult, Property};
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::identify::Cns;
use ebof_nvme::opcode::{admin, fabrics, nvm};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::security::Security;
use ebof_nvme::{ControllerId, Nsid, QueueId, Sqe, Status};

use crate::support::{ALICE, BOB, DRIVE, World, admin_connect, connect_data, entropy, host_id, nqn, with_data};

pub(crate) fn secret(seed: u8) -> Secret {
    Secret::new(KeyMaterial::new(vec![seed; 32]), None).unwrap()
}

/// Alice has a secret; Bob has none.
fn world() -> World {
    let mut world = World::new();
    give_secret(&mut world, 1);
    world
}

fn give_secret(world: &mut World, seed: u8) {
    let secrets = HostSecrets { host: vec![secret(seed)], controller: Some(secret(100)) };
    world.replace_model(|model| {
        model.secrets.insert(nqn(ALICE), Arc::new(secrets));
        // Fast: the groups are tested elsewhere.
        model.authentication.groups = vec![Group::Null];
    });
}

fn host(seed: u8, controller: Option<Secret>) -> HostEnd {
    let names = Names { host: nqn(ALICE), subsystem: nqn(DRIVE) };
    HostEnd::new(Credentials { names, host: secret(seed), controller }, Offer::everything(SecureChannel::None))
}

fn send(bytes: u32) -> Sqe {
    with_data(Security::authentication(bytes).encode_authentication(fabrics::AUTHENTICATION_SEND), bytes)
}

fn receive(bytes: u32) -> Sqe {
    with_data(Security::authentication(bytes).encode_authentication(fabrics::AUTHENTICATION_RECEIVE), bytes)
}

/// A transaction of `host` on the queue `at`.
fn authenticate(world: &mut World, at: u64, host: &mut HostEnd) -> Result<Proof, Refusal> {
    authenticate_with(world, at, host, 200)
}

/// One whose host has random bytes of `seed`.
pub(crate) fn authenticate_with(world: &mut World, at: u64, host: &mut HostEnd, seed: u8) -> Result<Proof, Refusal> {
    let mut next = host.begin(7, entropy(seed.into()));
    loop {
        next = match next {
            Next::Compute(work) => host.computed(work.run()),
            Next::Exchange(message) => {
                let done = world.run_with(at, send(u32::try_from(message.len()).unwrap()), &message);
                assert_eq!(done.status(), Status::SUCCESS);
                let done = world.run(at, receive(4096));
                assert_eq!((done.status(), done.data.len()), (Status::SUCCESS, 4096));
                host.receive(&done.data)
            }
            Next::Over { message, result } => {
                if let Some(message) = message {
                    let done = world.run_with(at, send(u32::try_from(message.len()).unwrap()), &message);
                    assert_eq!(done.status(), Status::SUCCESS);
                }
                return result;
            }
        };
    }
}

/// An Admin Queue of Alice's that has not proven anything; the controller.
fn connected(world: &mut World) -> (u64, ControllerId) {
    let at = world.open();
    let (cqe, refusal) = world.connect(at, admin_connect(), &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
    assert_eq!(refusal, None);
    let (cntlid, authreq) = ConnectResult::connected(cqe.result());
    assert_eq!(authreq, ConnectResult::AUTHENTICATION_REQUIRED);
    assert!(world.queues[&at].is_connected() && !world.queues[&at].is_open());
    (at, cntlid)
}

/// One that has, and is enabled.
fn enabled(world: &mut World) -> (u64, ControllerId) {
    let (at, cntlid) = connected(world);
    authenticate(world, at, &mut host(1, None)).unwrap();
    assert!(world.run(at, Property::set(offset::CC, Cc::ENABLE.0)).status().is_success());
    (at, cntlid)
}

/// An I/O queue of Alice's that has not proven anything.
fn io_queue(world: &mut World, cntlid: ControllerId, qid: u16) -> u64 {
    let at = world.open();
    let connect = Connect { qid: QueueId(qid), entries: 64, ..admin_connect() };
    let (cqe, refusal) = world.connect(at, connect, &connect_data(DRIVE, ALICE, cntlid));
    assert_eq!(refusal, None);
    assert_eq!(ConnectResult::connected(cqe.result()).1, ConnectResult::AUTHENTICATION_REQUIRED);
    at
}

fn read() -> Sqe {
    ebof_nvme::io::BlockRange::new(0, 1).encode(nvm::READ, Nsid(1))
}

fn identify() -> Sqe {
    with_data(Sqe::new(admin::IDENTIFY).with_cdw(10, u32::from(Cns::CONTROLLER.0)), 4096)
}

#[test]
fn a_host_that_proves_who_it_is_gets_its_queues() {
    for controller in [None, Some(secret(100))] {
        let mut world = world();
        let (at, cntlid) = connected(&mut world);
        let proof = authenticate(&mut world, at, &mut host(1, controller.clone())).unwrap();
        assert_eq!(proof.is_mutual, controller.is_some());
        assert!(world.queues[&at].is_open());
        assert!(world.run(at, Property::set(offset::CC, Cc::ENABLE.0)).status().is_success());
        assert!(world.run(at, identify()).status().is_success());
        let io = io_queue(&mut world, cntlid, 1);
        assert!(world.run(io, with_data(read(), 512)).status().is(Status::AUTHENTICATION_REQUIRED));
        authenticate(&mut world, io, &mut host(1, controller)).unwrap();
        assert!(world.run(io, with_data(read(), 512)).status().is_success());
    }
}

/// What happens before is nothing to it: it begins with what there is when its gate opens.
#[test]
fn events_before_are_none_of_its() {
    let mut world = world();
    let (at, _) = connected(&mut world);
    let notices = world.registry.raise(&nqn(DRIVE), AsyncEvent::NAMESPACE_ATTRIBUTE_CHANGED);
    assert_eq!(notices.len(), 1);
    world.deliver(notices);
    world.replace_model(|model| {
        let drive = Arc::make_mut(&mut model.subsystems[0]);
        drive.namespaces = ebof_fabrics::NamespaceTable::new(vec![crate::support::namespace(1)]).unwrap();
    });
    authenticate(&mut world, at, &mut host(1, None)).unwrap();
    assert!(world.run(at, Property::set(offset::CC, Cc::ENABLE.0)).status().is_success());
    assert_eq!(world.run(at, Sqe::new(admin::ASYNC_EVENT_REQUEST)).cqe, None, "it waits");
    assert!(world.events.is_empty());
}

#[test]
fn before_it_has_only_what_linux_has() {
    let mut world = world();
    let (at, _) = connected(&mut world);
    assert!(world.run(at, Property::get(offset::CAP, 8)).status().is_success());
    let required = Status::AUTHENTICATION_REQUIRED.dnr();
    for sqe in [
        Property::set(offset::CC, Cc::ENABLE.0),
        identify(),
        Sqe::new(admin::KEEP_ALIVE),
        Sqe::new(admin::ASYNC_EVENT_REQUEST),
        with_data(admin_connect().encode(), 1024),
    ] {
        assert!(world.run_with(at, sqe, &[0; 1024]).status().is(required), "{sqe:?}");
    }
    // It is nobody to others: not its host identifier, nor its share.
    let (bob, _) = world.controller(DRIVE, BOB);
    assert!(world.queues[&bob].is_open());
}

#[test]
fn a_wrong_secret_ends_the_controller_after_it_was_told() {
    let mut world = world();
    let (at, _) = connected(&mut world);
    let explanation = Explanation::AuthenticationFailed;
    let refused = authenticate(&mut world, at, &mut host(2, None));
    assert_eq!(refused, Err(Refusal::ByController { explanation }));
    assert_eq!(world.closed(at), Some(CloseReason::NotAuthenticated(explanation)));
    assert!(world.queues[&at].is_closing() && !world.queues[&at].is_open());
    let done = world.run(at, Property::get(offset::CAP, 8));
    assert!(done.status().is(Status::ABORTED_SQ_DELETION));
}

#[test]
fn a_host_that_does_not_accept_the_controller_ends_it() {
    let mut world = world();
    let (at, _) = connected(&mut world);
    let refused = authenticate(&mut world, at, &mut host(1, Some(secret(101))));
    assert_eq!(refused, Err(Refusal::WrongResponse));
    assert_eq!(world.closed(at), Some(CloseReason::HostGaveUp(Some(Explanation::AuthenticationFailed))));
    assert!(!world.queues[&at].is_open());
}

#[test]
fn a_proof_is_repeated_on_a_live_queue() {
    let mut world = world();
    let (at, cntlid) = enabled(&mut world);
    let io = io_queue(&mut world, cntlid, 1);
    authenticate(&mut world, io, &mut host(1, None)).unwrap();
    authenticate(&mut world, at, &mut host(1, Some(secret(100)))).unwrap();
    assert!(world.run(io, with_data(read(), 512)).status().is_success());
    // One that fails is the end of the controller, as with Linux' target.
    authenticate(&mut world, at, &mut host(2, None)).unwrap_err();
    assert_eq!(world.closed(io), Some(CloseReason::NotAuthenticated(Explanation::AuthenticationFailed)));
}

/// Somebody knows the host's name and the controller's number, and not the secret.
#[test]
fn a_queue_that_proves_nothing_takes_no_ones_place() {
    let mut world = world();
    let (admin, cntlid) = enabled(&mut world);
    let strangers: Vec<u64> = (0..10).map(|_| io_queue(&mut world, cntlid, 1)).collect();
    let own = io_queue(&mut world, cntlid, 1);
    authenticate(&mut world, own, &mut host(1, None)).unwrap();
    assert!(world.run(own, with_data(read(), 512)).status().is_success());
    // Each of them fails for itself.
    authenticate(&mut world, strangers[0], &mut host(2, None)).unwrap_err();
    assert_eq!(world.closed(strangers[0]), Some(CloseReason::NotAuthenticated(Explanation::AuthenticationFailed)));
    assert!(!world.queues[&admin].is_closing() && !world.queues[&own].is_closing());
    strangers.iter().for_each(|&at| world.close(at));
    assert!(world.run(own, with_data(read(), 512)).status().is_success());
    // Nobody is the same queue twice.
    let again = io_queue_refusal(&mut world, cntlid, 1);
    assert_eq!(again, RefusalReason::QueueInUse);
}

fn io_queue_refusal(world: &mut World, cntlid: ControllerId, qid: u16) -> RefusalReason {
    let at = world.open();
    let connect = Connect { qid: QueueId(qid), entries: 64, ..admin_connect() };
    world.connect(at, connect, &connect_data(DRIVE, ALICE, cntlid)).1.unwrap().reason
}

#[test]
fn of_two_connections_that_prove_themselves_the_first_is_the_queue() {
    let mut world = world();
    let (_, cntlid) = enabled(&mut world);
    let [first, second] = [(); 2].map(|()| io_queue(&mut world, cntlid, 1));
    authenticate(&mut world, second, &mut host(1, None)).unwrap();
    authenticate(&mut world, first, &mut host(1, None)).unwrap();
    assert_eq!(world.closed(first), Some(CloseReason::NotAdmitted(RefusalReason::QueueInUse)));
    assert!(world.run(second, with_data(read(), 512)).status().is_success());
}

#[test]
fn the_end_of_a_controller_ends_queues_that_prove_themselves() {
    let mut world = world();
    let (admin, cntlid) = enabled(&mut world);
    let io = io_queue(&mut world, cntlid, 1);
    world.close(admin);
    assert_eq!(world.closed(io), Some(CloseReason::AdminQueueLost));
    authenticate_is_aborted(&mut world, io);
    world.close(io);
    assert_eq!(world.registry.controllers().count(), 0);
    assert!(world.registry.closed(Handle(io)).is_empty());
}

fn authenticate_is_aborted(world: &mut World, at: u64) {
    let done = world.run(at, receive(4096));
    assert!(done.status().is(Status::ABORTED_SQ_DELETION));
}

#[test]
fn a_subsystem_may_refuse_hosts_without_a_secret() {
    let mut world = world();
    world.replace_model(|model| Arc::make_mut(&mut model.subsystems[0]).authenticated_only = true);
    let at = world.open();
    let (cqe, refusal) = world.connect(at, admin_connect(), &connect_data(DRIVE, BOB, ControllerId::DYNAMIC));
    assert_eq!(refusal.unwrap().reason, RefusalReason::NoSecret);
    assert!(cqe.status().is(Status::CONNECT_INVALID_HOST) && cqe.status().is_dnr());
    enabled(&mut world);
}

#[test]
fn hosts_that_have_to_prove_themselves_from_now_on_lose_their_controllers() {
    let mut world = World::new();
    let (alice, _) = world.controller(DRIVE, ALICE);
    let (bob, _) = world.controller(DRIVE, BOB);
    give_secret(&mut world, 1);
    assert_eq!(world.closed(alice), Some(CloseReason::ProofDemanded));
    assert_eq!(world.closed(bob), None);
    let (proven, _) = enabled(&mut world);
    world.replace_model(|model| Arc::make_mut(&mut model.subsystems[0]).authenticated_only = true);
    assert_eq!(world.closed(bob), Some(CloseReason::ProofDemanded));
    assert_eq!(world.closed(proven), None);
}

/// A new secret counts from the next proof on, also on queues that are there.
#[test]
fn a_new_secret_counts_from_the_next_proof_on() {
    let mut world = world();
    let (at, _) = enabled(&mut world);
    let (waiting, _) = connected(&mut world);
    give_secret(&mut world, 3);
    assert!(world.run(at, identify()).status().is_success());
    authenticate(&mut world, at, &mut host(3, None)).unwrap();
    authenticate(&mut world, waiting, &mut host(1, None)).unwrap_err();
}

#[test]
fn malformed_commands_are_refused_and_change_nothing() {
    let mut world = world();
    let (at, _) = connected(&mut world);
    let field = Status::INVALID_FIELD.dnr();
    let with = |security: Security, fctype, bytes| with_data(security.encode_authentication(fctype), bytes);
    let good = Security::authentication(64);
    for fctype in [fabrics::AUTHENTICATION_SEND, fabrics::AUTHENTICATION_RECEIVE] {
        assert!(world.run(at, with(Security { protocol: 0xe8, ..good }, fctype, 64)).status().is(field));
        assert!(world.run(at, with(Security { specific: 0x0100, ..good }, fctype, 64)).status().is(field));
        assert!(world.run(at, with(Security { bytes: 0, ..good }, fctype, 0)).status().is(field));
        let length = Status::DATA_SGL_LENGTH_INVALID.dnr();
        assert!(world.run(at, with(good, fctype, 65)).status().is(length));
    }
    assert!(world.run(at, send(4097)).status().is(field));
    // Nothing to receive yet.
    assert!(world.run(at, receive(4096)).status().is(Status::COMMAND_SEQUENCE_ERROR));
    // Too little room: the message stays.
    let Next::Exchange(message) = host(1, None).begin(7, entropy(200)) else { panic!("no message") };
    assert!(world.run_with(at, send(72), &message).status().is_success());
    assert!(world.run(at, receive(20)).status().is(field));
    assert!(world.run(at, receive(4096)).status().is_success());
}

/// Whoever is not asked cannot authenticate: opcode 7Fh stays what it was.
#[test]
fn hosts_without_a_secret_have_no_such_commands() {
    let mut world = world();
    let (bob, _) = world.controller(DRIVE, BOB);
    for sqe in [send(72), receive(4096)] {
        assert!(world.run_with(bob, sqe, &[0; 72]).status().is(Status::INVALID_OPCODE));
    }
}

/// Another host comes with the same host identifier while the gate is shut: who is first there has
/// it.
#[test]
fn a_host_identifier_is_looked_at_again_when_the_gate_opens() {
    let mut world = world();
    let at = world.open();
    let mut data = connect_data(DRIVE, ALICE, ControllerId::DYNAMIC);
    data.hostid = host_id(BOB).0;
    assert_eq!(world.connect(at, admin_connect(), &data).1, None);
    let (bob, _) = world.controller(DRIVE, BOB);
    authenticate(&mut world, at, &mut host(1, None)).unwrap();
    assert_eq!(world.closed(at), Some(CloseReason::NotAdmitted(RefusalReason::HostIdInUse)));
    assert!(!world.queues[&at].is_open() && !world.queues[&bob].is_closing());
}

/// Reservations go by host identifiers: one that a host has proven stays its own while it is away.
// @test wire.unproven-hosts
#[test]
fn a_host_identifier_belongs_to_the_host_that_proved_it() {
    let mut world = world();
    let (at, _) = enabled(&mut world);
    world.close(at);
    let mut data = connect_data(DRIVE, BOB, ControllerId::DYNAMIC);
    data.hostid = host_id(ALICE).0;
    let at = world.open();
    assert_eq!(world.connect(at, admin_connect(), &data).1.unwrap().reason, RefusalReason::HostIdInUse);
    // Its own host comes back, and once that can prove nothing any more, a claim is a claim.
    let (at, _) = enabled(&mut world);
    world.close(at);
    world.replace_model(|model| model.secrets.clear());
    let at = world.open();
    assert_eq!(world.connect(at, admin_connect(), &data).1, None);
}

/// Connects that came at once, when none was there yet, are counted when they prove themselves.
#[test]
fn limits_are_looked_at_again_when_gates_open() {
    let limits = Limits { host_controllers: 2, ..Limits::default() };
    let mut world = World::with(limits, crate::support::model());
    give_secret(&mut world, 1);
    let waiting: Vec<u64> = (0..4).map(|_| connected(&mut world).0).collect();
    for &at in &waiting {
        authenticate(&mut world, at, &mut host(1, None)).unwrap();
    }
    let open = waiting.iter().filter(|at| world.queues[at].is_open()).count();
    assert_eq!(open, 2);
    assert_eq!(world.closed(waiting[3]), Some(CloseReason::NotAdmitted(RefusalReason::HostShare)));
}

#[test]
fn a_reset_ends_queues_that_prove_themselves() {
    let mut world = world();
    let (at, cntlid) = enabled(&mut world);
    let io = io_queue(&mut world, cntlid, 1);
    let done = world.run(at, Property::set(offset::CC, 0));
    assert!(done.step.contains(&format!("Handle({io})")), "{}", done.step);
    assert!(world.run(at, Property::set(offset::CC, Cc::ENABLE.0)).status().is_success());
    let io = io_queue(&mut world, cntlid, 1);
    authenticate(&mut world, io, &mut host(1, None)).unwrap();
    assert!(world.run(io, with_data(read(), 512)).status().is_success());
}

/// The error log and the statistics are those of all hosts of a drive.
#[test]
fn what_is_refused_at_the_gate_is_counted_nowhere() {
    let mut world = world();
    let before = world.registry.subsystem_counts(&nqn(DRIVE));
    let (at, _) = connected(&mut world);
    for _ in 0..100 {
        assert!(world.run(at, identify()).status().is(Status::AUTHENTICATION_REQUIRED));
    }
    world.close(at);
    assert_eq!(world.registry.subsystem_counts(&nqn(DRIVE)), before);
    assert!(world.registry.errors_since(&nqn(DRIVE), 0).is_empty());
}

/// More than it needs is refused, whatever the queue will have.
#[test]
fn few_commands_wait_at_the_gate() {
    let mut world = world();
    let (at, _) = connected(&mut world);
    assert_eq!(world.queues[&at].commands_max(), 4);
    authenticate(&mut world, at, &mut host(1, None)).unwrap();
    assert_eq!(world.queues[&at].commands_max(), 32);
}

/// A host that began a proof on a live queue and did not end it may begin again after its time.
#[test]
fn a_proof_on_a_live_queue_has_its_time() {
    let mut world = world();
    let (at, _) = enabled(&mut world);
    let Next::Exchange(message) = host(1, None).begin(7, entropy(200)) else { panic!("no message") };
    assert!(world.run_with(at, send(72), &message).status().is_success());
    world.now_ms += 120_000;
    authenticate(&mut world, at, &mut host(1, None)).unwrap();
    assert_eq!(world.closed(at), None);
}
