//! One path: a controller of the subsystem, what it says of the namespaces, and what the user says
//! of it. Shared by the threads that send commands over it; each has a copy of what it needs for
//! each command, and takes a lock only after a change.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use super::access::PathAccess;
use super::policy::smoothed_us;
use crate::controller::Controller;
use crate::controller::namespace::Namespace;
use crate::error::state::State;
use crate::requeue::Outage;
use crate::shared::bindings::Binding;
use crate::shared::fence::Fence;
use crate::shared::opened::NamespaceHead;
use crate::wait::lock::lock;

/// A path of a subsystem, unique as long as the subsystem is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// The bindings of a path's open namespaces.
pub(super) type PathBindings = BTreeMap<NamespaceHead, Binding>;

#[derive(Debug)]
pub(super) struct Path {
    pub(super) id: PathId,
    pub(super) controller: Controller,
    /// The NUMA node of the network interface that leads to the target, where that can be told.
    pub(super) node: Option<u32>,
    is_enabled: AtomicBool,
    is_preferred: AtomicBool,
    /// It is about to be taken away.
    is_leaving: AtomicBool,
    /// Nobody uses it any more.
    is_removed: AtomicBool,
    access: Mutex<Arc<PathAccess>>,
    /// Keeps the namespaces open, so that their NSIDs are checked.
    handles: Mutex<BTreeMap<NamespaceHead, Namespace>>,
    bindings: Mutex<Arc<PathBindings>>,
    /// The controller's generation in which namespaces were last bound that others had open.
    bound_in: AtomicU64,
    tallies: Mutex<Vec<Weak<PathTally>>>,
    /// The calls that block, of all threads.
    calls: PathTally,
    /// How long a call takes, microseconds; 0: there was none.
    latency_us: AtomicU32,
    /// Commands that were lost on it, or refused by it, while there were other paths.
    failovers: AtomicU64,
    fences: Mutex<Fences>,
}

/// The fences at which commands of a path have waited.
#[derive(Debug, Default)]
struct Fences {
    /// Those that are not known to be over.
    present: Vec<Arc<Fence>>,
    count: u64,
    /// How long those stood that are over.
    stood: Duration,
}

impl Fences {
    /// Adds up those that are over.
    fn add_up(&mut self, now: Instant) {
        let over = self.present.extract_if(.., |fence| fence.is_over(now));
        self.stood = over.fold(self.stood, |sum, fence| sum.saturating_add(fence.stood(now)));
    }
}

/// What one thread has on a path; it stores, and others read. Calls that block count in one.
#[derive(Debug, Default)]
pub(super) struct PathTally {
    pub(super) in_flight: AtomicU32,
    pub(super) completed: AtomicU64,
    /// What the thread takes for its latency, microseconds; 0: it knows none.
    pub(super) latency_us: AtomicU32,
}

/// Why none of these paths takes commands to the namespace to which all of them lead. Those that
/// are switched off count if there are no others.
pub(super) fn outage<'p>(paths: impl Iterator<Item = &'p Path>) -> Outage {
    let (mut lost_last, mut otherwise) = (None, Outage::Dead);
    for path in paths {
        match path.controller.state() {
            State::Dead | State::Disconnected => {}
            _ if !path.is_enabled() => otherwise = Outage::Refused,
            State::Live => return Outage::Refused,
            State::Reconnecting => match path.controller.shared().info().fence.lost_at() {
                Some(at) => lost_last = lost_last.max(Some(at)),
                // It has come back just now.
                None => return Outage::Refused,
            },
        }
    }
    lost_last.map_or(otherwise, Outage::Lost)
}

impl Path {
    pub(super) fn new(id: PathId, controller: Controller) -> Self {
        Self {
            id,
            node: super::node::of_address(controller.peer().ip()),
            controller,
            is_enabled: AtomicBool::new(true),
            is_preferred: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
            access: Mutex::default(),
            handles: Mutex::default(),
            bindings: Mutex::default(),
            bound_in: AtomicU64::new(0),
            tallies: Mutex::default(),
            calls: PathTally::default(),
            latency_us: AtomicU32::new(0),
            failovers: AtomicU64::new(0),
            fences: Mutex::default(),
        }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Acquire)
    }

    pub(super) fn set_enabled(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Release);
    }

    pub(super) fn is_preferred(&self) -> bool {
        self.is_preferred.load(Ordering::Acquire)
    }

    pub(super) fn set_preferred(&self, is_preferred: bool) {
        self.is_preferred.store(is_preferred, Ordering::Release);
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    pub(super) fn set_leaving(&self) {
        self.is_leaving.store(true, Ordering::Release);
    }

    pub(super) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    /// Nobody uses it any more: its keeper ends.
    pub(super) fn set_removed(&self) {
        self.is_removed.store(true, Ordering::Release);
        self.controller.shared().bell.ring();
    }

    pub(super) fn access(&self) -> Arc<PathAccess> {
        Arc::clone(&lock(&self.access))
    }

    /// Sets what the controller says.
    pub(super) fn set_access(&self, access: PathAccess) {
        *lock(&self.access) = Arc::new(access);
    }

    pub(super) fn bindings(&self) -> Arc<PathBindings> {
        Arc::clone(&lock(&self.bindings))
    }

    /// Whether namespaces were not bound yet in this generation of the controller; they are now.
    pub(super) fn is_bound_late(&self, generation: u64) -> bool {
        self.bound_in.swap(generation, Ordering::AcqRel) != generation
    }

    /// The namespace is open over this path.
    pub(super) fn bind(&self, namespace: Namespace) {
        let (head, binding) = (namespace.head(), namespace.binding());
        lock(&self.handles).insert(head, namespace);
        Arc::make_mut(&mut lock(&self.bindings)).insert(head, binding);
    }

    /// The namespace is not used any more.
    pub(super) fn unbind(&self, head: NamespaceHead) {
        Arc::make_mut(&mut lock(&self.bindings)).remove(&head);
        // After the lock: it may be the last reference to the controller.
        let handle = lock(&self.handles).remove(&head);
        drop(handle);
    }

    /// The namespaces that are open over it.
    pub(super) fn handles(&self) -> Vec<Namespace> {
        lock(&self.handles).values().cloned().collect()
    }

    /// The namespace over this path, if it is open over it.
    pub(super) fn handle(&self, head: NamespaceHead) -> Option<Namespace> {
        lock(&self.handles).get(&head).cloned()
    }

    /// A call that blocks has begun.
    pub(super) fn begin_call(&self) {
        self.calls.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// A call that blocks is over. With `took_us` it counts for the latency.
    pub(super) fn end_call(&self, took_us: Option<u32>) {
        if let Some(took_us) = took_us {
            // What another thread has found meanwhile may be lost: it is an estimate.
            self.latency_us.store(smoothed_us(self.latency_us(), took_us), Ordering::Relaxed);
        }
        self.calls.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.calls.completed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn latency_us(&self) -> u32 {
        self.latency_us.load(Ordering::Relaxed)
    }

    /// The mean of what the threads take for its latency, microseconds, where they know one.
    pub(super) fn mean_latency_us(&self) -> Option<u32> {
        let tallies = lock(&self.tallies);
        let of_threads = tallies.iter().filter_map(Weak::upgrade);
        let known = of_threads.map(|tally| tally.latency_us.load(Ordering::Relaxed)).chain([self.latency_us()]);
        let known: Vec<u64> = known.filter(|&us| us > 0).map(u64::from).collect();
        let mean = known.iter().sum::<u64>().checked_div(known.len() as u64)?;
        u32::try_from(mean).ok()
    }

    /// A command goes on over another path: it was lost on this one, or refused by it.
    pub(super) fn count_failover(&self) {
        self.failovers.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn failovers(&self) -> u64 {
        self.failovers.load(Ordering::Relaxed)
    }

    /// A command waits at a fence of this path.
    pub(super) fn note_fence(&self, fence: &Arc<Fence>) {
        let now = self.controller.shared().waiter.time.now();
        let mut fences = lock(&self.fences);
        if fence.is_over(now) || fences.present.iter().any(|known| Arc::ptr_eq(known, fence)) {
            return;
        }
        fences.add_up(now);
        fences.present.push(Arc::clone(fence));
        fences.count += 1;
    }

    /// At how many fences commands have waited, and how long these stood.
    pub(super) fn fences(&self) -> (u64, Duration) {
        let now = self.controller.shared().waiter.time.now();
        let mut fences = lock(&self.fences);
        fences.add_up(now);
        let standing = fences.present.iter().map(|fence| fence.stood(now));
        (fences.count, standing.fold(fences.stood, Duration::saturating_add))
    }

    /// A tally for another thread.
    pub(super) fn tally(&self) -> Arc<PathTally> {
        let tally = Arc::default();
        let mut tallies = lock(&self.tallies);
        tallies.retain(|tally| tally.strong_count() > 0);
        tallies.push(Arc::downgrade(&tally));
        tally
    }

    /// The outstanding commands, and how many have completed, of all threads.
    pub(super) fn totals(&self) -> (u32, u64) {
        let tallies = lock(&self.tallies);
        let of = |tally: &PathTally| (tally.in_flight.load(Ordering::Relaxed), tally.completed.load(Ordering::Relaxed));
        let present = tallies.iter().filter_map(Weak::upgrade);
        present.fold(of(&self.calls), |(in_flight, completed), tally| {
            let (now, ever) = of(&tally);
            (in_flight.saturating_add(now), completed.wrapping_add(ever))
        })
    }
}
