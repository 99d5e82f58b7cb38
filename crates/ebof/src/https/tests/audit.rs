//! What is recorded of requests over the network.

use super::*;

const SECRET: &str = "SECRET-of-a-new-account";

fn records(rig: &Rig) -> Vec<Value> {
    let admin = token(&rig.session("administrator"));
    let told = rig.get("/ebof/v1/audit?verify=1&max=10000", &admin);
    assert_eq!(told.status, 200, "{}", told.body);
    let told = told.json();
    assert_eq!(told["report"]["findings"].as_array().unwrap().len(), 0, "{}", told["report"]);
    told["records"].as_array().unwrap().clone()
}

/// The records with this text in what was asked for.
fn of<'r>(records: &'r [Value], what: &str) -> Vec<&'r Value> {
    records.iter().filter(|record| record["what"].as_str().unwrap().contains(what)).collect()
}

// @test audit.before-the-answer
#[test]
fn changes_and_refusals_are_recorded_with_who_and_from_where() {
    let rig = rig();
    let (admin, operator) = (token(&rig.session("administrator")), token(&rig.session("operator")));
    let weight = r#"{"changes": [{"change": "weight", "function": "d0/vf1", "weight": 4}]}"#;
    assert_eq!(rig.request("POST /ebof/v1/changes", &operator, weight).status, 202);
    let all = records(&rig);
    let change = of(&all, "POST /ebof/v1/changes");
    assert_eq!(change.len(), 1, "{all:?}");
    assert_eq!((&change[0]["who"], &change[0]["from"]), (&"operator (Operator)".into(), &"127.0.0.1".into()));
    assert_eq!((&change[0]["outcome"], &change[0]["kind"]), (&"began".into(), &"change".into()));
    assert!(change[0]["detail"].as_str().unwrap().contains("give d0/vf1 the weight 4"), "{change:?}");
    // Refused: by the role, for want of credentials, for a wrong password.
    assert_eq!(rig.request("POST /ebof/v1/reload", &operator, "").status, 403);
    assert_eq!(rig.request("POST /ebof/v1/reload", "", "").status, 401);
    assert_eq!(rig.get("/ebof/v1/status", &basic("operator", "a wrong one")).status, 401);
    let path = "/redfish/v1/SessionService/Sessions";
    let login = |name: &str, password: &str| format!(r#"{{"UserName": "{name}", "Password": "{password}"}}"#);
    assert_eq!(rig.request(&format!("POST {path}"), "", &login("operator", "another wrong one")).status, 401);
    let opened = rig.request(&format!("POST {path}"), "", &login("operator", PASSWORD));
    assert_eq!(opened.status, 201);
    // A new account, whose password is nowhere.
    let account = format!(r#"{{"name": "jo", "password": "{SECRET}", "role": "ReadOnly"}}"#);
    assert_eq!(rig.request("POST /ebof/v1/accounts", &admin, &account).status, 201);
    let account = format!(r#"{{"UserName": "jim", "Password": "{SECRET}", "RoleId": "ReadOnly"}}"#);
    assert_eq!(rig.request("POST /redfish/v1/AccountService/Accounts", &admin, &account).status, 201);
    // Refusals are written within a turn.
    let all = loop {
        let all = records(&rig);
        if of(&all, "log in").len() == 2 && of(&all, "reload").len() == 2 {
            break all;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    for (record, who, reason) in
        of(&all, "reload").iter().zip(["operator (Operator)", ""]).map(|(it, who)| (it, who, "40"))
    {
        assert_eq!((&record["who"], &record["outcome"]), (&who.into(), &"refused".into()), "{record}");
        assert!(record["detail"].as_str().unwrap().starts_with(reason), "{record}");
    }
    for record in of(&all, "log in") {
        let who = (&record["who"], &record["from"], &record["kind"]);
        assert_eq!(who, (&"operator".into(), &"127.0.0.1".into(), &"login".into()), "{record}");
        assert!(record["detail"].as_str().unwrap().contains("password is wrong"), "{record}");
    }
    let session = of(&all, path);
    assert_eq!((&session[0]["kind"], &session[0]["outcome"], session.len()), (&"login".into(), &"done".into(), 1));
    let added = of(&all, "account-added");
    assert!(added.len() == 2 && added[0]["who"] == "administrator", "{added:?}");
    let text = serde_json::to_string(&all).unwrap();
    for secret in [SECRET, PASSWORD, "a wrong one", "another wrong one"] {
        assert!(!text.contains(secret), "{secret}");
    }
    // It is an Administrator's, over Redfish too.
    assert_eq!(rig.get("/ebof/v1/audit", &operator).status, 403);
    let entries = "/redfish/v1/Managers/ebof/LogServices/Audit/Entries";
    assert_eq!(rig.get(entries, &operator).status, 403);
    let told = rig.get(entries, &admin);
    assert!(told.status == 200 && told.body.contains("POST /ebof/v1/changes"), "{}", told.body);
    let clear = "POST /redfish/v1/Managers/ebof/LogServices/Audit/Actions/LogService.ClearLog";
    assert_eq!(rig.request(clear, &admin, "{}").status, 404);
}

#[test]
fn a_log_that_was_changed_is_told_and_heads_are_looked_for() {
    let rig = rig();
    let admin = token(&rig.session("administrator"));
    for weight in 1..5 {
        let change = format!(r#"{{"changes": [{{"change": "weight", "function": "d0/vf1", "weight": {weight}}}]}}"#);
        assert_eq!(rig.request("POST /ebof/v1/changes", &admin, &change).status, 202);
    }
    let head = rig.get("/ebof/v1/audit", &admin).json()["head"].clone();
    let head = format!("{}:{}", head["n"], head["hash"].as_str().unwrap());
    let looked = |query: &str| {
        let told = rig.get(&format!("/ebof/v1/audit?verify=1{query}"), &admin);
        assert_eq!(told.status, 200, "{}", told.body);
        told.json()["report"]["findings"].as_array().unwrap().len()
    };
    assert_eq!(looked(&format!("&head={head}&head={head}")), 0);
    assert_eq!(looked(&format!("&head=1:{}", "0".repeat(64))), 1);
    assert_eq!(rig.get("/ebof/v1/audit?head=1", &admin).status, 400);
    let state = rig.remote.state.path().to_owned();
    let mut files = std::fs::read_dir(state).unwrap().map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|end| end == "log")).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("the weight 3", "the weight 9", 1)).unwrap();
    assert!(looked("") > 0);
}

/// A key of a host, which is nowhere but where keys are.
const KEY: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

// @test redfish.keys
#[test]
fn keys_are_added_and_removed_over_redfish_and_their_texts_are_nowhere() {
    let rig = rig();
    let (admin, operator) = (token(&rig.session("administrator")), token(&rig.session("operator")));
    let path = "/redfish/v1/KeyService/NVMeoFSecrets";
    let body = |key: &str| {
        format!(
            r#"{{"KeyString": "{key}", "KeyType": "NVMeoF", "NVMeoF": {{"NQN": "nqn.2014-08.org.example:blade1"}}}}"#
        )
    };
    assert_eq!(rig.request(&format!("POST {path}"), &operator, &body(KEY)).status, 403);
    let damaged = rig.request(&format!("POST {path}"), &admin, &body(&KEY.replace("AAEC", "AAED")));
    assert!(damaged.status == 400 && damaged.body.contains("checksum"), "{}", damaged.body);
    let added = rig.request(&format!("POST {path}"), &admin, &body(KEY));
    assert_eq!(added.status, 201, "{}", added.body);
    let place = added.json()["@odata.id"].as_str().unwrap().to_owned();
    let again = rig.request(&format!("POST {path}"), &admin, &body(KEY));
    assert!(again.status == 400 && again.body.contains("has this key already"), "{}", again.body);
    let shown = rig.get(&place, &admin);
    assert_eq!((shown.status, rig.get(&place, &operator).status), (200, 403));
    assert_eq!(rig.request(&format!("DELETE {place}"), &admin, "").status, 204);
    assert_eq!(rig.get(&place, &admin).status, 404);
    let all = records(&rig);
    let told = of(&all, &format!("POST {path}"));
    let done = told.iter().find(|record| record["outcome"] == "done").unwrap();
    let detail = done["detail"].as_str().unwrap();
    assert!(detail.contains("KeyString, KeyType, NVMeoF") && detail.contains(&place), "{done}");
    assert_eq!((of(&all, "key-added").len(), of(&all, "key-removed").len()), (1, 1), "{all:?}");
    let events = rig.get("/redfish/v1/Managers/ebof/LogServices/Events/Entries", &admin).body;
    assert!(events.contains("KeyAdded"), "{events}");
    let texts = [serde_json::to_string(&all).unwrap(), events, added.body, again.body, damaged.body, shown.body];
    for text in &texts {
        assert!(!text.contains("AAEC") && !text.contains("AAED") && !text.contains("KfiaR"), "{text}");
    }
}
