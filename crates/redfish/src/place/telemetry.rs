//! Addresses of metrics.

use super::Address;

/// Addresses below `/redfish/v1/TelemetryService`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TelemetryPlace {
    /// The service.
    Service,
    /// What metrics there are.
    MetricDefinitions,
    /// A metric.
    MetricDefinition(String),
    /// What reports there are.
    ReportDefinitions,
    /// A report, as it is defined.
    ReportDefinition(String),
    /// The reports.
    Reports,
    /// A report, or the history of an object.
    Report(String),
}

impl Address for TelemetryPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        let ["TelemetryService", rest @ ..] = segments else { return None };
        Some(match rest {
            [] => Self::Service,
            ["MetricDefinitions"] => Self::MetricDefinitions,
            ["MetricDefinitions", id] => Self::MetricDefinition((*id).to_owned()),
            ["MetricReportDefinitions"] => Self::ReportDefinitions,
            ["MetricReportDefinitions", id] => Self::ReportDefinition((*id).to_owned()),
            ["MetricReports"] => Self::Reports,
            ["MetricReports", id] => Self::Report((*id).to_owned()),
            _ => return None,
        })
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("TelemetryService", "TelemetryService"),
            ("MetricDefinitionCollection", "TelemetryService/MetricDefinitions"),
            ("MetricDefinition", "TelemetryService/MetricDefinitions/{MetricDefinitionId}"),
            ("MetricReportDefinitionCollection", "TelemetryService/MetricReportDefinitions"),
            ("MetricReportDefinition", "TelemetryService/MetricReportDefinitions/{MetricReportDefinitionId}"),
            ("MetricReportCollection", "TelemetryService/MetricReports"),
            ("MetricReport", "TelemetryService/MetricReports/{MetricReportId}"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        let below: &[&str] = match self {
            Self::Service => &[],
            Self::MetricDefinitions => &["MetricDefinitions"],
            Self::MetricDefinition(id) => &["MetricDefinitions", id],
            Self::ReportDefinitions => &["MetricReportDefinitions"],
            Self::ReportDefinition(id) => &["MetricReportDefinitions", id],
            Self::Reports => &["MetricReports"],
            Self::Report(id) => &["MetricReports", id],
        };
        [&["TelemetryService"], below].concat()
    }
}
