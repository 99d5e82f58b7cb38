//! The contents of telemetry, and when it is captured: the state of the drive as JSON, for a
//! developer. It contains no data of hosts.
//!
//! Any host may read it, but must not learn from it which other hosts there are: these are
//! numbered, and their names are in a part that only managers get.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use ebof_nvme::event::AsyncEvent;
use serde_json::{Value, json};

use super::{Decision, Drive, LogQuery};
use crate::change::Change;
use crate::error_log::is_severe;
use crate::event_log::Event;
use crate::health::Thresholds;
use crate::namespace::{Namespace, VolumeId};
use crate::request::{Answer, DecisionInput, Origin, Refusal};
use crate::telemetry::{Capture, Page, Reader};

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

impl Drive {
    /// Updates what the drive knows of its medium.
    pub fn set_medium_status(&mut self, medium_status: MediumStatus) {
        self.medium_status = medium_status;
    }

    /// Telemetry Host-Initiated.
    pub(super) fn host_telemetry(
        &mut self,
        query: &LogQuery,
        origin: &Origin,
        input: &DecisionInput,
    ) -> Result<Decision, Refusal> {
        let mut telemetry = core::mem::take(&mut self.telemetry);
        let created = query.parameter & ebof_nvme::log::telemetry_lsp::CREATE != 0;
        let reader = self.reader(origin);
        let page = telemetry.execute(query.parameter, reader, &self.state.telemetry, || self.capture("host", input));
        self.telemetry = telemetry;
        let mut decision = part(&page, query)?;
        if created {
            let event = Event::telemetry_created(origin, input, page.header());
            decision.changes.extend(self.state.events.admits(&event).then_some(Change::Happened { event }));
        }
        Ok(decision)
    }

    /// Telemetry Controller-Initiated.
    pub(super) fn own_telemetry(&self, query: &LogQuery, origin: &Origin) -> Result<Decision, Refusal> {
        let mut decision = part(&self.state.telemetry.page(self.reader(origin)), query)?;
        if !query.retain {
            decision.changes.extend(self.state.telemetry.acknowledged().map(captured));
        }
        Ok(decision)
    }

    /// Captures telemetry after a severe error. Does nothing while there is a capture that no host
    /// has read: the first one tells most about the cause.
    #[must_use]
    pub fn capture_error(
        &self,
        reason: &str,
        origin: &Origin,
        input: &DecisionInput,
    ) -> Option<(Vec<Change>, AsyncEvent)> {
        let enabled = self.state.firmware.running(&self.firmware_limits()).personality.telemetry;
        if !enabled || self.state.telemetry.is_available() {
            return None;
        }
        let next = self.state.telemetry.captured(self.capture(reason, input));
        let event = Event::telemetry_created(origin, input, next.page(Reader::Other).header());
        Some(([captured(next), Change::Happened { event }].into(), AsyncEvent::TELEMETRY_LOG_CHANGED))
    }

    fn reader(&self, origin: &Origin) -> Reader {
        if self.settings.managers.contains(origin.host.as_str()) { Reader::Manager } else { Reader::Other }
    }

    fn capture(&self, reason: &str, input: &DecisionInput) -> Capture {
        let mut hosts = Hosts::default();
        let areas = [self.overview(input), self.layout(&mut hosts), self.history()].map(|area| area.to_string());
        let private = json!({ "hosts": hosts.by_number(), "reservations": self.state.reservations });
        Capture { reason: reason.to_string(), areas, private: Some(private.to_string()) }
    }

    /// Area 1: identity, settings and health of the drive.
    fn overview(&self, input: &DecisionInput) -> Value {
        let limits = self.firmware_limits();
        let condition = self.condition();
        let settings = &self.settings;
        json!({
            "program": settings.revision,
            "firmware": self.state.firmware.running(&limits),
            "identity": self.state.identity,
            "subsystem": settings.subsystem,
            "unix-ms": input.unix_ms,
            "uptime-ms": input.uptime_ms,
            "profile": settings.profile,
            "overcommit": settings.overcommit,
            "exclusive": settings.exclusive,
            "capacity-bytes": self.capacity.total_bytes,
            "extent-bytes": self.capacity.extent_bytes,
            "unallocated-bytes": self.unallocated_bytes(),
            "used-bytes": self.medium_status.used_bytes,
            "kelvin": condition.kelvin,
            "degraded": condition.degraded,
            "read-only": condition.read_only,
            "critical-warning": condition.warnings(&Thresholds::DEFAULT),
            "health": self.state.health,
            "sanitize": self.state.sanitize,
            "self-test": self.state.self_test,
            "errors": self.state.errors.count(),
            "events": self.state.events.len(),
        })
    }

    /// Area 2: namespaces with their extents, the journal, reservations.
    fn layout(&self, hosts: &mut Hosts) -> Value {
        let mut namespaces: BTreeMap<String, Value> = BTreeMap::new();
        for (nsid, namespace) in &self.state.namespaces {
            let extents = self.medium_status.allocated.get(&namespace.volume).copied().unwrap_or_default();
            let numbered = Namespace {
                hosts: namespace.hosts.iter().map(|host| hosts.number(host)).collect(),
                owner: hosts.number(&namespace.owner),
                ..namespace.clone()
            };
            namespaces.insert(nsid.to_string(), json!({ "namespace": numbered, "allocated-extents": extents }));
        }
        let assigned_cntlids = self
            .state
            .assigned_cntlids
            .iter()
            .map(|(cntlid, assignment)| (cntlid.to_string(), hosts.number(&assignment.host)));
        let controllers: BTreeMap<String, String> = assigned_cntlids.collect();
        // Without keys: a host that knows another's key could preempt it.
        let reserved = self.state.reservations.iter().filter(|(_, reservations)| !reservations.is_untouched());
        let registrants: BTreeMap<String, usize> =
            reserved.map(|(nsid, reservations)| (nsid.to_string(), reservations.registrants())).collect();
        json!({
            "namespaces": namespaces,
            "erasing": self.erasing(),
            "journal": self.medium_status.journal,
            "controllers": controllers,
            "registrants": registrants,
        })
    }

    /// Area 3: errors and events.
    fn history(&self) -> Value {
        json!({ "errors": self.state.errors, "events": self.state.events })
    }
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
pub(super) fn reason(errors: &[crate::error_log::Error]) -> Option<String> {
    let severe = errors.iter().find(|error| is_severe(error.status))?;
    Some(alloc::format!("status {:03x}h, namespace {}, LBA {}", severe.status.0 & 0x7ff, severe.nsid.0, severe.lba))
}

fn part(page: &Page, query: &LogQuery) -> Result<Decision, Refusal> {
    let bytes = usize::try_from(query.bytes).unwrap_or(usize::MAX);
    Ok(Decision { answer: Answer::Part(page.read(query.offset, bytes)?), ..Decision::nothing() })
}

fn captured(telemetry: crate::telemetry::Telemetry) -> Change {
    Change::Captured { telemetry: Box::new(telemetry) }
}
