//! Namespaces with metadata and protection information: the data for host and device, announced
//! features, and refusals.

use std::sync::Arc;

use ebof_fabrics::{Limits, Metadata, Model, Namespace, NamespaceTable, Subsystem, TableError};
use ebof_nvme::copy::{Copy, CopyFormat, CopySource};
use ebof_nvme::feature::HostBehaviorSupport;
use ebof_nvme::identify::field::dlfeat;
use ebof_nvme::identify::{Cns, IdentifyController, IdentifyNamespace, NamespaceGranularityList, ProtectionType};
use ebof_nvme::io::{BlockRange, Dsm, DsmRange};
use ebof_nvme::log::SmartHealth;
use ebof_nvme::media::Format;
use ebof_nvme::namespace::{AttachmentSelect, ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::protection::{Tags, prinfo};
use ebof_nvme::{ControllerId, Nsid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use crate::support::{ALICE, DRIVE, Done, MANAGED, World, model, namespace, with_data};

const ACT: u8 = prinfo::ACTION;
const GUARD: u8 = prinfo::CHECK_GUARD;
const APPLICATION: u8 = prinfo::CHECK_APPLICATION;
const REFERENCE: u8 = prinfo::CHECK_REFERENCE;

const TYPE_1: u32 = 1;
const TYPE_2: u32 = 2;
const TYPE_3: u32 = 3;
/// Metadata, but no protection information.
const BARE: u32 = 4;
/// Type 1 with blocks of 4096 bytes.
const LARGE: u32 = 5;
const PLAIN: u32 = 6;

/// 1024 blocks from byte 4096 on, each.
fn protected() -> Model {
    let mut model = model();
    let with = |nsid: u32, block_shift: u8, protection: ProtectionType| Namespace {
        block_shift,
        metadata: Metadata { bytes: 8, protection, first: nsid == TYPE_2 },
        ..namespace(nsid)
    };
    let namespaces = vec![
        with(TYPE_1, 9, ProtectionType::Type1),
        with(TYPE_2, 9, ProtectionType::Type2),
        with(TYPE_3, 9, ProtectionType::Type3),
        with(BARE, 9, ProtectionType::None),
        with(LARGE, 12, ProtectionType::Type1),
        namespace(PLAIN),
    ];
    let mut subsystem = Subsystem::clone(&model.subsystems[0]);
    subsystem.namespaces = NamespaceTable::new(namespaces).unwrap();
    model.subsystems[0] = Arc::new(subsystem);
    model
}

fn world() -> (World, u64, u64) {
    let mut world = World::with(Limits::default(), protected());
    let (admin, cntlid) = world.controller(DRIVE, ALICE);
    let behavior = HostBehaviorSupport { cdfe: (1 << 2 | 1 << 3).into(), ..HostBehaviorSupport::default() };
    let set = Sqe::new(admin::SET_FEATURES).with_cdw(10, 0x16);
    assert!(world.run_with(admin, with_data(set, 512), behavior.as_bytes()).status().is_success());
    let io = world.io_queue(DRIVE, ALICE, cntlid, 1);
    (world, admin, io)
}

fn tagged(opcode: u8, nsid: u32, slba: u64, blocks: u32, prinfo: u8, reference: u32) -> Sqe {
    let tags = Tags { storage_and_reference: reference.into(), ..Tags::default() };
    tags.encode(BlockRange { prinfo, ..BlockRange::new(slba, blocks) }.encode(opcode, Nsid(nsid)))
}

/// A command of type 1 for two blocks from block 10 on, with the reference tag that it needs.
fn two(opcode: u8, nsid: u32, prinfo: u8) -> Sqe {
    tagged(opcode, nsid, 10, 2, prinfo, 10)
}

/// The transfer with the device: always extended blocks, whatever the host transfers.
fn extent(verb: &str, nsid: u32, offset: u64, length: u32) -> String {
    format!(
        "{verb} Extent {{ device: DeviceId({nsid}), nsid: Nsid({nsid}), offset_bytes: {offset}, length_bytes: {length}, \
         fua: false, deallocate: false }}"
    )
}

#[test]
fn with_pract_only_data_are_transferred_otherwise_metadata_too() {
    let (mut world, _, io) = world();
    for (opcode, verb) in [(nvm::READ, "read"), (nvm::WRITE, "write")] {
        for checks in [0, GUARD, GUARD | APPLICATION, GUARD | APPLICATION | REFERENCE] {
            let done = world.run(io, with_data(two(opcode, TYPE_1, ACT | checks), 1024));
            assert!(done.status().is_success());
            let device = extent(verb, TYPE_1, 4096 + 10 * 520, 1040);
            assert_eq!(done.step, format!("checked 1024 of 1040: {device}"));
            let done = world.run(io, with_data(two(opcode, TYPE_1, checks), 1040));
            assert_eq!(done.step, format!("checked 1040 of 1040: {device}"));
        }
        let done = world.run(io, with_data(two(opcode, LARGE, ACT), 8192));
        let device = extent(verb, LARGE, 4096 + 10 * 4104, 8208);
        assert_eq!(done.step, format!("checked 8192 of 8208: {device}"));
        // Metadata without protection information are always transferred.
        let done = world.run(io, with_data(two(opcode, BARE, 0), 1040));
        assert_eq!(done.step, extent(verb, BARE, 4096 + 10 * 520, 1040));
    }
    let done = world.run(io, with_data(two(nvm::COMPARE, TYPE_1, GUARD), 1040));
    assert_eq!(done.step, format!("checked 1040 of 1040: {}", extent("compare", TYPE_1, 4096 + 10 * 520, 1040)));
    for (opcode, verb) in [(nvm::VERIFY, "verify"), (nvm::WRITE_ZEROES, "write zeroes")] {
        let done = world.run(io, with_data(two(opcode, TYPE_1, GUARD), 0));
        assert_eq!(done.step, format!("checked 1040 of 1040: {}", extent(verb, TYPE_1, 4096 + 10 * 520, 1040)));
    }
    let bare = world.run(io, with_data(two(nvm::WRITE_ZEROES, BARE, 0), 0));
    assert_eq!(bare.step, extent("write zeroes", BARE, 4096 + 10 * 520, 1040));
    let ranges = [DsmRange { cattr: 0.into(), nlb: 3.into(), slba: 5.into() }];
    let dsm = Dsm { ranges: 1, deallocate: true, integral_read: false, integral_write: false }.encode(Nsid(TYPE_2));
    let done = world.run_with(io, with_data(dsm, 4096), ranges.as_bytes());
    let bytes = "[ByteRange { offset_bytes: 6696, length_bytes: 1560 }]";
    assert_eq!(done.step, format!("deallocate DeviceId(2) {bytes}"));
}

#[test]
fn limits_do_not_include_metadata() {
    let (mut world, _, io) = world();
    let of = |blocks: u32, prinfo: u8, bytes: u32| with_data(tagged(nvm::READ, TYPE_2, 0, blocks, prinfo, 0), bytes);
    // 1 MiB exceeds the namespace: the range is checked last.
    for (blocks, status) in [(1024, Status::SUCCESS), (2048, Status::LBA_OUT_OF_RANGE), (2049, Status::INVALID_FIELD)] {
        for (prinfo, block) in [(0, 520), (ACT, 512)] {
            let done = world.run(io, of(blocks, prinfo, blocks * block));
            assert!(done.status().is(status), "{blocks} {prinfo}: {}", done.status());
        }
    }
    let read = |nsid: u32, slba: u64| with_data(tagged(nvm::READ, nsid, slba, 1, 0, 0), 520);
    assert!(world.run(io, read(BARE, 1023)).step.contains(&format!("offset_bytes: {}", 4096 + 1023 * 520)));
    for nsid in [TYPE_2, BARE] {
        assert_eq!(world.run(io, read(nsid, 1024)).status(), Status::LBA_OUT_OF_RANGE.dnr().more());
    }
}

#[test]
fn refusals() {
    let (mut world, _, io) = world();
    let information = Status::INVALID_PROTECTION_INFORMATION.dnr().more();
    let length = Status::DATA_SGL_LENGTH_INVALID.dnr().more();
    let mut cases = Vec::new();
    for opcode in [nvm::READ, nvm::WRITE] {
        // Missing or excess metadata.
        cases.push((with_data(two(opcode, TYPE_1, 0), 1024), length));
        cases.push((with_data(two(opcode, TYPE_1, ACT), 1040), length));
        cases.push((with_data(two(opcode, BARE, 0), 1024), length));
    }
    for (opcode, bytes) in
        [(nvm::READ, 1040), (nvm::WRITE, 1040), (nvm::COMPARE, 1040), (nvm::VERIFY, 0), (nvm::WRITE_ZEROES, 0)]
    {
        // The initial reference tag of type 1 is the address, that of type 3 is not to be checked.
        for (nsid, reference, status) in
            [(TYPE_1, 11, information), (TYPE_2, 11, Status::SUCCESS), (TYPE_3, 10, information)]
        {
            cases.push((with_data(tagged(opcode, nsid, 10, 2, REFERENCE, reference), bytes), status));
            let unchecked = tagged(opcode, nsid, 10, 2, GUARD | APPLICATION, reference);
            cases.push((with_data(unchecked, bytes), Status::SUCCESS));
        }
        // Without protection information PRINFO must be zero.
        for (nsid, bytes) in [(BARE, bytes), (PLAIN, bytes.min(1024))] {
            for bit in 0..4 {
                cases.push((with_data(two(opcode, nsid, 1 << bit), bytes), information));
            }
        }
    }
    // Compare and Verify do not insert or strip anything.
    cases.push((with_data(two(nvm::COMPARE, TYPE_1, ACT), 1024), information));
    cases.push((with_data(two(nvm::VERIFY, TYPE_1, ACT | GUARD), 0), information));
    for (sqe, status) in cases {
        assert_eq!(world.run(io, sqe).status(), status, "{sqe:?}");
    }
}

fn copy(world: &mut World, io: u64, nsid: u32, command: Copy, from: CopySource) -> Done {
    let mut data = Vec::new();
    from.encode(CopyFormat::decode(command.format).unwrap(), &mut data);
    let sqe = Copy { ranges: 1, ..command }.encode(Nsid(nsid));
    world.run_with(io, with_data(sqe, u32::try_from(data.len()).unwrap()), &data)
}

#[test]
fn copies_need_the_same_format_and_follow_the_rules_of_both_sides() {
    let (mut world, _, io) = world();
    let to = |read_protection: u8, write_protection: u8, reference_tag: u32| Copy {
        slba: 100,
        read_protection,
        write_protection,
        reference_tag,
        ..Copy::default()
    };
    let from = |nsid: u32, reference: u32| {
        let mut source = CopySource { nsid: Nsid(nsid), ..CopySource::new(10, 2) };
        source.set_reference_tag(reference);
        source
    };
    let refused = |status: Status| status.dnr().more();
    let information = refused(Status::INVALID_PROTECTION_INFORMATION);
    let (all, format) = (REFERENCE | GUARD, |copy: Copy, format: u8| Copy { format, ..copy });
    for (nsid, command, source, status) in [
        (TYPE_1, to(0, 0, 0), from(0, 0), Status::SUCCESS),
        (TYPE_1, to(all, all, 100), from(0, 10), Status::SUCCESS),
        (TYPE_1, to(ACT | all, ACT | all, 100), from(0, 10), Status::SUCCESS),
        (TYPE_1, to(all, all, 100), from(0, 11), information),
        (TYPE_1, to(all, all, 101), from(0, 10), information),
        (TYPE_2, to(all, all, 7), from(0, 8), Status::SUCCESS),
        (TYPE_3, to(GUARD, all, 0), from(0, 0), information),
        (TYPE_3, to(all, GUARD, 0), from(0, 0), information),
        // Stripped and not inserted again, or vice versa.
        (TYPE_1, to(ACT, 0, 0), from(0, 0), refused(Status::INVALID_FIELD)),
        (TYPE_1, to(0, ACT, 0), from(0, 0), refused(Status::INVALID_FIELD)),
        (BARE, to(0, 0, 0), from(0, 0), Status::SUCCESS),
        (BARE, to(0, GUARD, 0), from(0, 0), information),
        // Descriptors of 32-bit and 64-bit guards.
        (TYPE_1, format(to(0, 0, 0), 1), from(0, 0), refused(Status::INVALID_FORMAT)),
        (TYPE_1, format(to(0, 0, 0), 3), from(TYPE_1, 0), refused(Status::INVALID_FORMAT)),
        (TYPE_1, format(to(0, 0, 0), 2), from(TYPE_1, 0), Status::SUCCESS),
        // Other types, other sizes.
        (TYPE_1, format(to(0, 0, 0), 2), from(TYPE_2, 0), refused(Status::INCOMPATIBLE_NAMESPACE)),
        (TYPE_1, format(to(0, 0, 0), 2), from(LARGE, 0), refused(Status::INCOMPATIBLE_NAMESPACE)),
        (BARE, format(to(0, 0, 0), 2), from(TYPE_1, 0), refused(Status::INCOMPATIBLE_NAMESPACE)),
        (PLAIN, format(to(0, 0, 0), 2), from(BARE, 0), refused(Status::INCOMPATIBLE_NAMESPACE)),
    ] {
        let done = copy(&mut world, io, nsid, command, source);
        assert_eq!(done.status(), status, "{nsid} {command:?} {source:?}");
    }
    let done = copy(&mut world, io, TYPE_1, to(0, 0, 0), from(0, 0));
    let ranges = [(4096 + 100 * 520, "target"), (4096 + 10 * 520, "sources")];
    assert!(
        ranges.iter().all(|(offset, _)| done.step.contains(&format!("offset_bytes: {offset}, length_bytes: 1040")))
    );
    assert!(done.step.contains("data_bytes: 512, metadata_bytes: 8"), "{}", done.step);
    let bare = copy(&mut world, io, BARE, to(0, 0, 0), from(0, 0));
    assert!(bare.step.contains("data_bytes: 512, metadata_bytes: 8, checks: None"), "{}", bare.step);
}

#[test]
fn fused_pairs_have_one_block_and_rules_of_their_own() {
    let (mut world, _, io) = world();
    let half = |fuse: u8, mut sqe: Sqe, bytes: u32, cid: u16| {
        sqe.flags |= fuse;
        sqe.cid = cid.into();
        with_data(sqe, bytes)
    };
    let compare = |prinfo: u8| half(1, tagged(nvm::COMPARE, TYPE_1, 10, 1, prinfo, 10), 520, 1);
    let write = |prinfo: u8, bytes: u32| half(2, tagged(nvm::WRITE, TYPE_1, 10, 1, prinfo, 10), bytes, 2);
    for (prinfo, bytes) in [(GUARD | REFERENCE, 520), (ACT, 512)] {
        assert!(world.run(io, compare(GUARD)).cqe.is_none());
        let done = world.run(io, write(prinfo, bytes));
        assert!(done.status().is_success() && done.step.starts_with("write second"), "{done:?}");
        assert!(world.ended.pop().unwrap().status().is_success());
    }
    // If one half is refused, the other one fails, too.
    assert!(world.run(io, compare(ACT)).status().is(Status::INVALID_PROTECTION_INFORMATION));
    assert!(world.run(io, write(ACT, 512)).status().is(Status::ABORTED_FAILED_FUSED));
    assert!(world.run(io, compare(0)).cqe.is_none());
    assert!(
        world
            .run(io, half(2, tagged(nvm::WRITE, TYPE_1, 10, 1, REFERENCE, 11), 520, 2))
            .status()
            .is(Status::INVALID_PROTECTION_INFORMATION,)
    );
    assert!(world.ended.pop().unwrap().status().is(Status::ABORTED_FAILED_FUSED));
}

fn identify<T: FromBytes>(world: &mut World, at: u64, cns: Cns, nsid: u32) -> T {
    let sqe = Sqe::new(admin::IDENTIFY).with_nsid(Nsid(nsid)).with_cdw(10, u32::from(cns.0));
    T::read_from_bytes(&world.run(at, with_data(sqe, 4096)).data).unwrap()
}

#[test]
fn announced_features_of_a_namespace() {
    let (mut world, admin, _) = world();
    for (nsid, shift, metadata, dps) in [(TYPE_1, 9, 8, 1), (TYPE_2, 9, 8, 0xa), (TYPE_3, 9, 8, 3), (BARE, 9, 8, 0)] {
        let data: IdentifyNamespace = identify(&mut world, admin, Cns::NAMESPACE, nsid);
        assert_eq!((data.format().lbads, data.format().ms.get(), data.dps), (shift, metadata, dps));
        assert!(data.metadata_extended());
        // Write Zeroes writes protection information, and deallocates nothing then; that of
        // deallocated blocks is FFFFh.
        let features = if dps == 0 { dlfeat::WRITE_ZEROES_DEALLOCATE } else { 0 };
        assert_eq!(data.dlfeat, dlfeat::READS_ZEROS | features);
    }
    let plain: IdentifyNamespace = identify(&mut world, admin, Cns::NAMESPACE, PLAIN);
    assert_eq!((plain.flbas, plain.format().ms.get()), (0, 0));
    // 16-bit guards without storage tags are all zeros there.
    let nvm = Sqe::new(admin::IDENTIFY).with_nsid(Nsid(TYPE_1)).with_cdw(10, 5);
    assert!(world.run(admin, with_data(nvm, 4096)).data.iter().all(|&byte| byte == 0));
}

#[test]
fn smart_counts_data_without_metadata() {
    let (mut world, admin, io) = world();
    for _ in 0..125 {
        assert!(world.run(io, with_data(tagged(nvm::WRITE, LARGE, 0, 8, 0, 0), 8 * 4104)).status().is_success());
    }
    let get = ebof_nvme::log::GetLogPage::new(ebof_nvme::log::Lid::SMART_HEALTH, 512).encode(Nsid::ALL);
    let page = SmartHealth::read_from_bytes(&world.run(admin, with_data(get, 512)).data).unwrap();
    // 125 times 32 KiB are 8000 units of 512 bytes: 8 thousand; metadata are not counted.
    assert_eq!(page.duw.get(), 8);
}

#[test]
fn unsupported_metadata_are_refused_in_namespace_tables() {
    let of = |bytes: u16, protection: ProtectionType| {
        let metadata = Metadata { bytes, protection, first: false };
        NamespaceTable::new(vec![Namespace { metadata, ..namespace(1) }]).map(|_| ())
    };
    let bad = Err(TableError::BadSize(Nsid(1)));
    assert_eq!(of(8, ProtectionType::None), Ok(()));
    assert_eq!(of(8, ProtectionType::Type3), Ok(()));
    for (bytes, protection) in [
        (0, ProtectionType::Type1),
        (16, ProtectionType::None),
        (8, ProtectionType::Reserved(4)),
        (9, ProtectionType::None),
    ] {
        assert_eq!(of(bytes, protection), bad, "{bytes} {protection:?}");
    }
    let large = Namespace { blocks: 1 << 55, metadata: Metadata { bytes: 8, ..Metadata::default() }, ..namespace(1) };
    assert_eq!(NamespaceTable::new(vec![large]).map(|_| ()), bad);
}

#[test]
fn a_drive_creates_and_formats_protected_namespaces() {
    let mut world = World::managed();
    let (admin, _) = world.controller(MANAGED, ALICE);
    let controller: IdentifyController = identify(&mut world, admin, Cns::CONTROLLER, 0);
    assert_ne!(controller.ctratt.get() & 1 << 16, 0, "limits are without metadata");
    let mut new = NewNamespace::new(2015);
    new.set_format(2, true);
    new.dps = 0x9;
    let create = NamespaceManagement { select: ManagementSelect::Create, csi: ebof_nvme::identify::Csi::NVM };
    assert_eq!(world.run_with(admin, with_data(create.encode(Nsid::NONE), 4096), new.as_bytes()).result(), 1);
    let list = ebof_nvme::identify::ControllerList::starting_at(ControllerId(0), [ControllerId(0)]);
    assert!(
        world
            .run_with(admin, with_data(AttachmentSelect::Attach.encode(Nsid(1)), 4096), list.as_bytes())
            .status()
            .is_success()
    );
    let data: IdentifyNamespace = identify(&mut world, admin, Cns::NAMESPACE, 1);
    assert_eq!((data.flbas, data.dps, data.nsze.get()), (0x12, 0x9, 2015));
    // An extent of 1 MiB holds fewer blocks than without tags, so these take two.
    assert_eq!(data.nvmcap.get(), 2 << 20);
    let granularities: NamespaceGranularityList = identify(&mut world, admin, Cns::NAMESPACE_GRANULARITY_LIST, 0);
    let of = |index| granularities.of_format(index).unwrap().ncapg.get();
    assert_eq!((of(0), of(1)), (1 << 20, 1 << 20));
    assert!(of(2) < 1 << 20 && of(2) / 512 == u64::from(data.npdg.get()) + 1);
    assert!(of(3) < 1 << 20 && of(3).is_multiple_of(4096) && granularities.of_format(4).is_none());
    // The same bytes with another block size.
    let format = |format: Format| with_data(format.encode(Nsid(1)), 0);
    let wanted = Format { metadata_extended: true, protection: ProtectionType::Type3, ..Format::new(3) };
    assert!(world.run(admin, format(wanted)).status().is_success());
    let data: IdentifyNamespace = identify(&mut world, admin, Cns::NAMESPACE, 1);
    assert_eq!((data.flbas, data.dps, data.nsze.get()), (0x13, 3, 2015 / 8));
    // Without protection information its position must not be set.
    let wanted = Format { metadata_extended: true, protection_first: true, ..Format::new(2) };
    assert!(world.run(admin, format(wanted)).status().is_success());
    let data: IdentifyNamespace = identify(&mut world, admin, Cns::NAMESPACE, 1);
    assert_eq!((data.flbas, data.dps), (0x12, 0));
    assert!(world.run(admin, format(Format::new(0))).status().is_success());
    let data: IdentifyNamespace = identify(&mut world, admin, Cns::NAMESPACE, 1);
    assert_eq!((data.flbas, data.dps), (0, 0));
}
