//! A box: functions of a drive that are given to ports and moved while hosts use them, drives that
//! come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ebof_manage::Target as _;
use ebof_manage::enclosure::{Change, ChangePlan, Enclosure as _, MistakeKind, Phase, Task, TaskState, Transaction};
use ebof_server::{RunningEnclosure, Target};

use crate::drive_rig::{create, wait};
use crate::enclosure_rig::{NQN, Rig, assign, config, function, gate, moved, reopened, settings, transaction};

#[test]
fn a_function_takes_its_namespaces_from_port_to_port() {
    let rig = Rig::new();
    let nsid = rig.namespace("d0/vf1");
    rig.made(&assign("d0/vf1", "a"));
    let inventory = rig.enclosure.inventory();
    let shown = inventory.function(&"d0/vf1".parse().unwrap()).unwrap().clone();
    assert!(shown.online && shown.queues > 1 && shown.interrupts > 0, "{shown:?}");
    assert_eq!(shown.namespaces.len(), 1);

    let host = rig.connect("a", &function(1));
    host.namespace(nsid).unwrap().write(0, &[7; 4096], false).unwrap();
    assert!(rig.try_connect("b", &function(1)).is_none());
    assert_eq!(rig.enclosure.inventory().function(&shown.name).unwrap().hosts.len(), 1);

    rig.made(&moved("d0/vf1", "b"));
    assert!(rig.try_connect("a", &function(1)).is_none());
    let there = rig.connect("b", &function(1));
    let mut data = [0; 4096];
    there.namespace(nsid).unwrap().read(0, &mut data).unwrap();
    assert_eq!(data, [7; 4096]);

    rig.made(r#"{"change": "assign", "function": "d0/vf1", "port": null}"#);
    assert!(rig.try_connect("b", &function(1)).is_none());
    assert_eq!(rig.port_of("d0/vf1"), None);
    host.disconnect();
    there.disconnect();
    rig.target.stop(Duration::from_secs(5));
}

// @test redfish.bound-changes
#[test]
fn a_change_is_bound_to_the_hosts_that_were_told() {
    let rig = Rig::new();
    rig.namespace("d0/vf1");
    rig.made(&assign("d0/vf1", "a"));
    let take = transaction(r#"{"change": "assign", "function": "d0/vf1", "port": null}"#);
    let plan = || ChangePlan::new(&rig.enclosure.inventory(), &take.changes);
    let before = plan();
    assert!(before.disturbed.is_empty(), "{before:?}");
    let host = rig.connect("a", &function(1));
    let outdated = Transaction { revision: Some(before.revision), ..take.clone() };
    let refused = rig.enclosure.begin(outdated).unwrap_err();
    assert_eq!(refused.mistakes[0].kind, MistakeKind::Outdated, "{refused}");
    assert_eq!(rig.port_of("d0/vf1").as_deref(), Some("a"), "the host is not cut off");
    let now = plan();
    assert_eq!(now.disturbed.len(), 1, "{now:?}");
    let task = rig.enclosure.begin(Transaction { revision: Some(now.revision), ..take }).unwrap();
    assert_eq!(rig.end(&task).state, TaskState::Done);
    host.disconnect();
    rig.target.stop(Duration::from_secs(5));
}

#[test]
fn other_functions_do_not_notice_a_move() {
    let rig = Rig::new();
    let moving = rig.namespace("d0/vf1");
    let resting = rig.namespace("d0/vf2");
    rig.made(&format!("{}, {}", assign("d0/vf1", "a"), assign("d0/vf2", "a")));
    let other = rig.connect("a", &function(2));
    let over = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let namespace = other.namespace(resting).unwrap();
            let mut data = [0; 4096];
            while !over.load(Relaxed) {
                namespace.write(0, &[9; 4096], false).unwrap();
                namespace.read(0, &mut data).unwrap();
                assert_eq!(data, [9; 4096]);
                done.fetch_add(1, Relaxed);
            }
        });
        for port in ["b", "a", "b", "a", "b"] {
            let host = rig.connect(if port == "b" { "a" } else { "b" }, &function(1));
            host.namespace(moving).unwrap().write(0, &[1; 4096], false).unwrap();
            let before = done.load(Relaxed);
            rig.made(&moved("d0/vf1", port));
            wait("the other function's commands", || (done.load(Relaxed) > before).then_some(()));
        }
        over.store(true, Relaxed);
    });
    rig.target.stop(Duration::from_secs(5));
}

#[test]
fn a_second_move_of_a_function_is_refused_and_of_another_is_not() {
    let (observer, arrived, go) = gate(Phase::Stopping);
    let rig = Rig::observed(config("mem:256Mi"), observer);
    let first = rig.enclosure.begin(transaction(&assign("d0/vf1", "a"))).unwrap();
    arrived.recv().unwrap();
    for changes in [moved("d0/vf1", "b"), r#"{"change": "remove-drive", "drive": "d0"}"#.to_owned()] {
        let refused = rig.enclosure.begin(transaction(&changes)).unwrap_err();
        assert!(refused.mistakes.iter().any(|mistake| mistake.kind == MistakeKind::Busy), "{refused}");
    }
    let inventory = rig.enclosure.inventory();
    assert_eq!(inventory.function(&"d0/vf1".parse().unwrap()).unwrap().task, Some(first.id));
    let other = rig.enclosure.begin(transaction(&assign("d0/vf2", "b"))).unwrap();
    drop(go);
    assert_eq!(rig.end(&first).state, TaskState::Done);
    assert_eq!(rig.end(&other).state, TaskState::Done);
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_task_that_panics_has_nothing_any_more() {
    let panics = AtomicBool::new(true);
    let observer = move |task: &Task| {
        let is_now = task.phase == Phase::Draining && matches!(task.changes[0], Change::Move { .. });
        assert!(!(is_now && panics.swap(false, Relaxed)), "as it is to be here");
    };
    let rig = Rig::observed(config("mem:256Mi"), Box::new(observer));
    rig.made(&assign("d0/vf1", "a"));
    let host = rig.connect("a", &function(1));
    let task = rig.make(&moved("d0/vf1", "b"));
    assert!(task.error.unwrap().message.contains("panic"));
    drop(host);
    rig.connect("a", &function(1));
    rig.made(&moved("d0/vf1", "b"));
    rig.connect("b", &function(1));
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_move_to_a_port_that_vanishes_goes_back() {
    let (observer, arrived, go) = gate(Phase::Binding);
    let rig = Rig::observed(config("mem:256Mi"), observer);
    let nsid = rig.namespace("d0/vf1");
    let assigned = rig.enclosure.begin(transaction(&assign("d0/vf1", "a"))).unwrap();
    arrived.recv().unwrap();
    go.send(()).unwrap();
    assert_eq!(rig.end(&assigned).state, TaskState::Done);
    let host = rig.connect("a", &function(1));
    host.namespace(nsid).unwrap().write(0, &[5; 4096], false).unwrap();

    let task = rig.enclosure.begin(transaction(&moved("d0/vf1", "b"))).unwrap();
    arrived.recv().unwrap();
    let mut without = rig.target.config();
    without.ports.retain(|port| port.name != "b");
    rig.target.apply(without).unwrap();
    go.send(()).unwrap();
    let error = rig.end(&task).error.unwrap();
    assert_eq!((error.phase, &error.remains), (Phase::Binding, &Vec::new()), "{error}");
    assert!(error.message.contains("port b is gone"), "{error}");
    assert_eq!(rig.port_of("d0/vf1").as_deref(), Some("a"));
    let again = rig.connect("a", &function(1));
    let mut data = [0; 4096];
    again.namespace(nsid).unwrap().read(0, &mut data).unwrap();
    assert_eq!(data, [5; 4096]);
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_transaction_that_fails_takes_back_what_was_made() {
    let rig = Rig::new();
    let task = rig.make(&format!(
        r#"{}, {{"change": "weight", "function": "d0/vf2", "weight": 4}},
        {{"change": "add-drive", "drive": {{"name": "d2", "backing": "/nonexistent/d2.img", "size": "1G"}}}}"#,
        assign("d0/vf1", "a")
    ));
    let error = task.error.unwrap();
    assert_eq!((error.change, &error.remains), (2, &Vec::new()), "{error}");
    let inventory = rig.enclosure.inventory();
    let [one, two] = ["d0/vf1", "d0/vf2"].map(|name| inventory.function(&name.parse().unwrap()).unwrap().clone());
    assert_eq!((one.port(), one.online, two.share.weight), (None, false, 1));
    rig.target.stop(Duration::ZERO);
}

#[test]
fn drives_that_are_added_and_removed_at_the_same_time_are_all_there_and_all_gone() {
    let rig = Rig::new();
    for _ in 0..5 {
        let together = |change: fn(u32) -> String| {
            let tasks: Vec<_> = (1..=4)
                .map(|at| rig.enclosure.begin(transaction(&change(at))).unwrap_or_else(|refused| panic!("{refused}")))
                .collect();
            for task in &tasks {
                assert_eq!(rig.end(task).error, None);
            }
        };
        together(|at| {
            format!(
                r#"{{"change": "add-drive", "drive": {{"name": "e{at}", "backing": "mem:16Mi"}}, "nqn": "{NQN}:e{at}"}}"#
            )
        });
        assert_eq!(rig.enclosure.inventory().drives.len(), 5);
        together(|at| format!(r#"{{"change": "remove-drive", "drive": "e{at}"}}"#));
        assert_eq!(rig.enclosure.inventory().drives.len(), 1);
    }
    rig.target.stop(Duration::ZERO);
}

/// A transaction goes on with a drive that it adds, and takes all of it back if it fails later.
// @test data.transaction-checks
#[test]
fn a_drive_that_a_transaction_adds_is_changed_by_it_and_goes_as_a_whole() {
    let rig = Rig::new();
    let changes = format!(
        r#"{{"change": "add-drive", "drive": {{"name": "d1", "backing": "mem:64Mi", "functions": 2}}}},
        {{"change": "create-namespace", "drive": "d1", "size_bytes": 1048576}},
        {{"change": "map", "namespace": "d1/ns1", "function": "d1/vf1"}},
        {{"change": "limit", "function": "d1/vf1", "iops": 100000}},
        {}, {{"change": "weight", "function": "d0/vf2", "weight": 4}}"#,
        assign("d1/vf1", "a")
    );
    let task = rig.make(&format!(
        r#"{changes}, {{"change": "add-drive", "drive": {{"name": "d2", "backing": "/nonexistent/d2.img", "size": "1G"}}}}"#
    ));
    let error = task.error.unwrap();
    assert_eq!((error.change, &error.remains), (6, &Vec::new()), "{error}");
    let inventory = rig.enclosure.inventory();
    let weight = inventory.function(&"d0/vf2".parse().unwrap()).unwrap().share.weight;
    assert_eq!((inventory.drives.len(), weight), (1, 1));
    rig.made(&changes);
    let host = rig.connect("a", &format!("{}:vf1", NQN.replace("d0", "d1")));
    assert_eq!(host.namespace(ebof_nvme::Nsid(1)).unwrap().blocks(), 256);
    rig.target.stop(Duration::ZERO);
}

#[test]
fn shares_are_stored_and_a_reset_takes_functions_offline() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d0.img");
    let rig = Rig::observed(config(path.to_str().unwrap()), Box::new(|_| ()));
    rig.made(&format!(
        r#"{}, {{"change": "weight", "function": "d0/vf1", "weight": 4}},
        {{"change": "limit", "function": "d0/vf1", "iops": 50000, "minimum_iops": 10}}"#,
        assign("d0/vf1", "a")
    ));
    rig.target.stop(Duration::from_secs(5));
    drop(rig);
    let rig = reopened(&config(path.to_str().unwrap()));
    let inventory = rig.enclosure.inventory();
    let shown = inventory.function(&"d0/vf1".parse().unwrap()).unwrap();
    assert_eq!((shown.share.weight, shown.share.iops, shown.share.minimum_iops), (4, Some(50_000), Some(10)));
    assert_eq!((shown.port(), shown.online), (Some("a"), true));
    rig.connect("a", &function(1)).disconnect();
    rig.made(r#"{"change": "reset-drive", "drive": "d0"}"#);
    assert!(rig.try_connect("a", &function(1)).is_none());
    assert!(rig.enclosure.inventory().drives[0].functions.iter().all(|function| !function.online));
    rig.target.stop(Duration::ZERO);
}

#[test]
fn a_port_that_the_configuration_does_not_have_is_shown_and_not_fatal() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d0.img");
    let rig = Rig::observed(config(path.to_str().unwrap()), Box::new(|_| ()));
    rig.made(&assign("d0/vf1", "b"));
    rig.target.stop(Duration::from_secs(5));
    drop(rig);
    let mut without = config(path.to_str().unwrap());
    without.ports.retain(|port| port.name != "b");
    let target = Arc::new(wait("the lock of the file", || Target::start(without.clone(), settings()).ok()));
    let inventory = RunningEnclosure::new(Arc::clone(&target)).inventory();
    let shown = inventory.function(&"d0/vf1".parse().unwrap()).unwrap();
    assert_eq!((shown.port(), shown.port_exists), (Some("b"), false));
    assert_eq!(inventory.contradictions.len(), 1, "{:?}", inventory.contradictions);
    target.stop(Duration::ZERO);
}

#[test]
fn a_drive_that_is_pulled_out_fails_its_own_hosts_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("d1.img");
    let rig = Rig::new();
    let add = format!(
        r#"{{"change": "add-drive", "drive": {{"name": "d1", "backing": "{}", "size": "64Mi", "attach": "everyone"}}}}"#,
        path.display()
    );
    rig.made(&add);
    let nqn = NQN.replace("d0", "d1");
    let host = rig.connect("a", &nqn);
    let nsid = create(&host, 16_384);
    let namespace = host.namespace(nsid).unwrap();
    namespace.write(0, &[3; 4096], true).unwrap();
    let resting = rig.namespace("d0/vf2");
    rig.made(&assign("d0/vf2", "a"));
    let other = rig.connect("a", &function(2));
    let other = other.namespace(resting).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                other.write(0, &[9; 4096], false).unwrap();
            }
        });
        rig.made(r#"{"change": "remove-drive", "drive": "d1", "surprise": true}"#);
        over.store(true, Relaxed);
    });
    assert!(rig.try_connect("a", &nqn).is_none());
    // It comes back, as after a sudden loss of power.
    wait("the lock of the file", || (rig.make(&add).state == TaskState::Done).then_some(()));
    let status = rig.target.status();
    let drive = status.drives.iter().find(|drive| drive.name == "d1").unwrap();
    assert_eq!(drive.health.unsafe_shutdowns, 1);
    let again = rig.connect("a", &nqn);
    let mut data = [0; 4096];
    again.namespace(nsid).unwrap().read(0, &mut data).unwrap();
    assert_eq!(data, [3; 4096], "what was durable is there");
    rig.target.stop(Duration::ZERO);
}
