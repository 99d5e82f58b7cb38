//! `MetricReport`: the latest second of all objects of a kind, or the history of one.

use ebof_manage::history::{Overview, Query, Resolution, Sample, SeriesKind, SeriesName};
use serde::Serialize;
use serde_json::Value;

use super::definition::METRICS;
use crate::events::objects;
use crate::managed::view::View;
use crate::place::id::slug;
use crate::place::{ManagerPlace, Place, ReportKind, TelemetryPlace};
use crate::response::head::{Head, Link, link};
use crate::response::time::date_time;

/// `MetricReport`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct MetricReport {
    #[serde(flatten)]
    head: Head,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_report_definition: Option<Link>,
    metric_values: Vec<MetricValue>,
    #[serde(rename = "MetricValues@odata.count")]
    count: usize,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct MetricValue {
    metric_id: &'static str,
    metric_value: String,
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric_property: Option<String>,
}

const KIND: &str = "#MetricReport.v1_5_2.MetricReport";

/// What all objects of a kind did in the latest second.
pub(crate) fn report(kind: ReportKind, overview: &Overview, view: &View<'_>) -> Value {
    let id = kind.name().to_owned();
    let mut values = Vec::new();
    for object in overview.objects.iter().filter(|object| object.object.kind == kind.series()) {
        push_values(&mut values, &object.sample, Some(&place(&object.object, view)));
    }
    let head = Head::new(
        TelemetryPlace::Report(id.clone()),
        KIND,
        id.clone(),
        format!("What {} did in the latest second", kind.objects()),
    );
    crate::response::head::json(&MetricReport {
        head,
        timestamp: (overview.time_unix_ms > 0).then(|| date_time(overview.time_unix_ms)),
        metric_report_definition: Some(link(TelemetryPlace::ReportDefinition(id))),
        count: values.len(),
        metric_values: values,
    })
}

/// What one object did, interval by interval. `name` is the object's as an identifier.
pub(super) fn history(
    place: TelemetryPlace,
    kind: ReportKind,
    name: &str,
    resolution: Resolution,
    view: &View<'_>,
) -> Option<Value> {
    let overview = view.parts.measured.overview();
    let is_it = |object: &SeriesName| object.kind == kind.series() && matches_id(object, name, view);
    let object = overview.objects.into_iter().map(|object| object.object).find(is_it)?;
    let query = Query { object, resolution, after_unix_ms: 0, until_unix_ms: u64::MAX };
    let samples = view.parts.measured.samples(&query).ok()?;
    let mut values = Vec::new();
    samples.samples.iter().for_each(|sample| push_values(&mut values, sample, None));
    let timestamp = samples.samples.last().map(|sample| date_time(sample.time_unix_ms));
    let description = format!("What {} did, in steps of {}", query.object, resolution.name());
    Some(crate::response::head::json(&MetricReport {
        head: Head::new(place, KIND, format!("History of {}", query.object), description),
        timestamp,
        metric_report_definition: None,
        count: values.len(),
        metric_values: values,
    }))
}

/// Whether an identifier is that of an object: `d3-vf2` of `d3/vf2`; else that of its resource.
fn matches_id(object: &SeriesName, id: &str, view: &View<'_>) -> bool {
    // Several drives have a `vf2`, and a `ns4`.
    let is_part = matches!(object.kind, SeriesKind::Function | SeriesKind::Namespace);
    match object.name.rsplit_once('/').filter(|_| is_part) {
        Some((of, part)) => format!("{}-{part}", slug(of)) == id,
        None => slug(&object.name) == id || place(object, view).id() == id,
    }
}

fn push_values(values: &mut Vec<MetricValue>, sample: &Sample, place: Option<&Place>) {
    let timestamp = date_time(sample.time_unix_ms);
    for metric in &METRICS {
        if let Some(value) = metric.value.value_in(sample) {
            values.push(MetricValue {
                metric_id: metric.id,
                metric_value: value,
                timestamp: timestamp.clone(),
                metric_property: place.map(|place| format!("{place}#/{}", metric.id)),
            });
        }
    }
}

/// The resource of an object.
fn place(object: &SeriesName, view: &View<'_>) -> Place {
    let name = object.name.as_str();
    match object.kind {
        SeriesKind::Target => ManagerPlace::Manager.into(),
        SeriesKind::Drive => objects::drive(name, view).into(),
        SeriesKind::Function | SeriesKind::Namespace => {
            objects::part(name, view).unwrap_or_else(|| objects::subsystem(name, view)).into()
        }
        SeriesKind::Port => objects::port(name, view),
        SeriesKind::Host => objects::host(name, view).into(),
    }
}
