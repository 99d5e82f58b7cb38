//! The contents of telemetry, and when it is captured: the state of the drive as JSON, for a
//! developer. It contains no data of hosts.
//!
//! Any host may read it, but must not learn from it which other hosts there are: these are
//! numbered, and their names are in a part that only managers get.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};

use ebof_nvme::event::AsyncEvent;
use serde_json::{Value, json};

use super::{Decision, Drive, LogQuery};
use crate::change::{Change, State};
use crate::logs::error_log::is_severe;
use crate::logs::event_log::{Event, EventLog};
use crate::logs::health::Thresholds;
use crate::logs::telemetry::{Capture, HostTelemetry, Page, Reader, Telemetry};
use crate::namespace::{Namespace, VolumeId};
use crate::request::{Answer, DecisionInput, Origin, Refusal};

/// The state of the medium, for decisions that depend on it and for telemetry. The medium's owner
/// updates it before such decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediumStatus {
    /// Bytes that are allocated, or were freed and cannot be allocated yet.
    pub used_bytes: u64,
    /// Extents that are allocated to each namespace.
    pub allocated: BTreeMap<VolumeId, u64>,
    /// The journal, as text for a developer.
    pub journal: String,
}

/// Captures everything.
pub(super) fn capture(drive: &Drive, reason: &str, input: &DecisionInput) -> Capture {
    let mut hosts = Hosts::default();
    let areas = [overview(drive, input), layout(drive, &mut hosts), history(drive)].map(|area| area.to_string());
    let private = json!({ "hosts": hosts.by_number(), "reservations": drive.state.reservations });
    Capture { reason: reason.to_string(), areas, private: Some(private.to_string()) }
}

/// Area 1: identity, settings and health of the drive.
fn overview(drive: &Drive, input: &DecisionInput) -> Value {
    let limits = drive.firmware_limits();
    let condition = drive.condition();
    let settings = &drive.settings;
    json!({
        "program": settings.revision,
        "firmware": drive.state.firmware.running(&limits),
        "identity": drive.state.identity,
        "subsystem": settings.subsystem,
        "unix-ms": input.unix_ms,
        "uptime-ms": input.uptime_ms,
        "profile": settings.profile,
        "overcommit": settings.overcommit,
        "exclusive": settings.exclusive,
        "capacity-bytes": drive.capacity.total_bytes,
        "extent-bytes": drive.capacity.extent_bytes,
        "unallocated-bytes": drive.unallocated_bytes(),
        "used-bytes": drive.medium_status.used_bytes,
        "kelvin": condition.kelvin,
        "degraded": condition.degraded,
        "read-only": condition.read_only,
        "critical-warning": condition.warnings(&Thresholds::DEFAULT),
        "health": drive.state.health,
        "sanitize": drive.state.sanitize,
        "self-test": drive.state.self_test,
        "errors": drive.state.errors.count(),
        "events": drive.state.events.len(),
    })
}

/// Area 2: namespaces with their extents, the journal, reservations.
fn layout(drive: &Drive, hosts: &mut Hosts) -> Value {
    let mut namespaces: BTreeMap<String, Value> = BTreeMap::new();
    for (nsid, namespace) in &drive.state.namespaces {
        let extents = drive.medium_status.allocated.get(&namespace.volume).copied().unwrap_or_default();
        let numbered = Namespace {
            hosts: namespace.hosts.iter().map(|host| hosts.number(host)).collect(),
            owner: hosts.number(&namespace.owner),
            ..namespace.clone()
        };
        namespaces.insert(nsid.to_string(), json!({ "namespace": numbered, "allocated-extents": extents }));
    }
    let assigned_cntlids = drive
        .state
        .assigned_cntlids
        .iter()
        .map(|(cntlid, assignment)| (cntlid.to_string(), hosts.number(&assignment.host)));
    let controllers: BTreeMap<String, String> = assigned_cntlids.collect();
    // Without keys: a host that knows another's key could preempt it.
    let reserved = drive.state.reservations.iter().filter(|(_, reservations)| !reservations.is_untouched());
    let registrants: BTreeMap<String, usize> =
        reserved.map(|(nsid, reservations)| (nsid.to_string(), reservations.registrants())).collect();
    json!({
        "namespaces": namespaces,
        "erasing": drive.erasing(),
        "journal": drive.medium_status.journal,
        "controllers": controllers,
        "registrants": registrants,
    })
}

/// Area 3: errors and events.
fn history(drive: &Drive) -> Value {
    json!({ "errors": drive.state.errors, "events": drive.state.events })
}

/// Numbers for the hosts in a capture, by NQN.
#[derive(Default)]
struct Hosts(BTreeMap<String, usize>);

impl Hosts {
    /// The name of a host in the capture; empty for an empty NQN.
    fn number(&mut self, nqn: &str) -> String {
        if nqn.is_empty() {
            return String::new();
        }
        let next = self.0.len() + 1;
        let number = *self.0.entry(nqn.to_string()).or_insert(next);
        alloc::format!("host {number}")
    }

    fn by_number(&self) -> BTreeMap<String, &str> {
        self.0.iter().map(|(nqn, number)| (alloc::format!("host {number}"), nqn.as_str())).collect()
    }
}

/// The reason for a capture, if any of these errors is severe.
pub(super) fn reason(errors: &[crate::logs::error_log::Error]) -> Option<String> {
    let severe = errors.iter().find(|error| is_severe(error.status))?;
    Some(alloc::format!("status {:03x}h, namespace {}, LBA {}", severe.status.0 & 0x7ff, severe.nsid.0, severe.lba))
}

/// Telemetry Host-Initiated, with the new capture if the host asks for one.
pub(super) fn host_page(
    (host, own, reader): (&mut HostTelemetry, &Telemetry, Reader),
    log: &EventLog,
    query: &LogQuery,
    capture: Option<Capture>,
    (origin, input): (&Origin, &DecisionInput),
) -> Result<Decision, Refusal> {
    let is_created = capture.is_some();
    let page = host.execute(query.parameter, reader, own, || capture.expect("it was made, because the host asks"));
    let mut decision = part(&page, query)?;
    if is_created {
        let event = Event::telemetry_created(origin, input, page.header());
        decision.changes.extend(log.admits(&event).then_some(Change::Happened { event }));
    }
    Ok(decision)
}

/// Telemetry Controller-Initiated.
pub(super) fn own_page(own: &Telemetry, query: &LogQuery, reader: Reader) -> Result<Decision, Refusal> {
    let mut decision = part(&own.page(reader), query)?;
    if !query.retain {
        decision.changes.extend(own.acknowledged().map(captured));
    }
    Ok(decision)
}

/// Captures telemetry after a severe error. Does nothing while there is a capture that no host has
/// read: the first one tells most about the cause.
pub(super) fn after_error(
    drive: &Drive,
    reason: &str,
    origin: &Origin,
    input: &DecisionInput,
) -> Option<([Change; 2], AsyncEvent)> {
    let State { firmware, telemetry, .. } = drive.state();
    let enabled = firmware.running(&drive.firmware_limits()).personality.telemetry;
    if !enabled || telemetry.is_available() {
        return None;
    }
    let next = telemetry.captured(capture(drive, reason, input));
    let event = Event::telemetry_created(origin, input, next.page(Reader::Other).header());
    Some(([captured(next), Change::Happened { event }], AsyncEvent::TELEMETRY_LOG_CHANGED))
}

/// The part of a page that is asked for.
fn part(page: &Page, query: &LogQuery) -> Result<Decision, Refusal> {
    let bytes = usize::try_from(query.bytes).unwrap_or(usize::MAX);
    Ok(Decision { answer: Answer::Part(page.read(query.offset, bytes)?), ..Decision::nothing() })
}

/// The drive has other telemetry.
fn captured(telemetry: Telemetry) -> Change {
    Change::Captured { telemetry: Box::new(telemetry) }
}
