//! What this host has attached as metrics: devices, namespaces and paths in Prometheus' text
//! format, 0.0.4, as node-exporter's textfile collector reads it.
//!
//! The table of families is the whole of it: name, type, help, and what an object has of it. Rates
//! and percentiles are Prometheus' affair.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ebof_manage::history::KindCounters;
use ebof_manage::history::live::{LiveKind, LiveObject};

use super::View;
use super::json::Object;

/// What this host has attached.
pub(crate) struct HostMetrics {
    /// Devices, their namespaces and paths, with what they have counted.
    pub(crate) objects: Vec<LiveObject>,
}

/// Labels of a sample, behind those of its object, and its value.
type Samples = Vec<(Vec<(&'static str, String)>, f64)>;

/// A family: of what kind of object, name, type, help, and what an object has of it.
type Family = (LiveKind, &'static str, &'static str, &'static str, fn(&LiveObject) -> Samples);

const FAMILIES: [Family; 23] = {
    use LiveKind::{Controller, Namespace, Path};
    [
        (Controller, "ebof_host_device_info", "gauge", "Connected subsystems", info),
        (Controller, "ebof_host_device_live", "gauge", "Whether one of the device's paths is connected", is_live),
        (Controller, "ebof_host_device_troubles_total", "counter", "What went wrong with connections", troubles),
        (Namespace, "ebof_host_namespace_info", "gauge", "Block devices of namespaces", info),
        (Namespace, "ebof_host_namespace_commands_total", "counter", "Commands completed", commands),
        (Namespace, "ebof_host_namespace_command_errors_total", "counter", "Commands that failed", errors),
        (Namespace, "ebof_host_namespace_data_bytes_total", "counter", "Data transferred", bytes),
        (Namespace, "ebof_host_namespace_command_seconds_total", "counter", "Sum of the commands' latencies", seconds),
        (Namespace, "ebof_host_namespace_commands_in_flight", "gauge", "Commands under way", in_flight),
        (Path, "ebof_host_path_info", "gauge", "Paths to subsystems", info),
        (Path, "ebof_host_path_live", "gauge", "Whether the path is connected", is_live),
        (Path, "ebof_host_path_enabled", "gauge", "Whether commands are sent over the path", is_enabled),
        (Path, "ebof_host_path_access", "gauge", "The access to namespaces that the path gives (ANA)", access),
        (Path, "ebof_host_path_commands_total", "counter", "Commands that succeeded over the path", commands),
        (Path, "ebof_host_path_data_bytes_total", "counter", "Data transferred over the path", bytes),
        (Path, "ebof_host_path_command_seconds_total", "counter", "Sum of the commands' latencies", seconds),
        (Path, "ebof_host_path_commands_in_flight", "gauge", "Commands under way on the path", in_flight),
        (Path, "ebof_host_path_latency_seconds", "gauge", "Smoothed latency, where the policy measures it", |it| {
            number(it, "latency_us", 1e6)
        }),
        (Path, "ebof_host_path_failovers_total", "counter", "Commands that went on over another path", |it| {
            number(it, "failovers", 1.0)
        }),
        (Path, "ebof_host_path_repeated_commands_total", "counter", "Commands that were sent again", |it| {
            number(it, "repeated", 1.0)
        }),
        (Path, "ebof_host_path_fences_total", "counter", "Times commands waited for a lost controller's end", |it| {
            number(it, "fences", 1.0)
        }),
        (Path, "ebof_host_path_fenced_seconds_total", "counter", "Time they waited for that", |it| {
            number(it, "fenced_ms", 1e3)
        }),
        (Path, "ebof_host_path_reconnects_total", "counter", "Reconnects of the path's controller", |it| {
            number(it, "reconnects", 1.0)
        }),
    ]
};

fn is_live(object: &LiveObject) -> Samples {
    truth(object.labels.get("state").is_some_and(|state| state == "live"))
}

fn is_enabled(object: &LiveObject) -> Samples {
    truth(object.labels.get("enabled").is_some_and(|enabled| enabled == "true"))
}

fn truth(is_so: bool) -> Samples {
    vec![(Vec::new(), f64::from(u8::from(is_so)))]
}

/// What is known of the object and stays.
fn info(object: &LiveObject) -> Samples {
    const NAMES: [(&str, &str); 5] = [
        ("subsystem", "subsystem"),
        ("address", "address"),
        ("front", "front"),
        ("nsid", "nsid"),
        ("path", "block_device"),
    ];
    let known = NAMES.iter().filter_map(|(label, name)| Some((*name, object.labels.get(*label)?.clone())));
    vec![(known.collect(), 1.0)]
}

fn troubles(object: &LiveObject) -> Samples {
    let kinds = ebof_initiator::Trouble::ALL.into_iter();
    let of = |name: &'static str| Some((vec![("kind", name.to_owned())], object.labels.get(name)?.parse().ok()?));
    kinds.filter_map(|trouble| of(trouble.name())).collect()
}

fn access(object: &LiveObject) -> Samples {
    let states = object.labels.get("access").map(String::as_str).unwrap_or_default();
    let states = states.split(',').filter(|state| !state.is_empty());
    states.map(|state| (vec![("access", state.to_owned())], 1.0)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "samples are floating-point numbers in Prometheus")]
fn by_kind(object: &LiveObject, of: fn(&KindCounters) -> u64, divisor: f64) -> Samples {
    let kinds = ["read", "write", "other"].into_iter().zip(&object.counters.kinds);
    kinds.map(|(kind, counters)| (vec![("kind", kind.to_owned())], of(counters) as f64 / divisor)).collect()
}

fn commands(object: &LiveObject) -> Samples {
    by_kind(object, |kind| kind.commands, 1.0)
}

fn errors(object: &LiveObject) -> Samples {
    by_kind(object, |kind| kind.errors, 1.0)
}

fn bytes(object: &LiveObject) -> Samples {
    by_kind(object, |kind| kind.bytes, 1.0)
}

fn seconds(object: &LiveObject) -> Samples {
    by_kind(object, |kind| kind.latency_sum_us, 1e6)
}

#[expect(clippy::cast_precision_loss, reason = "samples are floating-point numbers in Prometheus")]
fn in_flight(object: &LiveObject) -> Samples {
    object.in_flight.map(|count| (Vec::new(), count as f64)).into_iter().collect()
}

/// A number that the object's labels have.
fn number(object: &LiveObject, label: &str, divisor: f64) -> Samples {
    let known = object.labels.get(label).and_then(|text| text.parse::<f64>().ok());
    known.map(|number| (Vec::new(), number / divisor)).into_iter().collect()
}

impl HostMetrics {
    /// The samples of a family: labels and value.
    fn samples(&self, (kind, _, _, _, of): &Family) -> Vec<(BTreeMap<&'static str, String>, f64)> {
        let objects = self.objects.iter().filter(|it| it.object.kind == *kind);
        let of_object = |object: &LiveObject| {
            let name = object.object.name.clone();
            let mut own = vec![("device", object.labels.get("controller").cloned().unwrap_or_default())];
            match kind {
                LiveKind::Namespace => own.push(("namespace", name)),
                LiveKind::Path => own.push(("path", name)),
                LiveKind::Controller | LiveKind::Queue => {}
            }
            let with = |(labels, value): (Vec<_>, f64)| (own.iter().cloned().chain(labels).collect(), value);
            of(object).into_iter().map(with).collect::<Vec<_>>()
        };
        objects.flat_map(of_object).collect()
    }
}

impl View for HostMetrics {
    fn text(&self, _verbose: bool) -> String {
        let mut text = String::new();
        for family in &FAMILIES {
            let (_, name, kind, help, _) = family;
            let samples = self.samples(family);
            if samples.is_empty() {
                continue;
            }
            let _infallible = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (labels, value) in samples {
                let labels: Vec<String> =
                    labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
                let _infallible = writeln!(text, "{name}{{{}}} {value}", labels.join(","));
            }
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let family = |family: &Family| {
            let (_, name, kind, help, _) = family;
            let sample = |(labels, value)| serde_json::json!({ "labels": labels, "value": value });
            let samples: Vec<serde_json::Value> = self.samples(family).into_iter().map(sample).collect();
            serde_json::json!({ "name": name, "type": kind, "help": help, "samples": samples })
        };
        let families: Vec<serde_json::Value> = FAMILIES.iter().map(family).collect();
        Object::document("host-metrics", 1).with("families", serde_json::Value::from(families))
    }
}

/// The value of a label, as the format has it.
fn escaped(value: &str) -> String {
    let mut text = String::new();
    for char in value.chars() {
        match char {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            char if char.is_control() => text.push('?'),
            char => text.push(char),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use ebof_manage::history::ObjectCounters;

    use super::*;

    fn object(name: &str, labels: &[(&str, &str)]) -> LiveObject {
        let mut counters = ObjectCounters::default();
        let read = &mut counters.kinds[0];
        (read.commands, read.bytes, read.latency_sum_us) = (1000, 4_096_000, 250_000);
        let labels = labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        LiveObject { object: name.parse().unwrap(), counters, in_flight: Some(3), labels }
    }

    fn host() -> HostMetrics {
        let device = ("controller", "nvme0");
        let nqn = ("subsystem", "nqn.2014-08.org.example:\"\\\nd3");
        let path = |name, state, more: &[(&str, &str)]| {
            let of_all = [device, nqn, ("state", state), ("enabled", "true"), ("address", "tcp://192.0.2.1:4420")];
            object(name, &[&of_all, more].concat())
        };
        let told = [
            ("access", "inaccessible,optimized"),
            ("failovers", "12"),
            ("repeated", "14"),
            ("fences", "2"),
            ("fenced_ms", "1503"),
            ("reconnects", "2"),
            ("latency_us", "250"),
        ];
        HostMetrics {
            objects: vec![
                object("controller:nvme0", &[device, nqn, ("state", "live"), ("front", "ublk"), ("lost", "3")]),
                path("path:nvme0c0", "connecting", &told),
                path("path:nvme0c1", "live", &[]),
                object("namespace:nvme0n1", &[device, nqn, ("nsid", "1"), ("path", "/dev/ublkb0")]),
            ],
        }
    }

    // @test output.path-metrics
    #[test]
    fn each_path_has_metrics() {
        insta::assert_snapshot!("metrics", host().text(false));
        let json = host().json(false).to_text().unwrap();
        assert!(json.contains("ebof/host-metrics/1") && json.contains("ebof_host_path_failovers_total"), "{json}");
        let nothing = HostMetrics { objects: Vec::new() };
        assert_eq!(nothing.text(false), "");
    }

    // @test output.path-metrics
    #[test]
    fn promtool_finds_nothing_wrong_with_them() {
        let mut check = Command::new("promtool");
        check.args(["check", "metrics"]).stdin(Stdio::piped());
        let Ok(mut check) = check.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() else {
            println!("SKIPPED: promtool is not installed");
            return;
        };
        check.stdin.take().unwrap().write_all(host().text(false).as_bytes()).unwrap();
        let done = check.wait_with_output().unwrap();
        let told = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        assert!(done.status.success() && told.is_empty(), "{told}");
    }
}
