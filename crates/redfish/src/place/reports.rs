//! The reports of metrics, which are named in addresses and in what is stored of subscriptions.

use ebof_manage::history::SeriesKind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Place, TelemetryPlace};

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
        Self::with_name(&name).ok_or_else(|| format!("there is no report `{name}`"))
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
    pub(crate) fn with_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What it is about, in words.
    pub(crate) fn objects(self) -> String {
        if self.0 == SeriesKind::Target { "the target".to_owned() } else { self.name().to_lowercase() }
    }

    /// What filters of streams look at.
    pub(crate) fn filter_fields(self) -> Value {
        json!({ "EventFormatType": "MetricReport", "MetricReportDefinition": self.definition() })
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
