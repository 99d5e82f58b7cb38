//! The event loop of the drive's thread: which of requests, other work, jobs and maintenance comes
//! next. It is called by `open/threads.rs` and `open/stepper.rs`.
//!
//! The folder has what it serves: the queues of requests and the batches that are made of them,
//! what the owner queues, and the flushes that a mark follows.

pub(crate) mod batch;
pub(crate) mod flusher;
pub(crate) mod queues;
pub(crate) mod work;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_backend::{Operation, Vital};
use ebof_idle::Yields;

use crate::event_loop::flusher::end;
use crate::event_loop::queues::{NextBatch, RequestQueues};
use crate::event_loop::work::{OwnerWork, WorkQueue};
use crate::store::Store;
use crate::store::order::WriteOrder;
use crate::thin::shared::{Message, Shared};
use crate::thin::stopped;

/// How soon reclaiming freed extents is tried again, if a write waits for one.
const RECLAIM_FOR_WRITE: Duration = Duration::from_millis(1);

/// How long nothing is written to the journal before a mark says how much of it is flushed: as long
/// as frames are written, they say it.
const MARK_DELAY: Duration = Duration::from_millis(2);

/// How soon maintenance that failed is tried again.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// The drive's thread: what it is asked for, and the store that does it.
pub(crate) struct EventLoop {
    store: Store,
    queues: RequestQueues,
    /// Pending work other than requests, in order.
    tasks: VecDeque<Task>,
    work: Arc<WorkQueue>,
    /// Not before this moment is maintenance tried again after a failure.
    retry: Instant,
    /// When there was something to do last: the journal may have been written then.
    busy: Instant,
}

/// Work other than requests: one of them in each turn.
enum Task {
    Message(Message),
    Work(OwnerWork),
}

/// What there is to do besides requests and tasks, as it was before a turn.
pub(crate) struct Plan {
    /// When the first of it is due; `None` if there is nothing.
    pub(crate) due: Option<Instant>,
    /// The step of a job is due.
    is_job_due: bool,
    needs_maintenance: bool,
    /// When a mark is to be written.
    mark_at: Option<Instant>,
}

impl EventLoop {
    /// Begins a new incarnation of the drive, unless it is read-only.
    pub(crate) fn new(mut store: Store, work: Arc<WorkQueue>) -> Self {
        if !store.is_read_only() {
            store.begin();
        }
        let now = store.order.shared.clock.now();
        Self { store, queues: RequestQueues::default(), tasks: VecDeque::new(), work, retry: now, busy: now }
    }

    /// Serves until it is told to stop, and closes the drive.
    pub(crate) fn serve(mut self) {
        // After a panic the state in memory may differ from the journal: this process must not
        // write any more.
        let _vital = Vital::new();
        let shared = Arc::clone(&self.store.order.shared);
        let mut yields = Yields::new();
        loop {
            let plan = self.plan();
            let mut messages = shared.take(plan.due.map(|due| due.saturating_duration_since(shared.clock.now())));
            if !messages.is_empty() && self.is_idle() {
                shared.gather(&mut messages, self.queues.tagged_changes(), &mut yields);
            }
            if !self.turn(&plan, messages) {
                break;
            }
        }
        self.close();
    }

    /// Closes the drive in order.
    pub(crate) fn close(mut self) {
        if self.store.is_read_only() {
            return;
        }
        // Freed extents that requests may still access belong to no namespace: the next incarnation
        // finds them free.
        if let Err(error) = self.store.order.checkpoint(true) {
            tracing::error!("the drive cannot be closed in order: {error}");
        }
        self.store.order.mark();
    }

    /// Finds out what there is to do besides requests and tasks.
    pub(crate) fn plan(&mut self) -> Plan {
        let reclaim = self.reclaim();
        let now = self.store.order.shared.clock.now();
        let more = (!self.is_idle() || self.store.order.settling.can_begin()).then_some(now);
        let store = &mut self.store;
        let job = store.jobs.next_at();
        let maintenance = store.needs_maintenance().then_some(self.retry);
        let mark_at = store.order.is_unmarked().then(|| self.busy.max(self.retry) + MARK_DELAY);
        let flux = store.order.settling.due(&store.order.tags).map(|due| due.max(self.retry));
        let reclaim = reclaim.map(|reclaim| now + reclaim);
        let due = [job, reclaim, maintenance, mark_at, flux, more].into_iter().flatten().min();
        Plan { due, is_job_due: job.is_some_and(|job| job <= now), needs_maintenance: maintenance.is_some(), mark_at }
    }

    /// One turn: takes `messages`, does a batch of requests, one task, one step of a job and some
    /// maintenance. Returns `false` when the drive was told to stop.
    pub(crate) fn turn(&mut self, plan: &Plan, messages: VecDeque<Message>) -> bool {
        for message in messages {
            match message {
                // Its data are flushed by the thread for flushes, then its tags are recorded here.
                Message::DeferredRequest(deferred)
                    if matches!(deferred.request.operation, Operation::Flush) && deferred.thin.may_be_in_flux =>
                {
                    match self.store.order.settling.flush_returned(&deferred) {
                        true => self.queues.push(*deferred),
                        false => self.store.order.settling.push(*deferred),
                    }
                }
                Message::DeferredRequest(deferred) => self.queues.push(*deferred),
                Message::Unlocked => self.queues.retry_locked(),
                message => self.tasks.push_back(Task::Message(message)),
            }
        }
        self.tasks.extend(self.work.take().into_iter().map(Task::Work));
        // Those that the thread for flushes cannot do are done like other requests.
        let WriteOrder { settling, tags, .. } = &mut self.store.order;
        settling.begin_flushes(tags).into_iter().for_each(|flush| self.queues.push(flush));
        let is_idle = self.is_idle();
        let store = &mut self.store;
        let now = store.order.shared.clock.now();
        let maintain = is_idle && plan.needs_maintenance && self.retry <= now;
        if is_idle && plan.mark_at.is_some_and(|mark_at| mark_at <= now) {
            store.order.mark();
            if store.order.is_unmarked() {
                self.retry = store.order.shared.clock.now() + RETRY_DELAY;
            }
        }
        if !is_idle || plan.is_job_due {
            self.busy = now;
        }
        if !self.serve_requests() {
            return false;
        }
        self.step_job();
        if self.store.order.disk.faults.has_failures() {
            self.store.check_faults();
        }
        if maintain && let Err(error) = self.store.maintain() {
            if !self.store.order.has_faults() {
                tracing::warn!("the drive cannot tidy up now: {error}");
            }
            self.retry = self.store.order.shared.clock.now() + RETRY_DELAY;
        }
        true
    }

    /// Frees extents that no request can access any more, and has requests that wait for space
    /// tried again. Returns how soon to call it again.
    fn reclaim(&mut self) -> Option<Duration> {
        let store = &mut self.store;
        let reclaim = store.order.extents.reclaim();
        let Some(until) = self.queues.waiting_until() else { return reclaim };
        // While extents are being zeroed, a message says when they are there.
        let is_over =
            !store.order.extents.is_zeroing() && (reclaim.is_none() || until <= store.order.shared.clock.now());
        if store.order.extents.take_freed() || is_over {
            self.queues.retry_waiting();
        }
        reclaim.map(|soon| soon.min(RECLAIM_FOR_WRITE))
    }

    /// Whether there are no requests and no tasks.
    fn is_idle(&self) -> bool {
        self.tasks.is_empty() && !self.queues.has_requests()
    }

    /// Does a batch of requests and one task. Returns `false` when the drive was told to stop.
    fn serve_requests(&mut self) -> bool {
        let store = &mut self.store;
        let task = self.tasks.pop_front();
        let NextBatch { requests, long } = self.queues.next_batch();
        batch::serve(store, requests, long, &mut self.queues, true);
        match task {
            Some(Task::Work(OwnerWork::Run(work))) => {
                work(store);
                // It is not called again.
                store.awaited = None;
            }
            Some(Task::Work(OwnerWork::Stop)) => {
                self.stop();
                return false;
            }
            Some(Task::Message(Message::Flushed(point, flushes))) => {
                store.order.flushed(point);
                store.order.end_flushes(flushes);
            }
            Some(Task::Message(Message::NotFlushed(error, flushes))) => {
                store.order.settling.fail_flushes(error, flushes);
            }
            Some(Task::Message(Message::Corrupt(volume, block))) => {
                store.order.shared.thin(volume).iter().for_each(|thin| store.order.tags.report_corrupt(thin, block));
            }
            Some(Task::Message(Message::WriteFailed(failed))) => store.order.write_failed(failed),
            Some(Task::Message(Message::Zeroed(extents, result))) => store.order.extents.zeroed(extents, result),
            Some(Task::Message(Message::Failed)) => store.check_faults(),
            // Requests are in the queues.
            Some(Task::Message(Message::DeferredRequest(_) | Message::Unlocked)) | None => {}
        }
        true
    }

    /// Does the requests that are there, and refuses everything later.
    fn stop(&mut self) {
        let store = &mut self.store;
        drop(self.work.stop());
        for message in store.order.shared.stop() {
            match message {
                Message::WriteFailed(_) => self.tasks.push_back(Task::Message(message)),
                message => refuse(std::iter::once(message)),
            }
        }
        // Before any request: those for the same blocks wait until it is known what these have.
        for task in std::mem::take(&mut self.tasks) {
            match task {
                Task::Message(Message::WriteFailed(failed)) => store.order.write_failed(failed),
                task => self.tasks.push_back(task),
            }
        }
        self.queues.retry_waiting();
        self.queues.retry_locked();
        store.order.settling.take_waiting().into_iter().for_each(|flush| self.queues.push(flush));
        while self.queues.has_requests() {
            let NextBatch { requests, long } = self.queues.next_batch();
            batch::serve(store, requests, long, &mut self.queues, false);
        }
        // Data and tags are durable with the checkpoint: nobody writes any more.
        store.order.shared.pages.close();
        for task in self.tasks.drain(..) {
            match task {
                Task::Message(Message::Flushed(point, flushes)) => {
                    store.order.flushed(point);
                    store.order.end_flushes(flushes);
                }
                Task::Message(message) => refuse(std::iter::once(message)),
                Task::Work(work) => drop(work),
            }
        }
    }

    /// Does one step of the job that is due first.
    fn step_job(&mut self) {
        let Some(mut due) = self.store.jobs.take_due(self.store.order.shared.clock.now()) else { return };
        let progress = due.step(&mut self.store);
        self.store.jobs.put_back(due, progress, self.store.order.shared.clock.now());
    }
}

/// Refuses what the drive's thread has not done, and everything later.
pub(crate) fn refuse_all(shared: &Shared, work: &WorkQueue) {
    shared.stop_flushes();
    drop(work.stop());
    refuse(shared.stop());
}

fn refuse(messages: impl IntoIterator<Item = Message>) {
    for message in messages {
        match message {
            Message::DeferredRequest(deferred) => deferred.refuse(stopped),
            Message::Flushed(_, deferred_requests) => {
                deferred_requests.into_iter().for_each(end);
            }
            Message::NotFlushed(error, flushes) => {
                let mut error = Some(error);
                for flush in flushes {
                    let error = error.take().unwrap_or_else(|| flush.not_durable());
                    flush.complete(Err(error));
                }
            }
            Message::Zeroed(..) | Message::Failed | Message::Unlocked | Message::Corrupt(..) => {}
            // What is there is found out when the drive is opened again: the blocks stay locked.
            Message::WriteFailed(failed) => drop(failed),
        }
    }
}
