//! Tasks of the box: `/redfish/v1/TaskService`, and the monitors that changes are answered with.

use ebof_manage::enclosure::{Phase, Task as BoxTask, TaskError, TaskState};
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use crate::area::{Area, Done};
use crate::managed::view::View;
use crate::place::{Place, TaskPlace};
use crate::response::head::{Collection, Head, Health, Link, Oem, Status, json, link, oem};
use crate::response::message::{Message, Problem, Severity, camel};
use crate::response::time::date_time;

impl Area for TaskPlace {
    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Service => json(&TaskService::new()),
            Self::Tasks => {
                let tasks = view.parts.enclosure.tasks();
                let members = tasks.iter().map(|task| Self::Task(task.id.to_string()));
                json(&Collection::new(Self::Tasks, "Task", "Tasks", members))
            }
            Self::Task(id) | Self::Monitor(id) => json(&Task::new(&self.task(id, view)?)),
        })
    }

    fn outcome(&self, view: &View<'_>) -> Option<Result<Done, Problem>> {
        let Self::Monitor(id) = self else { return None };
        Some(self.task(id, view).and_then(|task| outcome(&task)))
    }
}

impl TaskPlace {
    fn task(&self, id: &str, view: &View<'_>) -> Result<BoxTask, Problem> {
        let task = view.parts.enclosure.tasks().into_iter().find(|task| task.id.to_string() == id);
        task.ok_or_else(|| self.missing())
    }
}

/// What a monitor answers (DSP0266, "Asynchronous operations"): that it runs, or what the change
/// would have been answered with.
fn outcome(task: &BoxTask) -> Result<Done, Problem> {
    match (&task.state, &task.error) {
        (TaskState::Running, _) => Ok(Done::Task(task.id)),
        (TaskState::Done, _) => Ok(Done::Made),
        (TaskState::Failed, error) => {
            let message = failure(error.as_ref());
            Err(Problem::new(StatusCode::CONFLICT, message))
        }
    }
}

fn failure(error: Option<&TaskError>) -> Message {
    let (mut message, mut advice) = ("The task failed.".to_owned(), "See the log of events.".to_owned());
    if let Some(error) = error {
        (message, advice) = (error.message.clone(), error.advice.clone());
        for left in &error.remains {
            message = format!("{message}; NOT taken back: {left}");
        }
    }
    Message::own("TaskFailed", Severity::Warning, message, advice)
}

/// `TaskService`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct TaskService {
    #[serde(flatten)]
    head: Head,
    completed_task_over_write_policy: &'static str,
    life_cycle_event_on_task_state_change: bool,
    service_enabled: bool,
    status: Status,
    tasks: Link,
}

impl TaskService {
    fn new() -> Self {
        let description = "Changes that take time, and what has become of them";
        Self {
            head: Head::new(TaskPlace::Service, "#TaskService.v1_3_0.TaskService", "Task Service", description),
            completed_task_over_write_policy: "Oldest",
            life_cycle_event_on_task_state_change: true,
            service_enabled: true,
            status: Status::OK,
            tasks: link(TaskPlace::Tasks),
        }
    }
}

/// `Task`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Task {
    #[serde(flatten)]
    head: Head,
    task_state: &'static str,
    task_status: Health,
    start_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_time: Option<String>,
    percent_complete: u8,
    /// Absent once it is over, as the standard wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    task_monitor: Option<Place>,
    hide_payload: bool,
    messages: Vec<Message>,
    oem: Oem<OemTask>,
}

/// `EbofTask.Task`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemTask {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    /// What it does.
    changes: Vec<String>,
    /// Which of them it is at.
    change: usize,
    /// A member of `EbofTask.Phase`.
    phase: String,
    detail: Option<String>,
    /// Who asked for it.
    asker: Option<String>,
    remark: Option<String>,
    /// What could not be taken back.
    remains: Vec<String>,
}

impl Task {
    fn new(task: &BoxTask) -> Self {
        let is_failed = task.state == TaskState::Failed;
        let ebof = OemTask {
            kind: "#EbofTask.v1_0_0.Task",
            changes: task.changes.iter().map(ToString::to_string).collect(),
            change: task.change,
            phase: camel(task.phase.name()),
            detail: task.detail.clone(),
            asker: task.by.as_ref().map(ToString::to_string),
            remark: task.remark.clone(),
            remains: task.error.iter().flat_map(|error| error.remains.clone()).collect(),
        };
        Self {
            head: Head::new(
                TaskPlace::Task(task.id.to_string()),
                "#Task.v1_7_4.Task",
                task.what.clone(),
                "A change of the box",
            ),
            task_state: match (task.state, task.phase) {
                (TaskState::Running, Phase::Waiting) => "Starting",
                (TaskState::Running, Phase::GoingBack) => "Cancelling",
                (TaskState::Running, _) => "Running",
                (TaskState::Done, _) => "Completed",
                (TaskState::Failed, _) => "Exception",
            },
            task_status: if is_failed { Health::Critical } else { Health::OK },
            start_time: date_time(task.began_unix_ms),
            end_time: task.ended_unix_ms.map(date_time),
            percent_complete: task.percent.min(100),
            task_monitor: (!task.is_over()).then(|| TaskPlace::Monitor(task.id.to_string()).into()),
            hide_payload: true,
            messages: messages(task),
            oem: oem(ebof),
        }
    }
}

/// What is told of a task: where it is, what is to be known, or why it failed.
fn messages(task: &BoxTask) -> Vec<Message> {
    let progress = |id, message: String| Message::own(id, Severity::OK, message, "None.");
    let mut messages = Vec::new();
    match task.state {
        TaskState::Running => {
            let at = task.changes.get(task.change).map_or_else(|| task.what.clone(), ToString::to_string);
            let detail = task.detail.as_ref().map(|detail| format!(", {detail}")).unwrap_or_default();
            messages.push(progress("TaskProgress", format!("{at}: {}{detail}", task.phase)));
        }
        TaskState::Done => messages.push(progress("TaskEnded", format!("done: {}", task.what))),
        TaskState::Failed => messages.push(failure(task.error.as_ref())),
    }
    messages.extend(task.remark.iter().map(|remark| progress("TaskRemark", remark.clone())));
    messages
}

#[cfg(test)]
mod tests {
    use ebof_access::Role;
    use serde_json::json;

    use super::*;
    use crate::service::tests::{ask_of, caller, code, service_with_tasks};

    fn task(id: u64, state: &str, phase: &str, error: &Value) -> BoxTask {
        let change = json!({ "change": "assign", "function": "d0/vf1", "port": "fabric0" });
        serde_json::from_value(json!({
            "task_schema": 1, "id": id, "revision": 1, "what": "give d0/vf1 to port fabric0", "changes": [change],
            "state": state, "change": 0, "phase": phase, "percent": 40, "detail": "2 commands of hosts are left",
            "began_unix_ms": 1_700_000_000_000_u64, "ended_unix_ms": null, "elapsed_ms": 5, "remark": null, "error": error,
        }))
        .unwrap()
    }

    #[test]
    fn a_monitor_answers_what_the_task_is_at() {
        let error = json!({ "change": 0, "phase": "binding", "message": "port fabric0 is gone", "advice": "choose another",
                            "remains": [] });
        let tasks = [("running", "draining", Value::Null), ("done", "ended", Value::Null), ("failed", "ended", error)];
        let tasks = (1..).zip(tasks).map(|(id, (state, phase, error))| task(id, state, phase, &error)).collect();
        let service = service_with_tasks(tasks);
        let reader = caller(Some(Role::ReadOnly));
        let get = |uri: &str| ask_of(&service, "GET", uri, &[], Value::Null, &reader);
        let (status, headers, body) = get("/redfish/v1/TaskService/TaskMonitors/1");
        assert_eq!((status, headers["retry-after"].to_str().unwrap()), (202, "1"));
        assert_eq!(headers["location"], "/redfish/v1/TaskService/TaskMonitors/1");
        assert_eq!((&body["TaskState"], &body["PercentComplete"]), (&json!("Running"), &json!(40)));
        let message = body["Messages"][0]["Message"].as_str().unwrap();
        assert_eq!(message, "give d0/vf1 to port fabric0: draining, 2 commands of hosts are left");
        assert_eq!(get("/redfish/v1/TaskService/TaskMonitors/2").0, 204);
        let (status, _, body) = get("/redfish/v1/TaskService/TaskMonitors/3");
        assert_eq!((status, code(&body)), (409, "TaskFailed"));
        let info = &body["error"]["@Message.ExtendedInfo"][0];
        assert_eq!((&info["Message"], &info["Resolution"]), (&json!("port fabric0 is gone"), &json!("choose another")));
        for id in ["4", "01", "x"] {
            assert_eq!(get(&format!("/redfish/v1/TaskService/TaskMonitors/{id}")).0, 404);
            assert_eq!(get(&format!("/redfish/v1/TaskService/Tasks/{id}")).0, 404);
        }
        let states = ["Running", "Completed", "Exception"];
        let all = get("/redfish/v1/TaskService/Tasks?$expand=.").2;
        for (task, state) in all["Members"].as_array().unwrap().iter().zip(states) {
            assert_eq!(task["TaskState"], state);
        }
    }
}
