//! Addresses of tasks and their monitors.

use super::Address;

/// Addresses below `/redfish/v1/TaskService`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TaskPlace {
    /// The service.
    Service,
    /// All tasks that are remembered.
    Tasks,
    /// A task, by its number.
    Task(String),
    /// Where the outcome of a task is.
    Monitor(String),
}

impl Address for TaskPlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        Some(match segments {
            ["TaskService"] => Self::Service,
            ["TaskService", "Tasks"] => Self::Tasks,
            ["TaskService", "Tasks", id] => Self::Task((*id).to_owned()),
            ["TaskService", "TaskMonitors", id] => Self::Monitor((*id).to_owned()),
            _ => return None,
        })
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("TaskService", "TaskService"),
            ("TaskCollection", "TaskService/Tasks"),
            ("Task", "TaskService/Tasks/{TaskId}"),
            ("", "TaskService/TaskMonitors/{TaskId}"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        let below: &[&str] = match self {
            Self::Service => &[],
            Self::Tasks => &["Tasks"],
            Self::Task(id) => &["Tasks", id],
            Self::Monitor(id) => &["TaskMonitors", id],
        };
        [&["TaskService"], below].concat()
    }
}

impl TaskPlace {
    /// The place of a task.
    pub(crate) fn of(id: u64) -> Self {
        Self::Task(id.to_string())
    }

    /// The place of the monitor of a task.
    pub(crate) fn monitor(id: u64) -> Self {
        Self::Monitor(id.to_string())
    }
}
