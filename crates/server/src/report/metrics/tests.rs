//! The rules of `promtool check metrics`, and the metrics of a drive.

use std::collections::{BTreeMap, BTreeSet};

use ebof_manage::api::{
    DriveHealth, DriveStatus, MissingKind, MissingObject, NamespaceStatus, PortStatus, STATUS_SCHEMA, SubsystemStatus,
};

use ebof_manage::config::{PortTls, Security};
use ebof_nvme::Nqn;

use super::*;
use crate::observe::stats::QueueStats;

const NQN: &str = "nqn.2014-08.org.example:drive0";

fn drive() -> DriveStatus {
    let health = DriveHealth {
        critical_warning: 5,
        temperature_kelvin: Some(308),
        available_spare_percent: 90,
        percentage_used: 7,
        media_errors: 11,
        power_on_hours: 2,
        ..DriveHealth::default()
    };
    DriveStatus {
        ana_limit: None,
        name: "d0".to_owned(),
        subsystem_nqn: Some(NQN.to_owned()),
        backing: "disk.img".to_owned(),
        profile: "default".to_owned(),
        capacity_bytes: 1000,
        unallocated_bytes: 400,
        namespaces: 1,
        namespaces_max: 128,
        allocated_bytes: 300,
        health,
    }
}

fn function() -> FunctionLoad {
    let reads = QueueStats {
        host: String::new(),
        counted_as: String::new(),
        subsystem: format!("{NQN}:vf2"),
        port: "front".to_owned(),
        controller: 1,
        queue: 1,
        nsid: 1,
        kinds: Default::default(),
    };
    reads.count(Kind::Read, 8192, false, 15);
    let mut totals = Totals::default();
    totals.add(&reads);
    let figures = crate::shared::shares::FunctionFigures {
        subsystem: Nqn::parse(&reads.subsystem).unwrap(),
        drive: Nqn::parse(NQN).unwrap(),
        number: 2,
        share: ebof_shares::Share { weight: 3, ..Default::default() },
        figures: ebof_shares::Figures {
            admitted: 7,
            waited_us: 2_500_000,
            throttled_us: 500_000,
            waiting: 3,
            ..Default::default()
        },
    };
    crate::life::functions::loads(vec![figures], &totals).remove(0)
}

fn namespace() -> NamespaceStatus {
    NamespaceStatus {
        nsid: 1,
        enabled: true,
        drive: "d0".to_owned(),
        size_bytes: 1 << 20,
        block_size_bytes: 512,
        uuid: None,
        write_protect: false,
        ana_group: 1,
        io: ebof_manage::api::IoCounters::default(),
    }
}

fn subsystem() -> SubsystemStatus {
    SubsystemStatus {
        nqn: NQN.to_owned(),
        enabled: true,
        serial: String::new(),
        model: String::new(),
        allow_any_host: true,
        allowed_hosts: Vec::new(),
        security: Security::Anyone,
        ports: Vec::new(),
        namespaces: vec![namespace()],
    }
}

fn missing() -> MissingObject {
    let reason = "this machine has no such address".to_owned();
    MissingObject { kind: MissingKind::Port, name: "late".to_owned(), reason, since_unix_ms: 0 }
}

fn snapshot() -> Snapshot {
    let port = PortStatus {
        name: "127.0.0.1:4420".to_owned(),
        id: 1,
        transport: "tcp".to_owned(),
        address: "127.0.0.1:4420".parse().unwrap(),
        socket: None,
        discovery_only: false,
        ana: ebof_manage::config::AnaStates::default(),
        tls: PortTls::Off,
        connections: 1,
        accepted: 2,
        refused: 3,
    };
    let status = Status {
        schema: STATUS_SCHEMA,
        version: "1.2.3".to_owned(),
        uptime_s: 60,
        generation: 1,
        connections: 1,
        connections_max: 2,
        ana_group_max: 128,
        confinement: None,
        keys_unprotected: None,
        ports: vec![port],
        disabled_ports: Vec::new(),
        missing: vec![missing()],
        subsystems: vec![subsystem()],
        drives: vec![drive()],
        controllers: Vec::new(),
        proving: Vec::new(),
    };
    let mut totals = Totals::default();
    for queue in [1, 2] {
        let stats = QueueStats {
            host: "nqn.host".to_owned(),
            counted_as: "nqn.host".to_owned(),
            subsystem: NQN.to_owned(),
            port: "front".to_owned(),
            controller: 1,
            queue,
            nsid: 1,
            kinds: Default::default(),
        };
        stats.count(Kind::Read, 4096, false, 15);
        totals.add(&stats);
    }
    let refusal = Refusal {
        time_unix_ms: 0,
        peer: "127.0.0.1:1".parse().unwrap(),
        host_nqn: None,
        subsystem_nqn: None,
        reason: ebof_manage::api::RefusalReason::NotNvme,
        detail: String::new(),
        advice: String::new(),
        count: 4,
    };
    Snapshot {
        status,
        totals,
        refusals: vec![refusal],
        zerocopy: Figures::default(),
        capsules: CapsuleMemory::default(),
        functions: vec![function()],
        owners: Owners::default(),
        listening: vec![("front".to_owned(), true), ("back".to_owned(), false)],
        slow: SlowFigures { total: 7, threshold_us: Some(100_000) },
        events: vec![(EventKind::HealthWarning, 2)],
        troubles: vec![("data-digest", 3)],
    }
}

fn value(text: &str, start: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start} in\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

// @test output.metric-names
#[test]
fn metrics_follow_the_rules_of_prometheus() {
    for detail in [MetricsDetail::Namespace, MetricsDetail::Queue] {
        let text = render(snapshot(), Exposition::Text, detail);
        let mut helps = BTreeSet::new();
        let mut types = BTreeMap::new();
        for line in text.lines() {
            if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
                assert!(help.len() > 3 && helps.insert(name), "{line}");
            } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                assert!(helps.contains(name) && types.insert(name, kind).is_none(), "{line}");
            } else {
                assert!(!line.starts_with('#'), "{line}");
                let name = line.split(['{', ' ']).next().unwrap();
                let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
                let family = of_histogram.filter(|family| types.get(family) == Some(&"histogram")).unwrap_or(name);
                let kind = types.get(family).unwrap_or_else(|| panic!("{line}: no type"));
                assert_eq!(family.ends_with("_total"), *kind == "counter", "{line}");
                assert!(of_histogram.is_none() || *kind == "histogram", "{line}");
                let bytes = family.bytes();
                assert!(bytes.clone().all(|byte| byte == b'_' || byte.is_ascii_lowercase()), "{line}");
                // Base units, no names of types, in names.
                let words: Vec<&str> = family.split('_').collect();
                for word in
                    ["milliseconds", "ms", "us", "minutes", "hours", "kib", "percent", "gauge", "counter", "kelvins"]
                {
                    assert!(!words.contains(&word), "{line}");
                }
            }
        }
        assert!(helps.iter().all(|name| types.contains_key(name)) && helps.len() > 30);
    }
}

/// Without the bucket of infinity Prometheus computes no quantile.
#[test]
fn every_histogram_ends_with_infinity() {
    for exposition in [Exposition::Text, Exposition::OpenMetrics] {
        let text = render(snapshot(), exposition, MetricsDetail::Namespace);
        let counts: Vec<(&str, &str)> = text
            .lines()
            .filter(|line| line.split('{').next().is_some_and(|name| name.ends_with("_seconds_count")))
            .filter_map(|line| line.rsplit_once(' '))
            .collect();
        assert!(counts.len() >= 2, "{text}");
        for (series, count) in counts {
            let (name, labels) = series.split_once('{').unwrap();
            let name = name.strip_suffix("_count").unwrap();
            let labels = labels.trim_end_matches('}');
            let is_last = |line: &&str| line.starts_with(name) && line.contains(labels) && line.contains("le=\"+Inf\"");
            let last: Vec<&str> = text.lines().filter(is_last).collect();
            assert_eq!(last.len(), 1, "{series}\n{text}");
            assert_eq!(last[0].rsplit(' ').next(), Some(count), "{series}");
        }
    }
}

// @test output.metric-names
#[test]
fn a_drive_has_metrics_of_capacity_and_health() {
    let text = render(snapshot(), Exposition::Text, MetricsDetail::Namespace);
    let labels = "{drive=\"d0\",subsystem=\"nqn.2014-08.org.example:drive0\"}";
    for (name, wanted) in [
        ("capacity_bytes", 1000.0),
        ("unallocated_bytes", 400.0),
        ("allocated_bytes", 300.0),
        ("critical_warning", 5.0),
        ("temperature_celsius", 35.0),
        ("available_spare_ratio", 0.9),
        ("used_endurance_ratio", 0.07),
        ("media_errors_total", 11.0),
        ("power_on_seconds_total", 7200.0),
    ] {
        let shown = value(&text, &format!("ebof_drive_{name}{labels}"));
        assert!((shown - wanted).abs() < 1e-9, "{name}: {shown}");
    }
    assert!(text.contains("ebof_build_info{version=\"1.2.3\"} 1"), "{text}");
    assert!(value(&text, "ebof_uptime_seconds") > 59.0);
}

#[test]
fn a_function_has_metrics_of_its_share() {
    let text = render(snapshot(), Exposition::Text, MetricsDetail::Namespace);
    let labels = "{subsystem=\"nqn.2014-08.org.example:drive0\",function=\"vf2\"";
    for (name, wanted) in [
        ("scheduled_total", 7.0),
        ("queueing_seconds_total", 2.5),
        ("throttled_seconds_total", 0.5),
        ("waiting", 3.0),
        ("weight", 3.0),
        ("share_ratio", 1.0),
        ("data_bytes_total", 8192.0),
        ("commands_total", 1.0),
        ("command_latency_seconds_count", 1.0),
    ] {
        let shown = value(&text, &format!("ebof_function_{name}{labels}"));
        assert!((shown - wanted).abs() < 1e-9, "{name}: {shown}");
    }
    let of_function = |line: &&str| line.contains("function=\"vf2\"");
    let mut lines = text.lines().filter(|line| line.starts_with("ebof_function_command_latency_seconds_bucket"));
    let bucket = lines.find(of_function).expect("a bucket");
    let (le, count) = bucket.split_once("le=\"").and_then(|(_, le)| le.split_once('"')).unwrap();
    let count = count.rsplit(' ').next().unwrap();
    assert!((le.parse::<f64>().unwrap() - 16e-6).abs() < 1e-9 && count == "1", "15 µs are below 16 µs: {bucket}");
    assert_eq!(
        (function().all().latency.percentile_us(0.99), function().all().latency.percentile_us(0.5)),
        (Some(15), Some(15))
    );
    let none = Snapshot { functions: Vec::new(), ..snapshot() };
    assert!(!render(none, Exposition::Text, MetricsDetail::Namespace).contains("ebof_function"));
}

// @test output.metrics
#[test]
fn queues_are_summed_up_unless_requested() {
    let lines = |detail| {
        let text = render(snapshot(), Exposition::OpenMetrics, detail);
        text.lines().filter(|line| line.starts_with("ebof_commands_total{")).map(str::to_owned).collect::<Vec<_>>()
    };
    let together = lines(MetricsDetail::Namespace);
    assert!(together.len() == 1 && together[0].ends_with(" 2") && !together[0].contains("queue"), "{together:?}");
    let apart = lines(MetricsDetail::Queue);
    assert!(apart.len() == 2 && apart.iter().all(|line| line.ends_with(" 1") && line.contains("queue=")), "{apart:?}");
}

#[test]
fn ports_events_and_slow_commands_have_metrics() {
    let text = render(snapshot(), Exposition::Text, MetricsDetail::Namespace);
    for (line, wanted) in [
        ("ebof_port_up{port=\"front\"}", 1.0),
        ("ebof_port_up{port=\"back\"}", 0.0),
        ("ebof_events_total{kind=\"health-warning\",severity=\"critical\"}", 2.0),
        ("ebof_slow_commands_total", 7.0),
        ("ebof_slow_threshold_seconds", 0.1),
    ] {
        assert!((value(&text, line) - wanted).abs() < 1e-9, "{line} in\n{text}");
    }
    assert!(text.contains("ebof_commands_total{host=\"nqn.host\",port=\"front\","), "{text}");
}
