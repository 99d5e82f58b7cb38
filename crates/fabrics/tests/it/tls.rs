//! Connections over TLS: a PSK is a proof of one host's name at one subsystem, a subsystem may want
//! one, and discovery tells where.

use std::sync::Arc;

use ebof_authentication::response::Names;
use ebof_fabrics::{Channel, CloseReason, PskSource, RefusalReason, TlsPeer, TlsUse};
use ebof_nvme::connect::{Connect, Property};
use ebof_nvme::log::{DiscoveryEntries, DiscoveryEntry, SecType, Treq};
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::{ControllerId, Nqn, QueueId, Status};

use crate::discovery::log;
use crate::support::{ALICE, BOB, DRIVE, World, admin_connect, connect_data, nqn};

const DISCOVERY: &str = Nqn::DISCOVERY;

/// A connection of the host and subsystem that a PSK is of.
fn channel(host: &str, subsystem: &str) -> Channel {
    let names = Names { host: nqn(host), subsystem: nqn(subsystem) };
    Channel::Tls(Box::new(TlsPeer { names, psk: PskSource::Configured }))
}

/// A world in which both have a PSK; `tls_only` is the drive's.
fn world(tls_only: bool) -> World {
    let mut world = World::new();
    world.replace_model(|model| {
        model.tls_psks.extend([ALICE, BOB].map(|host| (nqn(host), Arc::default())));
        Arc::make_mut(&mut model.subsystems[0]).tls_only = tls_only;
    });
    world
}

/// Why a Connect through `channel` is refused; `None` if it is not.
fn refused(world: &mut World, channel: Channel, subsystem: &str, host: &str) -> Option<RefusalReason> {
    world.channel = channel;
    let at = world.open();
    let (cqe, refusal) = world.connect(at, admin_connect(), &connect_data(subsystem, host, ControllerId::DYNAMIC));
    assert_eq!(cqe.status().is_success(), refusal.is_none());
    let refusal = refusal?;
    assert!(cqe.status().is(Status::CONNECT_INVALID_HOST) && cqe.status().is_dnr());
    Some(refusal.reason)
}

/// Alice's Admin Queue over TLS, enabled.
fn secured(world: &mut World) -> (u64, ControllerId) {
    world.channel = channel(ALICE, DRIVE);
    let (at, cntlid) = world.controller(DRIVE, ALICE);
    assert!(world.run(at, Property::set(offset::CC, Cc::ENABLE.0)).status().is_success());
    (at, cntlid)
}

fn io_queue(world: &mut World, cntlid: ControllerId, qid: u16) -> Option<RefusalReason> {
    let at = world.open();
    let connect = Connect { qid: QueueId(qid), entries: 64, ..admin_connect() };
    world.connect(at, connect, &connect_data(DRIVE, ALICE, cntlid)).1.map(|refusal| refusal.reason)
}

#[test]
fn a_psk_proves_one_host_at_one_subsystem() {
    let mut world = world(true);
    assert_eq!(refused(&mut world, channel(ALICE, DRIVE), DRIVE, ALICE), None);
    assert_eq!(refused(&mut world, channel(ALICE, DISCOVERY), DISCOVERY, ALICE), None);
    for (of_psk, subsystem, host) in [
        ((ALICE, DRIVE), DRIVE, BOB),
        ((ALICE, DISCOVERY), DRIVE, ALICE),
        ((ALICE, DRIVE), DISCOVERY, ALICE),
        ((BOB, DRIVE), DRIVE, ALICE),
    ] {
        let channel = channel(of_psk.0, of_psk.1);
        assert_eq!(refused(&mut world, channel, subsystem, host), Some(RefusalReason::TlsIdentity), "{of_psk:?}");
    }
}

#[test]
fn a_subsystem_may_refuse_hosts_without_tls() {
    let mut world = world(true);
    assert_eq!(refused(&mut world, Channel::Plain, DRIVE, ALICE), Some(RefusalReason::TlsRequired));
    assert_eq!(refused(&mut world, Channel::Plain, DISCOVERY, ALICE), None);
}

/// Nobody takes a controller over TLS to a connection without, or the reverse.
#[test]
fn all_queues_of_a_controller_are_over_tls_or_none() {
    let mut world = world(false);
    let (_, cntlid) = secured(&mut world);
    assert_eq!(io_queue(&mut world, cntlid, 1), None);
    world.channel = Channel::Plain;
    assert_eq!(io_queue(&mut world, cntlid, 2), Some(RefusalReason::OtherHost));
    world.channel = channel(ALICE, DISCOVERY);
    assert_eq!(io_queue(&mut world, cntlid, 2), Some(RefusalReason::TlsIdentity));

    world.channel = Channel::Plain;
    let (at, cntlid) = world.controller(DRIVE, BOB);
    assert!(world.run(at, Property::set(offset::CC, Cc::ENABLE.0)).status().is_success());
    world.channel = channel(BOB, DRIVE);
    let data = connect_data(DRIVE, BOB, cntlid);
    let connect = Connect { qid: QueueId(1), entries: 64, ..admin_connect() };
    let at = world.open();
    assert_eq!(world.connect(at, connect, &data).1.unwrap().reason, RefusalReason::OtherHost);
}

#[test]
fn hosts_lose_controllers_that_lack_tls_from_now_on_or_their_psk() {
    let mut world = world(false);
    let (secured, _) = secured(&mut world);
    world.channel = Channel::Plain;
    let (plain, _) = world.controller(DRIVE, BOB);
    world.replace_model(|model| Arc::make_mut(&mut model.subsystems[0]).tls_only = true);
    assert_eq!(world.closed(plain), Some(CloseReason::TlsDemanded));
    assert_eq!(world.closed(secured), None);
    world.channel = channel(ALICE, DISCOVERY);
    let (discovery, _) = world.controller(DISCOVERY, ALICE);
    world.replace_model(|model| model.tls_psks.clear());
    assert_eq!(world.closed(secured), Some(CloseReason::KeyRemoved));
    assert_eq!(world.closed(discovery), Some(CloseReason::KeyRemoved));
    // A handshake of before counts no more.
    assert_eq!(refused(&mut world, channel(ALICE, DRIVE), DRIVE, ALICE), Some(RefusalReason::TlsIdentity));
}

/// A connection that came before the port wanted TLS is none that has it.
#[test]
fn a_port_that_wants_tls_from_now_on_has_no_connections_without() {
    let mut world = world(false);
    let (secured, _) = secured(&mut world);
    world.channel = Channel::Plain;
    let (plain, _) = world.controller(DRIVE, BOB);
    let (discovery, _) = world.controller(DISCOVERY, BOB);
    world.replace_model(|model| model.ports.iter_mut().for_each(|port| port.tls = TlsUse::Required));
    for (at, reason) in
        [(plain, Some(CloseReason::TlsDemanded)), (discovery, Some(CloseReason::TlsDemanded)), (secured, None)]
    {
        assert_eq!(world.closed(at), reason);
    }
    assert_eq!(refused(&mut world, Channel::Plain, DRIVE, BOB), Some(RefusalReason::TlsRequired));
    assert_eq!(refused(&mut world, Channel::Plain, DISCOVERY, BOB), Some(RefusalReason::TlsRequired));
}

/// What the log of a port like this says of the drive.
fn entry_of(tls: TlsUse, tls_only: bool) -> Option<DiscoveryEntry> {
    let mut world = world(tls_only);
    world.replace_model(|model| model.ports.iter_mut().for_each(|port| port.tls = tls));
    world.channel = if tls == TlsUse::Off { Channel::Plain } else { channel(ALICE, DISCOVERY) };
    let (at, _) = world.controller(DISCOVERY, ALICE);
    let page = log(&mut world, at);
    let (_, mut entries) = DiscoveryEntries::new(&page).unwrap();
    entries.find(|entry| entry.subsystem_nqn() == DRIVE).cloned()
}

#[test]
fn discovery_tells_where_tls_is_spoken_and_where_it_must_be() {
    for (tls, tls_only, security, treq) in [
        (TlsUse::Off, false, SecType::NONE, 0),
        (TlsUse::Allowed, false, SecType::TLS_1_3, Treq::SECURE_CHANNEL_NOT_REQUIRED.0),
        (TlsUse::Allowed, true, SecType::TLS_1_3, Treq::SECURE_CHANNEL_REQUIRED.0),
        (TlsUse::Required, false, SecType::TLS_1_3, Treq::SECURE_CHANNEL_REQUIRED.0),
    ] {
        let entry = entry_of(tls, tls_only).unwrap();
        assert_eq!((entry.security(), entry.treq & 3), (Some(security), treq), "{tls:?} {tls_only}");
    }
    assert!(entry_of(TlsUse::Off, true).is_none(), "nobody is admitted there");
}
