//! The whole tree, walked: every reference leads somewhere, every type is listed, and every
//! property is what the CSDL says.

use std::collections::{BTreeMap, BTreeSet};

use ebof_access::Role;
use http::Method;
use serde_json::{Value, json};

use super::csdl::Csdl;
use super::{metadata, openapi};
use crate::fixture::Fixture;
use crate::managed::subscriptions::payload;
use crate::place::Place;
use crate::place::kinds::{KINDS, OWN, is_known, unversioned};
use crate::service::Service;
use crate::service::tests::{ask_of, caller, full_service};

/// A service that has something of everything besides drives, and one of a box of drives.
fn services() -> [Service; 2] {
    [full_service(), Fixture::new().service]
}

/// Every resource of both.
fn all() -> Vec<(String, Value)> {
    services().iter().flat_map(walked).collect()
}

/// Every resource that can be reached, by its address.
fn walked(service: &Service) -> BTreeMap<String, Value> {
    let reader = caller(Some(Role::Administrator));
    let mut found = BTreeMap::new();
    let mut left = vec!["/redfish/v1/".to_owned()];
    while let Some(uri) = left.pop() {
        if found.contains_key(&uri) {
            continue;
        }
        let (status, _, body) = ask_of(service, "GET", &uri, &[], Value::Null, &reader);
        assert_eq!(status, 200, "{uri} is referred to: {body}");
        references(&body, &mut left);
        found.insert(uri, body);
    }
    found
}

/// What a resource refers to, registries and logs of its own included.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, inner) in object {
                match inner.as_str().filter(|_| name == "@odata.id" || name == "Uri") {
                    Some(uri) => found.extend(Some(uri).filter(|uri| uri.starts_with('/')).map(str::to_owned)),
                    None => references(inner, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

fn kinds(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(name, inner)| match inner.as_str() {
            Some(kind) if name == "@odata.type" => {
                found.insert(kind.to_owned());
            }
            _ => kinds(inner, found),
        }),
        Value::Array(list) => list.iter().for_each(|inner| kinds(inner, found)),
        _ => {}
    }
}

// @test redfish.references
#[test]
fn every_reference_leads_to_a_resource_of_a_listed_type() {
    let tree = all();
    let mut used = BTreeSet::new();
    tree.iter().for_each(|(_, resource)| kinds(resource, &mut used));
    kinds(&payload("1", "", &[]), &mut used);
    let unlisted: Vec<_> = used.iter().filter(|kind| !is_known(kind)).collect();
    assert!(unlisted.is_empty(), "not in kinds.rs: {unlisted:?}");
    let used: BTreeSet<&str> =
        used.iter().map(|kind| kind.trim_start_matches('#').rsplit_once('.').unwrap().0).collect();
    let unused: Vec<_> = KINDS.iter().filter(|kind| !used.contains(*kind)).collect();
    assert!(unused.is_empty(), "nothing is of these types, or nothing leads there: {unused:?}");
    // A schema of ebof's own has a type, or only an action.
    let text: String = tree.iter().map(|(_, resource)| resource.to_string()).collect();
    let own = OWN.iter().map(|(file, _)| file.trim_end_matches("_v1.xml"));
    let unused: Vec<_> = own.filter(|own| !text.contains(&format!("\"#{own}."))).collect();
    assert!(unused.is_empty(), "nothing is of a type of these schemas: {unused:?}");
    for (uri, resource) in &tree {
        assert!(!resource.to_string().contains("null,\"@odata"), "{uri}");
        if let Some(own) = resource.get("@odata.id") {
            assert_eq!(own, uri, "a resource says where it is");
        }
    }
}

// @test redfish.references
#[test]
fn every_reference_is_in_the_table_with_its_type() {
    for (uri, resource) in all() {
        let place = Place::parse(&uri).unwrap_or_else(|| panic!("{uri} is no address"));
        assert_eq!(place.to_string(), uri);
        let kind = resource["@odata.type"].as_str().map_or("", |kind| unversioned(kind.trim_start_matches('#')));
        assert_eq!(place.kind(), kind, "{uri}");
    }
    let text = openapi();
    for (pattern, _) in Place::patterns() {
        assert!(text.contains(&format!("  /redfish/v1/{pattern}:\n")), "{pattern}");
    }
}

/// Addresses that nothing leads to.
const UNLINKED: [&str; 8] = [
    "/redfish/v1/odata",
    "/redfish/v1/$metadata",
    "/redfish/v1/openapi.yaml",
    "/redfish/v1/EventService/SSE",
    "/redfish/v1/UpdateService/upload",
    "/redfish/v1/TaskService/TaskMonitors/1",
    "/redfish/v1/schemas/EbofConfiguration_v1.xml",
    "/redfish/v1/Managers/ebof/Actions/Oem/EbofManager.PlanChanges",
];

/// The targets of actions.
fn actions(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get("target").and_then(Value::as_str).map(str::to_owned));
            object.values().for_each(|inner| actions(inner, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| actions(inner, found)),
        _ => {}
    }
}

/// Every row is an address of something, and each of its methods is answered by who knows it.
// @test redfish.addresses
#[test]
fn every_row_has_a_handler() {
    let services = services();
    let addresses = services.each_ref().map(|service| {
        let tree = walked(service);
        let mut all = BTreeSet::from(UNLINKED.map(str::to_owned));
        tree.values().for_each(|resource| actions(resource, &mut all));
        all.extend(tree.into_keys());
        all
    });
    let fits = |uri: &str, pattern: &str| {
        let (own, wanted) = (uri.split('/').skip(3), pattern.split('/'));
        own.clone().count() == wanted.clone().count()
            && own.zip(wanted).all(|(own, wanted)| wanted.starts_with('{') || own == wanted)
    };
    let mut by = caller(Some(Role::Administrator));
    // As the box of the integration tests wants it.
    "x".clone_into(&mut by.user.as_mut().unwrap().name);
    // What is deleted is of no use to the others.
    for method in [Method::GET, Method::PATCH, Method::POST, Method::DELETE] {
        for (pattern, _) in Place::patterns().into_iter().filter(|(_, place)| place.methods().contains(&method)) {
            if pattern.ends_with("/SSE") {
                continue;
            }
            let has_method = |uri: &&String| Place::parse(uri).unwrap().methods().contains(&method);
            let found = services.iter().zip(&addresses).find_map(|(service, addresses)| {
                Some((service, addresses.iter().filter(|uri| fits(uri, &pattern)).find(has_method)?))
            });
            let (service, uri) = found.unwrap_or_else(|| panic!("nothing is at {pattern} for {method}"));
            let (status, _, body) = ask_of(service, method.as_str(), uri, &[], Value::Null, &by);
            assert!(!matches!(status, 404 | 405 | 501), "{method} {uri}: {status} {body}");
        }
    }
}

#[test]
fn the_metadata_has_each_type_once() {
    let text = metadata();
    let document = roxmltree::Document::parse(&text).unwrap();
    let includes: Vec<&str> = document
        .descendants()
        .filter(|node| node.has_tag_name(("http://docs.oasis-open.org/odata/ns/edmx", "Include")))
        .map(|node| node.attribute("Namespace").unwrap())
        .collect();
    let distinct: BTreeSet<&str> = includes.iter().copied().collect();
    assert_eq!(includes.len(), distinct.len());
    assert!(KINDS.iter().all(|kind| distinct.contains(kind)) && distinct.contains("EbofTask.v1_0_0"));
    for (file, _) in OWN {
        let reader = caller(None);
        let uri = format!("/redfish/v1/schemas/{file}");
        assert_eq!(ask_of(&full_service(), "GET", &uri, &[], Value::Null, &reader).0, 200);
    }
}

/// Where the CSDL of DMTF is, beside the project.
fn shared() -> Option<std::path::PathBuf> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    Some(root.parent()?.join("shared/redfish/csdl-2025.4.tgz")).filter(|path| path.exists())
}

// @test redfish.csdl
#[test]
fn resources_are_what_the_csdl_says() {
    let mut csdl = Csdl::default();
    OWN.iter().for_each(|(_, text)| csdl.add(text));
    let has_dmtf = match shared() {
        Some(path) => {
            csdl.add_archive(&path);
            true
        }
        None => {
            println!("SKIPPED: the CSDL of DMTF is not beside the project: only ebof's own types are compared");
            false
        }
    };
    let mut wrong = Vec::new();
    for (uri, resource) in all() {
        if has_dmtf {
            csdl.check(&uri, &resource, &mut wrong);
        } else {
            csdl.check_own(&uri, &resource, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

// @test redfish.csdl
#[test]
fn what_is_read_only_cannot_be_changed() {
    let Some(path) = shared() else {
        println!("SKIPPED: the CSDL of DMTF is not beside the project");
        return;
    };
    let mut csdl = Csdl::default();
    OWN.iter().for_each(|(_, text)| csdl.add(text));
    csdl.add_archive(&path);
    let services = services();
    let admin = caller(Some(Role::Administrator));
    let mut tried = 0;
    let all =
        services.iter().flat_map(|service| walked(service).into_iter().map(move |(uri, own)| (service, uri, own)));
    for (service, uri, resource) in all {
        let Some(place) = Place::parse(&uri).filter(|place| place.methods().contains(&Method::PATCH)) else {
            continue;
        };
        for name in csdl.read_only(&resource) {
            let (status, _, body) = ask_of(service, "PATCH", &uri, &[], json!({ &name: resource[&name] }), &admin);
            assert_eq!(status, 400, "{place}: {name}: {body}");
            tried += 1;
        }
    }
    assert!(tried > 20, "{tried}");
}
