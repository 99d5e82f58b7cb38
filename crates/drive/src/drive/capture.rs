//! What telemetry tells of the drive, and when it is captured: the state as JSON, for a developer. Data of hosts are not in it.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use ebof_nvme::event::AsyncEvent;
use serde_json::{Value, json};

use super::{Decision, Drive, LogWish};
use crate::change::Change;
use crate::error_log::is_severe;
use crate::event_log::Event;
use crate::health::Thresholds;
use crate::namespace::Instance;
use crate::request::{Answer, Moment, Origin, Refusal};
use crate::telemetry::{Capture, Page};

/// What is known of the medium, by whoever has it. The drive is told before it decides what depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Bytes that are allocated, or were and are not free yet.
    pub used_bytes: u64,
    /// Extents that are allocated to each namespace.
    pub allocated: BTreeMap<Instance, u64>,
    /// The journal, in words.
    pub journal: String,
}

impl Drive {
    /// Tells the drive what the medium is like.
    pub fn inform(&mut self, facts: Facts) {
        self.facts = facts;
    }

    /// Telemetry Host-Initiated.
    pub(super) fn host_telemetry(
        &mut self,
        wish: &LogWish,
        origin: &Origin,
        moment: &Moment,
    ) -> Result<Decision, Refusal> {
        let mut telemetry = core::mem::take(&mut self.telemetry);
        let created = wish.parameter & ebof_nvme::log::telemetry_lsp::CREATE != 0;
        let page = telemetry.execute(wish.parameter, &self.state.telemetry, || self.capture("host", moment));
        self.telemetry = telemetry;
        let mut decision = part(&page, wish)?;
        if created {
            let event = Event::telemetry_created(origin, moment, page.header());
            decision.changes.extend(self.state.events.admits(&event).then_some(Change::Happened { event }));
        }
        Ok(decision)
    }

    /// Telemetry Controller-Initiated.
    pub(super) fn own_telemetry(&self, wish: &LogWish) -> Result<Decision, Refusal> {
        let mut decision = part(&self.state.telemetry.page(), wish)?;
        if !wish.retain {
            decision.changes.extend(self.state.telemetry.acknowledged().map(captured));
        }
        Ok(decision)
    }

    /// Something severe has happened: the drive captures what it is like. At most one capture that nobody has read is kept, the
    /// first: it tells most of the cause.
    #[must_use]
    pub fn capture_unasked(&self, reason: &str, origin: &Origin, moment: &Moment) -> Option<(Vec<Change>, AsyncEvent)> {
        let enabled = self.state.firmware.running(&self.firmware_limits()).personality.telemetry;
        if !enabled || self.state.telemetry.is_available() {
            return None;
        }
        let next = self.state.telemetry.captured(self.capture(reason, moment));
        let event = Event::telemetry_created(origin, moment, next.page().header());
        Some(([captured(next), Change::Happened { event }].into(), AsyncEvent::TELEMETRY_LOG_CHANGED))
    }

    fn capture(&self, reason: &str, moment: &Moment) -> Capture {
        Capture {
            reason: reason.to_string(),
            areas: [self.overview(moment), self.layout(), self.history()].map(|area| area.to_string()),
        }
    }

    /// Area 1: what the drive is, and what it is like.
    fn overview(&self, moment: &Moment) -> Value {
        let limits = self.firmware_limits();
        let (condition, settings) = (self.condition(), &self.settings);
        json!({
            "program": settings.revision,
            "firmware": self.state.firmware.running(&limits),
            "identity": self.state.identity,
            "subsystem": settings.subsystem,
            "unix-ms": moment.unix_ms,
            "uptime-ms": moment.uptime_ms,
            "profile": settings.profile,
            "overcommit": settings.overcommit,
            "exclusive": settings.exclusive,
            "capacity-bytes": self.capacity.total_bytes,
            "extent-bytes": self.capacity.extent_bytes,
            "unallocated-bytes": self.unallocated_bytes(),
            "used-bytes": self.facts.used_bytes,
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

    /// Area 2: namespaces, where their extents are, the journal, reservations.
    fn layout(&self) -> Value {
        let namespaces: BTreeMap<String, Value> = self
            .state
            .namespaces
            .iter()
            .map(|(nsid, namespace)| {
                let extents = self.facts.allocated.get(&namespace.instance).copied().unwrap_or_default();
                (nsid.to_string(), json!({ "namespace": namespace, "allocated-extents": extents }))
            })
            .collect();
        json!({
            "namespaces": namespaces,
            "erasing": self.erasing(),
            "journal": self.facts.journal,
            "controllers": self.state.seats,
            "reservations": self.state.reservations,
        })
    }

    /// Area 3: what went wrong, and what happened.
    fn history(&self) -> Value {
        json!({ "errors": self.state.errors, "events": self.state.events })
    }
}

/// Why errors are reason enough for a capture, if they are.
pub(super) fn reason(errors: &[crate::error_log::Error]) -> Option<String> {
    let severe = errors.iter().find(|error| is_severe(error.status))?;
    Some(alloc::format!("status {:03x}h, namespace {}, LBA {}", severe.status.0 & 0x7ff, severe.nsid.0, severe.lba))
}

fn part(page: &Page, wish: &LogWish) -> Result<Decision, Refusal> {
    let bytes = usize::try_from(wish.bytes).unwrap_or(usize::MAX);
    Ok(Decision { answer: Answer::Part(page.read(wish.offset, bytes)?), ..Decision::nothing() })
}

fn captured(telemetry: crate::telemetry::Telemetry) -> Change {
    Change::Captured { telemetry: Box::new(telemetry) }
}
