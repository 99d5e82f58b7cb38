//! The health of a drive: counters, endurance, temperature, and the log pages and warnings that are
//! made of them.
//!
//! Input is what happened since the last update ([`Activity`]), and the current state of sensors
//! and capacity ([`Condition`]). All of [`Health`] is journaled from time to time: what was counted
//! since is lost when the drive is killed.
//!
//! NVMe Base 2.1, "SMART / Health Information", "Endurance Group Information"; NVM Command Set 1.1,
//! "SMART / Health Information".

#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use ebof_nvme::Nsid;
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::log::{EnduranceGroupInformation, SmartHealth, critical_warning, endurance_warning};
use serde::{Deserialize, Serialize};

use crate::logs::event_log::Thermal;

/// The composite temperature of a drive without a sensor: 35 degrees Celsius.
pub const TEMPERATURE_KELVIN: u16 = 308;

/// WCTEMP: 70 degrees Celsius.
pub const WARNING_KELVIN: u16 = 343;

/// CCTEMP: 80 degrees Celsius.
pub const CRITICAL_KELVIN: u16 = 353;

/// Available Spare Threshold.
pub const SPARE_THRESHOLD_PERCENT: u8 = 10;

/// Counters since the drive was created. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// How often the drive was opened.
    pub power_cycles: u64,
    /// How often it was opened without having been closed.
    pub unsafe_shutdowns: u64,
    /// It is open. If this is set when it is opened, it was not closed.
    pub open: bool,
    /// How long it was open.
    pub power_on_ms: u64,
    /// How long I/O commands were outstanding.
    pub busy_ms: u64,
    /// How long the composite temperature was at [`WARNING_KELVIN`] or above, and below
    /// [`CRITICAL_KELVIN`].
    pub warning_ms: u64,
    /// How long it was at [`CRITICAL_KELVIN`] or above.
    pub critical_ms: u64,
    /// Uncorrected data integrity errors.
    pub media_errors: u64,
    /// What hosts read and wrote, deleted namespaces included.
    pub usage: Usage,
    /// Bytes written to the medium.
    pub medium_bytes: u64,
    /// `usage` of each namespace, by NSID; dropped with the namespace.
    pub namespaces: BTreeMap<u32, Usage>,
    /// Power-on hours at the last snapshot in the Persistent Event Log.
    pub snapshot_hours: u64,
}

/// What hosts read and wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Bytes of Read, Compare, Verify and the sources of Copy, as far as NVM counts them.
    pub bytes_read: u64,
    /// Bytes of Write and the destination of Copy.
    pub bytes_written: u64,
    /// SMART Host Read Commands.
    pub read_commands: u64,
    /// User Data Out Commands.
    pub write_commands: u64,
}

/// What happened since the last update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Time since then.
    pub elapsed_ms: u64,
    /// How much of it I/O commands were outstanding for.
    pub busy_ms: u64,
    /// What hosts read and wrote, by namespace.
    pub namespaces: Vec<(Nsid, Usage)>,
    /// Bytes that were written besides: journal, zeroing, checksums.
    pub overhead_bytes: u64,
    /// Uncorrected data integrity errors.
    pub media_errors: u64,
    /// The composite temperature; [`TEMPERATURE_KELVIN`] where there is no sensor.
    pub kelvin: u16,
}

/// The rated endurance of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endurance {
    /// Bytes that may be written to the medium over its life; 0 is any number.
    pub rated_bytes: u64,
    /// Bytes written to the medium for 100 bytes that hosts write, what is counted as overhead
    /// aside.
    pub amplification_percent: u32,
}

/// The current condition of a drive, which is not durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// The composite temperature; [`TEMPERATURE_KELVIN`] where there is no sensor.
    pub kelvin: u16,
    /// Temperatures of up to eight sensors, kelvin.
    pub sensors: Vec<u16>,
    /// Bytes that can be allocated.
    pub total_bytes: u64,
    /// Bytes that are not allocated.
    pub free_bytes: u64,
    /// Namespaces may have more capacity than the drive: only then free capacity counts as spare.
    pub overcommitted: bool,
    /// The file system below the drive is full: nothing is spare.
    pub no_space: bool,
    /// Data was lost, or the medium reported errors.
    pub degraded: bool,
    /// Nothing can be written.
    pub read_only: bool,
    /// Errors that the Error Information log counts.
    pub error_entries: u64,
}

/// Temperature Threshold (feature 04h) of the composite temperature, kelvin. A controller has its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Over temperature.
    pub over: u16,
    /// Under temperature; 0 is never reached.
    pub under: u16,
}

impl Health {
    /// The counters when the drive is opened.
    #[must_use]
    pub fn opened(&self) -> Self {
        Self {
            power_cycles: self.power_cycles.saturating_add(1),
            unsafe_shutdowns: self.unsafe_shutdowns.saturating_add(self.open.into()),
            open: true,
            ..self.clone()
        }
    }

    /// The counters when the drive is closed.
    #[must_use]
    pub fn closed(&self) -> Self {
        Self { open: false, ..self.clone() }
    }

    /// Counts what happened.
    pub fn advance(&mut self, activity: &Activity, endurance: &Endurance) {
        let add = |counter: &mut u64, amount: u64| *counter = counter.saturating_add(amount);
        add(&mut self.power_on_ms, activity.elapsed_ms);
        add(&mut self.busy_ms, activity.busy_ms.min(activity.elapsed_ms));
        add(&mut self.media_errors, activity.media_errors);
        add(&mut self.medium_bytes, activity.overhead_bytes);
        if activity.kelvin >= CRITICAL_KELVIN {
            add(&mut self.critical_ms, activity.elapsed_ms);
        } else if activity.kelvin >= WARNING_KELVIN {
            add(&mut self.warning_ms, activity.elapsed_ms);
        }
        for (nsid, usage) in &activity.namespaces {
            self.usage.add(usage);
            self.namespaces.entry(nsid.0).or_default().add(usage);
            let amplified = u128::from(usage.bytes_written) * u128::from(endurance.amplification_percent) / 100;
            add(&mut self.medium_bytes, u64::try_from(amplified).unwrap_or(u64::MAX));
        }
    }

    /// Drops the counters of a namespace.
    pub fn forget(&mut self, nsid: Nsid) {
        self.namespaces.remove(&nsid.0);
    }

    /// Whether a snapshot in the Persistent Event Log is due: one in 24 power-on hours.
    #[must_use]
    pub fn is_snapshot_due(&self) -> bool {
        self.power_on_hours() >= self.snapshot_hours.saturating_add(24)
    }

    /// A snapshot was recorded.
    pub fn snapshot_taken(&mut self) {
        self.snapshot_hours = self.power_on_hours();
    }

    /// Whole hours the drive was open.
    #[must_use]
    pub fn power_on_hours(&self) -> u64 {
        self.power_on_ms / MS_PER_HOUR
    }

    /// Percentage Used: 255 for more than 254.
    #[must_use]
    pub fn percentage_used(&self, endurance: &Endurance) -> u8 {
        let percent = (u128::from(self.medium_bytes) * 100).checked_div(endurance.rated_bytes.into()).unwrap_or(0);
        u8::try_from(percent).unwrap_or(u8::MAX)
    }

    /// SMART / Health Information: of the drive, or for one NSID with the usage of that namespace.
    #[must_use]
    pub fn page(
        &self,
        nsid: Nsid,
        condition: &Condition,
        thresholds: &Thresholds,
        endurance: &Endurance,
    ) -> SmartHealth {
        let usage =
            if nsid.names_one() { self.namespaces.get(&nsid.0).copied().unwrap_or_default() } else { self.usage };
        let mut page = SmartHealth {
            cw: condition.warnings(thresholds),
            ctemp: condition.kelvin.into(),
            avsp: condition.spare_percent(),
            avspt: SPARE_THRESHOLD_PERCENT,
            pused: self.percentage_used(endurance),
            egcws: condition.group_warnings(),
            dur: SmartHealth::data_units(usage.bytes_read.into()).into(),
            duw: SmartHealth::data_units(usage.bytes_written.into()).into(),
            hrc: u128::from(usage.read_commands).into(),
            hwc: u128::from(usage.write_commands).into(),
            cbt: u128::from(self.busy_ms / MS_PER_MINUTE).into(),
            pwrc: u128::from(self.power_cycles).into(),
            poh: u128::from(self.power_on_hours()).into(),
            upl: u128::from(self.unsafe_shutdowns).into(),
            mdie: u128::from(self.media_errors).into(),
            neile: u128::from(condition.error_entries).into(),
            wctt: minutes(self.warning_ms).into(),
            cctt: minutes(self.critical_ms).into(),
            ..SmartHealth::default()
        };
        for (to, &sensor) in page.tsen.iter_mut().zip(&condition.sensors) {
            to.set(sensor);
        }
        page
    }

    /// Endurance Group Information of the one group there is, 1.
    #[must_use]
    pub fn endurance_page(&self, condition: &Condition, endurance: &Endurance) -> EnduranceGroupInformation {
        let units = |bytes: u64| EnduranceGroupInformation::data_units(bytes.into()).into();
        let amplification = u128::from(endurance.amplification_percent.max(1));
        let estimate = u128::from(endurance.rated_bytes) * 100 / amplification;
        EnduranceGroupInformation {
            cw: condition.group_warnings(),
            avsp: condition.spare_percent(),
            avspt: SPARE_THRESHOLD_PERCENT,
            pused: self.percentage_used(endurance),
            ee: EnduranceGroupInformation::data_units(estimate).into(),
            dur: units(self.usage.bytes_read),
            duw: units(self.usage.bytes_written),
            muw: units(self.medium_bytes),
            hrc: u128::from(self.usage.read_commands).into(),
            hwc: u128::from(self.usage.write_commands).into(),
            mdie: u128::from(self.media_errors).into(),
            neile: u128::from(condition.error_entries).into(),
            tegcap: u128::from(condition.total_bytes).into(),
            uegcap: u128::from(condition.free_bytes).into(),
            ..EnduranceGroupInformation::default()
        }
    }
}

impl Usage {
    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        self.bytes_read = self.bytes_read.saturating_add(other.bytes_read);
        self.bytes_written = self.bytes_written.saturating_add(other.bytes_written);
        self.read_commands = self.read_commands.saturating_add(other.read_commands);
        self.write_commands = self.write_commands.saturating_add(other.write_commands);
    }
}

impl Condition {
    /// Available Spare, percent. 100 for a drive that is not over-committed; of an over-committed
    /// one it is what is left to allocate. 0 if there is no space below the drive: writes then fail
    /// with Capacity Exceeded, and hosts have no other warning.
    #[must_use]
    pub fn spare_percent(&self) -> u8 {
        if self.no_space {
            return 0;
        }
        if !self.overcommitted {
            return 100;
        }
        let percent = (u128::from(self.free_bytes) * 100).checked_div(self.total_bytes.into()).unwrap_or(0);
        u8::try_from(percent.min(100)).unwrap_or(100)
    }

    /// Critical Warning, as a controller with these thresholds shows it.
    #[must_use]
    pub fn warnings(&self, thresholds: &Thresholds) -> u8 {
        let hot = self.kelvin >= thresholds.over || self.kelvin <= thresholds.under;
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        bit(self.spare_percent() < SPARE_THRESHOLD_PERCENT, critical_warning::SPARE)
            | bit(hot, critical_warning::TEMPERATURE)
            | bit(self.degraded, critical_warning::DEGRADED)
            | bit(self.read_only, critical_warning::READ_ONLY)
    }

    fn group_warnings(&self) -> u8 {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        bit(self.spare_percent() < SPARE_THRESHOLD_PERCENT, endurance_warning::SPARE)
            | bit(self.degraded, endurance_warning::DEGRADED)
            | bit(self.read_only, endurance_warning::READ_ONLY)
    }
}

impl Thresholds {
    /// The default of a controller.
    pub const DEFAULT: Self = Self { over: WARNING_KELVIN, under: 0 };
}

/// The events for new warnings: `before` and `after` are values of Critical Warning.
#[must_use]
pub fn events(before: u8, after: u8) -> Vec<AsyncEvent> {
    let new = after & !before;
    let reliability = critical_warning::DEGRADED | critical_warning::READ_ONLY;
    [
        (critical_warning::SPARE, AsyncEvent::SPARE_BELOW_THRESHOLD),
        (critical_warning::TEMPERATURE, AsyncEvent::TEMPERATURE_THRESHOLD),
        (reliability, AsyncEvent::RELIABILITY),
    ]
    .into_iter()
    .filter(|(bits, _)| new & bits != 0)
    .map(|(_, event)| event)
    .collect()
}

/// The threshold that the composite temperature crossed from `before` to `after`, and its distance
/// to it now, for the event Thermal Excursion. If it crossed several, the highest.
#[must_use]
pub fn excursion(before: u16, after: u16) -> Option<(Thermal, u16)> {
    let rose_to = |threshold: u16| before < threshold && after >= threshold;
    if rose_to(CRITICAL_KELVIN) {
        Some((Thermal::Critical, after - CRITICAL_KELVIN))
    } else if rose_to(WARNING_KELVIN) {
        Some((Thermal::Warning, after - WARNING_KELVIN))
    } else if before >= WARNING_KELVIN && after < WARNING_KELVIN {
        Some((Thermal::Normal, WARNING_KELVIN - after))
    } else {
        None
    }
}

fn minutes(ms: u64) -> u32 {
    u32::try_from(ms / MS_PER_MINUTE).unwrap_or(u32::MAX)
}

const MS_PER_MINUTE: u64 = 60_000;
const MS_PER_HOUR: u64 = 60 * MS_PER_MINUTE;
