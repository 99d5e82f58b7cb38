//! A disk that keeps what it is given in an image, takes its time, and forgets with the power what
//! was not flushed. It completes requests when its owner says so ([`Disk::advance`]), in the order
//! of times that its seed gives them.

mod change;
mod fault;
pub mod image;
mod late;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ebof_backend::{Action, Class, Device, Error, Geometry, Io, IoFactory, Operation, Remote, Request, Submitted};
use ebof_clock::Clock;

use crate::model::LBA_BITS;
use crate::random::Random;

use change::{UnflushedChange, What, lose};
use fault::refused;
pub use fault::{DiskFault, FaultKind};
use image::Image;
use late::words_of_blocks;

/// What kind of disk it is.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Its size.
    pub capacity_bytes: u64,
    /// The unit in which it is addressed, and which it never tears: 512 or 4096.
    pub sector_bytes: u32,
    /// How long a request takes, most of the time.
    pub quick: Duration,
    /// How long some of them take, in percent of the requests.
    pub slow: (u64, Duration),
    /// Where the blocks of namespaces begin.
    pub data: u64,
}

/// What becomes of the writes that were not flushed when the power goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of them.
    Everything,
    /// Those behind some point; the one at it is torn.
    Tail,
    /// Any of them, as a whole.
    Some,
    /// Any sector of any of them.
    Sectors,
}

/// How a request became known to the outside.
struct Pending {
    due: Instant,
    number: u64,
    request: Request,
    remote: Remote,
    /// Of a flush: the last change that had been completed when it came.
    covers: u64,
    /// Whoever has the disk open.
    holder: u32,
    /// It takes no longer, whatever else the disk does.
    at_latest: Option<Instant>,
}

struct State {
    random: Random,
    /// With everything that was completed.
    current: Image,
    /// What a power loss leaves at least.
    durable: Image,
    changes: Vec<UnflushedChange>,
    pending: Vec<Pending>,
    /// Requests and changes so far.
    next: u64,
    completed: u64,
    faults: Vec<DiskFault>,
    lag: Lag,
    /// First sectors of the ranges that cannot be read until they are written.
    unreadable: BTreeSet<u64>,
    /// Until the power goes, in completions.
    power: Option<u64>,
    is_off: bool,
    /// What was being written when the power went.
    interrupted: Option<UnflushedChange>,
    /// Nothing is completed before then.
    stands_until: Option<Instant>,
    /// Words that must not come any more, and one that did.
    barred: BTreeSet<u64>,
    late: Option<u64>,
    /// The longest time of a request, if there is one.
    longest: Option<Duration>,
    /// What writes have replaced by what, first words of blocks; `None` if nobody asks.
    replaced: Option<Vec<(u64, u64)>>,
    counts: BTreeMap<&'static str, u64>,
}

/// Requests that take longer than others.
#[derive(Clone, Copy, Debug, Default)]
struct Lag {
    /// So many of those that come, each of them by chance.
    count: u32,
    /// They are writes.
    writes: bool,
    /// How much longer.
    time: Duration,
}

/// A disk with a volatile cache, which a power cut loses in part or as a whole.
pub struct Disk {
    profile: Profile,
    clock: Clock,
    state: Mutex<State>,
    /// A small file beside it, which every crash leaves whole.
    pub(crate) note: Mutex<Option<String>>,
}

/// Bytes of a block whose replacements are noted.
const BLOCK_BYTES: usize = 4096;

/// So many changes may be unflushed; then the disk writes the older ones down by itself.
const CHANGES_MAX: usize = 4096;

impl Disk {
    /// A disk that holds `image`.
    #[must_use]
    pub fn new(profile: Profile, image: Image, clock: Clock, seed: u64) -> Arc<Self> {
        let state = State {
            random: Random::new(seed),
            current: image.clone(),
            durable: image,
            changes: Vec::new(),
            pending: Vec::new(),
            next: 1,
            completed: 0,
            faults: Vec::new(),
            lag: Lag::default(),
            unreadable: BTreeSet::new(),
            power: None,
            is_off: false,
            interrupted: None,
            stands_until: None,
            barred: BTreeSet::new(),
            late: None,
            longest: None,
            replaced: None,
            counts: BTreeMap::new(),
        };
        Arc::new(Self { profile, clock, state: Mutex::new(state), note: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the threads of a drive have their I/O from: they wait for the disk, and for nothing
    /// else. So many of them can be had, where there is a limit.
    #[must_use]
    pub fn io_factory(self: &Arc<Self>, ios_max: Option<usize>) -> IoFactory {
        let disk = Arc::clone(self);
        let left = AtomicUsize::new(ios_max.unwrap_or(usize::MAX));
        IoFactory::new(move |entries| {
            if left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
                let source = io::Error::from(io::ErrorKind::OutOfMemory);
                return Err(Error::Engine { what: "have another Io", hint: "", source });
            }
            let disk = Arc::clone(&disk);
            Ok(Io::external(entries, Box::new(move || disk.advance())))
        })
    }

    /// When the next request is over; `None` where there is none.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let state = self.state();
        state.pending.iter().map(|pending| state.due(pending)).min()
    }

    /// Completes what is due now; whether that was anything.
    pub fn complete_due(&self) -> bool {
        let mut any = false;
        while self.due().is_some_and(|due| due <= self.clock.now()) && self.complete_next() {
            any = true;
        }
        any
    }

    /// Lets time pass until the next request is over, and completes it; whether there was one. For
    /// those who wait for the disk and do nothing else.
    pub fn advance(&self) -> bool {
        let Some(due) = self.due() else { return false };
        if due > self.clock.now() {
            self.clock.advance_to(due);
        }
        self.complete_next()
    }

    fn complete_next(&self) -> bool {
        let mut state = self.state();
        let due = |at: usize| (state.due(&state.pending[at]), state.pending[at].due, state.pending[at].number);
        let next = (0..state.pending.len()).min_by_key(|&at| due(at));
        let Some(next) = next else { return false };
        let pending = state.pending.swap_remove(next);
        state.completed += 1;
        if let Some(left) = &mut state.power {
            *left = left.saturating_sub(1);
            if *left == 0 {
                state.power = None;
                state.go_off(&pending.request);
            }
        }
        let Pending { mut request, remote, covers, .. } = pending;
        let result = state.run(&mut request.operation, covers, &self.profile);
        // Whoever is notified may submit more.
        drop(state);
        remote.deliver(request.complete(result));
        true
    }

    /// Something goes wrong from now on.
    pub fn fail(&self, fault: DiskFault) {
        self.state().faults.push(fault);
    }

    /// Nothing goes wrong any more, save what cannot be read.
    pub fn heal(&self) {
        let mut state = self.state();
        state.faults.clear();
        state.lag.count = 0;
        state.stands_until = None;
    }

    /// Whether something is to go wrong still.
    #[must_use]
    pub fn is_faulty(&self) -> bool {
        let state = self.state();
        !state.faults.is_empty() || state.stands_until.is_some_and(|until| until > self.clock.now())
    }

    /// Nothing is completed for some time.
    pub fn stand(&self, time: Duration) {
        self.state().stands_until = Some(self.clock.now() + time);
    }

    /// No request takes longer than this, whatever goes wrong.
    pub(crate) fn set_longest(&self, longest: Duration) {
        self.state().longest = Some(longest);
    }

    /// Whether requests are under way of one who had it open.
    pub(crate) fn is_held_by(&self, holder: u32) -> bool {
        self.state().pending.iter().any(|pending| pending.holder == holder)
    }

    /// What was replaced by what in blocks since the last call: the first words of both. From the
    /// first call on.
    pub(crate) fn take_replaced(&self) -> Vec<(u64, u64)> {
        self.state().replaced.replace(Vec::new()).unwrap_or_default()
    }

    /// Some of the next requests to blocks of namespaces take so long; others overtake them.
    pub fn lag(&self, count: u32, writes: bool, time: Duration) {
        self.state().lag = Lag { count, writes, time };
    }

    /// The power goes when so many more requests are completed, at that one.
    pub fn cut_after(&self, completions: u64) {
        self.state().power = Some(completions.max(1));
    }

    /// The power goes now.
    pub fn cut(&self) {
        let mut state = self.state();
        state.power = None;
        state.is_off = true;
    }

    /// Whether the power is gone: requests fail, and nothing is done any more.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.state().is_off
    }

    /// These bytes cannot be read until they are written.
    pub fn make_unreadable(&self, offset: u64) {
        let sector = u64::from(self.profile.sector_bytes);
        self.state().unreadable.insert(offset / sector * sector);
    }

    /// Changes bytes behind everybody's back.
    pub fn damage(&self, offset: u64, len: usize) {
        let mut state = self.state();
        let mut bytes = vec![0; len];
        state.current.read(offset, &mut bytes);
        bytes.iter_mut().for_each(|byte| *byte ^= 0x5A);
        state.current.write(offset, &bytes);
        state.durable.write(offset, &bytes);
    }

    /// Reads what is there, without time.
    pub fn peek(&self, offset: u64, into: &mut [u8]) {
        self.state().current.read(offset, into);
    }

    /// Requests that were completed.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.state().completed
    }

    /// What `of` says of the words of the sectors of blocks in writes that are under way.
    pub fn writes_under_way<T: Ord>(&self, of: impl Fn(u64) -> Option<T>) -> BTreeSet<T> {
        let state = self.state();
        let operations = state.pending.iter().map(|pending| &pending.request.operation);
        operations.flat_map(|operation| words_of_blocks(operation, &self.profile)).filter_map(of).collect()
    }

    /// From now on nobody may write a sector of a block with one of these words, less the bits of
    /// [`LBA_BITS`].
    pub fn bar(&self, words: impl Iterator<Item = u64>) {
        self.state().barred.extend(words);
    }

    /// Such a word, when somebody has written it all the same.
    #[must_use]
    pub fn late(&self) -> Option<u64> {
        self.state().late
    }

    /// What is there.
    #[must_use]
    pub fn image(&self) -> Image {
        self.state().current.clone()
    }

    /// How many requests of which kind were completed, and what was done to them.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.state().counts.clone()
    }

    /// Ends a life: the process was killed, or the power has gone with some of what was not
    /// flushed. The next one begins, in which nothing goes wrong yet.
    pub fn end(&self, loss: Option<Loss>) {
        let mut state = self.state();
        let under_way = state.under_way();
        let State { changes, random, current, durable, .. } = &mut *state;
        match loss {
            // The system continues with what it was given.
            None => {
                for change in under_way.into_iter().filter(|_| random.percent(50)) {
                    change.apply(current);
                    changes.push(change);
                }
            }
            Some(loss) => {
                changes.extend(under_way);
                lose(loss, changes, durable, u64::from(self.profile.sector_bytes), random);
                changes.clear();
                *current = durable.clone();
            }
        }
        state.faults.clear();
        state.lag.count = 0;
        state.stands_until = None;
        state.power = None;
        state.is_off = false;
    }

    /// The disk is as it was.
    pub fn restore(&self, image: Image) {
        let mut state = self.state();
        state.changes.clear();
        state.current = image.clone();
        state.durable = image;
    }
}

impl State {
    /// When a request is over.
    fn due(&self, pending: &Pending) -> Instant {
        let due = self.stands_until.map_or(pending.due, |until| pending.due.max(until));
        pending.at_latest.map_or(due, |latest| due.min(latest))
    }

    /// The changes of requests that have not ended, in their order.
    fn under_way(&mut self) -> Vec<UnflushedChange> {
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_by_key(|pending| pending.number);
        let mut changes: Vec<UnflushedChange> = self.interrupted.take().into_iter().collect();
        for Pending { number, request, .. } in pending {
            match request.operation {
                Operation::Write { offset, len, data, .. } => {
                    changes.push(UnflushedChange::new(
                        number,
                        offset,
                        What::Bytes(data.gather(len).as_slice()[..len].to_vec()),
                    ));
                }
                Operation::WriteZeroes { offset, len, .. } => {
                    changes.push(UnflushedChange::new(number, offset, What::Zeros(len)));
                }
                Operation::Deallocate { ranges } => changes.extend(
                    ranges
                        .iter()
                        .map(|range| UnflushedChange::new(number, range.start, What::Zeros(range.end - range.start))),
                ),
                Operation::Read { .. } | Operation::Flush => {}
            }
        }
        changes
    }

    /// The power goes while this request is at work.
    fn go_off(&mut self, request: &Request) {
        self.is_off = true;
        if let Operation::Write { offset, len, data, .. } = &request.operation {
            let what = What::Bytes(data.gather(*len).as_slice()[..*len].to_vec());
            let number = self.number();
            self.interrupted = Some(UnflushedChange::new(number, *offset, what));
        }
    }

    /// Looks at a write that begins for what must not come any more.
    fn check_late_writes(&mut self, operation: &Operation, profile: &Profile) {
        if self.barred.is_empty() {
            return;
        }
        let Self { barred, late, .. } = self;
        let mut words = words_of_blocks(operation, profile).into_iter().map(|word| word & !LBA_BITS);
        *late = late.or_else(|| words.find(|word| barred.contains(word)));
    }

    /// How much longer than others the next request takes.
    fn lag(&mut self, operation: &Operation, data: u64) -> Duration {
        let is_meant = match operation {
            Operation::Write { offset, .. } => *offset >= data,
            Operation::Read { offset, .. } => *offset >= data && !self.lag.writes,
            Operation::WriteZeroes { .. } | Operation::Deallocate { .. } | Operation::Flush => false,
        };
        if self.lag.count == 0 || !is_meant || self.random.percent(30) {
            return Duration::ZERO;
        }
        self.lag.count -= 1;
        self.lag.time
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn run(&mut self, operation: &mut Operation, covers: u64, profile: &Profile) -> Result<(), Error> {
        let action = operation.action();
        if self.is_off {
            return Err(refused(action, Class::Gone, "the power is off"));
        }
        let fault = self.fault(action);
        if let Some(fault) = fault
            && !fault.done
        {
            *self.counts.entry("failed").or_default() += 1;
            return Err(fault.error(action));
        }
        *self.counts.entry(name(action)).or_default() += 1;
        match operation {
            Operation::Read { offset, len, data } => {
                let sector = u64::from(profile.sector_bytes);
                let end = *offset + *len as u64;
                if self.unreadable.range(offset.saturating_sub(sector - 1)..end).next().is_some() {
                    return Err(refused(action, Class::MediumRead, "a sector cannot be read"));
                }
                let mut bytes = vec![0; *len];
                self.current.read(*offset, &mut bytes);
                data.scatter(&bytes);
            }
            Operation::Write { offset, len, data, fua } => {
                let bytes = data.gather(*len).as_slice()[..*len].to_vec();
                self.change(*offset, What::Bytes(bytes), *fua, profile);
            }
            Operation::WriteZeroes { offset, len, fua, .. } => self.change(*offset, What::Zeros(*len), *fua, profile),
            Operation::Deallocate { ranges } => {
                for range in ranges.iter().filter(|range| range.end > range.start) {
                    self.change(range.start, What::Zeros(range.end - range.start), false, profile);
                }
            }
            Operation::Flush => self.flush(covers),
        }
        fault.map_or(Ok(()), |fault| Err(fault.error(action)))
    }

    /// The fault that this request meets.
    fn fault(&mut self, action: Action) -> Option<DiskFault> {
        let at = self.faults.iter().position(|fault| match fault.kind {
            FaultKind::Write => action != Action::Read && action != Action::Deallocate,
            FaultKind::Space => matches!(action, Action::Write | Action::WriteZeroes),
            FaultKind::Read => action == Action::Read,
        })?;
        let fault = &mut self.faults[at];
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        if !self.random.percent(fault.percent) {
            return None;
        }
        fault.count = fault.count.saturating_sub(1);
        let met = *fault;
        if met.count == 0 {
            self.faults.remove(at);
        }
        // What was not flushed and yet is on the medium would have to be distinguished from what
        // is.
        Some(DiskFault { done: met.done && action == Action::Write, ..met })
    }

    fn change(&mut self, offset: u64, what: What, certain: bool, profile: &Profile) {
        let number = self.number();
        let change = UnflushedChange { number, offset, what, certain };
        self.note_replaced(&change);
        change.apply(&mut self.current);
        let sector = u64::from(profile.sector_bytes);
        let (first, end) = (offset / sector * sector, offset + change.len());
        let mended: Vec<u64> = self.unreadable.range(first..end).copied().collect();
        self.unreadable.retain(|sector| !mended.contains(sector));
        self.changes.push(change);
        if self.changes.len() > CHANGES_MAX {
            let older: Vec<UnflushedChange> = self.changes.drain(..CHANGES_MAX / 2).collect();
            older.iter().for_each(|change| change.apply(&mut self.durable));
        }
    }

    fn note_replaced(&mut self, change: &UnflushedChange) {
        let (Some(replaced), What::Bytes(bytes)) = (&mut self.replaced, &change.what) else { return };
        for (at, block) in (change.offset..).step_by(BLOCK_BYTES).zip(bytes.chunks(BLOCK_BYTES)) {
            let mut before = [0; 8];
            self.current.read(at, &mut before);
            let after = block.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            replaced.push((u64::from_le_bytes(before), after));
        }
    }

    fn flush(&mut self, covers: u64) {
        let end = self.changes.iter().position(|change| change.number > covers).unwrap_or(self.changes.len());
        let covered: Vec<UnflushedChange> = self.changes.drain(..end).collect();
        covered.iter().for_each(|change| change.apply(&mut self.durable));
    }
}

impl Device for Disk {
    fn geometry(&self) -> Geometry {
        Geometry {
            capacity_bytes: self.profile.capacity_bytes,
            block_bytes: self.profile.sector_bytes,
            logical_block_bytes: self.profile.sector_bytes,
            read_only: false,
            deallocates: true,
            deallocate_granularity_bytes: 4096,
            writes_zeroes: true,
            volatile_cache: true,
        }
    }

    fn submit(&self, io: &mut Io, request: Request) -> Submitted {
        self.submit_of(0, io, request)
    }

    fn next_data(&self, from: u64) -> Option<u64> {
        self.state().current.next_data(from)
    }

    fn describe(&self) -> String {
        "a simulated disk".to_owned()
    }
}

impl Disk {
    /// As [`Device::submit`], of one of those who have it open.
    pub(crate) fn submit_of(&self, holder: u32, io: &mut Io, request: Request) -> Submitted {
        if let Err(error) = self.geometry().check(&request.operation) {
            return Submitted::Done(request.complete(Err(error)));
        }
        let Some(remote) = io.remote() else { return Submitted::Busy(request) };
        let mut state = self.state();
        state.check_late_writes(&request.operation, &self.profile);
        let number = state.number();
        let (percent, slow) = self.profile.slow;
        let most = if state.random.percent(percent) { slow } else { self.profile.quick };
        let nanos = state.random.below(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX)) + 1;
        let now = self.clock.now();
        let due = now + Duration::from_nanos(nanos) + state.lag(&request.operation, self.profile.data);
        let at_latest = state.longest.map(|longest| now + longest);
        state.pending.push(Pending { due, number, request, remote, covers: number, holder, at_latest });
        Submitted::Pending
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("profile", &self.profile).finish_non_exhaustive()
    }
}

fn name(action: Action) -> &'static str {
    match action {
        Action::Read => "reads",
        Action::Write => "writes",
        Action::Flush => "flushes",
        Action::WriteZeroes => "zeroes",
        Action::Deallocate => "deallocations",
    }
}

#[cfg(test)]
mod tests;
