//! Revisions, whom a plan disturbs, and the JSON form, which is stable.

use super::*;
use crate::api::{Peer, STATUS_SCHEMA};
use crate::config::Security;
use crate::load;

const FULL: &str = r#"
[[ports]]
name = "a"
listen = "tcp://10.0.0.1:4420"
[[ports]]
name = "b"
listen = "tcp://10.0.0.2:4420"
[[hosts]]
nqn = "ann"
[[drives]]
name = "d0"
backing = "/srv/d0.img"
[[subsystems]]
nqn = "disks"
allow_any_host = true
ports = ["a", "b"]
namespaces = ["/srv/a.img", "/srv/b.img"]
[[subsystems]]
nqn = "box"
allow_any_host = true
ports = ["a"]
drive = "d0"
"#;

fn config(text: &str) -> Config {
    load("a.toml", text).unwrap().config
}

fn controller(cntlid: u16, host: &str, subsystem: &str, port: &str) -> ControllerStatus {
    ControllerStatus {
        cntlid,
        subsystem_nqn: subsystem.into(),
        host_nqn: host.into(),
        host_id: String::new(),
        port: port.into(),
        peer: Peer::SameProcess,
        discovery: false,
        proof: Security::Anyone,
        connected_since_unix_ms: 0,
        keep_alive_ms: 0,
        queues: Vec::new(),
    }
}

fn status(controllers: Vec<ControllerStatus>) -> Status {
    Status {
        schema: STATUS_SCHEMA,
        version: String::new(),
        uptime_s: 0,
        generation: 1,
        connections: 0,
        connections_max: 1,
        ana_group_max: 128,
        confinement: None,
        keys_unprotected: None,
        ports: Vec::new(),
        disabled_ports: Vec::new(),
        missing: Vec::new(),
        subsystems: Vec::new(),
        drives: Vec::new(),
        controllers,
        proving: Vec::new(),
    }
}

fn connected() -> Status {
    status(vec![
        controller(1, "ann", "disks", "a"),
        controller(2, "bob", "disks", "b"),
        controller(128, "ann", "box", "a"),
        controller(1, "vm", "box:vf2", "b"),
        controller(7, "eve", "boxes", "a"),
    ])
}

/// `change host@subsystem: why` of a change from [`FULL`].
fn disturbed(desired: &str) -> Vec<String> {
    let planned = Planned::new(&config(FULL), config(desired), &connected(), Diagnostics::default());
    let line =
        |it: &Disturbed| format!("{}: {}@{}: {}", planned.plan[it.change].text, it.host_nqn, it.subsystem_nqn, it.why);
    planned.disturbed.iter().map(line).collect()
}

#[test]
fn a_revision_is_that_of_the_content() {
    let revision = |text: &str| Revision::from_config(&config(text));
    assert_eq!(revision(FULL), revision(&format!("# the same\n{FULL}")));
    assert_eq!(revision(FULL), Revision::from_config(&config(&config(FULL).to_toml().unwrap())));
    assert_ne!(revision(FULL), revision(&FULL.replace("b.img", "c.img")));
    assert_ne!(
        revision(FULL),
        revision(&FULL.replace("allow_any_host = true\nports = [\"a\"]", "allowed_hosts = [\"ann\"]\nports = [\"a\"]"))
    );
}

// @test data.plan-names-hosts
#[test]
fn who_loses_something_is_told() {
    assert_eq!(disturbed(FULL), Vec::<String>::new());
    assert_eq!(
        disturbed(&FULL.replace(", \"/srv/b.img\"", "")),
        [
            "remove namespace 2 of disks: ann@disks: namespace 2 goes",
            "remove namespace 2 of disks: bob@disks: namespace 2 goes"
        ]
    );
    // The number that the file does not set goes to no other file, so this one is named.
    let other = FULL.replace("\"/srv/b.img\"", "{ nsid = 2, drive = \"/srv/c.img\" }");
    assert!(
        disturbed(&other)[0].ends_with("namespace 2 goes, and another disk gets its NSID"),
        "{:?}",
        disturbed(&other)
    );
    let port = FULL
        .replace("[[ports]]\nname = \"b\"\nlisten = \"tcp://10.0.0.2:4420\"\n", "")
        .replace("\"a\", \"b\"", "\"a\"");
    let told = disturbed(&port);
    assert!(told.contains(&"remove port b: bob@disks: its connection ends: port b goes".to_owned()), "{told:?}");
    assert!(told.contains(&"remove port b: vm@box:vf2: its connection ends: port b goes".to_owned()), "{told:?}");
    assert!(!told.iter().any(|line| line.contains("ann@")), "{told:?}");
    assert_eq!(told.len(), 2, "once for each host: {told:?}");
    let told = disturbed(&FULL.replace("\"a\", \"b\"", "\"a\""));
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].ends_with("bob@disks: its connection ends: its subsystem is not at port b any more"), "{told:?}");
    let number = FULL.replace("name = \"b\"\n", "name = \"b\"\nid = 7\n");
    assert_eq!(disturbed(&number).len(), 2, "{:?}", disturbed(&number));
}

// @test data.plan-names-hosts
#[test]
fn what_changes_for_hosts_of_a_subsystem_is_told() {
    let hosts = FULL.replacen("allow_any_host = true", "allowed_hosts = [\"ann\"]", 1);
    let told = disturbed(&hosts);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].ends_with("bob@disks: its connection ends: the host may not connect any more"), "{told:?}");
    // A renamed port is the same port.
    let renamed = FULL.replace("name = \"b\"", "name = \"c\"").replace("\"a\", \"b\"", "\"a\", \"c\"");
    assert_eq!(disturbed(&renamed), Vec::<String>::new());
    let serial = FULL.replacen("nqn = \"disks\"", "nqn = \"disks\"\nserial = \"S2\"", 1);
    assert!(disturbed(&serial)[1].ends_with("bob@disks: it knows another serial, until it connects again"));
    // Functions of a drive go with it.
    let without = &FULL[..FULL.rfind("[[subsystems]]").unwrap()];
    let told = disturbed(without);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("ann@box: its connection ends") && told[1].contains("vm@box:vf2: its"), "{told:?}");
}

/// Who is disturbed by `desired` instead of `current`, of hosts that have proven this.
fn disturbed_of(current: &str, desired: &str, proofs: &[(&str, &str, Security)]) -> Vec<String> {
    let of = |&(host, subsystem, proof): &(&str, &str, Security)| ControllerStatus {
        proof,
        ..controller(1, host, subsystem, "a")
    };
    let status = status(proofs.iter().map(of).collect());
    let planned = Planned::new(&config(current), config(desired), &status, Diagnostics::default());
    planned.disturbed.iter().map(|it| format!("{}@{}: {}", it.host_nqn, it.subsystem_nqn, it.why)).collect()
}

// @test data.plan-names-hosts
#[test]
fn who_lacks_a_proof_that_is_demanded_or_loses_its_key_is_told() {
    let proofs = [
        ("kim", "disks", Security::Anyone),
        ("bob", "disks", Security::Authenticated),
        ("eve", "disks", Security::Tls),
        ("sam", "disks", Security::AuthenticatedTls),
        ("kim", "box", Security::Anyone),
    ];
    let demands = |word: &str| FULL.replacen("nqn = \"disks\"", &format!("nqn = \"disks\"\nsecurity = \"{word}\""), 1);
    let who = |told: Vec<String>| -> Vec<String> {
        told.iter().map(|line| line.split(": ").next().unwrap().to_owned()).collect()
    };
    let by = |word: &str| who(disturbed_of(FULL, &demands(word), &proofs));
    assert_eq!(by("authenticated"), ["kim@disks", "eve@disks"]);
    assert_eq!(by("tls"), ["kim@disks", "bob@disks"]);
    assert_eq!(by("authenticated+tls"), ["kim@disks", "bob@disks", "eve@disks"]);
    assert_eq!(who(disturbed_of(&demands("tls"), FULL, &proofs)), [""; 0], "less is demanded");

    // Of a host: a key comes, goes, or goes with the host.
    let key = |nqn: &str, keys: &[&str]| {
        let keys: Vec<String> = keys.iter().map(|key| format!("{key} = {{ file = \"/k\" }}\n")).collect();
        format!("[[hosts]]\nnqn = \"{nqn}\"\n{}", keys.concat())
    };
    let with = |base: &str, hosts: &str| format!("{base}\n{hosts}");
    let secret = with(FULL, &key("kim", &["dhchap_key"]));
    assert_eq!(who(disturbed_of(FULL, &secret, &proofs)), ["kim@disks", "kim@box"]);
    let strict = demands("authenticated");
    let bobs = with(&strict, &key("bob", &["dhchap_key"]));
    assert_eq!(who(disturbed_of(&bobs, &with(&strict, &key("bob", &[])), &proofs)), ["bob@disks"]);
    assert_eq!(who(disturbed_of(&bobs, &strict, &proofs)), ["bob@disks"]);
    let free = with(FULL, &key("bob", &["dhchap_key"]));
    assert_eq!(who(disturbed_of(&free, FULL, &proofs)), [""; 0], "nobody asks for its proof");
    let eves = with(FULL, &key("eve", &["tls_psk"]));
    assert_eq!(who(disturbed_of(&eves, FULL, &proofs)), ["eve@disks"]);
    let sams = with(FULL, &key("sam", &["dhchap_key"]));
    assert_eq!(who(disturbed_of(&sams, FULL, &proofs)), ["sam@disks"], "its key for TLS was generated");
}

// @test data.plan-names-hosts
#[test]
fn the_list_of_disturbed_hosts_is_bounded() {
    let many = (0..DISTURBED_MAX + 5).map(|at| controller(1, &format!("h{at}"), "disks", "a")).collect();
    let desired = config(&FULL.replace(", \"/srv/b.img\"", ""));
    let planned = Planned::new(&config(FULL), desired, &status(many), Diagnostics::default());
    assert_eq!((planned.disturbed.len(), planned.disturbed_left_out), (DISTURBED_MAX, 5));
}

#[test]
fn the_json_keys_are_stable() {
    let desired = load("a.toml", &FULL.replace(", \"/srv/b.img\"", "").replace("allow_any_host = true\n", "")).unwrap();
    let mut planned = Planned::new(&config(FULL), desired.config, &connected(), desired.remarks);
    // The digest of a text that has ebof's version.
    planned.revision = Revision::named("r0");
    let file = Source::File { path: "/etc/ebof.toml".into(), differs: Some(true), problem: None };
    let applied = Applied {
        schema: CONFIGURATION_SCHEMA,
        revision: Revision::named("r2"),
        plan: planned.plan[..1].to_vec(),
        source: Source::Arguments,
        generation: None,
        remarks: Diagnostics::default(),
    };
    let revision = Revision::named("r1");
    let configuration = Configuration {
        schema: CONFIGURATION_SCHEMA,
        revision,
        source: file,
        generation: Some(7),
        toml: "# all\n".into(),
    };
    let refused = RefusedConfiguration::text(load("a.toml", "[[port]]\n").unwrap_err());
    let text = |value: Result<String, serde_json::Error>| value.unwrap().replace(env!("CARGO_PKG_VERSION"), "VERSION");
    insta::assert_snapshot!("planned", text(serde_json::to_string_pretty(&planned)));
    insta::assert_snapshot!("applied", text(serde_json::to_string_pretty(&applied)));
    insta::assert_snapshot!("configuration", text(serde_json::to_string_pretty(&configuration)));
    insta::assert_snapshot!("refused", text(serde_json::to_string_pretty(&refused)));
    // Clients read what targets write.
    let again = serde_json::to_string(&planned).unwrap();
    assert_eq!(serde_json::from_str::<Planned>(&again).unwrap(), planned);
    let again = serde_json::to_string(&refused).unwrap();
    assert_eq!(serde_json::from_str::<RefusedConfiguration>(&again).unwrap(), refused);
}
