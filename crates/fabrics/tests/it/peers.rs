//! Unusual behaviour of real hosts, and how the target responds: each test names the host.

use std::sync::Arc;

use ebof_fabrics::{CloseReason, Limits, NamespaceTable, Port, RefusalReason, Step, Task, Tolerated};
use ebof_nvme::connect::{Connect, ConnectData, ConnectResult, Property, disconnect};
use ebof_nvme::firmware::Download;
use ebof_nvme::identify::IdentifyController;
use ebof_nvme::identify::field::ctratt;
use ebof_nvme::lba_status::{GetLbaStatus, StatusAction};
use ebof_nvme::log::{DiscoveryEntries, TrType, Treq};
use ebof_nvme::opcode::{FABRICS, admin, nvm};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::{Cid, ControllerId, HostId, Nqn, Nsid, QueueId, Sqe, Status};
use zerocopy::FromBytes;

use crate::support::*;

const REQUEST: u8 = admin::ASYNC_EVENT_REQUEST;

fn with_cid(mut sqe: Sqe, cid: u16) -> Sqe {
    sqe.cid = cid.into();
    sqe
}

fn identify(cns: u32, nsid: u32, csi: u32) -> Sqe {
    let sqe = Sqe::new(admin::IDENTIFY).with_nsid(Nsid(nsid)).with_cdw(10, cns).with_cdw(11, csi << 24);
    with_data(sqe, 4096)
}

/// CC with the command sets that TrueNAS' client and Linux enable if CAP allows it.
const ALL_COMMAND_SETS: u32 = Cc::ENABLE.0 | 6 << 4;

// @test wire.unusual-hosts
#[test]
fn truenas_python_client_and_linux_enable_all_command_sets() {
    let mut world = World::managed();
    let at = world.open();
    world.connect(at, admin_connect(), &connect_data(MANAGED, ALICE, ControllerId::DYNAMIC));
    let cap = world.run(at, Property::get(offset::CAP, 8)).result();
    assert_eq!(
        cap >> 37 & 0xff,
        0b0100_0001,
        "CAP.CSS: the NVM command set (bit 0), and all that CNS 1Ch says (bit 6)"
    );
    assert!(world.run(at, Property::set(offset::CC, ALL_COMMAND_SETS)).status().is_success());
    assert_eq!(world.run(at, Property::get(offset::CSTS, 4)).result(), 1);
    // Not of a discovery controller, which has no I/O command sets (Base, CC.CSS).
    let discovery = world.open();
    world.connect(discovery, admin_connect(), &connect_data(Nqn::DISCOVERY, ALICE, ControllerId::DYNAMIC));
    assert_eq!(world.run(discovery, Property::get(offset::CAP, 8)).result() >> 37 & 0xff, 1);
    assert!(world.run(discovery, Property::set(offset::CC, ALL_COMMAND_SETS)).status().is_success());
    // The data structures that a host with all command sets requests, each for the NVM command set,
    // including those of a namespace.
    world.tell_drive(at, &ebof_drive::Request::AssignCntlid);
    for cns in [0x1c, 0x05, 0x06, 0x07, 0x08, 0x1a, 0x1b] {
        let nsid = if matches!(cns, 0x06 | 0x07 | 0x1a | 0x1c) { 0 } else { 1 };
        let cntid = if cns == 0x1c { 0xffff << 16 } else { 0 };
        let done = world.run(at, identify(cns | cntid, nsid, 0));
        assert!(done.status().is_success(), "CNS {cns:02x}h: {}", done.status());
        assert_eq!(done.data.len(), 4096);
    }
    // There is no other command set.
    for cns in [0x05, 0x06, 0x07, 0x1a, 0x1b] {
        assert_eq!(world.run(at, identify(cns, 1, 2)).status(), Status::INVALID_FIELD.dnr().more(), "CNS {cns:02x}h");
    }
    // I/O Command Set Profile: there is one combination.
    let get = Sqe::new(admin::GET_FEATURES).with_cdw(10, 0x19);
    assert_eq!((world.run(at, get).status(), world.run(at, get).result()), (Status::SUCCESS, 0));
    let set = |index| Sqe::new(admin::SET_FEATURES).with_cdw(10, 0x19).with_cdw(11, index);
    assert!(world.run(at, set(0)).status().is_success());
    assert_eq!(world.run(at, set(1)).status(), Status::COMMAND_SET_COMBINATION_REJECTED.dnr().more());
    // A combination that does not exist is refused.
    let other = world.open();
    world.connect(other, admin_connect(), &connect_data(MANAGED, BOB, ControllerId::DYNAMIC));
    for css in [1, 5, 7] {
        let set = Property::set(offset::CC, Cc::ENABLE.0 | css << 4);
        assert_eq!(world.run(other, set).status(), Status::INVALID_FIELD.dnr().more(), "CSS {css}");
    }
}

// @test wire.unusual-hosts
#[test]
fn truenas_python_client_sends_another_host_identifier_for_each_queue() {
    let mut world = World::new();
    let (_, cntlid) = world.controller(DRIVE, ALICE);
    let at = world.open();
    let connect = Connect { qid: QueueId(1), ..admin_connect() };
    let other = ConnectData { hostid: [9; 16], ..connect_data(DRIVE, ALICE, cntlid) };
    let (cqe, refusal) = world.connect(at, connect, &other);
    assert_eq!((cqe.status(), refusal), (Status::SUCCESS, None));
    assert_eq!(world.queues[&at].association().unwrap().host_id(), host_id(ALICE), "the Admin Queue's counts");
    assert_eq!(world.queues[&at].tolerated(), Some(Tolerated::OtherHostId));
    // Base, Connect: zeros stand for the Admin Queue's.
    let zeros = ConnectData { hostid: [0; 16], ..other };
    let at = world.open();
    let (cqe, refusal) = world.connect(at, Connect { qid: QueueId(2), ..connect }, &zeros);
    assert_eq!((cqe.status(), refusal), (Status::SUCCESS, None));
    assert_eq!(world.queues[&at].tolerated(), None);
    // Another host NQN is another host.
    let bob = ConnectData { hostnqn: nqn(BOB).to_field(), ..other };
    let at = world.open();
    let (_, refusal) = world.connect(at, Connect { qid: QueueId(3), ..connect }, &bob);
    assert_eq!(refusal.unwrap().reason, RefusalReason::OtherHost);
}

// @test wire.unusual-hosts
#[test]
fn spdk_perf_has_no_host_nqn() {
    let mut world = World::new();
    let nameless =
        |subsystem: &str, cntlid| ConnectData { hostnqn: [0; 256], ..connect_data(subsystem, ALICE, cntlid) };
    let at = world.open();
    let (cqe, refusal) = world.connect(at, admin_connect(), &nameless(DRIVE, ControllerId::DYNAMIC));
    assert_eq!((cqe.status(), refusal), (Status::SUCCESS, None));
    let (cntlid, _) = ConnectResult::connected(cqe.result());
    assert_eq!(world.queues[&at].tolerated(), Some(Tolerated::NoHostNqn));
    assert!(world.run(at, Property::set(offset::CC, Cc::ENABLE.0)).status().is_success());
    let io = world.open();
    let (cqe, refusal) = world.connect(io, Connect { qid: QueueId(1), ..admin_connect() }, &nameless(DRIVE, cntlid));
    assert_eq!((cqe.status(), refusal), (Status::SUCCESS, None));
    // Only its identifier distinguishes it from other hosts without an NQN.
    for hostid in [[0x99; 16], [0; 16]] {
        let at = world.open();
        let connect = Connect { qid: QueueId(2), ..admin_connect() };
        let (_, refusal) = world.connect(at, connect, &ConnectData { hostid, ..nameless(DRIVE, cntlid) });
        assert_eq!(refusal.unwrap().reason, RefusalReason::OtherHost);
    }
    // It differs from a host with an NQN that has the same identifier.
    let named = world.open();
    let connect = Connect { qid: QueueId(2), ..admin_connect() };
    let (_, refusal) = world.connect(named, connect, &connect_data(DRIVE, ALICE, cntlid));
    assert_eq!(refusal.unwrap().reason, RefusalReason::OtherHost);
    // It is on no list of allowed hosts, whatever its identifier; discovery does not show it such a
    // subsystem either.
    world.replace_model(|model| {
        let other = Arc::make_mut(&mut model.subsystems[1]);
        other.allowed_hosts.push(Nqn::from_uuid(ebof_nvme::Uuid(host_id(ALICE).0)));
    });
    let refused = world.open();
    let (cqe, refusal) = world.connect(refused, admin_connect(), &nameless(OTHER, ControllerId::DYNAMIC));
    assert_eq!(refusal.unwrap().reason, RefusalReason::HostNotAllowed);
    assert_eq!(cqe.status(), Status::CONNECT_INVALID_HOST.dnr());
    let discovery = world.open();
    let (_, refusal) = world.connect(discovery, admin_connect(), &nameless(Nqn::DISCOVERY, ControllerId::DYNAMIC));
    assert_eq!(refusal, None);
    assert!(world.run(discovery, Property::set(offset::CC, 1)).status().is_success());
    assert_eq!(subsystems(&mut world, discovery, 0), [OWN_DISCOVERY, DRIVE]);
    // Its association ends when the subsystem gets a list.
    world.replace_model(|model| Arc::make_mut(&mut model.subsystems[0]).allow_any_host = false);
    assert!(world.closes.contains(&(at, CloseReason::HostNotAllowed)), "{:?}", world.closes);
}

/// The subsystems in the Discovery log page that `lsp` selects.
fn subsystems(world: &mut World, at: u64, lsp: u32) -> Vec<String> {
    let get = Sqe::new(admin::GET_LOG_PAGE).with_cdw(10, 0x70 | lsp << 8 | 4095 << 16);
    let page = world.run(at, with_data(get, 16 * 1024)).data;
    let (_, entries) = DiscoveryEntries::new(&page).unwrap();
    entries.map(|entry| entry.subsystem_nqn().to_string()).collect()
}

// @test wire.unusual-hosts
#[test]
fn spdk_reuses_the_identifiers_of_abandoned_event_requests() {
    let mut world = World::new();
    let (at, _) = world.controller(DRIVE, ALICE);
    let submit = |world: &mut World, sqe: Sqe| world.queues.get_mut(&at).unwrap().submit(&sqe, 0);
    for cid in 0..4 {
        assert_eq!(submit(&mut world, with_cid(Sqe::new(REQUEST), cid)), Step::Held);
    }
    // At detach: read CC, write the shutdown, read the status; with the identifiers of requests
    // that it has abandoned.
    let get = submit(&mut world, with_cid(Property::get(offset::CC, 4), 0));
    let done = world.carry_out(at, get, &[]);
    assert_eq!((done.status(), done.result()), (Status::SUCCESS, Cc::ENABLE.0.into()));
    let set = submit(&mut world, with_cid(Property::set(offset::CC, Cc::ENABLE.with_shutdown(1).0), 1));
    assert!(world.carry_out(at, set, &[]).status().is_success());
    let csts = submit(&mut world, with_cid(Property::get(offset::CSTS, 4), 2));
    assert_eq!(world.carry_out(at, csts, &[]).result(), 0b1001, "a clean shutdown");
    assert_eq!(world.events, [], "the requests that gave way are not completed");
    assert_eq!(world.queues[&at].outstanding(), 1, "the fourth waits");
    // Another event completes only a request that is still outstanding.
    let refused = Box::new(Step::Complete(conflict_free(3)));
    assert_eq!(submit(&mut world, with_cid(Sqe::new(REQUEST), 3)), Step::Withdrawn(refused));
}

/// Command Sequence Error: the controller is shut down. Not Command ID Conflict.
fn conflict_free(cid: u16) -> ebof_nvme::Cqe {
    ebof_nvme::Cqe::new(Cid(cid), Status::COMMAND_SEQUENCE_ERROR.dnr().more())
}

#[test]
fn a_withdrawn_event_request_frees_its_slot_and_other_commands_are_not_withdrawn() {
    let mut world = World::with(Limits { async_events: 2, ..Limits::default() }, model());
    let at = world.open();
    let connect = Connect { entries: 4, ..admin_connect() };
    world.connect(at, connect, &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
    assert!(world.run(at, Property::set(offset::CC, Cc::ENABLE.0)).status().is_success());
    let submit = |world: &mut World, sqe: Sqe| world.queues.get_mut(&at).unwrap().submit(&sqe, 0);
    let abort = || Sqe::new(admin::ABORT).with_cdw(10, 1 | 7 << 16);
    let keep = [
        submit(&mut world, with_cid(Sqe::new(REQUEST), 100)),
        submit(&mut world, with_cid(Sqe::new(REQUEST), 101)),
        submit(&mut world, with_cid(abort(), 102)),
        submit(&mut world, with_cid(abort(), 103)),
    ];
    assert_eq!(world.queues[&at].outstanding(), 4, "{keep:?}");
    // The queue is full, but a command may replace a request: even another request.
    let again = submit(&mut world, with_cid(Sqe::new(REQUEST), 100));
    assert_eq!(again, Step::Withdrawn(Box::new(Step::Held)), "the link gives the host its entry back");
    let Step::Withdrawn(next) = submit(&mut world, with_cid(Property::get(offset::VS, 4), 101)) else { panic!() };
    let Step::Complete(cqe) = *next else { panic!() };
    assert!(cqe.status().is_success());
    // A command with the identifier of any other outstanding command is refused.
    let Step::Complete(cqe) = submit(&mut world, with_cid(Property::get(offset::VS, 4), 102)) else { panic!() };
    assert_eq!(cqe.status(), Status::CID_CONFLICT.dnr().more());
    // The event completes the replacing request, once.
    let table = NamespaceTable::new(vec![namespace(1)]).unwrap();
    world.replace_model(|model| Arc::make_mut(&mut model.subsystems[0]).namespaces = table);
    assert_eq!(world.events.iter().map(|(_, cqe)| cqe.cid()).collect::<Vec<_>>(), [Cid(100)]);
    for step in keep.into_iter().skip(2) {
        assert!(world.carry_out(at, step, &[]).status().is_success());
    }
    assert_eq!(world.queues[&at].outstanding(), 0);
}

// @test wire.unusual-hosts
#[test]
fn spdk_bdevio_tries_an_opcode_that_is_reserved_for_fabrics() {
    let mut world = World::new();
    let (_, cntlid) = world.controller(DRIVE, ALICE);
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    // Its namespace, 1, is FCTYPE of Connect.
    for fctype in [0, 1, 2, 4, 5, 6, 9, 0xff] {
        let done = world.run(io, Sqe::new(FABRICS).with_nsid(Nsid(fctype)));
        assert_eq!(done.status(), Status::INVALID_OPCODE.dnr().more(), "FCTYPE {fctype:02x}h");
    }
    assert!(world.run(io, disconnect()).status().is_success());
}

// @test wire.admin-queue-size
#[test]
fn small_io_queues_do_not_limit_the_admin_queue() {
    for most in [2, 16, 31] {
        let mut model = model();
        model.ports[0] = Port { max_queue_entries: most, ..model.ports[0].clone() };
        let mut world = World::with(Limits::default(), model);
        for subsystem in [DRIVE, Nqn::DISCOVERY] {
            let (admin, _) = world.controller(subsystem, ALICE);
            assert_eq!(world.queues[&admin].commands_max(), 32);
        }
        let (admin, cntlid) = world.controller(DRIVE, ALICE);
        assert_eq!(world.run(admin, Property::get(offset::CAP, 8)).result() & 0xffff, u64::from(most) - 1, "CAP.MQES");
        let io = world.open();
        let connect = Connect { qid: QueueId(1), entries: u32::from(most) + 1, ..admin_connect() };
        let (_, refusal) = world.connect(io, connect, &connect_data(DRIVE, ALICE, cntlid));
        assert_eq!(refusal.unwrap().reason, RefusalReason::QueueSize);
        let connect = Connect { entries: most.into(), ..connect };
        assert_eq!(world.connect(io, connect, &connect_data(DRIVE, ALICE, cntlid)).1, None);
        // No more than 32 if that is above the limit.
        let deep = world.open();
        let connect = Connect { entries: 33, ..admin_connect() };
        let (_, refusal) = world.connect(deep, connect, &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
        assert_eq!(refusal.unwrap().reason, RefusalReason::QueueSize);
    }
}

// @test wire.unusual-hosts
#[test]
fn nvme_stas_requests_local_entries_at_a_discovery_port() {
    let mut world = World::new();
    world.replace_model(|model| {
        // In addition to the discovery port (2): the same address, a wildcard, and another address.
        let mut far = port(5, "192.0.2.2", "4420");
        far.traddr = "192.0.2.2".to_string();
        model.ports.extend([port(4, "192.0.2.1", "4420"), far, port(6, "2001:db8::1", "4420")]);
        Arc::make_mut(&mut model.subsystems[1]).allow_any_host = true;
        Arc::make_mut(&mut model.subsystems[0]).ports = [1, 4, 5, 6].map(ebof_fabrics::PortId).to_vec();
        Arc::make_mut(&mut model.subsystems[1]).ports = [5].map(ebof_fabrics::PortId).to_vec();
    });
    world.port = ebof_fabrics::PortId(2);
    world.local = "192.0.2.1".to_string();
    let (at, _) = world.controller(Nqn::DISCOVERY, ALICE);
    assert_eq!(subsystems(&mut world, at, 0).len(), 6);
    // The wildcard includes this address, and port 4 has it; the other two do not.
    assert_eq!(subsystems(&mut world, at, 2), [OWN_DISCOVERY, DRIVE, DRIVE]);
}

// @test wire.unusual-hosts
#[test]
fn libnvme_1_3_uses_tls_if_a_secure_channel_is_not_required() {
    let mut world = World::new();
    let (at, _) = world.controller(Nqn::DISCOVERY, ALICE);
    let get = Sqe::new(admin::GET_LOG_PAGE).with_cdw(10, 0x70 | 4095 << 16);
    let page = world.run(at, with_data(get, 16 * 1024)).data;
    let (_, mut entries) = DiscoveryEntries::new(&page).unwrap();
    assert!(entries.all(|entry| entry.requirements().secure_channel_required().is_none()), "TREQ says nothing of one");
}

#[test]
fn a_local_port_is_recognised_by_any_form_of_its_address() {
    let mut world = World::new();
    world.replace_model(|model| {
        model.ports = vec![port(1, "2001:0db8:0:0::1", "8009"), port(2, "2001:db8::1", "4420")];
        model.subsystems.truncate(1);
        Arc::make_mut(&mut model.subsystems[0]).ports = vec![ebof_fabrics::PortId(2)];
    });
    world.local = "2001:db8::1".to_string();
    let (at, _) = world.controller(Nqn::DISCOVERY, ALICE);
    assert_eq!(subsystems(&mut world, at, 2), [OWN_DISCOVERY, DRIVE]);
    // IPv4 as a dual-stack socket reports it.
    world.replace_model(|model| model.ports = vec![port(1, "::ffff:192.0.2.1", "8009"), port(2, "192.0.2.1", "4420")]);
    assert_eq!(subsystems(&mut world, at, 2), [OWN_DISCOVERY, DRIVE]);
    // Another transport is another address.
    world.replace_model(|model| model.ports[1].trtype = TrType::RDMA);
    assert_eq!(subsystems(&mut world, at, 2), [OWN_DISCOVERY]);
}

// @test wire.zero-host-identifier
#[test]
fn a_host_identifier_of_zeros_is_a_separate_host_without_reservations() {
    let mut world = World::managed();
    let zeros = |host| ConnectData { hostid: [0; 16], ..connect_data(MANAGED, host, ControllerId::DYNAMIC) };
    let mut admins = Vec::new();
    for host in [ALICE, BOB] {
        let at = world.open();
        let (cqe, refusal) = world.connect(at, admin_connect(), &zeros(host));
        assert_eq!(refusal, None, "two controllers with zeros are of two hosts");
        assert!(world.run(at, Property::set(offset::CC, Cc::ENABLE.0)).status().is_success());
        world.tell_drive(at, &ebof_drive::Request::AssignCntlid);
        admins.push((at, ConnectResult::connected(cqe.result()).0));
    }
    let (alice, cntlid) = admins[0];
    let data = world.run(alice, identify(1, 0, 0)).data;
    let data = IdentifyController::ref_from_bytes(&data).unwrap();
    assert_ne!(data.ctratt.get() & ctratt::RESERVATION_HOST_ID, 0, "RHII");
    let id = world.run(alice, with_data(Sqe::new(admin::GET_FEATURES).with_cdw(10, 0x81).with_cdw(11, 1), 16)).data;
    assert_eq!(id, [0; 16]);
    // Every reservation command is refused with this status, including Reservation Report.
    create_namespace(&mut world, alice, cntlid);
    let io = world.open();
    let connect = Connect { qid: QueueId(1), ..admin_connect() };
    world.connect(io, connect, &ConnectData { cntlid: cntlid.0.into(), ..zeros(ALICE) });
    let queues = world.registry.queues_of(&nqn(MANAGED), HostId::default());
    assert!(queues.is_empty(), "who has no identifier is nobody that could be preempted");
    let report = with_data(Sqe::new(nvm::RESERVATION_REPORT).with_cdw(10, 1023).with_cdw(11, 1), 4096);
    let sixteen = |opcode| with_data(Sqe::new(opcode), 16);
    let release = with_data(Sqe::new(nvm::RESERVATION_RELEASE), 8);
    let commands = [sixteen(nvm::RESERVATION_REGISTER), sixteen(nvm::RESERVATION_ACQUIRE), release, report];
    for sqe in commands {
        let done = world.run_with(io, sqe.with_nsid(Nsid(1)), &[1; 16]);
        assert_eq!(done.status(), Status::HOST_ID_NOT_INITIALIZED.dnr().more(), "opcode {:02x}h", sqe.opcode);
    }
    // Discovery announces it: ZHIDS.
    let (discovery, _) = world.controller(Nqn::DISCOVERY, ALICE);
    let get = Sqe::new(admin::GET_LOG_PAGE).with_cdw(10, 0x70 | 4095 << 16);
    let page = world.run(discovery, with_data(get, 16 * 1024)).data;
    let (_, mut entries) = DiscoveryEntries::new(&page).unwrap();
    assert!(entries.all(|entry| entry.treq & Treq::ZERO_HOST_ID.0 != 0));
}

/// Namespace 1 on the managed drive, attached to the controller.
fn create_namespace(world: &mut World, at: u64, cntlid: ControllerId) {
    let mut data = vec![0; 4096];
    data[0..8].copy_from_slice(&2048_u64.to_le_bytes());
    data[8..16].copy_from_slice(&2048_u64.to_le_bytes());
    data[30] = 1;
    let create = with_data(Sqe::new(admin::NAMESPACE_MANAGEMENT), 4096);
    let done = world.run_with(at, create, &data);
    assert!(done.status().is_success(), "{}", done.status());
    let mut list = vec![0; 4096];
    list[0] = 1;
    list[2..4].copy_from_slice(&cntlid.0.to_le_bytes());
    let attach = with_data(Sqe::new(admin::NAMESPACE_ATTACHMENT).with_nsid(Nsid(1)), 4096);
    assert!(world.run_with(at, attach, &list).status().is_success());
}

// @test wire.excess-data
#[test]
fn linux_sends_sixteen_bytes_with_every_reservation_command() {
    let mut world = World::managed();
    let (admin, cntlid) = world.controller(MANAGED, ALICE);
    create_namespace(&mut world, admin, cntlid);
    let io = world.io_queue(MANAGED, ALICE, cntlid, 1);
    let command = |opcode, cdw10| with_data(Sqe::new(opcode).with_nsid(Nsid(1)).with_cdw(10, cdw10), 16);
    let key = 0x1234_u64.to_le_bytes();
    let keys = |first: [u8; 8], second: [u8; 8]| [first, second].concat();
    let none = [0; 8];
    // Register, acquire (exclusive access), release, register again, clear.
    for (sqe, data) in [
        (command(nvm::RESERVATION_REGISTER, 0), keys(none, key)),
        (command(nvm::RESERVATION_ACQUIRE, 2 << 8), keys(key, none)),
        (command(nvm::RESERVATION_RELEASE, 2 << 8), keys(key, none)),
        (command(nvm::RESERVATION_RELEASE, 1), keys(key, none)),
    ] {
        let done = world.run_with(io, sqe, &data);
        assert_eq!(done.status(), Status::SUCCESS, "opcode {:02x}h", sqe.opcode);
    }
}

// @test wire.excess-data
#[test]
fn excess_parameter_data_are_accepted_and_ignored() {
    let mut world = World::managed();
    let (admin, cntlid) = world.controller(MANAGED, ALICE);
    create_namespace(&mut world, admin, cntlid);
    let io = world.io_queue(MANAGED, ALICE, cntlid, 1);
    let of = |opcode: u8| Sqe::new(opcode).with_nsid(Nsid(1));
    // To the host: only the existing data.
    let log = |bytes: u32| Sqe::new(admin::GET_LOG_PAGE).with_cdw(10, 2 | (bytes / 4 - 1) << 16);
    for (sqe, bytes) in [
        (with_data(identify(1, 0, 0), 8192), 4096),
        (with_data(log(512), 4096), 512),
        (with_data(Sqe::new(admin::GET_FEATURES).with_cdw(10, 0x16), 4096), 512),
    ] {
        let done = world.run(admin, sqe);
        assert_eq!((done.status(), done.data.len()), (Status::SUCCESS, bytes), "opcode {:02x}h", sqe.opcode);
    }
    let lba_status = GetLbaStatus { slba: 0, bytes: 64, action: StatusAction::ALLOCATED, blocks: 8 };
    let done = world.run(admin, with_data(lba_status.encode(Nsid(1)), 4096));
    assert_eq!((done.status(), done.data.len() <= 64), (Status::SUCCESS, true));
    let (discovery, _) = world.controller(Nqn::DISCOVERY, ALICE);
    assert_eq!(world.run(discovery, with_data(identify(1, 0, 0), 8192)).data.len(), 4096);
    let report = of(nvm::RESERVATION_REPORT).with_cdw(10, 15).with_cdw(11, 1);
    assert_eq!(world.run(io, with_data(report, 8192)).data.len(), 64);
    // From the host: only the needed data are requested.
    let receives = |world: &mut World, at, sqe| match world.queues.get_mut(&at).unwrap().submit(&with_cid(sqe, 900), 0)
    {
        Step::Execute(executing, Task::Receive) => {
            let bytes = executing.length();
            world.queues.get_mut(&at).unwrap().abandon(executing);
            bytes
        }
        step => panic!("{step:?}"),
    };
    assert_eq!(receives(&mut world, io, with_data(of(nvm::RESERVATION_REGISTER), 4096)), 16);
    assert_eq!(receives(&mut world, io, with_data(of(nvm::RESERVATION_RELEASE), 4096)), 8);
    assert_eq!(receives(&mut world, io, with_data(of(nvm::DATASET_MANAGEMENT).with_cdw(11, 4), 1 << 20)), 16);
    assert_eq!(receives(&mut world, io, with_data(of(nvm::COPY), 4096)), 32);
    let behavior = Sqe::new(admin::SET_FEATURES).with_cdw(10, 0x16);
    assert_eq!(receives(&mut world, admin, with_data(behavior, 4096)), 512);
    let download = Download { offset: 0, bytes: 1024 }.encode();
    assert_eq!(receives(&mut world, admin, with_data(download, 4096)), 1024);
    for opcode in [admin::NAMESPACE_MANAGEMENT, admin::NAMESPACE_ATTACHMENT] {
        let sqe = Sqe::new(opcode).with_nsid(Nsid(u32::from(opcode == admin::NAMESPACE_ATTACHMENT)));
        assert_eq!(receives(&mut world, admin, with_data(sqe, 8192)), 4096);
    }
    // Commands that have no data, sent with some.
    let commit = with_data(Sqe::new(admin::FIRMWARE_COMMIT).with_cdw(10, 1 | 2 << 3), 4096);
    assert!(!world.run(admin, commit).status().is(Status::DATA_SGL_LENGTH_INVALID));
    let self_test = with_data(Sqe::new(admin::DEVICE_SELF_TEST).with_cdw(10, 1), 4096);
    assert_eq!(world.run(admin, self_test).status(), Status::SUCCESS);
    // Fewer data are refused.
    let short = with_data(of(nvm::RESERVATION_RELEASE), 4);
    assert_eq!(world.run(io, short).status(), Status::DATA_SGL_LENGTH_INVALID.dnr().more());
    // Not for blocks: a host that sends more assumes larger blocks.
    for opcode in [nvm::READ, nvm::WRITE, nvm::COMPARE] {
        let done = world.run(io, with_data(of(opcode), 520));
        assert_eq!(done.status(), Status::DATA_SGL_LENGTH_INVALID.dnr().more(), "opcode {opcode:02x}h");
    }
    // Connect comes before a host can know of SGLS: its data are 1024 bytes.
    let at = world.open();
    let connect = with_data(admin_connect().encode(), 4096);
    let Step::Complete(refused) = world.queues.get_mut(&at).unwrap().submit(&connect, 0) else { panic!("it is taken") };
    assert_eq!(refused.status(), Status::DATA_SGL_LENGTH_INVALID.dnr());
    let delete = Sqe::new(admin::NAMESPACE_MANAGEMENT).with_nsid(Nsid(1)).with_cdw(10, 1);
    assert_eq!(world.run(admin, with_data(delete, 4096)).status(), Status::SUCCESS);
}

// @test wire.do-not-retry
#[test]
fn refusals_that_need_an_administrator_have_do_not_retry() {
    // With DNR Linux (6.10 and later) gives up immediately, otherwise it tries until ctrl_loss_tmo.
    // nvmet sets it in the same cases.
    let mut world = World::new();
    let (host, cntlid) = world.controller(DRIVE, ALICE);
    world.replace_model(|model| {
        let drive = Arc::make_mut(&mut model.subsystems[0]);
        drive.allow_any_host = false;
        drive.allowed_hosts = vec![nqn(BOB)];
    });
    assert_eq!(world.closes, [(host, CloseReason::HostNotAllowed)]);
    let again = world.open();
    let (cqe, _) = world.connect(again, admin_connect(), &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
    assert_eq!(cqe.status(), Status::CONNECT_INVALID_HOST.dnr());
    // A queue of a controller that has ended: the host may create a new association.
    let late = Connect { qid: QueueId(1), ..admin_connect() };
    let (cqe, _) = world.connect(again, late, &connect_data(DRIVE, ALICE, cntlid));
    assert!(!cqe.status().is_success() && cqe.status().dnr() != cqe.status(), "{}", cqe.status());
    world.replace_model(|model| {
        model.subsystems.remove(0);
    });
    let (cqe, _) = world.connect(again, admin_connect(), &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
    assert_eq!(cqe.status(), Status::CONNECT_INVALID_PARAMETERS.dnr());
    // Missing only while a reload reopens its drive.
    world.replace_model(|model| model.returning = vec![nqn(DRIVE)]);
    let (cqe, refusal) = world.connect(again, admin_connect(), &connect_data(DRIVE, ALICE, ControllerId::DYNAMIC));
    assert_eq!(refusal.unwrap().reason, RefusalReason::SubsystemReturning);
    assert_eq!(cqe.status(), Status::CONNECT_INVALID_PARAMETERS);
    // So are its functions.
    for (function, reason) in [("3", RefusalReason::SubsystemReturning), ("x", RefusalReason::UnknownSubsystem)] {
        let data = connect_data(&format!("{DRIVE}:vf{function}"), ALICE, ControllerId::DYNAMIC);
        let (_, refusal) = world.connect(again, admin_connect(), &data);
        assert_eq!(refusal.unwrap().reason, reason, "{function}");
    }
}

/// nvme-cli 2.x: `effects-log` also requests the zoned commands if there are several command sets.
#[test]
fn nvme_cli_requests_the_effects_of_zoned_commands() {
    let mut world = World::new();
    let (at, _) = world.controller(DRIVE, ALICE);
    let get_log = with_data(Sqe::new(admin::GET_LOG_PAGE).with_cdw(10, 5 | (4096 / 4 - 1) << 16), 4096);
    let nvm = world.run(at, get_log).data;
    let zoned = world.run(at, get_log.with_cdw(14, 2 << 24)).data;
    assert_eq!(nvm[..1024], zoned[..1024], "the admin commands are the same");
    assert!(nvm[1024..2048].iter().any(|&byte| byte != 0));
    assert!(zoned[1024..].iter().all(|&byte| byte == 0), "no zoned command is supported");
}
