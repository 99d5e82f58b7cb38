//! The whole tree: every link leads somewhere, and what is there is what it says it is.

use std::collections::{BTreeMap, BTreeSet};

use ebof_redfish::Place;
use serde_json::Value;

use crate::fixture::Fixture;

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
