//! What the drive's thread shares with all others: its queues of messages, the epoch, and the
//! namespaces.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use ebof_backend::{Action, Class, Completion, CompletionHook, Device, Error, Operation, Remote, Request};
use ebof_clock::Clock;
use ebof_drive::layout::Layout;
use ebof_drive::tag::Tag;
use ebof_idle::Yields;

use crate::disk::fault::{FAILURES_MAX, Failure, failure};
use crate::journal::found::Lost;
use crate::journal::{Point, View};
use crate::options::Notify;
use crate::pages::Pages;
use crate::thin::locks::Wanted;
use crate::thin::{Refusal, refused, stopped};
use crate::{Notice, Options, Thin, VolumeId};

/// How long the drive's thread waits for more requests, to do them in one batch.
const GATHER: Duration = Duration::from_micros(50);

/// A request that the drive's thread does, and where its completion goes.
pub(crate) struct DeferredRequest {
    pub(crate) thin: Arc<Thin>,
    pub(crate) request: Request,
    pub(crate) reply: Reply,
    /// It found no space and is tried again until then.
    pub(crate) waits_until: Option<Instant>,
    /// A flush that is to make tags durable, too, see `tags/flux.rs`.
    pub(crate) settles: Settles,
    /// Blocks that it waits for, because another thread had some of them.
    pub(crate) awaited: Option<AwaitedBlocks>,
}

/// The tags of how many writes a flush makes durable, if it makes any.
#[derive(Clone, Copy, Default)]
pub(crate) struct Settles(Option<NonZeroU64>);

impl Settles {
    pub(crate) fn tags_of(count: u64) -> Self {
        Self(NonZeroU64::new(count + 1))
    }

    /// Whether it makes tags durable at all.
    pub(crate) fn any(self) -> bool {
        self.0.is_some()
    }

    /// Whether they are durable.
    pub(crate) fn are_tags_settled(self, thin: &Thin) -> bool {
        self.0.is_none_or(|count| thin.has_settled(count.get() - 1))
    }
}

/// Where the completion of a request goes. Dropping it without [`send`](Self::send), as a panic
/// does, completes the request with an error.
pub(crate) struct Reply {
    remote: Option<Remote>,
    tag: u64,
    action: Action,
}

impl DeferredRequest {
    pub(crate) fn new(thin: Arc<Thin>, request: Request, remote: Remote) -> Self {
        let reply = Reply { remote: Some(remote), tag: request.tag, action: request.operation.action() };
        Self { thin, request, reply, waits_until: None, settles: Settles::default(), awaited: None }
    }

    /// A flush that nobody waits for, to make tags durable.
    pub(crate) fn settling(thin: Arc<Thin>) -> Self {
        let request = Request::new(0, Operation::Flush);
        let reply = Reply { remote: None, tag: 0, action: Action::Flush };
        Self { thin, request, reply, waits_until: None, settles: Settles::default(), awaited: None }
    }

    /// Whether anybody waits for its completion.
    pub(crate) fn is_awaited(&self) -> bool {
        self.reply.remote.is_some()
    }

    /// The error for a flush without success.
    pub(crate) fn not_durable(&self) -> Error {
        let reason = "it cannot be brought to the medium: see the log";
        refused(&self.request.operation, Class::MediumWrite, reason)
    }

    pub(crate) fn refuse(self, refusal: Refusal) {
        let error = refusal(&self.request.operation);
        self.complete(Err(error));
    }

    pub(crate) fn complete(self, result: Result<(), Error>) {
        self.reply.send(self.request.complete(result));
    }
}

impl Reply {
    pub(crate) fn send(mut self, completion: Completion) {
        if let Some(remote) = self.remote.take() {
            remote.deliver(completion);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(remote) = self.remote.take() {
            let reason = "the drive's thread failed at it: see the log";
            let error = Error::Refused { action: self.action, offset: 0, len: 0, class: Class::Gone, reason };
            // Its buffer was lost in the panic.
            remote.deliver(Completion { tag: self.tag, result: Err(error), data: None });
        }
    }
}

/// Blocks of one extent that are locked until they are unlocked, or this is dropped
/// ([`take`](Self::take) says of what that is not true).
pub(crate) struct LockedBlocks {
    pub(crate) thin: Arc<Thin>,
    /// Of the medium.
    pub(crate) extent: u32,
    pub(crate) blocks: Range<u64>,
    change: bool,
    locked: AtomicBool,
    /// They stay locked when this is dropped.
    stays: bool,
}

impl LockedBlocks {
    /// Of blocks that were locked just now. Where they are on the medium is not known yet.
    pub(crate) fn new(thin: Arc<Thin>, blocks: Range<u64>, change: bool) -> Self {
        Self { thin, extent: 0, blocks, change, locked: AtomicBool::new(true), stays: false }
    }

    pub(crate) fn unlock(&self) {
        if self.locked.swap(false, Ordering::AcqRel) {
            let index = self.thin.block_layout.index(self.blocks.start);
            if self.thin.locks.unlock(index, &self.blocks, self.change) {
                // When the drive's thread has ended, nobody waits.
                let _ended = self.thin.shared.post(Message::Unlocked);
            }
        }
    }

    /// Hands the lock over to another owner, who unlocks the blocks when it is known what they
    /// have. Dropped without that they stay locked: nobody reads them any more.
    pub(crate) fn take(&self) -> Self {
        let locked = AtomicBool::new(self.locked.swap(false, Ordering::AcqRel));
        let (thin, blocks) = (Arc::clone(&self.thin), self.blocks.clone());
        Self { thin, extent: self.extent, blocks, change: self.change, locked, stays: true }
    }
}

impl Drop for LockedBlocks {
    fn drop(&mut self) {
        if !self.stays {
            self.unlock();
        }
    }
}

/// Blocks that a request waits for: until this is dropped, no other thread locks them before the
/// drive's.
pub(crate) struct AwaitedBlocks {
    thin: Arc<Thin>,
    wanted: Wanted,
}

impl AwaitedBlocks {
    pub(crate) fn new(thin: Arc<Thin>, wanted: Wanted) -> Self {
        thin.locks.begin_waiting(&wanted);
        Self { thin, wanted }
    }

    pub(crate) fn is_for(&self, thin: &Arc<Thin>, wanted: &Wanted) -> bool {
        Arc::ptr_eq(&self.thin, thin) && self.wanted == *wanted
    }
}

impl Drop for AwaitedBlocks {
    fn drop(&mut self) {
        self.thin.locks.end_waiting(&self.wanted);
    }
}

/// A write of blocks in flux that has failed: it is not known which tags they have.
pub(crate) struct FailedWrite {
    pub(crate) locked: LockedBlocks,
    /// The tags that they were to get.
    pub(crate) tags: Vec<Tag>,
}

/// A message to the drive's thread.
pub(crate) enum Message {
    DeferredRequest(Box<DeferredRequest>),
    /// The backing device was flushed for these requests: the journal is durable up to this point.
    Flushed(Point, Vec<DeferredRequest>),
    /// The flush has failed for which the drive's thread has begun to settle tags.
    NotFlushed(Error, Vec<DeferredRequest>),
    /// These extents were zeroed, durably, or zeroing them failed.
    Zeroed(Vec<u32>, Result<(), Error>),
    /// A request to the backing device has failed: see [`Shared::failures`].
    Failed,
    /// Requests may go on that wait for others on other threads.
    Unlocked,
    /// A block does not match its checksum.
    Corrupt(VolumeId, u64),
    /// A write on another thread has failed.
    WriteFailed(FailedWrite),
}

/// A period in which requests look up extents (epoch-based reclamation). A request to the backing
/// device holds the epoch in which it began; extents that are freed are not allocated again before
/// nobody holds the epoch in which they were. As the hook of such requests it records their
/// failures.
#[derive(Debug, Default)]
pub(crate) struct Epoch(Weak<Shared>);

impl CompletionHook for Epoch {
    fn finish(&self, completion: &mut Completion) {
        if let Err(error) = &completion.result
            && let Some(shared) = self.0.upgrade()
        {
            shared.record_failure(error);
        }
    }
}

/// An epoch, and the hook that the request had before.
#[derive(Debug)]
pub(crate) struct ChainedHooks {
    pub(crate) epoch: Arc<Epoch>,
    pub(crate) above: Arc<dyn CompletionHook>,
}

impl CompletionHook for ChainedHooks {
    fn finish(&self, completion: &mut Completion) {
        self.epoch.finish(completion);
        self.above.finish(completion);
    }
}

/// What all threads that use a medium share.
pub(crate) struct Shared {
    pub(crate) base: Arc<dyn Device>,
    pub(crate) layout: Layout,
    pub(crate) clock: Clock,
    /// Extents that are allocated, or were freed and cannot be allocated yet.
    pub(crate) used: AtomicU32,
    pub(crate) journal: View,
    /// Pages of tags in memory.
    pub(crate) pages: Arc<Pages>,
    /// A part of the drive's own data is lost: nothing is written, and blocks that may be wrong are
    /// not read.
    pub(crate) read_only: bool,
    /// So much is lost that extents may belong to another namespace: only blocks with a checksum
    /// can be read.
    pub(crate) hides_unchecked: bool,
    notify: Option<Notify>,
    epoch: RwLock<Arc<Epoch>>,
    thins: RwLock<BTreeMap<VolumeId, Arc<Thin>>>,
    /// Failures of the backing device that the drive's thread has not seen yet.
    failures: Mutex<Vec<Failure>>,
    queue: Mutex<Queue>,
    /// Notified when `queue` has something to do.
    queue_changed: Condvar,
    flushes: Mutex<FlushQueue>,
    /// Notified when `flushes` has changed.
    flushes_changed: Condvar,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    /// There is something to do besides messages.
    woken: bool,
    /// No more messages are taken.
    stopped: bool,
}

/// Flushes that wait for the flush thread.
#[derive(Default)]
struct FlushQueue {
    requests: Vec<DeferredRequest>,
    /// No more are taken.
    stopped: bool,
}

impl Shared {
    pub(crate) fn new(base: Arc<dyn Device>, layout: Layout, lost: Option<&Lost>, options: &Options) -> Arc<Self> {
        Arc::new_cyclic(|own| Self {
            base,
            layout,
            clock: options.clock.clone(),
            used: AtomicU32::new(0),
            journal: View::default(),
            pages: Arc::new(Pages::new(options.tag_cache_bytes)),
            read_only: lost.is_some(),
            hides_unchecked: lost.is_some_and(|lost| lost.several),
            notify: options.notify.clone(),
            epoch: RwLock::new(Arc::new(Epoch(own.clone()))),
            thins: RwLock::default(),
            failures: Mutex::default(),
            queue: Mutex::default(),
            queue_changed: Condvar::new(),
            flushes: Mutex::default(),
            flushes_changed: Condvar::new(),
        })
    }

    /// Notifies the owner of the medium. On the drive's thread only.
    pub(crate) fn notify(&self, notice: Notice) {
        if let Some(Notify(notify)) = &self.notify {
            notify(notice);
        }
    }

    pub(crate) fn epoch(&self) -> Arc<Epoch> {
        Arc::clone(&self.epoch.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts a new epoch. Returns the one that ended.
    pub(crate) fn next_epoch(&self) -> Arc<Epoch> {
        let mut epoch = self.epoch.write().unwrap_or_else(PoisonError::into_inner);
        let next = Arc::new(Epoch(epoch.0.clone()));
        std::mem::replace(&mut epoch, next)
    }

    /// Records that a request to the backing device has failed. On any thread.
    pub(crate) fn record_failure(&self, error: &Error) {
        let Some(failure) = failure(error) else { return };
        let mut failures = self.failures();
        if failures.len() < FAILURES_MAX {
            failures.push(failure);
        }
        if failures.len() == 1 {
            drop(failures);
            // When the thread has ended, nobody needs to know.
            let _ended = self.post(Message::Failed);
        }
    }

    pub(crate) fn failures(&self) -> MutexGuard<'_, Vec<Failure>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn thin(&self, volume: VolumeId) -> Option<Arc<Thin>> {
        self.thins.read().unwrap_or_else(PoisonError::into_inner).get(&volume).cloned()
    }

    pub(crate) fn volumes(&self) -> Vec<VolumeId> {
        self.thins.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect()
    }

    pub(crate) fn thins(&self) -> Vec<Arc<Thin>> {
        self.thins.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn insert(&self, thin: Arc<Thin>) {
        self.thins.write().unwrap_or_else(PoisonError::into_inner).insert(thin.volume, thin);
    }

    pub(crate) fn remove(&self, volume: VolumeId) {
        if let Some(thin) = self.thins.write().unwrap_or_else(PoisonError::into_inner).remove(&volume) {
            thin.removed.store(true, Ordering::Release);
        }
    }

    /// Drops the namespaces: nobody gets one from here any more.
    pub(crate) fn drop_namespaces(&self) {
        let thins = std::mem::take(&mut *self.thins.write().unwrap_or_else(PoisonError::into_inner));
        drop(thins);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request to the drive's thread. Refuses it if that has ended.
    pub(crate) fn send(&self, deferred: DeferredRequest) {
        if let Err(Message::DeferredRequest(deferred)) = self.post(Message::DeferredRequest(Box::new(deferred))) {
            deferred.refuse(stopped);
        }
    }

    /// Sends a message to the drive's thread. Returns it if that has ended.
    pub(crate) fn post(&self, message: Message) -> Result<(), Message> {
        let mut queue = self.queue();
        if queue.stopped {
            return Err(message);
        }
        queue.messages.push_back(message);
        drop(queue);
        self.queue_changed.notify_one();
        Ok(())
    }

    fn flushes(&self) -> MutexGuard<'_, FlushQueue> {
        self.flushes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a flush to the flush thread. Refuses it if that takes no more.
    pub(crate) fn send_flush(&self, deferred: DeferredRequest) {
        let refused = self.send_flushes(vec![deferred]).err().unwrap_or_default();
        refused.into_iter().for_each(|deferred| deferred.refuse(stopped));
    }

    /// Sends several flushes, which are done together. Returns them if it takes no more.
    pub(crate) fn send_flushes(&self, mut deferred: Vec<DeferredRequest>) -> Result<(), Vec<DeferredRequest>> {
        let mut flushes = self.flushes();
        if flushes.stopped {
            return Err(deferred);
        }
        flushes.requests.append(&mut deferred);
        drop(flushes);
        self.flushes_changed.notify_one();
        Ok(())
    }

    /// Waits for flushes. `None`: all are done, and there will be no more.
    pub(crate) fn wait_for_flushes(&self) -> Option<Vec<DeferredRequest>> {
        let mut flushes = self.flushes();
        while flushes.requests.is_empty() && !flushes.stopped {
            flushes = self.flushes_changed.wait(flushes).unwrap_or_else(PoisonError::into_inner);
        }
        (!flushes.requests.is_empty()).then(|| std::mem::take(&mut flushes.requests))
    }

    /// Takes the pending flushes, without waiting.
    pub(crate) fn take_flushes(&self) -> Vec<DeferredRequest> {
        std::mem::take(&mut self.flushes().requests)
    }

    pub(crate) fn has_flushes(&self) -> bool {
        !self.flushes().requests.is_empty()
    }

    /// Takes no flushes from now on; those that are pending are still done.
    pub(crate) fn stop_flushes(&self) {
        self.flushes().stopped = true;
        self.flushes_changed.notify_one();
    }

    /// Takes all messages. If there are none, waits for one or for [`wake`](Self::wake), at most
    /// for `wait_for`; `None`: without limit.
    pub(crate) fn take(&self, wait_for: Option<Duration>) -> VecDeque<Message> {
        let mut queue = self.queue();
        if queue.messages.is_empty() && !queue.woken {
            queue = match wait_for {
                Some(Duration::ZERO) => queue,
                Some(wait_for) => {
                    self.queue_changed.wait_timeout(queue, wait_for).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.queue_changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
        queue.woken = false;
        std::mem::take(&mut queue.messages)
    }

    /// Wakes the drive's thread, to look for work other than messages.
    pub(crate) fn wake(&self) {
        self.queue().woken = true;
        self.queue_changed.notify_one();
    }

    pub(crate) fn has_messages(&self) -> bool {
        !self.queue().messages.is_empty()
    }

    /// Waits a moment ([`GATHER`]) for as many messages as the last batch had: callers whose
    /// requests were just completed are about to send the next ones, and a larger batch costs less
    /// per request. Where others compute on the processor it does not wait: the callers may need
    /// it.
    pub(crate) fn gather(&self, messages: &mut VecDeque<Message>, count: usize, yields: &mut Yields) {
        let mut now = self.clock.now();
        let end = now + GATHER;
        while messages.len() < count && now < end && yields.give_way(now) {
            now = self.clock.now();
            messages.append(&mut self.queue().messages);
        }
    }

    /// Takes no messages from now on. Returns those that are left.
    pub(crate) fn stop(&self) -> VecDeque<Message> {
        let mut queue = self.queue();
        queue.stopped = true;
        std::mem::take(&mut queue.messages)
    }
}
