//! The whole tree: every link leads somewhere, and what is there is what it says it is.

use std::collections::{BTreeMap, BTreeSet};

use ebof_manage::api::{MissingKind, MissingObject};
use ebof_manage::config::AnaState;
use ebof_redfish::Place;
use serde_json::{Value, json};

use crate::fixture::{Fixture, PLAIN};

/// Every address that a resource refers to.
pub(crate) fn links(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(list) => list.iter().for_each(|one| links(one, found)),
        Value::Object(object) => {
            let address = object.get("@odata.id").or_else(|| object.get("DataSourceUri")).and_then(Value::as_str);
            found.extend(address.map(str::to_owned));
            object.values().for_each(|one| links(one, found));
        }
        _ => {}
    }
}

/// The targets of a resource's actions.
fn actions(value: &Value, found: &mut Vec<String>) {
    if let Value::Object(object) = value {
        found.extend(object.get("target").and_then(Value::as_str).map(str::to_owned));
        object.values().for_each(|one| actions(one, found));
    }
}

/// All resources, by address.
pub(crate) fn walk(fixture: &Fixture) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let mut waiting = vec!["/redfish/v1/".to_owned()];
    while let Some(address) = waiting.pop() {
        // Areas that others own have tests of their own.
        if all.contains_key(&address) {
            continue;
        }
        let resource = fixture.get(&address);
        let mut found = BTreeSet::new();
        links(&resource, &mut found);
        all.insert(address, resource);
        waiting.extend(found);
    }
    all
}

#[test]
fn every_link_leads_to_a_resource_that_has_its_address() {
    let fixture = Fixture::new();
    let all = walk(&fixture);
    let of_box = |path: &str| all.keys().filter(|address| address.contains(path)).count();
    assert!(of_box("/Chassis/") > 30 && of_box("/Storage/") > 30 && of_box("/Fabrics/") > 30, "{}", all.len());
    for (address, resource) in &all {
        assert_eq!(resource["@odata.id"], **address);
        assert_eq!(Place::parse(address).unwrap().to_string(), *address);
        assert!(resource["@odata.type"].as_str().is_some_and(|kind| kind.starts_with('#')), "{address}");
        assert!(resource["Name"].as_str().is_some_and(|name| !name.is_empty()), "{address}");
        if let Some(members) = resource["Members"].as_array() {
            let unique: BTreeSet<String> = members.iter().map(ToString::to_string).collect();
            assert_eq!(unique.len(), members.len(), "{address}");
            assert_eq!(resource["Members@odata.count"], members.len(), "{address}");
        } else {
            assert!(resource["Id"].as_str().is_some_and(|id| !id.is_empty()), "{address}");
        }
        let mut targets = Vec::new();
        actions(&resource["Actions"], &mut targets);
        for target in targets {
            assert!(Place::parse(&target).is_some_and(|place| place.to_string() == target), "{target}");
            assert_eq!(fixture.ask("GET", &target, &Value::Null).status, 405, "{target} is an action");
        }
    }
}

#[test]
fn what_does_not_exist_is_not_found() {
    let fixture = Fixture::new();
    let all = walk(&fixture);
    for address in all.keys().filter(|address| address.as_str() != "/redfish/v1/") {
        let (parent, _) = address.rsplit_once('/').unwrap();
        for name in ["nothing", "d9", "ns999", "vf99", "-", "%2e%2e", "host-", "pf"] {
            let other = format!("{parent}/{name}");
            if !all.contains_key(&other) {
                let answer = fixture.ask("GET", &other, &Value::Null);
                assert!(matches!(answer.status, 404 | 405), "{other}: {}", answer.status);
            }
        }
    }
}

// @test redfish.missing-drive
#[test]
fn a_drive_that_is_missing_is_shown_with_the_reason() {
    let fixture = Fixture::new();
    let missing = |kind, name: &str| MissingObject {
        kind,
        name: name.to_owned(),
        reason: "/dev/x is not there".to_owned(),
        since_unix_ms: 1_700_000_000_000,
    };
    {
        let state = &mut *fixture.fake.state();
        state.inventory.drives.retain(|drive| drive.name != "d4");
        state.missing = vec![
            missing(MissingKind::Drive, "d4"),
            missing(MissingKind::Namespace, &format!("{PLAIN}/7")),
            missing(MissingKind::Drive, "d0"),
        ];
    }
    let all = walk(&fixture);
    let away = &all["/redfish/v1/Storage/d4"];
    assert_eq!(
        (&away["Status"]["State"], &away["Status"]["Health"]),
        (&json!("UnavailableOffline"), &json!("Critical"))
    );
    let told = away["Status"]["Conditions"][0]["Message"].as_str().unwrap();
    assert_eq!(told, "drive d4 is missing: /dev/x is not there");
    assert_eq!(away["Identifiers"][0]["DurableName"], "nqn.2014-08.org.example:d4");
    let drive = &all["/redfish/v1/Chassis/enclosure/Drives/d4"];
    assert_eq!((&drive["Status"], &drive["Links"]["Storage"]["@odata.id"]), (&away["Status"], &away["@odata.id"]));
    assert_eq!(all["/redfish/v1/Chassis/enclosure"]["Status"]["Health"], "Critical");
    assert_eq!(fixture.ask("GET", "/redfish/v1/Storage/d4/Volumes", &Value::Null).status, 404);
    // A part of a subsystem is missing, and the rest is there; what has come in is not missing.
    let plain = &all["/redfish/v1/Storage/nqn.2014-08.org.example~plain"]["Status"];
    assert_eq!((&plain["State"], &plain["Health"]), (&json!("Enabled"), &json!("Critical")));
    assert_eq!(all["/redfish/v1/Storage/d0"]["Status"]["State"], "Enabled");
}

// @test redfish.identifiers
#[test]
fn an_identifier_is_that_of_one_name_whatever_else_there_is() {
    let fixture = Fixture::new();
    let nqns = ["a/b", "a-b", "a:b", "a b", "a//b"].map(|name| format!("nqn.2014-08.org.example:{name}"));
    let model = fixture.fake.state().inventory.subsystems[0].clone();
    let show = |shown: &[&String]| {
        let subsystems = shown.iter().map(|nqn| ebof_manage::enclosure::SubsystemObject {
            nqn: (*nqn).clone(),
            hosts: Vec::new(),
            ..model.clone()
        });
        fixture.fake.state().inventory.subsystems = subsystems.collect();
    };
    let places = || -> BTreeMap<String, String> {
        let all = fixture.get("/redfish/v1/Storage?$expand=.");
        let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
        all["Members"].as_array().unwrap().iter().map(|one| (text(one, "Name"), text(one, "@odata.id"))).collect()
    };
    let all: Vec<&String> = nqns.iter().collect();
    show(&all);
    let before = places();
    for gone in &nqns {
        show(&all.iter().copied().filter(|nqn| *nqn != gone).collect::<Vec<_>>());
        let now = places();
        assert!(!now.contains_key(gone));
        assert!(now.iter().all(|(name, place)| before[name] == *place), "{gone} is gone: {now:?}");
        assert_eq!(fixture.ask("GET", &before[gone], &Value::Null).status, 404, "nobody else is there");
    }
    // Clients may escape more than they need to.
    show(&all);
    let escaped = before[&nqns[0]].replace('!', "%21").replace('~', "%7E");
    assert_eq!(fixture.get(&escaped)["Name"], nqns[0].as_str());
    for wrong in ["/redfish/v1/Storage/d0%2FVolumes", "/redfish/v1/Storage/%FF", "/redfish/v1/Storage/d0%00"] {
        assert_eq!(fixture.ask("GET", wrong, &Value::Null).status, 404, "{wrong}");
    }
}

/// The best state that a host has of a volume, whatever its other paths are in.
#[test]
fn a_connection_tells_the_best_state_of_its_paths() {
    let fixture = Fixture::new();
    let connections = fixture.get("/redfish/v1/Fabrics/NVMeoF/Connections");
    let all = connections["Members"].as_array().unwrap().iter().map(|member| member["@odata.id"].as_str().unwrap());
    let plain = all.map(|address| fixture.get(address)).find(|one| one["Name"].as_str().unwrap().contains(PLAIN));
    let address = plain.unwrap()["@odata.id"].as_str().unwrap().to_owned();
    let port = |state: &mut crate::fixture::State, name: &str, group, to| {
        let port = state.config.ports.iter_mut().find(|port| port.name == name).unwrap();
        port.ana.set(group, to);
    };
    for (first, second, word) in [
        (AnaState::OPTIMIZED, AnaState::INACCESSIBLE, "Optimized"),
        (AnaState::NON_OPTIMIZED, AnaState::INACCESSIBLE, "NonOptimized"),
        (AnaState::CHANGE, AnaState::INACCESSIBLE, "Transitioning"),
        (AnaState::PERSISTENT_LOSS, AnaState::INACCESSIBLE, "Unavailable"),
        (AnaState::PERSISTENT_LOSS, AnaState::OPTIMIZED, "Optimized"),
    ] {
        {
            let mut state = fixture.fake.state();
            let plain = state.inventory.subsystems.iter_mut().find(|one| one.nqn == PLAIN).unwrap();
            plain.ports = vec!["fabric0".to_owned(), "tcp://192.0.2.2:4420".to_owned()];
            port(&mut state, "fabric0", 1, first);
            port(&mut state, "tcp://192.0.2.2:4420", 1, second);
            // Of another group, which is nothing to its namespace.
            port(&mut state, "fabric0", 2, AnaState::INACCESSIBLE);
        }
        let connection = fixture.get(&address);
        assert_eq!(connection["VolumeInfo"][0]["AccessState"], word);
    }
}
