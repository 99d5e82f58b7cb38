//! What controllers of each kind announce: Identify, log pages about commands and features, and the
//! features' values. A change of these is a change of what hosts see.

use std::fmt::Write;
use std::sync::Arc;

use ebof_nvme::identify::IdentifyController;
use ebof_nvme::log::{GetLogPage, Lid, TrType};
use ebof_nvme::namespace::{AttachmentSelect, NewNamespace};
use ebof_nvme::opcode::admin;
use ebof_nvme::{Nqn, Nsid, Sqe, Status};
use zerocopy::FromBytes;

use crate::events::set_feature;
use crate::managed::{attach, create};
use crate::support::{ALICE, BOB, DRIVE, MANAGED, World, dump, with_data};

fn identify(cns: u32, nsid: u32) -> Sqe {
    with_data(Sqe::new(admin::IDENTIFY).with_nsid(Nsid(nsid)).with_cdw(10, cns), 4096)
}

fn get_log(lid: u8, bytes: u32) -> Sqe {
    with_data(GetLogPage::new(Lid(lid), bytes.into()).encode(Nsid::NONE), bytes)
}

/// A drive with a namespace of 4096 blocks that is attached to its manager's controller, and that
/// controller.
fn drive() -> (World, u64) {
    let mut world = World::managed();
    let (at, _) = world.controller(MANAGED, ALICE);
    assert_eq!(create(&mut world, at, &NewNamespace::new(4096)).result(), 1);
    assert!(attach(&mut world, at, AttachmentSelect::Attach, Nsid(1), &[0]).status().is_success());
    (world, at)
}

/// The data of each command, or its status.
fn answers(world: &mut World, at: u64, commands: &[(&str, Sqe)]) -> String {
    commands.iter().fold(String::new(), |mut out, (name, sqe)| {
        let done = world.run(at, *sqe);
        let _ = match done.status().is_success() {
            true => writeln!(out, "# {name}\n{}", dump(&done.data)),
            false => writeln!(out, "# {name}: {}\n", done.status()),
        };
        out
    })
}

/// Linux enables what OAES announces, and no event at all if that is refused.
#[test]
fn every_event_that_is_announced_can_be_enabled() {
    let mut world = World::managed();
    for subsystem in [DRIVE, MANAGED, Nqn::DISCOVERY] {
        let (at, _) = world.controller(subsystem, ALICE);
        let data = world.run(at, identify(1, 0)).data;
        let oaes = IdentifyController::ref_from_bytes(&data).unwrap().oaes.get();
        assert_ne!(oaes, 0);
        assert_eq!(world.run(at, set_feature(0xb, oaes, 0)).status(), Status::SUCCESS, "{subsystem}: {oaes:x}");
    }
}

#[test]
fn a_drive_is_identified() {
    let (mut world, at) = drive();
    let csi = |sqe: Sqe, csi: u32| sqe.with_cdw(11, csi << 24);
    let mut out = answers(
        &mut world,
        at,
        &[
            ("controller", identify(0x01, 0)),
            ("namespace 1", identify(0x00, 1)),
            ("all namespaces", identify(0x00, u32::MAX)),
            ("NVM namespace 1", identify(0x05, 1)),
            ("NVM, all namespaces", identify(0x05, u32::MAX)),
            ("NVM, namespace 2, which is none", identify(0x05, 2)),
            ("zoned namespace 1", csi(identify(0x05, 1), 2)),
            ("NVM controller", identify(0x06, 0)),
            ("zoned controller", csi(identify(0x06, 0), 2)),
            ("independent namespace 1", identify(0x08, 1)),
            ("allocated namespaces", identify(0x10, 0)),
            ("allocated namespace 1", identify(0x11, 1)),
            ("granularities", identify(0x16, 0)),
            ("endurance groups", identify(0x19, 0)),
            ("allocated NVM namespaces", identify(0x1a, 0)),
            ("allocated zoned namespaces", csi(identify(0x1a, 0), 2)),
            ("allocated NVM namespace 1", identify(0x1b, 1)),
            ("allocated zoned namespace 1", csi(identify(0x1b, 1), 2)),
            ("namespace 128, the last", identify(0x00, 128)),
            ("namespace 129", identify(0x00, 129)),
            ("primary controller", identify(0x14, 0)),
            ("secondary controllers", identify(0x15, 0)),
        ],
    );
    let (bob, _) = world.controller(MANAGED, BOB);
    out += &answers(&mut world, bob, &[("controller of another host", identify(0x01, 0))]);
    insta::assert_snapshot!(out);
}

/// What only drives have is refused, and what depends on the port or on namespaces is as they are.
#[test]
fn other_controllers_are_identified() {
    let mut world = World::new();
    let (at, _) = world.controller(DRIVE, ALICE);
    let mut out = String::new();
    for cns in [0x10, 0x11, 0x14, 0x15, 0x16, 0x19, 0x1a, 0x1b] {
        out += &answers(&mut world, at, &[(&format!("a drive's, CNS {cns:02X}h"), identify(cns, 1))]);
    }
    out += &answers(
        &mut world,
        at,
        &[("all namespaces", identify(0x00, u32::MAX)), ("NVM, all namespaces", identify(0x05, u32::MAX))],
    );
    let mut controller = |name, change: fn(&mut ebof_fabrics::Model)| {
        let mut world = World::new();
        world.replace_model(change);
        let (at, _) = world.controller(DRIVE, ALICE);
        out += &answers(&mut world, at, &[(name, identify(0x01, 0))]);
    };
    controller("over RDMA", |model| model.ports[0].trtype = TrType::RDMA);
    controller("over RDMA without data in capsules", |model| {
        (model.ports[0].trtype, model.ports[0].in_capsule_bytes) = (TrType::RDMA, 0);
    });
    controller("without a volatile cache", without_cache);
    insta::assert_snapshot!(out);
}

fn without_cache(model: &mut ebof_fabrics::Model) {
    let subsystem = Arc::make_mut(&mut model.subsystems[0]);
    let own = subsystem
        .namespaces
        .iter()
        .cloned()
        .map(|namespace| ebof_fabrics::Namespace { volatile_cache: false, ..namespace });
    subsystem.namespaces = ebof_fabrics::NamespaceTable::new(own.collect()).unwrap();
}

#[test]
fn log_pages_about_logs_commands_and_features() {
    let (mut drive, of_drive) = drive();
    let mut world = World::new();
    let (plain, _) = world.controller(DRIVE, ALICE);
    let (discovery, _) = world.controller(Nqn::DISCOVERY, ALICE);
    let pages = [
        ("supported log pages", get_log(0x00, 1024)),
        ("firmware slots", get_log(0x03, 512)),
        ("command effects", get_log(0x05, 4096)),
        ("feature effects", get_log(0x12, 1024)),
        ("as much as a transfer may have", get_log(0x00, 1 << 20)),
        ("more than that", get_log(0x00, (1 << 20) + 4)),
    ];
    let mut out = String::new();
    for (name, world, at) in [("drive", &mut drive, of_drive), ("plain", &mut world, plain)] {
        let _ = writeln!(out, "## {name}\n{}", answers(world, at, &pages));
    }
    let _ = writeln!(out, "## discovery\n{}", answers(&mut world, discovery, &pages));
    insta::assert_snapshot!(out);
}

fn feature(opcode: u8, fid: u32, nsid: u32, value: u32) -> Sqe {
    with_data(Sqe::new(opcode).with_nsid(Nsid(nsid)).with_cdw(10, fid).with_cdw(11, value), 512)
}

/// The value of a feature, or the status.
fn value_of(world: &mut World, at: u64, sqe: Sqe) -> String {
    let done = world.run(at, sqe);
    match done.cqe {
        Some(cqe) if cqe.status().is_success() => format!("{:x}", cqe.result()),
        Some(cqe) => cqe.status().to_string().split(" (").next().unwrap_or_default().to_string(),
        None => done.step,
    }
}

/// Its current and default values, and its capabilities.
fn values(world: &mut World, at: u64, fid: u32, nsid: u32, cdw11: u32) -> String {
    [0, 1, 3].map(|select| value_of(world, at, feature(admin::GET_FEATURES, fid | select << 8, nsid, cdw11))).join(", ")
}

const FEATURES: [u32; 17] = [1, 2, 4, 5, 6, 7, 8, 9, 0xa, 0xb, 0xf, 0x17, 0x18, 0x19, 0x82, 0x83, 0x84];

/// Of a drive also after each of some values was set, with each of some namespaces.
#[test]
fn features_and_their_values() {
    let (mut world, at) = drive();
    let mut out = "# drive\n".to_string();
    for fid in FEATURES {
        let nsids: &[u32] = match fid {
            1 => &[0, 1, 128, 129, u32::MAX],
            5 | 0x82..=0x84 => &[0, 1, 4, 129, u32::MAX],
            _ => &[0],
        };
        for &nsid in nsids {
            let _ = writeln!(out, "{fid:02x} of {nsid:x}: {}", values(&mut world, at, fid, nsid, 0));
            // Of a threshold the second one is the lower, the third another sensor's; of events the
            // fourth is telemetry.
            for value in [1, 0x10_0004, 0x1_0001, 0x400] {
                let set = value_of(&mut world, at, feature(admin::SET_FEATURES, fid, nsid, value));
                let _ = writeln!(out, "    {value:x}: {set}; {}", values(&mut world, at, fid, nsid, value & 0x3f_0000));
            }
        }
    }
    let mut plain = World::new();
    let (of_plain, _) = plain.controller(DRIVE, ALICE);
    let (discovery, _) = plain.controller(Nqn::DISCOVERY, ALICE);
    let mut without = World::new();
    without.replace_model(without_cache);
    let (of_without, _) = without.controller(DRIVE, ALICE);
    for (name, world, at) in [("plain", &mut plain, of_plain), ("without a volatile cache", &mut without, of_without)] {
        let _ = writeln!(out, "# {name}");
        for (fid, nsid) in FEATURES.into_iter().flat_map(|fid| [(fid, 0), (fid, 1)]) {
            let _ = writeln!(out, "{fid:02x} of {nsid}: {}", values(world, at, fid, nsid, 0));
        }
    }
    let _ = writeln!(out, "# discovery");
    for fid in FEATURES {
        let _ = writeln!(out, "{fid:02x}: {}", values(&mut plain, discovery, fid, 0, 0));
    }
    insta::assert_snapshot!(out);
}

#[test]
fn a_feature_is_set_and_no_other_one() {
    let (mut world, at) = drive();
    assert_eq!(create(&mut world, at, &NewNamespace::new(4096)).result(), 2);
    assert!(attach(&mut world, at, AttachmentSelect::Attach, Nsid(2), &[0]).status().is_success());
    let set = |world: &mut World, fid, nsid, value| value_of(world, at, feature(admin::SET_FEATURES, fid, nsid, value));
    let get = |world: &mut World, fid, nsid| value_of(world, at, feature(admin::GET_FEATURES, fid, nsid, 0));
    // The mask of reservation notices of one namespace.
    assert_eq!(set(&mut world, 0x82, 1, 2), "0");
    assert_eq!((get(&mut world, 0x82, 1), get(&mut world, 0x82, 2)), ("2".to_string(), "0".to_string()));
    assert_eq!(set(&mut world, 0x82, u32::MAX, 4), "0");
    assert_eq!((get(&mut world, 0x82, 1), get(&mut world, 0x82, 2)), ("4".to_string(), "4".to_string()));
    // The only combination of command sets changes nothing.
    assert_eq!(set(&mut world, 0x0b, 0, 0x100), "0");
    assert_eq!((set(&mut world, 0x19, 0, 0), get(&mut world, 0x0b, 0)), ("0".to_string(), "100".to_string()));
    // A cache that is not there cannot be switched.
    world.replace_model(without_cache);
    let (at, _) = world.controller(DRIVE, ALICE);
    let refused = world.run(at, feature(admin::SET_FEATURES, 6, 0, 1));
    assert_eq!(refused.status(), ebof_nvme::Status::INVALID_FIELD.dnr().more());
}
