//! What a host may do that has proven nothing: the table of docs/security.md, each cell of which is
//! tried.

use std::sync::Arc;

use ebof_authentication::controller::Policy;
use ebof_authentication::host::{Credentials, Offer};
use ebof_authentication::message::SecureChannel;
use ebof_authentication::response::Names;
use ebof_authentication::{Group, HostEnd};
use ebof_fabrics::HostSecrets;
use ebof_nvme::connect::{Connect, Property};
use ebof_nvme::feature::Fid;
use ebof_nvme::identify::Cns;
use ebof_nvme::namespace::NewNamespace;
use ebof_nvme::opcode::admin;
use ebof_nvme::property::{Cc, offset};
use ebof_nvme::{ControllerId, HostId, QueueId, Sqe};
use zerocopy::IntoBytes;

use crate::authentication::{authenticate_with, secret};
use crate::support::{ALICE, BOB, MANAGED, World, admin_connect, connect_data, host_id, nqn, with_data};

/// What is known of who Alice is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// A name, and no proof is demanded.
    Claim,
    /// A proof is demanded, and not given yet.
    Unproven,
    /// She has proven it.
    Proven,
}

/// Alice's Admin Queue.
struct Alice {
    world: World,
    at: u64,
    cntlid: ControllerId,
}

fn world(known: Known) -> World {
    let mut world = World::managed();
    if known != Known::Claim {
        demand(&mut world, ALICE);
    }
    world
}

fn demand(world: &mut World, host: &str) {
    let secrets = HostSecrets { host: vec![secret(1)], controller: None };
    world.replace_model(|model| {
        model.secrets.insert(nqn(host), Arc::new(secrets));
        model.authentication = Policy { groups: vec![Group::Null], ..Policy::default() };
    });
}

fn prove(world: &mut World, at: u64, host: &str) {
    let names = Names { host: nqn(host), subsystem: nqn(MANAGED) };
    let credentials = Credentials { names, host: secret(1), controller: None };
    let mut end = HostEnd::new(credentials, Offer::everything(SecureChannel::None));
    authenticate_with(world, at, &mut end, 200).unwrap();
}

/// A Connect of the Admin Queue; `None` if it is refused.
fn connect(world: &mut World, host: &str, id: HostId) -> Option<(u64, ControllerId)> {
    let at = world.open();
    let mut data = connect_data(MANAGED, host, ControllerId::DYNAMIC);
    data.hostid = id.0;
    let (cqe, refusal) = world.connect(at, admin_connect(), &data);
    refusal.is_none().then(|| (at, ebof_nvme::connect::ConnectResult::connected(cqe.result()).0))
}

impl Alice {
    fn new(known: Known) -> Self {
        let mut world = world(known);
        let (at, cntlid) = connect(&mut world, ALICE, host_id(ALICE)).unwrap();
        if known == Known::Proven {
            prove(&mut world, at, ALICE);
        }
        Self { world, at, cntlid }
    }

    fn may(&mut self, sqe: Sqe, data: &[u8]) -> bool {
        self.world.run_with(self.at, sqe, data).status().is_success()
    }

    fn enable(&mut self) -> bool {
        self.may(Property::set(offset::CC, Cc::ENABLE.0), &[])
    }

    /// An I/O queue that executes commands, as far as Alice can have one.
    fn io_queue(&mut self, known: Known) -> Option<u64> {
        self.enable();
        let at = self.world.open();
        let connect = Connect { qid: QueueId(1), entries: 64, ..admin_connect() };
        let refusal = self.world.connect(at, connect, &connect_data(MANAGED, ALICE, self.cntlid)).1;
        if known == Known::Proven && refusal.is_none() {
            prove(&mut self.world, at, ALICE);
        }
        (refusal.is_none() && self.world.queues[&at].is_open()).then_some(at)
    }
}

type Try = fn(Known) -> bool;

const ROWS: &[(&str, Try)] = &[
    ("connect an Admin Queue", |known| connect(&mut world(known), ALICE, host_id(ALICE)).is_some()),
    ("read properties (Property Get)", |known| Alice::new(known).may(Property::get(offset::CAP, 8), &[])),
    ("enable its controller (Property Set)", |known| Alice::new(known).enable()),
    ("Identify, log pages, features", |known| {
        let mut alice = Alice::new(known);
        alice.enable();
        alice.may(with_data(Sqe::new(admin::IDENTIFY).with_cdw(10, u32::from(Cns::CONTROLLER.0)), 4096), &[])
    }),
    ("Keep Alive", |known| {
        let mut alice = Alice::new(known);
        alice.enable();
        let timer = Sqe::new(admin::SET_FEATURES).with_cdw(10, u32::from(Fid::KEEP_ALIVE_TIMER.0)).with_cdw(11, 5000);
        alice.may(timer, &[]) && alice.may(Sqe::new(admin::KEEP_ALIVE), &[])
    }),
    ("manage namespaces, if it is a manager", |known| {
        let mut alice = Alice::new(known);
        alice.enable();
        let create = with_data(Sqe::new(admin::NAMESPACE_MANAGEMENT), 4096);
        alice.may(create, NewNamespace::new(64).as_bytes())
    }),
    ("I/O queues: reads, writes, reservations", |known| Alice::new(known).io_queue(known).is_some()),
    ("be among the controllers that are shown", |known| Alice::new(known).world.registry.controllers().count() == 1),
    ("use the host identifier of a host that is connected", |known| {
        let mut world = world(known);
        connect(&mut world, BOB, host_id(BOB)).unwrap();
        with_the_identifier_of_bob(&mut world, known)
    }),
    ("use the host identifier that another host has proven, and which is away", |known| {
        let mut world = world(known);
        demand(&mut world, BOB);
        let (at, _) = connect(&mut world, BOB, host_id(BOB)).unwrap();
        prove(&mut world, at, BOB);
        world.close(at);
        with_the_identifier_of_bob(&mut world, known)
    }),
];

fn with_the_identifier_of_bob(world: &mut World, known: Known) -> bool {
    let Some((at, _)) = connect(world, ALICE, host_id(BOB)) else { return false };
    if known == Known::Proven {
        prove(world, at, ALICE);
    }
    world.queues[&at].is_open()
}

// @test wire.unproven-hosts
#[test]
fn the_table_of_what_an_unproven_host_may_do_is_true() {
    let cell = |may: bool| if may { "yes" } else { "no" };
    let mut table = String::from(
        "| a host may | by a name, where no proof is demanded | before its proof | after it |\n|---|---|---|---|\n",
    );
    for (what, try_it) in ROWS {
        let [claim, unproven, proven] = [Known::Claim, Known::Unproven, Known::Proven].map(|known| cell(try_it(known)));
        table += &format!("| {what} | {claim} | {unproven} | {proven} |\n");
    }
    let docs = std::fs::read_to_string("../../docs/security.md").unwrap();
    assert!(docs.contains(&table), "docs/security.md has another table than this:\n{table}");
}
