//! `MetricDefinition` and `MetricReportDefinition`.

use ebof_manage::history::Sample;
use serde::Serialize;
use serde_json::{Value, json};

use crate::place::{ReportKind, TelemetryPlace};
use crate::response::head::{Head, Link, Status, link};

/// A metric: what it is, and its value in a sample.
pub(super) struct Metric {
    pub(super) id: &'static str,
    name: &'static str,
    /// By UCUM.
    units: &'static str,
    pub(super) value: Reading,
}

/// Where a value is.
#[derive(Clone, Copy)]
pub(super) enum Reading {
    /// What can be summed up over objects.
    Rate(fn(&Sample) -> f32),
    /// What cannot, and is unknown without commands.
    Latency(fn(&Sample) -> Option<u32>),
    Count(fn(&Sample) -> u32),
}

impl Reading {
    /// The value as Redfish has it, a text.
    pub(super) fn value_in(self, sample: &Sample) -> Option<String> {
        match self {
            // More digits would be noise.
            Self::Rate(of) => Some(format!("{:.1}", of(sample))),
            Self::Latency(of) => of(sample).map(|us| us.to_string()),
            Self::Count(of) => Some(of(sample).to_string()),
        }
    }
}

const fn metric(id: &'static str, name: &'static str, units: &'static str, value: Reading) -> Metric {
    Metric { id, name, units, value }
}

/// What is known of objects.
pub(super) const METRICS: [Metric; 10] = {
    use Reading::{Count, Latency, Rate};
    [
        metric("ReadCommands", "Read commands in a second", "/s", Rate(|sample| sample.read.commands_per_s)),
        metric("WriteCommands", "Write commands in a second", "/s", Rate(|sample| sample.write.commands_per_s)),
        metric("OtherCommands", "Other commands in a second", "/s", Rate(|sample| sample.other.commands_per_s)),
        metric("ReadBytes", "Bytes read in a second", "By/s", Rate(|sample| sample.read.bytes_per_s)),
        metric("WriteBytes", "Bytes written in a second", "By/s", Rate(|sample| sample.write.bytes_per_s)),
        metric("Errors", "Commands that failed, in a second", "/s", Rate(|sample| sample.all.errors_per_s)),
        metric("LatencyP50", "Latency, 50th percentile", "us", Latency(|sample| sample.all.p50_us)),
        metric("LatencyP99", "Latency, 99th percentile", "us", Latency(|sample| sample.all.p99_us)),
        metric("LatencyP999", "Latency, 99.9th percentile", "us", Latency(|sample| sample.all.p999_us)),
        metric("Waiting", "Commands that wait for their turn", "1", Count(|sample| sample.waiting)),
    ]
};

/// `MetricDefinition`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct MetricDefinition {
    #[serde(flatten)]
    head: Head,
    metric_type: &'static str,
    metric_data_type: &'static str,
    implementation: &'static str,
    calculable: &'static str,
    units: &'static str,
    is_linear: bool,
    sensing_interval: &'static str,
}

impl MetricDefinition {
    pub(super) fn named(id: &str) -> Option<Self> {
        let metric = METRICS.iter().find(|metric| metric.id == id)?;
        let place = TelemetryPlace::MetricDefinition(id.to_owned());
        let description = "What objects did in a second";
        let is_whole = matches!(metric.value, Reading::Count(_) | Reading::Latency(_));
        Some(Self {
            head: Head::new(place, "#MetricDefinition.v1_3_5.MetricDefinition", metric.name, description),
            metric_type: "Gauge",
            metric_data_type: if is_whole { "Integer" } else { "Decimal" },
            implementation: "Calculated",
            calculable: if matches!(metric.value, Reading::Latency(_)) { "NonSummable" } else { "Summable" },
            units: metric.units,
            is_linear: true,
            sensing_interval: "PT1S",
        })
    }
}

/// `MetricReportDefinition`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct MetricReportDefinition {
    #[serde(flatten)]
    head: Head,
    metric_report_definition_type: &'static str,
    metric_report_definition_enabled: bool,
    schedule: Value,
    report_actions: [&'static str; 2],
    report_updates: &'static str,
    status: Status,
    metrics: Vec<Value>,
    metric_report: Link,
}

impl MetricReportDefinition {
    pub(super) fn new(kind: ReportKind) -> Self {
        let id = kind.name().to_owned();
        Self {
            head: Head::new(
                TelemetryPlace::ReportDefinition(id.clone()),
                "#MetricReportDefinition.v1_4_7.MetricReportDefinition",
                id.clone(),
                format!("What {} did in the latest second", kind.objects()),
            ),
            metric_report_definition_type: "Periodic",
            metric_report_definition_enabled: true,
            schedule: json!({ "RecurrenceInterval": "PT1S" }),
            report_actions: ["LogToMetricReportsCollection", "RedfishEvent"],
            report_updates: "Overwrite",
            status: Status::OK,
            metrics: METRICS.iter().map(|metric| json!({ "MetricId": metric.id })).collect(),
            metric_report: link(TelemetryPlace::Report(id)),
        }
    }
}
