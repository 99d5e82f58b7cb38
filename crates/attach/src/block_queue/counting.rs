//! What the threads of a daemon count: commands of each queue, namespace and path.
//!
//! Owns the counters and the sums that clients get of them. A thread counts into counters of its
//! own, which nobody else writes ([`ebof_manage::history::tally`]); the lock is taken for the first
//! command of a namespace or over a path, and by readers. It knows no NVMe and no socket.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ebof_manage::history::ObjectCounters;
use ebof_manage::history::tally::{Counter, KindTally};

use crate::block_queue::Op;

/// Namespaces that one thread counts separately; what is beyond is counted together, as namespace
/// 0.
const NAMESPACES_MAX: usize = 64;

/// Paths that one thread counts separately; of more, the eldest are forgotten.
const PATHS_MAX: usize = ebof_initiator::PATHS_MAX;

/// The counters of one thread and one namespace.
#[derive(Debug, Default)]
struct Tally {
    /// Commands that were begun. Those that were completed are in `kinds`.
    begun: Counter,
    kinds: Kinds,
}

/// The counters of one thread, as others see them.
#[derive(Debug)]
pub(crate) struct QueueTally {
    /// The queue's identifier: of the one for writes, if reads have one of their own.
    id: u16,
    namespaces: Mutex<Vec<(u32, Arc<Tally>)>>,
    paths: Mutex<Vec<(u32, Arc<Kinds>)>>,
}

/// Counters of the kinds of commands.
type Kinds = [KindTally; 3];

/// The counters of one thread, for that thread.
#[derive(Debug)]
pub(crate) struct Counting {
    seen: Arc<QueueTally>,
    namespaces: Vec<(u32, Arc<Tally>)>,
    paths: Vec<(u32, Arc<Kinds>)>,
}

/// How a command has ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    /// Bytes of data transferred.
    pub(crate) bytes: u64,
    pub(crate) failed: bool,
    /// From the front to the completion.
    pub(crate) latency_us: u64,
}

/// What was counted, added up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sum {
    /// What was completed.
    pub(crate) counters: ObjectCounters,
    /// Commands that have begun and not ended.
    pub(crate) in_flight: u64,
}

/// All that a daemon has counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    /// By the queue's identifier.
    pub(crate) queues: BTreeMap<u16, Sum>,
    /// By namespace; 0 is of those that are not counted separately.
    pub(crate) namespaces: BTreeMap<u32, Sum>,
    /// By path: what was completed over it.
    pub(crate) paths: BTreeMap<u32, ObjectCounters>,
}

impl Counting {
    /// Of a thread whose queue has this identifier.
    pub(crate) fn new(id: u16) -> Self {
        let seen = Arc::new(QueueTally { id, namespaces: Mutex::default(), paths: Mutex::default() });
        Self { seen, namespaces: Vec::new(), paths: Vec::new() }
    }

    /// The same counters, for those who read them.
    pub(crate) fn seen(&self) -> Arc<QueueTally> {
        Arc::clone(&self.seen)
    }

    /// Counts the begin of a command. Returns where its namespace is counted.
    #[inline]
    pub(crate) fn begin(&mut self, nsid: u32) -> usize {
        // Most daemons have one namespace.
        let at = match self.namespaces.first() {
            Some((known, _)) if *known == nsid => 0,
            _ => self.find(nsid),
        };
        self.namespaces[at].1.begun.add(1);
        at
    }

    #[inline(never)]
    fn find(&mut self, nsid: u32) -> usize {
        let known = |nsid: u32| self.namespaces.iter().position(|(known, _)| *known == nsid);
        if let Some(at) = known(nsid) {
            return at;
        }
        if self.namespaces.len() == NAMESPACES_MAX {
            return NAMESPACES_MAX - 1;
        }
        // The last one is of all others.
        let nsid = if self.namespaces.len() + 1 < NAMESPACES_MAX { nsid } else { 0 };
        let tally = Arc::new(Tally::default());
        self.seen.namespaces.lock().unwrap_or_else(PoisonError::into_inner).push((nsid, Arc::clone(&tally)));
        self.namespaces.push((nsid, tally));
        self.namespaces.len() - 1
    }

    /// Counts the end of a command that [`Self::begin`] has given this place, and that `path` has
    /// answered, if one has.
    #[inline]
    pub(crate) fn end(&mut self, at: usize, path: Option<u32>, op: Op, ended: Ended) {
        let kind = match op {
            Op::Read => 0,
            Op::Write { .. } | Op::WriteZeroes { .. } => 1,
            Op::Flush | Op::Deallocate => 2,
        };
        let Ended { bytes, failed, latency_us } = ended;
        if let Some((_, tally)) = self.namespaces.get(at) {
            tally.kinds[kind].count(bytes, failed, latency_us);
        }
        if let Some(path) = path {
            // Most daemons have one path.
            let at = match self.paths.first() {
                Some((known, _)) if *known == path => 0,
                _ => self.find_path(path),
            };
            self.paths[at].1[kind].count(bytes, failed, latency_us);
        }
    }

    #[inline(never)]
    fn find_path(&mut self, path: u32) -> usize {
        if let Some(at) = self.paths.iter().position(|(known, _)| *known == path) {
            return at;
        }
        if self.paths.len() == PATHS_MAX {
            // No number is given twice, so that the smallest is of a path that has gone.
            let eldest = self.paths.iter().map(|(known, _)| *known).min();
            self.paths.retain(|(known, _)| Some(*known) != eldest);
        }
        self.paths.push((path, Arc::default()));
        self.seen.paths.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&self.paths);
        self.paths.len() - 1
    }
}

impl Sum {
    fn add(&mut self, tally: &Tally) {
        for (sum, kind) in self.counters.kinds.iter_mut().zip(&tally.kinds) {
            kind.add_to(sum);
        }
        self.in_flight += tally.in_flight();
    }
}

/// How often it is looked again because commands have ended meanwhile.
const LOOKS_MAX: usize = 1000;

impl Tally {
    /// Commands that have begun and not ended, at one moment: what ends between the reading of two
    /// counters would be counted, too.
    fn in_flight(&self) -> u64 {
        let ended = || self.kinds.iter().map(|kind| kind.commands.value()).fold(0, u64::wrapping_add);
        let mut before = ended();
        for _ in 0..LOOKS_MAX {
            let begun = self.begun.value();
            let after = ended();
            if after == before {
                return begun.saturating_sub(before);
            }
            before = after;
        }
        // Rather too few: more than the queue has room for are never shown.
        let begun = self.begun.value();
        begun.saturating_sub(ended())
    }
}

/// Adds up what all threads have counted.
pub(crate) fn sums(queues: &[Arc<QueueTally>]) -> Sums {
    let mut sums = Sums::default();
    for queue in queues {
        let namespaces = queue.namespaces.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let of_queue = sums.queues.entry(queue.id).or_default();
        for (nsid, tally) in &namespaces {
            of_queue.add(tally);
            sums.namespaces.entry(*nsid).or_default().add(tally);
        }
        let paths = queue.paths.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (path, kinds) in &paths {
            let sum = sums.paths.entry(*path).or_default();
            sum.kinds.iter_mut().zip(kinds.iter()).for_each(|(sum, kind)| kind.add_to(sum));
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ended(bytes: u64, failed: bool, latency_us: u64) -> Ended {
        Ended { bytes, failed, latency_us }
    }

    #[test]
    fn commands_are_counted_by_queue_and_namespace() {
        let (mut one, mut two) = (Counting::new(1), Counting::new(2));
        let queues = [one.seen(), two.seen()];
        let first = one.begin(1);
        let second = one.begin(7);
        let other = two.begin(7);
        assert_eq!(sums(&queues).queues[&1].in_flight, 2);
        one.end(first, Some(0), Op::Read, ended(4096, false, 80));
        one.end(second, Some(0), Op::Flush, ended(0, true, 1000));
        two.end(other, Some(3), Op::Write { fua: false }, ended(8192, false, 90));
        two.begin(7);
        let sums = sums(&queues);
        let commands = |sum: &Sum| sum.counters.kinds.each_ref().map(|kind| kind.commands);
        assert_eq!((commands(&sums.queues[&1]), sums.queues[&1].in_flight), ([1, 0, 1], 0));
        assert_eq!((commands(&sums.queues[&2]), sums.queues[&2].in_flight), ([0, 1, 0], 1));
        assert_eq!((commands(&sums.namespaces[&7]), sums.namespaces[&7].in_flight), ([0, 1, 1], 1));
        let of_one = &sums.namespaces[&1].counters.kinds[0];
        assert_eq!((of_one.bytes, of_one.errors, of_one.latency.count()), (4096, 0, 1));
        assert_eq!(sums.namespaces[&7].counters.kinds[2].errors, 1);
        let by_path: Vec<_> =
            sums.paths.iter().map(|(&path, sum)| (path, sum.kinds.each_ref().map(|kind| kind.bytes))).collect();
        assert_eq!(by_path, [(0, [4096, 0, 0]), (3, [0, 8192, 0])]);
    }

    #[test]
    fn paths_that_come_and_go_are_forgotten() {
        let mut counting = Counting::new(1);
        for path in (0..200).chain([199]) {
            let at = counting.begin(1);
            counting.end(at, Some(path), Op::Read, ended(512, false, 1));
        }
        let sums = sums(&[counting.seen()]);
        assert_eq!((sums.paths.len(), sums.paths[&199].kinds[0].commands), (PATHS_MAX, 2));
        assert_eq!(sums.namespaces[&1].counters.kinds[0].commands, 201);
    }

    #[test]
    fn no_more_are_in_flight_than_there_ever_are() {
        let mut counting = Counting::new(1);
        let queues = [counting.seen()];
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let at = counting.begin(1);
                    counting.end(at, None, Op::Read, ended(4096, false, 80));
                }
            });
            let most = (0..20_000).map(|_| sums(&queues).queues[&1].in_flight).max();
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(most <= Some(1), "{most:?}");
        });
    }

    #[test]
    fn many_namespaces_are_counted_together() {
        let mut counting = Counting::new(1);
        for nsid in 1..=200 {
            let at = counting.begin(nsid);
            counting.end(at, None, Op::Read, ended(512, false, 1));
        }
        let sums = sums(&[counting.seen()]);
        assert_eq!(sums.namespaces.len(), NAMESPACES_MAX);
        assert_eq!(sums.namespaces[&0].counters.kinds[0].commands, 200 - 63);
        assert_eq!(sums.queues[&1].counters.kinds[0].bytes, 200 * 512);
    }
}
