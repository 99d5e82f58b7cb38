//! Keys of hosts: what is shown of them, how they are added and removed, and what subsystems
//! demand.

use ebof_access::Role;
use ebof_manage::api::KeyKind;
use ebof_manage::config::Security;
use serde_json::{Value, json};

use crate::fixture::{ALICE, BOB, Fixture, PLAIN};

const SERVICE: &str = "/redfish/v1/KeyService";
const KEYS: &str = "/redfish/v1/KeyService/NVMeoFSecrets";
const POLICIES: &str = "/redfish/v1/KeyService/NVMeoFKeyPolicies";
/// What is in the text of each key here.
const MARKED: &str = "marked";

fn secret() -> String {
    format!("DHHC-1:01:{MARKED}:")
}

/// A key of alice, with more.
fn body(text: &str, more: &Value) -> Value {
    let mut own = json!({ "NQN": ALICE });
    own.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({ "KeyString": text, "KeyType": "NVMeoF", "NVMeoF": own })
}

// @test redfish.keys
#[test]
fn a_key_is_added_and_removed_and_never_shown() {
    let fixture = Fixture::new();
    let added = fixture.ask("POST", KEYS, &body(&secret(), &json!({})));
    assert_eq!((added.status, added.header("location")), (201, format!("{KEYS}/k4").as_str()), "{}", added.body);
    assert!(!added.body.to_string().contains(MARKED));
    assert_eq!(added.body["KeyString"], Value::Null);
    assert_eq!(added.body["NVMeoF"], json!({ "NQN": ALICE, "SecurityProtocolType": "DHHC" }));
    assert_eq!(added.body["Oem"]["Ebof"]["Since"], "2023-11-14T22:13:21.000Z");
    for path in [SERVICE, KEYS, &format!("{KEYS}/k4"), "/redfish/v1/?$expand=*($levels=3)"] {
        let shown = fixture.get(path);
        assert!(!shown.to_string().contains(MARKED), "{path}");
    }
    // Nobody changes one: another one is added.
    assert_eq!(fixture.ask("PATCH", &format!("{KEYS}/k4"), &json!({ "UserDescription": "x" })).status, 405);
    assert_eq!(fixture.ask("DELETE", &format!("{KEYS}/k4"), &Value::Null).status, 204);
    for method in ["GET", "DELETE"] {
        assert_eq!(fixture.ask(method, &format!("{KEYS}/k4"), &Value::Null).status, 404, "{method}");
    }
}

#[test]
fn what_a_key_is_for_follows_from_its_text_and_what_it_is_paired_with() {
    let fixture = Fixture::new();
    let kinds = || fixture.fake.state().keys.iter().map(|key| key.kind).collect::<Vec<_>>();
    let psk = format!("NVMeTLSkey-1:02:{MARKED}:");
    for (text, more, kind) in [
        (secret(), json!({ "SecurityProtocolType": "DHHC" }), KeyKind::Dhchap),
        (secret(), json!({ "HostKeyId": "k1" }), KeyKind::DhchapCtrl),
        (secret(), json!({ "HostKeyId": "" }), KeyKind::DhchapCtrl),
        (psk, json!({ "SecurityProtocolType": "TLS_PSK", "SecureHashAllowList": ["SHA384"] }), KeyKind::Tls),
    ] {
        let added = fixture.ask("POST", &format!("{KEYS}/Members"), &body(&text, &more));
        assert_eq!((added.status, kinds().last()), (201, Some(&kind)), "{more}: {}", added.body);
    }
    let of = |id: &str| fixture.get(&format!("{KEYS}/{id}"))["NVMeoF"].clone();
    // That of a host's own keys which it has latest.
    assert_eq!(of("k2")["HostKeyId"], "k4");
    assert_eq!(of("k3")["SecureHashAllowList"], json!(["SHA384"]));
    let before = fixture.fake.state().keys.len();
    let replaced = json!({ "KeyString": secret(), "KeyType": "NVMeoF", "NVMeoF": { "NQN": ALICE, "HostKeyId": "k1" },
                           "Oem": { "Ebof": { "Replace": true } } });
    assert_eq!(fixture.ask("POST", KEYS, &replaced).status, 201);
    assert_eq!(fixture.fake.state().keys.len(), before - 2, "three of that kind became one");
}

#[test]
fn what_is_no_key_is_refused_without_repeating_it() {
    let fixture = Fixture::new();
    let psk = format!("NVMeTLSkey-1:02:{MARKED}:");
    let name = |name: &str, value: Value| {
        let mut all = body(&secret(), &json!({}));
        all[name] = value;
        all
    };
    for (wrong, id, about) in [
        (json!({}), "PropertyMissing", "#/KeyString"),
        (name("KeyString", json!([MARKED])), "PropertyValueError", "#/KeyString"),
        (name("KeyString", json!(MARKED)), "PropertyValueError", "#/KeyString"),
        (name("KeyString", json!(format!("DHHC-1:{MARKED}"))), "ChangeRefused", ""),
        (name("KeyType", json!("SSH")), "PropertyValueNotInList", "#/KeyType"),
        (name("NVMeoF", json!({})), "PropertyMissing", "#/NVMeoF/NQN"),
        (name("NVMeoF", json!({ "NQN": "alice" })), "ChangeRefused", ""),
        (name("UserDescription", json!("x")), "PropertyUnknown", "#/UserDescription"),
        (body(&psk, &json!({ "SecurityProtocolType": "DHHC" })), "PropertyValueError", "#/NVMeoF/SecurityProtocolType"),
        (
            body(&psk, &json!({ "SecureHashAllowList": ["SHA256"] })),
            "PropertyValueError",
            "#/NVMeoF/SecureHashAllowList",
        ),
        (
            body(&secret(), &json!({ "SecureHashAllowList": ["SHA256"] })),
            "PropertyValueError",
            "#/NVMeoF/SecureHashAllowList",
        ),
        (body(&psk, &json!({ "HostKeyId": "" })), "PropertyValueError", "#/NVMeoF/HostKeyId"),
        (body(&secret(), &json!({ "HostKeyId": "k3" })), "PropertyValueError", "#/NVMeoF/HostKeyId"),
        (
            body(&secret(), &json!({ "OEMSecurityProtocolType": "x" })),
            "PropertyNotWritable",
            "#/NVMeoF/OEMSecurityProtocolType",
        ),
    ] {
        let refused = fixture.ask("POST", KEYS, &wrong);
        let messages = refused.messages();
        let told: Vec<(&str, &str)> = messages.iter().map(|(id, about, _)| (id.as_str(), about.as_str())).collect();
        assert!(refused.status == 400 && told.contains(&(id, about)), "{wrong}: {}", refused.body);
        assert!(!refused.body.to_string().contains(MARKED), "{}", refused.body);
    }
    assert_eq!(fixture.fake.state().keys.len(), 4);
}

// @test redfish.keys
#[test]
fn keys_of_the_configuration_are_told_and_are_no_members() {
    let fixture = Fixture::new();
    let service = fixture.get(SERVICE);
    let configured = &service["Oem"]["Ebof"]["ConfiguredKeys"];
    let expected = json!([{ "HostNQN": BOB, "Kind": "DHCHAP", "Place": "/etc/ebof/keys/bob", "Hash": null, "Bits": 384,
                            "ConnectedControllers": 1 }]);
    assert_eq!((configured, &service["Oem"]["Ebof"]["Durable"]), (&expected, &json!(true)));
    let members: Vec<String> = fixture.get(KEYS)["Members"].as_array().unwrap().iter().map(Value::to_string).collect();
    assert_eq!(members.len(), 3, "{members:?}");
}

// @test redfish.keys
#[test]
fn only_administrators_see_keys() {
    let fixture = Fixture::new();
    for role in [Role::Operator, Role::ReadOnly] {
        for path in
            [SERVICE, KEYS, &format!("{KEYS}/k1"), &format!("{KEYS}/k9"), POLICIES, &format!("{POLICIES}/default")]
        {
            assert_eq!(fixture.ask_as(role, "GET", path, &Value::Null).status, 403, "{role} {path}");
        }
        let root = fixture.ask_as(role, "GET", "/redfish/v1/?$expand=*($levels=3)", &Value::Null).body;
        assert_eq!(root["KeyService"], json!({ "@odata.id": SERVICE }), "expanding shows no more");
    }
}

#[test]
fn a_change_of_keys_is_planned_and_bound_to_its_plan() {
    let fixture = Fixture::new();
    let plan = |method: &str, target: &str, body: &Value| {
        let asked = json!({ "Method": method, "Target": target, "Body": body });
        let answer = fixture.ask("POST", "/redfish/v1/Managers/ebof/Actions/Oem/EbofManager.PlanChanges", &asked);
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(!answer.body.to_string().contains(MARKED), "{}", answer.body);
        answer.body
    };
    let added = plan("POST", KEYS, &body(&secret(), &json!({})));
    let expected = [format!("add key k4 (dhchap) of host {ALICE}"), "no subsystem admits this host".to_owned()];
    assert_eq!(added["Changes"], json!(expected));
    let removed = plan("DELETE", &format!("{KEYS}/k1"), &json!({}));
    assert_eq!(removed["Changes"], json!([format!("remove key k1 (dhchap) of host {ALICE}")]));
    assert_eq!(removed["Disturbed"][0]["HostNQN"], ALICE);
    let wrong = plan("POST", KEYS, &body("DHHC-1:00:x", &json!({})));
    assert_eq!(wrong["Refused"][0]["MessageId"], "Ebof.1.0.ChangeRefused");
    let revision = removed["Revision"].as_str();
    let remove = |plan| fixture.ask_planned(Role::Administrator, "DELETE", &format!("{KEYS}/k1"), &Value::Null, plan);
    let late = remove(Some("another"));
    assert_eq!((late.status, late.messages()[0].0.as_str()), (412, "ChangeOutdated"));
    assert_eq!(remove(revision).status, 204);
}

// @test redfish.keys
#[test]
fn policies_are_what_subsystems_demand() {
    let fixture = Fixture::new();
    let plain = format!("{POLICIES}/{}", PLAIN.replace(':', "~"));
    let all = fixture.get(POLICIES);
    assert_eq!(all["Members@odata.count"], 1 + fixture.fake.state().config.subsystems.len());
    let default = fixture.get(&format!("{POLICIES}/default"));
    assert_eq!((&default["IsDefault"], &default["Oem"]["Ebof"]["Security"]), (&json!(true), &json!("Anyone")));
    assert_eq!(default["NVMeoF"], json!({ "SecurityTransportAllowList": ["TLSv3"] }));
    let security = || {
        let config = fixture.fake.state().config.clone();
        config.subsystems.iter().find(|own| own.nqn.as_str() == PLAIN).unwrap().security
    };
    let list = |value: Value| json!({ "NVMeoF": { "SecurityProtocolAllowList": value } });
    let named = |name: &str| json!({ "Oem": { "Ebof": { "Security": name } } });
    for (change, expected) in [
        (list(json!(["DHHC"])), Security::Authenticated),
        (list(json!(["TLS_PSK", "DHHC"])), Security::AuthenticatedTls),
        (named("TLS"), Security::Tls),
        (list(Value::Null), Security::Anyone),
    ] {
        let answer = fixture.ask("PATCH", &plain, &change);
        assert_eq!((answer.status, security()), (200, expected), "{change}: {}", answer.body);
        let shown = answer.body["NVMeoF"]["SecurityProtocolAllowList"].clone();
        let expected: Vec<&str> = match expected {
            Security::Authenticated => vec!["DHHC"],
            Security::Tls => vec!["TLS_PSK"],
            Security::AuthenticatedTls => vec!["DHHC", "TLS_PSK"],
            Security::Anyone => Vec::new(),
        };
        assert_eq!(shown, if expected.is_empty() { Value::Null } else { json!(expected) });
    }
    let both = json!({ "NVMeoF": { "SecurityProtocolAllowList": ["DHHC"] }, "Oem": { "Ebof": { "Security": "TLS" } } });
    for (wrong, about) in [
        (list(json!([])), "#/NVMeoF/SecurityProtocolAllowList"),
        (list(json!(["OEM"])), "#/NVMeoF/SecurityProtocolAllowList"),
        (both, "#/NVMeoF/SecurityProtocolAllowList"),
        (json!({ "IsDefault": true }), "#/IsDefault"),
        (json!({ "NVMeoF": { "DHGroupAllowList": ["FFDHE2048"] } }), "#/NVMeoF/DHGroupAllowList"),
        (json!({}), ""),
    ] {
        let answer = fixture.ask("PATCH", &plain, &wrong);
        assert_eq!((answer.status, answer.messages()[0].1.as_str()), (400, about), "{wrong}: {}", answer.body);
    }
    assert_eq!(fixture.ask("PATCH", &format!("{POLICIES}/default"), &named("TLS")).status, 405);
    assert_eq!(fixture.ask("POST", POLICIES, &json!({})).status, 405);
    assert_eq!(fixture.ask("DELETE", &plain, &Value::Null).status, 405);
}
