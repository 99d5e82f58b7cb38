//! Bodies and queries that are almost right, made of accepted ones by a seed: each is refused in
//! words, and what is refused changes nothing. Accounts and certificates are in
//! `https/tests/hostile.rs`.

use axum::body::Body;
use axum::http::Request;
use ebof_access::{AccountReach, Credential, Role, User};
use ebof_clock::Clock;
use ebof_manage::api::Revision;
use ebof_manage::{Config, Target as _};
use tower::ServiceExt as _;

use super::*;

const COUNT: usize = 2500;

/// Requests that are accepted; `REVISION` is the one in force.
const KNOWN: &[(&str, &str, &str)] = &[
    ("POST", "/v1/changes", r#"{"changes": [{"change": "weight", "function": "d0/vf1", "weight": 4}], "drain_ms": 5}"#),
    (
        "POST",
        "/v1/changes",
        r#"{"changes": [{"change": "limit", "function": "d0/vf1", "iops": 100, "bytes_per_second": null, "minimum_iops": 7},
                        {"change": "assign", "function": "d0/vf1", "port": "fabric0"}]}"#,
    ),
    (
        "POST",
        "/v1/changes",
        r#"{"changes": [{"change": "add-drive", "drive": {"name": "d1", "backing": "mem:64Mi"},
        "nqn": "nqn.2014-08.org.example:d1", "ports": ["fabric0"], "allowed_hosts": ["nqn.a"], "allow_any_host": false}]}"#,
    ),
    (
        "POST",
        "/v1/changes",
        r#"{"changes": [{"change": "create-namespace", "drive": "d0", "size_bytes": 1048576, "block_size_bytes": 4096,
            "metadata_bytes": 0, "shared": true, "nsid": 3, "attach_to": ["d0/vf1", "*"]}]}"#,
    ),
    ("POST", "/v1/changes", r#"{"changes": [{"change": "self-test", "drive": "d0", "kind": "short"}]}"#),
    ("POST", "/v1/changes", r#"{"changes": [{"change": "sanitize-drive", "drive": "d0", "action": "block-erase"}]}"#),
    ("POST", "/v1/changes", r#"{"changes": [{"change": "reset-drive", "drive": "d0"}]}"#),
    (
        "POST",
        "/v1/configuration/plan",
        r#"{"toml": "subsystems = []\n[[hosts]]\nnqn = \"nqn.a\"\n", "base": "/tmp", "name": "a.toml"}"#,
    ),
    ("POST", "/v1/configuration/plan", r#"{"json": "{\"subsystems\": [], \"hosts\": [{\"nqn\": \"nqn.a\"}]}"}"#),
    ("PUT", "/v1/configuration", r#"{"toml": "subsystems = []\n", "name": "a.toml"}"#),
    (
        "POST",
        "/v1/edits",
        r#"{"edits": [{"edit": "add-host", "keys": {"nqn": "nqn.a"}, "subsystems": ["nqn.2014-08.org.example:box:d0"]},
            {"edit": "add-port", "keys": {"name": "b", "listen": "tcp://127.0.0.1:0"}, "subsystems": []},
            {"edit": "set", "object": {"port": "b"}, "keys": {"name": "c"}}], "base": "/tmp"}"#,
    ),
    (
        "POST",
        "/v1/edits?plan=1",
        r#"{"edits": [{"edit": "add-subsystem", "keys": {"nqn": "nqn.b", "namespaces": [{"nsid": 1, "drive": "mem:1Mi"}]}},
            {"edit": "disable", "object": {"subsystem": "nqn.b"}}, {"edit": "remove", "object": {"subsystem": "nqn.b"}}]}"#,
    ),
    ("GET", "/v1/tasks/1?revision=0&wait_ms=0", ""),
    ("GET", "/v1/events?since=0&max=3&wait_ms=0", ""),
    ("GET", "/v1/history?object=target&resolution=1s&since=0&until=9", ""),
    ("GET", "/v1/queues", ""),
    ("GET", "/v1/slow?since=0", ""),
    ("GET", "/v1/drives/d0", ""),
];

struct Direct {
    managed: Arc<Managed>,
    routes: Router,
}

impl Direct {
    fn new() -> Self {
        let target = target();
        let managed = Managed::new(&target, &reloads(None, &target), None);
        Self { routes: routes(Arc::clone(&managed)), managed }
    }

    fn state(&self) -> (Config, usize) {
        (self.managed.target.config(), self.managed.enclosure.tasks().len())
    }
}

/// Who asks, as HTTPS says it.
fn somebody() -> RemoteUser {
    let (account, name) = ("1".parse().unwrap(), "jo".to_owned());
    let user = User {
        account,
        name,
        role: Role::Administrator,
        reach: AccountReach::Everything,
        session: None,
        must_change_password: false,
        credential: Credential::default(),
    };
    RemoteUser { user, address: [127, 0, 0, 1].into() }
}

fn hostile(below: &dyn Fn(usize) -> usize) -> Value {
    let texts =
        ["", "\0", "..", "../../etc/passwd", "nqn.", "d0/vf9", "*", "x\r\ny", "\u{202e}\u{1f4a9}", "NaN", "mem:9Ei"];
    let numbers = [0, 1, 255, 1001, 65_536, 1 << 32, 1 << 62, u64::MAX];
    match below(10) {
        0 => Value::Null,
        1 => true.into(),
        2 | 3 => numbers[below(numbers.len())].into(),
        4 => (-1).into(),
        5 => 1e308.into(),
        6 => texts[below(texts.len())].into(),
        7 => "x".repeat([64, 256, 5000][below(3)]).into(),
        8 => vec![Value::from("x"); [0, 1, 300, 5000][below(4)]].into(),
        _ => (0..100).fold(Value::from(1), |inner, _| Value::from(vec![inner])),
    }
}

/// Replaces, renames or takes out something of a value.
fn mutate(value: &mut Value, below: &dyn Fn(usize) -> usize) {
    let is_here = below(3) == 0;
    match value {
        Value::Object(object) if !object.is_empty() => {
            let name = object.keys().nth(below(object.len())).unwrap().clone();
            match below(if is_here { 4 } else { 1 }) {
                0 => mutate(object.get_mut(&name).unwrap(), below),
                1 => drop(object.remove(&name)),
                2 => {
                    let inner = object.remove(&name).unwrap();
                    object.insert(format!("{name}x"), inner);
                }
                _ => drop(object.insert("more".to_owned(), hostile(below))),
            }
        }
        Value::Array(list) if !list.is_empty() && !is_here => {
            let at = below(list.len());
            mutate(&mut list[at], below);
        }
        Value::Array(list) if below(2) == 0 => *list = vec![list.clone(); [2, 200][below(2)]].concat(),
        other => *other = hostile(below),
    }
}

fn broken(text: &str, below: &dyn Fn(usize) -> usize) -> Vec<u8> {
    let bytes = text.as_bytes();
    let at = below(bytes.len().max(1));
    match below(6) {
        0 => bytes[..at].to_vec(),
        1 => [&bytes[..at], &[0xff], &bytes[at..]].concat(),
        2 => [&bytes[..at], &b"["[..].repeat(20_000), &bytes[at..]].concat(),
        3 => [bytes, b" {}"].concat(),
        4 => [&bytes[..at], b"\\ud800", &bytes[at..]].concat(),
        _ => text.replacen(['"', ':', ','], ["null", "-", "1e999"][below(3)], 1 + below(2)).into_bytes(),
    }
}

/// A query that is almost right.
fn asked(path: &str, below: &dyn Fn(usize) -> usize) -> String {
    let parts =
        ["=", "&", "%", "%zz", "%00", "%ff", "-1", "99999999999999999999", "x", "?", "+", "since=1", "%F0%9F%92%A9"];
    let mut path = path.to_owned();
    for _ in 0..=below(3) {
        let begin = path.find('?').unwrap_or("/v1/drives/".len()).min(path.len());
        let at = begin + below(path.len() - begin + 1);
        match below(3) {
            0 => path.insert_str(at, parts[below(parts.len())]),
            1 => path.truncate(at.max(5)),
            _ => path += parts[below(parts.len())],
        }
    }
    path
}

#[tokio::test]
async fn requests_that_are_almost_right_are_refused_in_words_and_change_nothing() {
    let clock = Clock::simulated(5);
    let below = |limit: usize| usize::try_from(clock.jitter() % u64::try_from(limit).unwrap()).unwrap();
    let mut direct = Direct::new();
    let mut refused = 0;
    for at in 0..COUNT {
        let (method, path, body) = KNOWN[below(KNOWN.len())];
        let (mut path, mut bytes) = (path.to_owned(), body.as_bytes().to_vec());
        if let Ok(mut value) = serde_json::from_str::<Value>(body) {
            (0..=below(2)).for_each(|_| mutate(&mut value, &below));
            bytes = if below(4) == 0 { broken(body, &below) } else { value.to_string().into_bytes() };
        } else {
            path = asked(&path, &below);
        }
        let before = direct.state();
        let revision = Revision::from_config(&before.0);
        let tags = [format!("\"{revision}\""), "\"old\"".to_owned(), "*".to_owned(), "\"".to_owned(), String::new()];
        let tag = &tags[if below(3) == 0 { below(tags.len()) } else { 0 }];
        let request = Request::builder().method(method).uri(&path).header("if-match", tag);
        let Ok(mut request) = request.body(Body::from(bytes.clone())) else { continue };
        request.extensions_mut().insert(somebody());
        let Ok(response) = direct.routes.clone().oneshot(request).await;
        let status = response.status().as_u16();
        let answer = axum::body::to_bytes(response.into_body(), 64 << 20).await.unwrap();
        let shown = String::from_utf8_lossy(&answer);
        let sent = String::from_utf8_lossy(&bytes).chars().take(600).collect::<String>();
        assert!(status < 500, "{at}: {method} {path} {sent}: {status} {shown}");
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_else(|error| panic!("{error}: {shown}"));
        if status >= 400 {
            refused += 1;
            let mistakes = answer["mistakes"].as_array().unwrap();
            let is_told = |one: &Value| {
                [&one["message"], &one["advice"]].iter().all(|text| text.as_str().is_some_and(|text| !text.is_empty()))
            };
            let in_words =
                mistakes.iter().all(is_told) && (!mistakes.is_empty() || answer.get("diagnostics").is_some());
            assert!(in_words, "{at}: {method} {path} {sent}: {shown}");
            let is_plain = |c: char| c == '\n' || !c.is_control();
            let texts = mistakes.iter().flat_map(|one| [&one["message"], &one["object"], &one["advice"]]);
            assert!(
                texts.filter_map(Value::as_str).all(|text| text.chars().all(is_plain)),
                "{at}: {path} {sent}: {shown}"
            );
            assert!(shown.len() < 256 << 10, "{at}: {} bytes", shown.len());
            assert_eq!(direct.state(), before, "{at}: {method} {path} {sent}: {shown}");
        } else if direct.state() != before {
            direct = Direct::new();
        }
    }
    assert!(refused > COUNT / 2, "{refused}");
}
