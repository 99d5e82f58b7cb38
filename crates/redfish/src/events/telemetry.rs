//! What objects did, as metrics: `/redfish/v1/TelemetryService`.
//!
//! A report has the latest second of all objects of a kind. The history of one object is a report,
//! too, at `MetricReports/History-KIND-NAME-RESOLUTION`; these are not listed, since there are many
//! and each is long.

mod definition;
mod report;

use ebof_manage::history::Resolution;
use serde::Serialize;
use serde_json::Value;

use crate::area::Area;
use crate::managed::view::View;
use crate::place::{ReportKind, TelemetryPlace};
use crate::response::head::{Collection, Head, Link, Status, json, link};
use crate::response::message::Problem;
use definition::{MetricDefinition, MetricReportDefinition};
pub(crate) use report::report;

impl Area for TelemetryPlace {
    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        let kind = |id: &str| ReportKind::with_name(id).ok_or_else(|| self.missing());
        let kinds = || ReportKind::ALL.map(|kind| kind.name().to_owned());
        Ok(match self {
            Self::Service => json(&TelemetryService::new()),
            Self::MetricDefinitions => {
                let all = definition::METRICS.iter().map(|metric| Self::MetricDefinition(metric.id.to_owned()));
                json(&Collection::new(Self::MetricDefinitions, "MetricDefinition", "Metric Definitions", all))
            }
            Self::MetricDefinition(id) => json(&MetricDefinition::named(id).ok_or_else(|| self.missing())?),
            Self::ReportDefinitions => {
                let all = kinds().map(Self::ReportDefinition);
                let name = "Metric Report Definitions";
                json(&Collection::new(Self::ReportDefinitions, "MetricReportDefinition", name, all))
            }
            Self::ReportDefinition(id) => json(&MetricReportDefinition::new(kind(id)?)),
            Self::Reports => {
                json(&Collection::new(Self::Reports, "MetricReport", "Metric Reports", kinds().map(Self::Report)))
            }
            Self::Report(id) => match ReportKind::with_name(id) {
                Some(kind) => report(kind, &view.parts.measured.overview(), view),
                None => self.history(id, view).ok_or_else(|| self.missing())?,
            },
        })
    }
}

impl TelemetryPlace {
    /// `History-Functions-d3-vf2-10s`
    fn history(&self, id: &str, view: &View<'_>) -> Option<Value> {
        let (kind, rest) = id.strip_prefix("History-")?.split_once('-')?;
        let (name, resolution) = rest.rsplit_once('-')?;
        let (kind, resolution) = (ReportKind::with_name(kind)?, Resolution::named(resolution)?);
        report::history(self.clone(), kind, name, resolution, view)
    }
}

/// `TelemetryService`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct TelemetryService {
    #[serde(flatten)]
    head: Head,
    service_enabled: bool,
    status: Status,
    max_reports: usize,
    min_collection_interval: &'static str,
    metric_definitions: Link,
    metric_report_definitions: Link,
    metric_reports: Link,
}

impl TelemetryService {
    fn new() -> Self {
        let description = "What functions, ports, drives and hosts do in each second";
        Self {
            head: Head::new(
                TelemetryPlace::Service,
                "#TelemetryService.v1_4_1.TelemetryService",
                "Telemetry Service",
                description,
            ),
            service_enabled: true,
            status: Status::OK,
            max_reports: ReportKind::ALL.len(),
            min_collection_interval: "PT1S",
            metric_definitions: link(TelemetryPlace::MetricDefinitions),
            metric_report_definitions: link(TelemetryPlace::ReportDefinitions),
            metric_reports: link(TelemetryPlace::Reports),
        }
    }
}

#[cfg(test)]
mod tests;
