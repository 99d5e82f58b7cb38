//! The target's figures as text for monitoring.
//!
//! Names and units follow OpenMetrics and Prometheus' own rules, which the tests hold them to: base
//! units, counters that end in `_total`, a help text for each.

mod drives;
mod events;
mod functions;
mod text;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use ebof_manage::api::{Refusal, Status};
use ebof_manage::events::EventKind;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::observe::sent::Figures;
use crate::observe::slow::SlowFigures;
use crate::observe::stats::{Kind, KindTotals, Series, Totals};
use crate::report::function_load::FunctionLoad;
use crate::shared::owners::Owners;

/// How metrics are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0 (`application/openmetrics-text`).
    #[default]
    OpenMetrics,
    /// Prometheus' own text format, 0.0.4 (`text/plain`): what `promtool check metrics` reads.
    Text,
}

/// The labels of metrics of commands, beside host, subsystem and kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsDetail {
    /// By namespace.
    #[default]
    Namespace,
    /// By namespace and queue: a host has as many queues as processors, and each makes 23 lines for
    /// each namespace and kind.
    Queue,
}

/// What the metrics are made of.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) status: Status,
    pub(crate) totals: Totals,
    pub(crate) refusals: Vec<Refusal>,
    pub(crate) zerocopy: Figures,
    pub(crate) capsules: CapsuleMemory,
    pub(crate) functions: Vec<FunctionLoad>,
    pub(crate) owners: Owners,
    /// Ports by name, and whether they accept connections.
    pub(crate) listening: Vec<(String, bool)>,
    pub(crate) slow: SlowFigures,
    /// How many events of each kind there were.
    pub(crate) events: Vec<(EventKind, u64)>,
    /// Trouble of connections, by kind.
    pub(crate) troubles: Vec<(&'static str, u64)>,
}

/// What connections over RDMA have of the memory for capsules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CapsuleMemory {
    pub(crate) used_bytes: u64,
    pub(crate) max_bytes: u64,
}

/// Renders everything.
pub(crate) fn render(snapshot: Snapshot, exposition: Exposition, detail: MetricsDetail) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collected { series: series(&snapshot, detail), snapshot }));
    let mut out = String::new();
    if let Err(error) = prometheus_client::encoding::text::encode(&mut out, &registry) {
        tracing::error!("metrics cannot be encoded: {error}");
    }
    match exposition {
        Exposition::OpenMetrics => out,
        Exposition::Text => text::from_openmetrics(&out),
    }
}

type Rows = BTreeMap<Labels, KindTotals>;

/// The counters of commands by their labels.
fn series(snapshot: &Snapshot, detail: MetricsDetail) -> Rows {
    let mut rows = Rows::new();
    for (series, kinds) in snapshot.totals.iter() {
        for (kind, totals) in Kind::ALL.into_iter().zip(kinds) {
            if totals.commands > 0 {
                rows.entry(labels(series, kind, detail, &snapshot.owners)).or_default().add(totals);
            }
        }
    }
    rows
}

#[derive(Debug)]
struct Collected {
    snapshot: Snapshot,
    series: Rows,
}

type Labels = Vec<(&'static str, String)>;

impl Collector for Collected {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Snapshot { status, refusals, zerocopy, capsules, functions, listening, slow, events, .. } = &self.snapshot;
        encode_build(&status.version, &mut encoder)?;
        encode_target(status, &mut encoder)?;
        encode_refusals(refusals, &mut encoder)?;
        events::encode(listening, *slow, events, &mut encoder)?;
        encode_troubles(&self.snapshot.troubles, &mut encoder)?;
        drives::encode(&status.drives, &mut encoder)?;
        if !functions.is_empty() {
            functions::encode(functions, &mut encoder)?;
        }
        encode_zerocopy(*zerocopy, &mut encoder)?;
        encode_capsules(*capsules, &mut encoder)?;
        self.encode_commands(&mut encoder)
    }
}

fn encode_build(version: &str, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let info = encoder.encode_descriptor("ebof_build", "The program that serves", None, MetricType::Info)?;
    Info::new([("version", version)]).encode(info)
}

fn encode_target(status: &Status, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let unit = Some(&Unit::Seconds);
    let uptime = encoder.encode_descriptor("ebof_uptime", "Time since the target started", unit, MetricType::Gauge)?;
    ConstGauge::new(signed(status.uptime_s)).encode(uptime)?;
    gauge(encoder, "ebof_connections", "Connections open now", status.connections.into())?;
    gauge(encoder, "ebof_connections_limit", "Connections allowed at a time", status.connections_max.into())?;
    gauge(encoder, "ebof_controllers", "Controllers, discovery included", status.controllers.len() as u64)?;
    let mut ports = |name, help, value: fn(&ebof_manage::api::PortStatus) -> u64| {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for port in &status.ports {
            let labels: Labels = vec![("port", port.name.clone())];
            ConstCounter::new(value(port)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    };
    ports("ebof_connections_accepted", "Connections accepted since the start", |port| port.accepted)?;
    ports("ebof_connections_refused", "Connections refused since the start", |port| port.refused)?;
    let help = "Something that is to be served and cannot be had";
    let mut missing = encoder.encode_descriptor("ebof_missing", help, None, MetricType::Gauge)?;
    for object in &status.missing {
        let labels: Labels = vec![("kind", object.kind.name().to_owned()), ("name", object.name.clone())];
        ConstGauge::new(1_i64).encode(missing.encode_family(&labels)?)?;
    }
    let help = "Capacity of a namespace";
    let mut sizes = encoder.encode_descriptor("ebof_namespace_size", help, Some(&Unit::Bytes), MetricType::Gauge)?;
    for subsystem in status.enabled_subsystems() {
        for namespace in subsystem.enabled_namespaces() {
            let labels: Labels = vec![("subsystem", subsystem.nqn.clone()), ("namespace", namespace.nsid.to_string())];
            ConstGauge::new(signed(namespace.size_bytes)).encode(sizes.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_capsules(capsules: CapsuleMemory, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut bytes = |name, help, value| {
        let metric = encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?;
        ConstGauge::new(signed(value)).encode(metric)
    };
    bytes("ebof_rdma_capsule_memory", "Memory for capsules of connections over RDMA", capsules.used_bytes)?;
    bytes("ebof_rdma_capsule_memory_limit", "Memory allowed for capsules over RDMA", capsules.max_bytes)
}

fn encode_refusals(refusals: &[Refusal], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let name = "ebof_refusals_remembered";
    let mut family = encoder.encode_descriptor(name, "Refused connections in the journal", None, MetricType::Gauge)?;
    let mut by_reason = BTreeMap::<String, u64>::new();
    for refusal in refusals {
        *by_reason.entry(format!("{:?}", refusal.reason)).or_default() += refusal.count;
    }
    for (reason, count) in by_reason {
        let labels: Labels = vec![("reason", reason)];
        ConstGauge::new(signed(count)).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn encode_troubles(troubles: &[(&'static str, u64)], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Digest errors, failed transfers, broken rules, lost connections and waits for memory of virtual machines: \
                `ebof target events` names the hosts";
    let mut family = encoder.encode_descriptor("ebof_transport_troubles", help, None, MetricType::Counter)?;
    for (kind, count) in troubles {
        let labels: Labels = vec![("kind", (*kind).to_owned())];
        ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn encode_zerocopy(figures: Figures, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut counter = |name, help, value| {
        let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    };
    let Figures { sends, copied, refused, fallbacks } = figures;
    counter("ebof_zerocopy_sends", "Sends without a copy", sends)?;
    counter("ebof_zerocopy_copied", "Sends without a copy that the kernel copied all the same", copied)?;
    counter("ebof_zerocopy_refused", "Sends that were copied because the kernel could pin no more", refused)?;
    counter("ebof_zerocopy_fallbacks", "Connections that went back to copying", fallbacks)
}

impl Collected {
    fn encode_commands(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut counter = |name, help, unit, value: fn(&KindTotals) -> u64| {
            let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
            let mut rows = self.series.iter();
            rows.try_for_each(|(labels, totals)| ConstCounter::new(value(totals)).encode(family.encode_family(labels)?))
        };
        counter("ebof_commands", "I/O commands completed", None, |totals| totals.commands)?;
        counter("ebof_data", "Data moved by I/O commands", Some(&Unit::Bytes), |totals| totals.bytes)?;
        counter("ebof_command_errors", "I/O commands completed with an error", None, |totals| totals.errors)?;
        let help = "From the arrival of a command to its completion";
        let name = "ebof_command_latency";
        let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (labels, totals) in &self.series {
            encode_latency(totals, family.encode_family(labels)?)?;
        }
        Ok(())
    }
}

/// Bounds of the buckets of latencies, microseconds: powers of two, where the finer buckets that
/// are counted begin, so that what is shown is exact.
fn bounds_us() -> impl Iterator<Item = u64> {
    (4..24).map(|power| 1 << power)
}

/// A histogram of latencies.
fn encode_latency(totals: &KindTotals, mut encoder: MetricEncoder<'_>) -> fmt::Result {
    let mut before = 0;
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    for us in bounds_us() {
        let below = totals.latency.below(us);
        buckets.push((seconds(us), below - before));
        before = below;
    }
    // The library writes `le="+Inf"` for infinity only, and without that bucket no quantile is
    // computed.
    let count = totals.latency.count();
    buckets.push((f64::INFINITY, count.saturating_sub(before)));
    encoder.encode_histogram::<NoLabelSet>(seconds(totals.latency_sum_us), count, &buckets, None)
}

fn labels(series: &Series, kind: Kind, detail: MetricsDetail, owners: &Owners) -> Labels {
    let mut labels = vec![
        ("host", series.host.clone()),
        ("port", series.port.clone()),
        ("subsystem", series.subsystem.clone()),
        ("namespace", series.nsid.to_string()),
    ];
    labels.extend(owners.owner(&series.subsystem).map(|owner| ("drive", owner.drive)));
    if detail == MetricsDetail::Queue {
        labels.push(("queue", series.queue.to_string()));
    }
    labels.push(("kind", kind.label().to_owned()));
    labels
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(signed(value)).encode(metric)
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "latencies are far below 2^53 microseconds")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
