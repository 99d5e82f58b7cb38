//! Bodies by the form that is accepted, and beyond it, to every address that takes one.
//!
//! `EBOF_FUZZ_SEED` and `EBOF_FUZZ_COUNT` choose others and more than `make test` sends.

use std::collections::BTreeMap;

use serde_json::Value;

use super::known::{Headers, KNOWN, Known};
use super::mutation::{Choices, Replaced, broken, mutate};
use super::populated::{Populated, Unchanged};
use super::{Endpoint, addresses, endpoints, matches};
use crate::fixture::Answer;

/// How many requests are sent without being asked for.
const COUNT: usize = 6_000;

/// A request, and what was done to it.
struct Sent {
    endpoint: Endpoint,
    headers: Headers,
    body: Vec<u8>,
    replaced: Option<Replaced>,
    /// Whether the body still is JSON, and of the type that is said.
    is_json: bool,
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|error| panic!("{name}: {error}")))
}

#[test]
fn bodies_that_are_almost_right_are_refused_in_words_and_change_nothing() {
    let seed = number("EBOF_FUZZ_SEED", 1) as u64;
    let choices = Choices::new(seed);
    let mut box_ = Populated::new();
    let (all, resources) = (endpoints(&box_), addresses(&box_));
    let paths: Vec<String> = resources.keys().cloned().collect();
    let mut told = BTreeMap::<u16, usize>::new();
    for at in 0..number("EBOF_FUZZ_COUNT", COUNT) {
        let sent = request(&choices, &box_, &all, &resources, &paths);
        let before = box_.now();
        let Endpoint { method, path, .. } = &sent.endpoint;
        let answer = box_.admin(method, path, &sent.body, &sent.headers);
        let wrong = objections(&sent, &answer, &before, &box_.now());
        assert!(
            wrong.is_empty(),
            "{}\nEBOF_FUZZ_SEED={seed}, request {at}: {method} {path}\n{:?}\n{}\n{:?}\nanswer {}: {}",
            wrong.join("\n"),
            sent.headers,
            shown(&sent.body),
            sent.replaced,
            answer.status,
            shown(answer.body.to_string().as_bytes()),
        );
        *told.entry(answer.status).or_default() += 1;
        if before != box_.now() {
            box_ = Populated::new();
        }
    }
    println!("{told:?}");
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(2000).collect()
}

/// A request that is made of an accepted one.
fn request(
    choices: &Choices,
    box_: &Populated,
    all: &[Endpoint],
    resources: &BTreeMap<String, Option<Value>>,
    paths: &[String],
) -> Sent {
    // Passwords take long to be hashed.
    let is_slow = |known: &Known| known.body.contains("Password\"");
    let known = loop {
        let known = choices.one(KNOWN);
        if !is_slow(known) || choices.rarely(8) {
            break known;
        }
    };
    let (own, mut headers, body) = known.request(all, &box_.revision());
    // The same of another object, which may not be what the body is for.
    let alike: Vec<&Endpoint> =
        all.iter().filter(|one| one.method == known.method && known.is_for(&one.pattern)).collect();
    let (is_own, other) = (!choices.rarely(4), (*choices.one(&alike)).clone());
    let endpoint = if is_own {
        all.iter().find(|one| one.path == own && one.method == known.method).unwrap().clone()
    } else {
        other
    };
    let text = if known.is_upload() { known.body.as_bytes().to_vec() } else { body };
    let mut replaced = None;
    let mut text = match serde_json::from_slice::<Value>(&text) {
        Ok(mut value) => {
            let current = resources.get(&endpoint.path).and_then(Option::as_ref);
            let changes = 1 + choices.below(2) * choices.below(3);
            for _ in 0..changes {
                replaced = mutate(choices, &mut value, current, paths).filter(|_| changes == 1 && is_own);
            }
            value.to_string().into_bytes()
        }
        Err(_) => text,
    };
    if choices.rarely(5) {
        (text, replaced) = (broken(choices, &text), None);
    }
    let is_json = serde_json::from_slice::<Value>(&text).is_ok_and(|value| value.is_object()) || text.is_empty();
    let mut body = known.wrapped(&text);
    if known.is_upload() && choices.rarely(4) {
        (body, replaced) = (broken(choices, &body), None);
    }
    let mut is_whole = is_json && !known.is_upload();
    if choices.rarely(6) {
        let (name, value) = choices.pick(HEADERS);
        is_whole &= name != "content-type";
        headers.retain(|(own, _)| *own != name);
        headers.push((name, value));
        replaced = None;
    }
    let is_json = is_whole || known.is_upload() || body.is_empty();
    Sent { endpoint, headers, body, replaced, is_json }
}

const HEADERS: &[(&str, &[u8])] = &[
    ("content-type", b""),
    ("content-type", b"text/plain"),
    ("content-type", b"application/x-www-form-urlencoded"),
    ("content-type", b"multipart/form-data; boundary="),
    ("content-type", b"multipart/form-data; boundary=\xff"),
    ("content-type", b"application/json; charset=utf-16"),
    ("content-type", b"application/jsonp"),
    ("if-match", b""),
    ("if-match", b"*"),
    ("if-match", b"\"\xff\""),
    ("if-match", b"W/\"0\", \"1\""),
    ("if-match", b"\"00000000000000000000000000000000\""),
    ("if-none-match", b"*"),
    ("odata-version", b"4.0"),
    ("odata-version", b"5"),
    ("prefer", b"respond-async"),
];

/// The messages of `Base` that may be sent, and how many arguments each has there.
const BASE: &[(&str, usize)] = &[
    ("ActionNotSupported", 1),
    ("ActionParameterMissing", 2),
    ("ActionParameterValueConflict", 2),
    ("CreateLimitReachedForResource", 0),
    ("HeaderInvalid", 1),
    ("InsufficientPrivilege", 0),
    ("MalformedJSON", 0),
    ("MaximumErrorsExceeded", 0),
    ("MissingOrMalformedPart", 0),
    ("NoOperation", 0),
    ("OperationNotAllowed", 0),
    ("PreconditionFailed", 0),
    ("PropertyDuplicate", 1),
    ("PropertyMissing", 1),
    ("PropertyNotWritable", 1),
    ("PropertyUnknown", 1),
    ("PropertyValueError", 1),
    ("PropertyValueNotInList", 2),
    ("PropertyValueTypeError", 2),
    ("ResourceAlreadyExists", 3),
    ("ResourceAtUriUnauthorized", 2),
    ("ResourceCannotBeDeleted", 0),
    ("ResourceMissingAtURI", 1),
    ("ServiceTemporarilyUnavailable", 1),
];

/// What ebof's own registry has that a body may be refused with.
const OWN: &[&str] = &[
    "AccountNeeded",
    "CertificateRefused",
    "ChangeConflicts",
    "ChangeOutdated",
    "ChangeRefused",
    "ConfigurationRefused",
    "NotRestarted",
    "ObjectBusy",
    "ObjectNotFound",
    "ProtocolNotChanged",
];

/// What is wrong with an answer.
fn objections(sent: &Sent, answer: &Answer, before: &Unchanged, after: &Unchanged) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_login = sent.endpoint.path.ends_with("/Sessions");
    match answer.status {
        200 | 201 | 202 | 204 => {
            if !sent.is_json {
                wrong.push("what is not JSON was taken".to_owned());
            }
            let is_free = FREE.iter().any(|(pattern, pointer)| {
                sent.endpoint.pattern.ends_with(pattern)
                    && sent.replaced.as_ref().is_some_and(|one| one.pointer.starts_with(pointer))
            });
            if sent.replaced.as_ref().is_some_and(|one| one.of_another_type) && !is_free {
                wrong.push("a value of another type was taken".to_owned());
            }
        }
        400 | 401 | 404 | 405 | 409 | 412 | 415 => {
            if before != after && !is_login {
                wrong.push(format!("it was refused, and changed something: {before:?} {after:?}"));
            }
            messages(sent, answer, &mut wrong);
        }
        other => wrong.push(format!("status {other}")),
    }
    wrong
}

/// Where everything is accepted, because something else looks at it.
const FREE: &[(&str, &str)] = &[
    ("EbofManager.PlanChanges", "/Body"),
    ("EbofChassis.AddDrive", "/Options"),
    ("EbofConfiguration.Edit", "/Edits"),
    ("Connections/{ConnectionId}", "/VolumeInfo/1/AccessCapabilities"),
];

fn messages(sent: &Sent, answer: &Answer, wrong: &mut Vec<String>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = answer.body["error"]["@Message.ExtendedInfo"].as_array().cloned().unwrap_or_default();
    if list.is_empty() || text(&answer.body["error"]["message"]).is_empty() {
        wrong.push("an error without messages".to_owned());
    }
    if answer.body.to_string().len() > 128 << 10 {
        wrong.push(format!("an error of {} bytes", answer.body.to_string().len()));
    }
    let mut about = Vec::new();
    for message in &list {
        let (id, words) = (text(&message["MessageId"]), text(&message["Message"]));
        let name = id.rsplit('.').next().unwrap().to_owned();
        let args = message["MessageArgs"].as_array().map_or(0, Vec::len);
        let is_known = match id.strip_prefix("Base.1.18.") {
            Some(name) => BASE.contains(&(name, args)),
            None => id == format!("Ebof.1.0.{name}") && OWN.contains(&name.as_str()) && args == 1,
        };
        if !is_known {
            wrong.push(format!("{id} with {args} arguments is in no registry"));
        }
        let resolution = text(&message["Resolution"]);
        if words.is_empty() || resolution.is_empty() {
            wrong.push(format!("{id} without words: {words:?} {resolution:?}"));
        }
        if [&words, &resolution].iter().any(|text| text.chars().any(|c| c.is_control() && c != '\n')) {
            wrong.push(format!("{id} repeats control characters"));
        }
        let pointers = message["RelatedProperties"].as_array().cloned().unwrap_or_default();
        let needs_pointer = name.starts_with("Property") || name.starts_with("ActionParameter");
        if needs_pointer && pointers.is_empty() {
            wrong.push(format!("{id} names no property"));
        }
        if matches!(&*name, "PropertyValueTypeError" | "PropertyValueNotInList")
            && !resolution.starts_with("Accepted: ")
        {
            wrong.push(format!("{id} does not say what is accepted"));
        }
        about.extend(pointers.iter().map(text));
    }
    if about.iter().any(|pointer| pointer.len() > 600) {
        wrong.push("a pointer as long as what was sent".to_owned());
    }
    if let Some(Replaced { pointer, of_another_type: true }) = &sent.replaced
        && answer.status == 400
    {
        let is_near = |told: &String| {
            let told = told.trim_start_matches('#');
            !told.is_empty() && (pointer.starts_with(told) || told.starts_with(pointer.as_str()))
        };
        if !about.iter().any(is_near) {
            wrong.push(format!("{pointer} is of another type, and what is told is about {about:?}"));
        }
    }
}

#[test]
fn patterns_match_whole_segments() {
    assert!(matches("/a/{Id}/c", "/a/b/c") && !matches("/a/{Id}", "/a/") && !matches("/a", "/a/b"));
}
