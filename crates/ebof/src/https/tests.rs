//! HTTPS over real TLS: users and strangers, slow and loud peers, certificates that change.

mod advice;
mod audit;
mod client;
mod hostile;
mod stolen;
mod subscribers;
mod tenants;
mod wire;

use ebof_access::{AccountChange, AccountReach, NewAccount, Role, Token};
use ebof_server::{Settings, Target};
use serde_json::Value;

use super::listener::Times;
use super::serving::serve_with;
use super::*;
use crate::doors::Scheme;
use crate::managed::audit::Auditing;
use crate::managed::{Managed, Remote};
use crate::reload::{Reloads, StartedWith};
use client::{Answer, Client};

const BOX: &str = "[[ports]]\nname = \"fabric0\"\nlisten = \"tcp://127.0.0.1:0\"\n\
                   [[drives]]\nname = \"d0\"\nbacking = \"mem:64Mi\"\nfunctions = 2\n\
                   [[subsystems]]\nnqn = \"nqn.2014-08.org.example:box:d0\"\nallow_any_host = true\ndrive = \"d0\"\n";

const PASSWORD: &str = "correct horse";

struct Rig {
    https: SocketAddr,
    http: SocketAddr,
    remote: Remote,
    _directory: tempfile::TempDir,
}

fn rig() -> Rig {
    let second = Duration::from_secs(1);
    rig_with(Times { handshake: second, head: second, body: second, stall: second, delivery: second })
}

fn rig_with(times: Times) -> Rig {
    rig_of(BOX, times)
}

/// A target with an account of each role, whose name is in lower case, and an audit log.
fn rig_of(text: &str, times: Times) -> Rig {
    let directory = tempfile::tempdir().unwrap();
    let state = Arc::new(StateDirectory::open(&directory.path().join("state")).unwrap());
    let access = accounts::open(&state).unwrap().access;
    for role in Role::ALL {
        let name = role.name().to_lowercase();
        let password = PASSWORD.to_owned();
        let reach = AccountReach::Everything;
        let new = NewAccount { name, password, role, reach, enabled: true, must_change_password: false };
        access.add_account(&new).unwrap();
    }
    let config = ebof_manage::load("a.toml", text).unwrap().config;
    let settings = Settings { threads: Some(1), pin: false, ..Settings::default() };
    let target = Arc::new(Target::start(config, settings).unwrap());
    let reloads = Arc::new(
        Reloads::start(
            StartedWith::Arguments,
            None,
            crate::rights::Confined::default(),
            Arc::clone(&target),
            Arc::new(ebof_cli::Supervisor::none()),
        )
        .unwrap(),
    );
    let any = Some("127.0.0.1:0".parse().unwrap());
    let addresses = Addresses { https: any, http: any };
    let identity = identity(&addresses, Arc::clone(&state)).unwrap();
    let remote = Remote { access, identity, place: "a".to_owned(), state };
    let managed = Managed::new(&target, &reloads, Some(remote.clone()));
    let auditing = Auditing::start(Arc::clone(&remote.state), &target, None, "box").unwrap();
    assert!(managed.auditing.set(auditing).is_ok());
    let doors = reloads.doors();
    doors.want(addresses, Addresses::default());
    serve_with(doors, remote.clone(), &managed, times).unwrap();
    let [https, http] = Scheme::ALL.map(|scheme| doors.open(scheme).unwrap().unwrap());
    Rig { https, http, remote, _directory: directory }
}

impl Rig {
    fn client(&self) -> Client {
        Client::tls(self.https)
    }

    fn session(&self, name: &str) -> Token {
        let here = [127, 0, 0, 1].into();
        let user = self.remote.access.login(here, name, PASSWORD).unwrap();
        self.remote.access.open_session(&user, here).unwrap().1
    }

    /// One request on a connection of its own.
    fn request(&self, head: &str, lines: &str, body: &str) -> Answer {
        self.client().request(head, lines, body)
    }

    fn get(&self, path: &str, lines: &str) -> Answer {
        self.request(&format!("GET {path}"), lines, "")
    }
}

fn basic(name: &str, password: &str) -> String {
    use base64::Engine as _;
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{password}"));
    format!("Authorization: Basic {encoded}\r\n")
}

fn token(token: &Token) -> String {
    format!("X-Auth-Token: {}\r\n", token.text())
}

#[test]
fn strangers_see_nothing() {
    let rig = rig();
    for path in ["/ebof", "/ebof/v1", "/ebof/v1/status", "/ebof/v1/accounts", "/ebof/v1/nothing", "/ebof/../v1"] {
        for lines in ["", "X-Auth-Token: 1\r\n", "Authorization: Basic !\r\n", "Authorization: Bearer a\r\n"] {
            let answer = rig.get(path, lines);
            assert_eq!(answer.status, 401, "{path} {lines}");
            assert!(answer.head.contains("www-authenticate: basic"), "{}", answer.head);
        }
    }
    let answer = rig.get("/healthz", "");
    assert_eq!((answer.status, &*answer.body), (200, "ok\n"));
    assert_eq!(rig.request("POST /healthz", "", "").status, 405);
    assert_eq!(rig.get("/nothing", "").status, 404);
    let page = rig.get("/", "");
    assert!(page.status == 200 && page.body.contains("<html"), "{}", page.body);
    assert!(page.head.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{}", page.head);
}

#[test]
fn users_see_and_change_what_their_role_allows() {
    let rig = rig();
    let change = r#"{"changes": [{"change": "weight", "function": "d0/vf1", "weight": 4}]}"#;
    for (name, changes, reloads) in [("readonly", 403, 403), ("operator", 202, 403), ("administrator", 202, 200)] {
        let session = token(&rig.session(name));
        for lines in [&basic(name, PASSWORD), &session] {
            let status = rig.get("/ebof/v1/status", lines);
            assert_eq!(status.status, 200, "{}", status.body);
            assert!(status.json().get("ports").is_some());
            assert!(status.head.contains("cache-control: no-store"), "{}", status.head);
            for line in ["x-content-type-options: nosniff", "content-security-policy: default-src 'none'"] {
                assert!(status.head.contains(line), "{}", status.head);
            }
            assert!(!status.head.contains("access-control-"), "{}", status.head);
        }
        let answer = rig.request("POST /ebof/v1/changes", &session, change);
        assert_eq!(answer.status, changes, "{name}: {}", answer.body);
        if changes == 202 {
            let id = answer.json()["id"].as_u64().unwrap();
            assert!(answer.head.contains(&format!("location: /ebof/v1/tasks/{id}\r\n")), "{}", answer.head);
            let task = rig.get(&format!("/ebof/v1/tasks/{id}?wait_ms=10000&revision=0"), &session);
            assert_eq!(task.status, 200);
        }
        assert_eq!(rig.request("POST /ebof/v1/reload", &session, "").status, reloads, "{name}");
    }
}

#[test]
fn sessions_end_and_cannot_be_guessed() {
    let rig = rig();
    let session = rig.session("operator");
    let lines = token(&session);
    assert_eq!(rig.get("/ebof/v1/status", &lines).status, 200);
    let other = format!("X-Auth-Token: {}0\r\n", &session.text()[..63]);
    let wrong = if other == lines { format!("X-Auth-Token: {}1\r\n", &session.text()[..63]) } else { other };
    assert_eq!(rig.get("/ebof/v1/status", &wrong).status, 401);
    assert_eq!(rig.get("/ebof/v1/status", &format!("{lines}{lines}")).status, 401, "twice");
    // A token comes first, also if it is wrong.
    let both = format!("{wrong}{}", basic("operator", PASSWORD));
    assert_eq!(rig.get("/ebof/v1/status", &both).status, 401);
    let id = rig.remote.access.sessions()[0].id.clone();
    rig.remote.access.close_session(&id).unwrap();
    assert_eq!(rig.get("/ebof/v1/status", &lines).status, 401);
}

#[test]
fn redfish_is_served_with_sessions_of_its_own() {
    let rig = rig();
    let root = rig.get("/redfish/v1/", "");
    assert_eq!((root.status, root.json()["@odata.id"].as_str()), (200, Some("/redfish/v1/")));
    assert_eq!(rig.get("/redfish/v1/", "X-Auth-Token: wrong\r\n").status, 401);
    for path in ["/redfish/v1/Chassis", "/redfish/v1/AccountService", "/redfish/v1/nothing"] {
        let answer = rig.get(path, "");
        assert_eq!(answer.status, 401, "{path}");
        assert!(answer.head.contains("www-authenticate: "), "{}", answer.head);
    }
    let login = format!(r#"{{"UserName": "operator", "Password": "{PASSWORD}"}}"#);
    let made = rig.request("POST /redfish/v1/SessionService/Sessions", "", &login);
    assert_eq!(made.status, 201, "{}", made.body);
    let lines = format!("X-Auth-Token: {}\r\n", made.header("x-auth-token").unwrap());
    assert_eq!(rig.get("/redfish/v1/Chassis", &lines).status, 200);
    assert_eq!(rig.get("/ebof/v1/status", &lines).status, 200, "for both");
    let made = made.json();
    let place = made["@odata.id"].as_str().unwrap();
    let ended = rig.request(&format!("DELETE {place}"), &lines, "");
    assert_eq!(ended.status, 204, "{place}: {}", ended.body);
    assert_eq!(rig.get("/redfish/v1/Chassis", &lines).status, 401);
    let head = rig.request("HEAD /redfish/v1/", "", "");
    assert_eq!((head.status, &*head.body), (200, ""));
}

#[test]
fn guessing_is_slowed_for_the_address_and_sessions_go_on() {
    let rig = rig();
    let session = token(&rig.session("operator"));
    for at in 0..6 {
        assert_eq!(rig.get("/ebof/v1/status", &basic("administrator", &format!("guess {at}"))).status, 401);
    }
    // Whether it is right is not looked at any more, nor whether there is such a user.
    for (name, password) in [("administrator", "guess"), ("administrator", PASSWORD), ("nobody", "guess")] {
        let answer = rig.get("/ebof/v1/status", &basic(name, password));
        assert_eq!(answer.status, 429, "{}", answer.body);
        let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
    }
    assert_eq!(rig.get("/ebof/v1/status", &session).status, 200);
}

#[test]
fn accounts_are_managed_by_administrators_and_ones_own_password_by_everyone() {
    let rig = rig();
    let (admin, user) = (token(&rig.session("administrator")), token(&rig.session("readonly")));
    let new = r#"{"name": "jo", "password": "a new password", "role": "Operator", "must_change_password": true}"#;
    assert_eq!(rig.request("POST /ebof/v1/accounts", &user, new).status, 403);
    let made = rig.request("POST /ebof/v1/accounts", &admin, new);
    assert_eq!((made.status, &made.json()["must_change_password"]), (201, &Value::Bool(true)));
    assert!(!made.body.contains("a new password"));
    let jo = basic("jo", "a new password");
    let answer = rig.get("/ebof/v1/status", &jo);
    assert!(answer.status == 403 && answer.body.contains("password has to be changed"), "{}", answer.body);
    let password = r#"{"password": "yet another one"}"#;
    assert_eq!(rig.request("PATCH /ebof/v1/accounts/jo", &user, password).status, 403);
    assert_eq!(rig.request("PATCH /ebof/v1/accounts/jo", &jo, r#"{"role": "Administrator"}"#).status, 403);
    assert_eq!(rig.request("PATCH /ebof/v1/accounts/jo", &jo, password).status, 200);
    assert_eq!(rig.get("/ebof/v1/status", &basic("jo", "yet another one")).status, 200);
    assert_eq!(rig.request("PATCH /ebof/v1/accounts/readonly", &user, r#"{"password": "own password"}"#).status, 200);
    assert_eq!(rig.get("/ebof/v1/status", &user).status, 200, "the session in which it was changed goes on");
    for (head, body, status) in [
        ("POST /ebof/v1/accounts", new, 409),
        ("POST /ebof/v1/accounts", r#"{"name": "k", "password": "short", "role": "Operator"}"#, 422),
        ("POST /ebof/v1/accounts", r#"{"name": "k", "password": "long enough", "role": "Root"}"#, 422),
        ("POST /ebof/v1/accounts", r#"{"name": "a b", "password": "long enough", "role": "Operator"}"#, 422),
        ("POST /ebof/v1/accounts", r#"{"name": "k"}"#, 400),
        ("PATCH /ebof/v1/accounts/nobody", password, 404),
        ("DELETE /ebof/v1/accounts/nobody", "", 404),
        ("DELETE /ebof/v1/accounts/jo", "", 200),
        ("DELETE /ebof/v1/accounts/admin", "", 200),
        ("DELETE /ebof/v1/accounts/administrator", "", 409),
        ("PATCH /ebof/v1/accounts/administrator", r#"{"enabled": false}"#, 409),
    ] {
        let answer = rig.request(head, &admin, body);
        assert_eq!(answer.status, status, "{head} {body}: {}", answer.body);
        assert_eq!(answer.json().get("mistakes").is_some(), status >= 400);
    }
    let all = rig.get("/ebof/v1/accounts", &admin).json();
    let names: Vec<_> = all["accounts"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["administrator", "operator", "readonly"]);
}

#[test]
fn another_certificate_is_in_force_for_new_connections() {
    let rig = rig();
    let admin = token(&rig.session("administrator"));
    let mut old = rig.client();
    let first = old.fingerprint();
    assert_eq!(rig.remote.identity.info().fingerprint, first);
    assert_eq!(old.request("GET /ebof/v1/status", &admin, "").status, 200);
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["box.example.org".to_owned()]).unwrap();
    let certificate = parameters.self_signed(&key).unwrap().pem();
    let body = |key: &str| serde_json::json!({ "certificate": certificate, "key": key }).to_string();
    let other = rcgen::KeyPair::generate().unwrap();
    let refused = rig.request("PUT /ebof/v1/certificate", &admin, &body(&other.serialize_pem()));
    assert!(refused.status == 422 && refused.body.contains("does not belong"), "{}", refused.body);
    assert_eq!(rig.client().fingerprint(), first);
    let answer = rig.request("PUT /ebof/v1/certificate", &admin, &body(&key.serialize_pem()));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(!answer.body.contains("PRIVATE"));
    let second = rig.client().fingerprint();
    assert!(second != first && answer.json()["fingerprint"] == second.as_str());
    assert_eq!(old.request("GET /ebof/v1/status", &admin, "").status, 200, "the old connection goes on");
    let request = rig.request("POST /ebof/v1/certificate/request", &admin, r#"{"common_name": "box.example.org"}"#);
    assert!(request.json()["request"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE REQUEST-----"));
}

#[test]
fn without_tls_this_machine_is_served_by_its_own_names() {
    let rig = rig();
    let lines = basic("readonly", PASSWORD);
    let get = |host: &str| {
        let lines = format!("Host: {host}\r\n{lines}");
        Client::plain(rig.http).raw_request("GET /ebof/v1/status", &lines, "").status
    };
    assert_eq!([get("localhost:8080"), get("127.0.0.1"), get("evil.example:8080")], [200, 200, 421]);
    let addresses = |http: &str| Addresses { https: None, http: Some(http.parse().unwrap()) };
    let error = addresses("192.0.2.1:80").check().unwrap_err().to_string();
    assert!(error.contains("--https"), "{error}");
    assert!(addresses("[::1]:80").check().unwrap() && !Addresses::default().check().unwrap());
}

#[test]
fn pages_of_others_change_nothing() {
    let rig = rig();
    let lines = basic("administrator", PASSWORD);
    for foreign in ["Origin: https://evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n"] {
        let answer = rig.request("POST /ebof/v1/reload", &format!("{lines}{foreign}"), "");
        assert_eq!(answer.status, 403, "{}", answer.body);
    }
    let own = format!("{lines}Origin: https:{}\r\nSec-Fetch-Site: same-origin\r\n", "//x");
    assert_eq!(rig.request("POST /ebof/v1/reload", &own, "").status, 200);
}

#[test]
fn an_account_that_is_disabled_or_locked_is_not_let_in() {
    let rig = rig();
    let access = &rig.remote.access;
    let id = access.accounts().iter().find(|it| it.name == "operator").unwrap().id;
    let session = token(&rig.session("operator"));
    access.change_account(id, &AccountChange { enabled: Some(false), ..AccountChange::default() }, None).unwrap();
    assert_eq!(rig.get("/ebof/v1/status", &session).status, 401);
    assert_eq!(rig.get("/ebof/v1/status", &basic("operator", PASSWORD)).status, 401);
}
