//! The data of Identify, as bytes and as a Linux host decodes them.

use ebof_nvme::identify::{
    ControllerList, Descriptors, IdentifyController, IdentifyNamespace, NamespaceIdDescriptor, NamespaceList,
};
use ebof_nvme::opcode::admin;
use ebof_nvme::{Nqn, Nsid, Sqe};
use zerocopy::FromBytes;

use crate::support::{ALICE, BOB, DRIVE, OTHER, World, dump, with_data};

fn identify(world: &mut World, at: u64, cns: u32, nsid: u32) -> Vec<u8> {
    let sqe = with_data(Sqe::new(admin::IDENTIFY).with_nsid(Nsid(nsid)), 4096).with_cdw(10, cns);
    let done = world.run(at, sqe);
    assert!(done.status().is_success(), "CNS {cns:x}h: {}", done.status());
    assert_eq!(done.data.len(), 4096);
    done.data
}

#[test]
fn snapshots() {
    let mut world = World::new();
    let (at, _) = world.controller(DRIVE, ALICE);
    let (discovery, _) = world.controller(Nqn::DISCOVERY, ALICE);
    let mut out = String::new();
    for (name, cns, nsid) in [
        ("controller", 0x01, 0),
        ("namespace 1", 0x00, 1),
        ("namespace 2", 0x00, 2),
        ("namespace 3, protected", 0x00, 3),
        ("namespace 5, read only", 0x00, 5),
        ("namespace 4, absent", 0x00, 4),
        ("active namespaces", 0x02, 0),
        ("active namespaces after 2", 0x02, 2),
        ("descriptors of 1", 0x03, 1),
        ("NVM namespace 1", 0x05, 1),
        ("NVM controller", 0x06, 0),
        ("NVM namespaces", 0x07, 0),
        ("independent namespace 3", 0x08, 3),
        ("command sets", 0xffff_001c, 0),
    ] {
        out += &format!("# {name}\n{}\n", dump(&identify(&mut world, at, cns, nsid)));
    }
    out += &format!("# discovery controller\n{}", dump(&identify(&mut world, discovery, 1, 0)));
    insta::assert_snapshot!(out);
}

// @test wire.linux-fields
#[test]
fn a_linux_host_finds_the_fields_that_it_requires() {
    let mut world = World::new();
    let (at, cntlid) = world.controller(DRIVE, ALICE);
    let bytes = identify(&mut world, at, 1, 0);
    let data = IdentifyController::ref_from_bytes(&bytes).unwrap();
    assert_eq!(data.cntlid.get(), cntlid.0);
    assert_eq!(data.cntrltype, 1);
    assert!(data.mnan.get() <= data.nn.get() && data.mnan.get() >= 4);
    assert!(data.sgls.get() & 3 != 0 && data.sgls.get() & 1 << 20 != 0);
    assert_eq!((data.command_capsule_bytes(), data.response_capsule_bytes(), data.icdoff.get()), (64 + 8192, 16, 0));
    assert_eq!(data.max_transfer_bytes(4096), Some(1 << 20));
    assert_eq!(data.keep_alive_granularity_ms(), Some(1000));
    assert_eq!(data.maxcmd.get(), 128);
    assert_eq!((data.sqes, data.cqes), (0x66, 0x44));
    assert_eq!(data.subsystem_nqn(), DRIVE);
    let namespace = identify(&mut world, at, 0, 2);
    let namespace = IdentifyNamespace::ref_from_bytes(&namespace).unwrap();
    assert_eq!(namespace.size_bytes(), Some(4 << 30));
    let bytes = identify(&mut world, at, 3, 1);
    let kinds: Vec<u8> = Descriptors::new(&bytes).map(|each| each.unwrap().nidt()).collect();
    assert_eq!(kinds, [1, 2, 3, 4]);
    assert!(matches!(Descriptors::new(&bytes).next(), Some(Ok(NamespaceIdDescriptor::Eui64(id))) if id == [1; 8]));
}

#[test]
fn identities_are_the_same_on_every_controller() {
    let mut world = World::new();
    let (first, _) = world.controller(DRIVE, ALICE);
    let (second, _) = world.controller(DRIVE, BOB);
    let mut both = [first, second].map(|at| identify(&mut world, at, 1, 0));
    // Only CNTLID, CIU and CIRN differ.
    assert_ne!(both[0], both[1]);
    both.iter_mut().for_each(|bytes| {
        bytes[78..80].fill(0);
        bytes[135..144].fill(0);
    });
    assert_eq!(both[0], both[1]);
    for (cns, nsid) in [(0, 1), (3, 1), (8, 1)] {
        assert_eq!(identify(&mut world, first, cns, nsid), identify(&mut world, second, cns, nsid));
    }
}

#[test]
fn controller_lists_have_only_the_subsystems_controllers() {
    let mut world = World::new();
    let (at, first) = world.controller(DRIVE, ALICE);
    let (_, second) = world.controller(DRIVE, BOB);
    world.controller(OTHER, ALICE);
    world.controller(Nqn::DISCOVERY, ALICE);
    let list = |world: &mut World, cdw10, nsid| -> Vec<u16> {
        let bytes = identify(world, at, cdw10, nsid);
        ControllerList::ref_from_bytes(&bytes).unwrap().iter().map(|cntlid| cntlid.0).collect()
    };
    assert_eq!(list(&mut world, 0x13, 0), [first.0, second.0]);
    assert_eq!(list(&mut world, 0x12, 1), [first.0, second.0]);
    assert_eq!(list(&mut world, 0x13 | u32::from(second.0) << 16, 0), [second.0]);
}

// @test limits.namespaces
#[test]
fn a_thousand_namespaces_are_listed() {
    let mut model = crate::support::model();
    let namespaces = (1..=1024).map(crate::support::namespace).collect();
    std::sync::Arc::make_mut(&mut model.subsystems[0]).namespaces =
        ebof_fabrics::NamespaceTable::new(namespaces).unwrap();
    let mut world = World::with(ebof_fabrics::Limits::default(), model);
    let (at, _) = world.controller(DRIVE, ALICE);
    let bytes = identify(&mut world, at, 2, 0);
    let list = NamespaceList::ref_from_bytes(&bytes).unwrap();
    assert_eq!(list.iter().count(), 1024);
    assert!(list.iter().eq((1..=1024).map(Nsid)));
}
