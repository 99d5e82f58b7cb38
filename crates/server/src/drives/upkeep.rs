//! What a drive does unasked: errors and counters are collected and written down, and warnings are
//! raised.
//!
//! Errors wait ten seconds at most, those that tell of lost data not at all; counters that moved
//! wait a minute, and time alone ten of them. A drive that is killed loses what was not written
//! down yet, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ebof_clock::Clock;
use ebof_drive::health::{Activity, TEMPERATURE_KELVIN, Thresholds, Usage};
use ebof_drive::{Change, Origin, error_log};
use ebof_manage::api::DriveHealth;
use ebof_medium::{Job, Notice, Progress, Store};
use ebof_nvme::{ControllerId, HostId, Nqn, Nsid};

use super::actor::DriveActor;
use super::sensor::Sensor;
use super::trouble::Troubles;

/// What the target has counted since it was started, and errors behind the last that the drive
/// knows.
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

/// What an actor remembers of the last time.
#[derive(Debug)]
pub(crate) struct Round {
    clock: Clock,
    sensor: Option<Sensor>,
    last: Observed,
    /// Number of the last error that the drive was given.
    pub(crate) errors: u64,
    advanced: Instant,
    /// When counters were written down last.
    kept: Instant,
    /// Counters moved since.
    moved: bool,
    full: bool,
    failing: bool,
    /// A block was not what was written there, since the drive was opened.
    corrupt: bool,
    pub(super) troubles: Troubles,
    /// Events that could not be written down yet, the oldest.
    unwritten: Vec<Change>,
    /// Something could not be written down the last time.
    unwritable: bool,
    /// Namespaces of which it was told that several hosts write them.
    warned: BTreeSet<u32>,
}

/// How often there is a look, in milliseconds.
const EVERY_MS: u64 = 10_000;

/// Events that are kept until they can be written down.
const UNWRITTEN: usize = 64;

/// How long counters that moved wait to be written down, and how long those do that only tell the
/// time.
const KEEP_MOVED_S: u64 = 60;
const KEEP_S: u64 = 600;

impl DriveActor {
    /// What SMART / Health Information says of the drive, of the last look: one in ten seconds.
    pub(crate) fn health(&self) -> DriveHealth {
        let drive = self.drive();
        let page = drive.state().health.page(Nsid::NONE, &drive.condition(), &Thresholds::DEFAULT, &drive.endurance());
        let count = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
        let usage = drive.state().health.usage;
        DriveHealth {
            critical_warning: page.cw,
            temperature_kelvin: page.ctemp.get(),
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
}

impl Round {
    pub(crate) fn new(sensor: Option<Sensor>, clock: Clock) -> Self {
        let now = clock.now();
        Self {
            clock,
            sensor,
            last: Observed::default(),
            errors: 0,
            advanced: now,
            kept: now,
            moved: false,
            full: false,
            failing: false,
            corrupt: false,
            troubles: Troubles::default(),
            unwritten: Vec::new(),
            unwritable: false,
            warned: BTreeSet::new(),
        }
    }

    /// What happened since the last time: with how many errors of which only the newest are given,
    /// and those.
    fn advance(&mut self, now: Observed) -> (Activity, u64, Vec<error_log::Error>) {
        let kelvin = self.sensor.as_ref().and_then(Sensor::kelvin).unwrap_or(TEMPERATURE_KELVIN);
        let elapsed_ms = u64::try_from(self.since(self.advanced).as_millis()).unwrap_or(u64::MAX);
        self.advanced = self.clock.now();
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
        self.moved |= !namespaces.is_empty();
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

    /// Namespaces that several hosts have written since the last time, with those hosts. Each is
    /// named once.
    fn contended(&mut self, now: &Observed) -> Vec<(u32, Vec<String>)> {
        let mut found = Vec::new();
        for (&nsid, hosts) in &now.writers {
            let before = self.last.writers.get(&nsid);
            let wrote =
                |host: &String, count: u64| count > before.and_then(|hosts| hosts.get(host)).copied().unwrap_or(0);
            let writers: Vec<String> =
                hosts.iter().filter(|(host, count)| wrote(host, **count)).map(|(host, _)| host.clone()).collect();
            if writers.len() > 1 && self.warned.insert(nsid) {
                found.push((nsid, writers));
            }
        }
        found
    }

    fn since(&self, moment: Instant) -> Duration {
        self.clock.now().saturating_duration_since(moment)
    }

    /// Whether counters are to be written down now.
    fn is_due(&self) -> bool {
        self.since(self.kept).as_secs() >= if self.moved { KEEP_MOVED_S } else { KEEP_S }
    }
}

/// The look every ten seconds.
pub(crate) struct Upkeep(pub(crate) Weak<DriveActor>);

impl Job for Upkeep {
    fn step(&mut self, store: &mut Store) -> Progress {
        let Some(actor) = self.0.upgrade() else { return Progress::Done };
        actor.upkeep(store, false);
        Progress::Later(EVERY_MS)
    }
}

impl DriveActor {
    /// Collects what happened, writes down what has to be (all of it if `all`), and raises events.
    /// On the drive's thread.
    pub(super) fn upkeep(&self, store: &mut Store, all: bool) {
        self.log_limit.tell(self.age_us());
        let mut round = self.round();
        let observed = self.observe(round.errors);
        let contended = round.contended(&observed);
        self.warn_of(&contended);
        let (activity, missed, errors) = round.advance(observed);
        let keep = all || round.is_due();
        let capacity = self.medium().capacity();
        let turned = {
            let mut drive = self.drive();
            drive.record_errors(missed, &errors);
            let mut condition = drive.condition();
            condition.kelvin = activity.kelvin;
            condition.sensors = round.sensor.iter().map(|_| activity.kelvin).collect();
            // A full drive has nothing to spare, whatever is being given back just now.
            condition.free_bytes =
                if round.full { 0 } else { capacity.total_bytes.saturating_sub(capacity.used_bytes) };
            condition.no_space = round.troubles.no_space();
            condition.read_only = store.is_read_only();
            condition.degraded = round.failing || round.corrupt || round.troubles.errors() || condition.read_only;
            drive.advance(&activity, condition, keep, &itself(), &self.decision_input())
        };
        if turned.changes.is_empty() && round.unwritten.is_empty() {
            return;
        }
        if turned.changes.iter().any(|change| matches!(change, Change::Counted { .. })) {
            (round.kept, round.moved) = (round.clock.now(), false);
        }
        let mut changes = std::mem::take(&mut round.unwritten);
        changes.extend(turned.changes);
        drop(round);
        self.write_down(store, changes);
        self.show(None, &[], &turned.events);
    }

    /// Makes changes durable that nobody asked for. Events for which that fails are kept for the
    /// next time; errors and counters are what they are then.
    fn write_down(&self, store: &mut Store, changes: Vec<Change>) {
        let events = changes.iter().filter(|change| matches!(change, Change::Happened { .. }));
        let events: Vec<_> = events.take(UNWRITTEN).cloned().collect();
        let outcome = self.commit(store, changes);
        let mut round = self.round();
        let before = std::mem::replace(&mut round.unwritable, outcome.is_err());
        match outcome {
            Err(error) => {
                if !before {
                    tracing::error!(drive = self.name(), "health and errors cannot be written down: {error}");
                }
                round.unwritten = events;
            }
            Ok(()) if before => tracing::info!(drive = self.name(), "health and errors are written down again"),
            Ok(()) => {}
        }
    }

    /// File systems of several hosts on one namespace destroy each other, unless the hosts agree by
    /// reservations.
    fn warn_of(&self, contended: &[(u32, Vec<String>)]) {
        for (nsid, hosts) in contended {
            let reserved = self.drive().state().reservations.get(nsid).is_some_and(|kept| kept.kind().is_some());
            if !reserved {
                tracing::warn!(
                    drive = self.name(),
                    nsid,
                    ?hosts,
                    "several hosts write this namespace without a reservation: one that has mounted it loses data; \
                     detach all but one, or let them use reservations (`exclusive` keeps others away)"
                );
            }
        }
    }

    /// Something cannot wait for the next look: data was lost, or the medium changed its state.
    /// However often that happens before the look begins, there is one.
    pub(crate) fn hurry(self: &Arc<Self>) {
        if self.hurries.swap(true, Ordering::AcqRel) {
            return;
        }
        let own = Arc::clone(self);
        self.medium().run(Box::new(move |store| {
            // What happens from here on may not be seen by this look.
            own.hurries.store(false, Ordering::Release);
            own.upkeep(store, false);
        }));
    }

    /// What the medium says by itself. On the drive's thread.
    pub(super) fn on_notice(self: &Arc<Self>, notice: Notice) {
        let drive = self.name();
        match notice {
            Notice::Full(volume) => {
                tracing::error!(drive, instance = volume.0, "the drive is full: writes that need space are refused");
            }
            Notice::QuotaReached(volume) => {
                tracing::warn!(drive, instance = volume.0, "a namespace has all that it may have: writes are refused");
            }
            Notice::Room => tracing::info!(drive, "there is space on the drive again"),
            Notice::JournalFailed(class) => {
                tracing::error!(drive, ?class, "the journal cannot be written: changes are refused until it can");
            }
            Notice::JournalRecovered => tracing::info!(drive, "the journal is written again"),
            Notice::Corrupt { volume, block } => {
                let instance = volume.0;
                tracing::error!(
                    drive,
                    instance,
                    block,
                    "a block is damaged: it cannot be read before it is written again"
                );
            }
            Notice::Fails(trouble) => self.on_trouble(trouble, true),
            Notice::Works(trouble) => self.on_trouble(trouble, false),
        }
        let mut round = self.round();
        match notice {
            Notice::Full(_) => round.full = true,
            Notice::Room => round.full = false,
            Notice::JournalFailed(_) => round.failing = true,
            Notice::JournalRecovered => round.failing = false,
            // Where there is one there may be more: a drive that gives back what it was not given
            // is not to be relied on.
            Notice::Corrupt { .. } if round.corrupt => return,
            Notice::Corrupt { .. } => round.corrupt = true,
            Notice::QuotaReached(_) => return,
            Notice::Fails(_) | Notice::Works(_) => {}
        }
        drop(round);
        self.hurry();
    }
}

/// The drive itself, as the one whose events these are.
pub(super) fn itself() -> Origin {
    Origin { cntlid: ControllerId::DYNAMIC, host: Nqn::discovery(), host_id: HostId::default() }
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
    fn several_writers_of_a_namespace_are_told_of_once() {
        let mut round = Round::new(None, Clock::system());
        let look = |round: &mut Round, counts: &[(u32, &str, u64)]| {
            let observed = wrote(counts);
            let found = round.contended(&observed);
            let _counted = round.advance(observed);
            found.into_iter().map(|(nsid, hosts)| (nsid, hosts.len())).collect::<Vec<_>>()
        };
        assert_eq!(look(&mut round, &[(1, "a", 5), (2, "a", 1)]), []);
        // One after the other is as it should be.
        assert_eq!(look(&mut round, &[(1, "a", 5), (1, "b", 3), (2, "a", 1)]), []);
        assert_eq!(look(&mut round, &[(1, "a", 6), (1, "b", 4), (2, "a", 1)]), [(1, 2)]);
        assert_eq!(look(&mut round, &[(1, "a", 7), (1, "b", 5), (2, "a", 1)]), []);
    }

    #[test]
    fn only_what_is_new_is_counted() {
        let mut round = Round::new(None, Clock::system());
        let (activity, ..) = round.advance(wrote(&[(1, "a", 5)]));
        assert_eq!(activity.namespaces[0].1.bytes_written, 5 * 4096);
        let (activity, ..) = round.advance(wrote(&[(1, "a", 7)]));
        assert_eq!(activity.namespaces[0].1.write_commands, 2);
        assert!(round.advance(wrote(&[(1, "a", 7)])).0.namespaces.is_empty());
    }
}
