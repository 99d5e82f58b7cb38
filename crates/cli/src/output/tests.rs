//! The output of every view for fixed bytes, as snapshots, which a change of the text or of a JSON
//! key breaks.

use ebof_attach::state::{Ended, GivenUp, State};
use ebof_attach::{Attached, Device, Request};
use ebof_drive::function::{self, Function, Primary};
use ebof_nvme::feature::{Fid, Select};
use ebof_nvme::identify::{
    ControllerList, EnduranceGroupList, IdentifyController, IdentifyNamespace, IndependentNamespace, IoCommandSets,
    NamespaceGranularityList, NamespaceList, NvmController, NvmNamespace,
};
use ebof_nvme::lba_status::{CompletionCondition, status_list};
use ebof_nvme::log::persistent_event::{
    ControllerResetInformation, HardwareErrorEvent, SetFeatureEvent, hardware_error,
};
use ebof_nvme::log::{
    ChangedNamespaces, CommandEffects, CommandsSupportedAndEffects, DiscoveryEntries, EnduranceGroupInformation,
    ErrorInformation, EventKind, FeatureEffects, FeaturesSupportedAndEffects, FirmwareSlots, Lid, LidSupport,
    PersistentEventHeader, ReservationEvent, ReservationNotification, SanitizeLog, SelfTestLog, SmartHealth,
    Submission, SupportedLogPages, push_event, scope,
};
use ebof_nvme::opcode::{admin, nvm};
use ebof_nvme::property::Cap;
use ebof_nvme::{ControllerId, Nsid};
use ebof_testkit::hex;
use zerocopy::{FromBytes, IntoBytes as _};

use super::attached::{ConnectView, Connected, DevicesView, Ranking, SubsystemsView, TopologyView};
use super::command_sets::{UuidList, command_sets_view, uuids_view};
use super::connections::{ConnectAllView, DisconnectView};
use super::controller::controller_view;
use super::directive::DirectiveView;
use super::discovery::DiscoveryView;
use super::done::Done;
use super::effects::{EffectsView, FeatureEffectsView, SupportedView};
use super::endurance::endurance_view;
use super::features::{FeatureView, feature_set_view};
use super::functions::{primary_view, secondary_view, virtualized_view};
use super::health::{ErrorLogView, firmware_view, smart_view};
use super::identify_more::{
    endurance_groups_view, granularity_view, independent_view, nvm_controller_view, nvm_namespace_view,
};
use super::lba_status::LbaStatusView;
use super::lists::{changed_view, controller_list_view, namespace_list_view};
use super::managed::Managed;
use super::namespace::{DescriptorsView, namespace_view};
use super::persistent::PersistentView;
use super::raw::{log_view, security_view};
use super::registers::RegistersView;
use super::reservation::{ReportView, notification_view};
use super::sanitize::sanitize_view;
use super::self_test::self_test_view;
use super::{ListView, View};

macro_rules! bytes {
    ($file:literal) => {
        hex::read(include_str!(concat!("../../../nvme/testdata/", $file)))
    };
}

fn read<T: FromBytes>(bytes: &[u8]) -> Box<T> {
    Box::new(T::read_from_prefix(bytes).unwrap().0)
}

/// As [`assert_view`], of a view whose JSON is a list.
macro_rules! assert_list_view {
    ($name:literal, $view:expr) => {{
        let view: &dyn ListView = &$view;
        let json = super::json::list_text(&view.json(false)).unwrap();
        let (plain, verbose) = (view.text(false), view.text(true));
        insta::assert_snapshot!($name, format!("{plain}======== verbose\n{verbose}======== json\n{json}"));
    }};
}

/// Text, verbose text and JSON of a view, in one snapshot.
macro_rules! assert_view {
    ($name:literal, $view:expr) => {{
        let view: &dyn View = &$view;
        let json = |verbose| view.json(verbose).to_text().unwrap();
        let (plain, verbose) = (view.text(false), view.text(true));
        let mut shown = format!("{plain}======== verbose\n{verbose}======== json\n{}", json(false));
        if json(true) != json(false) {
            shown += &format!("======== verbose json\n{}", json(true));
        }
        insta::assert_snapshot!($name, shown);
    }};
}

#[test]
fn identify() {
    let data = read::<IdentifyController>(&bytes!("identify_controller.hex"));
    assert_view!("id-ctrl", controller_view(data, false));
    let data = read::<IdentifyController>(&bytes!("identify_controller_every_field.hex"));
    assert_view!("id-ctrl-every-field", controller_view(data, true));
    let data = read::<IdentifyNamespace>(&bytes!("identify_namespace.hex"));
    assert_view!("id-ns", namespace_view(Nsid(1), data, false));
    let mut data = Box::new([0; 4096]);
    let descriptors = bytes!("namespace_descriptors.hex");
    data[..descriptors.len()].copy_from_slice(&descriptors);
    assert_view!("ns-descs", DescriptorsView { nsid: Nsid(1), data });
}

#[test]
fn smaller_identify_structures() {
    let data = Box::new(NvmController { vsl: 8, wzsl: 5, dmrsl: 65_536.into(), ..NvmController::default() });
    assert_view!("nvm-id-ctrl", nvm_controller_view(data));
    let data = read::<NvmNamespace>(&bytes!("nvm_command_set.hex"));
    assert_view!("nvm-id-ns", nvm_namespace_view(Nsid(1), data, 3, 1));
    let data = read::<IndependentNamespace>(&bytes!("independent_namespace.hex"));
    assert_view!("cmdset-ind-id-ns", independent_view(Nsid(1), data));
    let data = Box::new(NamespaceGranularityList::of_all_formats(1 << 20));
    assert_view!("id-ns-granularity", granularity_view(data));
    let data = Box::new(EnduranceGroupList::starting_at(0, [1, 16]));
    assert_view!("list-endgrp", endurance_groups_view(data));
}

#[test]
fn functions() {
    let functions: std::collections::BTreeMap<u16, Function> =
        [(1, Function { queues: 9, interrupts: 8, online: true, ..Function::default() }), (2, Function::default())]
            .into();
    let data = Box::new(function::primary_capabilities(
        ControllerId(0),
        &Primary { queues: 3, ..Primary::default() },
        &functions,
    ));
    assert_view!("primary-ctrl-caps", primary_view(data));
    let data = Box::new(function::secondary_controllers(ControllerId(0), &functions, ControllerId(0)));
    assert_view!("list-secondary", secondary_view(data, 127));
    assert_view!("virt-mgmt", virtualized_view("nvme0", 9));
}

#[test]
fn lists() {
    let data = Box::new(NamespaceList::after(Nsid(0), [Nsid(1), Nsid(2), Nsid(16)]));
    assert_view!("list-ns", namespace_list_view(data));
    let data = Box::new(ControllerList::starting_at(ControllerId(0), [ControllerId(1), ControllerId(42)]));
    assert_view!("list-ctrl", controller_list_view(data));
    assert_view!(
        "changed-ns-list-log",
        changed_view("changed-ns-list-log", "nvme0", Box::new(ChangedNamespaces::new([Nsid(3)])))
    );
    assert_eq!(
        changed_view("changed-ns-list-log", "nvme0", Box::new(ChangedNamespaces::new([]))).text(false),
        "no ns changed\n"
    );
    let overflow = changed_view("changed-ns-list-log", "nvme0", Box::new(ChangedNamespaces::new((1..2000).map(Nsid))));
    assert_eq!(overflow.text(false), "more than 1024 ns changed\n");
}

#[test]
fn health() {
    let data = read::<SmartHealth>(&bytes!("smart_health.hex"));
    assert_view!("smart-log", smart_view("nvme0", Nsid::ALL, data));
    let entry = *read::<ErrorInformation>(&bytes!("error_information.hex"));
    assert_view!("error-log", ErrorLogView { device: "nvme0".to_owned(), entries: vec![entry] });
    let io = ErrorInformation { si: (0x183 << 1).into(), ..entry };
    let shown = ErrorLogView { device: "nvme0".to_owned(), entries: vec![io] }.text(false);
    assert!(shown.contains("Command Size Limit Exceeded"), "{shown}");
    let data = read::<FirmwareSlots>(&bytes!("firmware_slots.hex"));
    assert_view!("fw-log", firmware_view("nvme0", data));
}

#[test]
fn drive_logs() {
    let device = || "nvme0".to_owned();
    let data = read::<SelfTestLog>(&bytes!("self_test_log.hex"));
    assert_view!("self-test-log", self_test_view(&device(), data, 3));
    let data = read::<EnduranceGroupInformation>(&bytes!("endurance_group.hex"));
    assert_view!("endurance-log", endurance_view(&device(), 1, data));
    let data = read::<SanitizeLog>(&bytes!("sanitize_log.hex"));
    assert_view!("sanitize-log", sanitize_view(&device(), data));
    assert_view!("sanitize-log-never", sanitize_view(&device(), Box::new(SanitizeLog::new())));
    let data = ReservationNotification::new(3, ReservationEvent::RegistrationPreempted, Nsid(1), 2);
    assert_view!("resv-notif-log", notification_view(&device(), Box::new(data)));
    let data = Box::new(ChangedNamespaces::new([Nsid(3)]));
    assert_view!("changed-alloc-ns-list-log", changed_view("changed-alloc-ns-list-log", "nvme0", data));
}

#[test]
fn persistent_events() {
    let device = || "nvme0".to_owned();
    let data = bytes!("persistent_event_log.hex");
    assert_view!("persistent-event-log", PersistentView { device: device(), data });
    let mut events = Vec::new();
    let mut push = |kind, data: &[u8]| push_event(&mut events, kind, ControllerId(1), 1 << 49 | 5000, data);
    push(EventKind::SMART_SNAPSHOT, &bytes!("smart_health.hex"));
    let reset =
        ControllerResetInformation { cntlid: 1.into(), pwronms: 77.into(), ..ControllerResetInformation::default() };
    push(EventKind::POWER_ON_OR_RESET, &[b"1.0     ", reset.as_bytes()].concat());
    let error = HardwareErrorEvent { nsheec: hardware_error::UNSAFE_SHUTDOWN.into(), ..HardwareErrorEvent::default() };
    push(EventKind::HARDWARE_ERROR, &[error.as_bytes(), &[1, 2]].concat());
    let set = SetFeatureEvent::new(2, true, 2);
    push(EventKind::SET_FEATURE, &[set.as_bytes(), &[4, 0, 0, 0, 0x5e, 1, 0, 0], &[9, 8], &[7, 0, 0, 0]].concat());
    push(EventKind::FORMAT_START, &[1, 0, 0]);
    push(EventKind(0x77), &[0xab]);
    let header = PersistentEventHeader::new(6, events.len() as u64);
    let data = [header.as_bytes(), &events].concat();
    assert_view!("persistent-event-log-kinds", PersistentView { device: device(), data });
    assert!(PersistentView { device: device(), data: vec![0; 511] }.text(false).contains("512 bytes"));
}

#[test]
fn reservations_and_blocks() {
    let data = bytes!("reservation_extended.hex");
    assert_view!("resv-report", ReportView { nsid: Nsid(1), data, extended: true });
    assert!(ReportView { nsid: Nsid(1), data: Vec::new(), extended: true }.text(false).contains("too few bytes"));
    let data = status_list(&[(0x10, 8, 1), (0x40, 1, 0)], CompletionCondition::Incomplete, 64);
    assert_view!("get-lba-status", LbaStatusView { nsid: Nsid(1), data });
    let data = b"\x01\x02".to_vec();
    assert_view!("security-recv", security_view("nvme0", 0, 1, data));
    assert_view!("create-ns", Managed::new("create-ns", "nvme0", 7).with("nsze", 16_u64));
}

#[test]
fn effects() {
    let mut data = Box::new(CommandsSupportedAndEffects::default());
    data.set_admin(admin::IDENTIFY, CommandEffects::CSUPP);
    data.set_admin(0xc1, CommandEffects::CSUPP);
    let format = CommandEffects::CSUPP.with(CommandEffects::LBCC).with(CommandEffects::NCC);
    data.set_admin(admin::FORMAT_NVM, format.with_submission(Submission::Alone));
    data.set_io(nvm::WRITE, CommandEffects::CSUPP.with(CommandEffects::LBCC));
    assert_list_view!("effects-log", EffectsView { data, csi: 0 });
    let mut data = Box::new(SupportedLogPages::default());
    data.set(Lid::SMART_HEALTH, LidSupport::SUPPORTED);
    data.set(Lid::DISCOVERY, LidSupport::with_parameter(2));
    assert_view!("supported-log-pages", SupportedView { device: "nvme0".to_owned(), data });
}

#[test]
fn command_sets_uuids_and_features() {
    let mut data = IoCommandSets::nvm_only();
    data.iocsc[1] = (1 << 2 | 1).into();
    assert_view!("id-iocs", command_sets_view(Box::new(data)));
    let mut bytes = [0; 4096];
    bytes[32] = 1;
    bytes[48..64].copy_from_slice(&[0xab; 16]);
    assert_view!("id-uuid", uuids_view(read::<UuidList>(&bytes)));
    let mut data = Box::new(FeaturesSupportedAndEffects::default());
    data.set(Fid::NUMBER_OF_QUEUES, FeatureEffects::FSUPP.with(FeatureEffects::CCC).with_scope(scope::CONTROLLER));
    assert_view!("fid-support-effects-log", FeatureEffectsView { device: "nvme0".to_owned(), data });
    let view = |kind, data: &[u8]| DirectiveView {
        verb: "dir-receive",
        kind,
        operation: 1,
        spec: 0,
        nsid: Nsid(1),
        result: 0,
        data: data.to_vec(),
    };
    assert_view!("dir-receive-identify", view(0, &[[3; 32], [1; 32], [0; 32]].concat()));
    assert_view!("dir-receive-streams", view(1, &[16, 0, 14, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 4, 0]));
}

#[test]
fn registers() {
    let values = vec![
        ("cap", Cap::new(1024, 30).0),
        ("version", 0x2_0100),
        ("cc", 0x46_0001),
        ("csts", 1),
        ("crto", 0x000a_0014),
    ];
    assert_view!("show-regs", RegistersView { values });
}

#[test]
fn features() {
    let feature = |fid, select, value, data: &[u8]| FeatureView { fid, select, value, data: data.to_vec() };
    assert_view!("get-feature", feature(Fid::NUMBER_OF_QUEUES, Select::Current, 0x0007_0007, &[]));
    assert_view!("get-feature-events", feature(Fid::ASYNC_EVENT_CONFIG, Select::Default, 0x8000_0100, &[]));
    assert_view!("get-feature-supported", feature(Fid::VOLATILE_WRITE_CACHE, Select::Supported, 5, &[]));
    assert_view!("get-feature-timestamp", feature(Fid::TIMESTAMP, Select::Current, 0, &[1, 0, 0, 0, 0, 0, 2, 0]));
    assert_view!("get-feature-temperature", feature(Fid::TEMPERATURE_THRESHOLD, Select::Current, 0x0156, &[]));
    let mask = feature(Fid::RESERVATION_NOTIFICATION_MASK, Select::Current, 4, &[]);
    assert_view!("get-feature-reservation-mask", mask);
    assert!(feature(Fid::SANITIZE_CONFIG, Select::Current, 1, &[]).text(true).contains(": Warning"));
    assert!(feature(Fid::THERMAL_MANAGEMENT, Select::Current, 0x0150_0160, &[]).text(true).contains("TMT2"));
    let set = feature_set_view(Fid::VOLATILE_WRITE_CACHE, 1, false, 0);
    assert_view!("set-feature", set);
}

// NVMe Base, Asynchronous Event Configuration and Identify Controller, OAES: the feature has two
// bits for reachability, OAES announces both by one, and its bit 18 is reserved.
#[test]
fn the_events_of_reachability_have_their_bits() {
    for (value, group, association) in [(1 << 18, "Send", "Do not send"), (1 << 17, "Do not send", "Send")] {
        let data = Vec::new();
        let view = FeatureView { fid: Fid::ASYNC_EVENT_CONFIG, select: Select::Current, value, data };
        let json = view.json(false).to_text().unwrap();
        for (name, what) in [("Group", group), ("Association", association)] {
            assert!(
                json.to_lowercase().contains(&format!("reachability {name}\": \"{what} ").to_lowercase()),
                "{json}"
            );
        }
    }
    let data = Box::new(IdentifyController { oaes: (3 << 17).into(), ..IdentifyController::default() });
    let text = controller_view(data, false).text(true);
    assert!(text.contains("[17:17] : 0x1\tReachability Groups Change Notices Supported\n"), "{text}");
    assert!(!text.contains("Reachability Association"), "{text}");
}

#[test]
fn discovery() {
    let log = bytes!("discovery_log.hex");
    let (header, entries) = DiscoveryEntries::new(&log).unwrap();
    let view = DiscoveryView::new(header.genctr.get(), header.recfmt.get(), entries.cloned().collect());
    assert_eq!(view.binary().unwrap(), &log[..view.binary().unwrap().len()]);
    assert_view!("discover", view);
}

#[test]
fn bytes_and_results() {
    let view = log_view("nvme0", Lid(2), 0, (0..20).collect());
    assert_view!("get-log", view);
    assert_view!("reset", Done::new("reset", "nvme0", "Success").with("nsid", 1_u32));
}

fn device(nsid: u32, path: Option<&str>) -> Device {
    Device {
        file: None,
        name: format!("nvme0n{nsid}"),
        nsid,
        path: path.map(Into::into),
        problem: path.is_none().then(|| "opening /dev/fuse failed".to_owned()),
        block_bytes: 4096,
        metadata_bytes: if nsid == 1 { 0 } else { 8 },
        blocks: 262_144,
        read_only: false,
        identifiers: String::new(),
    }
}

/// A state as an attach daemon writes it.
pub(crate) fn example_state(name: &str) -> State {
    let request = Request { traddr: "192.168.13.147".to_owned(), ..Request::default() };
    State {
        version: 1,
        name: name.to_owned(),
        pid: 7,
        pid_start: 8,
        since: 9,
        state: "live".to_owned(),
        request: Request { nqn: "nqn.2014-08.org.example:drive0".to_owned(), ..request },
        hostnqn: "nqn.2014-08.org.example:host".to_owned(),
        hostid: "00112233-4455-6677-8899-aabbccddeeff".to_owned(),
        subnqn: "nqn.2014-08.org.example:drive0".to_owned(),
        peer: "192.168.13.147:4420".to_owned(),
        cntlid: 3,
        io_queues: 2,
        model: "ebof \u{1b}[31m".to_owned(),
        serial: "0123456789".to_owned(),
        firmware: "0.1".to_owned(),
        front: "loop".to_owned(),
        devices: vec![device(1, Some("/dev/loop0")), device(2, None)],
        ended: Vec::new(),
        given_up: None,
        confinement: None,
        paths: Vec::new(),
        policy: None,
    }
}

fn connected() -> Vec<Connected> {
    let state = example_state("nvme0");
    let other =
        State { name: "nvme1".to_owned(), devices: Vec::new(), state: "connecting".to_owned(), ..state.clone() };
    vec![Connected { state, used_blocks: vec![Some(1000), None] }, Connected { state: other, used_blocks: Vec::new() }]
}

/// A device that ended, and a controller that was given up.
fn given_up() -> DevicesView {
    let mut controllers = connected();
    controllers[0].state.ended.push(Ended {
        name: "nvme0n1".to_owned(),
        nsid: 1,
        path: Some("/dev/loop3".into()),
        reason: "namespace 1 is another one\u{1b}[31m".to_owned(),
        at: 1_795_355_000,
    });
    let given_up = GivenUp { reason: "nobody listens there".to_owned(), at: 1_795_355_060 };
    let state = State { given_up: Some(given_up), state: "dead".to_owned(), ..example_state("nvme5") };
    DevicesView { controllers, given_up: vec![state] }
}

#[test]
fn connections() {
    assert_view!("list", DevicesView { controllers: connected(), given_up: Vec::new() });
    assert_view!("list-given-up", given_up());
    assert_list_view!("show-topology", TopologyView { controllers: connected(), ranking: Ranking::Namespace });
    assert_list_view!("list-subsys", SubsystemsView { controllers: connected() });
    let dead = given_up().given_up.remove(0);
    let dead = SubsystemsView { controllers: vec![Connected { state: dead, used_blocks: Vec::new() }] };
    assert_list_view!("list-subsys-given-up", dead);
    let attached = || Attached {
        name: "nvme0".to_owned(),
        path: None,
        devices: vec![device(1, Some("/dev/loop0")), device(2, None)],
    };
    let connect = || ConnectView { nqn: "nqn.2014-08.org.example:drive0".to_owned(), attached: attached() };
    assert_view!("connect", connect());
    let all = ConnectAllView {
        connected: vec![connect()],
        skipped: vec![("nqn.a".to_owned(), "already connected as nvme4".to_owned())],
        failed: vec![("nqn.b".to_owned(), anyhow::anyhow!("broken"))],
        wrong: vec![anyhow::anyhow!("reading /etc/nvme/discovery.conf: not UTF-8")],
    };
    assert_view!("connect-all", all);
    let disconnect = DisconnectView {
        verb: "disconnect",
        nqns: vec!["nqn.a".to_owned()],
        disconnected: vec![("nvme0".to_owned(), "nqn.a".to_owned()), ("nvme2".to_owned(), "nqn.c".to_owned())],
        acknowledged: vec![("nvme5".to_owned(), "nqn.a".to_owned())],
        failed: vec![("nvme1".to_owned(), anyhow::anyhow!("in use"))],
        repaired: vec!["nvme3: removed".to_owned()],
    };
    assert_view!("disconnect", disconnect);
}
