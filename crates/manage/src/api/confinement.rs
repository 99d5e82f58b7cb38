//! What a process has given up, as it tells.

use serde::{Deserialize, Serialize};

use crate::config::Measure;

/// What a process has given up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Every measure, and what became of it.
    pub measures: Vec<MeasureStatus>,
    /// The capabilities that it has.
    pub capabilities: Vec<String>,
    /// What it may open, if that is restricted.
    #[serde(default)]
    pub paths: Vec<PathRight>,
}

/// A measure, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeasureStatus {
    /// Its name.
    pub measure: Measure,
    /// Whether it is in force.
    pub state: MeasureState,
    /// Why it is not, or not as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Whether a measure is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeasureState {
    /// It is.
    On,
    /// As far as this kernel knows it.
    Partly,
    /// It was not asked for.
    Off,
    /// It was asked for, and is not in force.
    Failed,
}

/// A path, with all that is below it, and what may be done there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRight {
    /// The path, without links.
    pub path: String,
    /// What may be done there.
    pub access: PathAccess,
}

/// What may be done at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathAccess {
    /// Reading.
    Read,
    /// Reading, writing, making and removing files.
    Write,
}

impl Confinement {
    /// The measures that were asked for and are not in force, with the reasons.
    pub fn failures(&self) -> impl Iterator<Item = &MeasureStatus> {
        self.measures.iter().filter(|it| matches!(it.state, MeasureState::Failed | MeasureState::Partly))
    }

    /// Whether a measure is in force, at least partly.
    #[must_use]
    pub fn has(&self, measure: Measure) -> bool {
        let in_force = |state| matches!(state, MeasureState::On | MeasureState::Partly);
        self.measures.iter().any(|it| it.measure == measure && in_force(it.state))
    }
}
