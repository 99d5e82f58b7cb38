//! Logs: what happened to the target, which connections it refused, and which commands were slow.

use ebof_manage::api::Refusal;
use ebof_manage::events::{ANSWER_MAX, Event};
use serde::Serialize;
use uuid::Uuid;

use super::audit::of_record;
use super::slow::{OemSlowCommands, of_command};
use crate::managed::parts::AuditedRecord;
use crate::managed::view::View;
use crate::place::{Log, ManagerPlace};
use crate::response::head::{Head, Health, Link, Oem, ResourceAction, Status, json, link, oem};
use crate::response::health::health;
use crate::response::message::{OWN, camel};
use crate::response::time::date_time;

/// The most entries of a log that are shown.
const ENTRIES_MAX: usize = 1000;

const fn description(log: Log) -> &'static str {
    match log {
        Log::Events => "What happened to the target, the latest first",
        Log::ConnectionsRefused => "Connections that hosts were refused and what to do about them, the latest first",
        Log::SlowCommands => "Commands that took long and where their time went, the latest first",
        Log::Audit => "Who has changed what, and what was refused, the latest first; chained and kept in files",
    }
}

/// The entries of a log, the latest first.
pub(super) fn entries(log: Log, view: &View<'_>) -> Vec<LogEntry> {
    match log {
        Log::Events => all_events(view).iter().rev().take(ENTRIES_MAX).map(log_entry_of_event).collect(),
        Log::ConnectionsRefused => view.parts.target.refused().iter().rev().take(ENTRIES_MAX).map(of_refusal).collect(),
        Log::SlowCommands => {
            let slow = view.parts.measured.slow();
            slow.commands.iter().rev().take(ENTRIES_MAX).map(|command| of_command(command, view)).collect()
        }
        Log::Audit => audited(view).iter().rev().map(of_record).collect(),
    }
}

/// One of them.
pub(super) fn entry(log: Log, id: &str, view: &View<'_>) -> Option<LogEntry> {
    match log {
        Log::Events => {
            let number: u64 = id.parse().ok().filter(|number: &u64| number.to_string() == id)?;
            let event = view.parts.events.since(number.checked_sub(1)?, 1).events.pop()?;
            (event.id == number).then(|| log_entry_of_event(&event))
        }
        Log::ConnectionsRefused => {
            let refused = view.parts.target.refused();
            refused.iter().find(|refusal| refusal_id(refusal) == id).map(of_refusal)
        }
        Log::SlowCommands => {
            let slow = view.parts.measured.slow();
            slow.commands.iter().find(|command| command.id.to_string() == id).map(|found| of_command(found, view))
        }
        Log::Audit => audited(view).iter().find(|record| record.n.to_string() == id).map(of_record),
    }
}

/// The latest records of the audit log.
fn audited(view: &View<'_>) -> Vec<AuditedRecord> {
    view.parts.audit.records(ENTRIES_MAX).unwrap_or_default()
}

/// The latest events, the oldest of them first.
fn all_events(view: &View<'_>) -> Vec<Event> {
    let events = &view.parts.events;
    let mut all: Vec<Event> = Vec::new();
    loop {
        let known = all.last().map_or(0, |event| event.id);
        let more = events.since(known, ANSWER_MAX).events;
        // Stops at a maximum, if events are logged faster than they are read.
        if more.is_empty() || all.len() > 64 * ANSWER_MAX {
            return all;
        }
        all.extend(more);
    }
}

/// A refusal that happens again is the same entry.
fn refusal_id(refusal: &Refusal) -> String {
    let Refusal { peer, host_nqn, subsystem_nqn, reason, .. } = refusal;
    let address = peer.ip().map(|ip| ip.to_string()).unwrap_or_default();
    let text = format!("{address}\0{host_nqn:?}\0{subsystem_nqn:?}\0{reason:?}\0{}", refusal.detail);
    Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).simple().to_string()
}

/// `LogService`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct LogService {
    #[serde(flatten)]
    head: Head,
    service_enabled: bool,
    max_number_of_records: usize,
    over_write_policy: &'static str,
    log_entry_type: &'static str,
    log_purposes: [&'static str; 1],
    persistency: bool,
    status: Status,
    entries: Link,
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<Actions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oem: Option<Oem<OemSlowCommands>>,
}

#[derive(Serialize)]
struct Actions {
    #[serde(rename = "#LogService.ClearLog")]
    clear: ResourceAction,
}

impl LogService {
    pub(super) fn new(log: Log, view: &View<'_>) -> Self {
        let is_audit = log == Log::Audit;
        let is_on = !is_audit || view.parts.audit.is_on();
        let slow = (log == Log::SlowCommands).then(|| OemSlowCommands::new(&view.parts.measured.slow()));
        Self {
            head: Head::new(ManagerPlace::Log(log), "#LogService.v1_9_0.LogService", log.id(), description(log)),
            service_enabled: is_on && slow.as_ref().is_none_or(OemSlowCommands::is_on),
            max_number_of_records: ENTRIES_MAX,
            over_write_policy: "WrapsWhenFull",
            log_entry_type: "Event",
            log_purposes: [match log {
                Log::Events => "Operations",
                Log::ConnectionsRefused | Log::SlowCommands => "Diagnostic",
                Log::Audit => "Security",
            }],
            persistency: is_audit,
            status: Status::OK,
            entries: link(ManagerPlace::Entries(log)),
            actions: (!is_audit).then(|| Actions { clear: ResourceAction::new(ManagerPlace::ClearLog(log)) }),
            oem: slow.map(oem),
        }
    }
}

/// `LogEntry`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct LogEntry {
    #[serde(flatten)]
    pub(super) head: Head,
    pub(super) entry_type: &'static str,
    pub(super) severity: Health,
    pub(super) created: String,
    pub(super) message: String,
    pub(super) message_id: String,
    pub(super) message_args: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) event_id: Option<String>,
    pub(super) event_timestamp: String,
    pub(super) resolution: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) username: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) origin_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) links: Option<EntryLinks>,
    pub(super) oem: Oem<serde_json::Value>,
}

/// What an entry is about.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct EntryLinks {
    pub(super) origin_of_condition: Link,
}

/// `EbofLogEntry.Event`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemEvent {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    /// What it happened to, as ebof names it; absent for the target itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    /// The account, or the NQN or address of a host, that caused it.
    who: Option<String>,
    count: u64,
}

/// `EbofLogEntry.ConnectionRefused`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemRefusal {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    address: String,
    #[serde(rename = "HostNQN")]
    host_nqn: Option<String>,
    #[serde(rename = "SubsystemNQN")]
    subsystem_nqn: Option<String>,
    reason: String,
    count: u64,
}

/// The entry of an event.
pub(crate) fn log_entry_of_event(event: &Event) -> LogEntry {
    let ebof = OemEvent {
        kind: "#EbofLogEntry.v1_0_0.Event",
        object: Some(event.object.clone()).filter(|object| !object.is_empty()),
        who: event.who.clone(),
        count: event.count,
    };
    let place = ManagerPlace::Entry(Log::Events, event.id.to_string());
    LogEntry {
        head: Head::new(place, "#LogEntry.v1_21_0.LogEntry", event.kind.name(), "Something that happened"),
        entry_type: "Event",
        severity: health(event.severity),
        created: date_time(event.time_unix_ms),
        message: event.message.clone(),
        message_id: format!("{OWN}.{}", camel(event.kind.name())),
        message_args: vec![event.message.clone()],
        event_id: Some(event.id.to_string()),
        event_timestamp: date_time(event.time_unix_ms),
        resolution: event.advice.clone().unwrap_or_else(|| "None.".to_owned()),
        username: None,
        origin_address: None,
        links: None,
        oem: oem(json(&ebof)),
    }
}

fn of_refusal(refusal: &Refusal) -> LogEntry {
    let reason = serde_json::to_value(refusal.reason).ok();
    let reason = reason.as_ref().and_then(|reason| reason.as_str()).unwrap_or_default();
    let ebof = OemRefusal {
        kind: "#EbofLogEntry.v1_0_0.ConnectionRefused",
        address: refusal.peer.to_string(),
        host_nqn: refusal.host_nqn.clone(),
        subsystem_nqn: refusal.subsystem_nqn.clone(),
        reason: camel(reason),
        count: refusal.count,
    };
    let place = ManagerPlace::Entry(Log::ConnectionsRefused, refusal_id(refusal));
    let name = format!("Refused: {}", camel(reason));
    LogEntry {
        head: Head::new(place, "#LogEntry.v1_21_0.LogEntry", name, "A connection that was refused"),
        entry_type: "Event",
        severity: Health::Warning,
        created: date_time(refusal.time_unix_ms),
        message: refusal.detail.clone(),
        message_id: format!("{OWN}.ConnectionRefused"),
        message_args: vec![refusal.detail.clone()],
        event_id: None,
        event_timestamp: date_time(refusal.time_unix_ms),
        resolution: refusal.advice.clone(),
        username: None,
        origin_address: refusal.peer.ip().map(|ip| format!("tcp://{ip}")),
        links: None,
        oem: oem(json(&ebof)),
    }
}
