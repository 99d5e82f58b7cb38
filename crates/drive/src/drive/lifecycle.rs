//! Opening and closing a drive, and what happens to it in between without a command: counters
//! advance, errors are recorded, its condition changes.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::event::AsyncEvent;
use ebof_nvme::log::critical_warning;

use super::{Drive, capture};
use crate::change::Change;
use crate::error_log::{self, Urgency};
use crate::event_log::Event;
use crate::health::{self, Activity, Condition, Endurance, Thresholds};
use crate::request::{DecisionInput, Origin};
use crate::self_test::Cause;

/// The consequences of [`Drive::advance`].
#[derive(Debug, Default, PartialEq)]
pub struct HealthUpdate {
    /// To be made durable.
    pub changes: Vec<Change>,
    /// Raised on all controllers.
    pub events: Vec<AsyncEvent>,
}

impl Drive {
    /// The changes when the drive is opened: a power-on.
    #[must_use]
    pub fn opened(&self, origin: &Origin, input: &DecisionInput) -> Vec<Change> {
        let health = self.state.health.opened();
        let mut changes = vec![Change::PoweredOn { at_ms: input.unix_ms }];
        let limits = self.firmware_limits();
        let firmware = self.state.firmware.at_reset(&limits);
        let revision = firmware.as_ref().unwrap_or(&self.state.firmware).running(&limits).revision.clone();
        changes.push(Change::Happened { event: Event::power_on(origin, input, &revision, &[]) });
        if self.state.health.open {
            let count = health.unsafe_shutdowns.into();
            changes.push(Change::Happened { event: Event::unsafe_shutdown(origin, input, count) });
        }
        changes.extend(firmware.map(|firmware| Change::Firmware { firmware: Box::new(firmware) }));
        changes.extend(self.interrupt_self_test(Cause::Restart));
        changes.extend(self.give_up_functions());
        changes.push(Change::Counted { health: Box::new(health) });
        changes
    }

    /// The changes when the drive is closed.
    #[must_use]
    pub fn closed(&self) -> Vec<Change> {
        let mut changes: Vec<_> =
            self.state.errors.close().into_iter().map(|errors| Change::Failed { errors }).collect();
        changes.push(Change::Counted { health: Box::new(self.state.health.closed()) });
        changes
    }

    /// Records errors of commands, and counts `missed` older ones that are not known in detail.
    /// Returns whether they have to be made durable at once.
    pub fn record_errors(&mut self, missed: u64, errors: &[error_log::Error]) -> Urgency {
        let entries = self.settings.error_entries;
        self.state.errors.skip(missed);
        let mut urgency = Urgency::Periodic;
        if let Some(reason) = capture::reason(errors) {
            self.pending_capture.get_or_insert(reason);
        }
        for error in errors {
            if self.state.errors.record(error, entries) == Urgency::AtOnce {
                urgency = Urgency::AtOnce;
            }
        }
        urgency
    }

    /// The change with the errors that are not durable yet, if any.
    #[must_use]
    pub fn unflushed(&self) -> Option<Change> {
        self.state.errors.flush().map(|errors| Change::Failed { errors })
    }

    /// Advances the counters by `activity`, and takes the current `condition`. The counters change
    /// at once; the returned changes are to be made durable. They include the counters only if
    /// `keep`, or if there are other changes.
    pub fn advance(
        &mut self,
        activity: &Activity,
        condition: Condition,
        keep: bool,
        origin: &Origin,
        input: &DecisionInput,
    ) -> HealthUpdate {
        let before = self.condition().warnings(&Thresholds::DEFAULT);
        let kelvin_before = self.condition.kelvin;
        self.condition = condition;
        let endurance = self.endurance();
        self.state.health.advance(activity, &endurance);
        let after = self.condition().warnings(&Thresholds::DEFAULT);
        let mut events = Vec::new();
        for bit in (0..8).map(|bit| 1_u8 << bit).filter(|bit| after & !before & bit != 0) {
            events.push(Event::critical_warning(origin, input, bit));
        }
        if let Some((thermal, delta)) = health::excursion(kelvin_before, self.condition.kelvin) {
            events.push(Event::thermal_excursion(origin, input, thermal, delta));
        }
        if self.state.health.is_snapshot_due() {
            self.state.health.snapshot_taken();
            let page =
                self.state.health.page(ebof_nvme::Nsid::NONE, &self.condition(), &Thresholds::DEFAULT, &endurance);
            events.push(Event::smart_snapshot(origin, input, &page));
        }
        let admitted = events.into_iter().filter(|event| self.state.events.admits(event));
        let mut changes: Vec<_> = admitted.map(|event| Change::Happened { event }).collect();
        changes.extend(self.unflushed());
        self.written |= activity.namespaces.iter().any(|(_, usage)| usage.bytes_written > 0);
        if self.written {
            // Repeated until it is in the state: the change may fail to become durable.
            let written = self.state.sanitize.written();
            self.written = written.is_some();
            changes.extend(written.map(|sanitize| Change::Sanitized { sanitize: Box::new(sanitize) }));
        }
        let mut raised = health::events(before, after);
        let broken = after & !before & (critical_warning::DEGRADED | critical_warning::READ_ONLY) != 0;
        let reason = self.pending_capture.take().or_else(|| broken.then(|| "a critical warning".to_string()));
        if let Some((captured, event)) = reason.and_then(|reason| self.capture_error(&reason, origin, input)) {
            changes.extend(captured);
            raised.push(event);
        }
        if keep || !changes.is_empty() {
            changes.push(Change::Counted { health: Box::new(self.state.health.clone()) });
        }
        HealthUpdate { changes, events: raised }
    }

    /// The current condition of the drive.
    #[must_use]
    pub fn condition(&self) -> Condition {
        Condition {
            overcommitted: self.settings.overcommit,
            error_entries: self.state.errors.count(),
            ..self.condition.clone()
        }
    }

    /// The drive's rated endurance.
    #[must_use]
    pub fn endurance(&self) -> Endurance {
        let times = u64::from(self.settings.profile.endurance_writes);
        let rated = self.settings.endurance_bytes.unwrap_or(self.capacity.total_bytes.saturating_mul(times));
        Endurance { rated_bytes: rated, amplification_percent: 100 }
    }
}
