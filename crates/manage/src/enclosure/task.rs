//! Tasks: what carries out a transaction, and how far it has come.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::change::Change;
use crate::api::Asker;
use crate::diagnostic::nearest::names;

/// The version of the JSON shape of [`Task`].
pub const TASK_SCHEMA: u32 = 1;

/// What carries out a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// [`TASK_SCHEMA`].
    pub task_schema: u32,
    /// Its number, from 1 since the target was started.
    pub id: u64,
    /// How often it has changed.
    pub revision: u64,
    /// What it does, for people.
    pub what: String,
    /// The changes that it makes.
    pub changes: Vec<Change>,
    /// Who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Asker>,
    /// Whether it runs.
    pub state: TaskState,
    /// The index in `changes` of the change that it is at.
    pub change: usize,
    /// What it is doing.
    pub phase: Phase,
    /// How much of it is done.
    pub percent: u8,
    /// More about the phase, for people: what is waited for.
    pub detail: Option<String>,
    /// When it began, in milliseconds since 1970-01-01T00:00:00Z.
    pub began_unix_ms: u64,
    /// When it ended.
    pub ended_unix_ms: Option<u64>,
    /// How long it has run, milliseconds.
    pub elapsed_ms: u64,
    /// The names of what it made and others did not name, in the order of the changes: namespaces
    /// (`d3/ns5`), firmware slots (`d3/slot2`). Empty if it failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<String>,
    /// What is to be known about what it did, for people.
    pub remark: Option<String>,
    /// Why it failed.
    pub error: Option<TaskError>,
}

/// Whether a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskState {
    /// It runs.
    Running,
    /// All changes were made.
    Done,
    /// None was made: everything is as it was before, unless the error names an exception.
    Failed,
}

names! {
    /// What a task is doing, in the order of a function's move.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Phase {
        /// It has not begun.
        Waiting = "waiting";
        /// No more hosts and commands are admitted; hosts are told to leave.
        Stopping = "stopping";
        /// Commands that were accepted end.
        Draining = "draining";
        /// Commands that did not end in time are being aborted.
        Aborting = "aborting";
        /// The drive stores the change.
        Storing = "storing";
        /// The drive is at it: it erases, sanitizes or tests.
        Working = "working";
        /// The function is bound to its new port.
        Binding = "binding";
        /// The configuration is changed.
        Configuring = "configuring";
        /// What was done is taken back.
        GoingBack = "going-back";
        /// It has ended.
        Ended = "ended";
    }
}

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskError {
    /// The index in `changes` of the change that failed.
    pub change: usize,
    /// What it was doing.
    pub phase: Phase,
    /// What was tried, and what came back.
    pub message: String,
    /// What to do.
    pub advice: String,
    /// What could not be taken back.
    pub remains: Vec<String>,
}

impl Task {
    /// Whether it has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state != TaskState::Running
    }
}

/// `cannot move d3/vf2 to port direct1: port direct1 is gone (binding); ...`
impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.advice)?;
        self.remains.iter().try_for_each(|left| write!(f, "; NOT taken back: {left}"))
    }
}
