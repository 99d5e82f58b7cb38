//! Addresses of metrics.

use ebof_manage::history::SeriesKind;
use serde::{Deserialize, Serialize};

use super::{Address, Place};

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

/// What a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&str")]
pub(crate) struct ReportKind(SeriesKind);

impl From<ReportKind> for &str {
    fn from(kind: ReportKind) -> Self {
        kind.name()
    }
}

impl TryFrom<String> for ReportKind {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::named(&name).ok_or_else(|| format!("there is no report `{name}`"))
    }
}

impl ReportKind {
    /// All reports.
    pub(crate) const ALL: [Self; 6] = [
        Self(SeriesKind::Target),
        Self(SeriesKind::Drive),
        Self(SeriesKind::Function),
        Self(SeriesKind::Port),
        Self(SeriesKind::Namespace),
        Self(SeriesKind::Host),
    ];

    /// Its identifier.
    pub(crate) const fn name(self) -> &'static str {
        match self.0 {
            SeriesKind::Target => "Target",
            SeriesKind::Drive => "Drives",
            SeriesKind::Function => "Functions",
            SeriesKind::Port => "Ports",
            SeriesKind::Namespace => "Namespaces",
            SeriesKind::Host => "Hosts",
        }
    }

    /// The report of an identifier.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What its objects are.
    pub(crate) const fn series(self) -> SeriesKind {
        self.0
    }

    /// The address of its definition.
    pub(crate) fn definition(self) -> Place {
        TelemetryPlace::ReportDefinition(self.name().to_owned()).into()
    }
}
