//! The engine on io_uring. Its entries point into buffers, which takes unsafe code.
//!
//! Soundness rests on one rule. A [`Job`], and with it its memory and its open file, sits in a slot
//! from before its entry is pushed until the kernel has completed that entry, and nobody touches it
//! in between. When the engine is dropped it waits for the kernel; should the kernel refuse to let
//! it wait, the slots are leaked rather than freed.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, squeue, types};
use rustix::io::Errno;

use crate::io::registered::{CLEARED_MAX, Choice, ENTRIES, Registered};
use crate::io::remote::{Inbox, Remote};
use crate::io::stats::IoStats;
use crate::job::{BATCH_MAX, Job, JobStep, Progress, SEGMENTS_MAX};
use crate::request::segments::SharedRange;
use crate::{Completion, Error, Region};

/// An io_uring with its requests in flight.
pub(crate) struct Ring {
    ring: IoUring,
    slots: Vec<Slot>,
    /// Indices of the slots without a job.
    free: Vec<u32>,
    /// Slots whose next entry found the submission queue full.
    unpushed: Vec<u32>,
    /// Entries were pushed since the last `io_uring_enter`.
    pushed: bool,
    /// Requests that were accepted since then.
    waiting: usize,
    /// A later step of a request in flight was pushed: the caller does not know that it has to
    /// kick.
    continued: bool,
    /// Completions from other threads. The ring polls its descriptor, so that they wake a thread
    /// that sleeps on the ring.
    inbox: Arc<Inbox>,
    /// Readable while something is in the inbox.
    inbox_event: Arc<OwnedFd>,
    /// Requests that other threads complete.
    remote: usize,
    /// Taken from the inbox, not yet returned.
    arrived: VecDeque<Completion>,
    watch: Watch,
    /// Dropped after the ring: what the kernel knows of regions ends with it.
    registered: Registered,
    stats: IoStats,
}

/// Whether the ring polls the inbox's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watch {
    Off,
    /// It should, but the submission queue was full.
    Wanted,
    On,
}

#[derive(Debug)]
struct Slot {
    job: Option<Job>,
    /// The segments of its step, for the kernel.
    vectors: Vec<libc::iovec>,
    /// Counts the jobs of this slot, so that a late cancel does not hit the next one.
    generation: u32,
}

/// The user data of a cancel entry, whose own completion means nothing.
const CANCEL: u64 = u64::MAX;
/// The user data of the entry that watches the inbox.
const INBOX: u64 = u64::MAX - 1;
/// How often a temporary error of `io_uring_enter` is retried.
const ENTER_ATTEMPTS_MAX: u32 = 16;

impl Ring {
    /// # Errors
    /// `EPERM`, `EACCES` or `ENOSYS` where io_uring is not permitted or too old, others where it
    /// fails.
    pub(crate) fn new(entries: usize) -> io::Result<Ring> {
        let count = u32::try_from(entries).unwrap_or(u32::MAX);
        let ring = build(count)?;
        check_opcodes(&ring)?;
        let (inbox, inbox_event) = Inbox::new()?;
        // The slots never move: their number is fixed here.
        let slots = (0..count).map(|_| Slot { job: None, vectors: Vec::new(), generation: 0 }).collect();
        Ok(Ring {
            ring,
            slots,
            free: (0..count).rev().collect(),
            unpushed: Vec::new(),
            pushed: false,
            waiting: 0,
            continued: false,
            inbox,
            inbox_event,
            remote: 0,
            arrived: VecDeque::new(),
            watch: Watch::Off,
            registered: Registered::new(),
            stats: IoStats::default(),
        })
    }

    pub(crate) fn start(&mut self, job: Job) -> Result<(), Box<Job>> {
        let Some(index) = self.free.pop() else {
            return Err(Box::new(job));
        };
        let slot = &mut self.slots[slot_index(index)];
        // Slots become free when the kernel is done with their job, whose memory would be freed
        // here under its hands.
        assert!(slot.job.is_none(), "a free slot has a job");
        // All ones is CANCEL's, together with an index that no ring is large enough to have.
        slot.generation = slot.generation.wrapping_add(1);
        slot.job = Some(job);
        self.stats.accepted += 1;
        self.push_step(index);
        self.waiting += 1;
        // So many do not wait for `kick`.
        if self.waiting >= BATCH_MAX {
            // After an error they stay queued for the caller's kick, which reports it.
            let _queued: Result<(), Error> = self.kick();
        }
        Ok(())
    }

    pub(crate) fn kick(&mut self) -> Result<(), Error> {
        while self.pushed || self.has_unpushed() {
            if self.watch == Watch::Wanted {
                self.watch_inbox();
            }
            for index in std::mem::take(&mut self.unpushed) {
                self.push_step(index);
            }
            self.submit()?;
        }
        self.continued = false;
        if self.registered.table().has_returned() {
            self.clear_returned(CLEARED_MAX);
        }
        Ok(())
    }

    /// Whether something found the submission queue full.
    fn has_unpushed(&self) -> bool {
        !self.unpushed.is_empty() || self.watch == Watch::Wanted
    }

    /// A handle for a request that another thread completes; `None` if as many as allowed are in
    /// flight.
    pub(crate) fn remote(&mut self) -> Option<Remote> {
        if self.in_flight() >= self.slots.len() {
            return None;
        }
        self.remote += 1;
        self.stats.accepted += 1;
        if self.watch == Watch::Off {
            self.watch_inbox();
        }
        Some(Remote::new(&self.inbox))
    }

    /// Has the ring poll the inbox's descriptor, once.
    fn watch_inbox(&mut self) {
        let fd = types::Fd(self.inbox_event.as_raw_fd());
        let entry = opcode::PollAdd::new(fd, u32::from(libc::POLLIN.cast_unsigned())).build().user_data(INBOX);
        // SAFETY: the entry refers to no memory, and the kernel holds the descriptor's file itself.
        // JUSTIFICATION: io_uring has no safe interface for pushing entries.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        self.pushed |= pushed.is_ok();
        self.watch = if pushed.is_ok() { Watch::On } else { Watch::Wanted };
    }

    /// The next completion from another thread.
    #[cold]
    fn poll_remote(&mut self) -> Option<Completion> {
        if self.arrived.is_empty() {
            self.inbox.drain(&mut self.arrived);
        }
        let completion = self.arrived.pop_front()?;
        // Each handle delivers one completion.
        self.remote = self.remote.checked_sub(1).expect("what has arrived was in flight");
        self.stats.completed += 1;
        Some(completion)
    }

    /// Hands over the whole submission queue.
    fn submit(&mut self) -> Result<(), Error> {
        self.stats.handovers += 1;
        self.waiting = 0;
        let mut attempts = 0;
        loop {
            match self.ring.submit() {
                Ok(_) if self.ring.submission().is_empty() => {
                    self.pushed = false;
                    return Ok(());
                }
                // The kernel took only a part: the next call returns the error.
                Ok(_) => {}
                Err(error) if is_temporary(&error) && attempts < ENTER_ATTEMPTS_MAX => attempts += 1,
                Err(source) => return Err(Error::Engine { what: "submit to io_uring", hint: "", source }),
            }
        }
    }

    pub(crate) fn poll(&mut self) -> Option<Completion> {
        let mut entered = false;
        loop {
            if self.remote != 0
                && let Some(completion) = self.poll_remote()
            {
                return Some(completion);
            }
            let entry = self.ring.completion().next();
            if let Some(entry) = entry {
                if let Some(completion) = self.take_in(entry.user_data(), entry.result()) {
                    self.stats.completed += 1;
                    return Some(completion);
                }
                continue;
            }
            if !entered && (self.continued || self.has_unpushed()) {
                // After an error they stay queued for the caller's next kick, which reports it.
                let _queued: Result<(), Error> = self.kick();
                entered = true;
                continue;
            }
            let waiting = {
                let submission = self.ring.submission();
                submission.taskrun() || submission.cq_overflow()
            };
            if entered || !waiting {
                return None;
            }
            // Completions wait in the kernel for this thread to come and fetch them. The call also
            // submits what was pushed; a failure leaves everything as it is for the next call.
            entered = true;
            let _fetched: io::Result<usize> = self.ring.submit();
        }
    }

    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Completion>, Error> {
        loop {
            if let Some(completion) = self.poll() {
                return Ok(Some(completion));
            }
            if self.in_flight() == 0 {
                return Ok(None);
            }
            if self.has_unpushed() || self.registered.table().has_returned() {
                self.kick()?;
            }
            self.stats.handovers += u64::from(self.pushed);
            let waited = match timeout {
                Some(timeout) => {
                    let timeout = types::Timespec::from(timeout);
                    self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&timeout))
                }
                None => self.ring.submit_and_wait(1),
            };
            match waited {
                Ok(_) => {
                    self.pushed = !self.ring.submission().is_empty();
                    self.waiting = 0;
                }
                Err(error) if Errno::from_io_error(&error) == Some(Errno::TIME) => return Ok(self.poll()),
                Err(error) if is_temporary(&error) => {}
                Err(source) => return Err(Error::Engine { what: "wait for io_uring", hint: "", source }),
            }
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len() + self.remote
    }

    pub(crate) fn stats(&self) -> IoStats {
        self.stats
    }

    /// The entry of a region in the ring's table of buffers; makes one where that pays. `None`:
    /// the transfer names its memory by address.
    #[inline]
    fn entry_of_region(ring: &IoUring, registered: &mut Registered, region: &Region) -> Option<u16> {
        match registered.choose(region.entry(), || region.count_use()) {
            Choice::Entry(index) => Some(index),
            Choice::Address => None,
            Choice::Register => Self::register(ring, registered, region),
        }
    }

    #[cold]
    fn register(ring: &IoUring, registered: &mut Registered, region: &Region) -> Option<u16> {
        if registered.needs_table() {
            match ring.submitter().register_buffers_sparse(ENTRIES.into()) {
                Ok(()) => registered.table_made(),
                Err(error) => {
                    tracing::info!(%error, "no memory can be registered with io_uring: direct I/O takes more time");
                    registered.refused();
                    return None;
                }
            }
        }
        // What is freed is not to be pinned beside what is used in its place: it goes first, a few
        // entries with each `kick`.
        if registered.table().has_returned() {
            return None;
        }
        let index = registered.take_free()?;
        match update_entry(ring, index, vector(region.address(), region.capacity())) {
            // Where another ring was first, this entry comes back.
            Ok(()) => region.set_entry(registered.table().entry(index)).then_some(index),
            Err(error) => {
                // Once for each ring.
                tracing::warn!(%error, "no more memory can be registered with io_uring: direct I/O takes more time");
                registered.put_free(index);
                registered.refused();
                None
            }
        }
    }

    /// Clears entries of regions that are gone, at most so many.
    #[cold]
    fn clear_returned(&mut self, max: usize) {
        for index in self.registered.table().take_returned(max) {
            match update_entry(&self.ring, index, vector(std::ptr::null_mut(), 0)) {
                Ok(()) => self.registered.put_free(index),
                // Its pages stay pinned until the ring ends; no other region gets the entry.
                Err(error) => tracing::warn!(%error, index, "memory stays pinned: its entry cannot be cleared"),
            }
        }
    }

    pub(crate) fn release_memory(&mut self) {
        self.clear_returned(ENTRIES.into());
    }

    pub(crate) fn cancel(&mut self, tag: u64) -> bool {
        let found = self.slots.iter().position(|slot| slot.job.as_ref().is_some_and(|job| job.tag() == tag));
        let Some(position) = found else {
            return false;
        };
        let slot = &mut self.slots[position];
        if let Some(job) = slot.job.as_mut() {
            job.cancel();
        }
        let index = u32::try_from(position).expect("the number of slots was given as u32");
        let entry = opcode::AsyncCancel::new(user_data(index, slot.generation)).build().user_data(CANCEL);
        // SAFETY: the entry refers to no memory.
        // JUSTIFICATION: io_uring has no safe interface for pushing entries.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // If the queue is full, the request is only marked, and aborted after its current step.
        self.pushed |= pushed.is_ok();
        true
    }

    /// Handles a completion entry. `None`: it was that of a cancel, or the request has another
    /// step.
    fn take_in(&mut self, user_data: u64, result: i32) -> Option<Completion> {
        if user_data == CANCEL {
            return None;
        }
        if user_data == INBOX {
            self.watch = Watch::Off;
            if self.remote != 0 {
                self.watch_inbox();
                self.continued = true;
            }
            return None;
        }
        let index = u32::try_from(user_data & u64::from(u32::MAX)).expect("masked to 32 bits");
        let slot = &mut self.slots[slot_index(index)];
        let outcome = match usize::try_from(result) {
            Ok(bytes) => Ok(bytes),
            Err(_negative) => Err(Errno::from_raw_os_error(result.wrapping_neg())),
        };
        debug_assert_eq!(user_data >> 32, u64::from(slot.generation), "an entry of a job that was there before");
        let job = slot.job.as_mut().expect("the kernel completes an entry once, and its job is in the slot until then");
        let progress = job.advance(outcome);
        match progress {
            Progress::Finished(result) => {
                let job = slot.job.take().expect("it has just advanced");
                self.free.push(index);
                Some(job.complete(result))
            }
            Progress::Again => {
                self.continued = true;
                self.push_step(index);
                None
            }
        }
    }

    /// Queues the current step of the job in a slot.
    fn push_step(&mut self, index: u32) {
        let slot = &mut self.slots[slot_index(index)];
        let job = slot.job.as_mut().expect("a step is queued of a job that was put there, or that has just advanced");
        let fd = types::Fd(job.file().fd().as_raw_fd());
        let region = job.region().and_then(|region| Self::entry_of_region(&self.ring, &mut self.registered, region));
        self.stats.registered += u64::from(region.is_some());
        let entry = entry_of(fd, job.step(), region, &mut slot.vectors).user_data(user_data(index, slot.generation));
        // SAFETY: what the entry points to (the job's memory, the slot's vectors or a static) and
        // the file behind its descriptor (the job holds it open) live until the kernel has
        // completed the entry: the job stays in its slot until `take_in` sees that completion,
        // nobody reads or writes the buffer meanwhile (`cancel` only sets a flag beside it), the
        // slots are never reallocated, a buffer's bytes do not move with it, and `drop` waits or
        // leaks. Shared memory may be changed by others meanwhile, and nothing refers to it; its
        // pieces, which the job holds, keep it mapped.
        // JUSTIFICATION: io_uring has no safe interface; one call per batch instead of one per
        // request is worth 4 to 7 times the requests at depth.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        match pushed {
            Ok(()) => self.pushed = true,
            // The queue has as many entries as there are slots; cancels have filled it. `kick`
            // tries again.
            Err(_full) => self.unpushed.push(index),
        }
    }

    /// Waits until the kernel has completed all jobs. `false` if it refuses to wait.
    fn drain(&mut self) -> bool {
        // These were not submitted to the kernel.
        for index in std::mem::take(&mut self.unpushed) {
            self.slots[slot_index(index)].job = None;
        }
        let mut attempts = 0;
        loop {
            while let Some(entry) = self.ring.completion().next() {
                if entry.user_data() < INBOX {
                    let index = u32::try_from(entry.user_data() & u64::from(u32::MAX)).expect("masked to 32 bits");
                    self.slots[slot_index(index)].job = None;
                }
            }
            if self.slots.iter().all(|slot| slot.job.is_none()) {
                return true;
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => attempts = 0,
                Err(error) if is_temporary(&error) && attempts < ENTER_ATTEMPTS_MAX => attempts += 1,
                Err(error) => {
                    tracing::error!(%error, "io_uring cannot be waited for: its buffers are left to it");
                    return false;
                }
            }
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's descriptor is open as long as the ring, which the result borrows.
        // JUSTIFICATION: the crate implements `AsRawFd` only.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("in_flight", &self.in_flight()).field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.drain() {
            // Closing the ring does not stop what is under way at once: the memory must not be used
            // again.
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

/// `region` is the entry of the region that the step's memory lies in, in the ring's table of
/// buffers.
fn entry_of(fd: types::Fd, step: JobStep<'_>, region: Option<u16>, vectors: &mut Vec<libc::iovec>) -> squeue::Entry {
    let sync_flag = |sync: bool| if sync { libc::RWF_DSYNC } else { 0 };
    match step {
        JobStep::Read { offset, into } => {
            let bytes = into.as_mut_ptr();
            let len = transfer_len(into.len());
            match region {
                Some(index) => opcode::ReadFixed::new(fd, bytes, len, index).offset(offset).build(),
                None => opcode::Read::new(fd, bytes, len).offset(offset).build(),
            }
        }
        JobStep::Write { offset, from, sync } => {
            let bytes = from.as_ptr();
            let len = transfer_len(from.len());
            let flags = sync_flag(sync);
            match region {
                Some(index) => opcode::WriteFixed::new(fd, bytes, len, index).offset(offset).rw_flags(flags).build(),
                None => opcode::Write::new(fd, bytes, len).offset(offset).rw_flags(flags).build(),
            }
        }
        JobStep::ReadSegments { offset, mut into } => {
            vectors.clear();
            vectors.extend(into.iter_mut().map(|part| vector(part.as_mut_ptr(), part.len())));
            opcode::Readv::new(fd, vectors.as_ptr(), vector_count(vectors)).offset(offset).build()
        }
        JobStep::WriteSegments { offset, from, sync } => {
            vectors.clear();
            vectors.extend(from.iter().map(|part| vector(part.as_ptr().cast_mut(), part.len())));
            opcode::Writev::new(fd, vectors.as_ptr(), vector_count(vectors))
                .offset(offset)
                .rw_flags(sync_flag(sync))
                .build()
        }
        JobStep::ReadShared { offset, into } => match shared_vectors(&into, vectors) {
            Some(one) => opcode::Read::new(fd, one.iov_base.cast(), transfer_len(one.iov_len)).offset(offset).build(),
            None => opcode::Readv::new(fd, vectors.as_ptr(), vector_count(vectors)).offset(offset).build(),
        },
        JobStep::WriteShared { offset, from, sync } => {
            let flags = sync_flag(sync);
            match shared_vectors(&from, vectors) {
                Some(one) => opcode::Write::new(fd, one.iov_base.cast(), transfer_len(one.iov_len))
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
                None => opcode::Writev::new(fd, vectors.as_ptr(), vector_count(vectors))
                    .offset(offset)
                    .rw_flags(flags)
                    .build(),
            }
        }
        JobStep::Allocate { mode, offset, len } => {
            opcode::Fallocate::new(fd, len).offset(offset).mode(mode.bits().cast_signed()).build()
        }
        JobStep::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
    }
}

/// The pieces of shared memory, for the kernel: the only one, or all of them in `vectors`.
#[inline]
fn shared_vectors(range: &SharedRange<'_>, vectors: &mut Vec<libc::iovec>) -> Option<libc::iovec> {
    vectors.clear();
    vectors.extend(range.io_slices().take(SEGMENTS_MAX).map(|slice| slice.as_iovec()));
    match vectors[..] {
        [one] => Some(one),
        _ => None,
    }
}

/// Puts memory into an entry of the ring's table of buffers; none: clears the entry.
fn update_entry(ring: &IoUring, index: u16, memory: libc::iovec) -> io::Result<()> {
    // SAFETY: the kernel looks up the pages during the call and holds them itself. Requests name an
    // entry together with an address in a buffer of the region that it was made for; when that
    // region is gone no request names the entry until it is cleared.
    // JUSTIFICATION: io_uring has no safe interface for registering memory.
    unsafe { ring.submitter().register_buffers_update(index.into(), &[memory], None) }
}

fn vector(bytes: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: bytes.cast(), iov_len: len }
}

fn vector_count(vectors: &[libc::iovec]) -> u32 {
    u32::try_from(vectors.len()).expect("a step has at most 1024 segments")
}

fn transfer_len(len: usize) -> u32 {
    u32::try_from(len).expect("a step transfers at most 1 GiB")
}

fn slot_index(index: u32) -> usize {
    usize::try_from(index).expect("an index of a slot in memory")
}

fn user_data(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

/// The quickest ring that fits a thread that sleeps in epoll: completions are posted when this
/// thread enters the kernel for whatever reason, without interrupting it (5.19, and for a single
/// thread 6.0), else plain.
///
/// Not `DEFER_TASKRUN`: it posts completions only to a thread that waits in io_uring itself. One
/// that sleeps in epoll or poll is not woken (seen on Linux 6.18: the sleep lasts until its
/// time-out).
fn build(entries: u32) -> io::Result<IoUring> {
    let mut newest = IoUring::builder();
    newest.dontfork().setup_submit_all().setup_coop_taskrun().setup_taskrun_flag().setup_single_issuer();
    let mut newer = IoUring::builder();
    newer.dontfork().setup_submit_all().setup_coop_taskrun().setup_taskrun_flag();
    let mut plain = IoUring::builder();
    plain.dontfork();
    let unknown_flag = |error: &io::Error| Errno::from_io_error(error) == Some(Errno::INVAL);
    match newest.build(entries) {
        Err(error) if unknown_flag(&error) => match newer.build(entries) {
            Err(error) if unknown_flag(&error) => plain.build(entries),
            built => built,
        },
        built => built,
    }
}

/// Refuses a ring of a kernel before 5.6, which lacks what a disk needs.
fn check_opcodes(ring: &IoUring) -> io::Result<()> {
    let mut probe = Probe::new();
    let unknown = Err(Errno::NOSYS.into());
    if ring.submitter().register_probe(&mut probe).is_err() {
        return unknown;
    }
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::Fsync::CODE,
        opcode::Fallocate::CODE,
        opcode::AsyncCancel::CODE,
    ];
    if needed.iter().all(|code| probe.is_supported(*code)) { Ok(()) } else { unknown }
}

/// Whether trying again may help: interrupted, or out of memory or of room for completions for the
/// moment.
fn is_temporary(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

#[cfg(test)]
mod tests;
