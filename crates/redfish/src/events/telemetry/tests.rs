//! Reports and histories through requests.

use std::sync::Arc;

use ebof_access::Role;
use ebof_manage::history::{
    History, Measured, NoSamples, ObjectCounters, Overview, Query, Samples, SeriesKind, SeriesName,
};
use ebof_manage::slow::SlowCommands;
use serde_json::{Value, json};

use crate::managed::parts::Parts;
use crate::service::Service;
use crate::service::tests::{ask_of, caller, no_slow_commands, parts};

struct Past(History);

impl Measured for Past {
    fn overview(&self) -> Overview {
        self.0.overview()
    }

    fn samples(&self, query: &Query) -> Result<Samples, NoSamples> {
        self.0.samples(query)
    }

    fn queues(&self) -> ebof_manage::history::live::LiveTable {
        ebof_manage::history::live::Live::new(1, 1).table().clone()
    }

    fn forget_slow(&self) -> usize {
        self.slow().commands.len()
    }

    fn slow(&self) -> SlowCommands {
        no_slow_commands()
    }
}

/// A function that reads twice in a second, of 4 KiB in 100 µs, for three seconds.
fn service() -> Service {
    let mut history = History::new(10);
    let mut counters = ObjectCounters::default();
    for second in 1..=3 {
        let read = &mut counters.kinds[0];
        (read.commands, read.bytes) = (2 * second, 2 * second * 4096);
        read.latency.0[ebof_manage::history::latency::bucket(100)] = 2 * second;
        let names = [SeriesName::target(), SeriesKind::Function.named("d0/vf1"), SeriesKind::Port.named("tcp://a:1")];
        let objects = names.map(|name| (name, &counters));
        history.record(second * 1000, 1_700_000_000_000 + second * 1000, objects);
    }
    Service::new(Parts { measured: Arc::new(Past(history)), ..parts() })
}

fn get(service: &Service, path: &str) -> (u16, Value) {
    let uri = format!("/redfish/v1/TelemetryService/{path}");
    let (status, _, body) = ask_of(service, "GET", &uri, &[], Value::Null, &caller(Some(Role::ReadOnly)));
    (status, body)
}

#[test]
fn a_report_has_the_latest_second_of_each_object() {
    let service = service();
    let (status, report) = get(&service, "MetricReports/Functions");
    assert_eq!((status, &report["Timestamp"]), (200, &json!("2023-11-14T22:13:23.000Z")));
    let value = |id: &str| {
        let values = report["MetricValues"].as_array().unwrap();
        values.iter().find(|value| value["MetricId"] == id).unwrap().clone()
    };
    let reads = value("ReadCommands");
    assert_eq!(reads["MetricValue"], "2.0");
    assert_eq!(reads["MetricProperty"], "/redfish/v1/Storage/d0/Controllers/vf1#/ReadCommands");
    assert_eq!(value("ReadBytes")["MetricValue"], "8192.0");
    let us: u32 = value("LatencyP99")["MetricValue"].as_str().unwrap().parse().unwrap();
    assert!(us.abs_diff(100) <= 6, "{us}");
    assert_eq!(get(&service, "MetricReports/Drives").1["MetricValues"], json!([]));
    let (_, ports) = get(&service, "MetricReports/Ports");
    let port = "/redfish/v1/Chassis/enclosure/NetworkAdapters/fabric/Ports/tcp~!!a~1#/ReadCommands";
    assert_eq!(ports["MetricValues"][0]["MetricProperty"], port);
}

#[test]
fn each_metric_names_the_resource_of_its_object() {
    let box_of_drives = crate::fixture::Fixture::new().service;
    let parts = box_of_drives.parts();
    let inventory = parts.enclosure.inventory();
    let (plain, host) = (&inventory.subsystems[0].nqn, &inventory.subsystems[0].hosts[0].nqn);
    let names = [
        ("Target", SeriesName::target(), "Managers/ebof"),
        ("Drives", SeriesKind::Drive.named("d1"), "Chassis/enclosure/Drives/d1"),
        ("Functions", SeriesKind::Function.named("d0/pf"), "Storage/d0/Controllers/pf"),
        ("Functions", SeriesKind::Function.named("d0/vf1"), "Storage/d0/Controllers/vf1"),
        ("Namespaces", SeriesKind::Namespace.named("d0/ns1"), "Storage/d0/Volumes/ns1"),
        ("Namespaces", SeriesKind::Namespace.named(format!("{plain}/ns1")), "Volumes/ns1"),
        ("Ports", SeriesKind::Port.named("tcp://192.0.2.2:4420"), "Ports/tcp~!!192.0.2.2~4420"),
        ("Ports", SeriesKind::Port.named("direct1"), "Fabrics/PCIe/Zones/direct1"),
        ("Hosts", SeriesKind::Host.named(host), "Fabrics/NVMeoF/Endpoints/host~"),
    ];
    let mut history = History::new(10);
    for second in 1..=2 {
        let mut counters = ObjectCounters::default();
        counters.kinds[0].commands = second;
        let objects = names.iter().map(|(_, name, _)| (name.clone(), &counters));
        history.record(second * 1000, 1_700_000_000_000 + second * 1000, objects);
    }
    let service = Service::new(Parts { measured: Arc::new(Past(history)), ..parts.clone() });
    for (kind, name, expected) in names {
        let (_, report) = get(&service, &format!("MetricReports/{kind}"));
        let values = report["MetricValues"].as_array().unwrap();
        let named = values.iter().filter_map(|value| value["MetricProperty"].as_str()?.split_once('#'));
        let place = named.map(|(place, _)| place).find(|place| place.contains(expected));
        let place = place.unwrap_or_else(|| panic!("{name}: {report}"));
        let (status, _, body) = ask_of(&service, "GET", place, &[], Value::Null, &caller(Some(Role::ReadOnly)));
        assert_eq!(status, 200, "{place}: {body}");
    }
}

#[test]
fn a_history_has_each_interval_of_an_object() {
    let service = service();
    for id in ["Functions-d0-vf1", "Ports-tcp~!!a~1", "Target-ebof"] {
        let (status, report) = get(&service, &format!("MetricReports/History-{id}-1s"));
        assert_eq!(status, 200, "{id}");
        let reads =
            report["MetricValues"].as_array().unwrap().iter().filter(|value| value["MetricId"] == "ReadCommands");
        assert_eq!(reads.map(|value| value["MetricValue"].as_str().unwrap()).collect::<Vec<_>>(), ["2.0"; 3]);
    }
    for id in ["Functions-vf1-1s", "Functions-d0-vf2-1s", "Functions-d0-vf1-2s", "Things-d0-1s", "Functions", ""] {
        assert_eq!(get(&service, &format!("MetricReports/History-{id}")).0, 404, "{id}");
    }
}

#[test]
fn every_metric_and_report_is_defined() {
    let service = service();
    let (_, all) = get(&service, "MetricReportDefinitions?$expand=.");
    for definition in all["Members"].as_array().unwrap() {
        for metric in definition["Metrics"].as_array().unwrap() {
            let id = metric["MetricId"].as_str().unwrap();
            assert_eq!(get(&service, &format!("MetricDefinitions/{id}")).0, 200, "{id}");
        }
        assert_eq!(get(&service, &format!("MetricReports/{}", definition["Id"].as_str().unwrap())).0, 200);
    }
    assert_eq!(get(&service, "MetricDefinitions/Unknown").0, 404);
}
