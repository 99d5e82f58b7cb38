//! The health of a drive between two looks at it: which events its counters and its condition
//! cause, and when telemetry is to be captured.

use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::Nsid;
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::log::critical_warning;

use super::capture;
use crate::change::Change;
use crate::logs::error_log;
use crate::logs::event_log::Event;
use crate::logs::health::{self, Activity, Condition, Endurance, Health, TEMPERATURE_KELVIN, Thresholds};
use crate::request::{DecisionInput, Origin};

/// The consequences of [`Drive::advance`](super::Drive::advance).
#[derive(Debug, Default, PartialEq)]
pub struct HealthUpdate {
    /// To be made durable.
    pub changes: Vec<Change>,
    /// Raised on all controllers.
    pub events: Vec<AsyncEvent>,
}

/// The condition of a drive, and what is to be told of it.
#[derive(Debug)]
pub(super) struct HealthWatch {
    /// As the medium's owner sees it.
    condition: Condition,
    /// The reason why telemetry is to be captured.
    pending_capture: Option<String>,
}

/// What a condition depends on besides the medium.
pub(super) struct HealthFacts {
    pub(super) overcommitted: bool,
    /// Entries of the Error Information log.
    pub(super) errors: u64,
    pub(super) endurance: Endurance,
}

/// What is to be told.
pub(super) struct News {
    /// For the Persistent Event Log.
    pub(super) events: Vec<Event>,
    /// For all controllers.
    pub(super) raised: Vec<AsyncEvent>,
    /// Why telemetry is to be captured.
    pub(super) capture: Option<String>,
}

impl HealthWatch {
    /// Of a drive with so many bytes, all of them free.
    pub(super) fn new(total_bytes: u64) -> Self {
        let condition =
            Condition { kelvin: TEMPERATURE_KELVIN, total_bytes, free_bytes: total_bytes, ..Condition::default() };
        Self { condition, pending_capture: None }
    }

    pub(super) fn condition(&self, facts: &HealthFacts) -> Condition {
        Condition { overcommitted: facts.overcommitted, error_entries: facts.errors, ..self.condition.clone() }
    }

    /// Errors were recorded: telemetry is captured for the first severe one.
    pub(super) fn note_errors(&mut self, errors: &[error_log::Error]) {
        if let Some(reason) = capture::reason(errors) {
            self.pending_capture.get_or_insert(reason);
        }
    }

    /// Advances the counters, and takes the current condition.
    pub(super) fn advance(
        &mut self,
        health: &mut Health,
        activity: &Activity,
        condition: Condition,
        facts: &HealthFacts,
        (origin, input): (&Origin, &DecisionInput),
    ) -> News {
        let before = self.condition(facts).warnings(&Thresholds::DEFAULT);
        let kelvin_before = self.condition.kelvin;
        self.condition = condition;
        health.advance(activity, &facts.endurance);
        let now = self.condition(facts);
        let after = now.warnings(&Thresholds::DEFAULT);
        let mut events = Vec::new();
        for bit in (0..8).map(|bit| 1_u8 << bit).filter(|bit| after & !before & bit != 0) {
            events.push(Event::critical_warning(origin, input, bit));
        }
        if let Some((thermal, delta)) = health::excursion(kelvin_before, now.kelvin) {
            events.push(Event::thermal_excursion(origin, input, thermal, delta));
        }
        if health.is_snapshot_due() {
            health.snapshot_taken();
            let page = health.page(Nsid::NONE, &now, &Thresholds::DEFAULT, &facts.endurance);
            events.push(Event::smart_snapshot(origin, input, &page));
        }
        let broken = after & !before & (critical_warning::DEGRADED | critical_warning::READ_ONLY) != 0;
        let capture = self.pending_capture.take().or_else(|| broken.then(|| "a critical warning".to_string()));
        News { events, raised: health::events(before, after), capture }
    }
}

/// The changes of a power-on, with counters `now`, before the counters are stored.
pub(super) fn powered_on(
    before: &Health,
    now: &Health,
    revision: &str,
    origin: &Origin,
    input: &DecisionInput,
) -> Vec<Change> {
    let mut changes = vec![Change::PoweredOn { at_ms: input.unix_ms }];
    changes.push(Change::Happened { event: Event::power_on(origin, input, revision, &[]) });
    if before.open {
        let count = now.unsafe_shutdowns.into();
        changes.push(Change::Happened { event: Event::unsafe_shutdown(origin, input, count) });
    }
    changes
}
