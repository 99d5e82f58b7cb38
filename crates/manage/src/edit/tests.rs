//! What becomes of a configuration, and what is wrong with edits.
#![allow(clippy::needless_pass_by_value, reason = "tests hand over literals")]

use serde_json::{Value, json};

use super::*;
use crate::load;
use crate::plan::Plan;

const NQN: &str = "nqn.2014-08.org.example:disks";

const TEXT: &str = r#"
[[ports]]
name = "a"
listen = "tcp://127.0.0.1:4420"
[[ports]]
listen = "tcp://127.0.0.2:4420"
[[ports]]
name = "direct1"
listen = "vfio-user:/run/ebof/1.sock"
[[hosts]]
nqn = "nqn.2014-08.org.example:alice"
[[drives]]
name = "d0"
backing = "/srv/d0.img"
serial = "S1"
[[subsystems]]
nqn = "nqn.2014-08.org.example:disks"
allowed_hosts = ["nqn.2014-08.org.example:alice"]
namespaces = ["/srv/one.img", { drive = "mem:1M", nsid = 7 }]
[[subsystems]]
nqn = "nqn.2014-08.org.example:d0"
allow_any_host = true
ports = ["a"]
drive = "d0"
"#;

fn current() -> Config {
    load("a.toml", TEXT).unwrap().config
}

fn edits(all: Value) -> Edits {
    serde_json::from_value(json!({ "edits": all })).unwrap()
}

/// The plan of edits, as it is shown.
fn plan(all: Value) -> String {
    let current = current();
    let mut next = edits(all).made_to(&current).unwrap_or_else(|refused| panic!("{refused}")).config;
    next.keep_numbers(&current);
    // What is in force is what is stored, and read at the next start.
    assert_eq!(load("b.toml", &next.to_toml().unwrap()).unwrap().config, next);
    Plan::between(&current, &next).to_string()
}

fn refused(all: Value) -> Vec<Mistake> {
    edits(all).made_to(&current()).unwrap_err().mistakes
}

fn told(all: Value) -> String {
    refused(all).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn objects_are_added() {
    let plans = [
        json!([{ "edit": "add-port", "keys": { "listen": "tcp://127.0.0.3", "name": "c", "discovery_only": false } }]),
        json!([{ "edit": "add-port", "keys": { "listen": "tcp://127.0.0.3" }, "subsystems": ["nqn.2014-08.org.example:d0"] }]),
        json!([{ "edit": "add-port", "keys": { "listen": "tcp://127.0.0.3:1", "discovery_only": true } }]),
        json!([{ "edit": "add-port", "keys": { "listen": "vfio-user:/run/ebof/2.sock" } }]),
        json!([{ "edit": "add-host", "keys": { "nqn": "nqn.2014-08.org.example:bob" }, "subsystems": [NQN] }]),
        json!([{ "edit": "add-subsystem", "keys": { "nqn": "nqn.2014-08.org.example:new", "namespaces": ["mem:2M"],
                 "allowed_hosts": ["nqn.2014-08.org.example:bob", "nqn.2014-08.org.example:alice"] } }]),
        json!([{ "edit": "add-namespace", "subsystem": NQN, "keys": { "drive": "mem:3M", "block_size": 4096 } }]),
        // In one step, each using what the one before has made.
        json!([{ "edit": "add-port", "keys": { "listen": "tcp://127.0.0.3" } },
               { "edit": "add-subsystem", "keys": { "nqn": "nqn.x:y", "allow_any_host": true, "ports": ["tcp://127.0.0.3:4420"] } },
               { "edit": "add-namespace", "subsystem": "nqn.x:y", "keys": { "drive": "null:1M", "nsid": 3 } }]),
    ];
    insta::assert_snapshot!(plans.map(plan).join("\n----\n"));
}

#[test]
fn objects_are_removed_with_what_refers_to_them() {
    let plans = [
        json!([{ "edit": "remove", "object": { "port": "a" } }]),
        json!([{ "edit": "remove", "object": { "host": "nqn.2014-08.org.example:alice" } }]),
        json!([{ "edit": "remove", "object": { "subsystem": NQN } }]),
        json!([{ "edit": "remove", "object": { "namespace": { "subsystem": NQN, "nsid": 7 } } }]),
    ];
    insta::assert_snapshot!(plans.map(plan).join("\n----\n"));
}

#[test]
fn keys_are_set_and_names_followed() {
    let set = |object: Value, keys: Value| json!([{ "edit": "set", "object": object, "keys": keys }]);
    let plans = [
        set(json!({ "port": "a" }), json!({ "name": "b", "max_queue_size": 128 })),
        set(json!({ "port": "tcp://127.0.0.2:4420" }), json!({ "listen": "tcp://127.0.0.9" })),
        set(json!({ "port": "a" }), json!({ "name": null })),
        set(json!({ "host": "nqn.2014-08.org.example:alice" }), json!({ "nqn": "nqn.2014-08.org.example:bob" })),
        set(json!({ "drive": "d0" }), json!({ "serial": "S2", "name": "d1" })),
        set(json!({ "subsystem": NQN }), json!({ "model": "disk", "allow_any_host": true })),
        set(json!({ "namespace": { "subsystem": NQN, "nsid": 7 } }), json!({ "write_protect": true })),
        set(json!("target"), json!({ "threads": 2 })),
        json!([{ "edit": "set", "object": { "subsystem": NQN }, "add": { "allowed_hosts": "nqn.2014-08.org.example:bob" },
                 "remove": { "allowed_hosts": ["nqn.2014-08.org.example:alice"], "ports": ["a"] } }]),
        json!([{ "edit": "resize", "subsystem": NQN, "nsid": 1, "size": "20M" }]),
        json!([{ "edit": "disable", "object": { "port": "a" } },
               { "edit": "disable", "object": { "subsystem": NQN } },
               { "edit": "disable", "object": { "namespace": { "subsystem": NQN, "nsid": 1 } } }]),
    ];
    insta::assert_snapshot!(plans.map(plan).join("\n----\n"));
}

#[test]
fn what_is_disabled_can_be_enabled_again() {
    let objects =
        [json!({ "port": "a" }), json!({ "subsystem": NQN }), json!({ "namespace": { "subsystem": NQN, "nsid": 7 } })];
    let current = current();
    let all = |edit: &str| edits(objects.iter().map(|object| json!({ "edit": edit, "object": object })).collect());
    let without = all("disable").made_to(&current).unwrap().config;
    assert_eq!((without.enabled_ports().count(), without.enabled_subsystems().count()), (2, 1));
    let again = all("enable").made_to(&without).unwrap().config;
    assert_eq!(again, current);
    let plan = Plan::between(&without, &again);
    assert_eq!(plan.effect(), Some(crate::plan::Effect::Live), "{plan}");
}

#[test]
fn all_mistakes_are_told_with_their_objects() {
    insta::assert_snapshot!(told(json!([
        { "edit": "add-port", "keys": { "listen": "tcp://127.0.0.1:4420", "nane": "x" } },
        { "edit": "set", "object": { "port": "b" }, "keys": { "tos": 1 } },
        { "edit": "set", "object": { "port": "a" }, "keys": { "max_queue_size": 1, "tos": "high" } },
        { "edit": "set", "object": { "subsystem": NQN }, "keys": { "namespaces": [], "seriall": "x" } },
        { "edit": "set", "object": { "subsystem": NQN }, "add": { "serial": "x" } },
        { "edit": "set", "object": { "namespace": { "subsystem": NQN, "nsid": 7 } }, "keys": { "block_size": 1024 } },
        { "edit": "add-namespace", "subsystem": "nqn.2014-08.org.example:d0", "keys": { "drive": "mem:1M" } },
        { "edit": "add-namespace", "subsystem": NQN, "keys": { "drive": "/srv/one.img" } },
        { "edit": "add-host", "keys": { "nqn": "nqn.2014-08.org.example:alice" }, "subsystems": ["nqn.2014-08.org.example:disk"] },
        { "edit": "remove", "object": { "namespace": { "subsystem": NQN, "nsid": 2 } } },
        { "edit": "remove", "object": { "drive": "d0" } },
        { "edit": "remove", "object": "target" },
        { "edit": "disable", "object": { "host": "nqn.2014-08.org.example:alice" } },
        { "edit": "resize", "subsystem": NQN, "nsid": 7, "size": "2M" },
        { "edit": "set", "object": "target", "keys": { "threads": 0 } },
    ])));
}

#[test]
fn a_mistake_names_its_edit() {
    let found = refused(json!([
        { "edit": "enable", "object": { "port": "a" } },
        { "edit": "set", "object": { "port": "a" }, "keys": { "max_queue_size": 1 } },
        { "edit": "remove", "object": { "host": "x" } },
    ]));
    let changes: Vec<_> = found.iter().map(|mistake| (mistake.change, mistake.kind)).collect();
    assert_eq!(changes, [(Some(2), MistakeKind::NotFound), (Some(0), MistakeKind::Value)], "{found:?}");
    let many = vec![json!({ "edit": "remove", "object": { "host": "x" } }); EDITS_MAX + 1];
    assert!(told(many.into()).contains("there are 257 edits; accepted: 1 to 256"));
    assert!(told(json!([])).contains("there are 0 edits"));
}

#[test]
fn relative_paths_need_a_place_to_begin_at() {
    let mut add = edits(json!([{ "edit": "add-namespace", "subsystem": NQN, "keys": { "drive": "two.img" } }]));
    assert!(add.made_to(&current()).unwrap_err().to_string().contains("nothing says where they begin"));
    add.base = Some("/srv".to_owned());
    let config = add.made_to(&current()).unwrap().config;
    assert_eq!(config.subsystems[0].namespaces[1].drive.path(), Some("/srv/two.img"));
}

#[test]
fn remarks_are_those_about_the_edits() {
    let loaded = edits(json!([{ "edit": "add-subsystem", "keys": { "nqn": "nqn.x:y" } }])).made_to(&current()).unwrap();
    let remarks: Vec<_> = loaded.remarks.items.iter().map(|remark| remark.message.as_str()).collect();
    assert_eq!(remarks, ["subsystem nqn.x:y: no host may connect to this subsystem"]);
    let loaded = edits(json!([{ "edit": "enable", "object": { "port": "a" } }])).made_to(&Config {
        subsystems: vec![crate::config::Subsystem::new(ebof_nvme::Nqn::parse("nqn.x:y").unwrap())],
        ..current()
    });
    assert!(loaded.unwrap().remarks.is_empty(), "what was remarkable before is not told again");
}

#[test]
fn strange_values_are_refused_and_nothing_panics() {
    let values =
        [json!(null), json!(7), json!("x"), json!([]), json!({}), json!([[{}]]), json!({ "nsid": [] }), json!(true)];
    let current = current();
    for kind in Kind::ALL {
        let object = match kind {
            Kind::Target => json!("target"),
            Kind::Port => json!({ "port": "a" }),
            Kind::Host => json!({ "host": "nqn.2014-08.org.example:alice" }),
            Kind::Drive => json!({ "drive": "d0" }),
            Kind::Subsystem => json!({ "subsystem": NQN }),
            Kind::Namespace => json!({ "namespace": { "subsystem": NQN, "nsid": 7 } }),
        };
        for (key, _) in kind.keys() {
            for value in &values {
                for other in &values {
                    let all = json!([
                        { "edit": "set", "object": object, "keys": { key: value } },
                        { "edit": "set", "object": object, "keys": { key: other }, "add": { key: value } },
                        { "edit": "remove", "object": object },
                    ]);
                    // Whatever comes of it.
                    let _made = edits(all).made_to(&current);
                }
                for edit in ["add-port", "add-host", "add-subsystem"] {
                    let _made = edits(json!([{ "edit": edit, "keys": { key: value } }])).made_to(&current);
                }
            }
        }
    }
}

#[test]
fn words_of_the_command_line_have_the_types_of_their_keys() {
    let read = |kind, all: &[&str]| words(kind, &all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
    let Words { keys, add, remove } = read(
        Kind::Subsystem,
        &[
            "model=7",
            "allow-any-host=yes",
            "cntlid_min=7",
            "ports=a,b",
            "allowed_hosts+=x",
            "allowed_hosts+=y",
            "ports-=c",
            "serial=",
        ],
    )
    .unwrap();
    let expected =
        json!({ "model": "7", "allow_any_host": true, "cntlid_min": 7, "ports": ["a", "b"], "serial": null });
    assert_eq!(Value::Object(keys), expected);
    assert_eq!(
        (Value::Object(add), Value::Object(remove)),
        (json!({ "allowed_hosts": ["x", "y"] }), json!({ "ports": ["c"] }))
    );
    let port = read(Kind::Port, &["in_capsule_data=16Ki", "max-h2c-data=4096", "name=7"]).unwrap();
    assert_eq!(Value::Object(port.keys), json!({ "in_capsule_data": "16Ki", "max_h2c_data": 4096, "name": "7" }));
    let drive = read(Kind::Drive, &["quotas={\"nqn.a:b\": \"1G\"}", "profile=default"]).unwrap();
    assert_eq!(Value::Object(drive.keys), json!({ "quotas": { "nqn.a:b": "1G" }, "profile": "default" }));
    // Entries of a table.
    let port = read(Kind::Port, &["ana.2=non-optimized", "ana.3=change", "ana.4=", "ana.5="]).unwrap();
    assert_eq!(Value::Object(port.add), json!({ "ana": { "2": "non-optimized", "3": "change" } }));
    assert_eq!((Value::Object(port.remove), port.keys.len()), (json!({ "ana": ["4", "5"] }), 0));
    let drive = read(Kind::Drive, &["quotas.nqn.2014-08.org.example:a=1G"]).unwrap();
    assert_eq!(Value::Object(drive.add), json!({ "quotas": { "nqn.2014-08.org.example:a": "1G" } }));
    let error = |kind, word| {
        let error = read(kind, &[word]).unwrap_err();
        format!("{error}; {}", error.advice())
    };
    assert_eq!(error(Kind::Port, "tosh=1"), "`tosh` is not a key of a port; did you mean `tos`?");
    assert!(error(Kind::Host, "x").contains("`x` has no =; accepted: KEY=VALUE"));
    assert_eq!(error(Kind::Port, "tos.1=2"), "`tos` is no table with an entry `1`; the type of `tos`: integer");
    assert!(error(Kind::Port, "ana.2+=change").contains("no table with an entry `2+`"));
    assert!(error(Kind::Port, "anna.2=change").contains("did you mean `ana`?"));
    assert!(error(Kind::Host, "zzz=1").contains("accepted: nqn"));
    // As JSON writes them, and as the configuration does.
    for place in ["{\"file\": \"/a b\"}", "{ file = \"/a b\" }", "{file='/a b'}"] {
        let host = read(Kind::Host, &[&format!("dhchap_key={place}")]).unwrap();
        assert_eq!(Value::Object(host.keys), json!({ "dhchap_key": { "file": "/a b" } }), "{place}");
    }
    let drive = read(Kind::Drive, &["quotas={ \"nqn.a:b\" = \"1G\" }"]).unwrap();
    assert_eq!(Value::Object(drive.keys), json!({ "quotas": { "nqn.a:b": "1G" } }));
    let hosts = read(Kind::Subsystem, &["allowed_hosts=['a', \"b\"]"]).unwrap();
    assert_eq!(Value::Object(hosts.keys), json!({ "allowed_hosts": ["a", "b"] }));
    // What is neither stays a text, and so does what is more than a value.
    for text in ["{ file", "{ file = 1 }\nnqn = \"x\"", "file = \"/a\""] {
        let host = read(Kind::Host, &[&format!("dhchap_key={text}")]).unwrap();
        assert_eq!(Value::Object(host.keys), json!({ "dhchap_key": text }));
    }
    assert!(read(Kind::Port, &["tos=1", "tos=2"]).unwrap_err().to_string().contains("given twice"));
}

#[test]
fn entries_of_a_table_are_set_and_taken_one_by_one() {
    let text =
        "[[ports]]\nname = \"a\"\nlisten = \"tcp://127.0.0.1\"\nana = { 1 = \"change\", 2 = \"inaccessible\" }\n";
    let current = crate::load("a.toml", text).unwrap().config;
    let made = |edit: Value| {
        let edits: Edits = serde_json::from_value(json!({ "edits": [edit] })).unwrap();
        serde_json::to_value(&edits.made_to(&current).unwrap().config.ports[0]).unwrap()["ana"].clone()
    };
    let port = json!({ "port": "a" });
    let set = json!({ "edit": "set", "object": port, "add": { "ana": { "1": "non-optimized", "3": "change" } } });
    assert_eq!(made(set), json!({ "1": "non-optimized", "2": "inaccessible", "3": "change" }));
    let set =
        json!({ "edit": "set", "object": port, "add": { "ana": { "1": "optimized" } }, "remove": { "ana": ["2"] } });
    assert_eq!(made(set), Value::Null);
    let set = json!({ "edit": "set", "object": port, "keys": { "ana": null }, "add": {}, "remove": { "ana": "7" } });
    assert_eq!(made(set), Value::Null);
    let wrong = json!({ "edits": [{ "edit": "set", "object": port, "add": { "ana": ["2"] } }] });
    let edits: Edits = serde_json::from_value(wrong).unwrap();
    assert!(edits.made_to(&current).unwrap_err().to_string().contains("`ana` is an array"));
}
