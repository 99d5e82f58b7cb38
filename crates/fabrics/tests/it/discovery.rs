//! The discovery controller: its log page for each host, and when it changes.

use ebof_fabrics::{PortId, Referral, TlsUse};
use ebof_nvme::log::{AddressFamily, DiscoveryEntries, SupportedLogPages, TrType};
use ebof_nvme::opcode::admin;
use ebof_nvme::{Nqn, Nsid, Sqe, Status};
use zerocopy::FromBytes;

use crate::support::{ALICE, BOB, DRIVE, OTHER, OWN_DISCOVERY, World, dump, nqn, port, with_data};

fn get_log(lid: u8, bytes: u32, offset: u32) -> Sqe {
    let sqe = Sqe::new(admin::GET_LOG_PAGE).with_cdw(10, u32::from(lid) | (bytes / 4 - 1) << 16).with_cdw(12, offset);
    with_data(sqe, bytes)
}

pub(crate) fn log(world: &mut World, at: u64) -> Vec<u8> {
    let done = world.run(at, get_log(0x70, 16 * 1024, 0));
    assert!(done.status().is_success());
    done.data
}

/// Hosts that ask at a port are told of other discovery controllers, and of a change.
#[test]
fn a_port_refers_hosts_to_other_discovery_controllers() {
    let mut world = World::new();
    let refer = |trtype, adrfam, traddr: &str, tls| Referral {
        trtype,
        adrfam,
        traddr: traddr.to_string(),
        trsvcid: "8009".to_string(),
        tls,
    };
    let (at, _) = world.controller(Nqn::DISCOVERY, ALICE);
    world.run(at, Sqe::new(admin::ASYNC_EVENT_REQUEST));
    world.replace_model(|model| {
        model.ports[0].referrals = vec![
            refer(TrType::TCP, AddressFamily::IPV4, "192.0.2.7", TlsUse::Off),
            refer(TrType::TCP, AddressFamily::IPV6, "2001:db8::7", TlsUse::Required),
            refer(TrType::RDMA, AddressFamily::IPV4, "192.0.2.8", TlsUse::Off),
        ];
    });
    assert_eq!(world.events.len(), 1);
    let page = log(&mut world, at);
    let discovery = Nqn::DISCOVERY;
    let referrals = ["192.0.2.7", "2001:db8::7", "192.0.2.8"].map(|address| format!("1 {discovery} {address}:8009"));
    assert_eq!(seen(&page).1[3..], referrals);
    let (_, entries) = DiscoveryEntries::new(&page).unwrap();
    let fields: Vec<_> = entries.skip(3).map(|e| (e.trtype, e.adrfam, e.treq & 3, e.cntlid.get())).collect();
    assert_eq!(fields, [(3, 1, 0, 0xffff), (3, 2, 1, 0xffff), (1, 1, 0, 0xffff)]);
    // Another port refers to nobody.
    world.port = PortId(2);
    let (other, _) = world.controller(Nqn::DISCOVERY, ALICE);
    let page = log(&mut world, other);
    assert!(seen(&page).1.iter().all(|entry| !entry.starts_with("1 ")));
}

/// GENCTR and, for each entry, SUBNQN, address and TCP port.
fn seen(page: &[u8]) -> (u64, Vec<String>) {
    let (header, entries) = DiscoveryEntries::new(page).unwrap();
    assert_eq!(header.numrec.get(), entries.len() as u64);
    let entries = entries.map(|e| format!("{} {} {}:{}", e.subtype, e.subsystem_nqn(), e.address(), e.service_id()));
    (header.genctr.get(), entries.collect())
}

#[test]
fn the_log_page_has_the_layout_of_the_specification() {
    let mut world = World::new();
    let (at, _) = world.controller(Nqn::DISCOVERY, ALICE);
    insta::assert_snapshot!(dump(&log(&mut world, at)));
}

// @test wire.discovery
#[test]
fn each_host_sees_its_subsystems_at_the_address_that_it_uses() {
    let mut world = World::new();
    let (alice, _) = world.controller(Nqn::DISCOVERY, ALICE);
    let (bob, _) = world.controller(OWN_DISCOVERY, BOB);
    let own = format!("3 {OWN_DISCOVERY} 198.51.100.7:4420");
    let drive = format!("2 {DRIVE} 198.51.100.7:4420");
    let other = format!("2 {OTHER} 198.51.100.7:4420");
    let page = log(&mut world, alice);
    assert_eq!(seen(&page), (7, vec![own.clone(), drive.clone(), other]));
    let page = log(&mut world, bob);
    assert_eq!(seen(&page), (7, vec![own, drive.clone()]));
    // On the discovery port the entry about itself has that port's address.
    world.port = PortId(2);
    let (there, _) = world.controller(Nqn::DISCOVERY, BOB);
    let page = log(&mut world, there);
    assert_eq!(seen(&page).1, [format!("3 {OWN_DISCOVERY} 192.0.2.1:8009"), drive]);
    // Port local entries only: nothing else is served there.
    let done = world.run(there, {
        let s = get_log(0x70, 16 * 1024, 0);
        s.with_cdw(10, s.cdw10.get() | 2 << 8)
    });
    assert_eq!(seen(&done.data).1.len(), 1);
}

#[test]
fn a_wildcard_of_another_family_is_left_out() {
    let mut world = World::new();
    world.replace_model(|model| {
        model.ports.push(port(3, "::", "4421"));
        model.ports.push(port(4, "2001:db8::1", "4422"));
        std::sync::Arc::make_mut(&mut model.subsystems[0]).ports = vec![PortId(3), PortId(4)];
    });
    let (at, _) = world.controller(Nqn::DISCOVERY, BOB);
    let page = log(&mut world, at);
    assert_eq!(seen(&page).1[1..], [format!("2 {DRIVE} 2001:db8::1:4422")]);
}

#[test]
fn the_log_can_be_read_in_pieces() {
    let mut world = World::new();
    let (at, _) = world.controller(Nqn::DISCOVERY, ALICE);
    let whole = log(&mut world, at);
    // The requested length: the records are followed by zeros.
    let (whole, rest) = whole.split_at(4 * 1024);
    assert!(rest.iter().all(|&byte| byte == 0));
    let mut pieces = Vec::new();
    for offset in (0..5 * 1024).step_by(1024) {
        pieces.extend(world.run(at, get_log(0x70, 1024, offset)).data);
        if pieces.len() == whole.len() {
            break;
        }
    }
    assert_eq!(pieces, whole);
    assert_eq!(world.run(at, get_log(0x70, 1024, 4096)).data, [0_u8; 1024]);
    assert_eq!(world.run(at, get_log(0x70, 1024, 4100)).status(), Status::INVALID_FIELD.dnr().more());
}

#[test]
fn hosts_are_notified_of_changes_that_they_can_see() {
    let mut world = World::new();
    let (alice, _) = world.controller(Nqn::DISCOVERY, ALICE);
    let (bob, _) = world.controller(Nqn::DISCOVERY, BOB);
    for at in [alice, bob] {
        assert_eq!(world.run(at, Sqe::new(admin::ASYNC_EVENT_REQUEST)).cqe, None);
    }
    // Only Alice may use the second subsystem, so only she is notified of its removal.
    world.replace_model(|model| {
        model.subsystems.remove(1);
    });
    let told: Vec<_> = world.events.iter().map(|(at, cqe)| (*at, cqe.result())).collect();
    assert_eq!(told, [(alice, 0x0070_f002)]);
    let page = log(&mut world, alice);
    assert_eq!((seen(&page).0, seen(&page).1.len()), (8, 2));
    // A change of namespaces does not affect discovery.
    world.replace_model(|model| {
        std::sync::Arc::make_mut(&mut model.subsystems[0]).namespaces = ebof_fabrics::NamespaceTable::default();
    });
    assert_eq!(world.events.len(), 1);
    world.replace_model(|model| {
        std::sync::Arc::make_mut(&mut model.subsystems[0]).nqn = nqn(OTHER);
    });
    assert_eq!(world.events.len(), 2, "Alice has no request outstanding, Bob has");
    // Alice's event waits for the next request.
    world.run(alice, Sqe::new(admin::ASYNC_EVENT_REQUEST));
    assert_eq!(world.events[2].1.result(), 0x0070_f002);
}

#[test]
fn a_discovery_controller_does_nothing_else() {
    let mut world = World::new();
    let (at, _) = world.controller(Nqn::DISCOVERY, ALICE);
    let feature = |opcode, fid, value| Sqe::new(opcode).with_cdw(10, fid).with_cdw(11, value);
    let field = Status::INVALID_FIELD.dnr();
    let rows = [
        ("identify namespaces", with_data(Sqe::new(admin::IDENTIFY), 4096).with_cdw(10, 2), field),
        ("SMART log", get_log(2, 512, 0), Status::INVALID_LOG_PAGE.dnr()),
        ("supported log pages", get_log(0, 1024, 0), Status::SUCCESS),
        ("feature effects", get_log(0x12, 1024, 0), Status::SUCCESS),
        ("number of queues", feature(admin::SET_FEATURES, 7, 1), field),
        ("keep alive timer", feature(admin::SET_FEATURES, 0xf, 5000), Status::SUCCESS),
        ("events of namespaces", feature(admin::SET_FEATURES, 0xb, 1 << 8), field),
        ("events of discovery", feature(admin::SET_FEATURES, 0xb, 1 << 31), Status::SUCCESS),
        ("keep alive", Sqe::new(admin::KEEP_ALIVE), Status::SUCCESS),
        ("abort", Sqe::new(admin::ABORT), Status::INVALID_OPCODE.dnr()),
        ("log of a namespace", get_log(0x70, 1024, 0).with_nsid(Nsid(1)), Status::INVALID_NAMESPACE.dnr()),
    ];
    for (name, sqe, status) in rows {
        let expected = if status.is_success() { status } else { status.more() };
        assert_eq!(world.run(at, sqe).status(), expected, "{name}");
    }
    let pages = world.run(at, get_log(0, 1024, 0)).data;
    let pages: Vec<u8> = SupportedLogPages::ref_from_bytes(&pages).unwrap().iter().map(|(lid, _)| lid.0).collect();
    assert_eq!(pages, [0x00, 0x12, 0x70]);
}
