//! What is in a scope, and what is refused to those who have it.

use proptest::prelude::*;

use super::*;
use ebof_manage::api::{MissingKind, MissingObject};
use ebof_manage::enclosure::{Inventory, Transaction, check};

/// Three drives with functions, of which `a` is somebody's own.
fn inventory() -> Inventory {
    let drive = |name: &str, port: &str| {
        let function = serde_json::json!({
            "name": format!("{name}/vf1"), "nqn": format!("nqn.2014-08.org.example:{name}:vf1"), "online": true,
            "queues": 2, "interrupts": 2, "port": port, "port_exists": true, "namespaces": [], "hosts": [], "task": null,
            "share": { "weight": 1, "iops": null, "bytes_per_second": null, "minimum_iops": null },
        });
        serde_json::json!({
            "name": name, "nqn": format!("nqn.2014-08.org.example:{name}"), "serial": name, "backing": "mem:1Gi",
            "capacity_bytes": 1 << 30, "unallocated_bytes": 1 << 30, "temperature_kelvin": null, "critical_warning": 0,
            "resources": null, "functions": [function], "namespaces": [], "ports": [port], "hosts": [], "added": false,
            "task": null,
        })
    };
    let port = |name: &str| {
        serde_json::json!({ "name": name, "kind": "fabric", "listen": format!("tcp://192.0.2.1:{name}"),
            "discovery_only": false, "functions": [], "connections": 9 })
    };
    serde_json::from_value(serde_json::json!({
        "inventory_schema": 1, "version": "1", "pid": 1, "uptime_s": 1,
        "drives": [drive("a", "1"), drive("b", "2"), drive("a2", "2")],
        "subsystems": [{ "nqn": "nqn.2014-08.org.example:plain", "namespaces": 1, "ports": ["2"], "hosts": [] }],
        "ports": [port("1"), port("2")], "sensors": { "temperatures": [], "fans": [] }, "contradictions": [],
    }))
    .unwrap()
}

fn own(scope: &Scope) -> Own {
    Own::from_scope(scope, &ebof_manage::Config::default(), &inventory())
}

fn of_drive(name: &str) -> Scope {
    Scope { drives: [name.to_owned()].into(), ..Scope::default() }
}

#[test]
fn a_drive_and_its_subsystem_are_one_thing() {
    let by_nqn = Scope { subsystems: ["nqn.2014-08.org.example:a".to_owned()].into(), ..Scope::default() };
    for own in [own(&of_drive("a")), own(&by_nqn)] {
        assert!(own.has_drive("a") && own.has_subsystem("nqn.2014-08.org.example:a"));
        assert!(own.has_subsystem("nqn.2014-08.org.example:a:vf1") && own.has_port("1"));
        assert!(!own.has_port("2") && !own.has_drive("b") && !own.has_subsystem("nqn.2014-08.org.example:b"));
        for object in ["a", "a/vf1", "a/ns*", "nqn.2014-08.org.example:a/ns1"] {
            assert!(own.has_object(object), "{object}");
        }
        for object in ["", "a2", "a2/vf1", "a/vf1/x", "b/a", "/", "a/", "nqn.2014-08.org.example:ab/1"] {
            assert_eq!(own.has_object(object), object == "a/", "{object}");
        }
        let missing =
            |kind, name: &str| MissingObject { kind, name: name.to_owned(), reason: String::new(), since_unix_ms: 0 };
        assert!(own.has_missing(&missing(MissingKind::Drive, "a")));
        assert!(!own.has_missing(&missing(MissingKind::Management, "a")));
        assert!(!own.has_all_of(&[]), "a task without changes is nobody's");
    }
    assert!(own(&Scope::default()).has_object("a") != own(&of_drive("a")).has_object("a"));
}

proptest! {
    /// What a limited inventory does not have is refused as what does not exist, whatever its name.
    #[test]
    fn what_is_not_theirs_is_refused_as_what_does_not_exist(name in "(a|b|a2|c|[a-z]{1,4})", port in "(1|2|3)") {
        let limited = enclosure::limited(inventory(), &own(&of_drive("a")));
        let change = serde_json::json!({ "change": "assign", "function": format!("{name}/vf1"), "port": port });
        let transaction = Transaction { changes: vec![serde_json::from_value(change).unwrap()], ..Transaction::default() };
        let refused = check(&limited, &transaction).err().map(|refused| refused.to_string());
        let told = refused.clone().unwrap_or_default();
        prop_assert!(!told.contains("a2") || name == "a2", "{told}");
        prop_assert!(!told.contains("drive b") || name == "b", "{told}");
        prop_assert_eq!(refused.is_some(), name != "a" || port != "1", "{}", told);
    }
}
