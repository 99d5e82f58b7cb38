//! What a running target tells of what happens to it: events, and what each object did.

use std::time::Duration;

use ebof_manage::Target as _;
use ebof_manage::events::{Event, EventKind};
use ebof_manage::history::{Query, Resolution, SeriesName};
use ebof_nvme::Nsid;

use crate::drive_rig::wait;
use crate::enclosure_rig::{NQN, Rig, assign, config, function, moved};

fn of_kind(rig: &Rig, kind: EventKind) -> Vec<Event> {
    rig.target.events().since(0, 1000).events.into_iter().filter(|event| event.kind == kind).collect()
}

fn objects(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.object.as_str()).collect()
}

#[test]
fn hosts_and_functions_have_events_by_the_names_they_have_elsewhere() {
    let rig = Rig::new();
    let nsid = rig.namespace("d0/vf1");
    rig.made(&assign("d0/vf1", "a"));
    let host = rig.connect("a", &function(1));
    let connected = of_kind(&rig, EventKind::HostConnected);
    assert_eq!(objects(&connected), ["d0", "d0/vf1"]);
    assert!(
        connected[1].message.contains("from 127.0.0.1:") && connected[1].message.contains("port a"),
        "{connected:?}"
    );
    assert_eq!(connected[1].who.as_deref(), Some(host.options().host_nqn.as_str()));
    rig.made(&moved("d0/vf1", "b"));
    assert_eq!(objects(&of_kind(&rig, EventKind::FunctionGiven)), ["d0/vf1"]);
    let moved = of_kind(&rig, EventKind::FunctionMoved);
    assert_eq!((objects(&moved), moved[0].message.as_str()), (vec!["d0/vf1"], "moved to port b"));
    // The box took the controller away: nothing failed.
    let ended = wait("the end", || Some(of_kind(&rig, EventKind::HostDisconnected)).filter(|ended| ended.len() >= 2));
    assert_eq!(objects(&ended)[..2], ["d0", "d0/vf1"]);
    assert!(of_kind(&rig, EventKind::ControllerFailed).is_empty());
    let began = of_kind(&rig, EventKind::TaskBegan);
    let numbers = objects(&began);
    let numbers: Vec<u64> = numbers.iter().map(|name| name.strip_prefix("task ").unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, [numbers[0], numbers[0] + 1, numbers[0] + 2]);
    assert_eq!(of_kind(&rig, EventKind::TaskEnded).len(), 3);
    assert!(!of_kind(&rig, EventKind::TaskProgress).is_empty());
    let added = of_kind(&rig, EventKind::NamespaceAdded);
    assert_eq!(objects(&added), [format!("d0/ns{}", nsid.0)]);
    assert_eq!(objects(&of_kind(&rig, EventKind::NamespaceChanged)), [format!("d0/ns{}", nsid.0)]);
    drop(host);
    rig.target.stop(Duration::from_secs(5));
    let all = rig.target.events().since(0, 1000).events;
    assert_eq!(all[0].kind, EventKind::TargetStarted);
    assert_eq!(of_kind(&rig, EventKind::TargetStopping).len(), 1);
}

#[test]
fn refused_hosts_and_configurations_have_events() {
    let rig = Rig::new();
    assert!(rig.try_connect("b", NQN).is_none());
    let refused = of_kind(&rig, EventKind::ConnectionRefused);
    assert_eq!(objects(&refused), ["b"]);
    assert!(refused[0].advice.is_some() && refused[0].message.contains(NQN), "{refused:?}");
    assert_eq!(refused[0].from.as_deref(), Some("127.0.0.1"), "{refused:?}");
    let mut changed = config("mem:256Mi");
    changed.subsystems[0].ports = vec!["b".to_owned()];
    rig.target.apply(changed.clone()).unwrap();
    assert_eq!(objects(&of_kind(&rig, EventKind::SubsystemChanged)), [NQN]);
    assert_eq!(of_kind(&rig, EventKind::ConfigurationChanged).len(), 1);
    changed.target.threads = Some(7);
    rig.target.apply(changed.clone()).unwrap_err();
    assert_eq!(of_kind(&rig, EventKind::ConfigurationRefused).len(), 1);
    changed.target.threads = None;
    changed.ports.retain(|port| port.name == "b");
    rig.target.apply(changed).unwrap();
    wait("the port", || Some(of_kind(&rig, EventKind::PortDown)).filter(|down| objects(down) == ["a"]));
    let mut up = of_kind(&rig, EventKind::PortUp);
    up.sort_by(|one, other| one.object.cmp(&other.object));
    assert_eq!(objects(&up), ["a", "b"]);
}

#[test]
fn each_object_has_a_history_of_what_it_did() {
    let rig = Rig::new();
    let nsid = rig.namespace("d0/vf1");
    rig.made(&assign("d0/vf1", "a"));
    let host = rig.connect("a", &function(1));
    let namespace = host.namespace(Nsid(nsid.0)).unwrap();
    (0..10).for_each(|_| namespace.write(0, &[7; 4096], false).unwrap());
    let host_nqn = host.options().host_nqn.to_string();
    // The counters of a queue that is gone stay.
    host.disconnect();
    let measured = rig.target.measured();
    let written = |name: &str| {
        let object: SeriesName = name.parse().unwrap();
        let query = Query { object, resolution: Resolution::Second, after_unix_ms: 0, until_unix_ms: u64::MAX };
        let samples = measured.samples(&query).ok()?.samples;
        let written: f32 = samples.iter().map(|sample| sample.write.bytes_per_s).sum();
        // A second may be a bit longer or shorter.
        ((written - 40_960.0).abs() < 4_096.0).then(|| samples.iter().find_map(|sample| sample.write.p50_us)).flatten()
    };
    let namespace = format!("namespace:d0/ns{}", nsid.0);
    let host = format!("host:{host_nqn}");
    for name in ["target", "drive:d0", "function:d0/vf1", "port:a", &namespace, &host] {
        let p50_us = wait(name, || written(name));
        assert!(p50_us < 10_000_000, "{name}: {p50_us}");
    }
    let names: Vec<String> = measured.overview().objects.iter().map(|object| object.object.to_string()).collect();
    let mut wanted = ["target", "drive:d0", "function:d0/vf1", "port:a", namespace.as_str(), host.as_str()];
    wanted.sort_unstable();
    let mut found: Vec<&str> = names.iter().map(String::as_str).collect();
    found.sort_unstable();
    assert_eq!(found, wanted);
}

#[test]
fn queues_are_looked_at_while_somebody_asks() {
    let rig = Rig::new();
    let nsid = rig.namespace("d0/vf1");
    rig.made(&assign("d0/vf1", "a"));
    let host = rig.connect("a", &function(1));
    let namespace = host.namespace(Nsid(nsid.0)).unwrap();
    namespace.write(0, &[7; 4096], false).unwrap();
    let first = rig.target.queues();
    assert_eq!((first.time_unix_ms, first.rows.len()), (0, 1), "one look has no rates");
    let written = || {
        namespace.write(0, &[7; 4096], false).unwrap();
        Some(rig.target.queues()).filter(|table| table.rows.iter().any(|row| row.sample.write.commands_per_s > 0.0))
    };
    let table = wait("writes", written);
    let [row] = table.rows.as_slice() else { panic!("{table:?}") };
    let controller = row.labels["controller"].clone();
    assert_eq!(row.object.to_string(), format!("queue:d0/vf1/c{controller}/q{}", row.labels["queue"]));
    assert_eq!(row.labels["host"], host.options().host_nqn.as_str());
    assert_eq!((row.labels["port"].as_str(), row.labels["subsystem"].as_str()), ("a", function(1).as_str()));
    assert!(row.share == Some(1.0) && row.in_flight.is_none() && row.sample.write.p99_us.is_some(), "{row:?}");
    host.disconnect();
    wait("the end", || rig.target.queues().rows.is_empty().then_some(()));
}
