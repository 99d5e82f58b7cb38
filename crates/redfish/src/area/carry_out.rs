//! Does what a request asks for: has the box changed, or another configuration put in force.

use std::time::{Duration, Instant};

use ebof_manage::Config;
use ebof_manage::api::{Desired, Revision};
use ebof_manage::enclosure::{Change, MistakeKind, NamespaceName, Task, TaskState, Transaction};
use ebof_manage::{FileFormat, Severity};
use http::StatusCode;

use crate::area::demand::{Creates, Demand, What};
use crate::area::{ChangeRequest, Done};
use crate::managed::parts::Parts;
use crate::managed::view::View;
use crate::place::{FabricKind, FabricPlace, Place, StoragePlace};
use crate::response::message::{self, Message, Problem};

/// How long an answer waits for changes that are usually quick, so that it need not be asked for.
const QUICK: Duration = Duration::from_millis(500);

/// Does what is wanted, if who asks may do all that it comes to.
pub(crate) fn carry_out(wanted: Demand, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
    let user = request.caller.user.as_ref().ok_or_else(Problem::forbidden)?;
    if wanted.privilege(user).is_some_and(|needed| !user.may(needed)) {
        return Err(Problem::forbidden());
    }
    match wanted.what {
        What::Changes(changes) => begin(changes, request),
        What::Configuration(config) => {
            apply(&config, request)?;
            let Some(creates) = wanted.creates else { return Ok(Done::Made) };
            let after = View::new(request.parts);
            Ok(place_of(&creates, &after).map_or(Done::Made, |place| Done::Created(place, Vec::new())))
        }
    }
}

fn begin(changes: Vec<Change>, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
    let is_quick = changes.iter().all(is_quick);
    let task =
        request.parts.enclosure.begin_for(Transaction { changes, ..Transaction::default() }, &request.asker())?;
    let task = if is_quick { wait(task, request.parts) } else { task };
    match task.state {
        TaskState::Running => Ok(Done::Task(task.id)),
        TaskState::Failed => Err(failed(&task)),
        TaskState::Done => {
            let after = View::new(request.parts);
            let made = task.made.first().and_then(|name| namespace_place(name, &after));
            Ok(made.map_or(Done::Made, |place| Done::Created(place, Vec::new())))
        }
    }
}

/// Whether a change takes some records of a drive, and no host or device is waited for.
const fn is_quick(change: &Change) -> bool {
    matches!(
        change,
        Change::Weight { .. }
            | Change::Limit { .. }
            | Change::Map { .. }
            | Change::CreateNamespace(_)
            | Change::AttachNamespace { .. }
            | Change::DetachNamespace { .. }
            | Change::WriteProtect { .. }
            | Change::SetAnaGroup { .. }
    )
}

/// The task when it has ended, or after a moment.
fn wait(mut task: Task, parts: &Parts) -> Task {
    let begin = Instant::now();
    while !task.is_over() {
        let Some(left) = QUICK.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) else { break };
        match parts.enclosure.task(task.id, Some(task.revision), left) {
            Some(next) => task = next,
            None => break,
        }
    }
    task
}

/// Why a task failed.
fn failed(task: &Task) -> Problem {
    let (message, advice) = match &task.error {
        Some(error) => (error.message.clone(), error.advice.clone()),
        None => ("the change failed".to_owned(), "look at the task".to_owned()),
    };
    let severity = message::Severity::Critical;
    let mut messages = vec![Message::own("ChangeFailed", severity, message, advice)];
    let remains = task.error.iter().flat_map(|error| &error.remains);
    messages.extend(remains.map(|left| {
        let advice = "Make it what it is to be by another change.";
        Message::own("NotTakenBack", severity, left.clone(), advice)
    }));
    Problem::with_messages(StatusCode::CONFLICT, messages)
}

/// The address of what a task made: `d3/ns5`.
fn namespace_place(name: &str, view: &View<'_>) -> Option<Place> {
    let namespace: NamespaceName = name.parse().ok()?;
    // Somebody else may have taken the drive away meanwhile.
    let id = view.storage_id(&namespace.drive)?.to_owned();
    Some(StoragePlace::Volume(id, format!("ns{}", namespace.nsid)).into())
}

/// The address of what a configuration created.
fn place_of(creates: &Creates, view: &View<'_>) -> Option<Place> {
    let names = view.names();
    match creates {
        Creates::Host(nqn) => {
            let id = names.host_endpoint(nqn)?.to_owned();
            Some(FabricPlace::Endpoint(FabricKind::Nvmeof, id).into())
        }
        Creates::Permission { nqn, host } => {
            let storage = view.storages().position(|(_, storage)| storage.nqn() == nqn)?;
            let is_it = |one: &crate::managed::names::Permission| one.storage == storage && one.host == *host;
            let at = names.permissions.iter().position(is_it)?;
            Some(FabricPlace::Connection(FabricKind::Nvmeof, names.connections.at(at).to_owned()).into())
        }
        Creates::Volume { nqn, nsid } => {
            Some(StoragePlace::Volume(view.storage_id(nqn)?.to_owned(), format!("ns{nsid}")).into())
        }
    }
}

/// The text of a configuration that could be read from a file: references, names, limits.
pub(crate) fn checked(config: &Config) -> Result<String, Problem> {
    let Ok(text) = config.to_toml() else {
        return Err(refused_configuration("the configuration cannot be written", "Look for unusual characters."));
    };
    let Err(diagnostics) = ebof_manage::load::load_as(FileFormat::Toml, "request", &text) else { return Ok(text) };
    let errors = diagnostics.items.into_iter().filter(|item| item.severity == Severity::Error);
    let messages: Vec<Message> = errors
        .map(|item| {
            let help = item.help.unwrap_or_default();
            // The client does not see the text whose lines the help mentions.
            let help = help.split("; line ").next().unwrap_or_default().to_owned();
            Message::own("ConfigurationRefused", message::Severity::Warning, item.message, help)
        })
        .collect();
    Err(Problem::with_messages(StatusCode::BAD_REQUEST, messages))
}

fn refused_configuration(message: &str, advice: &str) -> Problem {
    Problem::bad_request(Message::own("ConfigurationRefused", message::Severity::Warning, message, advice))
}

/// Puts a configuration in force that was made of the one that the request saw.
fn apply(config: &Config, request: &ChangeRequest<'_>) -> Result<(), Problem> {
    let text = checked(config)?;
    let user = request.caller.user.as_ref().ok_or_else(Problem::forbidden)?;
    let from = request.caller.peer.ip().to_canonical();
    let desired = Desired { toml: Some(text), name: Some("request".to_owned()), ..Desired::default() };
    let revision = Revision::from_config(request.view.config());
    let applied = request.parts.configurations.apply(&revision, desired, user, from);
    applied.map(drop).map_err(|refused| {
        let is_late = refused.refused.mistakes.iter().any(|mistake| mistake.kind == MistakeKind::Outdated);
        request.is_late.set(is_late);
        refused.into()
    })
}
