//! Requests that nobody should send: bodies that are almost right, by every method of every
//! address; roles that may not; conditions that do not hold.

mod bodies;
mod conditions;
mod full;
mod known;
mod mutation;
mod populated;
mod queries;
mod roles;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use known::KNOWN;
use populated::Populated;

/// An address with a method that changes something, or runs an action.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Endpoint {
    method: String,
    /// As the OpenAPI document has it: `/redfish/v1/Storage/{StorageId}/Volumes`.
    pattern: String,
    path: String,
}

/// The patterns of the OpenAPI document with the methods of each, in capitals.
fn documented(box_: &Populated) -> Vec<(String, Vec<String>)> {
    let Value::String(text) = box_.admin("GET", "/redfish/v1/openapi.yaml", b"", &[]).body else { panic!("no text") };
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    let paths = text.split("\npaths:\n").nth(1).unwrap().split("\ncomponents:\n").next().unwrap();
    for line in paths.lines() {
        let name = line.trim().strip_suffix(':');
        match (line.len() - line.trim_start().len(), name) {
            (2, Some(path)) => all.push((path.to_owned(), Vec::new())),
            (4, Some(method)) => all.last_mut().unwrap().1.push(method.to_uppercase()),
            _ => {}
        }
    }
    all
}

/// Whether a path is one that a pattern describes.
fn matches(pattern: &str, path: &str) -> bool {
    let (mut pattern, mut path) = (pattern.split('/'), path.split('/'));
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return true,
            (Some(one), Some(segment)) if one == segment || (one.starts_with('{') && !segment.is_empty()) => {}
            _ => return false,
        }
    }
}

/// All addresses: of resources, and of actions.
fn addresses(box_: &Populated) -> BTreeMap<String, Option<Value>> {
    let mut all = BTreeMap::new();
    let mut waiting: Vec<String> =
        ["/redfish/v1/", "/redfish/v1/UpdateService/upload", "/redfish/v1/TaskService/TaskMonitors/1"]
            .map(str::to_owned)
            .into();
    while let Some(address) = waiting.pop() {
        if all.contains_key(&address) {
            continue;
        }
        let answer = box_.admin("GET", &address, b"", &[]);
        let resource = (answer.status == 200).then_some(answer.body);
        if let Some(resource) = &resource {
            references(resource, &mut waiting);
        }
        all.insert(address, resource);
    }
    all
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(list) => list.iter().for_each(|one| references(one, found)),
        Value::Object(object) => {
            let named = ["@odata.id", "target"].map(|name| object.get(name).and_then(Value::as_str));
            found.extend(named.into_iter().flatten().map(str::to_owned));
            object.values().for_each(|one| references(one, found));
        }
        _ => {}
    }
}

/// All addresses with what changes them, as `Allow` says.
fn endpoints(box_: &Populated) -> Vec<Endpoint> {
    let patterns = documented(box_);
    let mut all = Vec::new();
    for path in addresses(box_).into_keys() {
        let allow = box_.admin("OPTIONS", &path, b"", &[]);
        let pattern = patterns.iter().map(|(pattern, _)| pattern).find(|pattern| matches(pattern, &path));
        let pattern = pattern.unwrap_or_else(|| panic!("{path} is in no document"));
        let methods = allow.header("allow").split(", ").filter(|name| !matches!(*name, "GET" | "HEAD"));
        all.extend(methods.map(|method| Endpoint {
            method: method.to_owned(),
            pattern: pattern.clone(),
            path: path.clone(),
        }));
    }
    all
}

/// A body that is accepted is known for every method of every address, so that what is almost right
/// can be made of it.
#[test]
fn an_accepted_body_is_known_for_every_change() {
    let box_ = Populated::new();
    let all = endpoints(&box_);
    let mut wanted = BTreeSet::new();
    for (pattern, methods) in documented(&box_) {
        for method in methods.into_iter().filter(|method| method != "GET") {
            assert!(
                all.iter().any(|one| one.pattern == pattern && one.method == method),
                "no resource of the box can be reached by {method} {pattern}"
            );
            wanted.insert((method, pattern.clone()));
        }
    }
    for (method, pattern) in &wanted {
        let bodies = KNOWN.iter().filter(|known| known.method == method && known.is_for(pattern));
        assert!(bodies.count() > 0, "tests/it/hostile/known.rs needs an accepted body of {method} {pattern}");
    }
    for known in KNOWN {
        let box_ = Populated::new();
        let (path, headers, body) = known.request(&all, &box_.revision());
        let answer = box_.admin(known.method, &path, &body, &headers);
        assert!((200..300).contains(&answer.status), "{} {path}: {} {}", known.method, answer.status, answer.body);
    }
}

/// What an address with digits is called is one text only.
#[test]
fn a_number_in_an_address_is_written_in_one_way() {
    let box_ = Populated::new();
    let all = addresses(&box_);
    for (path, _) in all.iter().filter(|(_, resource)| resource.is_some()) {
        let digits = path.len() - path.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (before, number) = path.split_at(path.len() - digits);
        if number.is_empty() || before.ends_with("v") {
            continue;
        }
        for other in [format!("+{number}"), format!("0{number}"), format!("-{number}"), format!("%3{number}")] {
            let other = format!("{before}{other}");
            if all.contains_key(&other) {
                continue;
            }
            let answer = box_.admin("GET", &other, b"", &[]);
            assert_eq!(answer.status, 404, "{other}");
            let body = json!({ "Namespaces": [{ "@odata.id": other }] }).to_string();
            let attach = "/redfish/v1/Storage/d0/Controllers/vf2/Actions/StorageController.AttachNamespaces";
            let answer = box_.admin("POST", attach, body.as_bytes(), &[]);
            assert_eq!(answer.status, 400, "{other}: {}", answer.body);
        }
    }
}
