//! A box: what its manager does with drives and namespaces while hosts use them, and what these
//! notice.

use std::collections::BTreeSet;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ebof_drive::firmware::{Image, PRODUCT, Personality};
use ebof_initiator::{Controller, Event, Options};
use ebof_manage::enclosure::{
    DriveDetails, Enclosure as _, MistakeKind, Phase, SanitizeStateObject, SelfTestKind, Task, TaskState,
};
use ebof_nvme::identify::{Cns, IdentifyController};
use ebof_nvme::log::{Lid, SanitizeLog, SanitizeState};
use ebof_nvme::media::{Sanitize, SanitizeAction, SelfTest};
use ebof_nvme::{Nqn, Nsid, Status};
use zerocopy::FromBytes as _;

use crate::drive_rig::{self, admin, log, status, wait};
use crate::enclosure_rig::{NQN, Rig, assign, config, function, reopened, transaction};

const ALICE: &str = "nqn.2014-08.org.example:alice";

/// A drive with the function 1 at port a, and a host of it.
fn with_host() -> (Rig, Controller, Receiver<Event>) {
    let rig = Rig::new();
    rig.made(&assign("d0/vf1", "a"));
    let host = rig.connect("a", &function(1));
    let events = host.events();
    (rig, host, events)
}

/// A host of the drive's own subsystem.
fn connect_as(rig: &Rig, host: &str) -> Controller {
    let (_, address) = rig.target.addresses().into_iter().find(|(name, _)| name == "a").unwrap();
    let mut options = Options::new(address.ip().to_string(), address.port(), Nqn::parse(NQN).unwrap());
    options.set_host_nqn(Nqn::parse(host).unwrap());
    options.nr_io_queues = 1;
    Controller::connect(&options).unwrap()
}

fn details(rig: &Rig) -> DriveDetails {
    rig.enclosure.drive_details("d0").unwrap()
}

/// The host is told this of its namespaces.
fn noticed(events: &Receiver<Event>, wanted: &Event) {
    wait("the event", || events.try_iter().any(|seen| seen == *wanted).then_some(()));
}

/// Creates a namespace of 8 MiB, with more; gives its name and its NSID.
fn created(rig: &Rig, more: &str) -> (String, Nsid) {
    let task = rig.make(&format!(r#"{{"change": "create-namespace", "drive": "d0", "size_bytes": 8388608{more}}}"#));
    assert_eq!(task.state, TaskState::Done, "{:?}", task.error);
    let [name] = task.made.as_slice() else { panic!("{:?}", task.made) };
    (name.clone(), Nsid(name.strip_prefix("d0/ns").unwrap().parse().unwrap()))
}

fn write(host: &Controller, nsid: Nsid) -> Status {
    status(host.namespace(nsid).and_then(|namespace| namespace.write(0, &[7; 4096], false)))
}

fn refusal(rig: &Rig, changes: &str) -> (MistakeKind, String) {
    let refused = rig.enclosure.begin(transaction(changes)).unwrap_err();
    (refused.mistakes[0].kind, refused.to_string())
}

#[test]
fn a_namespace_is_created_for_a_host_that_is_there() {
    let (rig, host, events) = with_host();
    let (name, nsid) = created(&rig, r#", "attach_to": ["d0/vf1"]"#);
    noticed(&events, &Event::NamespaceAdded(nsid));
    let namespace = wait("the namespace", || host.namespace(nsid).ok());
    assert_eq!((namespace.block_bytes(), namespace.blocks()), (4096, 2048));
    namespace.write(0, &[7; 4096], false).unwrap();
    let shown = details(&rig).namespaces.into_iter().next().unwrap();
    assert_eq!((shown.name.to_string(), shown.size_bytes, shown.capacity_bytes), (name.clone(), 8 << 20, 8 << 20));
    assert!((4096..=8 << 20).contains(&shown.used_bytes), "{shown:?}");
    assert_eq!(
        (shown.owner, shown.shared, shown.uuid.len(), shown.nguid.len(), shown.eui64.len()),
        (None, false, 36, 32, 16)
    );
    let announced = host.identify_namespace(nsid).unwrap();
    assert_eq!(shown.nguid, announced.nguid.iter().map(|byte| format!("{byte:02x}")).collect::<String>());

    // It is private.
    let attach = format!(r#"{{"change": "attach-namespace", "namespace": "{name}", "to": "d0/vf2"}}"#);
    let (kind, told) = refusal(&rig, &attach);
    assert!(kind == MistakeKind::Conflict && told.contains("it is private, and attached to d0/vf1"), "{told}");
    // The one that it has is no other.
    rig.made(&attach.replace("vf2", "vf1"));

    let task = rig.make(r#"{"change": "create-namespace", "drive": "d0", "size_bytes": 1099511627776}"#);
    let error = task.error.unwrap();
    assert!(error.message.contains("it needs 1099511627776 bytes") && error.advice.contains("overcommit"), "{error}");
    assert_eq!((task.made, details(&rig).namespaces.len()), (Vec::new(), 1));
    rig.made(&format!(r#"{{"change": "delete-namespace", "namespace": "{name}"}}"#));
    noticed(&events, &Event::NamespaceRemoved(nsid));
    wait("the host's view", || host.namespaces().unwrap().is_empty().then_some(()));
    host.disconnect();
    rig.target.stop(Duration::from_secs(5));
}

#[test]
fn a_shared_namespace_is_attached_and_detached_beside_others() {
    let (rig, host, events) = with_host();
    let alice = connect_as(&rig, ALICE);
    let (name, nsid) = created(&rig, &format!(r#", "shared": true, "nsid": 5, "attach_to": ["d0/vf1", "{ALICE}"]"#));
    assert_eq!(nsid, Nsid(5));
    noticed(&events, &Event::NamespaceAdded(nsid));
    for host in [&host, &alice] {
        wait("the namespace", || host.namespace(nsid).ok());
        assert_eq!(write(host, nsid), Status::SUCCESS);
    }
    let bob = connect_as(&rig, drive_rig::BOB);
    let change = |change: &str, key: &str, who: &str| {
        rig.made(&format!(r#"{{"change": "{change}-namespace", "namespace": "{name}", "{key}": "{who}"}}"#));
    };
    let shown = || rig.enclosure.inventory().drives[0].namespaces[0].clone();
    change("attach", "to", "*");
    wait("the namespace", || bob.namespace(nsid).ok());
    assert_eq!(shown().hosts, ["*"]);
    // Those that are there stay.
    change("detach", "from", ALICE);
    assert_eq!(shown().hosts, [drive_rig::BOB]);
    wait("the host's view", || alice.namespaces().unwrap().is_empty().then_some(()));
    assert!(alice.namespace(nsid).is_err());
    assert_eq!(write(&bob, nsid), Status::SUCCESS);
    change("detach", "from", "d0/vf1");
    noticed(&events, &Event::NamespaceRemoved(nsid));
    wait("the host's view", || host.namespaces().unwrap().is_empty().then_some(()));
    let again = format!(r#"{{"change": "detach-namespace", "namespace": "{name}", "from": "d0/vf1"}}"#);
    let (_, told) = refusal(&rig, &again);
    assert!(told.contains("it is attached to") && told.contains(drive_rig::BOB), "{told}");
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_write_protected_namespace_is_neither_written_nor_destroyed() {
    let (rig, host, events) = with_host();
    let (name, nsid) = created(&rig, r#", "attach_to": ["d0/vf1"]"#);
    wait("the namespace", || host.namespace(nsid).ok());
    assert_eq!(write(&host, nsid), Status::SUCCESS);
    let protect = |on: bool| rig.made(&format!(r#"{{"change": "write-protect", "namespace": "{name}", "on": {on}}}"#));
    protect(true);
    noticed(&events, &Event::NamespaceChanged(nsid));
    wait("the protection", || write(&host, nsid).is(Status::NAMESPACE_WRITE_PROTECTED).then_some(()));
    for changes in [
        format!(r#"{{"change": "delete-namespace", "namespace": "{name}"}}"#),
        format!(r#"{{"change": "format-namespace", "namespace": "{name}"}}"#),
        r#"{"change": "sanitize-drive", "drive": "d0", "action": "block-erase"}"#.to_owned(),
    ] {
        let (kind, told) = refusal(&rig, &changes);
        assert!(kind == MistakeKind::Conflict && told.contains("write-protect=off"), "{told}");
    }
    assert!(details(&rig).namespaces[0].write_protected);
    protect(false);
    wait("the end of the protection", || write(&host, nsid).is_success().then_some(()));
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_format_gives_other_blocks_and_none_of_the_old_data() {
    let (rig, host, events) = with_host();
    let (name, nsid) = created(&rig, r#", "attach_to": ["d0/vf1"]"#);
    let before = wait("the namespace", || host.namespace(nsid).ok());
    before.write(0, &[7; 4096], false).unwrap();
    rig.made(&format!(
        r#"{{"change": "format-namespace", "namespace": "{name}", "block_size_bytes": 512, "metadata_bytes": 8,
             "protection": {{"type": 1}}, "erase": "user-data"}}"#
    ));
    noticed(&events, &Event::NamespaceReplaced(nsid));
    let shown = details(&rig).namespaces.into_iter().next().unwrap();
    assert_eq!((shown.format.index, shown.protection.kind, shown.format_percent), (2, 1, None));
    let after = wait("the host's view", || host.namespace(nsid).ok().filter(|after| after.block_bytes() == 512));
    assert_eq!(after.blocks(), shown.size_bytes / 512);
    // What is not named stays.
    rig.made(&format!(r#"{{"change": "format-namespace", "namespace": "{name}"}}"#));
    assert_eq!(details(&rig).namespaces[0].format, shown.format);
    rig.made(&format!(r#"{{"change": "format-namespace", "namespace": "{name}", "metadata_bytes": 0}}"#));
    let shown = details(&rig).namespaces.into_iter().next().unwrap();
    assert_eq!((shown.format.index, shown.protection.kind), (0, 0));
    let mut data = [1; 4096];
    let after = wait("the host's view", || host.namespace(nsid).ok());
    after.read(0, &mut data).unwrap();
    assert_eq!(data, [0; 4096]);
    let cryptographic = format!(r#"{{"change": "format-namespace", "namespace": "{name}", "erase": "cryptographic"}}"#);
    let (kind, told) = refusal(&rig, &cryptographic);
    assert!(kind == MistakeKind::Conflict && told.contains("not encrypted"), "{told}");
    rig.target.stop(Duration::ZERO);
}

/// A box whose drive is a file, with percentages that tasks have shown.
fn watched(folder: &std::path::Path) -> (Rig, Arc<Mutex<BTreeSet<u8>>>) {
    let shown = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = Arc::clone(&shown);
    let observer = move |task: &Task| {
        if task.phase == Phase::Working {
            seen.lock().unwrap().insert(task.percent);
        }
    };
    (Rig::observed(config(folder.join("d0.img").to_str().unwrap()), Box::new(observer)), shown)
}

const OVERWRITE: &str =
    r#"{"change": "sanitize-drive", "drive": "d0", "action": "overwrite", "passes": 16, "pattern": 305419896}"#;

#[test]
fn a_drive_is_sanitized_and_tells_how_far_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (rig, shown) = watched(folder.path());
    let (_, nsid) = created(&rig, r#", "attach_to": ["*"]"#);
    let host = rig.connect("a", NQN);
    wait("the namespace", || host.namespace(nsid).ok());
    assert_eq!(write(&host, nsid), Status::SUCCESS);
    assert_eq!(details(&rig).sanitize.state, SanitizeStateObject::Never);
    let task = rig.enclosure.begin(transaction(OVERWRITE)).unwrap();
    wait("the operation", || rig.enclosure.inventory().drives[0].sanitize_percent);
    // 16 passes over 64 MiB take longer than this.
    let page: SanitizeLog = log(&host, Lid::SANITIZE_STATUS);
    assert_eq!(page.state(), SanitizeState::InProgress);
    for (changes, told) in [
        (OVERWRITE, "is being sanitized"),
        (r#"{"change": "create-namespace", "drive": "d0", "size_bytes": 4096}"#, "is being sanitized"),
        (r#"{"change": "self-test", "drive": "d0", "kind": "short"}"#, "is being sanitized"),
    ] {
        let (kind, refused) = refusal(&rig, changes);
        assert!(kind == MistakeKind::Busy && refused.contains(told), "{refused}");
    }
    let task = rig.end(&task);
    assert_eq!(task.state, TaskState::Done, "{:?}", task.error);
    assert!(shown.lock().unwrap().len() > 1, "{shown:?}");
    let sanitize = details(&rig).sanitize;
    assert_eq!((sanitize.state, sanitize.passes, sanitize.is_erased), (SanitizeStateObject::Succeeded, 16, true));
    assert!(sanitize.estimates.overwrite_s.is_some(), "{sanitize:?}");
    let mut data = [1; 4096];
    let read = || host.namespace(nsid).and_then(|namespace| namespace.read(0, &mut data)).ok();
    wait("the namespace", read);
    assert_eq!(data, [0; 4096]);
    let names: Vec<String> = details(&rig).events.latest.into_iter().map(|event| event.name).collect();
    assert_eq!(names[..2], ["Sanitize Completion", "Sanitize Start"], "{names:?}");
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_drive_goes_on_with_being_sanitized_after_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let (rig, _) = watched(folder.path());
    let task = rig.enclosure.begin(transaction(OVERWRITE)).unwrap();
    wait("the operation", || rig.enclosure.inventory().drives[0].sanitize_percent);
    rig.target.stop(Duration::ZERO);
    let error = rig.end(&task).error.unwrap();
    assert!(error.remains.iter().any(|remains| remains.contains("goes on with being sanitized")), "{error}");
    drop(rig);
    let rig = reopened(&config(folder.path().join("d0.img").to_str().unwrap()));
    // Either it is at it, or has done it since.
    let done = || (details(&rig).sanitize.state == SanitizeStateObject::Succeeded).then_some(());
    assert!(rig.enclosure.inventory().drives[0].sanitize_percent.is_some() || done().is_some());
    wait("the end", done);
    // What a host commands is shown, too.
    let host = rig.connect("a", NQN);
    let overwrite = Sanitize { overwrite_passes: 16, ..Sanitize::new(SanitizeAction::Overwrite) };
    assert!(admin(&host, overwrite.encode()).is_success());
    assert!(rig.enclosure.inventory().drives[0].sanitize_percent.is_some());
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_drive_tests_itself_and_tells_the_result() {
    let folder = tempfile::tempdir().unwrap();
    let (rig, _) = watched(folder.path());
    let (_, nsid) = created(&rig, r#", "attach_to": ["*"]"#);
    let host = rig.connect("a", NQN);
    let namespace = wait("the namespace", || host.namespace(nsid).ok());
    namespace.write(0, &vec![7; 1 << 20], false).unwrap();
    for kind in ["short", "extended"] {
        rig.made(&format!(r#"{{"change": "self-test", "drive": "d0", "kind": "{kind}"}}"#));
    }
    let results = details(&rig).self_test.results;
    let kinds: Vec<_> = results.iter().map(|result| (result.kind, result.passed)).collect();
    assert_eq!(kinds, [(Some(SelfTestKind::Extended), true), (Some(SelfTestKind::Short), true)]);
    // Nothing is running.
    rig.made(r#"{"change": "self-test", "drive": "d0", "kind": "abort"}"#);
    assert_eq!(details(&rig).self_test.results, results);
    rig.target.stop(Duration::ZERO);
}

#[test]
fn firmware_is_staged_and_activated_for_hosts_that_are_there() {
    let (rig, host, _) = with_host();
    let image = |revision: &str, personality: Personality| {
        Image { product: PRODUCT.into(), revision: revision.into(), personality }.encode().unwrap()
    };
    let stored = rig.enclosure.store_image(&image("9.1", Personality::default())).unwrap();
    let stage = |image: &str, slot: &str| {
        rig.make(&format!(r#"{{"change": "stage-firmware", "drive": "d0", "image": "{image}"{slot}}}"#))
    };
    let task = stage(&stored.id, "");
    assert_eq!((task.state, task.made.as_slice()), (TaskState::Done, ["d0/slot2".to_owned()].as_slice()));
    let firmware = details(&rig).firmware;
    assert_eq!((firmware.active_slot, firmware.next_slot, firmware.slots.len()), (1, None, 4));
    assert_eq!(firmware.slots[1].revision.as_deref(), Some("9.1"));
    let activate = |slot: u8, when: &str| {
        rig.make(&format!(r#"{{"change": "activate-firmware", "drive": "d0", "slot": {slot}, "when": "{when}"}}"#))
    };
    let task = activate(2, "now");
    assert_eq!((task.state, task.remark), (TaskState::Done, None));
    assert_eq!(details(&rig).firmware.running, "9.1");
    let revision = || {
        let bytes = host.identify_bytes(Cns::CONTROLLER, Nsid::NONE).unwrap();
        IdentifyController::read_from_bytes(&bytes).unwrap().firmware_revision().to_string()
    };
    wait("the revision", || (revision() == "9.1").then_some(()));

    // One that removes commands waits for a reset.
    let less = Personality { device_self_test: false, ..Personality::default() };
    let stored = rig.enclosure.store_image(&image("9.2", less)).unwrap();
    assert_eq!(stage(&stored.id, r#", "slot": 3"#).made, Vec::<String>::new());
    let task = activate(3, "now");
    assert_eq!(task.state, TaskState::Done);
    assert!(task.remark.unwrap().contains("after the next reset"));
    assert_eq!((details(&rig).firmware.running.as_str(), details(&rig).firmware.next_slot), ("9.1", Some(3)));
    // Which shuts the controller down.
    host.disconnect();
    wait("the reset", || (details(&rig).firmware.running == "9.2").then_some(()));
    let task = rig.make(r#"{"change": "self-test", "drive": "d0", "kind": "short"}"#);
    assert!(task.error.unwrap().advice.contains("activate another slot"));

    // So does the drive's own reset.
    assert_eq!(activate(2, "at-reset").state, TaskState::Done);
    assert_eq!((details(&rig).firmware.running.as_str(), details(&rig).firmware.next_slot), ("9.2", Some(2)));
    rig.made(r#"{"change": "reset-drive", "drive": "d0"}"#);
    assert_eq!((details(&rig).firmware.running.as_str(), details(&rig).firmware.next_slot), ("9.1", None));
    assert_eq!(activate(3, "now").state, TaskState::Done);
    assert_eq!(details(&rig).firmware.next_slot, Some(3));
    rig.made(r#"{"change": "reset-drive", "drive": "d0"}"#);

    let error = stage(&stored.id, r#", "slot": 3"#).error.unwrap();
    assert!(error.advice.contains("choose another one"), "{error}");
    assert!(activate(4, "at-reset").error.is_some(), "the slot is empty");
    let (kind, told) = refusal(&rig, r#"{"change": "stage-firmware", "drive": "d0", "image": "none"}"#);
    assert!(kind == MistakeKind::NotFound && told.contains("hand it over again"), "{told}");
    rig.target.stop(Duration::ZERO);
}

/// As UpdateService of Redfish has it done.
#[test]
fn firmware_is_staged_and_activated_by_one_transaction_and_what_stays_is_told() {
    let (rig, _host, _) = with_host();
    let (product, personality) = (PRODUCT.into(), Personality::default());
    let image = Image { product, revision: "9.1".into(), personality }.encode().unwrap();
    let image = rig.enclosure.store_image(&image).unwrap().id;
    let both = |slot: u8, activated: u8| {
        rig.make(&format!(
            r#"{{"change": "stage-firmware", "drive": "d0", "image": "{image}", "slot": {slot}}},
               {{"change": "activate-firmware", "drive": "d0", "slot": {activated}, "when": "now"}}"#
        ))
    };
    let error = both(3, 4).error.unwrap();
    assert!(error.remains[0].starts_with("it was done, and stays: put image"), "{error}");
    assert_eq!(details(&rig).firmware.slots[2].revision.as_deref(), Some("9.1"));
    assert_eq!(both(2, 2).state, TaskState::Done);
    assert_eq!(details(&rig).firmware.running, "9.1");
    let mixed = r#"{"change": "activate-firmware", "drive": "d0", "slot": 2, "when": "now"},
                   {"change": "weight", "function": "d0/vf1", "weight": 7}"#;
    assert_eq!(refusal(&rig, mixed).0, MistakeKind::Conflict);
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_transaction_that_fails_takes_back_what_it_created() {
    let (rig, host, _) = with_host();
    let (kept, nsid) = created(&rig, r#", "shared": true, "attach_to": ["d0/vf1"]"#);
    wait("the namespace", || host.namespace(nsid).ok());
    let task = rig.make(&format!(
        r#"{{"change": "create-namespace", "drive": "d0", "size_bytes": 4096, "nsid": 9}},
           {{"change": "write-protect", "namespace": "d0/ns9", "on": true}},
           {{"change": "attach-namespace", "namespace": "d0/ns9", "to": "d0/vf1"}},
           {{"change": "attach-namespace", "namespace": "{kept}", "to": "d0/vf2"}},
           {{"change": "detach-namespace", "namespace": "{kept}", "from": "d0/vf1"}},
           {{"change": "write-protect", "namespace": "{kept}", "on": true}},
           {{"change": "create-namespace", "drive": "d0", "size_bytes": 4096}},
           {{"change": "create-namespace", "drive": "d0", "size_bytes": 1099511627776}}"#
    ));
    let error = task.error.unwrap();
    assert_eq!((error.change, &error.remains, &task.made), (7, &Vec::new(), &Vec::new()), "{error}");
    let namespaces = rig.enclosure.inventory().drives.remove(0).namespaces;
    let [namespace] = namespaces.as_slice() else { panic!("{namespaces:?}") };
    assert_eq!((namespace.name.to_string(), namespace.write_protected), (kept, false));
    assert_eq!(namespace.functions, ["d0/vf1".parse().unwrap()]);
    wait("the namespace", || write(&host, nsid).is_success().then_some(()));
    rig.target.stop(Duration::ZERO);
}

#[test]
fn what_a_drive_says_of_itself_is_what_hosts_see() {
    let rig = Rig::new();
    rig.made(&assign("d0/vf1", "a"));
    let manager = rig.connect("a", NQN);
    let host = rig.connect("a", &function(1));
    assert!(!admin(&manager, SelfTest { code: ebof_nvme::log::SelfTestCode(9) }.encode(Nsid::ALL)).is_success());
    // Whoever reads the log has it collected.
    assert_eq!(drive_rig::errors(&manager, 1)[0].ec.get(), 1);
    let shown = details(&rig);
    assert_eq!(shown.errors.len(), 1, "{:?}", shown.errors);
    assert_eq!((shown.errors[0].number, shown.errors[0].queue, shown.errors[0].opcode), (1, Some(0), Some(0x14)));
    let [primary, first, ..] = shown.controllers.as_slice() else { panic!("{:?}", shown.controllers) };
    assert_eq!((shown.controllers.len(), primary.function.is_none(), primary.cntlid), (4, true, 0));
    for (controller, announced) in [(primary, manager.identify()), (first, host.identify())] {
        assert_eq!(controller.oacs, announced.oacs.get(), "{controller:?}");
        assert_eq!(controller.oncs, announced.oncs.get());
        assert_eq!(controller.ctratt, announced.ctratt.get());
        assert_eq!(controller.transfer_bytes_max, 4096 << announced.mdts);
    }
    assert_eq!((first.cntlid, first.online, u32::from(first.queues) - 1), (1, true, first.io_queues_max));
    assert!(!shown.controllers[2].online);
    assert_eq!((shown.namespaces.len(), shown.formats.len()), (0, 4));
    assert!(rig.enclosure.drive_details("d1").is_none());
    rig.target.stop(Duration::ZERO);
}
