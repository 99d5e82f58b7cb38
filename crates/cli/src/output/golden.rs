//! The output of data structures with unusual contents: zeros, all bits set, and bytes that all
//! differ from their neighbours. `tests` has usual ones.

use ebof_nvme::Nsid;
use ebof_nvme::feature::{Fid, Select};
use ebof_nvme::identify::{
    ControllerList, EnduranceGroupList, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, IndependentNamespace,
    IoCommandSets, NamespaceList, NvmNamespace,
};
use ebof_nvme::log::{
    ChangedNamespaces, CommandEffects, CommandsSupportedAndEffects, EnduranceGroupInformation, ErrorInformation,
    EventKind, FeatureEffects, FeaturesSupportedAndEffects, FirmwareSlots, Lid, LidSupport, PersistentEventHeader,
    ReservationNotification, SanitizeLog, SelfTestLog, SmartHealth, SupportedLogPages, push_event,
};
use ebof_nvme::property::offset;
use ebof_nvme::virtualization::SecondaryControllerList;
use zerocopy::{FromBytes, IntoBytes as _};

use super::ana::AnaView;
use super::command_sets::{UuidList, command_sets_view, uuids_view};
use super::controller::controller_view;
use super::cross_controller_reset::CrossControllerResetView;
use super::directive::DirectiveView;
use super::effects::{EffectsView, FeatureEffectsView, SupportedView};
use super::endurance::endurance_view;
use super::features::FeatureView;
use super::functions::{primary_view, secondary_view};
use super::health::{ErrorLogView, firmware_view, smart_view};
use super::identify_more::{
    endurance_groups_view, granularity_view, independent_view, nvm_controller_view, nvm_namespace_view,
};
use super::lba_status::LbaStatusView;
use super::lists::{changed_view, controller_list_view, namespace_list_view};
use super::namespace::{DescriptorsView, namespace_view};
use super::ocp::ocp_smart_view;
use super::persistent::PersistentView;
use super::registers::{PROPERTIES, PropertyView, ReadRegistersView, RegistersView};
use super::reservation::{ReportView, notification_view};
use super::sanitize::sanitize_view;
use super::self_test::self_test_view;
use super::{ListView, View, json};

const MANUAL: &str = include_str!("../../../../docs/json.md");

/// Bytes that all differ from their neighbours.
fn mixed(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 73 + 11).to_le_bytes()[0]).collect()
}

/// The contents: their names, and the bytes.
fn contents(bytes: usize) -> [(&'static str, Vec<u8>); 3] {
    [("zeros", vec![0; bytes]), ("ones", vec![0xff; bytes]), ("mixed", mixed(bytes))]
}

fn read<T: FromBytes>(bytes: &[u8]) -> Box<T> {
    Box::new(T::read_from_prefix(bytes).unwrap().0)
}

fn device() -> String {
    "/dev/nvme0".to_owned()
}

/// Everything that a view shows.
fn shown(view: &dyn View) -> String {
    let json = |verbose| view.json(verbose).to_text().unwrap();
    let (plain, verbose) = (view.text(false), view.text(true));
    let mut shown = plain.clone();
    if verbose != plain {
        shown += &format!("======== verbose\n{verbose}");
    }
    shown += &format!("======== json\n{}", json(false));
    if json(true) != json(false) {
        shown += &format!("======== verbose json\n{}", json(true));
    }
    shown
}

/// Every key of a view's JSON is in the document's section of the manual.
fn assert_documented(view: &dyn View) {
    let json = view.json(true).to_text().unwrap();
    let keys = json.lines().filter_map(|line| line.trim_start().strip_prefix('"')?.split_once("\":"));
    let schema = keys.clone().find(|(key, _)| *key == "schema").unwrap().1.replace(['"', ' ', ','], "");
    let is_its = |section: &&str| section.lines().next().is_some_and(|title| title.contains(&format!("`{schema}`")));
    let section = MANUAL.split("\n### ").find(is_its).unwrap_or_else(|| panic!("docs/json.md has no {schema}"));
    for (key, _) in keys.filter(|(key, _)| !["schema", "nvme0"].contains(key)) {
        // Of numbered keys the manual has the first.
        let first = format!("`{}1`", key.trim_end_matches(|last: char| last.is_ascii_digit()));
        let is_there = [format!("`{key}`"), first, "...".to_owned()].iter().any(|word| section.contains(word));
        assert!(is_there, "docs/json.md has no `{key}` of {schema}");
    }
}

/// A snapshot of the view of a data structure of type `T` with each of the contents.
fn assert_contents<T: FromBytes, V: View>(name: &str, view: impl Fn(Box<T>) -> V) {
    let mut all = String::new();
    for (contents, bytes) in contents(size_of::<T>()) {
        let view = view(read(&bytes));
        assert!(view.binary().is_none_or(|binary| binary == bytes), "{name}");
        all += &format!("######## {contents}\n{}", shown(&view));
        assert_documented(&view);
    }
    insta::assert_snapshot!(name, all);
}

#[test]
fn identify() {
    assert_contents("id-ctrl", |data| controller_view(data, false));
    assert_contents("id-ns", |data: Box<IdentifyNamespace>| namespace_view(Nsid(0xffff_fffe), data, false));
    let data = read(&mixed(4096));
    let view = namespace_view(Nsid(1), data, true);
    insta::assert_snapshot!("id-ns-vendor-specific", view.text(false) + &view.json(false).to_line().unwrap());
    assert_contents("nvm-id-ctrl", nvm_controller_view);
    assert_contents("nvm-id-ns", |data: Box<NvmNamespace>| nvm_namespace_view(Nsid(7), data, 16, 3));
    assert_contents("cmdset-ind-id-ns", |data: Box<IndependentNamespace>| independent_view(Nsid(7), data));
    assert_contents("id-ns-granularity", granularity_view);
    assert_contents("primary-ctrl-caps", primary_view);
    assert_contents("list-secondary", |data: Box<SecondaryControllerList>| secondary_view(data, 3));
    assert_contents("ns-descs", |data: Box<[u8; IDENTIFY_BYTES]>| DescriptorsView { nsid: Nsid(7), data });
}

#[test]
fn power_states() {
    let mut data = IdentifyController { npss: 7, ..IdentifyController::default() };
    for (index, state) in data.psd.iter_mut().enumerate() {
        *state = *read(&mixed(512)[index * 13..]);
    }
    let states = shown(&controller_view(Box::new(data), false));
    insta::assert_snapshot!("id-ctrl-power-states", states);
}

#[test]
fn namespace_descriptors() {
    let mut data = Box::new([0; IDENTIFY_BYTES]);
    let mut at = 0;
    for (kind, bytes) in [(1, 8), (2, 16), (3, 16), (4, 1), (0x77, 5)] {
        data[at..at + 2].copy_from_slice(&[kind, u8::try_from(bytes).unwrap()]);
        data[at + 4..at + 4 + bytes].copy_from_slice(&mixed(bytes));
        at += 4 + bytes;
    }
    insta::assert_snapshot!("ns-descs-every-type", shown(&DescriptorsView { nsid: Nsid(7), data }));
}

#[test]
fn lists() {
    let numbers: Vec<u8> = (0_u16..2048).flat_map(|at| if at < 10 { at * 5000 + 3 } else { 0 }.to_le_bytes()).collect();
    let view = namespace_list_view(read::<NamespaceList>(&numbers));
    let mut all = shown(&view);
    all += &shown(&controller_list_view(read::<ControllerList>(&numbers)));
    all += &shown(&endurance_groups_view(read::<EnduranceGroupList>(&numbers)));
    for verb in ["changed-ns-list-log", "changed-alloc-ns-list-log"] {
        for data in [numbers.clone(), vec![0; 4096], vec![0xff; 4096]] {
            let data = read::<ChangedNamespaces>(&data);
            all += &shown(&changed_view(verb, &device(), data));
        }
    }
    let mut sets = vec![0; size_of::<IoCommandSets>()];
    sets[..32].copy_from_slice(&mixed(32));
    all += &shown(&command_sets_view(read::<IoCommandSets>(&sets)));
    let mut uuids = vec![0; size_of::<UuidList>()];
    uuids[..160].copy_from_slice(&mixed(160));
    all += &shown(&uuids_view(read::<UuidList>(&uuids)));
    insta::assert_snapshot!("lists", all);
}

#[test]
fn health() {
    assert_contents("smart-log", |data: Box<SmartHealth>| smart_view(&device(), Nsid(1), data));
    assert_contents("error-log", |data: Box<[ErrorInformation; 2]>| ErrorLogView {
        device: device(),
        entries: data.to_vec(),
    });
    assert_contents("fw-log", |data: Box<FirmwareSlots>| firmware_view(&device(), data));
    assert_contents("endurance-log", |data: Box<EnduranceGroupInformation>| endurance_view(&device(), 0xfe, data));
    assert_contents("sanitize-log", |data: Box<SanitizeLog>| sanitize_view(&device(), data));
    assert_contents("self-test-log", |data: Box<SelfTestLog>| self_test_view(&device(), data, 4));
    assert_contents("resv-notif-log", |data: Box<ReservationNotification>| notification_view(&device(), data));
    assert_contents("ocp-smart-add-log", |data: Box<[u8; 512]>| ocp_smart_view(&device(), data));
}

#[test]
fn fields_that_came_with_a_version() {
    let versions = [2_u8, 3].map(|version| {
        let mut data = Box::new([9; 512]);
        data[494..496].copy_from_slice(&[version, 0]);
        shown(&ocp_smart_view(&device(), data))
    });
    insta::assert_snapshot!("ocp-smart-add-log-versions", versions.concat());
    let transports = (0..=4).map(|trtype| ErrorInformation { trtype, ..*read(&mixed(64)) });
    let view = ErrorLogView { device: device(), entries: transports.collect() };
    insta::assert_snapshot!("error-log-transports", shown(&view));
    // Sensors with gaps, and of everything a little.
    let mut data = read::<SmartHealth>(&mixed(512));
    data.tsen[1] = 0.into();
    data.tsen[6] = 0.into();
    insta::assert_snapshot!("smart-log-sensors", shown(&smart_view(&device(), Nsid::ALL, data)));
}

#[test]
fn sanitize_and_self_test_states() {
    let states = (0..8_u8).map(|state| {
        let sstat = (u16::from(state) | 0x30).into();
        let log = SanitizeLog { sstat, ssi: state << 4 | state, sprog: 0x8000.into(), ..SanitizeLog::new() };
        shown(&sanitize_view(&device(), Box::new(log)))
    });
    insta::assert_snapshot!("sanitize-log-states", states.collect::<String>());
    let mut data = read::<SelfTestLog>(&vec![0; size_of::<SelfTestLog>()]);
    for (index, entry) in data.results.iter_mut().enumerate() {
        let [low, ..] = index.to_le_bytes();
        *entry = *read(&mixed(200)[index..]);
        entry.dsts = low << 4 | low;
        entry.vdinfo = low;
    }
    let log = shown(&self_test_view(&device(), data, 20));
    insta::assert_snapshot!("self-test-log-results", log);
}

#[test]
fn persistent_events() {
    let mut all = String::new();
    for (contents, data) in contents(520) {
        let mut events = Vec::new();
        for kind in 1..=0x0e {
            // A SMART snapshot is longer than all others.
            let data = if EventKind(kind) == EventKind::SMART_SNAPSHOT { &data } else { &data[..100] };
            push_event(&mut events, EventKind(kind), ebof_nvme::ControllerId(0x102), 0xffff_0000_1111, data);
        }
        let bytes = events.len() as u64 + 512;
        let header = *read::<PersistentEventHeader>(&[&data[..480], &[0x5a; 4], &[0; 28]].concat());
        let header = PersistentEventHeader { tll: bytes.into(), lhl: 492.into(), ..header };
        let data = [header.as_bytes(), &events].concat();
        all += &format!("######## {contents}\n{}", shown(&PersistentView { device: device(), data }));
    }
    insta::assert_snapshot!("persistent-event-log", all);
}

#[test]
fn groups_and_reservations() {
    let mut log = [7_u64.to_le_bytes().as_slice(), &6_u16.to_le_bytes(), &[0; 6]].concat();
    for (state, nsids) in [(1_u8, 2_u32), (2, 0), (3, 1), (4, 0), (0x1f, 1), (9, 0)] {
        log.extend(u32::from(state).to_le_bytes().iter().chain(&nsids.to_le_bytes()));
        log.extend(u64::MAX.to_le_bytes());
        log.extend([state; 16]);
        log.extend(mixed(nsids as usize * 4));
    }
    let mut all = shown(&AnaView::new("/dev/nvme0", log.clone()).unwrap());
    all += &format!("{}\n", AnaView::new("/dev/nvme0", log[..40].to_vec()).unwrap_err());
    for extended in [false, true] {
        for (_, mut data) in contents(24 + 64 * 3) {
            if extended {
                data.resize(64 * 4, 3);
            }
            all += &shown(&ReportView { nsid: Nsid(1), data, extended });
        }
        all += &shown(&ReportView { nsid: Nsid(1), data: vec![1; 23], extended });
    }
    for (_, mut data) in contents(8 + 16 * 3) {
        data[..4].copy_from_slice(&[3, 0, 0, 0]);
        all += &shown(&LbaStatusView { nsid: Nsid(1), data });
    }
    all += &shown(&LbaStatusView { nsid: Nsid(1), data: vec![0; 3] });
    insta::assert_snapshot!("groups-and-reservations", all);
}

#[test]
fn effects() {
    let mut data = Box::new(CommandsSupportedAndEffects::default());
    let mut features = Box::new(FeaturesSupportedAndEffects::default());
    let mut pages = Box::new(SupportedLogPages::default());
    for opcode in (0..=u8::MAX).step_by(6) {
        let bits = u32::from_le_bytes([opcode | 1, opcode, opcode << 1, opcode.reverse_bits()]);
        data.set_admin(opcode, CommandEffects(bits));
        data.set_io(opcode, CommandEffects(bits.reverse_bits() | 1));
        features.set(Fid(opcode), FeatureEffects(bits));
        pages.set(Lid(opcode), LidSupport(bits));
    }
    pages.set(Lid::DISCOVERY, LidSupport(u32::MAX));
    let mut all = String::new();
    for csi in [0, 2] {
        let view = EffectsView { data: data.clone(), csi };
        let json = json::list_text(&view.json(true)).unwrap();
        all += &format!("{}========\n{}========\n{json}", view.text(false), view.text(true));
    }
    all += &shown(&FeatureEffectsView { device: device(), data: features });
    all += &shown(&SupportedView { device: device(), data: pages });
    insta::assert_snapshot!("effects", all);
}

#[test]
fn cross_controller_resets() {
    let mut all = String::new();
    // The header alone, two entries, a piece of one, less than the header: what is told may be a
    // lie.
    for bytes in [8, 24, 12, 4] {
        for (_, data) in contents(bytes) {
            all += &shown(&CrossControllerResetView::new("/dev/nvme0", data));
        }
    }
    for state in 0..4 {
        let data = vec![1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 2, 0, 0xff, 0xff, state, state];
        all += &shown(&CrossControllerResetView::new("/dev/nvme0", data));
    }
    insta::assert_snapshot!("cross-controller-resets", all);
}

#[test]
fn registers() {
    let mut all = String::new();
    let mut known: Vec<_> = PROPERTIES.iter().map(|(offset, symbol, ..)| (*offset, *symbol)).collect();
    known.push((offset::CAP + 0x28, "asq"));
    for value in [0, u64::MAX, 0x1234_5678_9abc_def0, 0x5a5a_0f0f_1414_0b0b, 0x0000_0001_0000_8009] {
        let values = known.iter().map(|(_, symbol)| (*symbol, value)).collect();
        all += &shown(&RegistersView { values });
        let values = known.iter().map(|(offset, symbol)| (*offset, *symbol, value)).collect();
        all += &shown(&ReadRegistersView { values });
        for verb in ["get-property", "set-property"] {
            for (offset, _) in &known {
                all += &shown(&PropertyView { verb, offset: *offset, value });
            }
        }
    }
    insta::assert_snapshot!("registers", all);
}

#[test]
fn features() {
    let mut all = String::new();
    for fid in (0..=0x20).chain(0x78..=0x86).map(Fid) {
        for value in [0, u32::MAX, 0x1234_5678, 0x0055_0502] {
            let view = FeatureView { fid, select: Select::Current, value, data: Vec::new() };
            all += &format!("{}{}", view.text(true), view.json(false).to_line().unwrap());
        }
    }
    insta::assert_snapshot!("features", all);
    let mut all = String::new();
    for fid in [Fid::TIMESTAMP, Fid::HOST_BEHAVIOR_SUPPORT, Fid::HOST_IDENTIFIER, Fid::POWER_MANAGEMENT] {
        for (_, mut data) in contents(16).into_iter().chain(contents(512)).chain(contents(3)) {
            data.rotate_left(1);
            let view = FeatureView { fid, select: Select::Saved, value: 1, data };
            all += &format!("{}{}{}", view.text(false), view.text(true), view.json(true).to_line().unwrap());
        }
        for select in [Select::Supported, Select::Default, Select::Reserved(5)] {
            all += &shown(&FeatureView { fid, select, value: 5, data: vec![1; 16] });
        }
    }
    insta::assert_snapshot!("features-with-data", all);
}

#[test]
fn directives() {
    let mut all = String::new();
    for verb in ["dir-receive", "dir-send"] {
        for (kind, operation) in [(0, 1), (1, 1), (1, 2), (1, 3), (2, 1)] {
            for data in [Vec::new(), mixed(98), vec![0xff; 9]] {
                let view =
                    DirectiveView { verb, kind, operation, spec: 0x203, nsid: Nsid(9), result: 0x0102_0304, data };
                all += &shown(&view);
            }
        }
    }
    insta::assert_snapshot!("directives", all);
}
