//! The health of a drive: collects errors and counters, saves them in the drive's journal, and
//! raises events.
//!
//! Errors are saved within ten seconds, and at once if data was lost. Counters that changed are
//! saved once a minute, power-on time alone every ten minutes. A drive that is killed loses what
//! was not saved yet, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::{Duration, Instant};

use ebof_clock::Clock;
use ebof_drive::health::{Activity, Condition, TEMPERATURE_KELVIN, Thresholds, Usage};
use ebof_drive::{Change, Drive, error_log};
use ebof_manage::api::DriveHealth;
use ebof_medium::{BackingFault, Capacity, Job, Notice, Progress, Store};
use ebof_nvme::Nsid;

use super::actor::DriveActor;
use super::faults::BackingFaults;
use super::log::DriveLog;
use super::sensor::Sensor;
use super::state::DurableDrive;

/// What the target has counted since it was started, and the errors since the last one that the
/// drive knows.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Errors with their numbers in the target.
    pub(crate) errors: Vec<(u64, error_log::Error)>,
    /// What hosts did, by namespace.
    pub(crate) usage: BTreeMap<u32, Usage>,
    /// Write commands, by namespace and host.
    pub(crate) writers: BTreeMap<u32, BTreeMap<String, u64>>,
    /// Milliseconds in which I/O commands were outstanding.
    pub(crate) busy_ms: u64,
    /// Uncorrected data integrity errors.
    pub(crate) media_errors: u64,
}

/// The state of a drive's monitoring between two collections.
#[derive(Debug)]
pub(crate) struct Monitor {
    clock: Clock,
    sensor: Option<Sensor>,
    last: Observed,
    /// Number of the last error that the drive was given.
    pub(crate) errors: u64,
    advanced_at: Instant,
    /// When counters were last saved.
    saved_at: Instant,
    /// Counters changed since then.
    dirty: bool,
    full: bool,
    failing: bool,
    /// A block was found damaged since the drive was opened.
    corrupt: bool,
    faults: BackingFaults,
    /// Events that could not be saved yet: the oldest, at most [`UNWRITTEN_MAX`].
    unwritten: Vec<Change>,
    /// The last attempt to save something failed.
    unwritable: bool,
    /// Namespaces that several hosts wrote when it was last written, and those hosts.
    mixed: BTreeMap<u32, Vec<String>>,
    /// Namespaces that a warning about several writing hosts was logged for.
    warned: BTreeSet<u32>,
}

/// What a collection has found.
pub(super) struct Collected {
    /// Namespaces that several hosts write by turns, and those hosts.
    pub(super) shared_writers: Vec<(u32, Vec<String>)>,
    pub(super) activity: Activity,
    /// Errors that are not known in detail.
    pub(super) missed: u64,
    pub(super) errors: Vec<error_log::Error>,
}

/// The time between two collections, milliseconds.
const INTERVAL_MS: u64 = 10_000;

/// Events that are kept until they can be saved.
const UNWRITTEN_MAX: usize = 64;

/// How long counters that changed wait to be saved, and how long they do if only time has passed,
/// seconds.
const SAVE_DIRTY_S: u64 = 60;
const SAVE_CLEAN_S: u64 = 600;

impl Monitor {
    pub(crate) fn new(sensor: Option<Sensor>, clock: Clock) -> Self {
        let now = clock.now();
        Self {
            clock,
            sensor,
            last: Observed::default(),
            errors: 0,
            advanced_at: now,
            saved_at: now,
            dirty: false,
            full: false,
            failing: false,
            corrupt: false,
            faults: BackingFaults::default(),
            unwritten: Vec::new(),
            unwritable: false,
            mixed: BTreeMap::new(),
            warned: BTreeSet::new(),
        }
    }

    /// What happened since the last collection: the activity, how many errors were dropped because
    /// there were too many, and the others.
    fn advance(&mut self, now: Observed) -> (Activity, u64, Vec<error_log::Error>) {
        let kelvin = self.sensor.as_ref().and_then(Sensor::kelvin).unwrap_or(TEMPERATURE_KELVIN);
        let elapsed_ms = u64::try_from(self.since(self.advanced_at).as_millis()).unwrap_or(u64::MAX);
        self.advanced_at = self.clock.now();
        let mut namespaces = Vec::new();
        for (&nsid, usage) in &now.usage {
            let before = self.last.usage.get(&nsid).copied().unwrap_or_default();
            let new = Usage {
                bytes_read: usage.bytes_read.saturating_sub(before.bytes_read),
                bytes_written: usage.bytes_written.saturating_sub(before.bytes_written),
                read_commands: usage.read_commands.saturating_sub(before.read_commands),
                write_commands: usage.write_commands.saturating_sub(before.write_commands),
            };
            if new != Usage::default() {
                namespaces.push((Nsid(nsid), new));
            }
        }
        self.dirty |= !namespaces.is_empty();
        let activity = Activity {
            elapsed_ms,
            busy_ms: now.busy_ms.saturating_sub(self.last.busy_ms),
            namespaces,
            overhead_bytes: 0,
            media_errors: now.media_errors.saturating_sub(self.last.media_errors),
            kelvin,
        };
        let errors: Vec<_> = now.errors.iter().map(|(_, error)| *error).collect();
        let mut missed = 0;
        if let Some(&(count, _)) = now.errors.last() {
            missed = count.saturating_sub(self.errors).saturating_sub(errors.len() as u64);
            self.errors = count;
        }
        self.last = Observed { errors: Vec::new(), ..now };
        (activity, missed, errors)
    }

    /// Namespaces that several hosts write by turns, with those hosts. Each namespace is returned
    /// once. One collection alone does not tell turns from a host that came after another: two of
    /// the same hosts write in the next one, too, in which the namespace is written.
    fn shared_writers(&mut self, now: &Observed) -> Vec<(u32, Vec<String>)> {
        let mut found = Vec::new();
        for (&nsid, hosts) in &now.writers {
            let before = self.last.writers.get(&nsid);
            let wrote =
                |host: &String, count: u64| count > before.and_then(|hosts| hosts.get(host)).copied().unwrap_or(0);
            let writers: Vec<String> =
                hosts.iter().filter(|(host, count)| wrote(host, **count)).map(|(host, _)| host.clone()).collect();
            if writers.is_empty() {
                continue;
            }
            let before = self.mixed.remove(&nsid).unwrap_or_default();
            let again = writers.iter().filter(|&host| before.contains(host)).count();
            if again > 1 && self.warned.insert(nsid) {
                found.push((nsid, writers));
            } else if writers.len() > 1 {
                self.mixed.insert(nsid, writers);
            }
        }
        found
    }

    /// The sensor of the disk below the drive; `None` where it has none.
    pub(super) fn sensor(&self) -> Option<Sensor> {
        self.sensor.clone()
    }

    /// What keeps the drive from doing what hosts ask; `None` if nothing does.
    pub(super) fn trouble(&self) -> Option<&'static str> {
        if self.failing {
            return Some("its journal cannot be written");
        }
        self.faults.errors().then_some("reads or writes fail below it")
    }

    /// Takes note of what the medium says. Returns whether errors and counters are to be collected
    /// soon.
    pub(super) fn note(&mut self, notice: Notice) -> bool {
        match notice {
            Notice::Full(_) => self.full = true,
            Notice::Room => self.full = false,
            Notice::JournalFailed(_) => self.failing = true,
            Notice::JournalRecovered => self.failing = false,
            // There may be more of them: a backing device that returns other data than were written
            // is not reliable.
            Notice::Corrupt { .. } if self.corrupt => return false,
            Notice::Corrupt { .. } => self.corrupt = true,
            Notice::QuotaReached(_) | Notice::Mended { .. } => return false,
            Notice::Fails(_) | Notice::Works(_) => {}
        }
        true
    }

    /// A fault of the backing device begins or ends. Returns whether to tell of it.
    pub(super) fn note_fault(&mut self, fault: BackingFault, fails: bool) -> bool {
        let now = self.clock.now();
        self.faults.update(fault, fails, now)
    }

    /// What is collected now: several writers of a namespace, the activity, errors that were
    /// dropped, and the others.
    pub(super) fn collect(&mut self, observed: Observed) -> Collected {
        let shared_writers = self.shared_writers(&observed);
        let (activity, missed, errors) = self.advance(observed);
        Collected { shared_writers, activity, missed, errors }
    }

    /// The condition of a drive that was in `before`.
    pub(super) fn condition(&self, before: &Condition, kelvin: u16, capacity: Capacity, read_only: bool) -> Condition {
        Condition {
            kelvin,
            sensors: self.sensor.iter().map(|_| kelvin).collect(),
            // A full drive has nothing to spare, whatever is being given back just now.
            free_bytes: if self.full { 0 } else { capacity.total_bytes.saturating_sub(capacity.used_bytes) },
            no_space: self.faults.no_space(),
            read_only,
            degraded: self.failing || self.corrupt || self.faults.errors() || read_only,
            ..before.clone()
        }
    }

    /// What is to be saved of these changes and of those that could not be saved before; `None` if
    /// nothing is.
    pub(super) fn take_changes(&mut self, changes: Vec<Change>) -> Option<Vec<Change>> {
        if changes.is_empty() && self.unwritten.is_empty() {
            return None;
        }
        if changes.iter().any(|change| matches!(change, Change::Counted { .. })) {
            self.saved_at = self.clock.now();
            self.dirty = false;
        }
        let mut all = std::mem::take(&mut self.unwritten);
        all.extend(changes);
        Some(all)
    }

    /// Changes were saved or not. Of those that were not, these events are kept. Returns whether
    /// that is new.
    pub(super) fn saved(&mut self, is_saved: bool, events: Vec<Change>) -> bool {
        let before = std::mem::replace(&mut self.unwritable, !is_saved);
        if !is_saved {
            self.unwritten = events;
        }
        before == is_saved
    }

    fn since(&self, moment: Instant) -> Duration {
        self.clock.now().saturating_duration_since(moment)
    }

    /// Whether counters have to be saved now.
    pub(super) fn is_due(&self) -> bool {
        self.since(self.saved_at).as_secs() >= if self.dirty { SAVE_DIRTY_S } else { SAVE_CLEAN_S }
    }
}

/// Those of the changes that are kept until they can be saved: errors and activity are counted anew
/// by the next collection.
pub(super) fn kept_events(changes: &[Change]) -> Vec<Change> {
    let events = changes.iter().filter(|change| matches!(change, Change::Happened { .. }));
    events.take(UNWRITTEN_MAX).cloned().collect()
}

/// SMART / Health Information of a drive, as of the last collection.
pub(super) fn health_of(drive: &Drive, temperature_kelvin: Option<u16>) -> DriveHealth {
    let page = drive.state().health.page(Nsid::NONE, &drive.condition(), &Thresholds::DEFAULT, &drive.endurance());
    let count = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
    let usage = drive.state().health.usage;
    DriveHealth {
        critical_warning: page.cw,
        temperature_kelvin,
        available_spare_percent: page.avsp,
        available_spare_threshold_percent: page.avspt,
        percentage_used: page.pused,
        media_errors: count(page.mdie.get()),
        error_log_entries: count(page.neile.get()),
        power_cycles: count(page.pwrc.get()),
        unsafe_shutdowns: count(page.upl.get()),
        power_on_hours: count(page.poh.get()),
        host_read_bytes: usage.bytes_read,
        host_written_bytes: usage.bytes_written,
    }
}

/// File systems of several hosts on one namespace destroy each other, unless the hosts agree by
/// reservations.
pub(super) fn warn_of(shared: &[(u32, Vec<String>)], drive: &DurableDrive, log: &DriveLog) {
    for (nsid, hosts) in shared {
        let reserved = drive.lock().state().reservations.get(nsid).is_some_and(|kept| kept.kind().is_some());
        if !reserved {
            tracing::warn!(
                drive = log.name(),
                nsid,
                hosts = hosts.join(", "),
                "several hosts write this namespace without a reservation: one that has mounted it loses data; \
                 detach all but one, or let them use reservations (`exclusive` keeps others away)"
            );
        }
    }
}

/// Collects at regular intervals.
pub(crate) struct MonitorJob(pub(crate) Weak<DriveActor>);

impl Job for MonitorJob {
    fn step(&mut self, store: &mut Store) -> Progress {
        let Some(actor) = self.0.upgrade() else { return Progress::Done };
        actor.collect(store, false);
        actor.pay_ends();
        Progress::Later(INTERVAL_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrote(counts: &[(u32, &str, u64)]) -> Observed {
        let mut observed = Observed::default();
        for &(nsid, host, count) in counts {
            observed.writers.entry(nsid).or_default().insert(host.to_owned(), count);
            let usage = observed.usage.entry(nsid).or_default();
            usage.write_commands += count;
            usage.bytes_written += count * 4096;
        }
        observed
    }

    #[test]
    fn several_writers_of_a_namespace_are_reported_once() {
        let mut monitor = Monitor::new(None, Clock::system());
        let look = |monitor: &mut Monitor, counts: &[(u32, &str, u64)]| {
            let observed = wrote(counts);
            let found = monitor.shared_writers(&observed);
            let _counted = monitor.advance(observed);
            found.into_iter().map(|(nsid, hosts)| (nsid, hosts.len())).collect::<Vec<_>>()
        };
        assert_eq!(look(&mut monitor, &[(1, "a", 5), (2, "a", 1)]), []);
        // One after the other is as it should be, also between two looks, and a third one.
        assert_eq!(look(&mut monitor, &[(1, "a", 5), (1, "b", 3), (2, "a", 1)]), []);
        assert_eq!(look(&mut monitor, &[(1, "a", 5), (1, "b", 4), (1, "c", 1), (2, "a", 1)]), []);
        assert_eq!(look(&mut monitor, &[(1, "a", 5), (1, "b", 4), (1, "c", 2), (1, "d", 1)]), []);
        assert_eq!(look(&mut monitor, &[(1, "a", 5), (1, "b", 4), (1, "c", 2), (1, "d", 2)]), []);
        assert_eq!(look(&mut monitor, &[(1, "a", 6), (1, "b", 5), (1, "c", 2), (1, "d", 2)]), []);
        assert_eq!(look(&mut monitor, &[(1, "a", 6), (1, "b", 5), (2, "a", 2)]), [], "nothing was written");
        assert_eq!(look(&mut monitor, &[(1, "a", 7), (1, "b", 6), (2, "a", 2)]), [(1, 2)]);
        assert_eq!(look(&mut monitor, &[(1, "a", 8), (1, "b", 7), (2, "a", 2)]), []);
        assert_eq!(look(&mut monitor, &[(1, "a", 9), (1, "b", 8), (2, "a", 2)]), []);
    }

    #[test]
    fn only_new_counts_are_added() {
        let mut monitor = Monitor::new(None, Clock::system());
        let (activity, ..) = monitor.advance(wrote(&[(1, "a", 5)]));
        assert_eq!(activity.namespaces[0].1.bytes_written, 5 * 4096);
        let (activity, ..) = monitor.advance(wrote(&[(1, "a", 7)]));
        assert_eq!(activity.namespaces[0].1.write_commands, 2);
        assert!(monitor.advance(wrote(&[(1, "a", 7)])).0.namespaces.is_empty());
    }
}
