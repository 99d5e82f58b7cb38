//! One thread of the ublk server: fetches requests of its queue of every device, turns them into
//! block commands, commits the results. It owns its ring, its [`BlockQueue`] and every buffer.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use ebof_idle::Idle;
use rustix::io::{Errno, pread, pwrite};

use super::wire::{self, IoCommand, op};
use super::{Descriptors, QueueRing};
use crate::block_queue::buffer::{Buffer, KEPT_TIME, Spare};
use crate::block_queue::{BlockQueue, Done, Io, Namespace, Op};

/// Entries of a ring; more commands are submitted in batches.
const RING_ENTRIES: u32 = 256;
/// How long a thread spins before it sleeps.
const SPIN_US: u64 = 50;
/// `user` of the poll of the block queue's descriptor; devices have smaller numbers.
const USER_BLOCKS: u64 = u64::MAX;
/// `user` of the poll of the inbox.
const USER_WAKE: u64 = u64::MAX - 1;
/// The kernel's unit of block devices.
const SECTOR_BYTES: u64 = 512;

/// An order to a thread.
pub(super) enum Order {
    /// Serve a queue of a new device, until the device is stopped.
    Serve {
        device: Arc<File>,
        descriptors: Descriptors,
        depth: u16,
        namespace: Namespace,
        /// Sent to when the queue has released the device.
        release: Sender<()>,
    },
    /// End.
    End,
}

/// The thread's queue of one device.
struct DeviceQueue {
    device: Arc<File>,
    descriptors: Descriptors,
    namespace: Namespace,
    release: Sender<()>,
    /// The request of each tag; `None` while it waits for one.
    tags: Vec<Option<Request>>,
    /// Tags that the driver has not ended.
    alive: u16,
}

/// A request in progress.
#[derive(Clone, Copy, Debug)]
struct Request {
    is_read: bool,
    bytes: i32,
}

/// A thread's state.
pub(super) struct Worker<B> {
    queue: u16,
    ring: QueueRing,
    blocks: B,
    inbox: Receiver<Order>,
    wake: Arc<OwnedFd>,
    watching_blocks: bool,
    watching_wake: bool,
    device_queues: Vec<Option<DeviceQueue>>,
    backlog: VecDeque<Io>,
    spare: Spare,
    completions: Vec<(u64, i32)>,
    done: Vec<Done>,
    /// All commands that have completed.
    completed: u64,
    ended: bool,
}

impl<B: BlockQueue> Worker<B> {
    pub(super) fn new(queue: u16, blocks: B, inbox: Receiver<Order>, wake: Arc<OwnedFd>) -> io::Result<Self> {
        Ok(Self {
            queue,
            ring: QueueRing::new(RING_ENTRIES)?,
            blocks,
            inbox,
            wake,
            watching_blocks: false,
            watching_wake: false,
            device_queues: Vec::new(),
            backlog: VecDeque::new(),
            spare: Spare::default(),
            completions: Vec::new(),
            done: Vec::new(),
            completed: 0,
            ended: false,
        })
    }

    /// Serves until it is ordered to end.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let began = Instant::now();
        let now_us = || ebof_idle::micros_since(began);
        let mut idle = Idle::new(SPIN_US);
        let mut turns = 0_u32;
        while !self.ended {
            let (busy, sleep_max) = self.poll_once()?;
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
            // Yields first: the thread that makes work for this one may need the processor, and the
            // kernel completes fetches when this thread enters it.
            idle.rest(now_us, |bound| self.sleep(sleep_max, bound))?;
        }
        Ok(())
    }

    /// Serves requests and completions once. Returns whether there were any, and how long to sleep
    /// at most.
    fn poll_once(&mut self) -> io::Result<(bool, Option<Duration>)> {
        let mut busy = self.take_orders()?;
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.completions(&mut completions);
        busy |= !completions.is_empty();
        for (user, result) in completions.drain(..) {
            self.on_completion(user, result)?;
        }
        self.completions = completions;
        if busy {
            self.blocks.flush();
        }
        let mut done = std::mem::take(&mut self.done);
        let sleep_max = self.blocks.poll(&mut done);
        busy |= !done.is_empty();
        self.completed += done.len() as u64;
        for completion in done.drain(..) {
            self.finish(completion)?;
        }
        self.done = done;
        self.resubmit();
        self.ring.submit()?;
        Ok((busy, sleep_max))
    }

    /// Sleeps until there is something to do, or a timeout. Returns whether there is something.
    fn sleep(&mut self, sleep_max: Option<Duration>, bound: Option<Duration>) -> io::Result<bool> {
        // A poll of a readable descriptor completes at once.
        if !self.watching_blocks {
            self.ring.watch(self.blocks.fd(), USER_BLOCKS)?;
            self.watching_blocks = true;
        }
        if !self.watching_wake {
            self.ring.watch(self.wake.as_fd(), USER_WAKE)?;
            self.watching_wake = true;
        }
        let trims = bound.is_none() && self.spare.is_kept();
        let kept_time = trims.then_some(KEPT_TIME);
        let woken = self.ring.wait(sleep_max.into_iter().chain(bound).chain(kept_time).min())?;
        if trims && !woken {
            self.spare.trim();
        }
        Ok(woken)
    }

    fn take_orders(&mut self) -> io::Result<bool> {
        let mut busy = false;
        loop {
            match self.inbox.try_recv() {
                Ok(Order::Serve { device, descriptors, depth, namespace, release }) => {
                    let tags = vec![None; usize::from(depth)];
                    self.serve(DeviceQueue { device, descriptors, namespace, release, tags, alive: depth })?;
                    busy = true;
                }
                Ok(Order::End) | Err(TryRecvError::Disconnected) => {
                    self.ended = true;
                    return Ok(true);
                }
                Err(TryRecvError::Empty) => return Ok(busy),
            }
        }
    }

    /// Fetches the first request of every tag.
    fn serve(&mut self, device_queue: DeviceQueue) -> io::Result<()> {
        let slot = self.device_queues.iter().position(Option::is_none).unwrap_or_else(|| {
            self.device_queues.push(None);
            self.device_queues.len() - 1
        });
        for tag in 0..device_queue.alive {
            let command = IoCommand { q_id: self.queue, tag, result: 0, addr: 0 };
            self.ring.command(&device_queue.device, wire::io::FETCH_REQ, command, user(slot, tag))?;
        }
        self.device_queues[slot] = Some(device_queue);
        Ok(())
    }

    fn on_completion(&mut self, number: u64, result: i32) -> io::Result<()> {
        match number {
            USER_BLOCKS => self.watching_blocks = false,
            USER_WAKE => {
                self.watching_wake = false;
                // Only to clear it.
                let mut count = [0; 8];
                let _quiet = rustix::io::read(&self.wake, &mut count);
            }
            _ => {
                let (slot, tag) = slot_and_tag(number);
                if result < 0 {
                    self.tag_ended(slot, tag, result);
                } else if let Err(error) = self.begin(slot, tag) {
                    self.commit(slot, tag, -error.raw_os_error())?;
                }
            }
        }
        Ok(())
    }

    /// The driver has ended a tag because the device is stopped.
    fn tag_ended(&mut self, slot: usize, tag: u16, result: i32) {
        if result != -Errno::NODEV.raw_os_error() {
            tracing::error!(tag, result, "the ublk driver refused a command");
        }
        let Some(device_queue) = self.device_queues.get_mut(slot).and_then(Option::as_mut) else { return };
        device_queue.alive = device_queue.alive.saturating_sub(1);
        if device_queue.alive == 0
            && let Some(device_queue) = self.device_queues.get_mut(slot).and_then(Option::take)
        {
            let release = device_queue.release.clone();
            // The device is closed first: the receiver is about to delete it.
            drop(device_queue);
            let _nobody_waits = release.send(());
        }
    }

    /// Starts the request of a tag.
    fn begin(&mut self, slot: usize, tag: u16) -> Result<(), Errno> {
        let device_queue = self.device_queues.get_mut(slot).and_then(Option::as_mut).ok_or(Errno::NODEV)?;
        let descriptor = device_queue.descriptors.get(tag).ok_or(Errno::IO)?;
        let namespace = &device_queue.namespace;
        let operation = match descriptor.op_flags & 0xff {
            op::READ => Op::Read,
            op::WRITE => Op::Write { fua: descriptor.op_flags & op::FUA != 0 },
            op::FLUSH => Op::Flush,
            op::DISCARD => Op::Deallocate,
            op::WRITE_ZEROES => {
                let deallocate = namespace.zeroes_deallocate && descriptor.op_flags & op::NOUNMAP == 0;
                Op::WriteZeroes { deallocate }
            }
            _ => return Err(Errno::OPNOTSUPP),
        };
        let bytes = u64::from(descriptor.nr_sectors) * SECTOR_BYTES;
        // The start sector of a flush is meaningless.
        let (slba, blocks) = if operation == Op::Flush {
            (0, 0)
        } else {
            let offset = descriptor.start_sector.checked_mul(SECTOR_BYTES).ok_or(Errno::INVAL)?;
            namespace.range(offset, bytes)?
        };
        let blocks = u32::try_from(blocks).map_err(|_too_many| Errno::INVAL)?;
        let mut data = Buffer::default();
        if matches!(operation, Op::Read | Op::Write { .. }) {
            if bytes > u64::from(namespace.transfer_max_bytes) {
                return Err(Errno::INVAL);
            }
            data = self.spare.take(usize::try_from(bytes).map_err(|_too_many| Errno::INVAL)?);
        }
        if matches!(operation, Op::Write { .. }) {
            move_data(&mut data, wire::data_position(self.queue, tag), |part, at| {
                pread(&device_queue.device, part, at)
            })?;
        }
        // The driver uses the result for READ and WRITE only, whose sizes fit.
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        let request = Request { is_read: operation == Op::Read, bytes };
        *device_queue.tags.get_mut(usize::from(tag)).ok_or(Errno::IO)? = Some(request);
        let io = Io { reference: namespace.reference(), op: operation, slba, blocks, data, user: user(slot, tag) };
        if let Err(io) = self.blocks.submit(io) {
            self.backlog.push_back(io);
        }
        Ok(())
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

    fn finish(&mut self, mut done: Done) -> io::Result<()> {
        let (slot, tag) = slot_and_tag(done.user);
        let device_queue = self.device_queues.get_mut(slot).and_then(Option::as_mut);
        let request = device_queue.and_then(|device_queue| device_queue.tags.get_mut(usize::from(tag))?.take());
        let Some(request) = request else {
            tracing::error!(user = done.user, "a completion that nobody waits for");
            return Ok(());
        };
        let result = done.result.and_then(|()| {
            if request.is_read {
                let device_queue = self.device_queues.get(slot).and_then(Option::as_ref).ok_or(Errno::NODEV)?;
                let position = wire::data_position(self.queue, tag);
                move_data(&mut done.data, position, |part, at| pwrite(&device_queue.device, part, at))?;
            }
            Ok(request.bytes)
        });
        self.spare.give(done.data);
        self.commit(slot, tag, result.unwrap_or_else(|error| -error.raw_os_error()))
    }

    /// Commits the result of a request and fetches the tag's next one.
    fn commit(&mut self, slot: usize, tag: u16, result: i32) -> io::Result<()> {
        let Some(device_queue) = self.device_queues.get(slot).and_then(Option::as_ref) else { return Ok(()) };
        let command = IoCommand { q_id: self.queue, tag, result, addr: 0 };
        self.ring.command(&device_queue.device, wire::io::COMMIT_AND_FETCH_REQ, command, user(slot, tag))
    }
}

/// Moves all of `data`, in several calls if necessary.
fn move_data(
    data: &mut [u8],
    position: u64,
    mut call: impl FnMut(&mut [u8], u64) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    let mut moved = 0;
    while moved < data.len() {
        match call(&mut data[moved..], position + moved as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(bytes) => moved += bytes,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn user(slot: usize, tag: u16) -> u64 {
    (slot as u64) << 16 | u64::from(tag)
}

fn slot_and_tag(user: u64) -> (usize, u16) {
    let [low, high, ..] = user.to_le_bytes();
    (usize::try_from(user >> 16).unwrap_or(usize::MAX), u16::from_le_bytes([low, high]))
}
