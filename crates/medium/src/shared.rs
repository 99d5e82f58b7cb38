//! What the drive's thread shares with all others: the way to it, the epoch, and the namespaces.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use ebof_backend::{Action, Class, Completion, CompletionHook, Device, Error, Remote, Request};
use ebof_clock::Clock;
use ebof_drive::layout::Layout;

use crate::fault::{Failure, WAITING, failure};
use crate::found::Lost;
use crate::journal::{Point, View};
use crate::options::Notify;
use crate::thin::Refusal;
use crate::{Notice, Options, Thin, VolumeId};

/// How long more requests are waited for.
const GATHER: Duration = Duration::from_micros(50);

/// A request that the drive's thread does, and the way back.
pub(crate) struct DeferredRequest {
    pub(crate) thin: Arc<Thin>,
    pub(crate) request: Request,
    pub(crate) reply: Reply,
    /// It has found no space and is tried again; refused from then on.
    pub(crate) waits_until: Option<Instant>,
}

/// The way back for the completion of a request. Whoever waits for it gets one also where this is
/// dropped on the way, because the thread that had it panicked.
pub(crate) struct Reply {
    remote: Option<Remote>,
    tag: u64,
    action: Action,
}

impl DeferredRequest {
    pub(crate) fn new(thin: Arc<Thin>, request: Request, remote: Remote) -> Self {
        let reply = Reply { remote: Some(remote), tag: request.tag, action: request.operation.action() };
        Self { thin, request, reply, waits_until: None }
    }

    /// Answers it.
    pub(crate) fn finish(self, result: Result<(), Refusal>) {
        let result = result.map_err(|refusal| refusal(&self.request.operation));
        self.answer(result);
    }

    pub(crate) fn answer(self, result: Result<(), Error>) {
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
            // Its buffer is lost with what the thread had.
            remote.deliver(Completion { tag: self.tag, result: Err(error), data: None });
        }
    }
}

/// What the drive's thread is asked for.
pub(crate) enum Message {
    DeferredRequest(Box<DeferredRequest>),
    /// These flushes are over, and everything up to there is durable.
    Flushed(Point, Vec<DeferredRequest>),
    /// These extents read as zeros, durably, unless there is an error.
    Zeroed(Vec<u32>, Result<(), Error>),
    /// The backing device has failed at something.
    Failed,
}

/// Extents that were given back while this was current are not used again before nobody has it any
/// more. It sees how requests to the backing device end.
#[derive(Debug, Default)]
pub(crate) struct Epoch(Weak<Shared>);

impl CompletionHook for Epoch {
    fn finish(&self, completion: &mut Completion) {
        if let Err(error) = &completion.result
            && let Some(shared) = self.0.upgrade()
        {
            shared.saw(error);
        }
    }
}

/// An epoch, and what somebody above had attached to the request before.
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

/// What all threads that use a medium have in common.
pub(crate) struct Shared {
    pub(crate) base: Arc<dyn Device>,
    pub(crate) layout: Layout,
    pub(crate) clock: Clock,
    /// Extents that are in use, or were and are not free yet.
    pub(crate) used: AtomicU32,
    pub(crate) journal: View,
    /// A part of what the drive says of itself is lost: nothing is written, and what nobody knows
    /// is not read.
    pub(crate) read_only: bool,
    /// So much of it that blocks without a checksum may be another namespace's.
    pub(crate) hides_unchecked: bool,
    notify: Option<Notify>,
    epoch: RwLock<Arc<Epoch>>,
    thins: RwLock<BTreeMap<VolumeId, Arc<Thin>>>,
    /// What the backing device has failed at, to be looked at.
    failures: Mutex<Vec<Failure>>,
    queue: Mutex<Queue>,
    bell: Condvar,
    flushes: Mutex<(Vec<DeferredRequest>, bool)>,
    flush_bell: Condvar,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Message>,
    /// There is something to do besides messages.
    woken: bool,
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
            read_only: lost.is_some(),
            hides_unchecked: lost.is_some_and(|lost| lost.several),
            notify: options.notify.clone(),
            epoch: RwLock::new(Arc::new(Epoch(own.clone()))),
            thins: RwLock::default(),
            failures: Mutex::default(),
            queue: Mutex::default(),
            bell: Condvar::new(),
            flushes: Mutex::default(),
            flush_bell: Condvar::new(),
        })
    }

    /// Tells the owner of the medium something. On the drive's thread only.
    pub(crate) fn notify(&self, notice: Notice) {
        if let Some(Notify(notify)) = &self.notify {
            notify(notice);
        }
    }

    pub(crate) fn epoch(&self) -> Arc<Epoch> {
        Arc::clone(&self.epoch.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts a new epoch; gives the one that ended.
    pub(crate) fn turn(&self) -> Arc<Epoch> {
        let mut epoch = self.epoch.write().unwrap_or_else(PoisonError::into_inner);
        let next = Arc::new(Epoch(epoch.0.clone()));
        std::mem::replace(&mut epoch, next)
    }

    /// A request to the backing device has failed, on whatever thread.
    pub(crate) fn saw(&self, error: &Error) {
        let Some(failure) = failure(error) else { return };
        let mut failures = self.failures();
        if failures.len() < WAITING {
            failures.push(failure);
        }
        if failures.len() == 1 {
            drop(failures);
            self.post(Message::Failed);
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

    /// Nobody is given a namespace from now on.
    pub(crate) fn forget(&self) {
        let thins = std::mem::take(&mut *self.thins.write().unwrap_or_else(PoisonError::into_inner));
        drop(thins);
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a request with the drive's thread, or gives it back when that has ended.
    pub(crate) fn send(&self, deferred: DeferredRequest) -> Result<(), DeferredRequest> {
        let mut queue = self.queue();
        if queue.stopped {
            return Err(deferred);
        }
        queue.messages.push_back(Message::DeferredRequest(Box::new(deferred)));
        drop(queue);
        self.bell.notify_one();
        Ok(())
    }

    /// Leaves work with the drive's thread; `false` when that has ended.
    pub(crate) fn post(&self, message: Message) -> bool {
        self.post_or_give_back(message).is_ok()
    }

    /// The same, for what must not be dropped.
    pub(crate) fn post_or_give_back(&self, message: Message) -> Result<(), Message> {
        let mut queue = self.queue();
        if queue.stopped {
            return Err(message);
        }
        queue.messages.push_back(message);
        drop(queue);
        self.bell.notify_one();
        Ok(())
    }

    /// Leaves a flush with the thread for them, or gives it back when that has ended.
    pub(crate) fn send_flush(&self, deferred: DeferredRequest) -> Result<(), DeferredRequest> {
        let mut flushes = self.flushes.lock().unwrap_or_else(PoisonError::into_inner);
        if flushes.1 {
            return Err(deferred);
        }
        flushes.0.push(deferred);
        drop(flushes);
        self.flush_bell.notify_one();
        Ok(())
    }

    /// Waits for flushes; `None` when there will be none.
    pub(crate) fn wait_for_flushes(&self) -> Option<Vec<DeferredRequest>> {
        let mut flushes = self.flushes.lock().unwrap_or_else(PoisonError::into_inner);
        while flushes.0.is_empty() && !flushes.1 {
            flushes = self.flush_bell.wait(flushes).unwrap_or_else(PoisonError::into_inner);
        }
        (!flushes.0.is_empty()).then(|| std::mem::take(&mut flushes.0))
    }

    /// The flushes that are there.
    pub(crate) fn take_flushes(&self) -> Vec<DeferredRequest> {
        std::mem::take(&mut self.flushes.lock().unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Whether there are any.
    pub(crate) fn has_flushes(&self) -> bool {
        !self.flushes.lock().unwrap_or_else(PoisonError::into_inner).0.is_empty()
    }

    /// No flushes are taken from now on; those that are there are done.
    pub(crate) fn stop_flushes(&self) {
        self.flushes.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
        self.flush_bell.notify_one();
    }

    /// Everything that there is to do, after `patience` at the latest; `None` is for ever.
    pub(crate) fn take(&self, wait_for: Option<Duration>) -> VecDeque<Message> {
        let mut queue = self.queue();
        if queue.messages.is_empty() && !queue.woken {
            queue = match wait_for {
                Some(Duration::ZERO) => queue,
                Some(wait_for) => self.bell.wait_timeout(queue, wait_for).unwrap_or_else(PoisonError::into_inner).0,
                None => self.bell.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
        queue.woken = false;
        std::mem::take(&mut queue.messages)
    }

    /// Has the drive's thread look for work, see [`take`](Self::take).
    pub(crate) fn wake(&self) {
        self.queue().woken = true;
        self.bell.notify_one();
    }

    /// Whether there is something that was asked for.
    pub(crate) fn has_messages(&self) -> bool {
        !self.queue().messages.is_empty()
    }

    /// Waits, but not long, for as many messages as there were the last time: those whose requests
    /// were just answered are about to send the next ones, and what is done together costs less.
    pub(crate) fn gather(&self, messages: &mut VecDeque<Message>, count: usize) {
        let end = self.clock.now() + GATHER;
        while messages.len() < count && self.clock.now() < end {
            std::thread::yield_now();
            messages.append(&mut self.queue().messages);
        }
    }

    /// From now on nothing is taken; gives what is left.
    pub(crate) fn stop(&self) -> VecDeque<Message> {
        let mut queue = self.queue();
        queue.stopped = true;
        std::mem::take(&mut queue.messages)
    }
}
