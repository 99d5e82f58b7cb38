//! Sessions and passwords that are not, or not any more, those of who shows them.

use super::*;

/// Where others are. All addresses of loopback are one place.
const fn elsewhere(last: u8) -> [u8; 4] {
    [192, 0, 2, last]
}

/// Statuses of a token and a password for both APIs.
fn statuses(rig: &Rig, lines: &[&str]) -> Vec<u16> {
    let paths = ["/ebof/v1/status", "/redfish/v1/Chassis"];
    lines.iter().flat_map(|lines| paths.map(|path| rig.get(path, lines).status)).collect()
}

#[test]
fn a_session_ends_with_what_it_stands_for() {
    let rig = rig_with(Times::default());
    let admin = token(&rig.session("administrator"));
    let account = |name: &str| {
        let accounts = rig.remote.access.accounts();
        let id = accounts.iter().find(|account| account.name == name).unwrap().id;
        format!("/redfish/v1/AccountService/Accounts/{id}")
    };
    let role = r#"{"RoleId": "ReadOnly"}"#;
    for (method, name, body) in [
        ("PATCH", "operator", role),
        ("PATCH", "operator", r#"{"RoleId": "Operator"}"#),
        ("PATCH", "operator", r#"{"UserName": "op"}"#),
        ("PATCH", "op", r#"{"Password": "another password"}"#),
        ("DELETE", "readonly", ""),
    ] {
        let session = token(&rig.session(name));
        assert_eq!(statuses(&rig, &[&session]), [200, 200]);
        let path = account(name);
        let lines = format!("{admin}Content-Type: application/json\r\n");
        let changed = rig.request(&format!("{method} {path}"), &lines, body);
        assert!(matches!(changed.status, 200 | 204), "{method} {path} {body}: {}", changed.body);
        assert_eq!(statuses(&rig, &[&session]), [401, 401], "{method} {path} {body}");
        let attempt = rig.request("POST /ebof/v1/changes", &session, r#"{"changes": []}"#);
        assert_eq!(attempt.status, 401, "{}", attempt.body);
    }
    // Nor is a password of before remembered.
    assert_eq!(statuses(&rig, &[&basic("op", PASSWORD), &basic("readonly", PASSWORD)]), [401; 4]);
    assert_eq!(statuses(&rig, &[&basic("op", "another password")]), [200, 200]);
}

#[test]
fn a_token_is_of_no_use_from_another_address() {
    let rig = rig_with(Times::default());
    let access = &rig.remote.access;
    let user = access.login(elsewhere(1).into(), "administrator", PASSWORD).unwrap();
    let stolen = access.open_session(&user, elsewhere(1).into()).unwrap().1;
    for head in ["GET /ebof/v1/status", "GET /redfish/v1/Chassis", "POST /ebof/v1/reload"] {
        let answer = rig.request(head, &token(&stolen), "");
        assert_eq!(answer.status, 401, "{head}: {}", answer.body);
    }
    access.by_token(stolen.text(), elsewhere(1).into()).expect("its owner goes on");
    let other = "X-Auth-Token: ".to_owned() + &"0".repeat(64) + "\r\n";
    let many = format!("X-Auth-Token: {}\r\n", "a".repeat(3000));
    for lines in [&other, &many, "X-Auth-Token: \r\n", "X-Auth-Token: \u{e9}\r\n", "Cookie: token=1\r\n"] {
        assert_eq!(statuses(&rig, &[lines]), [401, 401], "{lines}");
    }
}

/// Somebody's name may be the number of another account.
#[test]
fn a_number_is_not_the_name_of_somebody_else() {
    let rig = rig_with(Times::default());
    let accounts = rig.remote.access.accounts();
    let reader = accounts.iter().find(|account| account.name == "readonly").unwrap().id.to_string();
    let password = PASSWORD.to_owned();
    let named = NewAccount {
        name: reader.clone(),
        password,
        role: Role::Administrator,
        reach: ebof_access::AccountReach::Everything,
        enabled: true,
        must_change_password: false,
    };
    rig.remote.access.add_account(&named).unwrap();
    let session = token(&rig.session("readonly"));
    let head = format!("PATCH /ebof/v1/accounts/{reader}");
    let answer = rig.request(&head, &session, r#"{"password": "taken over"}"#);
    assert_eq!(answer.status, 404, "{}", answer.body);
    assert_eq!(statuses(&rig, &[&basic(&reader, PASSWORD)]), [200, 200]);
    assert_eq!(rig.get("/ebof/v1/status", &basic(&reader, "taken over")).status, 401);
}

#[test]
fn guessing_is_slowed_by_address_and_by_account() {
    let rig = rig_with(Times::default());
    let access = &rig.remote.access;
    let login = |name: &str, password: &str| {
        let body = format!("{{\"UserName\": \"{name}\", \"Password\": \"{password}\"}}");
        rig.request("POST /redfish/v1/SessionService/Sessions", "Content-Type: application/json\r\n", &body)
    };
    let wait = |answer: &Answer| answer.header("retry-after").map_or(0, |seconds| seconds.parse::<u64>().unwrap());
    rig.session("administrator");
    for name in ["administrator", "operator", "nobody"] {
        // From many addresses, so that none of them has to wait.
        for at in 0..10 {
            access.login(elsewhere(at).into(), name, "guess").unwrap_err();
        }
    }
    // The account is locked, for an address that has done nothing, with the right password, too,
    // and whether there is such an account or not.
    for (name, password) in [("operator", "guess"), ("operator", PASSWORD), ("nobody", PASSWORD)] {
        let answer = login(name, password);
        assert!(answer.status == 401 && (60..=300).contains(&wait(&answer)), "{}: {}", answer.head, answer.body);
        assert!(answer.body.contains("or may not be tried now"), "{}", answer.body);
        let answer = rig.get("/ebof/v1/status", &basic(name, password));
        assert!(answer.status == 429 && (60..=300).contains(&wait(&answer)), "{}: {}", answer.head, answer.body);
    }
    // Others do not lock out whose user has been here before.
    assert_eq!(login("administrator", PASSWORD).status, 201);
    // An address that guesses waits, whatever names it tries; and longer each time.
    for at in 0..6 {
        assert_eq!(login(&format!("user{at}"), "guess").status, 401);
    }
    let answer = login("readonly", PASSWORD);
    assert!(answer.status == 401 && wait(&answer) > 0, "{}: {}", answer.head, answer.body);
    assert!(access.login(elsewhere(99).into(), "readonly", PASSWORD).is_ok(), "others do not");
}

/// The API of the control socket, as far as `GET /v1` tells of it, and what is beside.
#[test]
fn strangers_and_readers_change_nothing_anywhere() {
    let rig = rig_with(Times::default());
    let reader = token(&rig.session("readonly"));
    let mut paths: Vec<String> = rig.get("/ebof/v1", &reader).json()["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| format!("/ebof{}", path.as_str().unwrap()))
        .collect();
    assert!(paths.len() > 15, "{paths:?}");
    paths.extend(
        [
            "/ebof",
            "/ebof/v1",
            "/ebof/v1/",
            "/ebof//v1/status",
            "/ebof/v1/tasks/1",
            "/ebof/v1/drives/d0",
            "/ebof/v1/%61ccounts",
        ]
        .map(str::to_owned),
    );
    let before = rig.remote.access.accounts();
    let (mut stranger, mut user) = (rig.client(), rig.client());
    for path in &paths {
        for method in ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW"] {
            for query in ["", "?plan=1", "?wait_ms=0"] {
                let head = format!("{method} {path}{query}");
                if method == "HEAD" {
                    // Its answer has the length of a body that is not sent.
                    assert_eq!(head_status(&rig, &head, ""), 401, "{head}");
                    continue;
                }
                let answer = stranger.request(&head, "", "{}");
                assert_eq!(answer.status, 401, "{head}: {}", answer.body);
                if method != "GET" && query.is_empty() {
                    let answer = user.request(&head, &reader, "{}");
                    assert!(matches!(answer.status, 403 | 405), "{head}: {} {}", answer.status, answer.body);
                }
                for (client, answer) in [(&mut stranger, &answer)] {
                    if answer.head.contains("connection: close") {
                        *client = rig.client();
                    }
                }
            }
        }
    }
    assert_eq!(before, rig.remote.access.accounts());
    // What is for everybody says nothing about the target; metrics have an address of their own.
    for (path, status) in [("/healthz", 200), ("/readyz", 404), ("/metrics", 404), ("/", 200), ("/../etc/passwd", 404)]
    {
        assert_eq!(rig.get(path, "").status, status, "{path}");
        assert_eq!(rig.request(&format!("POST {path}"), "", "{}").status, 405, "{path}");
    }
}

fn head_status(rig: &Rig, head: &str, lines: &str) -> u16 {
    let mut client = rig.client();
    client.send(format!("{head} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n").as_bytes()).unwrap();
    let mut text = Vec::new();
    while let Some(byte) = client.byte() {
        text.push(byte);
    }
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with("\r\n\r\n"), "{text}");
    text[9..12].parse().unwrap()
}
