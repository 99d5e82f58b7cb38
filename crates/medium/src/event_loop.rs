//! What the drive's thread does when: requests and other work in turns, what is due, and what can
//! wait. Who calls it is in `threads.rs` and `stepper.rs`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_backend::Vital;

use crate::batch;
use crate::flows::{Flows, Turn};
use crate::shared::{Message, Shared};
use crate::store::Store;
use crate::thin::stopped;
use crate::work::{OwnerWork, WorkQueue};

/// How soon extents are looked at again that somebody may still reach, where a write waits for one.
const RECLAIM_FOR_WRITE: Duration = Duration::from_millis(1);

/// How long the journal rests before a mark says how much of it is flushed: while it is written,
/// its frames say so.
const MARK: Duration = Duration::from_millis(2);

/// How soon what failed is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// The drive's thread at work: what it is asked for, and the store that does it.
pub(crate) struct EventLoop {
    store: Store,
    /// Requests that wait.
    flows: Flows,
    /// What else waits, in order.
    tasks: VecDeque<Task>,
    work: Arc<WorkQueue>,
    /// When what failed is tried again, beside those who need it.
    retry: Instant,
    /// When the journal was last written, perhaps.
    busy: Instant,
}

/// What the drive's thread does besides requests: one of them in a turn.
enum Task {
    Message(Message),
    Work(OwnerWork),
}

/// What there is to do without being asked, as it was found before a turn.
pub(crate) struct Plan {
    /// When something of it is due; `None` without any of it.
    pub(crate) due: Option<Instant>,
    /// The step of a job is due at once.
    is_job_due: bool,
    needs_maintenance: bool,
    /// When the medium is to say how much is flushed.
    mark_at: Option<Instant>,
}

impl EventLoop {
    /// Makes of what was found on the medium what this incarnation goes on from.
    pub(crate) fn new(mut store: Store, work: Arc<WorkQueue>) -> Self {
        if !store.is_read_only() {
            store.begin();
        }
        let now = store.shared.clock.now();
        Self { store, flows: Flows::default(), tasks: VecDeque::new(), work, retry: now, busy: now }
    }

    /// Serves until it is told to stop, and closes the drive.
    pub(crate) fn serve(mut self) {
        // What is in memory may not be what is in the journal then: nothing more is to be written
        // by this process.
        let _vital = Vital::new();
        let shared = Arc::clone(&self.store.shared);
        loop {
            let plan = self.plan();
            let mut messages = shared.take(plan.due.map(|due| due.saturating_duration_since(shared.clock.now())));
            if !messages.is_empty() && self.has_nothing() {
                shared.gather(&mut messages, self.flows.together());
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
        // What is given back and still in use by others belongs to no namespace any more: the next
        // incarnation finds it free.
        if let Err(error) = self.store.checkpoint(true) {
            tracing::error!("the drive cannot be closed in order: {error}");
        }
        self.store.mark();
    }

    /// Finds out what there is to do without being asked.
    pub(crate) fn plan(&mut self) -> Plan {
        let reclaim = self.reclaim();
        let now = self.store.shared.clock.now();
        let more = (!self.has_nothing()).then_some(now);
        let store = &mut self.store;
        let job = store.jobs.next_at();
        let maintenance = store.needs_maintenance().then_some(self.retry);
        let mark_at = store.is_unmarked().then(|| self.busy.max(self.retry) + MARK);
        let due = [job, reclaim.map(|reclaim| now + reclaim), maintenance, mark_at, more].into_iter().flatten().min();
        Plan { due, is_job_due: job.is_some_and(|job| job <= now), needs_maintenance: maintenance.is_some(), mark_at }
    }

    /// Does a part of what there is to do; `false` when that is to end.
    pub(crate) fn turn(&mut self, plan: &Plan, messages: VecDeque<Message>) -> bool {
        for message in messages {
            match message {
                Message::DeferredRequest(deferred) => self.flows.push(*deferred),
                message => self.tasks.push_back(Task::Message(message)),
            }
        }
        self.tasks.extend(self.work.take().into_iter().map(Task::Work));
        let has_nothing = self.has_nothing();
        let store = &mut self.store;
        let now = store.shared.clock.now();
        let idle = has_nothing && plan.needs_maintenance && self.retry <= now;
        if has_nothing && plan.mark_at.is_some_and(|mark_at| mark_at <= now) {
            store.mark();
            if store.is_unmarked() {
                self.retry = store.shared.clock.now() + AGAIN;
            }
        }
        if !has_nothing || plan.is_job_due {
            self.busy = now;
        }
        if !self.serve_turn() {
            return false;
        }
        self.step();
        if self.store.disk.faults.has_failures() {
            self.store.look();
        }
        if idle && let Err(error) = self.store.maintain() {
            if !self.store.has_faults() {
                tracing::warn!("the drive cannot tidy up now: {error}");
            }
            self.retry = self.store.shared.clock.now() + AGAIN;
        }
        true
    }

    /// Gives back what nobody can reach any more, and has those who wait for space try again; gives
    /// how soon that is to be done again.
    fn reclaim(&mut self) -> Option<Duration> {
        let store = &mut self.store;
        let reclaim = store.extents.reclaim();
        let Some(until) = self.flows.waiting_until() else { return reclaim };
        // What is being zeroed is told of when it is there.
        let is_over = !store.extents.is_zeroing() && (reclaim.is_none() || until <= store.shared.clock.now());
        if store.extents.take_gave_back() || is_over {
            self.flows.retry_waiting();
        }
        reclaim.map(|soon| soon.min(RECLAIM_FOR_WRITE))
    }

    /// Whether nothing is to be done that was asked for.
    fn has_nothing(&self) -> bool {
        self.tasks.is_empty() && !self.flows.has_requests()
    }

    /// Does one turn of what is asked for; `false` when that is to end.
    fn serve_turn(&mut self) -> bool {
        let (store, flows) = (&mut self.store, &mut self.flows);
        let task = self.tasks.pop_front();
        let Turn { requests, long } = flows.turn();
        batch::serve(store, requests, long, flows, true);
        match task {
            Some(Task::Work(OwnerWork::Run(work))) => work(store),
            Some(Task::Work(OwnerWork::Stop)) => {
                self.stop();
                return false;
            }
            Some(Task::Message(Message::Flushed(point, flushes))) => {
                store.flushed(point);
                flushes.into_iter().for_each(|deferred| deferred.answer(Ok(())));
            }
            Some(Task::Message(Message::Zeroed(extents, result))) => store.extents.zeroed(extents, result),
            Some(Task::Message(Message::Failed)) => store.look(),
            // Requests are not among them.
            Some(Task::Message(Message::DeferredRequest(_))) | None => {}
        }
        true
    }

    /// Takes nothing any more, and does what is there.
    fn stop(&mut self) {
        let (store, flows) = (&mut self.store, &mut self.flows);
        drop(self.work.stop());
        refuse(store.shared.stop());
        flows.retry_waiting();
        while flows.has_requests() {
            let Turn { requests, long } = flows.turn();
            batch::serve(store, requests, long, flows, false);
        }
        for task in self.tasks.drain(..) {
            match task {
                Task::Message(message) => refuse(std::iter::once(message)),
                Task::Work(work) => drop(work),
            }
        }
    }

    /// One step of the job whose turn it is.
    fn step(&mut self) {
        let Some(mut due) = self.store.jobs.take_due(self.store.shared.clock.now()) else { return };
        let progress = due.step(&mut self.store);
        self.store.jobs.put_back(due, progress, self.store.shared.clock.now());
    }
}

/// The drive's thread takes nothing any more, and what is left is refused.
pub(crate) fn refuse_all(shared: &Shared, work: &WorkQueue) {
    shared.stop_flushes();
    drop(work.stop());
    refuse(shared.stop());
}

fn refuse(messages: impl IntoIterator<Item = Message>) {
    for message in messages {
        match message {
            Message::DeferredRequest(deferred) => deferred.finish(Err(stopped)),
            Message::Flushed(_, deferred_requests) => {
                deferred_requests.into_iter().for_each(|deferred| deferred.answer(Ok(())));
            }
            Message::Zeroed(..) | Message::Failed => {}
        }
    }
}
