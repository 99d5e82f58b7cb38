//! The drive's thread: what it does when, and how it begins and ends.

use std::collections::VecDeque;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ebof_backend::{Device, Vital};

use crate::disk::Disk;
use crate::flows::{Flows, Turn};
use crate::shared::{Message, Shared};
use crate::thin::stopped;
use crate::{Damage, Medium, OpenError, Opened, Options, Store, batch, flusher, open, zeroing};

/// How soon extents are looked at again that somebody may still reach, where a write waits for one.
const SETTLE_FOR_WRITE: Duration = Duration::from_millis(1);

/// How long the journal rests before a mark says how much of it is flushed: while it is written, its frames say so.
const MARK: Duration = Duration::from_millis(2);

/// How soon what failed is tried again.
const AGAIN: Duration = Duration::from_millis(100);

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
            match zeroing::start(&shared, options.engine) {
                Ok((loads, thread)) => {
                    store.extents.set_zeroing_thread(loads);
                    ended.threads.push(thread);
                }
                Err(error) => return drop(sender.send(Err(OpenError::Thread(error)))),
            }
            drop(shared);
            if sender.send(Ok(opened)).is_ok() {
                Worker::new(store).serve();
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
    let found = open::open(&mut disk, options)?;
    if let Some(damage) = &found.mended {
        let device = disk.base().describe();
        tracing::error!(
            device,
            "the drive is damaged: {damage}. The checkpoint and the journal before it lead to the same state: nothing is \
             lost, and a new checkpoint is written"
        );
    }
    if found.lost.is_some() {
        disk.set_read_only();
    }
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
            Message::Run(_) | Message::Zeroed(..) | Message::Stop => {}
        }
    }
}

/// The drive's thread at work: what it is asked for, and the store that does it.
struct Worker {
    store: Store,
    flows: Flows,
    /// When what failed is tried again, beside those who need it.
    retry: Instant,
    /// When the journal was last written, perhaps.
    busy: Instant,
}

impl Worker {
    fn new(store: Store) -> Self {
        Self { store, flows: Flows::default(), retry: Instant::now(), busy: Instant::now() }
    }

    /// Serves until it is told to stop, and closes the drive.
    fn serve(mut self) {
        if !self.store.is_read_only() {
            self.store.begin();
        }
        // What is in memory may not be what is in the journal then: nothing more is to be written by this process.
        let _vital = Vital::new();
        while self.turn() {}
        if self.store.is_read_only() {
            return;
        }
        // What is given back and still in use by others belongs to no namespace any more: the next life finds it free.
        if let Err(error) = self.store.checkpoint(true) {
            tracing::error!("the drive cannot be closed in order: {error}");
        }
        self.store.mark();
    }

    /// Waits until there is something to do, and does a part of it; `false` when that is to end.
    fn turn(&mut self) -> bool {
        let settle = self.settle();
        let store = &mut self.store;
        let now = Instant::now();
        let due = store.jobs.next_in(now);
        let tidy = store.is_untidy().then(|| self.retry.saturating_duration_since(now));
        let mark_at = self.busy.max(self.retry) + MARK;
        let mark = store.is_unmarked().then(|| mark_at.saturating_duration_since(now));
        let more = (!self.flows.is_empty()).then_some(Duration::ZERO);
        let mut messages = store.shared.take([due, settle, tidy, mark, more].into_iter().flatten().min());
        if !messages.is_empty() && more.is_none() {
            store.shared.gather(&mut messages, self.flows.together());
        }
        messages.into_iter().for_each(|message| self.flows.push(message));
        let idle = self.flows.is_empty() && tidy.is_some() && self.retry <= Instant::now();
        if self.flows.is_empty() && mark.is_some() && mark_at <= Instant::now() {
            store.mark();
            if store.is_unmarked() {
                self.retry = Instant::now() + AGAIN;
            }
        }
        if !self.flows.is_empty() || due == Some(Duration::ZERO) {
            self.busy = Instant::now();
        }
        if !self.serve_turn() {
            return false;
        }
        self.step();
        if self.store.disk.troubles.has_failures() {
            self.store.look();
        }
        if idle && let Err(error) = self.store.tidy() {
            if !self.store.is_troubled() {
                tracing::warn!("the drive cannot tidy up now: {error}");
            }
            self.retry = Instant::now() + AGAIN;
        }
        true
    }

    /// Gives back what nobody can reach any more, and has those who wait for space try again; gives how soon that is to be done
    /// again.
    fn settle(&mut self) -> Option<Duration> {
        let store = &mut self.store;
        let settle = store.extents.settle();
        let Some(until) = self.flows.parked_until() else { return settle };
        // What is being zeroed is told of when it is there.
        let is_over = !store.extents.is_zeroing() && (settle.is_none() || until <= Instant::now());
        if store.extents.take_gave_back() || is_over {
            self.flows.unpark();
        }
        settle.map(|soon| soon.min(SETTLE_FOR_WRITE))
    }

    /// Does one turn of what is asked for; `false` when that is to end.
    fn serve_turn(&mut self) -> bool {
        let (store, flows) = (&mut self.store, &mut self.flows);
        let Turn { requests, long, run } = flows.turn();
        batch::serve(store, requests, long, flows, true);
        match run {
            Some(Message::Run(work)) => work(store),
            Some(Message::Flushed(point, flushes)) => {
                store.flushed(point);
                flushes.into_iter().for_each(|errand| errand.answer(Ok(())));
            }
            Some(Message::Zeroed(extents, result)) => store.extents.zeroed(extents, result),
            Some(Message::Stop) => {
                // Nothing is taken any more; what is there is done.
                refuse(store.shared.stop());
                flows.unpark();
                while flows.has_requests() {
                    let Turn { requests, long, run } = flows.turn();
                    batch::serve(store, requests, long, flows, false);
                    refuse(run.into_iter().collect());
                }
                refuse(flows.take_runs());
                return false;
            }
            Some(Message::Errand(_)) | None => {}
        }
        true
    }

    /// One step of the job whose turn it is.
    fn step(&mut self) {
        let Some(mut due) = self.store.jobs.take_due(Instant::now()) else { return };
        let progress = due.step(&mut self.store);
        self.store.jobs.put_back(due, progress);
    }
}
