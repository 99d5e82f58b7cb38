//! The target's figures as OpenMetrics text.

use std::fmt;

use ebof_manage::api::{Refusal, Status};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::stats::{Kind, KindTotals, LATENCY_BOUNDS_US, Series, Totals};
use crate::zerocopy::Figures;

/// Renders everything.
pub(crate) fn render(status: &Status, totals: &Totals, refusals: &[Refusal], zerocopy: Figures) -> String {
    let refusals = refusals.to_vec();
    let snapshot = Snapshot { status: status.clone(), totals: totals.clone(), refusals, zerocopy };
    let mut registry = Registry::default();
    registry.register_collector(Box::new(snapshot));
    let mut out = String::new();
    if let Err(error) = text::encode(&mut out, &registry) {
        tracing::error!("metrics cannot be encoded: {error}");
    }
    out
}

#[derive(Debug)]
struct Snapshot {
    status: Status,
    totals: Totals,
    refusals: Vec<Refusal>,
    zerocopy: Figures,
}

type Labels = Vec<(&'static str, String)>;

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.encode_target(&mut encoder)?;
        self.encode_zerocopy(&mut encoder)?;
        self.encode_commands(&mut encoder)
    }
}

impl Snapshot {
    fn encode_target(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let status = &self.status;
        gauge(encoder, "ebof_uptime_seconds", "Seconds since the target started", status.uptime_s)?;
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
        let mut sizes =
            encoder.encode_descriptor("ebof_namespace_size", "Capacity", Some(&Unit::Bytes), MetricType::Gauge)?;
        for subsystem in &status.subsystems {
            for namespace in &subsystem.namespaces {
                let labels: Labels =
                    vec![("subsystem", subsystem.nqn.clone()), ("namespace", namespace.nsid.to_string())];
                ConstGauge::new(signed(namespace.size_bytes)).encode(sizes.encode_family(&labels)?)?;
            }
        }
        let name = "ebof_refusals_remembered";
        let mut refusals =
            encoder.encode_descriptor(name, "Refused connections in the journal", None, MetricType::Gauge)?;
        let mut by_reason = std::collections::BTreeMap::<String, u64>::new();
        for refusal in &self.refusals {
            *by_reason.entry(format!("{:?}", refusal.reason)).or_default() += refusal.count;
        }
        for (reason, count) in by_reason {
            let labels: Labels = vec![("reason", reason)];
            ConstGauge::new(signed(count)).encode(refusals.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn encode_zerocopy(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut counter = |name, help, value| {
            let metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            ConstCounter::new(value).encode(metric)
        };
        let Figures { sends, copied, refused, fallbacks } = self.zerocopy;
        counter("ebof_zerocopy_sends", "Sends without a copy", sends)?;
        counter("ebof_zerocopy_copied", "Sends without a copy that the kernel copied all the same", copied)?;
        counter("ebof_zerocopy_refused", "Sends that were copied because the kernel could pin no more", refused)?;
        counter("ebof_zerocopy_fallbacks", "Connections that went back to copying", fallbacks)
    }

    fn encode_commands(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut counter = |name, help, unit, value: fn(&KindTotals) -> u64| {
            let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
            self.each(|labels, totals| ConstCounter::new(value(totals)).encode(family.encode_family(labels)?))
        };
        counter("ebof_commands", "I/O commands completed", None, |totals| totals.commands)?;
        counter("ebof_data", "Data moved by I/O commands", Some(&Unit::Bytes), |totals| totals.bytes)?;
        counter("ebof_command_errors", "I/O commands completed with an error", None, |totals| totals.errors)?;
        let help = "From the arrival of a command to its completion";
        let name = "ebof_command_latency";
        let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        self.each(|labels, totals| {
            let mut family = family.encode_family(labels)?;
            let bounds = LATENCY_BOUNDS_US.iter().map(|&us| seconds(us)).chain([f64::MAX]);
            let buckets: Vec<(f64, u64)> = bounds.zip(totals.latency).collect();
            family.encode_histogram::<NoLabelSet>(seconds(totals.latency_sum_us), totals.commands, &buckets, None)
        })
    }

    fn each(&self, mut with: impl FnMut(&Labels, &KindTotals) -> fmt::Result) -> fmt::Result {
        for (series, kinds) in self.totals.iter() {
            for (kind, totals) in Kind::ALL.into_iter().zip(kinds) {
                if totals.commands > 0 {
                    with(&labels(series, kind), totals)?;
                }
            }
        }
        Ok(())
    }
}

fn labels(series: &Series, kind: Kind) -> Labels {
    vec![
        ("host", series.host.clone()),
        ("subsystem", series.subsystem.clone()),
        ("namespace", series.nsid.to_string()),
        ("queue", series.queue.to_string()),
        ("kind", kind.label().to_owned()),
    ]
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
