//! The drive's thread: what it does when, and how it begins and ends.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ebof_backend::{Device, Vital};

use crate::disk::Disk;
use crate::flows::{Flows, Turn};
use crate::journal::Point;
use crate::shared::{Errand, Message, Shared};
use crate::thin::stopped;
use crate::{Damage, Job, Medium, OpenError, Opened, Options, Progress, Store, flusher, journal, washer};

/// How soon extents are looked at again that somebody may still reach, where a write waits for one.
const SETTLE_FOR_WRITE: Duration = Duration::from_millis(1);

/// How long the journal rests before a mark says how much of it is flushed: while it is written, its frames say so.
const MARK: Duration = Duration::from_millis(2);

/// How soon what failed is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// A job, and when its next step is due.
pub(crate) struct Due {
    job: Box<dyn Job>,
    at: Instant,
}

impl Due {
    pub(crate) fn now(job: Box<dyn Job>) -> Self {
        Self { job, at: Instant::now() }
    }
}

/// Starts the thread of a drive; it opens the drive itself.
pub(crate) fn start(backing: Arc<dyn Device>, options: Options) -> Result<Opened, OpenError> {
    let (sender, receiver) = mpsc::channel();
    let run = move || match open(backing, &options) {
        Ok((mut store, opened)) => {
            let shared = Arc::clone(&store.shared);
            let flusher = match flusher::start(&shared, options.engine) {
                Ok(flusher) => flusher,
                Err(error) => return drop(sender.send(Err(OpenError::Thread(error)))),
            };
            let mut ended = Ended { shared: Arc::clone(&shared), threads: vec![flusher] };
            match washer::start(&shared, options.engine) {
                Ok((loads, washer)) => {
                    store.washer = Some(loads);
                    ended.threads.push(washer);
                }
                Err(error) => return drop(sender.send(Err(OpenError::Thread(error)))),
            }
            drop(shared);
            if sender.send(Ok(opened)).is_ok() {
                serve(store);
            } else {
                // With the way to the thread that zeroes.
                drop(store);
            }
            drop(ended);
        }
        Err(error) => drop(sender.send(Err(error))),
    };
    let thread = std::thread::Builder::new().name("ebof-drive".to_owned()).spawn(run).map_err(OpenError::Thread)?;
    let gone = || OpenError::Thread(std::io::Error::other("it ended before the drive was open"));
    let Ready { shared, snapshot, changes, was_clean, created, damage } = receiver.recv().map_err(|_| gone())??;
    Ok(Opened { medium: Medium::new(shared, thread), snapshot, changes, was_clean, created, damage })
}

/// What the thread says when the drive is open.
struct Ready {
    shared: Arc<Shared>,
    snapshot: Option<Vec<u8>>,
    changes: Vec<Vec<u8>>,
    was_clean: bool,
    created: bool,
    damage: Option<Damage>,
}

fn open(backing: Arc<dyn Device>, options: &Options) -> Result<(Store, Ready), OpenError> {
    let device = backing.describe();
    let mut disk = Disk::new(backing, options.engine).map_err(|source| OpenError::Device { device, source })?;
    let found = journal::open(&mut disk, options)?;
    if let Some(damage) = &found.mended {
        let device = disk.base().describe();
        tracing::error!(
            device,
            "the drive is damaged: {damage}. The checkpoint and the journal before it lead to the same state: nothing is \
             lost, and a new checkpoint is written"
        );
    }
    disk.read_only = found.lost.is_some();
    let (changes, state) = (found.changes.clone(), found.state.clone());
    let (was_clean, created) = (found.was_clean, found.created);
    let damage = found.lost.as_ref().map(|lost| lost.damage.clone());
    let store = Store::restore(disk, found, options)?;
    let shared = Arc::clone(&store.shared);
    let snapshot = (!state.is_empty()).then_some(state);
    Ok((store, Ready { shared, snapshot, changes, was_clean, created, damage }))
}

/// However the thread ends: nobody waits for it any more, and the threads beside it have ended.
struct Ended {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.shared.stop_flushes();
        refuse(self.shared.stop());
        for thread in self.threads.drain(..) {
            // It cannot have panicked: that ends the process.
            let _ended = thread.join();
        }
        // They hold what holds them: the backing device is to be closed with the last of them that somebody else has.
        self.shared.forget();
    }
}

fn refuse(messages: VecDeque<Message>) {
    for message in messages {
        match message {
            Message::Errand(errand) => errand.finish(Err(stopped)),
            Message::Flushed(_, errands) => errands.into_iter().for_each(|errand| errand.answer(Ok(()))),
            Message::Run(_) | Message::Washed(..) | Message::Stop => {}
        }
    }
}

fn serve(mut store: Store) {
    if !store.is_read_only() {
        store.begin();
    }
    // When what failed is tried again, beside those who need it.
    let mut retry = Instant::now();
    // When the journal was last written, perhaps.
    let mut busy = Instant::now();
    let mut flows = Flows::default();
    // What is in memory may not be what is in the journal then: nothing more is to be written by this process.
    let _vital = Vital::new();
    loop {
        let mut settle = store.settle();
        if let Some(until) = flows.parked_until() {
            // What is being zeroed is told of when it is there.
            let is_over = store.washing == 0 && (settle.is_none() || until <= Instant::now());
            if std::mem::take(&mut store.gave_back) || is_over {
                flows.unpark();
            }
            settle = settle.map(|soon| soon.min(SETTLE_FOR_WRITE));
        }
        // What was given back is zeroed when there is nothing else to do; where that is slow, only when it is needed.
        let stained = store.allocator.is_stained() && store.zeroes_quickly() && !store.is_held && store.washing == 0;
        let now = Instant::now();
        let due = store.jobs.iter().map(|due| due.at.saturating_duration_since(now)).min();
        let untidy = stained || !store.is_sure() || store.has_unsettled() || store.owes_keys();
        let tidy = (untidy || !store.tags.reverted.is_empty()).then(|| retry.saturating_duration_since(now));
        let tidy = tidy.filter(|_| !store.is_read_only());
        let mark_at = busy.max(retry) + MARK;
        let mark = store.is_unmarked().then(|| mark_at.saturating_duration_since(now));
        let more = (!flows.is_empty()).then_some(Duration::ZERO);
        let mut messages = store.shared.take([due, settle, tidy, mark, more].into_iter().flatten().min());
        if !messages.is_empty() && more.is_none() {
            store.shared.gather(&mut messages, store.together);
        }
        messages.into_iter().for_each(|message| flows.push(message));
        let idle = flows.is_empty() && tidy.is_some() && retry <= Instant::now();
        if flows.is_empty() && mark.is_some() && mark_at <= Instant::now() {
            store.mark();
            if store.is_unmarked() {
                retry = Instant::now() + AGAIN;
            }
        }
        if !flows.is_empty() || due == Some(Duration::ZERO) {
            busy = Instant::now();
        }
        if !store.serve_turn(&mut flows) {
            break;
        }
        store.step();
        if !store.disk.failures.is_empty() {
            store.look();
        }
        if idle && let Err(error) = store.tidy() {
            if !store.is_troubled() {
                tracing::warn!("the drive cannot tidy up now: {error}");
            }
            retry = Instant::now() + AGAIN;
        }
    }
    if store.is_read_only() {
        return;
    }
    // What is given back and still in use by others belongs to no namespace any more: the next life finds it free.
    if let Err(error) = store.checkpoint(true) {
        tracing::error!("the drive cannot be closed in order: {error}");
    }
    store.mark();
}

impl Store {
    /// Makes of what was found what this life goes on from.
    fn begin(&mut self) {
        if let Err(error) = self.forget_keys() {
            tracing::error!("the keys of the drive cannot be written: {error}");
        }
        // From here on the drive is not as the checkpoint left it.
        if let Err(error) = self.make_sure() {
            tracing::error!("the journal of the drive cannot be written: {error}");
        }
        if self.journal.skips
            && let Err(error) = self.checkpoint(false)
        {
            tracing::error!("the damaged checkpoint of the drive cannot be replaced: {error}");
        }
        self.publish(self.shared.thins().iter());
    }

    /// Whether more is flushed than the medium says.
    fn is_unmarked(&self) -> bool {
        !self.is_read_only() && !self.journal.is_marked()
    }

    /// Does one turn of what is asked for; `false` when that is to end.
    fn serve_turn(&mut self, flows: &mut Flows) -> bool {
        let Turn { requests, long, run } = flows.turn();
        self.run_errands(requests, long, flows, true);
        match run {
            Some(Message::Run(work)) => work(self),
            Some(Message::Flushed(point, flushes)) => self.flushed(point, flushes),
            Some(Message::Washed(extents, result)) => self.washed(extents, result),
            Some(Message::Stop) => {
                // Nothing is taken any more; what is there is done.
                refuse(self.shared.stop());
                flows.unpark();
                while flows.has_requests() {
                    let Turn { requests, long, run } = flows.turn();
                    self.run_errands(requests, long, flows, false);
                    refuse(run.into_iter().collect());
                }
                refuse(flows.take_runs());
                return false;
            }
            Some(Message::Errand(_)) | None => {}
        }
        true
    }

    /// Flushes are over.
    fn flushed(&mut self, point: Point, flushes: Vec<Errand>) {
        self.journal.raise(point);
        if self.journal.durable == self.journal.next {
            self.shared.unflushed.store(false, Ordering::Release);
        }
        self.mark();
        flushes.into_iter().for_each(|errand| errand.answer(Ok(())));
    }

    /// One step of the job whose turn it is.
    fn step(&mut self) {
        let now = Instant::now();
        let next = self.jobs.iter().enumerate().filter(|(_, due)| due.at <= now).min_by_key(|(_, due)| due.at);
        let Some(at) = next.map(|(at, _)| at) else { return };
        let mut due = self.jobs.remove(at);
        match due.job.step(self) {
            Progress::Again => due.at = Instant::now(),
            Progress::Later(ms) => due.at = Instant::now() + Duration::from_millis(ms),
            Progress::Done => return,
        }
        self.jobs.push(due);
    }
}
