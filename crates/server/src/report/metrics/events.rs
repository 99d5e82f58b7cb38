//! What operators are woken by: ports that accept nothing, events by kind, slow commands.

use std::fmt;

use ebof_manage::events::EventKind;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::{Labels, seconds};
use crate::observe::slow::SlowFigures;

pub(super) fn encode(
    listening: &[(String, bool)],
    slow: SlowFigures,
    events: &[(EventKind, u64)],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let help = "Whether the port accepts connections";
    let mut family = encoder.encode_descriptor("ebof_port_up", help, None, MetricType::Gauge)?;
    for (port, is_up) in listening {
        let labels: Labels = vec![("port", port.clone())];
        ConstGauge::new(i64::from(*is_up)).encode(family.encode_family(&labels)?)?;
    }
    let help = "Events since the start, by kind: `ebof target events` shows them";
    let mut family = encoder.encode_descriptor("ebof_events", help, None, MetricType::Counter)?;
    for (kind, count) in events {
        let labels: Labels = vec![("kind", kind.name().to_owned()), ("severity", kind.severity().to_string())];
        ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
    }
    let help = "I/O commands that took as long as slow_threshold or longer: `ebof target slow` shows the latest";
    let metric = encoder.encode_descriptor("ebof_slow_commands", help, None, MetricType::Counter)?;
    ConstCounter::new(slow.total).encode(metric)?;
    let help = "Commands that take this long are slow; 0 is none";
    let unit = Some(&Unit::Seconds);
    let metric = encoder.encode_descriptor("ebof_slow_threshold", help, unit, MetricType::Gauge)?;
    ConstGauge::new(seconds(slow.threshold_us.unwrap_or_default())).encode(metric)
}
