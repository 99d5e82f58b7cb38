//! Identify data structures against golden bytes, and decoders of lists and texts against any bytes
//! of a peer.

use ebof_nvme::identify::{
    ControllerList, ControllerType, Csi, DescriptorError, DescriptorWriter, Descriptors, EnduranceGroupList, Full,
    IdentifyController, IdentifyNamespace, IndependentNamespace, IoCommandSets, LbaFormat, NamespaceGranularityList,
    NamespaceIdDescriptor, NamespaceList, NvmController, NvmNamespace, PowerState, ProtectionFormat, ProtectionType,
    Text, field, set_ascii,
};
use ebof_nvme::{ControllerId, Nqn, Nsid, Status, Uuid, property::Version};
use ebof_testkit::hex;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

const CONTROLLER: &str = include_str!("../../testdata/identify_controller.hex");
const EVERY_FIELD: &str = include_str!("../../testdata/identify_controller_every_field.hex");
const NAMESPACE: &str = include_str!("../../testdata/identify_namespace.hex");
const INDEPENDENT: &str = include_str!("../../testdata/independent_namespace.hex");
const COMMAND_SET: &str = include_str!("../../testdata/nvm_command_set.hex");
const DESCRIPTORS: &str = include_str!("../../testdata/namespace_descriptors.hex");

fn linux_controller() -> IdentifyController {
    let mut id = IdentifyController {
        rab: 6,
        cmic: field::cmic::MULTIPLE_PORTS | field::cmic::MULTIPLE_CONTROLLERS | field::cmic::ANA,
        cntlid: 1.into(),
        ver: Version::V2_1.0.into(),
        oaes: (field::oaes::NAMESPACE_ATTRIBUTE | field::oaes::ANA_CHANGE).into(),
        ctratt: (field::ctratt::HOST_ID_128 | field::ctratt::TRAFFIC_BASED_KEEP_ALIVE).into(),
        cntrltype: ControllerType::Io.encode(),
        acl: 3,
        aerl: 3,
        frmw: field::frmw::SLOT_1_READ_ONLY | 1 << field::frmw::SLOTS_SHIFT,
        lpa: field::lpa::SMART_PER_NAMESPACE | field::lpa::COMMAND_EFFECTS | field::lpa::EXTENDED_DATA,
        elpe: 127,
        kas: 10.into(),
        anatt: 10,
        anacap: field::anacap::OPTIMIZED
            | field::anacap::NON_OPTIMIZED
            | field::anacap::INACCESSIBLE
            | field::anacap::PERSISTENT_LOSS
            | field::anacap::CHANGE,
        anagrpmax: 128.into(),
        nanagrpid: 128.into(),
        sqes: 0x66,
        cqes: 0x44,
        maxcmd: 128.into(),
        nn: 1024.into(),
        oncs: (field::oncs::DATASET_MANAGEMENT | field::oncs::WRITE_ZEROES).into(),
        vwc: field::vwc::PRESENT,
        sgls: (field::sgls::SUPPORTED | field::sgls::OFFSET).into(),
        mnan: 1024.into(),
        ioccsz: 1028.into(),
        iorcsz: 1.into(),
        msdbd: 1,
        ..IdentifyController::default()
    };
    id.psd[0] = PowerState { mp: 0x9c4.into(), enlat: 16.into(), exlat: 4.into(), ..PowerState::default() };
    id.set_serial_number("a1b2c3d4e5f60718293a");
    id.set_model_number("Linux");
    id.set_firmware_revision("6.12.48");
    id.set_subsystem_nqn(&Nqn::parse("nqn.2014-08.org.example:drive0").expect("a legal NQN"));
    id
}

// @test wire.structures
#[test]
fn a_controller_encodes_to_and_decodes_from_the_golden_bytes() {
    let golden = hex::read(CONTROLLER);
    let id = linux_controller();
    assert_eq!(id.as_bytes(), golden);
    assert_eq!(IdentifyController::read_from_bytes(&golden).unwrap(), id);
}

#[test]
fn a_controllers_fields_are_in_plain_units() {
    let golden = hex::read(CONTROLLER);
    let mut id = IdentifyController::read_from_bytes(&golden).unwrap();
    assert_eq!(id.serial_number(), "a1b2c3d4e5f60718293a");
    assert_eq!(id.model_number(), "Linux");
    assert_eq!(id.firmware_revision().to_string(), "6.12.48");
    assert_eq!(id.subsystem_nqn().as_str(), Some("nqn.2014-08.org.example:drive0"));
    assert_eq!(id.controller_type(), ControllerType::Io);
    assert_eq!(id.version(), Version::V2_1);
    assert_eq!((id.abort_limit(), id.async_event_limit(), id.error_log_entries()), (4, 4, 128));
    assert_eq!(id.keep_alive_granularity_ms(), Some(1000));
    assert_eq!(id.command_capsule_bytes(), 64 + 16384);
    assert_eq!(id.in_capsule_data_bytes(), 16384);
    assert_eq!(id.response_capsule_bytes(), 16);
    assert_eq!(id.namespaces_max(), 1024);
    assert_eq!(id.power_states().len(), 1);
    assert_eq!(id.power_states()[0].max_power_tenth_mw(), 250_000);
    assert!(id.power_states()[0].is_operational());
    assert_eq!(field::frmw::slots(id.frmw), 1);
    assert_eq!(id.max_transfer_bytes(4096), None);
    id.mdts = 8;
    assert_eq!(id.max_transfer_bytes(4096), Some(1 << 20));
    id.mdts = 255;
    assert_eq!(id.max_transfer_bytes(4096), None);
}

#[test]
fn a_hostile_controllers_numbers_stay_in_range() {
    let id = IdentifyController::read_from_bytes(&[0xff; 4096]).unwrap();
    assert_eq!(id.power_states().len(), 32);
    assert_eq!(id.in_capsule_data_bytes(), 0xffff_ffff * 16 - 64 - 0xffff * 16);
    assert_eq!(id.controller_type(), ControllerType::Reserved(255));
    assert_eq!(id.max_transfer_bytes(4096), None);
    assert_eq!(id.instance().map(|instance| instance.random), Some(u64::MAX));
    assert_eq!(IdentifyController::default().instance(), None);
    assert_eq!(id.serial_number().to_string(), "?".repeat(20));
    assert_eq!(id.serial_number().as_str(), None);
    assert_eq!(IdentifyController::default().in_capsule_data_bytes(), 0);
}

#[test]
fn each_field_of_a_controller_is_at_its_offset() {
    let mut id = IdentifyController {
        vid: 0x0102.into(),
        ssvid: 0x0304.into(),
        ieee: [5, 6, 7],
        rtd3r: 0x0809_0a0b.into(),
        rtd3e: 0x0c0d_0e0f.into(),
        rrls: 0x1011.into(),
        bpcap: 0x12,
        nssl: 0x1314_1516.into(),
        plsi: 0x17,
        fguid: core::array::from_fn(|at| 0x20 + u8::try_from(at).unwrap()),
        crdt1: 0x3031.into(),
        crdt2: 0x3233.into(),
        crdt3: 0x3435.into(),
        crcap: 0x36,
        ciu: 0xf1,
        cirn: 0xf2f3_f4f5_f6f7_f8f9.into(),
        nvmsr: 0x37,
        vwci: 0x38,
        mec: 0x39,
        avscc: 0x3a,
        apsta: 0x3b,
        wctemp: 0x3c3d.into(),
        cctemp: 0x3e3f.into(),
        mtfa: 0x4041.into(),
        hmpre: 0x4243_4445.into(),
        hmmin: 0x4647_4849.into(),
        tnvmcap: 0x5051_5253_5455_5657_5859_5a5b_5c5d_5e5f.into(),
        unvmcap: 0x6061_6263_6465_6667_6869_6a6b_6c6d_6e6f.into(),
        rpmbs: 0x7071_7273.into(),
        edstt: 0x7475.into(),
        dsto: 0x76,
        fwug: 0x77,
        hctma: 0x7879.into(),
        mntmt: 0x7a7b.into(),
        mxtmt: 0x7c7d.into(),
        sanicap: 0x8081_8283.into(),
        hmminds: 0x8485_8687.into(),
        hmmaxd: 0x8889.into(),
        nsetidmax: 0x8a8b.into(),
        endgidmax: 0x8c8d.into(),
        pels: 0x9091_9293.into(),
        domainid: 0x9495.into(),
        kpioc: 0x96,
        mptfawr: 0x9798.into(),
        megcap: 0xa0a1_a2a3_a4a5_a6a7_a8a9_aaab_acad_aeaf.into(),
        tmpthha: 0xb0,
        cqt: 0xb1b2.into(),
        ..IdentifyController::default()
    };
    set_upper_half(&mut id);
    assert_eq!(id.as_bytes(), hex::read(EVERY_FIELD));
}

fn set_upper_half(id: &mut IdentifyController) {
    id.fna = 0xb3;
    id.awun = 0xb4b5.into();
    id.awupf = 0xb6b7.into();
    id.icsvscc = 0xb8;
    id.nwpc = 0xb9;
    id.acwu = 0xbabb.into();
    id.cdfs = 0xbcbd.into();
    id.maxdna = 0xc0c1_c2c3_c4c5_c6c7_c8c9_cacb_cccd_cecf.into();
    id.maxcna = 0xd0d1_d2d3.into();
    id.oaqd = 0xd4d5_d6d7.into();
    id.rhiri = 0xd8;
    id.hirt = 0xd9;
    id.cmmrtd = 0xdadb.into();
    id.nmmrtd = 0xdcdd.into();
    id.minmrtg = 0xde;
    id.maxmrtg = 0xdf;
    id.trattr = 0xe0;
    id.mcudmq = 0xe1e2.into();
    id.mnsudmq = 0xe3e4.into();
    id.mcmr = 0xe5e6.into();
    id.nmcmr = 0xe7e8.into();
    id.mcdqpc = 0xe9ea.into();
    id.ofcs = 0xebec.into();
    id.dctype = 0xed;
    id.ccrl = 0xfa;
    id.psd[31].mp = 0xeeef.into();
    id.vs[0] = 0xf0;
}

#[test]
fn a_namespaces_bits_are_decoded() {
    let mut id = IdentifyNamespace { dps: 0x0a, fpi: 0xb2, ..IdentifyNamespace::default() };
    assert_eq!(id.protection(), ProtectionType::Type2);
    assert_eq!(id.format_percent_left(), Some(50));
    id.fpi = 0x32;
    assert_eq!(id.format_percent_left(), None);
    for bits in 0..=u8::MAX {
        assert_eq!(ProtectionType::decode(bits).encode(), bits & field::dps::TYPE_MASK);
    }
}

#[test]
fn granularities_are_by_format_or_for_all() {
    let list = NamespaceGranularityList::of_all_formats(1 << 20);
    assert_eq!(list.as_bytes()[32..48], [0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0]);
    assert_eq!(list.of_format(9).map(|one| one.ncapg.get()), Some(1 << 20));
    let hostile = NamespaceGranularityList::read_from_bytes(&[0xff; 4096]).unwrap();
    assert_eq!((hostile.descriptors().len(), hostile.of_format(16)), (16, None));
    assert!(hostile.of_format(15).is_some());
}

#[test]
fn a_controller_list_for_attachment_ascends_and_names_controllers() {
    let legal = |ids: &[u16], num: u16| {
        let mut list = ControllerList::default();
        for (slot, id) in list.identifier.iter_mut().zip(ids) {
            slot.set(*id);
        }
        list.num = num.into();
        list.legal().map(Iterator::count)
    };
    assert_eq!(legal(&[0], 1), Ok(1));
    assert_eq!(legal(&[1, 2, 0xffef], 3), Ok(3));
    let invalid = Err(Status::CONTROLLER_LIST_INVALID);
    assert_eq!(legal(&[], 0), invalid);
    assert_eq!(legal(&[1, 1], 2), invalid);
    assert_eq!(legal(&[2, 1], 2), invalid);
    assert_eq!(legal(&[1, 0xfff0], 2), invalid);
    let all: Vec<u16> = (0..2047).collect();
    assert_eq!(legal(&all, 2047), Ok(2047));
    assert_eq!(legal(&all, 2048), invalid);
}

#[test]
fn endurance_groups_are_listed_from_the_requested_one() {
    let list = EnduranceGroupList::starting_at(2, [0, 1, 2, 5]);
    assert_eq!(list.as_bytes()[..6], [2, 0, 2, 0, 5, 0]);
    assert_eq!(list.iter().collect::<Vec<_>>(), [2, 5]);
    assert_eq!(EnduranceGroupList::starting_at(0, 0..=u16::MAX).iter().count(), 2047);
    assert_eq!(EnduranceGroupList::read_from_bytes(&[0xff; 4096]).unwrap().iter().count(), 2047);
}

// @test wire.structures
#[test]
fn a_namespace_encodes_to_and_decodes_from_the_golden_bytes() {
    let golden = hex::read(NAMESPACE);
    let mut id = IdentifyNamespace {
        nsze: 262_144.into(),
        ncap: 262_144.into(),
        nuse: 1000.into(),
        nsfeat: field::nsfeat::THIN | field::nsfeat::OPTIMAL_IO,
        nlbaf: 1,
        nmic: field::nmic::SHARED,
        dlfeat: field::dlfeat::READS_ZEROS | field::dlfeat::WRITE_ZEROES_DEALLOCATE,
        noiob: 256.into(),
        nvmcap: (1 << 30).into(),
        npwg: 3.into(),
        npwa: 3.into(),
        npdg: 7.into(),
        npda: 7.into(),
        nows: 255.into(),
        mssrl: 128.into(),
        mcl: 512.into(),
        msrc: 7,
        anagrpid: 1.into(),
        nsattr: field::nsattr::WRITE_PROTECTED,
        nvmsetid: 2.into(),
        endgid: 3.into(),
        nguid: core::array::from_fn(|at| 0x10 + u8::try_from(at).unwrap()),
        eui64: core::array::from_fn(|at| 0x30 + u8::try_from(at).unwrap()),
        ..IdentifyNamespace::default()
    };
    id.lbaf[0] = LbaFormat { rp: 2, ..LbaFormat::data_only(9) };
    id.lbaf[1] = LbaFormat::data_only(12);
    id.set_format(1, false);
    assert_eq!(id.as_bytes(), golden);
    assert_eq!(IdentifyNamespace::read_from_bytes(&golden).unwrap(), id);
    assert_eq!(id.format().block_bytes(), Some(4096));
    assert_eq!(id.size_bytes(), Some(1 << 30));
    assert_eq!(id.lba_formats().len(), 2);
    assert!(!id.metadata_extended());
}

#[test]
fn flbas_bits_6_and_5_count_only_beyond_sixteen_formats() {
    let mut id = IdentifyNamespace { flbas: 0x61, nlbaf: 15, ..IdentifyNamespace::default() };
    assert_eq!(id.format_index(), 1);
    id.nlbaf = 63;
    assert_eq!(id.format_index(), 0x31);
    id.set_format(0x2f, true);
    assert_eq!((id.format_index(), id.metadata_extended()), (0x2f, true));
}

#[test]
fn an_illegal_lba_format_has_no_block_size() {
    for (lbads, bytes) in [(0, None), (8, None), (9, Some(512)), (31, Some(1 << 31)), (32, None), (255, None)] {
        assert_eq!(LbaFormat::data_only(lbads).block_bytes(), bytes, "LBADS {lbads}");
    }
}

#[test]
fn the_independent_namespace_encodes_to_the_golden_bytes() {
    let id = IndependentNamespace {
        nsfeat: field::independent_nsfeat::NO_VOLATILE_CACHE,
        nmic: field::nmic::SHARED,
        rescap: 0xff,
        fpi: 0x80,
        anagrpid: 7.into(),
        nsattr: field::nsattr::WRITE_PROTECTED,
        nvmsetid: 2.into(),
        endgid: 3.into(),
        nstat: field::nstat::READY,
        kpios: 4,
        maxkt: 5.into(),
        rgrpid: 6.into(),
        ..IndependentNamespace::default()
    };
    assert_eq!(id.as_bytes(), hex::read(INDEPENDENT));
}

#[test]
fn the_nvm_command_sets_structures_encode_to_the_golden_bytes() {
    let golden = hex::read(COMMAND_SET);
    let mut namespace = NvmNamespace {
        lbstm: 0x0102_0304_0506_0708.into(),
        pic: 9,
        pifa: 10,
        npdgl: 11.into(),
        nprg: 12.into(),
        npra: 13.into(),
        nors: 14.into(),
        npdal: 15.into(),
        lbapss: 16.into(),
        tlbaag: 17.into(),
        ..NvmNamespace::default()
    };
    namespace.elbaf[0] = 0x110.into();
    namespace.elbaf[63] = 0x180.into();
    assert_eq!(namespace.as_bytes(), &golden[..4096]);
    assert_eq!((namespace.storage_tag_bits(0), namespace.protection_format(0)), (16, ProtectionFormat::Guard64));
    assert_eq!(namespace.protection_format(63), ProtectionFormat::Qualified);
    assert_eq!((namespace.storage_tag_bits(64), namespace.protection_format(64)), (0, ProtectionFormat::Guard16));
    let controller = NvmController {
        vsl: 8,
        wzsl: 9,
        wusl: 10,
        dmrl: 64,
        dmrsl: 0x10000.into(),
        dmsl: 0x10_0000.into(),
        kpiocap: 1,
        wzdsl: 2,
        aocs: 3.into(),
        ver: 0x10100.into(),
        lbamqf: 4,
        ..NvmController::default()
    };
    assert_eq!(controller.as_bytes(), &golden[4096..]);
}

#[test]
fn the_io_command_sets_end_at_the_first_zero() {
    assert_eq!(IoCommandSets::nvm_only().combinations().collect::<Vec<_>>(), [1]);
    assert_eq!(IoCommandSets::read_from_bytes(&[0xff; 4096]).unwrap().combinations().count(), 512);
}

fn golden_descriptors() -> [NamespaceIdDescriptor<'static>; 4] {
    [
        NamespaceIdDescriptor::Uuid(Uuid::parse("c0ffee00-1234-4abc-8def-0123456789ab").expect("a legal UUID")),
        NamespaceIdDescriptor::Nguid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
        NamespaceIdDescriptor::Csi(Csi::NVM),
        NamespaceIdDescriptor::Eui64([0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47]),
    ]
}

#[test]
fn descriptors_encode_to_and_decode_from_the_golden_bytes() {
    let golden = hex::read(DESCRIPTORS);
    let mut buffer = [0xff; 4096];
    let mut writer = DescriptorWriter::new(&mut buffer);
    for descriptor in golden_descriptors() {
        writer.push(&descriptor).unwrap();
    }
    assert_eq!(buffer.as_slice(), golden);
    let decoded: Vec<_> = Descriptors::new(&golden).map(Result::unwrap).collect();
    assert_eq!(decoded, golden_descriptors());
}

#[test]
fn broken_descriptors_are_reported_and_later_ones_found() {
    let wrong_length = [3, 2, 0, 0, 0xaa, 0xbb, 4, 1, 0, 0, 2];
    let decoded: Vec<_> = Descriptors::new(&wrong_length).collect();
    let zoned = NamespaceIdDescriptor::Csi(Csi::ZONED);
    assert_eq!(decoded, [Err(DescriptorError::Length { offset: 0, nidt: 3, nidl: 2 }), Ok(zoned)]);
    for cut in [&[1, 8, 0, 0, 1, 2][..], &[1, 8, 0][..], &[1][..]] {
        let decoded: Vec<_> = Descriptors::new(cut).collect();
        assert_eq!(decoded, [Err(DescriptorError::Truncated { offset: 0 })], "{cut:x?}");
    }
    assert_eq!(Descriptors::new(&[]).next(), None);
    assert_eq!(Descriptors::new(&[0, 0]).next(), None);
}

#[test]
fn a_descriptor_that_does_not_fit_is_refused() {
    let mut buffer = [0; 4096];
    let mut writer = DescriptorWriter::new(&mut buffer);
    let long = NamespaceIdDescriptor::Other { nidt: 9, nid: &[1; 252] };
    for _ in 0..16 {
        writer.push(&long).unwrap();
    }
    assert_eq!(writer.push(&NamespaceIdDescriptor::Csi(Csi::NVM)), Err(Full));
    assert_eq!(Descriptors::new(&buffer).count(), 16);
    let mut writer = DescriptorWriter::new(&mut buffer);
    assert_eq!(writer.push(&NamespaceIdDescriptor::Other { nidt: 9, nid: &[] }), Err(Full));
    assert_eq!(writer.push(&NamespaceIdDescriptor::Other { nidt: 9, nid: &[0; 256] }), Err(Full));
}

#[test]
fn namespaces_are_listed_after_the_given_one() {
    let nsids = [1, 2, 5, 9].map(Nsid);
    let listed = |after| NamespaceList::after(Nsid(after), nsids).iter().collect::<Vec<_>>();
    assert_eq!(listed(0), nsids);
    assert_eq!(listed(2), [5, 9].map(Nsid));
    assert_eq!(listed(9), []);
    let odd = NamespaceList::after(Nsid(0), [0, 3, 2, 3, 4, u32::MAX].map(Nsid));
    assert_eq!(odd.iter().collect::<Vec<_>>(), [3, 4].map(Nsid));
}

#[test]
fn a_full_list_of_namespaces_is_continued_and_a_hostile_one_is_not() {
    let nsids = || (1..=3000).map(Nsid);
    let mut seen = Vec::new();
    let mut after = Some(Nsid::NONE);
    while let Some(from) = after {
        let list = NamespaceList::after(from, nsids());
        seen.extend(list.iter());
        after = list.next_after(from);
    }
    assert!(seen.into_iter().eq(nsids()));
    let same_again = NamespaceList::after(Nsid(0), nsids());
    assert_eq!(same_again.next_after(Nsid(1024)), None);
    let ones = NamespaceList::read_from_bytes(&[0xff; 4096]).unwrap();
    assert_eq!(ones.next_after(Nsid(0)), None);
}

#[test]
fn controllers_are_listed_from_the_given_one() {
    let list = ControllerList::starting_at(ControllerId(2), [1, 2, 2, 7, 0xfff0].map(ControllerId));
    assert_eq!(list.iter().collect::<Vec<_>>(), [2, 7].map(ControllerId));
    assert_eq!(list.as_bytes()[..8], [2, 0, 2, 0, 7, 0, 0, 0]);
    assert_eq!(ControllerList::starting_at(ControllerId(0), (0..4000).map(ControllerId)).iter().count(), 2047);
    assert_eq!(ControllerList::read_from_bytes(&[0xff; 4096]).unwrap().iter().count(), 2047);
}

#[test]
fn texts_are_truncated_padded_and_made_safe() {
    let mut field = [0; 8];
    set_ascii(&mut field, "ab\u{e9}\n");
    assert_eq!(&field, b"ab??    ");
    set_ascii(&mut field, "0123456789");
    assert_eq!(&field, b"01234567");
    assert_eq!(Text::new(b"a b  \0x").to_string(), "a b");
    assert_eq!(Text::new(b"  x").to_string(), "  x");
    assert_eq!(Text::new(b"\x1b[2Jx\xffy").to_string(), "?[2Jx?y");
    assert_eq!(Text::new("a\u{202e}b\u{e9}".as_bytes()).to_string(), "a?b\u{e9}");
    assert_eq!(format!("{:<5}|", Text::new(b"ab ")), "ab   |");
    assert!(Text::new(b"    ").is_empty());
}

proptest! {
    #[test]
    fn any_bytes_are_a_controller_and_round_trip(bytes in proptest::collection::vec(any::<u8>(), 4096)) {
        let id = IdentifyController::read_from_bytes(&bytes).unwrap();
        prop_assert_eq!(id.as_bytes(), &bytes[..]);
        prop_assert_eq!(ControllerType::decode(id.cntrltype).encode(), id.cntrltype);
        for text in [id.serial_number(), id.model_number(), id.firmware_revision(), id.subsystem_nqn()] {
            prop_assert!(!text.to_string().chars().any(char::is_control));
        }
    }

    #[test]
    fn any_bytes_are_a_namespace(bytes in proptest::collection::vec(any::<u8>(), 4096)) {
        let id = IdentifyNamespace::read_from_bytes(&bytes).unwrap();
        prop_assert!(id.format_index() < 64);
        let _ = id.size_bytes();
    }

    #[test]
    fn reading_any_descriptors_ends(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(Descriptors::new(&bytes).count() <= bytes.len());
    }

    #[test]
    fn descriptors_round_trip(
        nids in proptest::collection::vec((5..=255_u8, proptest::collection::vec(any::<u8>(), 1..256)), 0..15)
    ) {
        let mut buffer = [0; 4096];
        let mut writer = DescriptorWriter::new(&mut buffer);
        let written: Vec<_> =
            nids.iter().map(|(nidt, nid)| NamespaceIdDescriptor::Other { nidt: *nidt, nid }).collect();
        for descriptor in &written {
            writer.push(descriptor).unwrap();
        }
        prop_assert_eq!(Descriptors::new(&buffer).map(Result::unwrap).collect::<Vec<_>>(), written);
    }

    #[test]
    fn printable_ascii_round_trips(text in "[!-~]([ -~]{0,18}[!-~])?") {
        let mut id = IdentifyController::default();
        id.set_serial_number(&text);
        prop_assert_eq!(id.serial_number().as_str(), Some(&text[..]));
    }
}
