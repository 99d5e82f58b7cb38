//! The drive's thread: what it does when, and how it begins and ends.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use ebof_backend::Device;
use ebof_drive::frame::Record;

use crate::disk::Disk;
use crate::shared::{Errand, Message, Shared};
use crate::thin::stopped;
use crate::{Job, Medium, OpenError, Opened, Options, Progress, Store, journal};

/// Requests that are done together.
const BATCH: usize = 256;

/// How soon extents are looked at again that somebody may still reach.
const SETTLE: Duration = Duration::from_millis(5);

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
        Ok((store, opened)) => {
            let shared = Arc::clone(&store.shared);
            if sender.send(Ok(opened)).is_ok() {
                serve(store);
            }
            drop(Ended(shared));
        }
        Err(error) => drop(sender.send(Err(error))),
    };
    let thread = std::thread::Builder::new().name("ebof-drive".to_owned()).spawn(run).map_err(OpenError::Thread)?;
    let gone = || OpenError::Thread(std::io::Error::other("it ended before the drive was open"));
    let Ready { shared, snapshot, changes, was_clean, created } = receiver.recv().map_err(|_| gone())??;
    Ok(Opened { medium: Medium::new(shared, thread), snapshot, changes, was_clean, created })
}

/// What the thread says when the drive is open.
struct Ready {
    shared: Arc<Shared>,
    snapshot: Option<Vec<u8>>,
    changes: Vec<Vec<u8>>,
    was_clean: bool,
    created: bool,
}

fn open(backing: Arc<dyn Device>, options: &Options) -> Result<(Store, Ready), OpenError> {
    let device = backing.describe();
    let mut disk = Disk::new(backing, options.engine).map_err(|source| OpenError::Device { device, source })?;
    let mut found = journal::open(&mut disk, options)?;
    let changes = std::mem::take(&mut found.changes);
    let state = std::mem::take(&mut found.checkpoint.state);
    let was_clean = found.checkpoint.clean && found.records.is_empty() && changes.is_empty();
    let created = found.created;
    let store = Store::restore(disk, found, options.notify.clone())?;
    let shared = Arc::clone(&store.shared);
    let snapshot = (!state.is_empty()).then_some(state);
    Ok((store, Ready { shared, snapshot, changes, was_clean, created }))
}

/// However the thread ends: nobody waits for it any more.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        refuse(self.0.stop());
    }
}

fn refuse(messages: VecDeque<Message>) {
    for message in messages {
        if let Message::Errand(errand) = message {
            errand.finish(Err(stopped));
        }
    }
}

fn serve(mut store: Store) {
    // A marker in the journal: from here on the drive is not as the checkpoint left it.
    if let Err(error) = store.append(&[Record::Water(store.allocator.water())], false) {
        tracing::error!("the journal of the drive cannot be written: {error}");
    }
    loop {
        let unsettled = store.settle();
        let stained = !store.allocator.stained(1).is_empty();
        let due = store.jobs.iter().map(|due| due.at.saturating_duration_since(Instant::now())).min();
        let patience = match (unsettled, stained) {
            // What was given back is zeroed when there is nothing else to do.
            (_, true) => Some(Duration::ZERO),
            (true, false) => Some(due.map_or(SETTLE, |due| due.min(SETTLE))),
            (false, false) => due,
        };
        let messages = store.shared.take(patience);
        let idle = messages.is_empty();
        if !store.answer(messages) {
            break;
        }
        store.step();
        if idle && stained {
            // An error is tried again when the extents are needed, or at the next turn without work.
            if let Err(error) = store.wash() {
                tracing::warn!("what was given back to the drive cannot be zeroed now: {error}");
                std::thread::sleep(SETTLE);
            }
        }
    }
    while store.settle() {
        std::thread::sleep(SETTLE);
    }
    if let Err(error) = store.checkpoint(true) {
        tracing::error!("the drive cannot be closed in order: {error}");
    }
}

impl Store {
    /// Does what is asked for, in order; `false` when that is to end.
    fn answer(&mut self, messages: VecDeque<Message>) -> bool {
        let mut batch: Vec<Errand> = Vec::new();
        let mut messages = messages.into_iter();
        while let Some(message) = messages.next() {
            match message {
                Message::Errand(errand) => {
                    batch.push(*errand);
                    if batch.len() == BATCH {
                        self.run_errands(std::mem::take(&mut batch));
                    }
                }
                Message::Run(work) => {
                    self.run_errands(std::mem::take(&mut batch));
                    // Somebody else's mistake must not take the drive's thread with it.
                    if catch_unwind(AssertUnwindSafe(|| work(self))).is_err() {
                        tracing::error!("work on the drive's thread panicked");
                    }
                }
                Message::Stop => {
                    self.run_errands(batch);
                    refuse(self.shared.stop());
                    refuse(messages.collect());
                    return false;
                }
            }
        }
        self.run_errands(batch);
        true
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
