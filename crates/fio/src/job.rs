//! One job of fio: its files, each a namespace with a controller and a queue pair of its own, and
//! its operations.
//!
//! An operation is split into commands at the controller's transfer limit. Commands wait here, in
//! order, while the queue is full, so that fio's `iodepth` may be larger than the target's queue.
//! Nothing is allocated per operation.

use std::collections::VecDeque;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use ebof_idle::{Idle, IdleStep, micros_since};
use ebof_initiator::{Completion, Data, Error};
use ebof_nvme::identify::ProtectionType;
use ebof_nvme::io::{BlockRange, Dsm, DsmRange};
use ebof_nvme::opcode::nvm;
use ebof_nvme::protection::left_to_controller;
use ebof_nvme::{Nsid, Sqe};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use zerocopy::IntoBytes as _;

use crate::address::NamespaceAddress;
use crate::failure::JobFailure;
use crate::memory::{Lent, Payload};
use crate::queue::{JobHost, JobQueue, OpenedPaths};
use crate::settings::JobSettings;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Deallocate,
    Flush,
}

impl Kind {
    /// The command's name in the specification.
    const fn command(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Write => "Write",
            Self::Deallocate => "Dataset Management (deallocate)",
            Self::Flush => "Flush",
        }
    }
}

/// An operation of fio.
#[derive(Debug)]
pub(crate) struct Request {
    /// fio's identifier of it.
    pub(crate) token: usize,
    pub(crate) kind: Kind,
    /// In bytes.
    pub(crate) offset: u64,
    /// In bytes.
    pub(crate) length: u64,
    pub(crate) memory: Lent,
}

/// A completed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) token: usize,
    /// 0, or a positive errno.
    pub(crate) errno: i32,
}

/// A job.
pub(crate) struct Job {
    settings: JobSettings,
    depth: usize,
    files: Vec<File>,
    operations: Operations,
    /// The operations found by the last `collect`.
    events: Vec<Finished>,
    unsent: Unsent,
    /// How long to poll several queues before sleeping.
    idle: Idle,
    /// All operations that were collected.
    collected: u64,
    began: Instant,
}

/// What was submitted since the last send.
#[derive(Debug, Default)]
struct Unsent {
    operations: u32,
    bytes: u64,
}

/// A file of fio.
struct File {
    token: usize,
    connection: Result<Connection, JobFailure>,
}

/// The connection to a namespace.
struct Connection {
    address: NamespaceAddress,
    /// Before `host`, so that it is dropped first.
    queue: JobQueue<Payload>,
    host: Option<JobHost>,
    nsid: Nsid,
    block_bytes: u32,
    protection: ProtectionType,
    size_bytes: u64,
    transfer_bytes: usize,
    waiting: VecDeque<Remaining>,
}

/// The part of an operation that is not submitted yet.
#[derive(Debug)]
struct Remaining {
    slot: usize,
    kind: Kind,
    offset: u64,
    length: u64,
    memory: Lent,
}

/// The outstanding operations, by slot.
#[derive(Default)]
struct Operations {
    slots: Vec<Slot>,
    free: Vec<usize>,
    finished: VecDeque<Finished>,
    /// Error texts of failed operations; at most one for each operation that fio has.
    details: Vec<(usize, String)>,
}

#[derive(Debug)]
struct Slot {
    token: usize,
    kind: Kind,
    /// Commands that are outstanding.
    commands: u32,
    /// All its commands are submitted.
    submitted: bool,
    errno: i32,
}

/// Queued data from which a job sends by itself, bytes: large writes should not wait until the
/// queue is full.
const SEND_BYTES: u64 = 128 << 10;
/// The longest sleep with several queues: polling a queue pair checks for commands that timed out.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Polls between two reads of the clock.
const POLLS_PER_CLOCK_READ: u32 = 16;

impl Job {
    pub(crate) fn new(settings: JobSettings) -> Self {
        let idle = Idle::new(if settings.poll { u64::MAX } else { u64::from(settings.spin_us) });
        Self {
            settings,
            depth: 0,
            files: Vec::new(),
            operations: Operations::default(),
            events: Vec::new(),
            unsent: Unsent::default(),
            idle,
            collected: 0,
            began: Instant::now(),
        }
    }

    /// fio has made an operation, which increases the depth by one.
    pub(crate) fn add_operation(&mut self) {
        self.depth += 1;
    }

    /// Whether `file` was opened, or opening it failed.
    pub(crate) fn knows(&self, file: usize) -> bool {
        self.files.iter().any(|one| one.token == file)
    }

    /// Connects `file`, which fio calls `name`. A failure is kept and returned by each operation.
    /// Returns a remark for the user.
    pub(crate) fn open(&mut self, file: usize, name: &str) -> Option<String> {
        self.operations.reserve(self.depth);
        self.events.reserve(self.depth);
        let conn = Connection::open(name, &self.settings, self.depth.max(1));
        let remark = conn.as_ref().ok().and_then(|conn| conn.remark(self.depth, &self.settings));
        self.files.push(File { token: file, connection: conn });
        remark
    }

    /// Starts `request`. If that fails, it completes at once and is found by `collect`: only then
    /// does fio request an explanation.
    pub(crate) fn queue(&mut self, file: usize, request: Request) {
        let token = request.token;
        if let Err(failure) = self.start(file, request) {
            self.operations.explain(token, &failure.text);
            self.operations.finished.push_back(Finished { token, errno: failure.errno });
        }
    }

    fn start(&mut self, file: usize, request: Request) -> Result<(), JobFailure> {
        let file = self.files.iter_mut().find(|one| one.token == file);
        let file = file.ok_or_else(|| JobFailure::new(libc::EBADF, "ebof: fio uses a file that it has not opened"))?;
        let conn = file.connection.as_mut().map_err(|failure| failure.clone())?;
        conn.check(&request)?;
        let Request { token, kind, offset, length, memory } = request;
        let slot = self.operations.start(token, kind);
        conn.waiting.push_back(Remaining { slot, kind, offset, length, memory });
        conn.pump(&mut self.operations);
        self.unsent.operations += 1;
        self.unsent.bytes += if kind == Kind::Write { length } else { 0 };
        Ok(())
    }

    /// fio has queued a batch. Sends it unless more should be collected; returns the number of
    /// operations sent.
    pub(crate) fn commit(&mut self) -> u32 {
        let batch = self.settings.batch;
        if self.unsent.bytes < SEND_BYTES && (batch == 0 || self.unsent.operations < batch) {
            return 0;
        }
        for conn in self.files.iter_mut().filter_map(|file| file.connection.as_mut().ok()) {
            // An error is reported by the commands that it affects.
            let _ = conn.queue.flush();
        }
        std::mem::take(&mut self.unsent).operations
    }

    /// Waits until at least `min` operations are complete, and takes at most `max` of them; fewer
    /// at the time limit or if no more are outstanding. Returns how many there are, and how many
    /// were sent.
    pub(crate) fn collect(&mut self, min: usize, max: usize, limit: Option<Duration>) -> (usize, u32) {
        let deadline = limit.map(|limit| Instant::now() + limit);
        self.events.clear();
        let mut sent = 0;
        loop {
            self.take(max);
            if self.events.len() < max {
                self.poll(max - self.events.len(), &mut sent);
                self.take(max);
            }
            if self.events.len() >= min || self.is_idle() {
                break;
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                break;
            }
            self.wait(now, deadline);
        }
        self.idle.stop();
        (self.events.len(), sent)
    }

    /// One of the operations found by `collect`.
    pub(crate) fn event(&self, index: usize) -> Option<Finished> {
        self.events.get(index).copied()
    }

    /// The error text of a failed operation.
    pub(crate) fn explanation(&mut self, token: usize) -> Option<String> {
        let at = self.operations.details.iter().position(|one| one.0 == token)?;
        Some(self.operations.details.swap_remove(at).1)
    }

    /// Moves completed operations to the events.
    fn take(&mut self, max: usize) {
        while self.events.len() < max
            && let Some(finished) = self.operations.finished.pop_front()
        {
            self.events.push(finished);
            self.collected += 1;
        }
    }

    /// Takes up to `wanted` completions: first those that were received already; if there is none,
    /// sends and receives.
    fn poll(&mut self, wanted: usize, sent: &mut u32) {
        let operations = &mut self.operations;
        for conn in self.files.iter_mut().filter_map(|file| file.connection.as_mut().ok()) {
            while operations.finished.len() < wanted
                && let Some(done) = conn.queue.next_ready()
            {
                conn.complete(&done, operations);
            }
        }
        if !operations.finished.is_empty() {
            return;
        }
        *sent += std::mem::take(&mut self.unsent).operations;
        for conn in self.files.iter_mut().filter_map(|file| file.connection.as_mut().ok()) {
            conn.pump(operations);
            while operations.finished.len() < wanted {
                match conn.queue.poll() {
                    Ok(Some(done)) => conn.complete(&done, operations),
                    Ok(None) => break,
                    Err(error) => {
                        conn.fail_waiting(&error, operations);
                        break;
                    }
                }
            }
        }
    }

    fn is_idle(&self) -> bool {
        let conns = self.files.iter().filter_map(|file| file.connection.as_ref().ok());
        self.operations.finished.is_empty() && conns.into_iter().all(|conn| !conn.is_busy())
    }

    /// Waits for a completion on any queue.
    fn wait(&mut self, now: Instant, deadline: Option<Instant>) {
        let operations = &mut self.operations;
        let mut busy =
            self.files.iter_mut().filter_map(|file| file.connection.as_mut().ok()).filter(|conn| conn.is_busy());
        let Some(first) = busy.next() else { return };
        let several = busy.next().is_some();
        if !several {
            match first.queue.wait(deadline) {
                Ok(Some(done)) => first.complete(&done, operations),
                Ok(None) => {}
                Err(error) => first.fail_waiting(&error, operations),
            }
            return;
        }
        let now_us = micros_since(self.began);
        self.idle.set_work(self.collected);
        let IdleStep::Sleep(bound_us) = self.idle.step(now_us) else {
            for _ in 0..POLLS_PER_CLOCK_READ {
                let mut ignored = 0;
                self.poll(1, &mut ignored);
                if !self.operations.finished.is_empty() {
                    return;
                }
            }
            self.idle.give_way(now_us);
            return;
        };
        let conns = self.files.iter().filter_map(|file| file.connection.as_ref().ok()).filter(|conn| conn.is_busy());
        let mut descriptors: Vec<PollFd<'_>> =
            conns.map(|conn| PollFd::from_borrowed_fd(conn.queue.as_fd(), PollFlags::IN)).collect();
        let time = deadline.map_or(SLEEP_MAX, |deadline| deadline.saturating_duration_since(now).min(SLEEP_MAX));
        let began = self.began;
        // The result does not matter: the queues are polled next.
        let sleep = |bound: Option<Duration>| {
            let time = bound.map_or(time, |bound| time.min(bound));
            let time = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
            poll(&mut descriptors, Some(&time)).map(|ready| ready > 0)
        };
        let _ = self.idle.sleep(bound_us, || micros_since(began), sleep);
    }
}

impl Connection {
    fn open(name: &str, settings: &JobSettings, depth: usize) -> Result<Self, JobFailure> {
        let paths = NamespaceAddress::find(name, settings.uri.as_deref())?;
        let OpenedPaths { host, queue, block_bytes, protection, size_bytes, transfer_bytes } =
            OpenedPaths::connect(&paths, settings, depth)?;
        let address = paths[0].clone();
        Ok(Self {
            nsid: address.nsid,
            address,
            queue,
            host: Some(host),
            block_bytes,
            protection,
            size_bytes,
            transfer_bytes,
            waiting: VecDeque::with_capacity(depth),
        })
    }

    /// A remark about the depth for the user.
    fn remark(&self, depth: usize, settings: &JobSettings) -> Option<String> {
        let capacity = self.queue.capacity();
        if let Some(missing) = self.host.as_ref().and_then(JobHost::missing) {
            return Some(missing);
        }
        if depth <= capacity {
            return None;
        }
        let why = if settings.queue_size > 0 && capacity < usize::try_from(settings.queue_size).unwrap_or(usize::MAX) {
            format!("queue_size={}", settings.queue_size)
        } else {
            "the limit of the target, or of ebof (1023)".to_owned()
        };
        Some(format!(
            "ebof: note: iodepth={depth}, but a queue takes {capacity} commands at a time ({why}). The others wait here, and that counts as latency.\n  \
             what to do: use numjobs, each job has a queue of its own, or raise the target's limit"
        ))
    }

    fn is_busy(&self) -> bool {
        self.queue.in_flight() > 0 || !self.waiting.is_empty()
    }

    /// Whether `request` is possible on the namespace.
    fn check(&self, request: &Request) -> Result<(), JobFailure> {
        if request.kind == Kind::Flush {
            return Ok(());
        }
        let block = u64::from(self.block_bytes);
        let Request { offset, length, .. } = *request;
        if length == 0 || !offset.is_multiple_of(block) || !length.is_multiple_of(block) {
            let text = format!(
                "ebof: {length} bytes at offset {offset} are not whole blocks: namespace {} has blocks of {block} bytes\n  \
                 what to do: make bs (bssplit, bsrange, blockalign, offset) a multiple of {block}",
                self.nsid
            );
            return Err(JobFailure::new(libc::EINVAL, text));
        }
        if offset.checked_add(length).is_none_or(|end| end > self.size_bytes) {
            let text = format!(
                "ebof: {length} bytes at offset {offset} are not within the {} bytes of namespace {}\n  \
                 what to do: make offset + size smaller, or leave them away",
                self.size_bytes, self.nsid
            );
            return Err(JobFailure::new(libc::ENOSPC, text));
        }
        Ok(())
    }

    /// Submits waiting commands while the queue has room.
    fn pump(&mut self, operations: &mut Operations) {
        while self.queue.in_flight() < self.queue.capacity()
            && let Some(rest) = self.waiting.front_mut()
        {
            let slot = rest.slot;
            let refused = if operations.has_failed(slot) {
                // The operation has failed: the rest need not be sent.
                rest.length = 0;
                None
            } else {
                let (sqe, data) = rest.next_command(self.nsid, self.block_bytes, self.transfer_bytes);
                let sqe = left_to_controller(self.protection, sqe);
                self.queue.submit(sqe, data, slot as u64).err()
            };
            match refused {
                None => operations.submitted(slot, rest.length == 0),
                // The queue has room, so it is the connection.
                Some(refused) => {
                    let failure = JobFailure::of_error(rest.kind.command(), &self.address, &refused.reason);
                    operations.fail(slot, &failure);
                    rest.length = 0;
                    operations.complete_if_done(slot, true);
                }
            }
            if rest.length == 0 {
                self.waiting.pop_front();
            }
        }
    }

    fn complete(&mut self, done: &Completion<Payload>, operations: &mut Operations) {
        let slot = usize::try_from(done.user).unwrap_or(usize::MAX);
        let command = || operations.slots[slot].kind.command();
        let failure = match &done.result {
            Ok(cqe) => match cqe.status().ok() {
                Ok(()) => None,
                Err(status) => Some(JobFailure::of_status(command(), &self.address, status)),
            },
            Err(error) => Some(JobFailure::of_error(command(), &self.address, error)),
        };
        if let Some(failure) = failure {
            operations.fail(slot, &failure);
        }
        operations.command_completed(slot);
        self.pump(operations);
    }

    /// The queue cannot be used, at least for now: fails what waits for it.
    fn fail_waiting(&mut self, error: &Error, operations: &mut Operations) {
        while let Some(rest) = self.waiting.pop_front() {
            operations.fail(rest.slot, &JobFailure::of_error(rest.kind.command(), &self.address, error));
            operations.complete_if_done(rest.slot, true);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(host) = self.host.take() {
            // Also ends the queue's connections and waits for the controllers' threads: fio may
            // unload the library next.
            host.disconnect();
        }
    }
}

impl Remaining {
    /// Takes the next command of the operation.
    fn next_command(&mut self, nsid: Nsid, block_bytes: u32, transfer_bytes: usize) -> (Sqe, Data<Payload>) {
        let block = u64::from(block_bytes);
        let range = |bytes: u64| BlockRange::new(self.offset / block, u32::try_from(bytes / block).unwrap_or(u32::MAX));
        match self.kind {
            Kind::Flush => {
                self.length = 0;
                (Sqe::new(nvm::FLUSH).with_nsid(nsid), Data::None)
            }
            Kind::Deallocate => {
                // The length of a range has 32 bits; fio's largest block is smaller.
                let blocks = (self.length / block).min(u64::from(u32::MAX));
                let nlb = u32::try_from(blocks).unwrap_or(u32::MAX);
                let list = DsmRange { cattr: 0.into(), nlb: nlb.into(), slba: (self.offset / block).into() };
                let mut bytes = [0; 16];
                bytes.copy_from_slice(list.as_bytes());
                let dsm = Dsm { ranges: 1, deallocate: true, integral_write: false, integral_read: false };
                self.advance(blocks * block);
                (dsm.encode(nsid), Data::FromHost(Payload::Range(bytes)))
            }
            Kind::Read | Kind::Write => {
                let part = self.memory.split_front(transfer_bytes);
                let bytes = part.len() as u64;
                let range = range(bytes);
                self.advance(bytes);
                if self.kind == Kind::Read {
                    (range.encode(nvm::READ, nsid), Data::ToHost(Payload::Lent(part)))
                } else {
                    (range.encode(nvm::WRITE, nsid), Data::FromHost(Payload::Lent(part)))
                }
            }
        }
    }

    fn advance(&mut self, bytes: u64) {
        self.offset += bytes;
        self.length -= bytes;
    }
}

impl Operations {
    fn reserve(&mut self, depth: usize) {
        self.slots.reserve(depth);
        self.free.reserve(depth);
        self.finished.reserve(depth);
    }

    fn start(&mut self, token: usize, kind: Kind) -> usize {
        let slot = Slot { token, kind, commands: 0, submitted: false, errno: 0 };
        if let Some(at) = self.free.pop() {
            self.slots[at] = slot;
            at
        } else {
            self.slots.push(slot);
            self.slots.len() - 1
        }
    }

    fn has_failed(&self, slot: usize) -> bool {
        self.slots[slot].errno != 0
    }

    /// Counts a submitted command, unless the operation has failed; `all`: it was the last one.
    fn submitted(&mut self, slot: usize, all: bool) {
        let failed = self.has_failed(slot);
        self.slots[slot].commands += u32::from(!failed);
        if all {
            self.complete_if_done(slot, true);
        }
    }

    fn fail(&mut self, slot: usize, failure: &JobFailure) {
        let token = self.slots[slot].token;
        if self.slots[slot].errno == 0 {
            self.slots[slot].errno = failure.errno;
            self.explain(token, &failure.text);
        }
    }

    fn command_completed(&mut self, slot: usize) {
        self.slots[slot].commands -= 1;
        self.complete_if_done(slot, false);
    }

    /// Completes the operation if all its commands are submitted (set by `submitted`) and complete.
    fn complete_if_done(&mut self, slot: usize, submitted: bool) {
        let one = &mut self.slots[slot];
        one.submitted |= submitted;
        if one.submitted && one.commands == 0 {
            self.finished.push_back(Finished { token: one.token, errno: one.errno });
            self.free.push(slot);
        }
    }

    fn explain(&mut self, token: usize, text: &str) {
        self.details.retain(|one| one.0 != token);
        self.details.push((token, text.to_owned()));
    }
}
