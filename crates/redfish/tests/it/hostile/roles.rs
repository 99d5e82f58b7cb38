//! Who may do what: each method of each address by each role, by strangers, and by those who have
//! to change their password first.

use ebof_access::{Role, User};
use serde_json::Value;

use super::known::KNOWN;
use super::populated::Populated;
use super::{Endpoint, addresses, documented, endpoints, matches};

/// What only Administrators change; [`OWN`] is everybody's.
const ADMINISTRATORS: &[(&str, &str)] = &[
    ("PATCH", "SessionService"),
    ("PATCH", "AccountService"),
    ("POST", "AccountService/Accounts"),
    ("PATCH", "AccountService/Accounts/{ManagerAccountId}"),
    ("DELETE", "AccountService/Accounts/{ManagerAccountId}"),
    ("POST", "KeyService/NVMeoFSecrets"),
    ("DELETE", "KeyService/NVMeoFSecrets/{KeyId}"),
    ("PATCH", "KeyService/NVMeoFKeyPolicies/{KeyPolicyId}"),
    ("PATCH", "EventService"),
    ("POST", "EventService/Actions/EventService.SubmitTestEvent"),
    ("POST", "EventService/Subscriptions"),
    ("PATCH", "EventService/Subscriptions/{EventDestinationId}"),
    ("DELETE", "EventService/Subscriptions/{EventDestinationId}"),
    ("POST", "EventService/Subscriptions/{EventDestinationId}/Actions/EventDestination.SuspendSubscription"),
    ("POST", "EventService/Subscriptions/{EventDestinationId}/Actions/EventDestination.ResumeSubscription"),
    ("POST", "CertificateService/Actions/CertificateService.GenerateCSR"),
    ("POST", "CertificateService/Actions/CertificateService.ReplaceCertificate"),
    ("PATCH", "Managers/ebof/NetworkProtocol"),
    ("POST", "Managers/ebof/Actions/Manager.Reset"),
    ("POST", "Managers/ebof/LogServices/Events/Actions/LogService.ClearLog"),
    ("POST", "Managers/ebof/LogServices/ConnectionsRefused/Actions/LogService.ClearLog"),
    ("POST", "Managers/ebof/LogServices/SlowCommands/Actions/LogService.ClearLog"),
    ("POST", "Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Plan"),
    ("POST", "Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Apply"),
    ("POST", "Managers/ebof/Oem/Ebof/Configuration/Actions/EbofConfiguration.Edit"),
    // Whoever names a file that is served can read it.
    ("POST", "Chassis/enclosure/Actions/Oem/EbofChassis.AddDrive"),
];

/// What everybody may do: log in, and end a session of one's own.
const EVERYBODY: &[(&str, &str)] =
    &[("POST", "SessionService/Sessions"), ("DELETE", "SessionService/Sessions/{SessionId}")];

/// What everybody may read without an account.
const PUBLIC: &[&str] =
    &["/redfish", "/redfish/v1/", "/redfish/v1/odata", "/redfish/v1/$metadata", "/redfish/v1/openapi.yaml"];

/// So is what `$metadata` refers to.
fn is_public(path: &str) -> bool {
    PUBLIC.contains(&path) || path.starts_with("/redfish/v1/schemas/")
}

/// A condition that never holds: who may do what is refused for it, and nothing is changed.
const NEVER: &[(&str, &[u8])] = &[("if-match", b"\"never\"")];

fn is_of(list: &[(&str, &str)], endpoint: &Endpoint) -> bool {
    let below = endpoint.pattern.strip_prefix("/redfish/v1/").unwrap_or_default();
    list.contains(&(endpoint.method.as_str(), below))
}

#[test]
fn each_role_may_change_what_is_meant_for_it() {
    let box_ = Populated::new();
    let all = endpoints(&box_);
    for (method, pattern) in ADMINISTRATORS {
        assert!(all.iter().any(|one| is_of(&[(method, pattern)], one)), "{method} {pattern} is not there");
    }
    let before = box_.now();
    for endpoint in &all {
        for role in Role::ALL {
            let user = box_.user(role);
            let is_own_account = endpoint.path.ends_with(&format!("/Accounts/{}", user.account));
            let may = match role {
                _ if is_of(EVERYBODY, endpoint) || (is_own_account && endpoint.method == "PATCH") => true,
                Role::Administrator => true,
                Role::Operator => !is_of(ADMINISTRATORS, endpoint),
                _ => false,
            };
            let answer = box_.ask(Some(user), &endpoint.method, &endpoint.path, b"{}", NEVER);
            let expected = if may { 412 } else { 403 };
            assert_eq!(answer.status, expected, "{role} {} {}: {}", endpoint.method, endpoint.path, answer.body);
        }
    }
    assert_eq!(before, box_.now());
}

/// The registry of privileges says of each type of resource what is so.
#[test]
fn the_registry_of_privileges_says_what_is_so() {
    let box_ = Populated::new();
    let path = "/redfish/v1/Registries/EbofPrivileges/EbofPrivileges.1.0.0.json";
    let registry = box_.admin("GET", path, b"", &[]).body;
    let entities: Vec<&str> =
        registry["Mappings"].as_array().unwrap().iter().map(|it| it["Entity"].as_str().unwrap()).collect();
    let mut checked = 0;
    for (path, resource) in addresses(&box_) {
        let Some(kind) = resource.as_ref().and_then(|it| it["@odata.type"].as_str()) else { continue };
        let kind = kind.trim_start_matches('#').split('.').next().unwrap();
        let Some(at) = entities.iter().position(|entity| *entity == kind) else { continue };
        for role in Role::ALL {
            let user = box_.user(role);
            let is_own = path.ends_with(&format!("/{}", user.account))
                || user.session.as_ref().is_some_and(|id| path.ends_with(&format!("/{id}")));
            for method in ["GET", "HEAD", "PATCH", "POST", "PUT", "DELETE"] {
                let mapping = &registry["Mappings"][at];
                let is_of = |target: &Value| matches(target.as_str().unwrap(), &path);
                let overrides = mapping["ResourceURIOverrides"].as_array().into_iter().flatten();
                let mut own = overrides.filter(|one| one["Targets"].as_array().unwrap().iter().any(is_of));
                let operations = own.next().unwrap_or(mapping);
                let any = operations["OperationMap"][method].as_array().unwrap();
                let has = |name: &Value| {
                    let own = role.privileges().iter().any(|privilege| privilege.name() == name);
                    name == "NoAuth" || (own && (name != "ConfigureSelf" || is_own))
                };
                let may = any.iter().any(|all| all["Privilege"].as_array().unwrap().iter().all(has));
                let answer = box_.ask(Some(user), method, &path, b"{}", NEVER);
                // Whose session it is, is looked at where it is ended.
                if kind != "Session" || method != "DELETE" || is_own {
                    assert_eq!(answer.status != 403, may, "{role} {method} {path} ({kind}): {}", answer.status);
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 1000, "{checked}");
}

#[test]
fn a_file_is_named_by_administrators_only() {
    let box_ = Populated::new();
    let all = endpoints(&box_);
    let before = box_.now();
    for known in KNOWN.iter().filter(|known| known.body.contains("\"Backing\"")) {
        let (path, headers, body) = known.request(&all, "");
        let answer = box_.ask(Some(box_.user(Role::Operator)), known.method, &path, &body, &headers);
        assert_eq!(answer.status, 403, "{path}: {}", answer.body);
    }
    assert_eq!(before, box_.now());
}

#[test]
fn sessions_and_accounts_of_others_are_theirs() {
    let box_ = Populated::new();
    let (operator, reader) = (box_.user(Role::Operator), box_.user(Role::ReadOnly));
    let before = box_.now();
    let session = |user: &User| format!("/redfish/v1/SessionService/Sessions/{}", user.session.clone().unwrap());
    let account = |user: &User| format!("/redfish/v1/AccountService/Accounts/{}", user.account);
    for (method, path, body) in [
        ("DELETE", session(operator), &b""[..]),
        ("DELETE", "/redfish/v1/SessionService/Sessions/0000000000000000".to_owned(), b""),
        ("GET", account(operator), b""),
        ("PATCH", account(operator), br#"{"Password": "another one"}"#),
        ("PATCH", account(reader), br#"{"RoleId": "Administrator"}"#),
        ("PATCH", account(reader), br#"{"Password": "another one", "RoleId": "Administrator"}"#),
        ("PATCH", account(reader), br#"{"Password": "another one", "Enabled": true}"#),
        ("DELETE", account(reader), b""),
    ] {
        let answer = box_.ask(Some(reader), method, &path, body, &[]);
        assert_eq!(answer.status, 403, "{method} {path}: {}", answer.body);
    }
    // By expanding nobody sees more.
    let all = box_.ask(Some(reader), "GET", "/redfish/v1/AccountService/Accounts?$expand=*", b"", &[]).body;
    let shown = all["Members"].as_array().unwrap().iter().filter(|one| one.get("UserName").is_some());
    assert_eq!(shown.count(), 1, "the own one: {all}");
    assert_eq!(before, box_.now());
    assert_eq!(box_.ask(Some(reader), "DELETE", &session(reader), b"", &[]).status, 204);
}

const METHODS: [&str; 9] = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"];

#[test]
fn strangers_reach_nothing_but_the_root() {
    let box_ = Populated::new();
    let before = box_.now();
    let mut all: Vec<String> = addresses(&box_).into_keys().collect();
    all.extend(documented(&box_).into_iter().map(|(pattern, _)| pattern.replace(['{', '}'], "x")));
    all.extend(["/redfish/v1/EventService/SSE", "/redfish/v1/Nowhere", "/redfish/v2", "/other"].map(str::to_owned));
    all.extend(PUBLIC.iter().map(|&path| path.to_owned()));
    for path in &all {
        for method in METHODS {
            let is_public = is_public(path);
            let expected = match (method, path.as_str()) {
                ("GET" | "HEAD", _) if is_public => 200,
                ("OPTIONS", _) if is_public => 204,
                _ if is_public => 405,
                // Logging in: there is no name.
                ("POST", "/redfish/v1/SessionService/Sessions") => 400,
                _ => 401,
            };
            for query in ["", "?$expand=*($levels=6)", "?only"] {
                if is_public && !query.is_empty() {
                    continue;
                }
                let answer = box_.ask(None, method, &format!("{path}{query}"), b"{}", &[]);
                assert_eq!(answer.status, expected, "{method} {path}{query}: {}", answer.body);
                if answer.status == 401 {
                    assert!(answer.headers.contains_key("www-authenticate"), "{method} {path}");
                    assert!(!answer.headers.contains_key("allow"), "{method} {path} tells what there is");
                    let text = answer.body.to_string();
                    let told = answer.body["error"]["code"].as_str().unwrap_or("Base.1.18.NoValidSession");
                    assert!(told.ends_with(".NoValidSession"), "{method} {path}: {text}");
                }
            }
        }
    }
    // Nor by expanding what everybody may read.
    let root = box_.ask(None, "GET", "/redfish/v1/?$expand=*($levels=6)", b"", &[]).body;
    assert!(root["Chassis"].as_object().is_some_and(|link| link.len() == 1), "{root}");
    assert_eq!(before, box_.now());
}

#[test]
fn who_has_to_change_the_password_may_do_nothing_else() {
    let box_ = Populated::new();
    let before = box_.now();
    let user = User { must_change_password: true, ..box_.user(Role::Administrator).clone() };
    let own = [
        format!("/redfish/v1/AccountService/Accounts/{}", user.account),
        format!("/redfish/v1/SessionService/Sessions/{}", user.session.clone().unwrap()),
    ];
    let mut refused = 0;
    for path in addresses(&box_).into_keys() {
        for method in METHODS.into_iter().filter(|method| *method != "OPTIONS") {
            let answer = box_.ask(Some(&user), method, &path, b"{}", NEVER);
            let is_free = own.contains(&path)
                || is_public(&path)
                || path.ends_with("/SessionService/Sessions") && method == "POST"
                || path.contains("/SessionService/Sessions/") && method == "DELETE";
            if !is_free {
                assert_eq!(answer.status, 403, "{method} {path}: {}", answer.body);
                refused += 1;
            }
        }
    }
    assert!(refused > 1000, "{refused}");
    let other = format!("/redfish/v1/SessionService/Sessions/{}", box_.user(Role::ReadOnly).session.clone().unwrap());
    assert_eq!(box_.ask(Some(&user), "DELETE", &other, b"", &[]).status, 403);
    let answer = box_.ask(Some(&user), "PATCH", &own[0], br#"{"RoleId": "Administrator"}"#, &[]);
    assert_eq!(answer.status, 403, "{}", answer.body);
    assert_eq!(before, box_.now());
}
