//! What is done to the service itself: logs are cleared, it listens elsewhere, it is started again.

use ebof_access::Role;
use ebof_manage::events::{EventKind, NewEvent};
use serde_json::{Value, json};

use crate::fixture::{ALICE, Answer, Fixture};

const MANAGER: &str = "/redfish/v1/Managers/ebof";

fn clear(fixture: &Fixture, role: Role, log: &str, body: &Value) -> Answer {
    fixture.ask_as(role, "POST", &format!("{MANAGER}/LogServices/{log}/Actions/LogService.ClearLog"), body)
}

fn kinds(fixture: &Fixture) -> Vec<EventKind> {
    fixture.service.parts().events.since(0, 1000).events.iter().map(|event| event.kind).collect()
}

// @test redfish.cleared-log
#[test]
fn a_log_is_cleared_and_the_trail_stays() {
    let fixture = Fixture::new();
    let report = |kind| fixture.service.parts().events.report(NewEvent::new(kind, "d0", "it happened").who("eve"));
    [EventKind::SessionRefused, EventKind::HostConnected, EventKind::AccountChanged].into_iter().for_each(report);
    for role in [Role::ReadOnly, Role::Operator] {
        assert_eq!(clear(&fixture, role, "Events", &json!({})).status, 403, "{role}");
    }
    let entries = format!("{MANAGER}/LogServices/Events/Entries");
    let tag = fixture.ask("GET", &entries, &Value::Null).header("etag").to_owned();
    report(EventKind::HostDisconnected);
    let seen = |tag: &str| clear(&fixture, Role::Administrator, "Events", &json!({ "LogEntriesETag": tag }));
    assert_eq!(seen(&tag).status, 428, "an entry has come that nobody has read");
    assert_eq!(kinds(&fixture).len(), 4);
    let now = fixture.ask("GET", &entries, &Value::Null).header("etag").to_owned();
    assert_eq!(seen(&now).status, 204);
    assert_eq!(kinds(&fixture), [EventKind::SessionRefused, EventKind::AccountChanged, EventKind::LogCleared]);
    let last = &fixture.get(&entries)["Members"][0];
    assert_eq!(last["Message"], "log Events was cleared: 2 entries; what accounts did stays");
    assert_eq!((&last["Oem"]["Ebof"]["Who"], &last["Severity"]), (&json!("x"), &json!("Warning")));
    for log in ["ConnectionsRefused", "SlowCommands"] {
        assert_eq!(clear(&fixture, Role::Administrator, log, &json!({})).status, 204);
        assert_eq!(kinds(&fixture).last(), Some(&EventKind::LogCleared), "{log}");
    }
    assert_eq!(clear(&fixture, Role::Administrator, "SlowCommands", &json!({ "X": 1 })).status, 400);
}

// @test redfish.listen
#[test]
fn the_service_listens_elsewhere_if_the_configuration_says_where() {
    let fixture = Fixture::new();
    let uri = format!("{MANAGER}/NetworkProtocol");
    let patch = |body: Value| fixture.ask("PATCH", &uri, &body);
    let target = || fixture.fake.state().config.target.clone();
    let changed = patch(json!({ "HTTPS": { "Port": 9443 }, "HTTP": { "ProtocolEnabled": true, "Port": 8080 } }));
    assert_eq!((changed.status, &changed.body["HTTPS"]["Port"]), (200, &json!(9443)), "{}", changed.body);
    assert_eq!(target().https, Some("192.0.2.1:9443".parse().unwrap()), "the address stays");
    assert_eq!(target().http, Some("127.0.0.1:8080".parse().unwrap()), "nobody else can read it");
    let same =
        patch(json!({ "HTTPS": { "ProtocolEnabled": true, "Port": 9443 }, "SSDP": { "ProtocolEnabled": false } }));
    assert_eq!(same.status, 200, "{}", same.body);
    assert_eq!(patch(json!({ "HTTP": { "ProtocolEnabled": false } })).body["HTTP"]["ProtocolEnabled"], false);
    assert_eq!(target().http, None);
    for (body, about, part) in [
        (json!({ "HTTPS": { "ProtocolEnabled": false } }), "#/HTTPS/ProtocolEnabled", "could not be reached"),
        (json!({ "HTTP": { "ProtocolEnabled": true } }), "#/HTTP/Port", "Port"),
        (json!({ "HTTP": { "Port": 8081 } }), "#/HTTP/Port", "not enabled"),
        (json!({ "SSDP": { "ProtocolEnabled": true } }), "#/SSDP/ProtocolEnabled", "SSDP"),
        (json!({ "NTP": { "ProtocolEnabled": true } }), "#/NTP", "no protocol of this service"),
        (json!({ "HTTPS": { "Port": 0 } }), "#/HTTPS/Port", "not accepted"),
        (json!({ "HostName": "x" }), "#/HostName", "HostName"),
        (json!({}), "", ""),
    ] {
        let refused = patch(body.clone());
        let (_, at, message) = refused.messages()[0].clone();
        assert_eq!((refused.status, at.as_str()), (400, about), "{body}: {}", refused.body);
        assert!(message.contains(part), "{body}: {message}");
    }
    fixture.fake.state().by_command_line = true;
    let fixed = patch(json!({ "HTTPS": { "Port": 1 }, "HTTP": { "ProtocolEnabled": true, "Port": 2 } }));
    let told: Vec<_> = fixed.messages().into_iter().map(|(_, about, message)| (about, message)).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|(_, message)| message.contains("command line")), "{told:?}");
    assert_eq!(target().https.unwrap().port(), 9443);
}

// @test redfish.restart
#[test]
fn a_restart_is_planned_and_refused_where_something_would_be_lost() {
    let fixture = Fixture::new();
    let uri = format!("{MANAGER}/Actions/Manager.Reset");
    let reset = |kind: &str| fixture.ask("POST", &uri, &json!({ "ResetType": kind }));
    let plan = |kind: &str| {
        let ask = json!({ "Method": "POST", "Target": uri, "Body": { "ResetType": kind } });
        let answer = fixture.ask("POST", &format!("{MANAGER}/Actions/Oem/EbofManager.PlanChanges"), &ask);
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body
    };
    // The plain subsystem is in memory.
    let graceful = reset("GracefulRestart");
    assert_eq!(graceful.status, 409, "{}", graceful.body);
    assert!(graceful.messages().iter().any(|(_, _, text)| text.contains("are in memory")), "{}", graceful.body);
    let planned = plan("GracefulRestart");
    assert_eq!(planned["Refused"].as_array().unwrap().len(), graceful.messages().len());
    assert_eq!(planned["DestroysData"], true);
    let force = plan("ForceRestart");
    assert_eq!((&force["Refused"], &force["Changes"][0]), (&json!([]), &json!("start the service again")));
    let hosts = force["Disturbed"].as_array().unwrap();
    assert!(hosts.iter().any(|host| host["HostNQN"] == ALICE), "{force}");
    // What is in memory goes, and what a start would not serve is told.
    {
        let state = &mut *fixture.fake.state();
        state.config.subsystems.retain(|subsystem| subsystem.drive.is_some());
        state.inventory.drives.iter_mut().for_each(|drive| "/srv/x.img".clone_into(&mut drive.backing));
        state.forgets = Some("What was changed is not stored.".to_owned());
    }
    assert_eq!(reset("GracefulRestart").messages()[0].2, "What was changed is not stored.");
    fixture.fake.state().forgets = None;
    assert_ne!(plan("ForceRestart")["Revision"], force["Revision"], "it would do something else now");
    for role in [Role::ReadOnly, Role::Operator] {
        assert_eq!(fixture.ask_as(role, "POST", &uri, &json!({})).status, 403, "{role}");
    }
    assert_eq!(reset("Nmi").messages()[0].0, "PropertyValueNotInList");
    assert!(fixture.fake.state().restarts.is_empty());
    let done = fixture.ask("POST", &uri, &json!({}));
    assert_eq!(done.status, 204, "{}", done.body);
    assert_eq!(fixture.fake.state().restarts.len(), 1);
}
