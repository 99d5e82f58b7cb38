//! Sessions, accounts and roles through requests.

use ebof_access::{AccountChange, User};
use serde_json::{Value, json};

use crate::Service;
use crate::request::caller::Caller;
use crate::service::tests::{ask_of, code, parts};

const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
const ACCOUNTS: &str = "/redfish/v1/AccountService/Accounts";

struct World {
    service: Service,
    password: String,
}

impl World {
    /// With an administrator `admin`, who has to change the password.
    fn new() -> Self {
        let parts = parts();
        let mut password = String::new();
        let told = |told: &str| {
            told.clone_into(&mut password);
            Ok::<_, ebof_access::Mistake>(())
        };
        parts.access.ensure_administrator("admin", told).unwrap();
        Self { service: Service::new(parts), password }
    }

    /// The same, once that is changed.
    fn settled() -> Self {
        let mut world = Self::new();
        let id = "1".parse().unwrap();
        let change = AccountChange { password: Some("correct horse".to_owned()), ..AccountChange::default() };
        world.service.parts().access.change_account(id, &change, None).unwrap();
        world.password = "correct horse".to_owned();
        world
    }

    fn ask(&self, method: &str, uri: &str, body: Value, by: &Caller) -> (u16, http::HeaderMap, Value) {
        ask_of(&self.service, method, uri, &[], body, by)
    }

    /// Logs in, and is somebody with that session.
    fn login(&self, name: &str, password: &str) -> (Caller, String) {
        let body = json!({ "UserName": name, "Password": password });
        let (status, headers, _) = self.ask("POST", SESSIONS, body, &nobody());
        assert_eq!(status, 201);
        let user = self.by(headers["x-auth-token"].to_str().unwrap()).unwrap();
        (Caller { user: Some(user), ..nobody() }, headers["location"].to_str().unwrap().to_owned())
    }

    fn by(&self, token: &str) -> Option<User> {
        self.service.parts().access.by_token(token, [127, 0, 0, 1].into()).ok()
    }
}

fn nobody() -> Caller {
    Caller { user: None, refused: false, peer: "127.0.0.1:9".parse().unwrap() }
}

#[test]
fn a_session_is_opened_used_and_ended() {
    let world = World::settled();
    let (status, headers, body) = world.ask(
        "POST",
        &format!("{SESSIONS}/Members"),
        json!({ "UserName": "admin", "Password": "correct horse" }),
        &nobody(),
    );
    assert_eq!((status, body["UserName"].as_str(), body["Password"].is_null()), (201, Some("admin"), true));
    assert!(!body.to_string().contains("correct horse"));
    assert_eq!(headers["location"].to_str().unwrap(), body["@odata.id"]);
    let by = Caller { user: world.by(headers["x-auth-token"].to_str().unwrap()), ..nobody() };
    let place = headers["location"].to_str().unwrap();
    assert_eq!(world.ask("GET", place, Value::Null, &by).0, 200);
    assert_eq!(world.ask("DELETE", place, Value::Null, &by).0, 204);
    assert!(world.by(headers["x-auth-token"].to_str().unwrap()).is_none());
    assert_eq!(world.ask("DELETE", place, Value::Null, &by).0, 404);
    let kinds: Vec<_> = world.service.parts().events.since(0, 9).events.iter().map(|event| event.kind.name()).collect();
    assert_eq!(kinds, ["session-began", "session-ended"]);
}

#[test]
fn a_wrong_password_is_refused_and_then_has_to_wait() {
    let world = World::settled();
    let mut waits = 0;
    for attempt in 0..8 {
        let body = json!({ "UserName": "admin", "Password": format!("wrong {attempt}") });
        let (status, headers, body) = world.ask("POST", SESSIONS, body, &nobody());
        assert_eq!((status, code(&body)), (401, "ResourceAtUriUnauthorized"));
        assert!(!body.to_string().contains("wrong"));
        waits += u32::from(headers.contains_key("retry-after"));
    }
    assert!(waits >= 2, "{waits}");
    for (body, id) in [
        (json!({}), "GeneralError"),
        (json!({ "UserName": "admin" }), "PropertyMissing"),
        (json!({ "UserName": "admin", "Password": 12_345_678 }), "PropertyValueError"),
        (json!({ "UserName": "admin", "Password": "x", "Token": "y" }), "PropertyUnknown"),
    ] {
        let (status, _, body) = world.ask("POST", SESSIONS, body, &nobody());
        assert_eq!((status, code(&body)), (400, id));
        assert!(!body.to_string().contains("12345678"));
    }
}

// @test redfish.first-password
#[test]
fn the_first_password_is_changed_before_anything_else() {
    let world = World::new();
    let body = json!({ "UserName": "admin", "Password": world.password });
    let (status, headers, body) = world.ask("POST", SESSIONS, body, &nobody());
    assert_eq!(status, 201);
    let message = &body["@Message.ExtendedInfo"][0];
    assert_eq!(message["MessageArgs"][0], format!("{ACCOUNTS}/1"));
    let by = Caller { user: world.by(headers["x-auth-token"].to_str().unwrap()), ..nobody() };
    let own = format!("{ACCOUNTS}/1");
    for (method, uri) in [("GET", "/redfish/v1/Chassis"), ("GET", ACCOUNTS), ("DELETE", &own), ("POST", ACCOUNTS)] {
        let (status, _, body) = world.ask(method, uri, Value::Null, &by);
        assert_eq!((status, code(&body)), (403, "PasswordChangeRequired"), "{method} {uri}");
    }
    assert_eq!(world.ask("GET", &own, Value::Null, &by).2["PasswordChangeRequired"], true);
    let short = world.ask("PATCH", &own, json!({ "Password": "short" }), &by);
    assert_eq!((short.0, code(&short.2)), (400, "PropertyValueError"));
    assert_eq!(world.ask("PATCH", &own, json!({ "RoleId": "ReadOnly" }), &by).0, 403);
    let (status, _, body) = world.ask("PATCH", &own, json!({ "Password": "long enough" }), &by);
    assert_eq!((status, &body["PasswordChangeRequired"]), (200, &json!(false)));
    let by = Caller { user: world.by(headers["x-auth-token"].to_str().unwrap()), ..nobody() };
    assert_eq!(world.ask("GET", "/redfish/v1/Chassis", Value::Null, &by).0, 200, "the session goes on");
}

// @test redfish.first-password
#[test]
fn accounts_are_added_changed_and_removed() {
    let world = World::settled();
    let (admin, _) = world.login("admin", "correct horse");
    let new = json!({ "UserName": "watch", "Password": "look at it", "RoleId": "ReadOnly" });
    let (status, headers, body) = world.ask("POST", ACCOUNTS, new.clone(), &admin);
    assert_eq!((status, body["RoleId"].as_str()), (201, Some("ReadOnly")));
    let place = headers["location"].to_str().unwrap().to_owned();
    let again = world.ask("POST", ACCOUNTS, new, &admin);
    assert_eq!((again.0, code(&again.2)), (400, "ResourceAlreadyExists"));
    let (reader, session) = world.login("watch", "look at it");
    for (method, uri, body, status) in [
        ("GET", ACCOUNTS, Value::Null, 200),
        ("GET", &format!("{ACCOUNTS}/1"), Value::Null, 403),
        ("GET", place.as_str(), Value::Null, 200),
        ("PATCH", &place, json!({ "RoleId": "Administrator" }), 403),
        ("PATCH", &place, json!({ "Password": "look at it", "Enabled": true }), 403),
        ("PATCH", &place, json!({ "Password": "look at this" }), 200),
        ("DELETE", &place, Value::Null, 403),
        ("POST", ACCOUNTS, json!({}), 403),
        ("PATCH", "/redfish/v1/AccountService", json!({ "AccountLockoutThreshold": 0 }), 403),
    ] {
        assert_eq!(world.ask(method, uri, body, &reader).0, status, "{method} {uri}");
    }
    let all = world.ask("GET", &format!("{ACCOUNTS}?$expand=."), Value::Null, &reader).2;
    let members: Vec<bool> =
        all["Members"].as_array().unwrap().iter().map(|member| member.get("UserName").is_some()).collect();
    assert_eq!(members, [false, true], "others' accounts are not shown by expanding");
    let changed = json!({ "UserName": "look", "RoleId": "Operator", "AccountTypes": ["Redfish"], "PasswordChangeRequired": true });
    let (status, _, body) = world.ask("PATCH", &place, changed, &admin);
    assert_eq!((status, body["UserName"].as_str(), body["RoleId"].as_str()), (200, Some("look"), Some("Operator")));
    assert_eq!(world.ask("GET", &session, Value::Null, &admin).0, 404, "another role ends sessions");
    for (body, property) in [
        (json!({ "Locked": true }), "#/Locked"),
        (json!({ "RoleId": "Root" }), "#/RoleId"),
        (json!({ "AccountTypes": ["IPMI"] }), "#/AccountTypes"),
        (json!({ "UserName": "a b" }), "#/UserName"),
        (json!({ "Id": "7" }), "#/Id"),
    ] {
        let (status, _, body) = world.ask("PATCH", &place, body, &admin);
        let messages = &body["error"]["@Message.ExtendedInfo"];
        assert_eq!((status, &messages[0]["RelatedProperties"][0]), (400, &json!(property)));
    }
    assert_eq!(world.ask("DELETE", &place, Value::Null, &admin).0, 204);
    assert_eq!(world.ask("GET", &place, Value::Null, &admin).0, 404);
    let last = world.ask("DELETE", &format!("{ACCOUNTS}/1"), Value::Null, &admin);
    assert_eq!((last.0, code(&last.2)), (400, "AccountNeeded"));
}

#[test]
fn settings_of_logins_are_changed() {
    let world = World::settled();
    let (admin, _) = world.login("admin", "correct horse");
    let service = "/redfish/v1/AccountService";
    let (status, _, body) = world.ask(
        "PATCH",
        service,
        json!({ "AccountLockoutThreshold": 5, "AccountLockoutDuration": 60, "AccountLockoutCounterResetAfter": 30,
                "HTTPBasicAuth": "Disabled" }),
        &admin,
    );
    assert_eq!(
        (status, &body["AccountLockoutDuration"], &body["HTTPBasicAuth"]),
        (200, &json!(60), &json!("Disabled"))
    );
    let (status, _, body) = world.ask("PATCH", service, json!({ "AccountLockoutCounterResetAfter": 61 }), &admin);
    assert_eq!((status, code(&body)), (400, "PropertyValueNotInList"));
    let sessions = "/redfish/v1/SessionService";
    let change = json!({ "SessionTimeout": 60, "Oem": { "Ebof": { "BoundToAddress": false } } });
    let (status, _, body) = world.ask("PATCH", sessions, change, &admin);
    assert_eq!(
        (status, &body["SessionTimeout"], &body["Oem"]["Ebof"]["BoundToAddress"]),
        (200, &json!(60), &json!(false))
    );
    assert_eq!(world.ask("PATCH", sessions, json!({ "SessionTimeout": 29 }), &admin).0, 400);
    let role = world.ask("GET", "/redfish/v1/AccountService/Roles/Operator", Value::Null, &admin).2;
    assert_eq!(role["AssignedPrivileges"], json!(["Login", "ConfigureSelf", "ConfigureComponents"]));
    assert_eq!(world.ask("GET", "/redfish/v1/AccountService/Roles/Root", Value::Null, &admin).0, 404);
}
