//! The link over NVMe/RDMA: a queue pair of `ebof-verbs`, the protocol state of `ebof-rdma`, and
//! memory for data whose buffers an adapter cannot access.
//!
//! The controller reads and writes the data of commands itself. Buffers that lie in a region
//! ([`crate::IoBuffer::region`]) are registered once, and their own memory is named in the command;
//! data of others are copied through the link's [`Bounce`] memory. Small data to the controller
//! travel in the capsule.
//!
//! Buffers are in the engine's slots. They return to their owners when their command is over, or
//! after [`Transport::close`], which destroys the queue pair: the adapter accesses nothing then.

mod bounce;
mod connect;
mod keys;

use std::collections::VecDeque;
use std::sync::Arc;

use ebof_nvme::{Cid, Cqe, Sqe};
use ebof_rdma::Remote;
use ebof_rdma::capsule::KEYED_LENGTH_MAX;
use ebof_rdma::host::{CommandData, Connection, FinishedCommand};
use ebof_verbs::{Event, QueuePair, WorkCompletion, WorkStatus};
use rustix::io::Errno;

use self::bounce::Bounce;
pub(super) use self::connect::connect;
use self::keys::RemoteKeys;
use super::{DataDirection, LinkCompletion, Received, Transport};
use crate::command::data::{AdminData, IoBuffer};
use crate::command::slots::Slots;
use crate::error::Loss;
use crate::wait::{Time, Waker, Watch};

/// One connection.
pub(crate) struct Rdma {
    /// The first field: it is dropped before the memory that the adapter accesses.
    pair: QueuePair,
    connection: Connection,
    /// Rung by a simulated network; `None` if the queue pair has a descriptor.
    bell: Option<Arc<Waker>>,
    /// Data bytes that a command capsule may carry; a send slot has room for them.
    in_capsule: usize,
    /// Commands that may be sent and not answered, as many as the controller has receives.
    commands_max: usize,
    /// Those that are.
    commands: usize,
    /// Commands that are not posted yet: they wait for memory or for an answer.
    waiting: VecDeque<Waiting>,
    bounce: Bounce,
    keys: RemoteKeys,
    /// By slot of the engine: what its command took from `bounce`.
    copies: Box<[Option<ebof_region::Buffer>]>,
    /// By send slot: the command in it.
    sent: Box<[Cid]>,
    /// A completion that was received and not processed yet.
    next: Option<WorkCompletion>,
    /// Reads without a completion since events were last polled.
    idle_reads: u32,
    /// Why the connection has ended. Completions that came before are processed first.
    ended: Option<Loss>,
}

/// A command that is not posted.
struct Waiting {
    sqe: Sqe,
    index: u16,
    direction: DataDirection,
}

/// Bytes of bounce memory of an Admin Queue, which moves pages of logs and the like.
const ADMIN_BOUNCE_BYTES: usize = 1 << 20;
/// Bytes of bounce memory of an I/O queue.
const IO_BOUNCE_BYTES: usize = 16 << 20;
/// The most data in a capsule, whatever the controller takes: each send slot has room for them.
const IN_CAPSULE_MAX: usize = 16 << 10;
/// The most bytes of one command: the largest multiple of every block size that a keyed descriptor
/// can name.
const TRANSFER_MAX: u32 = 8 << 20;
const _: () = assert!(TRANSFER_MAX <= KEYED_LENGTH_MAX);
/// Reads without a completion after which a spinning owner looks for events, which takes a system
/// call.
const READS_PER_EVENT: u32 = 4096;

impl Rdma {
    /// Puts the command into a send slot and posts it. `false`: there is no room, or no memory for
    /// its data, before others are over.
    fn post<B: IoBuffer>(
        &mut self,
        sqe: &mut Sqe,
        index: u16,
        direction: DataDirection,
        slots: &mut Slots<B>,
        lent: &AdminData<'_>,
    ) -> bool {
        // A message, and its key.
        let entries = if self.keys.operations() > 0 { 2 } else { 1 };
        if self.commands >= self.commands_max || self.pair.room() < entries {
            return false;
        }
        let length = slots.at(index).expected;
        let in_capsule = direction == DataDirection::FromHost && length as usize <= self.in_capsule;
        let remote = match direction {
            DataDirection::None => None,
            DataDirection::FromHost if in_capsule => None,
            DataDirection::FromHost | DataDirection::ToHost => {
                match self.place(index, direction, length, slots, lent) {
                    Some(remote) => Some(remote),
                    None => return false,
                }
            }
        };
        // There are as many as commands, and each is free before its command is over.
        let slot = self.pair.take_send_slot().expect("a slot for each command");
        let transfer = match remote {
            Some(remote) => CommandData::Keyed { remote, length, invalidate: self.keys.may_be_invalidated() },
            None if in_capsule => {
                // As long as it was when it was submitted, unless the buffer's `AsRef` is broken.
                let payload = slots.data(index, lent).and_then(|bytes| bytes.get(..length as usize));
                CommandData::InCapsule { payload: payload.unwrap_or_default() }
            }
            None => CommandData::None,
        };
        let bytes = self.connection.send_command(sqe, transfer, self.pair.send_slot(slot));
        self.pair.post_send(slot, u32::try_from(bytes).unwrap_or(u32::MAX), None);
        self.sent[slot as usize] = sqe.cid();
        self.commands += 1;
        true
    }

    /// Where the adapter finds the command's data, or writes them: in their own buffer, or in a
    /// copy. `None`: there is no memory for a copy, or the connection has to end.
    fn place<B: IoBuffer>(
        &mut self,
        index: u16,
        direction: DataDirection,
        length: u32,
        slots: &mut Slots<B>,
        lent: &AdminData<'_>,
    ) -> Option<Remote> {
        if let Some((region, offset)) = slots.in_region(index)
            // A region that cannot be registered, for want of locked memory for example, is copied.
            && let Ok(key) = self.keys.key(&mut self.pair, index, (region, offset, length), direction)
        {
            let address = (region.address().addr() + offset) as u64;
            return key.map(|key| Remote { address, key });
        }
        let mut copy = self.bounce.take(length as usize)?;
        if direction == DataDirection::FromHost {
            let bytes = slots.data(index, lent).expect("a command with data for the controller has them");
            let length = bytes.len().min(length as usize);
            copy.as_mut_slice()[..length].copy_from_slice(&bytes[..length]);
        }
        match self.keys.key(&mut self.pair, index, (copy.region(), copy.offset(), length), direction) {
            Ok(Some(key)) => {
                let address = copy.as_slice().as_ptr().addr() as u64;
                self.copies[usize::from(index)] = Some(copy);
                Some(Remote { address, key })
            }
            refused => {
                self.bounce.give(copy);
                if let Err(error) = refused {
                    self.ended.get_or_insert(connect::loss(&error));
                }
                None
            }
        }
    }

    /// A response has come, and its command's message was sent.
    fn finish<B: IoBuffer>(
        &mut self,
        over: FinishedCommand,
        slots: &mut Slots<B>,
        lent: &mut AdminData<'_>,
        on_finished: &mut impl FnMut(&mut Slots<B>, LinkCompletion),
    ) -> Result<(), Loss> {
        self.commands = self.commands.checked_sub(1).expect("a command that is over was sent");
        let FinishedCommand { cqe, .. } = over;
        let Some(index) = slots.find(cqe.cid()) else {
            return Err(Loss::Protocol("a response to a command that is not outstanding".into()));
        };
        // The memory is somebody else's when the controller cannot access it any more.
        if self.keys.end(&mut self.pair, index, cqe) {
            self.complete(index, cqe, slots, lent, on_finished);
        }
        Ok(())
    }

    /// A command is over: copies its data to their buffer.
    fn complete<B: IoBuffer>(
        &mut self,
        index: u16,
        cqe: Cqe,
        slots: &mut Slots<B>,
        lent: &mut AdminData<'_>,
        on_finished: &mut impl FnMut(&mut Slots<B>, LinkCompletion),
    ) {
        let length = slots.at(index).expected;
        if let Some(copy) = self.copies.get_mut(usize::from(index)).and_then(Option::take) {
            if cqe.status().is_success()
                && let Some(room) = slots.data_mut(index, lent)
            {
                // What the controller has not written are bytes of an earlier command, which it has
                // seen before.
                let length = room.len().min(length as usize);
                room[..length].copy_from_slice(&copy.as_slice()[..length]);
            }
            self.bounce.give(copy);
        }
        // The adapter does not tell how many bytes the controller has moved.
        on_finished(slots, LinkCompletion { index, cqe, transferred: length });
    }

    /// Looks for events of the connection manager and the adapter.
    fn poll_events(&mut self) {
        self.idle_reads = 0;
        while self.ended.is_none() {
            self.ended = match self.pair.poll_event() {
                Ok(Some(event)) => ended_by(&event),
                Ok(None) => return,
                Err(error) => Some(connect::loss(&error)),
            };
        }
    }

    fn on_failure(&mut self, status: WorkStatus) -> Loss {
        // Flushed work has no reason of its own.
        self.poll_events();
        match self.ended.take() {
            Some(loss) if status == WorkStatus::Flushed => loss,
            _ => Loss::Rdma(status),
        }
    }
}

/// How an event ends the connection, if it does.
fn ended_by(event: &Event) -> Option<Loss> {
    match event {
        Event::Established { .. } => None,
        Event::Disconnected | Event::Rejected { .. } => Some(Loss::Closed),
        Event::Unreachable(status) => Some(Loss::Network(connect::errno_of(*status, Errno::HOSTUNREACH))),
        Event::DeviceRemoved => Some(Loss::RdmaEvent("the RDMA device was removed")),
        // As on Linux: a new connection finds the interface that has the address now.
        Event::AddressChanged => Some(Loss::RdmaEvent("the address has moved to another network interface")),
        Event::Fatal(reason) => Some(Loss::RdmaEvent(reason)),
    }
}

impl Transport for Rdma {
    fn set_slots(&mut self, slots: usize) {
        self.copies = (0..slots).map(|_| None).collect();
        self.keys.set_slots(slots);
        self.waiting.reserve(slots);
    }

    // The size of the send slots was decided when they were made.
    fn set_in_capsule(&mut self, _bytes: usize) {}

    fn transfer_max(&self) -> Option<u32> {
        Some(TRANSFER_MAX)
    }

    #[inline]
    fn submit<B: IoBuffer>(
        &mut self,
        sqe: &mut Sqe,
        index: u16,
        direction: DataDirection,
        _now_ms: u64,
        slots: &mut Slots<B>,
        lent: &AdminData<'_>,
    ) {
        if !self.waiting.is_empty() || !self.post(sqe, index, direction, slots, lent) {
            self.waiting.push_back(Waiting { sqe: *sqe, index, direction });
        }
    }

    fn flush<B: IoBuffer>(&mut self, slots: &mut Slots<B>, lent: &AdminData<'_>, _time: &Time) -> Result<(), Loss> {
        while let Some(mut waiting) = self.waiting.pop_front() {
            let Waiting { sqe, index, direction } = &mut waiting;
            if !self.post(sqe, *index, *direction, slots, lent) {
                self.waiting.push_front(waiting);
                break;
            }
        }
        // An ended connection is reported by the next receive, after the completions before.
        if self.pair.unflushed() > 0
            && self.ended.is_none()
            && let Err(error) = self.pair.flush()
        {
            self.ended = Some(connect::loss(&error));
        }
        Ok(())
    }

    fn receive<B: IoBuffer>(&mut self, _slots: &mut Slots<B>, _lent: &mut AdminData<'_>) -> Result<Received, Loss> {
        match self.pair.poll() {
            Ok(Some(completion)) => {
                self.next = Some(completion);
                self.idle_reads = 0;
                return Ok(Received::Full);
            }
            Ok(None) => {}
            Err(error) => return Err(connect::loss(&error)),
        }
        self.idle_reads += 1;
        if self.idle_reads >= READS_PER_EVENT {
            self.poll_events();
        }
        self.ended.take().map_or(Ok(Received::Nothing), Err)
    }

    fn poll<B: IoBuffer>(
        &mut self,
        slots: &mut Slots<B>,
        lent: &mut AdminData<'_>,
        mut on_finished: impl FnMut(&mut Slots<B>, LinkCompletion),
    ) -> Result<(), Loss> {
        while let Some(completion) = self.next.take() {
            let over = match completion {
                WorkCompletion::Received { slot, length, invalidated } => {
                    let capsule = self.pair.received(slot).get(..length as usize).unwrap_or_default();
                    let over = self.connection.receive(capsule, invalidated);
                    // Posted with the next flush, before the commands that it can be needed for.
                    self.pair.post_receive(slot);
                    over.map_err(|fatal| Loss::Protocol(fatal.to_string().into()))?
                }
                WorkCompletion::Sent { slot } => self.connection.on_sent(self.sent[slot as usize]),
                WorkCompletion::Done { id } => {
                    if let Some((index, cqe)) = self.keys.ended(id) {
                        self.complete(index, cqe, slots, lent, &mut on_finished);
                    }
                    None
                }
                WorkCompletion::Failed { status, .. } => return Err(self.on_failure(status)),
            };
            if let Some(over) = over {
                self.finish(over, slots, lent, &mut on_finished)?;
            }
            self.next = self.pair.poll().map_err(|error| connect::loss(&error))?;
        }
        Ok(())
    }

    fn has_unqueued_data(&self) -> bool {
        !self.waiting.is_empty() || self.keys.are_invalidated() && self.pair.unflushed() > 0
    }

    fn is_notified_on_request(&self) -> bool {
        true
    }

    fn prepare_to_sleep(&mut self) -> Result<bool, Loss> {
        if let Some(bell) = &self.bell {
            bell.clear();
        }
        self.poll_events();
        if self.ended.is_some() {
            return Ok(true);
        }
        // Every time, also if a notification was asked for before: the bell may just have been
        // cleared of it, and one that comes late would be left in the descriptor otherwise.
        self.pair.arm().map_err(|error| connect::loss(&error))?;
        // What came before has no notification.
        Ok(true)
    }

    fn reclaim<B>(&mut self, _slots: &mut Slots<B>) -> Result<(), Loss> {
        Ok(())
    }

    fn watch(&self) -> Watch<'_> {
        let of_bell = || self.bell.as_ref().and_then(|bell| bell.descriptor());
        Watch { descriptor: self.pair.descriptor().or_else(of_bell), blocked: false }
    }

    // Commands in `waiting` are sent when others are over.
    fn has_unsent(&self) -> bool {
        self.pair.unflushed() > 0
    }

    // The connection manager informs the peer of the end in any case.
    fn allow_graceful_close(&mut self) {}

    // Dropping the queue pair ends the connection, and all access to memory.
    fn close<B>(self, _slots: &mut Slots<B>) {}
}
