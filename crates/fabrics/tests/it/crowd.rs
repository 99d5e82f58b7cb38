//! Many who say that they are a host, and prove nothing: the host comes all the same, and so do
//! others.

use std::collections::BTreeSet;
use std::sync::Arc;

use ebof_authentication::host::{Credentials, Offer, Proof, Refusal};
use ebof_authentication::message::SecureChannel;
use ebof_authentication::response::Names;
use ebof_authentication::{Group, HostEnd};
use ebof_fabrics::{CloseReason, HostSecrets, Limits, WAITING_MAX};
use ebof_nvme::connect::ConnectResult;
use ebof_nvme::{ControllerId, Status};

use crate::authentication::{authenticate_with, secret};
use crate::support::{ALICE, BOB, DRIVE, MANAGED, World, admin_connect, connect_data, model, nqn};

/// Alice has a secret, and Bob has none.
fn world(limits: Limits) -> World {
    let mut world = World::with(limits, model());
    give_secret(&mut world, ALICE);
    world
}

fn give_secret(world: &mut World, host: &str) {
    let secrets = HostSecrets { host: vec![secret(1)], controller: None };
    world.replace_model(|model| {
        model.secrets.insert(nqn(host), Arc::new(secrets));
        model.authentication.groups = vec![Group::Null];
    });
}

/// Connects an Admin Queue from a network; how that ends.
fn try_connect(world: &mut World, network: &str, subsystem: &str, host: &str) -> (u64, Status, ControllerId) {
    world.network = network.to_string();
    let at = world.open();
    let (cqe, _) = world.connect(at, admin_connect(), &connect_data(subsystem, host, ControllerId::DYNAMIC));
    (at, cqe.status(), ConnectResult::connected(cqe.result()).0)
}

fn connect(world: &mut World, network: &str, host: &str) -> u64 {
    let (at, status, _) = try_connect(world, network, DRIVE, host);
    assert!(status.is_success(), "{host} from {network}: {status}");
    at
}

fn prove(world: &mut World, at: u64, subsystem: &str) -> Result<Proof, Refusal> {
    let names = Names { host: nqn(ALICE), subsystem: nqn(subsystem) };
    let credentials = Credentials { names, host: secret(1), controller: None };
    authenticate_with(world, at, &mut HostEnd::new(credentials, Offer::everything(SecureChannel::None)), 200)
}

fn waiting(world: &World) -> usize {
    world.queues.values().filter(|queue| queue.is_connected() && !queue.is_open() && !queue.is_closing()).count()
}

/// By those who have her name, in however many connections from elsewhere.
// @test wire.unproven-hosts
#[test]
fn a_host_is_not_kept_out_by_those_who_have_its_name() {
    let mut world = world(Limits::default());
    for _ in 0..500 {
        connect(&mut world, "198.51.100.1", ALICE);
    }
    assert_eq!(waiting(&world), WAITING_MAX);
    let alice = connect(&mut world, "192.0.2.7", ALICE);
    for _ in 0..500 {
        connect(&mut world, "198.51.100.1", ALICE);
        connect(&mut world, "198.51.100.2", ALICE);
    }
    assert_eq!((waiting(&world), world.closed(alice)), (WAITING_MAX, None));
    prove(&mut world, alice, DRIVE).unwrap();
    assert!(world.queues[&alice].is_open());
    // What is proven makes room for nobody.
    for _ in 0..500 {
        connect(&mut world, "192.0.2.7", ALICE);
    }
    assert_eq!(world.closed(alice), None);
    assert!(world.closes.iter().all(|(_, reason)| *reason == CloseReason::MadeRoom));
}

/// From its own network the oldest makes room, so that the host has as long as so many take.
#[test]
fn where_all_come_from_one_network_the_latest_stay() {
    let mut world = world(Limits::default());
    for _ in 0..100 {
        connect(&mut world, "192.0.2.7", ALICE);
    }
    let alice = connect(&mut world, "192.0.2.7", ALICE);
    for _ in 1..WAITING_MAX {
        connect(&mut world, "192.0.2.7", ALICE);
    }
    prove(&mut world, alice, DRIVE).unwrap();
}

#[test]
fn controller_ids_are_there_for_others() {
    for subsystem in [DRIVE, MANAGED] {
        let mut world = if subsystem == MANAGED { World::managed() } else { World::new() };
        give_secret(&mut world, ALICE);
        world.replace_model(|model| {
            let all = model.subsystems.iter_mut().filter(|of| of.nqn.as_str() == subsystem);
            all.for_each(|of| Arc::make_mut(of).cntlid_max = ControllerId(4));
        });
        for _ in 0..20 {
            let (_, status, _) = try_connect(&mut world, "198.51.100.1", subsystem, ALICE);
            assert!(status.is_success(), "{subsystem}: {status}");
        }
        let (alice, status, first) = try_connect(&mut world, "192.0.2.7", subsystem, ALICE);
        assert!(status.is_success());
        let (bob, status, second) = try_connect(&mut world, "192.0.2.8", subsystem, BOB);
        assert!(status.is_success() && world.queues[&bob].is_open(), "{subsystem}: {status}");
        prove(&mut world, alice, subsystem).unwrap();
        assert_ne!(first, second);
        // What is in use stays so.
        let shown: BTreeSet<_> = world.registry.controllers().map(|controller| controller.cntlid).collect();
        assert_eq!(shown, BTreeSet::from([first, second]));
    }
}

/// By the names of many hosts.
#[test]
fn all_that_wait_together_are_no_more_than_there_may_be_controllers() {
    let mut world = world(Limits { controllers: 40, ..Limits::default() });
    let name = |number: u32| format!("nqn.2014-08.org.example:blade{number}");
    (0..10).for_each(|number| give_secret(&mut world, &name(number)));
    for number in 0..500 {
        connect(&mut world, "198.51.100.1", &name(number % 10));
    }
    assert_eq!(waiting(&world), 40);
    let alice = connect(&mut world, "192.0.2.7", ALICE);
    for number in 0..500 {
        connect(&mut world, "198.51.100.1", &name(number % 10));
    }
    prove(&mut world, alice, DRIVE).unwrap();
    connect(&mut world, "192.0.2.8", BOB);
}
