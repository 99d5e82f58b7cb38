//! The engine for kernels that do not permit io_uring: a few threads that make blocking system
//! calls.
//!
//! Slower, and otherwise the same: a bounded number of requests, one hand-over per batch, a file
//! descriptor that is readable while completions wait. The threads start with the first request.
//! When the engine is dropped, they finish what it accepted and end.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{Errno, ReadWriteFlags};

use crate::io::remote::{Inbox, Remote};
use crate::io::stats::IoStats;
use crate::job::{Job, JobStep, Progress, SEGMENTS_MAX};
use crate::{Completion, Error, Vital};

/// Threads per engine. Beyond a few, more of them wait for the same medium.
const THREADS: usize = 4;

/// Requests in flight on a few threads, and those threads.
#[derive(Debug)]
pub(crate) struct Threads {
    shared: Arc<Shared>,
    /// Readable while completions wait.
    event: Arc<OwnedFd>,
    workers: Vec<JoinHandle<()>>,
    /// Accepted, not yet handed over.
    batch: Vec<Job>,
    /// Taken from `shared.done`, not yet returned.
    finished: VecDeque<Completion>,
    in_flight: usize,
    in_flight_max: usize,
    stats: IoStats,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Signalled when jobs were added, or at the end.
    work: Condvar,
    done: Arc<Inbox>,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// The request of each thread: its tag, and whether it was cancelled.
    running: [Option<(u64, bool)>; THREADS],
    stop: bool,
}

impl Threads {
    pub(crate) fn new(entries: usize) -> Result<Threads, Error> {
        let (done, event) = Inbox::new().map_err(|source| engine_error("create an eventfd", source))?;
        let shared = Shared { queue: Mutex::default(), work: Condvar::new(), done };
        Ok(Threads {
            shared: Arc::new(shared),
            event,
            workers: Vec::new(),
            batch: Vec::new(),
            finished: VecDeque::new(),
            in_flight: 0,
            in_flight_max: entries,
            stats: IoStats::default(),
        })
    }

    pub(crate) fn start(&mut self, job: Job) -> Result<(), Box<Job>> {
        if self.in_flight == self.in_flight_max {
            return Err(Box::new(job));
        }
        self.batch.push(job);
        self.in_flight += 1;
        self.stats.accepted += 1;
        Ok(())
    }

    /// A handle for a request that another thread completes; `None` if as many as allowed are in
    /// flight.
    pub(crate) fn remote(&mut self) -> Option<Remote> {
        if self.in_flight == self.in_flight_max {
            return None;
        }
        self.in_flight += 1;
        self.stats.accepted += 1;
        Some(Remote::new(&self.shared.done))
    }

    pub(crate) fn kick(&mut self) -> Result<(), Error> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.start_workers()?;
        let more_than_one = self.batch.len() > 1;
        lock(&self.shared.queue).jobs.extend(self.batch.drain(..));
        self.stats.handovers += 1;
        if more_than_one {
            self.shared.work.notify_all();
        } else {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    fn start_workers(&mut self) -> Result<(), Error> {
        while self.workers.len() < THREADS {
            let shared = Arc::clone(&self.shared);
            let index = self.workers.len();
            let worker = std::thread::Builder::new().name(format!("backend-io-{index}"));
            match worker.spawn(move || shared.work_until_stopped(index)) {
                Ok(worker) => self.workers.push(worker),
                // Fewer threads suffice, but not none.
                Err(_limit) if !self.workers.is_empty() => break,
                Err(source) => return Err(engine_error("start a thread", source)),
            }
        }
        Ok(())
    }

    pub(crate) fn poll(&mut self) -> Option<Completion> {
        if self.finished.is_empty() && self.in_flight > 0 {
            self.shared.done.drain(&mut self.finished);
        }
        let completion = self.finished.pop_front()?;
        // Each job and each handle of another thread delivers one completion.
        self.in_flight = self.in_flight.checked_sub(1).expect("what has finished was in flight");
        self.stats.completed += 1;
        Some(completion)
    }

    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Completion>, Error> {
        // A time-out that the kernel cannot represent is taken for none.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        loop {
            if let Some(completion) = self.poll() {
                return Ok(Some(completion));
            }
            if self.in_flight == 0 {
                return Ok(None);
            }
            self.kick()?;
            let mut set = [PollFd::new(&*self.event, PollFlags::IN)];
            match rustix::event::poll(&mut set, timeout.as_ref()) {
                Ok(0) => return Ok(self.poll()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(source) => return Err(engine_error("wait for completions", source.into())),
            }
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn stats(&self) -> IoStats {
        self.stats
    }

    pub(crate) fn cancel(&mut self, tag: u64) -> bool {
        if let Some(index) = self.batch.iter().position(|job| job.tag() == tag) {
            let job = self.batch.remove(index);
            self.shared.done.push(job.aborted());
            return true;
        }
        let mut queue = lock(&self.shared.queue);
        if let Some(index) = queue.jobs.iter().position(|job| job.tag() == tag) {
            let job = queue.jobs.remove(index).expect("it was found there");
            drop(queue);
            self.shared.done.push(job.aborted());
            return true;
        }
        for (running, cancelled) in queue.running.iter_mut().flatten() {
            if *running == tag {
                *cancelled = true;
                return true;
            }
        }
        drop(queue);
        // Completed, but not returned yet: for the caller it is still in flight.
        self.finished.iter().any(|completion| completion.tag == tag) || self.shared.done.contains(tag)
    }
}

impl AsFd for Threads {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Accepted requests are done, as with io_uring.
        let handed_over = self.kick();
        lock(&self.shared.queue).stop = true;
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // It cannot have panicked: that ends the process.
            let _ended = worker.join();
        }
        if let Err(error) = handed_over {
            tracing::error!(%error, "requests dropped undone");
        }
    }
}

impl Shared {
    fn work_until_stopped(&self, index: usize) {
        let _vital = Vital::new();
        while let Some(mut job) = self.next_job(index) {
            let result = loop {
                let outcome = perform(&mut job);
                if lock(&self.queue).running[index].is_some_and(|(_, cancelled)| cancelled) {
                    job.cancel();
                }
                if let Progress::Finished(result) = job.advance(outcome) {
                    break result;
                }
            };
            // In this order: a request is always to be found somewhere, else `cancel` would call it
            // unknown.
            self.done.push(job.complete(result));
            lock(&self.queue).running[index] = None;
        }
    }

    fn next_job(&self, index: usize) -> Option<Job> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                queue.running[index] = Some((job.tag(), false));
                return Some(job);
            }
            if queue.stop {
                return None;
            }
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Does the current step of a job, by a blocking system call.
pub(crate) fn perform(job: &mut Job) -> Result<usize, Errno> {
    // The descriptor and the step borrow the job in different ways, hence the second handle to the
    // file.
    let file = Arc::clone(job.file());
    let fd = file.fd();
    match job.step() {
        JobStep::Read { offset, into } => rustix::io::pread(fd, into, offset),
        JobStep::Write { offset, from, sync: true } => {
            rustix::io::pwritev2(fd, &[IoSlice::new(from)], offset, ReadWriteFlags::DSYNC)
        }
        JobStep::Write { offset, from, sync: false } => rustix::io::pwrite(fd, from, offset),
        JobStep::ReadSegments { offset, mut into } => rustix::io::preadv(fd, &mut into, offset),
        JobStep::WriteSegments { offset, from, sync: true } => {
            rustix::io::pwritev2(fd, &from, offset, ReadWriteFlags::DSYNC)
        }
        JobStep::WriteSegments { offset, from, sync: false } => rustix::io::pwritev(fd, &from, offset),
        JobStep::ReadShared { offset, into } => {
            let into: Vec<_> = into.io_slices().take(SEGMENTS_MAX).collect();
            ebof_region::read_at(fd, &into, offset).map_err(|error| errno(&error))
        }
        JobStep::WriteShared { offset, from, sync } => {
            let from: Vec<_> = from.io_slices().take(SEGMENTS_MAX).collect();
            ebof_region::write_at(fd, &from, offset, sync).map_err(|error| errno(&error))
        }
        JobStep::Allocate { mode, offset, len } => rustix::fs::fallocate(fd, mode, offset, len).map(|()| 0),
        JobStep::Sync => rustix::fs::fdatasync(fd).map(|()| 0),
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// A lock is poisoned when a thread panicked while it held it; nothing here panics between two
/// related changes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn engine_error(what: &'static str, source: std::io::Error) -> Error {
    Error::Engine { what, hint: "; see `ulimit -n`, `ulimit -u` and the memory left", source }
}
