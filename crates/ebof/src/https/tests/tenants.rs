//! An account that is limited to a drive, over `/ebof/v1`: what is others' is not there.

use super::*;

const MARK: &str = "markb";

const TENANTS: &str = "[[ports]]\nname = \"fabric0\"\nlisten = \"tcp://127.0.0.1:0\"\n\
    [[ports]]\nname = \"markb-port\"\nlisten = \"tcp://127.0.0.1:0\"\n\
    [[hosts]]\nnqn = \"nqn.2014-08.org.example:markb-host\"\n\
    [[drives]]\nname = \"d0\"\nbacking = \"mem:64Mi\"\nfunctions = 2\n\
    [[drives]]\nname = \"markb1\"\nbacking = \"mem:64Mi\"\nfunctions = 2\n\
    [[subsystems]]\nnqn = \"nqn.2014-08.org.example:d0\"\nallow_any_host = true\ndrive = \"d0\"\nports = [\"fabric0\"]\n\
    [[subsystems]]\nnqn = \"nqn.2014-08.org.example:markb1\"\ndrive = \"markb1\"\n\
    allowed_hosts = [\"nqn.2014-08.org.example:markb-host\"]\nports = [\"fabric0\", \"markb-port\"]\n\
    [[subsystems]]\nnqn = \"nqn.2014-08.org.example:markb-plain\"\nallow_any_host = true\nnamespaces = [\"mem:1Mi\"]\n\
    ports = [\"markb-port\"]\n";

fn tenants() -> (Rig, String) {
    let second = Duration::from_secs(1);
    let times = Times { handshake: second, head: second, body: second, stall: second, delivery: second };
    let rig = rig_of(TENANTS, times);
    let new = NewAccount {
        name: "tenant".to_owned(),
        password: PASSWORD.to_owned(),
        role: Role::Operator,
        reach: AccountReach::only(["d0".to_owned()], []),
        enabled: true,
        must_change_password: false,
    };
    rig.remote.access.add_account(&new).unwrap();
    let session = token(&rig.session("tenant"));
    (rig, session)
}

// @test redfish.limited
#[test]
fn nothing_of_others_is_told_over_the_api() {
    let (rig, tenant) = tenants();
    let admin = token(&rig.session("administrator"));
    // Something happens to both.
    for drive in ["d0", "markb1"] {
        let change = format!(r#"{{"changes": [{{"change": "weight", "function": "{drive}/vf1", "weight": 4}}]}}"#);
        assert_eq!(rig.request("POST /ebof/v1/changes", &admin, &change).status, 202);
    }
    let listed = rig.get("/ebof/v1", &admin).json();
    let mut marked = 0;
    for path in listed["resources"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()) {
        let paths: Vec<String> = match path {
            "/v1/drives/NAME" => ["d0", "markb1"].map(|name| path.replace("NAME", name)).into(),
            "/v1/tasks" => vec![path.to_owned(), "/v1/tasks/1".to_owned(), "/v1/tasks/2".to_owned()],
            _ => vec![path.to_owned()],
        };
        for path in paths {
            let told = rig.get(&format!("/ebof{path}"), &tenant);
            // What was asked for is repeated.
            let is_blind = !told.body.contains(MARK) && !told.head.contains(MARK);
            assert!(is_blind || (path.contains(MARK) && told.status == 404), "{path}: {}", told.body);
            marked += usize::from(rig.get(&format!("/ebof{path}"), &admin).body.contains(MARK));
        }
    }
    assert!(marked >= 6, "{marked}");
    for path in ["/ebof/v1/inventory", "/ebof/v1/status", "/ebof/v1/configuration"] {
        let told = rig.get(path, &tenant);
        assert!(told.status == 200 && told.body.contains("d0") && told.body.contains("fabric0"), "{}", told.body);
    }
    assert_eq!(rig.get("/ebof/v1/tasks", &tenant).json().as_array().unwrap().len(), 1);
    for path in ["/ebof/v1/accounts", "/ebof/v1/audit", "/ebof/v1/configuration/history"] {
        assert_eq!(rig.get(path, &tenant).status, 403, "{path}");
    }
}

// @test redfish.limited
#[test]
fn what_is_others_is_answered_as_what_does_not_exist() {
    let (rig, tenant) = tenants();
    let both = |head: &str, body: &str| {
        let told = rig.request(head, &tenant, body);
        let nothing = rig.request(&head.replace("markb1", "nosuc1"), &tenant, &body.replace("markb1", "nosuc1"));
        assert_eq!(told.status, nothing.status, "{head} {body}");
        assert_eq!(told.body.replace("markb1", "nosuc1"), nothing.body, "{head} {body}");
        told.status
    };
    assert_eq!(both("GET /ebof/v1/drives/markb1", ""), 404);
    assert_eq!(both("GET /ebof/v1/history?object=function:markb1/vf1", ""), 404);
    assert_eq!(both("GET /ebof/v1/history?object=drive:markb1", ""), 404);
    for change in [
        r#"{"change": "weight", "function": "markb1/vf1", "weight": 4}"#,
        r#"{"change": "assign", "function": "markb1/vf1", "port": "fabric0"}"#,
        r#"{"change": "create-namespace", "drive": "markb1", "size_bytes": 4096}"#,
        r#"{"change": "reset-drive", "drive": "markb1"}"#,
        r#"{"change": "sanitize-drive", "drive": "markb1", "action": "block-erase"}"#,
    ] {
        assert_eq!(both("POST /ebof/v1/changes", &format!("{{\"changes\": [{change}]}}")), 422, "{change}");
    }
    // A port of others is none, and what is for the whole box is not for a part.
    let to_port = r#"{"changes": [{"change": "assign", "function": "d0/vf1", "port": "markb-port"}]}"#;
    assert_eq!(rig.request("POST /ebof/v1/changes", &tenant, to_port).status, 422);
    for drive in ["d0", "markb1", "nosuch"] {
        let remove = format!(r#"{{"changes": [{{"change": "remove-drive", "drive": "{drive}"}}]}}"#);
        let told = rig.request("POST /ebof/v1/changes", &tenant, &remove);
        assert!(told.status == 403 && told.body.contains("not-allowed"), "{}", told.body);
    }
    let weight = r#"{"changes": [{"change": "weight", "function": "d0/vf1", "weight": 4}]}"#;
    assert_eq!(rig.request("POST /ebof/v1/changes", &tenant, weight).status, 202);
}
