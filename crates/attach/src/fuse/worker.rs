//! One thread of the FUSE server: reads requests, turns them into block commands, writes the
//! replies. It owns its [`BlockQueue`] and every buffer; with the other threads it shares the
//! descriptor of /dev/fuse and the table of namespaces.
//!
//! Messages of the kernel are checked like other input: a wrong length fails that request.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ebof_idle::Idle;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::inbox::Inbox;
use super::wire::{self, init, opcode, open};
use super::{FILE_SYSTEM, Shared};
use crate::block_queue::buffer::{Buffer, KEPT_TIME, Spare};
use crate::block_queue::{BlockQueue, Done, Entry, Io, NamespaceRef, Op, Table, View};

/// Bytes read in front of the data buffer: the header and the body of READ and WRITE, so that the
/// data buffer gets exactly the data of a WRITE.
const HEAD_BYTES: usize = 80;
/// Payloads up to this size are copied into a buffer of their own, so that a small write does not
/// hold a large one and the receive buffer stays in cache.
const COPY_MAX_BYTES: usize = 16 << 10;
/// The most requests in progress of one thread; further ones stay in the kernel's queue.
const PENDING_MAX: usize = 512;
/// The most requests read before completions are polled again.
const READS_PER_POLL: usize = 64;
/// The node of the root directory.
const ROOT: u64 = 1;
/// How long the kernel may cache names and attributes, seconds: not at all, because namespaces are
/// removed, replaced and resized. The I/O path uses neither.
const VALID_S: u64 = 0;
/// The most background requests of the kernel, which asynchronous direct I/O counts as.
const BACKGROUND_MAX: u16 = 256;

/// A request without a reply yet.
#[derive(Debug)]
enum Pending {
    Read { unique: u64 },
    Write { unique: u64, bytes: u32 },
    Flush { unique: u64 },
    Zero { unique: u64, range: ZeroRange },
}

/// The rest of a FALLOCATE, of which one command at a time is outstanding.
#[derive(Clone, Copy, Debug)]
struct ZeroRange {
    reference: NamespaceRef,
    next: u64,
    end: u64,
    step_blocks: u32,
    deallocate: bool,
}

impl ZeroRange {
    /// The next command, `None` when there is nothing left.
    fn step(&mut self, user: u64) -> Option<Io> {
        let blocks = u32::try_from((self.end - self.next).min(u64::from(self.step_blocks))).ok().filter(|&n| n > 0)?;
        let slba = self.next;
        self.next += u64::from(blocks);
        let op = Op::WriteZeroes { deallocate: self.deallocate };
        Some(Io { reference: self.reference, op, slba, blocks, data: Buffer::default(), user })
    }
}

/// A thread's state.
pub(super) struct Worker<B> {
    shared: Arc<Shared>,
    view: View,
    blocks: B,
    epoll: OwnedFd,
    /// As `epoll`, without /dev/fuse: for a worker that takes no more requests, which pending ones
    /// would wake all the time.
    epoll_full: OwnedFd,
    head: [u8; HEAD_BYTES],
    inbox: Inbox,
    spare: Spare,
    pending: Vec<Option<Pending>>,
    free: Vec<usize>,
    backlog: VecDeque<Io>,
    done: Vec<Done>,
    /// All commands that have completed.
    completed: u64,
}

/// Result of reading /dev/fuse.
#[derive(Debug, PartialEq, Eq)]
enum Received {
    Nothing,
    Request,
    Unmounted,
}

impl<B: BlockQueue> Worker<B> {
    pub(super) fn new(shared: Arc<Shared>, table: Arc<Table>, blocks: B) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        // Exclusive: a request wakes one sleeping thread, not all.
        let exclusive = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
        epoll::add(&epoll, &shared.device, data, exclusive)?;
        let epoll_full = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for set in [&epoll, &epoll_full] {
            epoll::add(set, &shared.stop_event, data, epoll::EventFlags::IN)?;
            epoll::add(set, blocks.fd(), data, epoll::EventFlags::IN)?;
        }
        let inbox = Inbox::new(receive_bytes(&shared));
        let view = View::new(table);
        Ok(Self {
            shared,
            view,
            blocks,
            epoll,
            epoll_full,
            head: [0; HEAD_BYTES],
            inbox,
            spare: Spare::default(),
            pending: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            done: Vec::new(),
            completed: 0,
        })
    }

    /// Serves until the file system is unmounted or the server stops.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let began = Instant::now();
        let now_us = || ebof_idle::micros_since(began);
        let mut idle = Idle::new(u64::try_from(self.shared.spin.as_micros()).unwrap_or(u64::MAX));
        let mut turns = 0_u32;
        while !self.shared.stop.load(Ordering::Acquire) {
            let (busy, sleep_max) = match self.poll_once()? {
                Some(turned) => turned,
                None => return Ok(()),
            };
            if busy {
                if idle.is_waiting() {
                    idle.found(now_us());
                }
                continue;
            }
            turns = turns.wrapping_add(1);
            if !turns.is_multiple_of(idle.polls_per_step()) {
                continue;
            }
            idle.set_work(self.completed);
            // Yields first: the thread that makes work for this one may need the processor.
            idle.rest(now_us, |bound| self.sleep(sleep_max, bound))?;
        }
        Ok(())
    }

    /// Serves requests and completions once. Returns whether there were any, and how long to sleep
    /// at most; `None` when unmounted.
    fn poll_once(&mut self) -> io::Result<Option<(bool, Option<Duration>)>> {
        let mut busy = false;
        for _ in 0..READS_PER_POLL {
            if self.is_full() {
                break;
            }
            match self.receive()? {
                Received::Nothing => break,
                Received::Request => busy = true,
                Received::Unmounted => return Ok(None),
            }
        }
        if busy {
            self.blocks.flush();
        }
        let mut done = std::mem::take(&mut self.done);
        let sleep_max = self.blocks.poll(&mut done);
        busy |= !done.is_empty();
        self.completed += done.len() as u64;
        for completion in done.drain(..) {
            self.complete(completion);
        }
        self.done = done;
        self.resubmit();
        Ok(Some((busy, sleep_max)))
    }

    /// Whether no more requests can be taken.
    fn is_full(&self) -> bool {
        !self.backlog.is_empty() || self.outstanding() >= PENDING_MAX
    }

    fn outstanding(&self) -> usize {
        self.pending.len() - self.free.len()
    }

    /// Sleeps until there is something to do, or a timeout. Returns whether there is something.
    fn sleep(&mut self, sleep_max: Option<Duration>, bound: Option<Duration>) -> io::Result<bool> {
        let trims = bound.is_none() && (self.spare.is_kept() || self.inbox.is_kept());
        let sleep_max = if trims { sleep_max.into_iter().chain([KEPT_TIME]).min() } else { sleep_max };
        let woken = self.sleep_for(sleep_max, bound)?;
        if trims && !woken {
            self.spare.trim();
            self.inbox.trim();
        }
        Ok(woken)
    }

    fn sleep_for(&self, sleep_max: Option<Duration>, bound: Option<Duration>) -> io::Result<bool> {
        let set = if self.is_full() { &self.epoll_full } else { &self.epoll };
        if let Some(bound) = bound {
            // epoll's own times are whole milliseconds.
            let time = Timespec::try_from(sleep_max.map_or(bound, |time| time.min(bound))).ok();
            return match poll(&mut [PollFd::new(set, PollFlags::IN)], time.as_ref()) {
                Ok(ready) => Ok(ready > 0),
                Err(Errno::INTR) => Ok(false),
                Err(error) => Err(error.into()),
            };
        }
        let timeout = sleep_max.and_then(|duration| Timespec::try_from(duration).ok());
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 4];
        match epoll::wait(set, &mut events[..], timeout.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads one request, if there is one, and starts it.
    fn receive(&mut self) -> io::Result<Received> {
        let mut parts = [IoSliceMut::new(&mut self.head), IoSliceMut::new(self.inbox.room())];
        let received = match rustix::io::readv(&self.shared.device, &mut parts) {
            Ok(received) => received,
            // NOENT: the request was interrupted while it was read.
            Err(Errno::AGAIN) => return Ok(Received::Nothing),
            Err(Errno::INTR | Errno::NOENT) => return Ok(Received::Request),
            Err(Errno::NODEV) => return Ok(Received::Unmounted),
            Err(error) => return Err(error.into()),
        };
        let Ok((header, _)) = wire::InHeader::read_from_prefix(&self.head[..received.min(HEAD_BYTES)]) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a FUSE request shorter than its header"));
        };
        if usize::try_from(header.len).ok() != Some(received) {
            self.reply_error(header.unique, Errno::IO);
            return Ok(Received::Request);
        }
        if let Err(error) = self.begin(header, received) {
            self.reply_error(header.unique, error);
        }
        Ok(Received::Request)
    }

    fn begin(&mut self, header: wire::InHeader, received: usize) -> Result<(), Errno> {
        match header.opcode {
            opcode::READ => self.read(header),
            opcode::WRITE => self.write(header, received),
            opcode::FSYNC => self.fsync(header),
            opcode::FALLOCATE => self.fallocate(header),
            opcode::LOOKUP => self.lookup(header, received),
            opcode::GETATTR => self.getattr(header),
            opcode::OPEN => {
                self.view.by_id(header.nodeid).ok_or(Errno::NOENT)?;
                let open_flags = open::DIRECT_IO | open::NOFLUSH | open::PARALLEL_DIRECT_WRITES;
                self.reply(header.unique, wire::OpenOut { fh: header.nodeid, open_flags, padding: 0 }.as_bytes());
                Ok(())
            }
            opcode::INIT => self.init(header),
            opcode::STATFS => self.statfs(header),
            opcode::RELEASE | opcode::FLUSH | opcode::DESTROY => {
                self.reply(header.unique, &[]);
                Ok(())
            }
            // Without a reply. An interrupted request completes when the controller answers.
            opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Ok(()),
            _ => Err(Errno::NOSYS),
        }
    }

    fn init(&mut self, header: wire::InHeader) -> Result<(), Errno> {
        let request: wire::InitIn = self.body()?;
        if (request.major, request.minor) < (wire::MAJOR, wire::MINOR) {
            tracing::error!("the kernel's FUSE protocol is {}.{}: too old", request.major, request.minor);
            return Err(Errno::PROTO);
        }
        let wanted = init::ASYNC_READ | init::BIG_WRITES | init::ASYNC_DIO | init::MAX_PAGES;
        if request.flags & wanted != wanted {
            tracing::warn!(flags = request.flags, "the kernel's FUSE lacks a feature: I/O will be slower");
        }
        let max_write = self.shared.transfer_max_bytes;
        let out = wire::InitOut {
            major: wire::MAJOR,
            minor: wire::MINOR,
            flags: request.flags & wanted,
            max_background: BACKGROUND_MAX,
            congestion_threshold: BACKGROUND_MAX,
            max_write,
            time_gran: 1,
            max_pages: u16::try_from(max_write / 4096).unwrap_or(256),
            ..wire::InitOut::default()
        };
        tracing::debug!(kind = FILE_SYSTEM, minor = request.minor, max_write, "FUSE is up");
        self.reply(header.unique, out.as_bytes());
        Ok(())
    }

    /// The fixed part of the request behind its header.
    fn body<T: FromBytes>(&self) -> Result<T, Errno> {
        let body = &self.head[size_of::<wire::InHeader>()..];
        T::read_from_prefix(body).map(|(value, _)| value).map_err(|_too_short| Errno::IO)
    }

    fn lookup(&mut self, header: wire::InHeader, received: usize) -> Result<(), Errno> {
        if header.nodeid != ROOT {
            return Err(Errno::NOTDIR);
        }
        // Names of namespaces are short: one that does not fit the head does not exist.
        let name = self.head[..received.min(HEAD_BYTES)].get(size_of::<wire::InHeader>()..).ok_or(Errno::IO)?;
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        let entry = self.view.entries().iter().find(|entry| entry.name.as_bytes() == name).ok_or(Errno::NOENT)?;
        let out = wire::EntryOut {
            nodeid: entry.id,
            generation: 0,
            entry_valid: VALID_S,
            attr_valid: VALID_S,
            entry_valid_nsec: 0,
            attr_valid_nsec: 0,
            attr: attributes(entry),
        };
        self.reply(header.unique, out.as_bytes());
        Ok(())
    }

    fn getattr(&mut self, header: wire::InHeader) -> Result<(), Errno> {
        let attr = if header.nodeid == ROOT {
            wire::Attr { ino: ROOT, mode: 0o040_500, nlink: 2, blksize: 4096, ..wire::Attr::default() }
        } else {
            attributes(self.view.by_id(header.nodeid).ok_or(Errno::NOENT)?)
        };
        let out = wire::AttrOut { attr_valid: VALID_S, attr_valid_nsec: 0, dummy: 0, attr };
        self.reply(header.unique, out.as_bytes());
        Ok(())
    }

    fn statfs(&mut self, header: wire::InHeader) -> Result<(), Errno> {
        // The loop device takes its discard granularity from here.
        let out = wire::StatfsOut { bsize: 4096, frsize: 4096, namelen: 255, ..wire::StatfsOut::default() };
        self.reply(header.unique, out.as_bytes());
        Ok(())
    }

    fn read(&mut self, header: wire::InHeader) -> Result<(), Errno> {
        let request: wire::TransferIn = self.body()?;
        if request.size > self.shared.transfer_max_bytes {
            return Err(Errno::INVAL);
        }
        let namespace = &self.view.by_id(header.nodeid).ok_or(Errno::NOENT)?.namespace;
        let left = namespace.size_bytes().saturating_sub(request.offset);
        let bytes = left.min(u64::from(request.size));
        if bytes == 0 {
            self.reply(header.unique, &[]);
            return Ok(());
        }
        let (slba, blocks) = namespace.range(request.offset, bytes)?;
        let reference = namespace.reference();
        let blocks = u32::try_from(blocks).map_err(|_too_many| Errno::INVAL)?;
        let data = self.spare.take(usize::try_from(bytes).map_err(|_too_many| Errno::INVAL)?);
        let user = self.add_pending(Pending::Read { unique: header.unique });
        self.submit(Io { reference, op: Op::Read, slba, blocks, data, user });
        Ok(())
    }

    fn write(&mut self, header: wire::InHeader, received: usize) -> Result<(), Errno> {
        let request: wire::TransferIn = self.body()?;
        let bytes = usize::try_from(request.size).map_err(|_too_many| Errno::INVAL)?;
        if received.checked_sub(HEAD_BYTES) != Some(bytes) || bytes > self.inbox.room().len() {
            return Err(Errno::IO);
        }
        let namespace = &self.view.by_id(header.nodeid).ok_or(Errno::NOENT)?.namespace;
        if namespace.read_only {
            return Err(Errno::ROFS);
        }
        let (slba, blocks) = namespace.range(request.offset, u64::from(request.size))?;
        let reference = namespace.reference();
        let blocks = u32::try_from(blocks).map_err(|_too_many| Errno::INVAL)?;
        if blocks == 0 {
            self.reply(header.unique, wire::WriteOut::default().as_bytes());
            return Ok(());
        }
        let data = self.take_payload(bytes);
        // open(2): O_DSYNC, which O_SYNC includes: each write reaches the medium.
        let fua = request.flags & rustix::fs::OFlags::DSYNC.bits() != 0;
        let user = self.add_pending(Pending::Write { unique: header.unique, bytes: request.size });
        self.submit(Io { reference, op: Op::Write { fua }, slba, blocks, data, user });
        Ok(())
    }

    /// The payload of the request just received, as a buffer of its size.
    fn take_payload(&mut self, bytes: usize) -> Buffer {
        if bytes <= COPY_MAX_BYTES {
            let mut data = self.spare.take(bytes);
            data.copy_from_slice(&self.inbox.room()[..bytes]);
            return data;
        }
        self.inbox.take(bytes)
    }

    fn fsync(&mut self, header: wire::InHeader) -> Result<(), Errno> {
        let namespace = &self.view.by_id(header.nodeid).ok_or(Errno::NOENT)?.namespace;
        let reference = namespace.reference();
        let user = self.add_pending(Pending::Flush { unique: header.unique });
        self.submit(Io { reference, op: Op::Flush, slba: 0, blocks: 0, data: Buffer::default(), user });
        Ok(())
    }

    /// Both modes that a loop device uses have to leave zeros, so both become Write Zeroes;
    /// punching a hole allows deallocation. Dataset Management would only be advisory.
    fn fallocate(&mut self, header: wire::InHeader) -> Result<(), Errno> {
        let request: wire::FallocateIn = self.body()?;
        let punch = match request.mode {
            mode if mode == wire::fallocate::PUNCH_HOLE | wire::fallocate::KEEP_SIZE => true,
            mode if mode & !wire::fallocate::KEEP_SIZE == wire::fallocate::ZERO_RANGE => false,
            _ => return Err(Errno::OPNOTSUPP),
        };
        let namespace = &self.view.by_id(header.nodeid).ok_or(Errno::NOENT)?.namespace;
        if namespace.read_only {
            return Err(Errno::ROFS);
        }
        if namespace.write_zeroes_max_blocks == 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let (next, blocks) = namespace.range(request.offset, request.length)?;
        let mut range = ZeroRange {
            reference: namespace.reference(),
            next,
            end: next + blocks,
            step_blocks: namespace.write_zeroes_max_blocks.min(65_536),
            deallocate: punch && namespace.zeroes_deallocate,
        };
        let Some(mut io) = range.step(0) else { return Err(Errno::INVAL) };
        io.user = self.add_pending(Pending::Zero { unique: header.unique, range });
        self.submit(io);
        Ok(())
    }

    /// Adds a request that needs a reply. Returns its number, the command's `user`.
    fn add_pending(&mut self, pending: Pending) -> u64 {
        let index = match self.free.pop() {
            Some(index) => {
                self.pending[index] = Some(pending);
                index
            }
            None => {
                self.pending.push(Some(pending));
                self.pending.len() - 1
            }
        };
        index as u64
    }

    fn submit(&mut self, io: Io) {
        if let Err(io) = self.blocks.submit(io) {
            self.backlog.push_back(io);
        }
    }

    fn resubmit(&mut self) {
        let mut sent = false;
        while let Some(io) = self.backlog.pop_front() {
            if let Err(io) = self.blocks.submit(io) {
                self.backlog.push_front(io);
                break;
            }
            sent = true;
        }
        if sent {
            self.blocks.flush();
        }
    }

    fn complete(&mut self, done: Done) {
        let slot =
            usize::try_from(done.user).ok().and_then(|index| Some((index, self.pending.get_mut(index)?.take()?)));
        let Some((index, mut pending)) = slot else {
            tracing::error!(user = done.user, "a completion that nobody waits for");
            return;
        };
        if let (Pending::Zero { range, .. }, Ok(())) = (&mut pending, done.result)
            && let Some(io) = range.step(done.user)
        {
            self.pending[index] = Some(pending);
            // Through the backlog, which is sent at the end of `poll_once`.
            self.backlog.push_back(io);
            return;
        }
        self.free.push(index);
        let is_of_inbox = matches!(pending, Pending::Write { bytes, .. } if bytes as usize > COPY_MAX_BYTES);
        match (pending, done.result) {
            (
                Pending::Read { unique }
                | Pending::Write { unique, .. }
                | Pending::Flush { unique }
                | Pending::Zero { unique, .. },
                Err(error),
            ) => self.reply_error(unique, error),
            (Pending::Read { unique }, Ok(())) => self.reply(unique, &done.data),
            (Pending::Write { unique, bytes }, Ok(())) => {
                self.reply(unique, wire::WriteOut { size: bytes, padding: 0 }.as_bytes());
            }
            (Pending::Flush { unique } | Pending::Zero { unique, .. }, Ok(())) => self.reply(unique, &[]),
        }
        if !is_of_inbox {
            self.spare.give(done.data);
        }
    }

    fn reply(&self, unique: u64, body: &[u8]) {
        let header_bytes = size_of::<wire::OutHeader>();
        let len = u32::try_from(header_bytes + body.len()).expect("a reply is at most a transfer and its header");
        self.send(wire::OutHeader { len, error: 0, unique }, body);
    }

    fn reply_error(&self, unique: u64, error: Errno) {
        let len = 16;
        self.send(wire::OutHeader { len, error: -error.raw_os_error(), unique }, &[]);
    }

    fn send(&self, header: wire::OutHeader, body: &[u8]) {
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(body)];
        match rustix::io::writev(&self.shared.device, &parts) {
            // NOENT: the request was interrupted. NODEV: unmounted.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(error) => tracing::error!(%error, unique = header.unique, "the kernel refused a FUSE reply"),
        }
    }
}

/// The kernel requires a buffer for the largest request, and at least 8 KiB.
fn receive_bytes(shared: &Shared) -> usize {
    (shared.transfer_max_bytes as usize).max(8192)
}

fn attributes(entry: &Entry) -> wire::Attr {
    let size = entry.namespace.size_bytes();
    wire::Attr {
        ino: entry.id,
        size,
        blocks: size / 512,
        mode: if entry.namespace.read_only { 0o100_400 } else { 0o100_600 },
        nlink: 1,
        blksize: entry.namespace.block_bytes.max(4096),
        ..wire::Attr::default()
    }
}
