//! An account that is limited to a drive sees and changes nothing of others: not in a body, a
//! header or a stream, and not by the status of an answer. What is others' is marked by its name,
//! and every address of the service is asked for.

#[path = "tenants/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::time::Instant;

use ebof_access::{AccountReach, Role};
use ebof_redfish::{Body, Piece};
use serde_json::{Value, json};

use world::{MARK, Told, World};

/// What is asked for of each resource.
const QUERIES: &[&str] = &["", "?$expand=.($levels=6)", "?$expand=*", "?$top=1", "?only", "?$filter=Name%20ne%20'x'"];

/// Addresses that no resource refers to.
const OTHERS: &[&str] = &[
    "/redfish",
    "/redfish/v1/",
    "/redfish/v1/odata",
    "/redfish/v1/$metadata",
    "/redfish/v1/openapi.yaml",
    "/redfish/v1/UpdateService/upload",
    "/redfish/v1/EventService/SSE",
    "/redfish/v1/TaskService/TaskMonitors/1",
    "/redfish/v1/TaskService/TaskMonitors/2",
    "/redfish/v1/TelemetryService/MetricReports/History-Drives-markb1-1s",
    "/redfish/v1/TelemetryService/MetricReports/History-Functions-markb1-vf1-1s",
    "/redfish/v1/TelemetryService/MetricReports/History-Drives-d0-1s",
    "/redfish/v1/TelemetryService/MetricReports/History-Ports-fabric0-1s",
];

/// All addresses that an Administrator is told of.
fn addresses(world: &World) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut waiting: Vec<String> = OTHERS.iter().map(|&path| path.to_owned()).collect();
    while let Some(address) = waiting.pop() {
        if !all.insert(address.clone()) {
            continue;
        }
        let told = world.ask(&world.admin, "GET", &address, b"");
        if let Ok(resource) = serde_json::from_str::<Value>(&told.text) {
            references(&resource, &mut waiting);
        }
    }
    all
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(list) => list.iter().for_each(|one| references(one, found)),
        Value::Object(object) => {
            let named = ["@odata.id", "target", "DataSourceUri", "MetricProperty"];
            let named = named.into_iter().filter_map(|name| object.get(name)?.as_str());
            found.extend(named.map(|path| path.split('#').next().unwrap_or_default().to_owned()));
            object.values().for_each(|one| references(one, found));
        }
        _ => {}
    }
}

/// An answer to whom an address that names others' is nothing but an address that names nothing.
fn without_mark(text: &str) -> String {
    text.replace(MARK, "nosuch")
}

/// That an answer tells nothing of others; what was asked for is repeated in some.
fn assert_blind(world: &World, method: &str, path: &str, body: &[u8]) -> Told {
    let told = world.ask(&world.tenant, method, path, body);
    let asked = format!("{path} {}", String::from_utf8_lossy(body));
    if asked.contains(MARK) {
        let body = without_mark(&String::from_utf8_lossy(body));
        let nothing = world.ask(&world.tenant, method, &without_mark(path), body.as_bytes());
        assert_eq!(told.status, nothing.status, "{method} {path}: {}", told.text);
        assert_eq!(without_mark(&told.text), without_mark(&nothing.text), "{method} {path}");
        assert_eq!(without_mark(&told.headers), without_mark(&nothing.headers), "{method} {path}");
    } else {
        assert!(!told.text.contains(MARK), "{method} {path}: {}", around(&told.text));
        assert!(!told.headers.contains(MARK), "{method} {path}: {}", told.headers);
    }
    told
}

fn around(text: &str) -> &str {
    let at = text.find(MARK).unwrap_or_default();
    let begin = (0..=at.saturating_sub(300)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    let end = (at..=text.len().min(at + 100)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(at);
    &text[begin..end]
}

// @test redfish.limited
#[test]
fn nothing_of_others_is_told_at_any_address() {
    let world = World::new();
    let all = addresses(&world);
    assert!(all.len() > 400, "{}", all.len());
    let (mut marked, mut seen, mut seen_by_all) = (0, 0, 0);
    for path in &all {
        marked += usize::from(path.contains(MARK));
        for query in QUERIES {
            let told = assert_blind(&world, "GET", &format!("{path}{query}"), b"");
            if path.contains(MARK) {
                // Who may see accounts of others, or keys, is decided before it is looked who there
                // is.
                let is_of_keys = path.contains("/KeyService/") && told.status == 403;
                assert!(
                    is_of_keys || matches!(told.status, 404 | 400 | 405 | 501),
                    "{path}{query}: {} {}",
                    told.status,
                    told.text
                );
            }
            seen += usize::from(told.status == 200 && told.text.contains("d0"));
        }
        let unlimited = world.ask(&world.operator, "GET", path, b"");
        seen_by_all += usize::from(unlimited.text.contains(MARK));
        assert_blind(&world, "HEAD", path, b"");
        assert_blind(&world, "OPTIONS", path, b"");
    }
    // There is something to be hidden, and something left.
    assert!(marked > 60 && seen_by_all > 60 && seen > 60, "{marked} {seen_by_all} {seen}");
}

// @test redfish.limited
#[test]
fn nothing_of_others_is_changed_by_any_method() {
    let world = World::new();
    let before = world.state();
    let volume = format!("/redfish/v1/Storage/{MARK}1/Volumes/ns1");
    let bodies = [
        json!({}),
        json!({ "Oem": { "Ebof": { "Weight": 7 } } }),
        json!({ "Volume": { "@odata.id": volume } }),
        json!({ "Namespaces": [{ "@odata.id": volume }] }),
        json!({ "Endpoint": { "@odata.id": format!("/redfish/v1/Fabrics/NVMeoF/Endpoints/{MARK}1-vf1") } }),
        json!({ "Targets": [{ "@odata.id": format!("/redfish/v1/UpdateService/FirmwareInventory/{MARK}1-slot1") }] }),
        json!({ "Method": "PATCH", "Target": format!("/redfish/v1/Storage/{MARK}1/Controllers/vf1"),
            "Body": { "Oem": { "Ebof": { "Weight": 7 } } } }),
    ];
    let mut asked = 0;
    for path in addresses(&world).iter().filter(|path| !path.contains("/Storage/d0/") && !path.contains("/d0")) {
        for method in ["POST", "PATCH", "PUT", "DELETE"] {
            for body in &bodies {
                let is_own = path.contains("/Accounts/") || path.contains("/Sessions");
                if is_own {
                    continue;
                }
                let told = assert_blind(&world, method, path, body.to_string().as_bytes());
                assert!(told.status >= 400 || path.ends_with(".PlanChanges"), "{method} {path} {body}: {}", told.text);
                asked += 1;
            }
        }
    }
    assert!(asked > 5000, "{asked}");
    assert_eq!(world.state(), before);
}

#[test]
fn what_is_there_for_it_can_be_changed() {
    let world = World::new();
    let change = |method: &str, path: &str, body: Value| {
        let told = world.ask(&world.tenant, method, &format!("/redfish/v1/{path}"), body.to_string().as_bytes());
        (told.status, told.text)
    };
    let weight = json!({ "Oem": { "Ebof": { "Weight": 7 } } });
    let (status, text) = change("PATCH", "Storage/d0/Controllers/vf1", weight.clone());
    assert_eq!(status, 202, "{text}");
    let (status, text) = change("DELETE", "Storage/d0/Volumes/ns1", json!({}));
    assert_eq!(status, 202, "{text}");
    // What is for the whole box is not for it: firmware, drives, who may connect.
    for (method, path, body) in [
        ("POST", "Chassis/enclosure/Drives/d0/Actions/Oem/EbofDrive.Remove", json!({})),
        (
            "POST",
            "UpdateService/Actions/UpdateService.Activate",
            json!({ "Targets": [{ "@odata.id": "/redfish/v1/UpdateService/FirmwareInventory/d0-slot1" }] }),
        ),
        ("DELETE", "Fabrics/NVMeoF/Connections/d0,nqn.2014-08.org.example~alice", json!({})),
    ] {
        let (status, text) = change(method, path, body);
        assert_eq!(status, 403, "{method} {path}: {text}");
    }
    // The plan of a change is that of the change.
    let plan = json!({ "Method": "PATCH", "Target": "/redfish/v1/Storage/d0/Controllers/vf2", "Body": weight });
    let (status, text) = change("POST", "Managers/ebof/Actions/Oem/EbofManager.PlanChanges", plan);
    assert!(status == 200 && text.contains("give d0/vf2 the weight 7"), "{text}");
}

/// What a stream has by now.
fn stream(world: &World, query: &str) -> String {
    let told = world.response(&world.tenant, "GET", &format!("/redfish/v1/EventService/SSE{query}"), b"");
    let Body::Stream(mut feed) = told.into_body() else { panic!("no stream") };
    let mut text = String::new();
    while let Piece::Text(piece) = feed.next(Instant::now()) {
        text += &piece;
    }
    text
}

// @test redfish.limited
#[test]
fn streams_tell_nothing_of_others() {
    let world = World::new();
    let events = stream(&world, "");
    assert!(events.contains("of our own") && !events.contains(MARK), "{}", around(&events));
    for (_, kind) in world::KINDS_TOLD {
        assert!(events.contains(&format!("of our own: {kind}")), "{kind} is not told: {events}");
    }
    let reports = stream(&world, "?$filter=EventFormatType%20eq%20'MetricReport'");
    assert!(reports.contains("Storage/d0") && !reports.contains(MARK), "{}", around(&reports));
}

#[test]
fn whose_limits_change_has_to_log_in_again() {
    let world = World::new();
    let path = format!("/redfish/v1/AccountService/Accounts/{}", world.tenant.account);
    let access = &world.service.parts().access;
    assert!(access.still_holds(&world.tenant));
    let limits = json!({ "Oem": { "Ebof": { "Drives": ["d2"] } } });
    let told = world.ask(&world.admin, "PATCH", &path, limits.to_string().as_bytes());
    assert!(told.status == 200 && told.text.contains("\"Drives\":[\"d2\"]"), "{}", told.text);
    assert!(!access.still_holds(&world.tenant));
    let everything = json!({ "Oem": { "Ebof": { "Limited": false } } });
    let told = world.ask(&world.admin, "PATCH", &path, everything.to_string().as_bytes());
    assert!(told.status == 200 && told.text.contains("\"Limited\":false"), "{}", told.text);
    // Not by itself, and not as an Administrator.
    let told = world.ask(&world.tenant, "PATCH", &path, everything.to_string().as_bytes());
    assert_eq!(told.status, 403, "{}", told.text);
    let both = json!({ "RoleId": "Administrator", "Oem": { "Ebof": { "Drives": ["d0"] } } });
    let told = world.ask(&world.admin, "PATCH", &path, both.to_string().as_bytes());
    assert!(told.status == 400 && told.text.contains("an Administrator is not limited"), "{}", told.text);
    let account = access.account(world.tenant.account).unwrap();
    assert_eq!((account.role, account.reach), (Role::Operator, AccountReach::Everything));
}
