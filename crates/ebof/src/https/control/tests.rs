//! Which role may do what over the network.

use ebof_access::Role;
use hyper::StatusCode;

use super::*;

fn user(role: Role, must_change_password: bool) -> User {
    let account = "7".parse().unwrap();
    User {
        account,
        name: "me".to_owned(),
        role,
        reach: ebof_access::AccountReach::Everything,
        session: None,
        must_change_password,
        credential: ebof_access::Credential::default(),
    }
}

const MOVE: &str = r#"{"changes": [{"change": "move", "function": "d0/vf1", "to": "b"}]}"#;
const ADD: &str = r#"{"changes": [{"change": "add-drive", "allow_any_host": true,
    "drive": {"name": "d9", "backing": "/etc/shadow"}}]}"#;

#[test]
fn roles_may_what_their_privileges_say() {
    let all = [Role::ReadOnly, Role::Operator, Role::Administrator];
    // From the left: who may not.
    for (method, path, body, refused) in [
        (Method::GET, "/v1/inventory", "", 0),
        (Method::GET, "/v1/configuration", "", 0),
        (Method::GET, "/v1/certificate", "", 0),
        (Method::GET, "/v1/accounts", "", 2),
        (Method::POST, "/v1/changes", MOVE, 1),
        (Method::POST, "/v1/changes", "{", 1),
        (Method::POST, "/v1/images", "", 1),
        (Method::PUT, "/v1/configuration", "", 2),
        (Method::POST, "/v1/reload", "", 2),
        (Method::POST, "/v1/accounts", "", 2),
        (Method::DELETE, "/v1/accounts/me", "", 2),
        (Method::PATCH, "/v1/accounts/you", "", 2),
        (Method::PATCH, "/v1/accounts/me", "", 0),
        (Method::PATCH, "/v1/accounts/7", "", 0),
        (Method::PUT, "/v1/certificate", "", 2),
        (Method::POST, "/v1/certificate/request", "", 2),
        (Method::GET, "/v1/keys", "", 2),
        (Method::HEAD, "/v1/keys", "", 2),
        (Method::POST, "/v1/keys", "", 2),
        (Method::DELETE, "/v1/keys/k1", "", 2),
        (Method::POST, "/v1/what/is/added/later", "", 2),
    ] {
        for (at, role) in all.into_iter().enumerate() {
            let outcome = allowed(&method, path, body.as_bytes(), &user(role, false));
            assert_eq!(outcome.is_err(), at < refused, "{method} {path} {role}");
        }
    }
}

#[test]
fn files_are_chosen_by_administrators() {
    let transaction: Transaction = serde_json::from_str(ADD).unwrap();
    assert!(matches!(transaction.changes[..], [Change::AddDrive(_)]));
    let add = |role| allowed(&Method::POST, "/v1/changes", ADD.as_bytes(), &user(role, false)).is_ok();
    assert!(!add(Role::Operator) && add(Role::Administrator));
}

#[test]
fn who_sees_a_part_learns_nothing_of_keys() {
    let part =
        User { reach: ebof_access::AccountReach::only(["d0".to_owned()], []), ..user(Role::Administrator, false) };
    for (method, path) in [(Method::GET, "/v1/keys"), (Method::POST, "/v1/keys"), (Method::DELETE, "/v1/keys/k1")] {
        assert!(allowed(&method, path, b"", &part).is_err(), "{method} {path}");
    }
}

#[test]
fn who_has_to_change_the_password_may_do_nothing_else() {
    let admin = user(Role::Administrator, true);
    let refusal = allowed(&Method::GET, "/v1/status", b"", &admin).unwrap_err();
    let response = refusal.into_response(super::super::refusal::Realm::Control);
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert!(allowed(&Method::PATCH, "/v1/accounts/me", b"", &admin).is_ok());
    assert!(allowed(&Method::PATCH, "/v1/accounts/you", b"", &admin).is_err());
}
