//! Log pages against golden bytes, and their decoders against any bytes of a peer.

use ebof_nvme::feature::Fid;
use ebof_nvme::log::{
    AddressFamily, AnaGroups, AnaState, AnaWriter, ChangedNamespaces, CommandEffects, CommandsSupportedAndEffects,
    DiscoveryEntries, DiscoveryEntry, DiscoveryHeader, EntryFlags, ErrorInformation, FeatureEffects,
    FeaturesSupportedAndEffects, FirmwareSlots, Lid, LidSupport, ParameterErrorLocation, RdmaAddress, RdmaProvider,
    RdmaQueuePair, SecType, SmartHealth, Submission, SubsystemType, SupportedLogPages, TrType, Treq, critical_warning,
    lsp, scope,
};
use ebof_nvme::{ControllerId, Nqn, Nsid, Status, opcode};
use ebof_testkit::hex;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

const DISCOVERY: &str = include_str!("../../testdata/discovery_log.hex");
const SMART: &str = include_str!("../../testdata/smart_health.hex");
const ERROR: &str = include_str!("../../testdata/error_information.hex");
const FIRMWARE: &str = include_str!("../../testdata/firmware_slots.hex");
const ANA: &str = include_str!("../../testdata/ana_log.hex");

fn tcp_entry() -> DiscoveryEntry {
    let mut entry = DiscoveryEntry {
        trtype: TrType::TCP.0,
        adrfam: AddressFamily::IPV4.0,
        subtype: SubsystemType::NVM.0,
        treq: Treq::SQ_FLOW_CONTROL_DISABLE.0,
        portid: 1.into(),
        cntlid: ControllerId::DYNAMIC.0.into(),
        asqsz: 32.into(),
        ..DiscoveryEntry::default()
    };
    entry.set_service_id("4420");
    entry.set_subsystem_nqn(&Nqn::parse("nqn.2014-08.org.example:drive0").expect("a legal NQN"));
    entry.set_address("127.0.0.1");
    entry.set_security(SecType::NONE);
    entry
}

fn rdma_entry() -> DiscoveryEntry {
    let mut entry = DiscoveryEntry {
        trtype: TrType::RDMA.0,
        adrfam: AddressFamily::IPV4.0,
        subtype: SubsystemType::NVM.0,
        treq: Treq::SECURE_CHANNEL_REQUIRED.0,
        portid: 3.into(),
        cntlid: ControllerId::ANY_STATIC.0.into(),
        asqsz: 64.into(),
        ..DiscoveryEntry::default()
    };
    entry.set_service_id("4420");
    entry.set_subsystem_nqn(&Nqn::parse("nqn.2014-08.org.example:drive1").expect("a legal NQN"));
    entry.set_address("192.168.13.147");
    entry.set_rdma_address(RdmaAddress {
        queue_pair: RdmaQueuePair::CONNECTED,
        provider: RdmaProvider::ROCE_V2,
        connection_management: 1,
        partition_key: 0x8001,
    });
    entry
}

// @test wire.structures
#[test]
fn a_discovery_log_encodes_to_the_golden_bytes() {
    let golden = hex::read(DISCOVERY);
    let header = DiscoveryHeader { genctr: 5.into(), numrec: 3.into(), ..DiscoveryHeader::default() };
    assert_eq!(header.as_bytes(), &golden[..1024]);
    assert_eq!(tcp_entry().as_bytes(), &golden[1024..2048]);
    assert_eq!(rdma_entry().as_bytes(), &golden[3072..]);
}

#[test]
fn a_discovery_log_with_any_padding_is_decoded() {
    let golden = hex::read(DISCOVERY);
    let (header, entries) = DiscoveryEntries::new(&golden).unwrap();
    assert_eq!((header.genctr.get(), header.recfmt.get(), entries.len()), (5, 0, 3));
    let entries: Vec<_> = entries.collect();
    assert_eq!(entries[0], &tcp_entry());
    let discovery = entries[1];
    assert_eq!(discovery.transport().name(), "tcp");
    assert_eq!(discovery.address_family().name(), "ipv6");
    assert_eq!(discovery.subsystem_type().name(), "current discovery subsystem");
    assert_eq!(discovery.requirements().name(), "not required, sq flow control disable supported");
    assert_eq!(discovery.requirements().secure_channel_required(), Some(false));
    assert!(discovery.requirements().sq_flow_control_disable());
    assert_eq!(discovery.flags(), EntryFlags::EPCSD.with(EntryFlags::DUPRETINFO));
    assert_eq!(discovery.flags().name(), "explicit discovery connections, duplicate discovery information");
    assert_eq!(discovery.service_id(), "8009");
    assert_eq!(discovery.address(), "fe80::1");
    assert_eq!(discovery.subsystem_nqn(), Nqn::DISCOVERY);
    assert_eq!(discovery.security().map(SecType::name), Some("tls13"));
    assert_eq!(discovery.rdma_address(), None);
    let rdma = entries[2].rdma_address().unwrap();
    assert_eq!((rdma.queue_pair.name(), rdma.provider.name(), rdma.partition_key), ("connected", "roce-v2", 0x8001));
    assert_eq!(entries[2].security(), None);
    assert_eq!(entries[2].requirements().secure_channel_required(), Some(true));
}

#[test]
fn a_discovery_log_with_too_few_records_is_decoded_to_its_end() {
    let mut log = hex::read(DISCOVERY);
    log[8..16].fill(0xff);
    assert_eq!(DiscoveryEntries::new(&log).unwrap().1.count(), 3);
    assert_eq!(DiscoveryEntries::new(&log[..4095]).unwrap().1.count(), 2);
    assert_eq!(DiscoveryEntries::new(&log[..1024]).unwrap().1.count(), 0);
    assert!(DiscoveryEntries::new(&log[..1023]).is_none());
    log[8..16].copy_from_slice(&1_u64.to_le_bytes());
    assert_eq!(DiscoveryEntries::new(&log).unwrap().1.count(), 1);
}

#[test]
fn undefined_values_have_a_name() {
    for name in [
        TrType(0).name(),
        AddressFamily(9).name(),
        SubsystemType(0).name(),
        Treq(3).name(),
        EntryFlags(8).name(),
        SecType(3).name(),
        RdmaProvider(0).name(),
        RdmaQueuePair(0).name(),
    ] {
        assert_eq!(name, "unrecognized");
    }
    assert_eq!(Lid(0x3f).name(), None);
    assert_eq!(Lid::DISCOVERY.name(), Some("Discovery"));
}

// @test wire.structures
#[test]
fn smart_health_encodes_to_and_decodes_from_the_golden_bytes() {
    let golden = hex::read(SMART);
    let mut smart = SmartHealth {
        cw: critical_warning::SPARE | critical_warning::DEGRADED,
        ctemp: 310.into(),
        avsp: 9,
        avspt: 10,
        pused: 99,
        egcws: 1,
        dur: SmartHealth::data_units(1_024_000_000).into(),
        duw: ((1_u128 << 64) + 1).into(),
        hrc: 33.into(),
        hwc: 44.into(),
        cbt: 55.into(),
        pwrc: 66.into(),
        poh: 77.into(),
        upl: 88.into(),
        mdie: 99.into(),
        neile: 111.into(),
        wctt: 122.into(),
        cctt: 133.into(),
        tmt1tc: 144.into(),
        tmt2tc: 155.into(),
        ttmt1: 166.into(),
        ttmt2: 177.into(),
        ..SmartHealth::default()
    };
    smart.tsen[0] = 311.into();
    smart.tsen[7] = 318.into();
    assert_eq!(smart.as_bytes(), golden);
    assert_eq!(SmartHealth::read_from_bytes(&golden).unwrap(), smart);
    assert_eq!(smart.temperature_celsius(), Some(37));
    assert_eq!(smart.bytes_read(), 1_024_000_000);
    assert_eq!(SmartHealth::default().temperature_celsius(), None);
    assert_eq!([0, 1, 512_000, 512_001].map(SmartHealth::data_units), [0, 1, 1, 2]);
    assert_eq!(SmartHealth::read_from_bytes(&[0xff; 512]).unwrap().bytes_written(), u128::MAX);
}

#[test]
fn an_error_entry_encodes_to_and_decodes_from_the_golden_bytes() {
    let golden = hex::read(ERROR);
    let mut error = ErrorInformation {
        ec: 7.into(),
        sqid: 3.into(),
        cid: 0x1234.into(),
        lba: 262_144.into(),
        nsid: 1.into(),
        trtype: TrType::TCP.0,
        opc: opcode::nvm::READ,
        csinfo: 0x55.into(),
        ttsi: 9.into(),
        lpver: 1,
        ..ErrorInformation::default()
    };
    error.set_status(Status(Status::LBA_OUT_OF_RANGE.0 | 1 << 14));
    error.set_parameter_error_location(Some(ParameterErrorLocation { byte: 40, bit: 0 }));
    assert_eq!(error.as_bytes(), golden);
    assert_eq!(ErrorInformation::read_from_bytes(&golden).unwrap(), error);
    assert_eq!(error.status(), Status(Status::LBA_OUT_OF_RANGE.0 | 1 << 14));
    error.set_parameter_error_location(None);
    assert_eq!((error.pel.get(), error.parameter_error_location()), (0xffff, None));
}

#[test]
fn firmware_slots_encode_to_and_decode_from_the_golden_bytes() {
    let golden = hex::read(FIRMWARE);
    let mut slots = FirmwareSlots::default();
    slots.set_slots(1, 2);
    slots.set_revision(1, "1.0");
    slots.set_revision(2, "1.1.0-rc1");
    slots.set_revision(0, "none");
    slots.set_revision(8, "none");
    assert_eq!(slots.as_bytes(), golden);
    assert_eq!((slots.active_slot(), slots.next_slot()), (1, 2));
    assert_eq!(slots.revision(2).map(|text| text.to_string()).as_deref(), Some("1.1.0-rc"));
    assert_eq!([0, 3, 8].map(|slot| slots.revision(slot).is_some()), [false; 3]);
}

#[test]
fn an_ana_log_encodes_to_and_decodes_from_the_golden_bytes() {
    let golden = hex::read(ANA);
    let mut writer = AnaWriter::new(3);
    writer.push(1, 3, AnaState::OPTIMIZED, [1, 5].map(Nsid));
    writer.push(2, 1, AnaState::INACCESSIBLE, []);
    assert_eq!(writer.finish(), golden);
    let (header, mut groups) = AnaGroups::new(&golden).unwrap();
    assert_eq!(header.chgcnt.get(), 3);
    let first = groups.next().unwrap();
    assert_eq!((first.header.agid.get(), first.header.state().name(), first.nsids.len()), (1, "optimized", 2));
    assert_eq!(first.nsids[1].get(), 5);
    assert_eq!(groups.next().unwrap().header.state(), AnaState::INACCESSIBLE);
    assert_eq!((groups.next(), groups.missing()), (None, 0));
}

#[test]
fn a_truncated_ana_log_is_reported() {
    let mut golden = hex::read(ANA);
    let (_, mut groups) = AnaGroups::new(&golden[..60]).unwrap();
    assert_eq!((groups.by_ref().count(), groups.missing()), (1, 1));
    golden[20..24].fill(0xff);
    let (_, mut groups) = AnaGroups::new(&golden).unwrap();
    assert_eq!((groups.by_ref().count(), groups.missing()), (0, 2));
    assert!(AnaGroups::new(&golden[..15]).is_none());
}

#[test]
fn supported_log_pages_are_by_lid() {
    let mut page = SupportedLogPages::default();
    page.set(Lid::SMART_HEALTH, LidSupport::SUPPORTED);
    page.set(Lid::DISCOVERY, LidSupport::with_parameter(lsp::PORT_LOCAL.into()));
    assert_eq!(page.as_bytes()[8..12], [1, 0, 0, 0]);
    assert_eq!(page.as_bytes()[0x70 * 4..0x71 * 4], [1, 0, 2, 0]);
    assert_eq!(page.iter().map(|(lid, _)| lid).collect::<Vec<_>>(), [Lid::SMART_HEALTH, Lid::DISCOVERY]);
    assert_eq!(page.support(Lid::DISCOVERY).parameter(), 2);
    assert!(!page.support(Lid(0xff)).is_supported());
}

#[test]
fn too_many_changed_namespaces_mean_all() {
    let some = ChangedNamespaces::new([3, 9].map(Nsid));
    assert_eq!(some.iter().collect::<Vec<_>>(), [3, 9].map(Nsid));
    assert!(!some.is_overflowed());
    assert_eq!(ChangedNamespaces::new((1..=1024).map(Nsid)).iter().count(), 1024);
    let all = ChangedNamespaces::new((1..=1025).map(Nsid));
    assert!(all.is_overflowed());
    assert_eq!((all.iter().count(), &all.as_bytes()[..8]), (0, &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0][..]));
}

#[test]
fn effects_of_commands_are_by_opcode() {
    let mut page = CommandsSupportedAndEffects::default();
    let write = CommandEffects::CSUPP.with(CommandEffects::LBCC);
    let attach = CommandEffects::CSUPP
        .with(CommandEffects::NIC)
        .with_submission(Submission::AloneInNamespace)
        .with_scope(scope::NAMESPACE | scope::SUBSYSTEM);
    page.set_io(opcode::nvm::WRITE, write);
    page.set_admin(0x15, attach);
    assert_eq!(page.as_bytes()[1024 + 4..1024 + 8], [3, 0, 0, 0]);
    assert_eq!(page.as_bytes()[0x15 * 4..0x16 * 4], [0x09, 0, 0x11, 0x02]);
    assert!(page.io(opcode::nvm::WRITE).contains(CommandEffects::LBCC));
    assert!(!page.io(opcode::nvm::READ).contains(CommandEffects::CSUPP));
    assert_eq!(page.admin(0x15).submission(), Submission::AloneInNamespace);
    assert_eq!(page.admin(0x15).scope(), scope::NAMESPACE | scope::SUBSYSTEM);
    assert_eq!(page.admin(0x15).with_submission(Submission::Alone).0 >> 16 & 7, 2);
}

#[test]
fn effects_of_features_are_by_fid() {
    let mut page = FeaturesSupportedAndEffects::default();
    page.set(Fid::HOST_IDENTIFIER, FeatureEffects::FSUPP.with_scope(scope::CONTROLLER));
    assert_eq!(page.as_bytes()[0x81 * 4..0x82 * 4], [1, 0, 0x20, 0]);
    assert!(page.feature(Fid::HOST_IDENTIFIER).contains(FeatureEffects::FSUPP));
    assert_eq!(page.feature(Fid::HOST_IDENTIFIER).scope(), scope::CONTROLLER);
}

proptest! {
    #[test]
    fn reading_any_discovery_log_ends(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
        if let Some((_, entries)) = DiscoveryEntries::new(&bytes) {
            prop_assert!(entries.len() < bytes.len() / 1024);
            for entry in entries {
                let _ = (entry.security(), entry.rdma_address(), entry.flags().name(), entry.requirements().name());
                let shown = format!("{}{}{}", entry.address(), entry.service_id(), entry.subsystem_nqn());
                prop_assert!(!shown.chars().any(char::is_control));
            }
        }
    }

    #[test]
    fn reading_any_ana_log_ends(bytes in proptest::collection::vec(0..4_u8, 0..400)) {
        if let Some((header, mut groups)) = AnaGroups::new(&bytes) {
            let read = groups.by_ref().count();
            prop_assert_eq!(read + usize::from(groups.missing()), usize::from(header.nagd.get()));
        }
    }

    #[test]
    fn an_ana_log_round_trips(
        groups in proptest::collection::vec(
            (any::<u32>(), 0..16_u8, proptest::collection::vec(any::<u32>(), 0..9)), 0..9)
    ) {
        let mut writer = AnaWriter::new(1);
        for (agid, state, nsids) in &groups {
            writer.push(*agid, 2, AnaState(*state), nsids.iter().copied().map(Nsid));
        }
        let log = writer.finish();
        let read: Vec<_> = AnaGroups::new(&log).unwrap().1.map(|group| {
            let nsids = group.nsids.iter().map(|nsid| nsid.get()).collect();
            (group.header.agid.get(), group.header.anas, nsids)
        }).collect();
        prop_assert_eq!(read, groups);
    }

    #[test]
    fn fields_of_effects_do_not_overlap(bits in any::<u32>(), scope in 0..0x1000_u32) {
        let effects = CommandEffects(bits).with_scope(scope);
        prop_assert_eq!(effects.scope(), scope);
        prop_assert_eq!(effects.with_submission(effects.submission()), effects);
        prop_assert_eq!(effects.submission(), CommandEffects(bits).submission());
    }
}
