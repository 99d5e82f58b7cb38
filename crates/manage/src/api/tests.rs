//! The JSON format is stable: a changed snapshot breaks programs that parse it.

use super::*;
use crate::load;

fn health() -> DriveHealth {
    DriveHealth {
        critical_warning: 1,
        temperature_kelvin: Some(308),
        available_spare_percent: 100,
        available_spare_threshold_percent: 10,
        percentage_used: 3,
        media_errors: 0,
        error_log_entries: 2,
        power_cycles: 4,
        unsafe_shutdowns: 1,
        power_on_hours: 5,
        host_read_bytes: 6,
        host_written_bytes: 7,
    }
}

fn namespace() -> NamespaceStatus {
    NamespaceStatus {
        nsid: 1,
        enabled: false,
        drive: "disk.img,size=10Gi".into(),
        size_bytes: 10 << 30,
        block_size_bytes: 4096,
        uuid: Some("6f3a1f1e-8f0b-4a57-9d0e-0d8f5b2f8c11".into()),
        write_protect: false,
        ana_group: 1,
        io: IoCounters { read_commands: 5, read_bytes: 20480, ..IoCounters::default() },
    }
}

#[expect(clippy::too_many_lines, reason = "one of everything")]
fn status() -> Status {
    Status {
        schema: STATUS_SCHEMA,
        version: "0.2.0".into(),
        uptime_s: 3600,
        generation: 3,
        connections: 3,
        connections_max: 16384,
        ana_group_max: 128,
        confinement: None,
        keys_unprotected: None,
        ports: vec![PortStatus {
            name: "tcp://127.0.0.1:4420".into(),
            id: 1,
            transport: "tcp".into(),
            address: "127.0.0.1:4420".parse().unwrap(),
            socket: None,
            discovery_only: false,
            ana: crate::config::AnaStates::default(),
            tls: PortTls::Off,
            connections: 3,
            accepted: 12,
            refused: 2,
        }],
        disabled_ports: vec!["spare".into()],
        missing: vec![MissingObject {
            kind: MissingKind::Namespace,
            name: "nqn.2014-08.org.example:disks/2".into(),
            reason: "it is not there".into(),
            since_unix_ms: 1_700_000_000_000,
        }],
        subsystems: vec![SubsystemStatus {
            nqn: "nqn.2014-08.org.example:drive0".into(),
            enabled: true,
            serial: "S3RIAL0001".into(),
            model: "ebof".into(),
            allow_any_host: false,
            allowed_hosts: vec!["nqn.2014-08.org.example:host".into()],
            security: Security::Anyone,
            ports: vec!["tcp://127.0.0.1:4420".into()],
            namespaces: vec![namespace()],
        }],
        drives: vec![DriveStatus {
            ana_limit: None,
            name: "d0".into(),
            subsystem_nqn: Some("nqn.2014-08.org.example:d0".into()),
            backing: "disk.img".into(),
            profile: "default".into(),
            capacity_bytes: 100 << 30,
            unallocated_bytes: 90 << 30,
            namespaces: 1,
            namespaces_max: 128,
            allocated_bytes: 3 << 20,
            health: health(),
        }],
        controllers: vec![ControllerStatus {
            cntlid: 1,
            subsystem_nqn: "nqn.2014-08.org.example:drive0".into(),
            host_nqn: "nqn.2014-08.org.example:host".into(),
            host_id: "1b4e28ba-2fa1-11d2-883f-0016d3cca427".into(),
            port: "tcp://127.0.0.1:4420".into(),
            peer: "127.0.0.1:50000".parse().unwrap(),
            discovery: false,
            proof: Security::Anyone,
            connected_since_unix_ms: 1_795_000_000_000,
            keep_alive_ms: 5000,
            queues: vec![QueueStatus {
                id: 0,
                entries: 32,
                thread: 0,
                header_digest: true,
                data_digest: false,
                tls_records: None,
                commands: 17,
            }],
        }],
        proving: Vec::new(),
    }
}

fn refusal(peer: &str, reason: RefusalReason, time_unix_ms: u64) -> Refusal {
    Refusal {
        time_unix_ms,
        peer: peer.parse().unwrap(),
        host_nqn: Some("nqn.2014-08.org.example:host".into()),
        subsystem_nqn: None,
        reason,
        detail: "the host is not in allowed_hosts of nqn.2014-08.org.example:drive0".into(),
        advice: reason.advice().into(),
        count: 1,
    }
}

#[test]
fn the_status_keeps_its_json_keys() {
    let json = serde_json::to_string_pretty(&status()).unwrap();
    insta::assert_snapshot!("status", json);
    assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status());
}

#[test]
fn a_refusal_keeps_its_json_keys() {
    let refusal = refusal("127.0.0.1:50000", RefusalReason::HostNotAllowed, 1_795_000_000_000);
    let json = serde_json::to_string_pretty(&refusal).unwrap();
    insta::assert_snapshot!("refusal", json);
    assert_eq!(serde_json::from_str::<Refusal>(&json).unwrap(), refusal);
}

#[test]
fn a_host_in_the_same_process_has_no_address() {
    let refusal = refusal("this process", RefusalReason::HostNotAllowed, 1);
    assert_eq!(refusal.peer, Peer::SameProcess);
    let json = serde_json::to_value(&refusal).unwrap();
    assert_eq!(json["peer"], "this process");
    assert_eq!(serde_json::from_value::<Refusal>(json).unwrap(), refusal);
    assert!("somewhere".parse::<Peer>().is_err());
}

#[test]
fn a_plan_keeps_its_json_keys() {
    let desired = load("a.toml", include_str!("../../examples/ebof.toml")).unwrap().config;
    let plan = Plan::between(&Config::default(), &desired);
    let json = serde_json::to_string_pretty(&plan).unwrap();
    insta::assert_snapshot!("plan", json.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
}

#[test]
fn the_connection_log_counts_equal_entries_and_drops_the_oldest() {
    let mut log = ConnectionLog::new(2);
    log.record(refusal("10.0.0.1:1", RefusalReason::HostNotAllowed, 1));
    log.record(refusal("10.0.0.2:1", RefusalReason::HostNotAllowed, 2));
    // Another port of the same machine is the same peer.
    log.record(refusal("10.0.0.1:2", RefusalReason::HostNotAllowed, 3));
    let seen = |log: &ConnectionLog| log.entries().iter().map(|r| (r.time_unix_ms, r.count)).collect::<Vec<_>>();
    assert_eq!(seen(&log), [(2, 1), (3, 2)]);
    log.record(refusal("10.0.0.1:2", RefusalReason::NotNvme, 4));
    assert_eq!(seen(&log), [(3, 2), (4, 1)]);
}

#[test]
fn a_peer_cannot_fill_the_connection_log_with_text() {
    let mut log = ConnectionLog::new(1);
    let mut long = refusal("10.0.0.1:1", RefusalReason::NotNvme, 1);
    long.detail = "é".repeat(10_000);
    log.record(long);
    assert_eq!(log.entries()[0].detail.len(), 512);
    let mut none = ConnectionLog::new(0);
    none.record(refusal("10.0.0.1:1", RefusalReason::NotNvme, 1));
    assert!(none.entries().is_empty());
}

#[test]
fn a_failed_change_is_reported_with_its_reason() {
    let change = Change::RemovePort { name: "front".into() };
    let source = Box::new(std::io::Error::other("the port is busy"));
    let failed = ApplyError::Failed { change: Box::new(change.clone()), source };
    assert_eq!(failed.to_string(), "remove port front: the port is busy");
    let restart = ApplyError::NeedsRestart { changes: vec![change.clone(), change] };
    assert_eq!(restart.to_string(), "only a new start can remove port front; remove port front");
}
