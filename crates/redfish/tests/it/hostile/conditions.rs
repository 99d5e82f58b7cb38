//! Two administrators at once: what one has seen and the other has changed meanwhile is not changed
//! again; and plans that start from what is not there any more.

use std::sync::Barrier;

use serde_json::{Value, json};

use super::endpoints;
use super::known::KNOWN;
use super::populated::Populated;

/// The tag of a resource.
fn tag(box_: &Populated, path: &str) -> String {
    box_.admin("GET", path, b"", &[]).header("etag").to_owned()
}

#[test]
fn of_two_who_have_seen_the_same_one_changes_it() {
    let box_ = Populated::new();
    let (account, zone) = ("/redfish/v1/AccountService/Accounts/2", "/redfish/v1/Fabrics/NVMeoF/Connections/d1,any");
    for (path, method, bodies) in [
        (
            "/redfish/v1/AccountService",
            "PATCH",
            [r#"{"AccountLockoutThreshold": 61}"#, r#"{"AccountLockoutThreshold": 62}"#],
        ),
        ("/redfish/v1/SessionService", "PATCH", [r#"{"SessionTimeout": 61}"#, r#"{"SessionTimeout": 62}"#]),
        ("/redfish/v1/EventService", "PATCH", [r#"{"DeliveryRetryAttempts": 8}"#, r#"{"DeliveryRetryAttempts": 9}"#]),
        ("/redfish/v1/EventService/Subscriptions/1", "PATCH", [r#"{"Context": "a"}"#, r#"{"Context": "b"}"#]),
        (account, "PATCH", [r#"{"Enabled": false}"#, r#"{"RoleId": "Administrator"}"#]),
        (account, "PATCH", [r#"{"Enabled": true}"#, ""]),
        (zone, "PATCH", [r#"{"VolumeInfo": []}"#, ""]),
    ] {
        let seen = tag(&box_, path);
        assert!(seen.starts_with('"'), "{path}");
        let with = |body: &str| box_.admin(method, path, body.as_bytes(), &[("if-match", seen.as_bytes())]);
        let first = with(bodies[0]);
        if path == zone {
            assert_eq!(first.messages()[0].0, "NoOperation", "the tag is right: {}", first.body);
            continue;
        }
        assert_eq!((first.status, first.header("etag") != seen), (200, true), "{path}: {}", first.body);
        let before = box_.now();
        let second = if bodies[1].is_empty() {
            box_.admin("DELETE", path, b"", &[("if-match", seen.as_bytes())])
        } else {
            with(bodies[1])
        };
        assert_eq!((second.status, second.messages()[0].0.as_str()), (412, "PreconditionFailed"), "{path}");
        assert_eq!(before, box_.now());
        let again = box_.admin("GET", path, b"", &[("if-none-match", first.header("etag").as_bytes())]);
        assert_eq!(again.status, 304, "the answer to a change has the tag that it has then");
    }
}

#[test]
fn of_many_at_once_one_changes_it() {
    let box_ = Populated::new();
    let path = "/redfish/v1/AccountService";
    for round in 0..8_usize {
        let seen = tag(&box_, path);
        let barrier = Barrier::new(8);
        let one = |at: usize| {
            let body = format!("{{\"AccountLockoutThreshold\": {}}}", 20 + round * 8 + at);
            barrier.wait();
            box_.admin("PATCH", path, body.as_bytes(), &[("if-match", seen.as_bytes())]).status
        };
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|at| scope.spawn(move || one(at))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let count = |status: u16| statuses.iter().filter(|one| **one == status).count();
        assert_eq!((count(200), count(412)), (1, 7), "{statuses:?}");
    }
}

/// The condition of an action is on the resource that has it.
#[test]
fn an_action_is_conditional_on_its_resource() {
    let mut tasks = 0;
    for known in KNOWN.iter().filter(|known| known.body.starts_with('{')) {
        let box_ = Populated::new();
        let all = endpoints(&box_);
        let (path, mut headers, body) = known.request(&all, &box_.revision());
        let Some((resource, _)) = path.split_once("/Actions/") else { continue };
        let seen = tag(&box_, resource);
        headers.push(("if-match", b"\"outdated\""));
        let before = box_.now();
        assert_eq!(box_.admin(known.method, &path, &body, &headers).status, 412, "{path}");
        assert_eq!(before, box_.now());
        headers.pop();
        headers.push(("if-match", seen.as_bytes()));
        let answer = box_.admin(known.method, &path, &body, &headers);
        assert!((200..300).contains(&answer.status), "{path}: {}", answer.body);
        if answer.status == 202 {
            // The resource still says the same: its task has only begun.
            let again = box_.admin(known.method, &path, &body, &headers);
            assert_eq!(again.status, 412, "{path}: a second task with the same tag: {}", again.body);
            tasks += 1;
        }
    }
    assert!(tasks > 3, "{tasks}");
}

/// Requests that have nothing to do with each other are carried out one after the other.
// @test data.parallel-edits
#[test]
fn of_many_requests_at_once_each_is_carried_out() {
    let box_ = Populated::new();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let add = |number: usize| {
            let endpoint = json!({
                "Identifiers": [{
                    "DurableName": format!("nqn.2014-08.org.example:many{number}"), "DurableNameFormat": "NQN",
                }],
                "ConnectedEntities": [{ "EntityRole": "Initiator" }]
            });
            let box_ = &box_;
            scope.spawn(move || {
                let endpoints = "/redfish/v1/Fabrics/NVMeoF/Endpoints";
                box_.admin("POST", endpoints, endpoint.to_string().as_bytes(), &[]).status
            })
        };
        let all: Vec<_> = (0..30).map(add).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(statuses, [201; 30]);
}

#[test]
fn a_plan_that_is_outdated_is_not_applied() {
    let box_ = Populated::new();
    let actions = "/redfish/v1/Managers/ebof/Oem/Ebof/Configuration/Actions";
    let ask = |action: &str, body: &Value| {
        box_.admin("POST", &format!("{actions}/EbofConfiguration.{action}"), body.to_string().as_bytes(), &[])
    };
    let host = |name: &str| format!("[[hosts]]\nnqn = \"nqn.2014-08.org.example:{name}\"\n");
    let planned = ask("Plan", &json!({ "TOML": host("a") }));
    assert_eq!(planned.status, 200, "{}", planned.body);
    let revision = &planned.body["Revision"];
    // Meanwhile somebody else allows a host.
    let other = json!({
        "Identifiers": [{ "DurableName": "nqn.2014-08.org.example:dave", "DurableNameFormat": "NQN" }],
        "ConnectedEntities": [{ "EntityRole": "Initiator" }]
    });
    let allowed = box_.admin("POST", "/redfish/v1/Fabrics/NVMeoF/Endpoints", other.to_string().as_bytes(), &[]);
    assert_eq!(allowed.status, 201, "{}", allowed.body);
    let before = box_.now();
    let outdated = ask("Apply", &json!({ "TOML": host("a"), "Revision": revision }));
    assert_eq!((outdated.status, outdated.messages()[0].0.as_str()), (409, "ChangeOutdated"), "{}", outdated.body);
    assert_eq!(before, box_.now());
    let revision = &ask("Plan", &json!({ "TOML": host("a") })).body["Revision"];
    assert_eq!(ask("Apply", &json!({ "TOML": host("a"), "Revision": revision })).status, 200);
}
