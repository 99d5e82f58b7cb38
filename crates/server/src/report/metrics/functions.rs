//! Functions of drives: what each has done, and how long it waited for its share.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::{Labels, encode_latency, seconds};
use crate::observe::stats::{Kind, KindTotals};
use crate::report::function_load::FunctionLoad;

pub(super) fn encode(functions: &[FunctionLoad], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let mut counter = |name, help, unit, value: fn(&KindTotals) -> u64| {
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
        for (function, kind) in by_kind(functions) {
            let labels = labels_of(function, kind);
            ConstCounter::new(value(function.kind(kind))).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    };
    counter("ebof_function_commands", "I/O commands of a function", None, |totals| totals.commands)?;
    counter("ebof_function_data", "Data moved by them", Some(&Unit::Bytes), |totals| totals.bytes)?;
    let name = "ebof_function_command_latency";
    let help = "From the arrival of a command to its completion, by function";
    let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for (function, kind) in by_kind(functions) {
        encode_latency(function.kind(kind), family.encode_family(&labels_of(function, kind))?)?;
    }
    encode_shares(functions, encoder)
}

fn encode_shares(functions: &[FunctionLoad], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let name = "ebof_function_scheduled";
    let help = "Requests that asked for their turn at the drive: none while a function uses it alone";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for function in functions {
        ConstCounter::new(function.scheduled).encode(family.encode_family(&labels(function))?)?;
    }
    let mut time = |name, help, value: fn(&FunctionLoad) -> u64| {
        let mut family = encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Counter)?;
        for function in functions {
            ConstCounter::new(seconds(value(function))).encode(family.encode_family(&labels(function))?)?;
        }
        Ok(())
    };
    time("ebof_function_queueing", "How long requests waited for their turn, together", |function| function.queued_us)?;
    time("ebof_function_throttled", "How long limits kept a function from its drive", |function| {
        function.throttled_us
    })?;
    let mut gauge = |name, help, unit: Option<&Unit>, value: fn(&FunctionLoad) -> f64| {
        let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
        for function in functions {
            ConstGauge::new(value(function)).encode(family.encode_family(&labels(function))?)?;
        }
        Ok(())
    };
    gauge("ebof_function_waiting", "Commands that wait for their turn now", None, |function| {
        f64::from(function.waiting)
    })?;
    gauge("ebof_function_weight", "Part of the drive in relation to other functions", None, |function| {
        f64::from(function.weight)
    })?;
    let ratio = Unit::Other("ratio".to_owned());
    let help = "Part of what all functions of the drive have had: commands and pages of 4 KiB";
    gauge("ebof_function_share", help, Some(&ratio), |function| function.part)
}

/// Kinds that a function has commands of.
fn by_kind(functions: &[FunctionLoad]) -> impl Iterator<Item = (&FunctionLoad, Kind)> {
    let all = functions.iter().flat_map(|function| Kind::ALL.map(|kind| (function, kind)));
    all.filter(|(function, kind)| function.kind(*kind).commands > 0)
}

fn labels(function: &FunctionLoad) -> Labels {
    vec![("subsystem", function.drive_nqn.clone()), ("function", function.name())]
}

fn labels_of(function: &FunctionLoad, kind: Kind) -> Labels {
    let mut labels = labels(function);
    labels.push(("kind", kind.label().to_owned()));
    labels
}
