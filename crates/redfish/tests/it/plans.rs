//! Plans of requests: whatever changes the box or its configuration can be planned, and what cannot
//! says so.

use ebof_access::Role;
use serde_json::{Value, json};

use crate::fixture::{ALICE, Answer, BOB, Fixture, PLAIN};

const ROOT: &str = "/redfish/v1";
const EDIT: &str = "/Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Edit";

fn link(path: &str) -> Value {
    json!({ "@odata.id": format!("{ROOT}{path}") })
}

fn ask(fixture: &Fixture, role: Role, method: &str, target: &str, body: &Value) -> Answer {
    let ask = json!({ "Method": method, "Target": format!("{ROOT}{target}"), "Body": body });
    fixture.ask_as(role, "POST", &format!("{ROOT}/Managers/ebof/Actions/Oem/EbofManager.PlanChanges"), &ask)
}

fn plan(fixture: &Fixture, method: &str, target: &str, body: &Value) -> Value {
    let answer = ask(fixture, Role::Administrator, method, target, body);
    assert_eq!(answer.status, 200, "{method} {target}: {}", answer.body);
    answer.body
}

/// Every request that changes the box, or the configuration.
fn changes() -> Vec<(&'static str, String, Value)> {
    let plain = "/Storage/nqn.2014-08.org.example~plain/Volumes";
    let post = |target: &str, body: Value| ("POST", target.to_owned(), body);
    let patch = |target: &str, body: Value| ("PATCH", target.to_owned(), body);
    let delete = |target: &str| ("DELETE", target.to_owned(), json!({}));
    let both = [link("/Fabrics/NVMeoF/Endpoints/d0-pf"), link("/Fabrics/NVMeoF/Endpoints/d1-pf")];
    let connection = "/Fabrics/NVMeoF/Connections/d0,nqn.2014-08.org.example~alice";
    let host = "nqn.2014-08.org.example:carol";
    vec![
        post("/Storage/d0/Volumes", json!({ "CapacityBytes": 1 << 20 })),
        patch("/Storage/d0/Volumes/ns1", json!({ "Oem": { "Ebof": { "WriteProtected": true } } })),
        delete("/Storage/d0/Volumes/ns2"),
        post(
            "/Storage/d0/Controllers/vf1/Actions/StorageController.AttachNamespaces",
            json!({ "Namespaces": [link("/Storage/d0/Volumes/ns1")] }),
        ),
        patch("/Storage/d0/Controllers/vf1", json!({ "Oem": { "Ebof": { "Weight": 3 } } })),
        post(plain, json!({ "Oem": { "Ebof": { "Backing": "mem:2Mi" } } })),
        delete(&format!("{plain}/ns1")),
        patch(
            "/Fabrics/PCIe/Zones/direct2",
            json!({ "Links": { "Endpoints": [link("/Fabrics/PCIe/Endpoints/d0-vf1")] } }),
        ),
        post(
            "/Fabrics/NVMeoF/Endpoints",
            json!({ "ConnectedEntities": [{ "EntityRole": "Initiator" }],
                    "Identifiers": [{ "DurableNameFormat": "NQN", "DurableName": host }] }),
        ),
        delete(connection),
        post(
            "/Fabrics/NVMeoF/Connections",
            json!({ "Links": { "InitiatorEndpoints": [link("/Fabrics/NVMeoF/Endpoints/host~nqn.2014-08.org.example~bob")],
                               "TargetEndpoints": both[..1] } }),
        ),
        post("/Chassis/enclosure/Actions/Oem/EbofChassis.AddDrive", json!({ "DriveName": "d9", "Backing": "mem:1Gi" })),
        post("/Chassis/enclosure/Drives/d4/Actions/Oem/EbofDrive.Remove", json!({})),
        post("/Storage/d0/Actions/Oem/EbofStorage.ResetDrive", json!({})),
        post(
            "/KeyService/NVMeoFSecrets",
            json!({ "KeyString": "DHHC-1:00:marked:", "KeyType": "NVMeoF", "NVMeoF": { "NQN": ALICE } }),
        ),
        delete("/KeyService/NVMeoFSecrets/k3"),
        patch(
            "/KeyService/NVMeoFKeyPolicies/nqn.2014-08.org.example~plain",
            json!({ "NVMeoF": { "SecurityProtocolAllowList": ["TLS_PSK"] } }),
        ),
        post(EDIT, json!({ "Edits": [{ "edit": "disable", "object": { "port": "fabric0" } }] })),
    ]
}

#[test]
fn whatever_changes_the_box_or_its_configuration_can_be_planned() {
    let fixture = Fixture::new();
    let before = fixture.fake.state().config.clone();
    for (method, target, body) in changes() {
        let planned = plan(&fixture, method, &target, &body);
        let refused = planned["Refused"].as_array().unwrap();
        assert!(refused.is_empty(), "{method} {target}: {planned}");
        assert!(!planned["Changes"].as_array().unwrap().is_empty(), "{method} {target}: {planned}");
    }
    assert!(fixture.fake.state().begun.is_empty());
    assert_eq!(fixture.fake.state().config, before, "nothing is changed");
}

#[test]
fn applying_a_configuration_is_planned_from_its_revision() {
    let fixture = Fixture::new();
    let resource = fixture.get(&format!("{ROOT}/Managers/ebof/Oem/Ebof/Configuration"));
    let target = "/Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Apply";
    let toml = fixture.fake.state().config.to_toml().unwrap();
    let mut config = fixture.fake.state().config.clone();
    config.subsystems.iter_mut().for_each(|subsystem| subsystem.allowed_hosts.clear());
    let without = config.to_toml().unwrap();
    let body = |toml: &str, revision: &Value| json!({ "TOML": toml, "Revision": revision });
    let planned = plan(&fixture, "POST", target, &body(&without, &resource["Revision"]));
    assert!(!planned["Changes"].as_array().unwrap().is_empty() && planned["Refused"] == json!([]), "{planned}");
    let hosts: Vec<&Value> = planned["Disturbed"].as_array().unwrap().iter().map(|one| &one["HostNQN"]).collect();
    assert!(hosts.contains(&&json!(ALICE)), "{planned}");
    let same = plan(&fixture, "POST", target, &body(&toml, &resource["Revision"]));
    assert_eq!((&same["Changes"], &same["Refused"]), (&json!([]), &json!([])));
    for (body, id) in [
        (body(&toml, &json!("another")), "Ebof.1.0.ChangeOutdated"),
        (body("[targe]", &resource["Revision"]), "Ebof.1.0.ConfigurationRefused"),
        (json!({ "TOML": toml }), "Base.1.18.ActionParameterMissing"),
    ] {
        let planned = plan(&fixture, "POST", target, &body);
        assert_eq!((&planned["Refused"][0]["MessageId"], &planned["Changes"]), (&json!(id), &json!([])), "{planned}");
    }
}

#[test]
fn what_has_nothing_to_plan_says_what_has() {
    let fixture = Fixture::new();
    for (method, target) in [
        ("POST", "/AccountService/Accounts"),
        ("PATCH", "/AccountService"),
        ("POST", "/SessionService/Sessions"),
        ("POST", "/EventService/Subscriptions"),
        ("PATCH", "/EventService"),
        ("POST", "/EventService/Actions/EventService.SubmitTestEvent"),
        ("POST", "/CertificateService/Actions/CertificateService.GenerateCSR"),
        ("POST", "/UpdateService/upload"),
        ("POST", "/Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Plan"),
        ("POST", "/Managers/ebof/Actions/Oem/EbofManager.PlanChanges"),
    ] {
        let answer = ask(&fixture, Role::Administrator, method, target, &json!({}));
        let messages = answer.messages();
        let (id, about, _) = &messages[0];
        assert_eq!(
            (answer.status, id.as_str(), about.as_str()),
            (501, "NothingToPlan", "#/Target"),
            "{method} {target}"
        );
        let message = &answer.body["error"]["@Message.ExtendedInfo"][0];
        assert!(message["Message"].as_str().unwrap().contains(target), "{message}");
        assert!(message["Resolution"].as_str().unwrap().contains("volumes"), "{message}");
    }
}

#[test]
fn a_plan_tells_who_may_not_make_the_request_only_that() {
    let fixture = Fixture::new();
    let (mut forbidden, mut permitted) = (Vec::new(), 0);
    for (method, target, body) in changes() {
        let planned = ask(&fixture, Role::Operator, method, &target, &body);
        assert_eq!(planned.status, 200);
        let is_forbidden = planned.body["Refused"][0]["MessageId"] == "Base.1.18.InsufficientPrivilege";
        if is_forbidden {
            assert_eq!(planned.body["Changes"], json!([]), "{target}");
            let uri = format!("{ROOT}{target}");
            assert_eq!(fixture.ask_as(Role::Operator, method, &uri, &body).status, 403, "{target}");
            forbidden.push(target);
        } else {
            permitted += 1;
        }
    }
    let plain = format!("/Storage/{}/Volumes", PLAIN.replace(':', "~"));
    let add = "/Chassis/enclosure/Actions/Oem/EbofChassis.AddDrive".to_owned();
    let keys = "/KeyService/NVMeoFSecrets".to_owned();
    let policy = format!("/KeyService/NVMeoFKeyPolicies/{}", PLAIN.replace(':', "~"));
    assert_eq!(forbidden, [plain, add, keys.clone(), keys + "/k3", policy, EDIT.to_owned()]);
    assert!(permitted > 8, "{permitted}");
    let apply = "/Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Apply";
    let planned = ask(&fixture, Role::Operator, "POST", apply, &json!({ "TOML": "x", "Revision": BOB })).body;
    assert_eq!(planned["Refused"][0]["MessageId"], "Base.1.18.InsufficientPrivilege", "{planned}");
}

#[test]
fn ports_are_added_disabled_enabled_and_removed_by_edits() {
    let fixture = Fixture::new();
    let uri = format!("{ROOT}{EDIT}");
    let edit = |edit: Value| fixture.ask("POST", &uri, &json!({ "Edits": [edit] }));
    let port = || {
        let resource = fixture.get(&format!("{ROOT}/Managers/ebof/Oem/Ebof/Configuration"));
        let ports = resource["Ports"].as_array().unwrap().clone();
        ports.into_iter().find(|port| port["Name"] == "fabric7")
    };
    let object = json!({ "port": "fabric7" });
    let keys = json!({ "name": "fabric7", "listen": "tcp://192.0.2.7:4420" });
    let added = edit(json!({ "edit": "add-port", "keys": keys, "subsystems": [] }));
    assert_eq!(added.status, 204, "{}", added.body);
    assert_eq!(
        port().unwrap(),
        json!({ "Name": "fabric7", "Listen": "tcp://192.0.2.7:4420", "Enabled": true, "AnaGroups": [] })
    );
    for (what, enabled) in [("disable", false), ("enable", true)] {
        assert_eq!(edit(json!({ "edit": what, "object": object })).status, 204);
        assert_eq!(port().unwrap()["Enabled"], enabled);
    }
    assert_eq!(edit(json!({ "edit": "remove", "object": object })).status, 204);
    assert_eq!(port(), None);
    for (wrong, id) in [
        (json!({ "edit": "remove", "object": object }), "ObjectNotFound"),
        (json!({ "edit": "paint", "object": object }), "ConfigurationRefused"),
    ] {
        let answer = edit(wrong.clone());
        assert_eq!((answer.status, answer.messages()[0].0.as_str()), (400, id), "{wrong}: {}", answer.body);
    }
}

#[test]
fn closing_a_port_names_its_hosts_and_is_bound_to_them() {
    let fixture = Fixture::new();
    let body = json!({ "Edits": [{ "edit": "disable", "object": { "port": "fabric0" } }] });
    let planned = plan(&fixture, "POST", EDIT, &body);
    let hosts: Vec<&Value> = planned["Disturbed"].as_array().unwrap().iter().map(|one| &one["HostNQN"]).collect();
    assert!(hosts.contains(&&json!(ALICE)), "{planned}");
    let uri = format!("{ROOT}{EDIT}");
    for (revision, status) in [("another", 412), (planned["Revision"].as_str().unwrap(), 204)] {
        let answer = fixture.ask_planned(Role::Administrator, "POST", &uri, &body, Some(revision));
        assert_eq!(answer.status, status, "{}", answer.body);
    }
}
