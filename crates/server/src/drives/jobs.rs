//! Background jobs of a drive: a self-test reads, a format erases, sanitizing
//! fills everything. A step at a time, between the requests of hosts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ebof_backend::{Buffer, Class, Operation};
use ebof_drive::sanitize::{Method, Work};
use ebof_drive::self_test::{Failure, SelfTestStep};
use ebof_drive::{MediumStatus, Origin, Request, VolumeId};
use ebof_medium::{Job, Medium, Progress, Purge, Store};
use ebof_nvme::log::Lid;
use ebof_nvme::{Nsid, Status};

use super::actor::DriveActor;

/// Bytes that a step reads or writes, about.
const STEP_BYTES: u64 = 1 << 20;
/// Extents that a step zeroes.
const ZERO_EXTENTS: u32 = 64;
/// How long something is waited for that others have to do, in milliseconds.
const WAIT_MS: u64 = 2;
/// How often the progress of a self-test is written down.
const KEEP: Duration = Duration::from_secs(5);
/// How often hosts are shown how far a format is, in percent.
const SHOWN_PERCENT: u8 = 10;

/// Which jobs there are: one of each kind at most.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    testing: AtomicBool,
    sanitizing: AtomicBool,
    removing: AtomicBool,
}

/// Whether the drive has to know what the medium is like, to decide the request.
pub(super) fn wants_facts(request: &Request) -> bool {
    match request {
        Request::SelfTest(..) => true,
        Request::Log(wish) => wish.lid == Lid::TELEMETRY_HOST,
        _ => false,
    }
}

impl Jobs {
    /// Sees to it that everything goes on that the drive remembers as under way. On the drive's
    /// thread.
    pub(super) fn start(&self, actor: &Arc<DriveActor>, store: &mut Store) {
        if store.is_read_only() {
            return;
        }
        let (testing, sanitizing) = {
            let drive = actor.drive();
            (drive.state().self_test.step().is_some(), drive.sanitize_work().is_some())
        };
        if testing && !self.testing.swap(true, Ordering::Relaxed) {
            let kept = actor.clock.now();
            let actor = Arc::downgrade(actor);
            store.start(Box::new(SelfTest { actor, reading: None, is_busy: false, kept }));
        }
        if sanitizing && !self.sanitizing.swap(true, Ordering::Relaxed) {
            store.start(Box::new(Sanitize { actor: Arc::downgrade(actor), next: 0, purge: Purge::default() }));
        }
        if !actor.leftovers.is_empty() && !self.removing.swap(true, Ordering::Relaxed) {
            store.start(Box::new(Remove { actor: Arc::downgrade(actor), began: false }));
        }
    }
}

/// Erases what was given back, of these namespaces among others, and what journals and checkpoints
/// have of it; then calls `then`. On the drive's thread.
pub(super) fn erase(
    actor: &Arc<DriveActor>,
    store: &mut Store,
    namespaces: Vec<VolumeId>,
    then: Box<dyn FnOnce() + Send>,
) {
    let all = store.unclean().max(1);
    let actor = Arc::downgrade(actor);
    let then = Some(then);
    let purge = Purge::default();
    let erase = Erase { actor, namespaces, then, all, shown: 100, is_clean: false, purge };
    store.start(Box::new(erase));
}

/// What the medium is like, for the drive to know.
pub(super) fn medium_status(medium: &Medium, store: &Store) -> MediumStatus {
    let extents = |volume: VolumeId| {
        // One that is removed at this moment has none.
        let extents = medium.thin(volume).map_or(0, |thin| thin.allocated_extents());
        (volume, u64::from(extents))
    };
    let allocated: BTreeMap<_, _> = medium.volumes().into_iter().map(extents).collect();
    MediumStatus { used_bytes: medium.capacity().used_bytes, allocated, journal: format!("{store:?}") }
}

/// The self-test of the drive.
struct SelfTest {
    actor: Weak<DriveActor>,
    /// The extent that is being read.
    reading: Option<Reading>,
    /// Hosts write some of it.
    is_busy: bool,
    kept: Instant,
}

/// An extent that is being read, and what is known of those before it.
#[derive(Clone, Copy)]
struct Reading {
    volume: VolumeId,
    /// Its place among the allocated extents of the namespace.
    ordinal: u64,
    /// What of it is left to be read.
    next: u64,
    end: u64,
}

impl Job for SelfTest {
    fn step(&mut self, store: &mut Store) -> Progress {
        // The drive is being closed: its jobs outlive it for a moment.
        let Some(actor) = self.actor.upgrade() else { return Progress::Done };
        let Some(step) = actor.drive().state().self_test.step() else {
            actor.jobs.testing.store(false, Ordering::Relaxed);
            return Progress::Done;
        };
        let result = match step {
            SelfTestStep::Health => {
                self.reading = None;
                check(actor.drive().condition().warnings(&ebof_drive::health::Thresholds::DEFAULT) == 0)
            }
            SelfTestStep::Metadata => store.check().map_err(|error| {
                tracing::error!(drive = actor.name(), "the self-test cannot read the drive's own data: {error}");
                Failure::Segment
            }),
            SelfTestStep::Extent { nsid, ordinal } => match self.read(&actor, store, nsid, ordinal) {
                Some(result) => result,
                None if self.is_busy => return Progress::Later(1),
                None => return Progress::Again,
            },
            SelfTestStep::Life => {
                let drive = actor.drive();
                check(drive.state().health.percentage_used(&drive.endurance()) < u8::MAX)
            }
        };
        if let Err(failure) = result {
            tracing::warn!(drive = actor.name(), %failure, "the self-test found something");
        }
        let (change, ended) = actor.drive().self_test_stepped(result);
        if !ended && actor.clock.now().saturating_duration_since(self.kept) < KEEP {
            actor.drive().apply(change);
            return Progress::Again;
        }
        self.kept = actor.clock.now();
        match actor.state.commit(store, vec![change]) {
            Ok(()) => Progress::Again,
            Err(error) => {
                tracing::error!(drive = actor.name(), "the self-test cannot be written down: {error}");
                Progress::Later(1000)
            }
        }
    }
}

impl SelfTest {
    /// Reads a part of an extent; the result when there is one.
    fn read(&mut self, actor: &DriveActor, store: &mut Store, nsid: Nsid, ordinal: u64) -> Option<Result<(), Failure>> {
        let volume = actor.drive().state().namespaces.get(&nsid.0).map(|namespace| namespace.volume);
        // Deleting the namespace has ended the test, or it is about the next one.
        let Some((volume, thin)) = volume.and_then(|volume| Some((volume, store.thin(volume)?))) else {
            return Some(Ok(()));
        };
        let mut reading = match self.reading {
            Some(reading) if reading.volume == volume && reading.ordinal == ordinal => reading,
            before => {
                let known = before.filter(|before| before.volume == volume && before.ordinal < ordinal);
                match find(&thin, known, ordinal) {
                    Some((next, end)) => Reading { volume, ordinal, next, end },
                    // There are fewer by now.
                    None => return Some(Ok(())),
                }
            }
        };
        let device = actor.medium().device(volume).expect("it was found above, and only this thread removes it");
        let block = u64::from(device.geometry().logical_block_bytes);
        let first = reading.next / block;
        let last = reading.end.min(reading.next + STEP_BYTES) / block;
        // What a host has marked as not to be read is not the drive's fault.
        let bad = thin.bad_ranges(&(first..last), 1).into_iter().next();
        let (skip_to, last) = match bad {
            Some(bad) if bad.start <= first => (Some(bad.end.min(last)), first),
            Some(bad) => (None, bad.start),
            None => (None, last),
        };
        let from = std::mem::replace(&mut reading.next, skip_to.unwrap_or(last) * block);
        let result = match skip_to {
            Some(_) => Some(Ok(())),
            None => read(store, volume, first * block..last * block),
        };
        self.is_busy = result.is_none();
        let Some(result) = result else {
            // Hosts write some of it: the same again with the next step.
            self.reading = Some(Reading { next: from, ..reading });
            return None;
        };
        self.reading = Some(reading);
        match result {
            Err(status) => Some(Err(Failure::Data { nsid, lba: first, status })),
            Ok(()) if reading.next >= reading.end => Some(Ok(())),
            Ok(()) => None,
        }
    }
}

/// Reads bytes of a namespace; `None` while hosts write some of them.
fn read(store: &mut Store, volume: VolumeId, bytes: std::ops::Range<u64>) -> Option<Result<(), Status>> {
    let len = usize::try_from(bytes.end - bytes.start).expect("at most 1 MiB");
    if len == 0 {
        return Some(Ok(()));
    }
    let operation = Operation::Read { offset: bytes.start, len, data: Buffer::zeroed(len).into() };
    match store.execute(volume, operation).result.map_err(|error| error.class()) {
        // Deleting the namespace has ended the test.
        Ok(()) | Err(Class::Gone) => Some(Ok(())),
        Err(Class::Busy) => None,
        Err(Class::MediumRead) => Some(Err(Status::UNRECOVERED_READ_ERROR)),
        Err(_) => Some(Err(Status::INTERNAL_ERROR)),
    }
}

/// Where the allocated extent number `ordinal` begins and ends; `known` is one before it.
fn find(thin: &ebof_medium::Thin, known: Option<Reading>, ordinal: u64) -> Option<(u64, u64)> {
    const RUNS: usize = 256;
    let span_bytes = thin.span_bytes();
    let (mut at, mut left) = known.map_or((0, ordinal), |known| (known.end, ordinal - known.ordinal - 1));
    loop {
        let runs = thin.allocated(at..u64::MAX, RUNS);
        at = runs.last()?.range.end;
        for run in runs.into_iter().filter(|run| run.allocated) {
            let extents = (run.range.end - run.range.start).div_ceil(span_bytes);
            if left < extents {
                let start = run.range.start + left * span_bytes;
                return Some((start, run.range.end.min(start + span_bytes)));
            }
            left -= extents;
        }
    }
}

fn check(good: bool) -> Result<(), Failure> {
    if good { Ok(()) } else { Err(Failure::Segment) }
}

/// Removes from the medium what could not be removed when its namespace went.
struct Remove {
    actor: Weak<DriveActor>,
    /// The first attempt was made by the request.
    began: bool,
}

impl Job for Remove {
    fn step(&mut self, store: &mut Store) -> Progress {
        let Some(actor) = self.actor.upgrade() else { return Progress::Done };
        if !std::mem::replace(&mut self.began, true) || !actor.leftovers.remove(store, &actor.log) {
            return Progress::Later(1000);
        }
        actor.jobs.removing.store(false, Ordering::Relaxed);
        Progress::Done
    }
}

/// Erases what was given back.
struct Erase {
    actor: Weak<DriveActor>,
    namespaces: Vec<VolumeId>,
    then: Option<Box<dyn FnOnce() + Send>>,
    /// Extents there were at first.
    all: u32,
    /// Percent that are left, as last shown to hosts.
    shown: u8,
    /// The extents are erased.
    is_clean: bool,
    /// How far journals and checkpoints are.
    purge: Purge,
}

impl Job for Erase {
    fn step(&mut self, store: &mut Store) -> Progress {
        let Some(actor) = self.actor.upgrade() else { return Progress::Done };
        // Sanitizing does the same, or overwrites everything first; and what could not be removed
        // yet would not be erased.
        if actor.drive().sanitize_work().is_some() || !actor.leftovers.is_empty() {
            return Progress::Later(100);
        }
        match self.part(&actor, store) {
            Ok(true) => {}
            Ok(false) if store.is_reclaimed() => return Progress::Again,
            Ok(false) => return Progress::Later(WAIT_MS),
            Err(error) => {
                // The namespaces are empty; the extents are not used before they are zeroed.
                tracing::error!(drive = actor.name(), "what was formatted cannot be erased now: {error}");
                return Progress::Later(1000);
            }
        }
        actor.drive().set_erasing(&self.namespaces, None);
        actor.target.show(None, &[], &[]);
        if let Some(then) = self.then.take() {
            then();
        }
        Progress::Done
    }
}

impl Erase {
    /// Does a part; `true` when all is done.
    fn part(&mut self, actor: &DriveActor, store: &mut Store) -> Result<bool, ebof_medium::Error> {
        if !self.is_clean {
            self.is_clean = store.clean()?;
            let left = u64::from(store.unclean()) * 100 / u64::from(self.all);
            let left = u8::try_from(left.clamp(1, 100)).unwrap_or(100);
            if left + SHOWN_PERCENT <= self.shown {
                self.shown = left;
                actor.drive().set_erasing(&self.namespaces, Some(left));
                actor.target.show(None, &[], &[]);
            }
            return Ok(false);
        }
        store.purge(&mut self.purge)
    }
}

/// Sanitizes the drive. No namespace has anything in it since that was begun, and commands are
/// refused.
struct Sanitize {
    actor: Weak<DriveActor>,
    /// Extents that are done in this pass.
    next: u32,
    /// How far journals and checkpoints are.
    purge: Purge,
}

impl Job for Sanitize {
    fn step(&mut self, store: &mut Store) -> Progress {
        let Some(actor) = self.actor.upgrade() else { return Progress::Done };
        let Some(work) = actor.drive().sanitize_work() else {
            store.hold_unclean(false);
            actor.jobs.sanitizing.store(false, Ordering::Relaxed);
            return Progress::Done;
        };
        // What a file system has taken back cannot be overwritten any more.
        store.hold_unclean(matches!(work.method, Method::Overwrite(_)));
        if !actor.leftovers.remove(store, &actor.log) {
            tracing::error!(drive = actor.name(), "the drive cannot be sanitized: what was deleted cannot be removed");
            return Self::end(&actor, store, false);
        }
        // What still moves belongs to commands from before.
        if !store.is_reclaimed() {
            return Progress::Later(WAIT_MS);
        }
        match self.part(&actor, store, work) {
            Ok(false) => Progress::Again,
            Ok(true) => {
                self.next = 0;
                self.purge = Purge::default();
                Self::end_pass(&actor, store)
            }
            Err(error) => {
                tracing::error!(drive = actor.name(), "the drive cannot be sanitized: {error}");
                Self::end(&actor, store, false)
            }
        }
    }
}

impl Sanitize {
    fn end_pass(actor: &DriveActor, store: &mut Store) -> Progress {
        let change = actor.drive().sanitize_pass_done();
        match change {
            None => Self::end(actor, store, true),
            Some(change) => match actor.state.commit(store, vec![change]) {
                Ok(()) => {
                    actor.drive().set_sanitized_bytes(0);
                    Progress::Again
                }
                Err(_) => Self::end(actor, store, false),
            },
        }
    }

    fn end(actor: &DriveActor, store: &mut Store, success: bool) -> Progress {
        // What was written before is counted before: behind the end, it would be taken for new
        // data.
        actor.collect(store, false);
        let ended = actor.drive().sanitize_ended(success, &Origin::box_(), &actor.state.input());
        if let Some(ended) = ended {
            if let Err(error) = actor.state.commit(store, ended.changes) {
                tracing::error!(drive = actor.name(), "the end of sanitizing cannot be written down: {error}");
                return Progress::Later(1000);
            }
            tracing::info!(drive = actor.name(), success, "sanitizing is over");
            actor.target.show(None, &[], &[]);
            actor.target.send_event(ended.event.0, ended.event.1);
        }
        store.hold_unclean(false);
        actor.jobs.sanitizing.store(false, Ordering::Relaxed);
        Progress::Done
    }

    /// Does a part of a pass; `true` at its end.
    fn part(&mut self, actor: &DriveActor, store: &mut Store, work: Work) -> Result<bool, ebof_medium::Error> {
        let extent_bytes = actor.medium().capacity().extent_bytes;
        if self.next == store.extents() {
            // Journals and checkpoints have what the extents had: checksums of it, and metadata.
            return Ok(work.pass + 1 < work.passes || store.purge(&mut self.purge)?);
        }
        if self.next == 0 && work.pass == 0 {
            warn_of_what_is_beyond_reach(actor, store, work.method);
        }
        let began = actor.clock.now();
        let first = self.next;
        let count = match work.method {
            Method::NewKeys => {
                store.forget_keys()?;
                store.extents()
            }
            Method::Erase => {
                store.zero_free(self.next, ZERO_EXTENTS)?;
                ZERO_EXTENTS
            }
            Method::Overwrite(pattern) => {
                let count = u32::try_from(4 * STEP_BYTES / extent_bytes).unwrap_or(1).max(1);
                store.fill_free(self.next, count, pattern)?;
                count
            }
        };
        self.next = self.next.saturating_add(count).min(store.extents());
        if self.next == store.extents() {
            store.sync()?;
        }
        let micros = u64::try_from(actor.clock.now().saturating_duration_since(began).as_micros()).unwrap_or(u64::MAX);
        let mut drive = actor.drive();
        drive.set_sanitized_bytes(u64::from(self.next) * extent_bytes);
        drive.add_sanitize_speed(work.method, u64::from(self.next - first) * extent_bytes, micros);
        Ok(false)
    }
}

/// An overwrite reaches the blocks that the drive's file has now. Those that it had before are the
/// file system's.
fn warn_of_what_is_beyond_reach(actor: &DriveActor, store: &Store, method: Method) {
    let bytes = store.given_back_bytes();
    if matches!(method, Method::Overwrite(_)) && bytes > 0 {
        tracing::warn!(
            drive = actor.name(),
            device = actor.log.backing(),
            bytes,
            "sanitizing overwrites what the drive has: up to so many bytes were given back to what is below it when \
             namespaces were deleted or blocks deallocated, and what they held is beyond its reach"
        );
    }
}
