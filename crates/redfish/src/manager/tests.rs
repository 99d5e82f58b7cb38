//! The manager, its logs and the configuration through requests.

use std::sync::Arc;

use ebof_access::Role;
use ebof_manage::events::{EventKind, Events as _, NewEvent, SharedEvents};
use serde_json::{Value, json};

use crate::fixture::{ALICE, Fixture};
use crate::managed::parts::Parts;
use crate::service::Service;
use crate::service::tests::{Box2, ask_of, caller, code, parts};

const LOGS: &str = "/redfish/v1/Managers/ebof/LogServices";
const CONFIGURATION: &str = "/redfish/v1/Managers/ebof/Oem/Ebof/Configuration";

fn get(service: &Service, uri: &str) -> Value {
    let (status, _, body) = ask_of(service, "GET", uri, &[], Value::Null, &caller(Some(Role::ReadOnly)));
    assert_eq!(status, 200, "{uri}: {body}");
    body
}

#[test]
fn events_are_entries_of_a_log() {
    let events = SharedEvents::new(3000, || 1_700_000_000_000);
    for number in 0..1500 {
        events.report(
            NewEvent::new(EventKind::TaskBegan, "d0/vf1", format!("task {number}")).advice("wait").who("admin"),
        );
    }
    let service = Service::new(Parts { events: Arc::new(events), ..parts() });
    let entries = get(&service, &format!("{LOGS}/Events/Entries?$top=2"));
    assert_eq!(entries["Members@odata.count"], 750, "a quarter of the log is of one kind");
    let first = &entries["Members"][0];
    assert_eq!((&first["Id"], &first["Message"]), (&json!("1500"), &json!("task 1499")));
    assert_eq!((&first["MessageId"], &first["Resolution"]), (&json!("Ebof.1.0.TaskBegan"), &json!("wait")));
    assert_eq!((&first["Severity"], &first["Created"]), (&json!("OK"), &json!("2023-11-14T22:13:20.000Z")));
    let ebof = json!({ "@odata.type": "#EbofLogEntry.v1_0_0.Event", "Object": "d0/vf1", "Who": "admin", "Count": 1 });
    assert_eq!(first["Oem"]["Ebof"], ebof);
    for id in ["1", "0", "1501", "01500", "x", "18446744073709551615"] {
        let uri = format!("{LOGS}/Events/Entries/{id}");
        assert_eq!(ask_of(&service, "GET", &uri, &[], Value::Null, &caller(Some(Role::ReadOnly))).0, 404, "{id}");
    }
}

#[test]
fn refused_connections_are_entries_with_advice() {
    let refusal = |host: &str| {
        serde_json::from_value(json!({
            "time_unix_ms": 1_700_000_000_000_u64, "peer": "192.0.2.1:5000", "host_nqn": host, "subsystem_nqn": null,
            "reason": "host-not-allowed", "detail": "the host may not connect", "advice": "allow it", "count": 3,
        }))
        .unwrap()
    };
    let target = Box2 { refused: vec![refusal("nqn.a"), refusal("nqn.b")], ..Box2::default() };
    let service = Service::new(Parts { target: Arc::new(target), ..parts() });
    let entries = get(&service, &format!("{LOGS}/ConnectionsRefused/Entries"));
    let latest = &entries["Members"][0];
    assert_eq!(latest["Oem"]["Ebof"]["HostNQN"], "nqn.b");
    assert_eq!(
        (&latest["Oem"]["Ebof"]["Reason"], &latest["Resolution"]),
        (&json!("HostNotAllowed"), &json!("allow it"))
    );
    let own = get(&service, latest["@odata.id"].as_str().unwrap());
    assert_eq!(own["OriginAddress"], "tcp://192.0.2.1");
}

#[test]
fn a_configuration_is_planned_and_applied() {
    let service = Service::new(parts());
    let admin = caller(Some(Role::Administrator));
    let ask = |action: &str, body: Value| {
        ask_of(&service, "POST", &format!("{CONFIGURATION}/Actions/EbofConfiguration.{action}"), &[], body, &admin)
    };
    let resource = get(&service, CONFIGURATION);
    assert_eq!((&resource["Revision"], &resource["Source"]), (&json!("r1"), &json!("Arguments")));
    let stored = json!({
        "Generation": "1", "Revision": "r0", "Created": "2023-11-14T22:13:20.000Z", "Cause": "start by the start",
        "Changes": [], "ChangesLeftOut": 0,
    });
    assert_eq!((&resource["Generations"][0]["Revision"], &resource["Generations"][1]), (&json!("r1"), &stored));
    let (status, _, body) = ask("Plan", json!({ "TOML": "[target]" }));
    assert_eq!((status, &body["Changes"]), (200, &json!([])));
    assert_eq!(ask("Apply", json!({ "TOML": "[target]", "Revision": "r1" })).0, 200);
    for (action, body, status, id) in [
        ("Plan", json!({ "TOML": "[targe]" }), 400, "ConfigurationRefused"),
        ("Plan", json!({}), 400, "ActionParameterMissing"),
        ("Plan", json!({ "TOML": "", "JSON": "{}" }), 400, "ActionParameterValueConflict"),
        ("Apply", json!({ "TOML": "[target]" }), 400, "ActionParameterMissing"),
        ("Apply", json!({ "TOML": "[target]", "Revision": "r0" }), 409, "ChangeOutdated"),
    ] {
        let (got, _, answer) = ask(action, body.clone());
        assert_eq!((got, code(&answer)), (status, id), "{action} {body}");
    }
    let uri = format!("{CONFIGURATION}/Actions/EbofConfiguration.Apply");
    assert_eq!(ask_of(&service, "POST", &uri, &[], json!({}), &caller(Some(Role::Operator))).0, 403);
    assert_eq!(ask_of(&service, "GET", &uri, &[], Value::Null, &admin).0, 405);
}

#[test]
fn the_manager_tells_how_it_is_reached() {
    let service = Service::new(parts());
    let manager = get(&service, "/redfish/v1/Managers/ebof");
    assert_eq!(manager["LastResetTime"], "2023-11-14T22:13:20.000Z");
    let network = get(&service, manager["NetworkProtocol"]["@odata.id"].as_str().unwrap());
    assert_eq!((&network["HTTPS"]["Port"], &network["HTTP"]["ProtocolEnabled"]), (&json!(8443), &json!(false)));
}

#[test]
fn slow_commands_are_entries_that_tell_where_their_time_went() {
    let service = Fixture::new().service;
    let log = get(&service, &format!("{LOGS}/SlowCommands"));
    let told = &log["Oem"]["Ebof"];
    assert_eq!((&told["ThresholdMicroseconds"], &told["Total"]), (&json!(100_000), &json!(9)));
    let entries = get(&service, &format!("{LOGS}/SlowCommands/Entries"));
    let ids: Vec<&str> = entries["Members"].as_array().unwrap().iter().map(|one| one["Id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["9", "8", "7"], "the latest first");
    let entry = get(&service, &format!("{LOGS}/SlowCommands/Entries/7"));
    let message = "read of 4096 bytes at block 2048 of namespace 3 of d0/vf1 took 150.006 ms: device 150.000 ms, \
                   queue 0.006 ms";
    assert_eq!((&entry["Message"], &entry["MessageId"]), (&json!(message), &json!("Ebof.1.0.SlowCommand")));
    assert!(entry["Resolution"].as_str().unwrap().contains("disk below the drive"));
    assert_eq!(entry["Links"]["OriginOfCondition"]["@odata.id"], "/redfish/v1/Storage/d0/Volumes/ns3");
    let oem = json!({
        "@odata.type": "#EbofLogEntry.v1_0_0.SlowCommand", "HostNQN": ALICE,
        "SubsystemNQN": "nqn.2014-08.org.example:box:d0", "Object": "d0/vf1", "Port": "fabric0", "Queue": 1, "NSID": 3,
        "Opcode": 2, "Command": "read", "LBA": 2048, "DataBytes": 4096, "CompletionStatus": "Success",
        "TotalMicroseconds": 150_006, "QueueMicroseconds": 6, "BufferMicroseconds": 0, "NetworkMicroseconds": 0,
        "DeviceMicroseconds": 150_000, "UnsentBytes": 0,
    });
    assert_eq!(entry["Oem"]["Ebof"], oem);
    let plain = get(&service, &format!("{LOGS}/SlowCommands/Entries/8"));
    let volume = "/redfish/v1/Storage/nqn.2014-08.org.example~plain/Volumes/ns1";
    assert_eq!(plain["Links"]["OriginOfCondition"]["@odata.id"], volume);
    assert!(plain["Resolution"].as_str().unwrap().contains("share of the drive"));
    assert!(entries["Members"][0].get("Links").is_none(), "its drive is not there any more");
    for (query, count) in [
        ("$filter=Oem/Ebof/DeviceMicroseconds%20gt%20100000", 1),
        ("$filter=Oem/Ebof/Object%20eq%20'removed'", 1),
        ("$filter=Oem/Ebof/TotalMicroseconds%20ge%20150006&$top=2", 2),
    ] {
        let found = get(&service, &format!("{LOGS}/SlowCommands/Entries?{query}"));
        assert_eq!(found["Members"].as_array().unwrap().len(), count, "{query}");
    }
    for id in ["6", "10", "07", "x"] {
        let uri = format!("{LOGS}/SlowCommands/Entries/{id}");
        assert_eq!(ask_of(&service, "GET", &uri, &[], Value::Null, &caller(Some(Role::ReadOnly))).0, 404, "{id}");
    }
    let none = get(&Service::new(parts()), &format!("{LOGS}/SlowCommands"));
    assert_eq!((&none["ServiceEnabled"], &none["Oem"]["Ebof"]["ThresholdMicroseconds"]), (&json!(false), &Value::Null));
}
