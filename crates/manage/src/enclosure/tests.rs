//! Checks of transactions, and the JSON form, which is stable: a changed snapshot breaks programs
//! that parse it.

use super::*;
use crate::api::Asker;

fn function(name: &str, port: Option<&str>) -> FunctionObject {
    let name: FunctionName = name.parse().unwrap();
    FunctionObject {
        nqn: format!("nqn.2014-08.org.example:{}:vf{}", name.drive, name.number),
        known_as: None,
        name,
        online: port.is_some(),
        queues: 4,
        interrupts: 4,
        ports: port.into_iter().map(str::to_owned).collect(),
        port_exists: port.is_some(),
        share: ShareObject { weight: 100, iops: Some(50_000), bytes_per_second: None, minimum_iops: None },
        namespaces: vec!["d3/ns4".parse().unwrap()],
        hosts: Vec::new(),
        task: None,
    }
}

fn namespace(name: &str) -> NamespaceObject {
    NamespaceObject {
        ana_group: 1,
        name: name.parse().unwrap(),
        size_bytes: 1 << 30,
        block_size_bytes: 4096,
        metadata_bytes: 0,
        write_protected: false,
        format_percent: None,
        uuid: "6f3a1f1e-8f0b-4a57-9d0e-0d8f5b2f8c11".into(),
        shared: false,
        functions: vec!["d3/vf1".parse().unwrap()],
        hosts: Vec::new(),
    }
}

fn drive(name: &str, functions: Vec<FunctionObject>) -> DriveObject {
    DriveObject {
        name: name.into(),
        nqn: format!("nqn.2014-08.org.example:{name}"),
        serial: "S3RIAL0001".into(),
        backing: "disk.img".into(),
        capacity_bytes: 10 << 30,
        unallocated_bytes: 9 << 30,
        temperature_kelvin: Some(310),
        critical_warning: 0,
        resources: Some(Resources {
            queues_total: 64,
            queues_assigned: 8,
            interrupts_total: 64,
            interrupts_assigned: 8,
        }),
        functions,
        namespaces: vec![namespace(&format!("{name}/ns4"))],
        ports: vec!["fabric0".into()],
        hosts: vec![HostObject {
            nqn: "nqn.2014-08.org.example:host".into(),
            peer: "192.0.2.1:50000".into(),
            cntlid: 128,
            port: "fabric0".into(),
            io_queues: 4,
            connected_since_unix_ms: 1_700_000_000_000,
        }],
        namespaces_max: 128,
        formats: [(0, 512, 0), (1, 4096, 0), (2, 512, 8), (3, 4096, 8)]
            .map(|(index, block_size_bytes, metadata_bytes)| FormatObject { index, block_size_bytes, metadata_bytes })
            .into(),
        encrypts: name == "d4",
        sanitize_percent: None,
        self_test_percent: None,
        added: name == "d4",
        task: None,
    }
}

fn port(name: &str, kind: PortKind, listen: &str) -> PortObject {
    PortObject {
        name: name.into(),
        kind,
        listen: listen.into(),
        discovery_only: name == "discovery",
        functions: Vec::new(),
        connections: 3,
    }
}

pub(super) fn inventory() -> Inventory {
    let functions =
        vec![function("d3/vf1", Some("fabric0")), function("d3/vf2", None), function("d3/vf3", Some("direct1"))];
    Inventory {
        inventory_schema: INVENTORY_SCHEMA,
        version: "0.2.0".into(),
        pid: 4711,
        uptime_s: 3600,
        drives: vec![drive("d3", functions), drive("d4", Vec::new())],
        subsystems: vec![SubsystemObject {
            nqn: "nqn.2014-08.org.example:plain".into(),
            namespaces: 1,
            ports: vec!["fabric0".into()],
            hosts: Vec::new(),
        }],
        ports: vec![
            port("fabric0", PortKind::Fabric, "tcp://192.0.2.1:4420"),
            port("direct1", PortKind::Direct, "vfio-user:/run/ebof/direct1.sock"),
            port("direct2", PortKind::Direct, "vfio-user:/run/ebof/direct2.sock"),
            port("discovery", PortKind::Fabric, "tcp://192.0.2.1:8009"),
        ],
        sensors: Sensors {
            temperatures: vec![Temperature { name: "k10temp Tctl".into(), millidegrees_celsius: 45_125 }],
            fans: vec![Fan { name: "nct6775 fan1".into(), rpm: 1180 }],
        },
        contradictions: vec!["d3/vf9: given to port fabric7, which the configuration does not have".into()],
    }
}

fn transaction(json: &str) -> Transaction {
    serde_json::from_str(&format!("{{\"changes\": [{json}]}}")).unwrap()
}

fn mistakes(json: &str) -> Vec<String> {
    let refused = check(&inventory(), &transaction(json)).err().map(|refused| refused.mistakes).unwrap_or_default();
    refused.iter().map(|mistake| format!("{:?} {:?} {mistake}", mistake.kind, mistake.change)).collect()
}

#[test]
fn the_shape_of_an_inventory_is_stable() {
    let inventory = inventory();
    insta::assert_snapshot!(serde_json::to_string_pretty(&inventory).unwrap());
    let text = serde_json::to_string(&inventory).unwrap();
    assert_eq!(serde_json::from_str::<Inventory>(&text).unwrap(), inventory);
}

#[test]
fn the_shape_of_tasks_and_changes_is_stable() {
    let name = || "d3/vf2".parse::<FunctionName>().unwrap();
    let changes = vec![
        Change::Assign { function: name(), ports: [].into() },
        Change::Move { function: name(), to: ["direct1".into()].into() },
        Change::Map { namespace: "d3/ns4".parse().unwrap(), function: Some(name()) },
        Change::Weight { function: name(), weight: 4 },
        Change::Limit {
            function: name(),
            iops: Some(Rate(Some(50_000))),
            bytes_per_second: Some(Rate(None)),
            minimum_iops: None,
        },
        Change::ResetDrive { drive: "d3".into() },
        Change::AddDrive(serde_json::from_str(r#"{"drive": {"name": "d5", "backing": "mem:1G"}}"#).unwrap()),
        Change::RemoveDrive { drive: "d3".into(), surprise: true },
    ];
    let task = Task {
        task_schema: TASK_SCHEMA,
        id: 7,
        revision: 12,
        what: changes[1].to_string(),
        changes,
        by: Some(Asker::Account { name: "admin".into(), address: "192.0.2.1".into() }),
        state: TaskState::Failed,
        change: 1,
        phase: Phase::Ended,
        percent: 100,
        detail: None,
        began_unix_ms: 1_700_000_000_000,
        ended_unix_ms: Some(1_700_000_000_050),
        elapsed_ms: 50,
        made: Vec::new(),
        remark: None,
        error: Some(TaskError {
            change: 1,
            phase: Phase::Binding,
            message: "cannot move d3/vf2 to port direct1: the port is gone".into(),
            advice: "the function is where it was: choose another port".into(),
            remains: Vec::new(),
        }),
    };
    insta::assert_snapshot!(serde_json::to_string_pretty(&task).unwrap());
    let text = serde_json::to_string(&task).unwrap();
    assert_eq!(serde_json::from_str::<Task>(&text).unwrap(), task);
    let lines: Vec<String> = task.changes.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn phases_have_the_names_of_their_json() {
    for phase in Phase::ALL {
        assert_eq!(serde_json::to_value(phase).unwrap(), phase.name());
    }
}

#[test]
fn what_is_right_is_accepted() {
    for json in [
        r#"{"change": "assign", "function": "d3/vf2", "port": "fabric0"}"#,
        r#"{"change": "assign", "function": "d3/vf1", "port": "fabric0"}"#,
        r#"{"change": "assign", "function": "d3/vf2", "port": null}"#,
        r#"{"change": "move", "function": "d3/vf3", "to": "fabric0"}, {"change": "move", "function": "d3/vf1", "to": "direct1"}"#,
        r#"{"change": "map", "namespace": "d3/ns4", "function": "d3/vf2"}"#,
        r#"{"change": "map", "namespace": "d3/ns4", "function": null}"#,
        r#"{"change": "weight", "function": "d3/vf2", "weight": 1000}"#,
        r#"{"change": "limit", "function": "d3/vf2", "iops": null, "minimum_iops": 60000}"#,
        r#"{"change": "reset-drive", "drive": "d3"}"#,
        r#"{"change": "add-drive", "drive": {"name": "d5", "backing": "mem:1G"}}"#,
        r#"{"change": "remove-drive", "drive": "d4", "surprise": true}"#,
    ] {
        assert_eq!(mistakes(json), Vec::<String>::new(), "{json}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let all = mistakes(
        r#"{"change": "assign", "function": "d3/vf9", "port": "fabric7"},
        {"change": "assign", "function": "d3/vf1", "port": "direct1"},
        {"change": "move", "function": "d3/vf2", "to": "fabric0"},
        {"change": "move", "function": "d3/vf3", "to": "direct1"},
        {"change": "map", "namespace": "d3/ns5", "function": "d4/vf1"},
        {"change": "map", "namespace": "d33/ns5", "function": null},
        {"change": "weight", "function": "d4/vf1", "weight": 0},
        {"change": "limit", "function": "d3/vf1", "minimum_iops": 50001, "bytes_per_second": 0},
        {"change": "limit", "function": "d3/vf1"},
        {"change": "reset-drive", "drive": "d4"},
        {"change": "add-drive", "drive": {"name": "d6"}},
        {"change": "add-drive", "drive": {"name": "d6"}}"#,
    );
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_direct_port_has_one_function_or_one_subsystem() {
    let mut inventory = inventory();
    inventory.subsystems[0].ports.push("direct2".into());
    let all = |json: &str| {
        let refused = check(&inventory, &transaction(json)).err().map(|refused| refused.mistakes).unwrap_or_default();
        refused.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let all = all(r#"{"change": "assign", "function": "d3/vf2", "port": "direct1"},
        {"change": "move", "function": "d3/vf1", "to": "direct2"},
        {"change": "move", "function": "d3/vf3", "to": "discovery"},
        {"change": "add-drive", "drive": {"name": "d6"}, "ports": ["direct1", "direct2"]},
        {"change": "add-drive", "drive": {"name": "d7"}, "ports": ["direct2"]}"#);
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn a_function_is_given_to_several_ports_and_keeps_those_that_it_has() {
    let given = r#"{"change": "assign", "function": "d3/vf1", "port": ["fabric0", "direct1"]}"#;
    let change: Change = serde_json::from_str(given).unwrap();
    assert_eq!(change.to_string(), "give d3/vf1 to ports direct1 and fabric0");
    assert_eq!(serde_json::to_value(&change).unwrap()["port"], serde_json::json!(["direct1", "fabric0"]));
    let all = |json: &str| mistakes(json).join("\n");
    // d3/vf1 is at fabric0, and d3/vf3 at direct1.
    let leaves = r#"{"change": "move", "function": "d3/vf3", "to": "fabric0"}"#;
    assert_eq!(
        all(&format!(r#"{leaves}, {given}, {{"change": "move", "function": "d3/vf1", "to": ["direct1"]}}"#)),
        ""
    );
    assert!(all(given).contains("port direct1 has d3/vf3 already"), "{}", all(given));
    for (json, expected) in [
        (
            r#""change": "assign", "port": ["direct2"]"#,
            "given to port fabric0; `ebof target move d3/vf1 --to direct2` moves",
        ),
        (r#""change": "move", "to": ["fabric0"]"#, "it is given to port fabric0 already"),
        (
            r#""change": "move", "to": []"#,
            "no port is named; `ebof target assign d3/vf1 --none` takes it from its ports",
        ),
        (r#""change": "move", "to": ["direct1", "direct2"]"#, "ports direct1 and direct2 are direct ones"),
    ] {
        let found = all(&format!(r#"{{"function": "d3/vf1", {json}}}"#));
        assert!(found.contains(expected), "{found}");
    }
    let many: Vec<String> = (0..9).map(|at| format!("p{at}")).collect();
    let json = format!(r#"{{"change": "assign", "function": "d3/vf2", "port": {}}}"#, serde_json::json!(many));
    assert!(mistakes(&json).iter().any(|mistake| mistake.contains("accepted: at most 8")), "{:?}", mistakes(&json));
}

#[test]
fn a_move_disturbs_the_hosts_at_ports_that_are_left() {
    let mut inventory = inventory();
    let host = inventory.drives[0].hosts[0].clone();
    let function = &mut inventory.drives[0].functions[0];
    function.ports = ["fabric0", "fabric1"].map(String::from).into();
    let at = |(port, cntlid): (&str, u16)| HostObject { port: port.into(), cntlid, ..host.clone() };
    function.hosts = [("fabric0", 200), ("fabric1", 201)].map(at).into();
    let disturbed = |json: &str| {
        let plan = ChangePlan::new(&inventory, &transaction(json).changes);
        plan.disturbed.iter().map(|host| host.cntlid).collect::<Vec<_>>()
    };
    for (to, expected) in [
        (r#"["fabric1"]"#, vec![200]),
        (r#"["fabric1", "direct2"]"#, vec![200]),
        (r#"["fabric0", "fabric1", "direct2"]"#, vec![]),
        (r#""direct2""#, vec![200, 201]),
    ] {
        let json = format!(r#"{{"change": "move", "function": "d3/vf1", "to": {to}}}"#);
        assert_eq!(disturbed(&json), expected, "{to}");
    }
    assert!(disturbed(r#"{"change": "assign", "function": "d3/vf1", "port": ["fabric0", "fabric1"]}"#).is_empty());
}

#[test]
fn what_a_task_is_changing_is_busy() {
    let mut inventory = inventory();
    inventory.drives[0].functions[0].task = Some(3);
    let of = |inventory: &Inventory, json: &str| check(inventory, &transaction(json)).unwrap_err();
    let json = r#"{"change": "move", "function": "d3/vf1", "to": "direct9"}"#;
    assert!(!of(&inventory, json).is_busy(), "a mistake as well");
    let json = r#"{"change": "weight", "function": "d3/vf1", "weight": 4}"#;
    let refused = of(&inventory, json);
    assert!(refused.is_busy(), "{refused}");
    assert_eq!(refused.to_string(), "d3/vf1: task 3 is changing it; `ebof target tasks 3 --wait` waits for its end");
    inventory.drives[0].functions[0].task = None;
    inventory.drives[0].task = Some(4);
    assert_eq!(of(&inventory, json).mistakes.len(), 1);
}

#[test]
fn what_is_no_transaction_is_refused() {
    for text in [
        "{}",
        r#"{"changes": [{"change": "explode", "drive": "d3"}]}"#,
        r#"{"changes": [{"change": "weight", "function": "d3", "weight": 4}]}"#,
        r#"{"changes": [{"change": "weight", "function": "d3/vf1", "weight": 65536}]}"#,
        r#"{"changes": [{"change": "weight", "function": "d3/vf1", "weight": 4, "more": 1}]}"#,
        r#"{"changes": [{"change": "add-drive", "drive": {}, "more": 1}]}"#,
        r#"{"changes": [], "more": 1}"#,
    ] {
        serde_json::from_str::<Transaction>(text).unwrap_err();
    }
    assert_eq!(mistakes(""), ["Value None there is no change; name at least one"]);
    let many = vec![r#"{"change": "weight", "function": "d3/vf1", "weight": 4}"#; CHANGES_MAX + 1].join(",");
    assert_eq!(mistakes(&many).len(), 1);
}

#[test]
fn changes_of_drives_that_are_right_are_accepted() {
    for json in [
        r#"{"change": "create-namespace", "drive": "d3", "size_bytes": 1}"#,
        r#"{"change": "create-namespace", "drive": "d3", "size_bytes": 8192, "capacity_bytes": 4096, "shared": true,
            "block_size_bytes": 512, "metadata_bytes": 8, "protection": {"type": 1, "first": true}, "nsid": 128,
            "attach_to": ["d3/vf1", "nqn.2014-08.org.example:host", "*"]}"#,
        r#"{"change": "create-namespace", "drive": "d3", "size_bytes": 1, "nsid": 9},
           {"change": "map", "namespace": "d3/ns9", "function": "d3/vf2"},
           {"change": "write-protect", "namespace": "d3/ns9", "on": true}"#,
        r#"{"change": "delete-namespace", "namespace": "d3/ns4"}"#,
        r#"{"change": "attach-namespace", "namespace": "d3/ns4", "to": "d3/vf1"}"#,
        r#"{"change": "detach-namespace", "namespace": "d3/ns4", "from": "d3/vf1"},
           {"change": "attach-namespace", "namespace": "d3/ns4", "to": "*"},
           {"change": "detach-namespace", "namespace": "d3/ns4", "from": "nqn.2014-08.org.example:host"}"#,
        r#"{"change": "map", "namespace": "d3/ns4", "function": null},
           {"change": "attach-namespace", "namespace": "d3/ns4", "to": "d3/vf2"}"#,
        r#"{"change": "format-namespace", "namespace": "d3/ns4", "block_size_bytes": 512, "erase": "user-data"}"#,
        r#"{"change": "sanitize-drive", "drive": "d4", "action": "crypto-erase"}"#,
        r#"{"change": "sanitize-drive", "drive": "d3", "action": "overwrite", "passes": 16, "pattern": 1, "invert": true}"#,
        r#"{"change": "self-test", "drive": "d3", "kind": "extended"}"#,
        r#"{"change": "stage-firmware", "drive": "d3", "slot": 7, "image": "x"}"#,
        r#"{"change": "activate-firmware", "drive": "d3", "slot": 1, "when": "at-reset"}"#,
    ] {
        assert_eq!(mistakes(json), Vec::<String>::new(), "{json}");
    }
}

#[test]
fn all_mistakes_with_namespaces_are_reported_at_once() {
    let all = mistakes(
        r#"{"change": "create-namespace", "drive": "d33", "size_bytes": 0},
        {"change": "create-namespace", "drive": "d3", "size_bytes": 0, "capacity_bytes": 4096, "block_size_bytes": 520},
        {"change": "create-namespace", "drive": "d3", "size_bytes": 1, "nsid": 4, "protection": {"type": 4}},
        {"change": "create-namespace", "drive": "d3", "size_bytes": 1, "nsid": 129, "protection": {"type": 1}},
        {"change": "create-namespace", "drive": "d3", "size_bytes": 1, "attach_to": ["d3/vf1", "d3/vf9", "d4/vf1"]},
        {"change": "create-namespace", "drive": "d3", "size_bytes": 1, "nsid": 9},
        {"change": "create-namespace", "drive": "d3", "size_bytes": 1, "nsid": 9},
        {"change": "attach-namespace", "namespace": "d3/ns4", "to": "d3/vf2"},
        {"change": "attach-namespace", "namespace": "d3/ns5", "to": "d4/vf2"},
        {"change": "detach-namespace", "namespace": "d3/ns9", "from": "*"},
        {"change": "detach-namespace", "namespace": "d4/ns4", "from": "d4/vf3"},
        {"change": "write-protect", "namespace": "d5/ns4", "on": true}"#,
    );
    insta::assert_snapshot!(all.join("\n"));
}

/// What is told of changes that contradict ones before them, which the drive would refuse later.
// @test data.transaction-checks
#[test]
fn each_change_is_checked_against_what_the_ones_before_it_leave() {
    let added = r#"{"change": "add-drive", "drive": {"name": "d5", "backing": "mem:1G", "functions": 2}}"#;
    let file = added.replace("mem:1G", "/x/d5.img");
    let accepted = [
        r#"{"change": "limit", "function": "d3/vf1", "iops": null},
           {"change": "limit", "function": "d3/vf1", "minimum_iops": 60000}"#
            .to_owned(),
        format!(
            r#"{added}, {{"change": "assign", "function": "d5/vf2", "port": "fabric0"}},
            {{"change": "create-namespace", "drive": "d5", "size_bytes": 1}},
            {{"change": "map", "namespace": "d5/ns1", "function": "d5/vf2"}},
            {{"change": "write-protect", "namespace": "d5/ns1", "on": true}},
            {{"change": "limit", "function": "d5/vf2", "iops": 100, "minimum_iops": 100}},
            {{"change": "move", "function": "d5/vf2", "to": "direct2"}}"#
        ),
        format!(r#"{file}, {{"change": "map", "namespace": "d5/ns7", "function": "d5/vf1"}}"#),
    ];
    for json in accepted {
        assert_eq!(mistakes(&json), Vec::<String>::new(), "{json}");
    }
    let told = mistakes(&format!(
        r#"{{"change": "limit", "function": "d3/vf2", "iops": 100}},
        {{"change": "limit", "function": "d3/vf2", "minimum_iops": 200}},
        {{"change": "create-namespace", "drive": "d3", "size_bytes": 1}},
        {{"change": "create-namespace", "drive": "d3", "size_bytes": 1, "nsid": 1}},
        {added},
        {{"change": "assign", "function": "d5/vf3", "port": "fabric0"}},
        {{"change": "assign", "function": "d5/vf1", "port": "direct2"}},
        {{"change": "assign", "function": "d3/vf2", "port": "direct2"}},
        {{"change": "map", "namespace": "d5/ns1", "function": "d5/vf1"}},
        {{"change": "limit", "function": "d5/vf1", "iops": 100}},
        {{"change": "limit", "function": "d5/vf1", "minimum_iops": 101}}"#
    ));
    let expected = [
        "Conflict Some(1) d3/vf2: its minimum of 200 IOPS is above its limit of 100; lower the one or raise the other",
        "Conflict Some(3) d3/ns1: there is such a namespace already; choose another NSID, or let the drive choose",
        "NotFound Some(5) d5/vf3: there will be no such function; drive d5 will have vf1 to vf2",
        "Conflict Some(7) d3/vf2: port direct2 has d5/vf1 already, and a direct port is one function; take that from it \
         (`ebof target assign d5/vf1 --none`), or choose another port",
        "NotFound Some(8) d5/ns1: there will be no such namespace; create it by an earlier change (`create-namespace` on \
         drive d5)",
        "Conflict Some(10) d5/vf1: its minimum of 101 IOPS is above its limit of 100; lower the one or raise the other",
    ];
    assert_eq!(told, expected);
    let one = r#"{"change": "create-namespace", "drive": "d3", "size_bytes": 1}"#;
    let told = mistakes(&[one; 128].join(","));
    assert!(!told.is_empty() && told.iter().all(|told| told.contains("the drive has 128 namespaces")), "{told:?}");
}

#[test]
fn what_destroys_data_is_checked_against_what_the_drive_is_doing() {
    let mut inventory = inventory();
    let all = |inventory: &Inventory, json: &str| {
        let refused = check(inventory, &transaction(json)).err().map(|refused| refused.mistakes).unwrap_or_default();
        refused.iter().map(|mistake| format!("{:?} {mistake}", mistake.kind)).collect::<Vec<_>>().join("\n")
    };
    let delete = r#"{"change": "delete-namespace", "namespace": "d3/ns4"}"#;
    let format = r#"{"change": "format-namespace", "namespace": "d3/ns4", "erase": "cryptographic",
                     "block_size_bytes": 513, "protection": {"type": 2}}"#;
    let sanitize = r#"{"change": "sanitize-drive", "drive": "d3", "action": "crypto-erase", "passes": 17}"#;
    let test = r#"{"change": "self-test", "drive": "d3", "kind": "short"}"#;
    let firmware = r#"{"change": "activate-firmware", "drive": "d3", "slot": 8, "when": "now"}"#;
    let mut told = vec![
        all(&inventory, &format!("{delete}, {sanitize}")),
        all(&inventory, format),
        all(&inventory, firmware),
        all(&inventory, r#"{"change": "self-test", "drive": "d5", "kind": "abort"}"#),
    ];
    inventory.drives[0].namespaces[0].write_protected = true;
    inventory.drives[0].namespaces[0].format_percent = Some(7);
    inventory.drives[0].self_test_percent = Some(50);
    told.extend([delete, format, sanitize, test].map(|json| all(&inventory, json)));
    let off = r#"{"change": "write-protect", "namespace": "d3/ns4", "on": false}"#;
    assert!(check(&inventory, &transaction(off)).is_ok());
    inventory.drives[0].sanitize_percent = Some(43);
    told.extend([delete, format, sanitize, test, off].map(|json| all(&inventory, json)));
    insta::assert_snapshot!(told.join("\n\n"));
}

#[test]
fn the_shape_of_changes_of_drives_is_stable() {
    let namespace = || "d3/ns4".parse::<NamespaceName>().unwrap();
    let drive = || "d3".to_owned();
    let host: Attachee = "nqn.2014-08.org.example:host".parse().unwrap();
    let changes = vec![
        Change::CreateNamespace(CreateNamespace {
            drive: drive(),
            size_bytes: 1 << 30,
            capacity_bytes: Some(1 << 29),
            block_size_bytes: 512,
            metadata_bytes: 8,
            protection: ProtectionObject { kind: 1, first: true },
            shared: true,
            nsid: Some(9),
            attach_to: vec![Attachee::Function("d3/vf2".parse().unwrap()), host.clone()],
        }),
        serde_json::from_str(r#"{"change": "create-namespace", "drive": "d3", "size_bytes": 4096}"#).unwrap(),
        Change::DeleteNamespace { namespace: namespace() },
        Change::AttachNamespace { namespace: namespace(), to: Attachee::Everyone },
        Change::AttachNamespace { namespace: namespace(), to: host.clone() },
        Change::DetachNamespace { namespace: namespace(), from: Attachee::Everyone },
        Change::DetachNamespace { namespace: namespace(), from: host },
        Change::WriteProtect { namespace: namespace(), on: true },
        Change::WriteProtect { namespace: namespace(), on: false },
        Change::FormatNamespace(FormatNamespace {
            namespace: namespace(),
            block_size_bytes: Some(512),
            metadata_bytes: Some(8),
            protection: Some(ProtectionObject { kind: 3, first: false }),
            erase: Erase::UserData,
        }),
        serde_json::from_str(r#"{"change": "format-namespace", "namespace": "d3/ns4"}"#).unwrap(),
        Change::SanitizeDrive(SanitizeDrive {
            drive: drive(),
            action: SanitizeAction::Overwrite,
            passes: Some(3),
            pattern: Some(7),
            invert: true,
            allow_exit_after_failure: true,
        }),
        serde_json::from_str(r#"{"change": "sanitize-drive", "drive": "d3", "action": "exit-failure"}"#).unwrap(),
        Change::SelfTest { drive: drive(), kind: SelfTestKind::Extended },
        Change::SelfTest { drive: drive(), kind: SelfTestKind::Abort },
        Change::StageFirmware { drive: drive(), slot: Some(2), image: "b1a5".into() },
        Change::StageFirmware { drive: drive(), slot: None, image: "b1a5".into() },
        Change::ActivateFirmware { drive: drive(), slot: 2, when: Activation::Now },
        Change::ActivateFirmware { drive: drive(), slot: 2, when: Activation::AtReset },
    ];
    let lines: Vec<String> =
        changes.iter().map(|it| format!("{it}\n    {}", serde_json::to_string(it).unwrap())).collect();
    insta::assert_snapshot!(lines.join("\n"));
    for change in &changes {
        let text = serde_json::to_string(change).unwrap();
        assert_eq!(serde_json::from_str::<Change>(&text).unwrap(), *change);
        let mut more: serde_json::Value = serde_json::from_str(&text).unwrap();
        more["more"] = 1.into();
        serde_json::from_value::<Change>(more).unwrap_err();
    }
    let is_reversible: Vec<bool> = changes.iter().map(Change::is_reversible).collect();
    assert_eq!(is_reversible.iter().filter(|it| **it).count(), 8, "{is_reversible:?}");
}
