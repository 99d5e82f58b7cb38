//! NVMe/RDMA: a queue pair, the transport core, and the buffers that the adapter moves data of.
//!
//! Capsules lie in the queue pair's own memory: a receive is posted again when the command in it is
//! dealt with, and data in its capsule are used from there. Data elsewhere in the host's memory are
//! read and written by the adapter, between there and buffers that the queue pair holds meanwhile.
//! What the core says is posted by [`flush`](Transport::flush), once per turn; responses that wait
//! for nothing are posted at once, and begun when there are a few, or with the rest.
//!
//! A queue pair that was busy a moment ago is polled; it is armed before its reactor sleeps, or
//! when nothing has come for a while.

mod closing;
mod completions;
mod held;
mod pointers;
mod sending;

use std::collections::VecDeque;
use std::ops::Range;

use ebof_backend::Buffer;
use ebof_nvme::{Cid, Cqe, QueueId, Status};
use ebof_rdma::Segments;
use ebof_rdma::controller::{Cancelled, Command, Connection, Location};
use ebof_verbs::{Bell, QueuePair, Remote, WorkStatus};

use self::closing::Closing;
use self::completions::{GivenUp, KEPT_MS};
use self::held::{HeldBuffers, Kept, Origin, Outgoing};
use self::pointers::Pointers;
use super::message_queue::MessageQueue;
use super::transport::{Capsules, Messages, Notifier, OwnMemory, Polled, Transport, ZeroCopy};
use super::{End, Event, Fetch, Flushed, Inline, Opening, Received, STALLED_MS, Stopped};
use crate::ports::peer::{Peer, PeerAddress};
use crate::ports::rdma_connection::{RdmaConnection, Registered};
use crate::shared::buffer::Pool;
use crate::shared::reactor_context::ReactorContext;

/// One connection's NVMe/RDMA.
pub(crate) struct Rdma {
    peer: PeerAddress,
    /// `None` once it is gone.
    pair: Option<Registered>,
    core: Connection,
    sends_with_invalidate: bool,
    /// Its receives are those of others, too: they are posted again whatever becomes of it.
    shares_receives: bool,
    queue: MessageQueue,
    /// Capsules that have come and are not taken yet; at most as many as the queue has entries.
    received: VecDeque<Capsule>,
    /// The last command that was taken, until it is dealt with.
    current: Option<Current>,
    /// Where commands that are under way have their data in the host's memory.
    pointers: Pointers,
    /// Buffers that the adapter reads data into, by slot of the command.
    fetching: Vec<Option<Fetching>>,
    /// Data that are in their buffers, and not reported yet.
    fetched: VecDeque<Fetched>,
    /// Buffers of the responses that are queued.
    outgoing: HeldBuffers,
    /// The responses that are posted, by send slot.
    sending: Vec<Sending>,
    /// Held buffers whose data are written.
    returned: Vec<Outgoing>,
    /// Bytes in buffers that were given to the queue pair with their data.
    given_bytes: usize,
    /// Those that stay.
    kept: Kept,
    /// A buffer for data that do not come from a device, kept for the next ones.
    spare: Option<Buffer>,
    unsent_bytes: usize,
    /// The most data that a capsule may carry, where the controller has a limit of its own.
    in_capsule_bytes_max: u32,
    is_established: bool,
    /// Its descriptor or bell tells when there is something.
    is_armed: bool,
    /// It is armed only when its reactor is about to sleep.
    is_busy_polled: bool,
    /// Looks that found nothing, since one that did.
    idle_looks: u32,
    /// Bytes that were collected and not reported yet.
    collected_bytes: usize,
    /// Something is over that the next flush can make use of.
    has_progress: bool,
    /// Why it ends, until that is reported.
    end: Option<End>,
    /// Why what was posted early could not be begun, until the next flush.
    not_begun: Option<End>,
    /// The adapter has given it up, and it is kept.
    loss: Option<GivenUp>,
    /// The peer's end of the connection is gone.
    peer_is_gone: bool,
    /// How much was ever sent or fetched.
    done: u64,
    /// Since when that has not changed although something is under way, milliseconds, and what it
    /// was.
    standstill: Option<(u64, u64)>,
    is_refusal_logged: bool,
    closing: Option<Closing>,
}

/// A command capsule, by its receive slot.
#[derive(Clone, Copy, Debug)]
struct Capsule {
    slot: u32,
    length: u32,
}

/// A command whose receive is not posted again yet.
#[derive(Debug)]
struct Current {
    slot: u32,
    /// Its data in the capsule.
    data: Range<usize>,
    cid: Cid,
    /// Its data in the host's memory, while they are not among the [`Pointers`].
    segments: Option<Segments>,
}

/// A buffer that data of a command are read into.
#[derive(Debug)]
struct Fetching {
    held: ebof_verbs::Held,
    /// Where in the buffer they go.
    offset: u32,
    length: u32,
    buffer_bytes: usize,
    /// The host has as much as the command needs.
    is_enough: bool,
}

/// The fields of [`Event::Fetched`].
struct Fetched {
    slot: u32,
    buffer: Buffer,
    is_intact: bool,
}

/// A response that was posted.
#[derive(Clone, Copy, Debug, Default)]
struct Sending {
    /// Bytes of the data before it.
    length: u32,
    /// Their buffer, if it is held.
    held: Option<Outgoing>,
}

/// When as much is posted and not begun, it is begun before the next command: that is two reads or
/// three writes of a drive in memory, with their receives, or as many again of other devices. The
/// adapter works on them while the thread goes on.
const FLUSH_AT: usize = 6;

/// Why there is a queue pair: the control thread gets it when the connection is gone and nothing of
/// it is left ([`Rdma::settle_held`]), and no command goes over a connection that is gone.
const CONNECTED: &str = "a queue pair stays as long as its connection";

/// In-capsule data that no controller limits.
const UNLIMITED: u32 = u32::MAX;

impl Rdma {
    /// `bell` rings where there is no descriptor.
    pub(crate) fn new(connection: RdmaConnection, peer: PeerAddress, bell: Bell) -> Self {
        let RdmaConnection { core, sends, entries, sends_with_invalidate, shares_receives, is_busy_polled, pair } =
            connection;
        pair.pair.set_bell(bell);
        let entries = entries as usize;
        Self {
            peer,
            pair: Some(pair),
            core,
            sends_with_invalidate,
            shares_receives,
            queue: MessageQueue::new(),
            received: VecDeque::with_capacity(entries),
            current: None,
            pointers: Pointers::new(entries),
            fetching: Vec::with_capacity(entries),
            fetched: VecDeque::with_capacity(entries),
            outgoing: HeldBuffers::new(entries + sends as usize),
            sending: vec![Sending::default(); sends as usize],
            returned: Vec::with_capacity(entries),
            given_bytes: 0,
            kept: Kept::new(entries),
            spare: None,
            unsent_bytes: 0,
            in_capsule_bytes_max: UNLIMITED,
            is_established: false,
            is_armed: false,
            is_busy_polled,
            idle_looks: 0,
            collected_bytes: 0,
            has_progress: false,
            end: None,
            not_begun: None,
            loss: None,
            peer_is_gone: false,
            done: 0,
            standstill: None,
            is_refusal_logged: false,
            closing: None,
        }
    }

    /// The queue pair, while there is one.
    #[inline]
    fn pair(&mut self) -> Option<&mut QueuePair> {
        self.pair.as_mut().map(|registered| &mut registered.pair)
    }

    /// What the adapter has said when it gave up the connection.
    pub(super) fn loss(&self) -> Option<WorkStatus> {
        self.loss.map(|loss| loss.status)
    }

    fn post_receive(&mut self, slot: u32) {
        // A receive that is not posted again is one that the host has lost.
        self.connected().post_receive(slot);
    }

    /// The queue pair of a connection that is not gone.
    #[inline]
    fn connected(&mut self) -> &mut QueuePair {
        self.pair().expect(CONNECTED)
    }

    /// Begins what is posted, if that is at least so much.
    #[inline]
    fn flush_if(&mut self, entries: usize) -> Result<(), End> {
        match &mut self.pair {
            Some(Registered { pair, .. }) if pair.unflushed() >= entries => {
                self.core.on_flushed();
                Ok(pair.flush()?)
            }
            _ => Ok(()),
        }
    }

    /// Takes the next capsule. `None`: there is none.
    fn take_capsule(&mut self, draining: bool) -> Result<Option<Event>, End> {
        self.flush_if(FLUSH_AT)?;
        let Some(Capsule { slot, length }) = self.received.pop_front() else {
            if self.shares_receives {
                // Others wait for the receives of commands that have begun: not until those are
                // complete.
                self.flush_if(1)?;
            }
            return Ok(None);
        };
        let Registered { pair, .. } = self.pair.as_ref().expect(CONNECTED);
        // No adapter puts more into a receive than that has room for.
        let capsule = pair.received(slot).get(..length as usize).unwrap_or_default();
        let Command { sqe, data, .. } = self.core.receive(capsule)?;
        let (segments, range) = match data {
            Ok(Location::Remote(segments)) => (Some(segments), 0..0),
            Ok(Location::InCapsule { offset, length }) => (None, offset as usize..(offset + length) as usize),
            Ok(Location::None) | Err(_) => (None, 0..0),
        };
        if draining {
            self.core.withdraw(segments);
            self.post_receive(slot);
            return Ok(Some(Event::Progress { answered: true }));
        }
        let in_capsule = u32::try_from(range.len()).unwrap_or(u32::MAX);
        let status = match data {
            Err(status) => Some(status),
            Ok(_) if in_capsule > self.in_capsule_bytes_max => Some(Status::SGL_OFFSET_INVALID.dnr()),
            Ok(_) => None,
        };
        if let Some(status) = status {
            self.post_receive(slot);
            return Ok(Some(Event::Refused { sqe, status }));
        }
        self.current = Some(Current { slot, data: range, cid: sqe.cid(), segments });
        Ok(Some(Event::Command { sqe, in_capsule }))
    }

    /// Where a command that is over has its data in the host's memory.
    #[inline]
    fn take_segments(&mut self, cid: Cid) -> Option<Segments> {
        match &mut self.current {
            Some(current) if current.cid == cid => current.segments.take(),
            _ => self.pointers.take(cid),
        }
    }

    /// Copies the data in the capsule of the last command.
    fn fetch_inline(&mut self, mut fetch: Fetch) {
        let source = self.current.as_ref().zip(self.pair.as_ref());
        let is_intact =
            fetch
                .fill(source.and_then(|(current, registered)| {
                    registered.pair.received(current.slot).get(current.data.clone())
                }));
        let Fetch { slot, buffer, .. } = fetch;
        self.fetched.push_back(Fetched { slot, buffer, is_intact });
    }
}

fn of(remote: ebof_rdma::Remote) -> Remote {
    Remote { address: remote.address, key: remote.key }
}

impl Transport for Rdma {
    fn notifier(&self) -> Notifier<'_> {
        let descriptor = self.pair.as_ref().and_then(|registered| registered.pair.descriptor());
        // Without one its bell may be missed until it is armed: it is polled until then.
        descriptor.map_or(Notifier::ArmedBell, Notifier::Descriptor)
    }

    fn is_initialized(&self) -> bool {
        self.is_established
    }

    fn receive(&mut self, limit: usize, _scratch: &mut [u8]) -> Result<Option<Received>, End> {
        self.look(limit)?;
        let total = std::mem::take(&mut self.collected_bytes);
        Ok((total > 0).then_some(Received { total, in_scratch: 0, room: usize::MAX }))
    }

    fn is_at_command(&self, _input: &[u8]) -> bool {
        self.fetched.is_empty() && !self.has_progress && !self.received.is_empty()
    }

    #[inline(always)]
    fn poll(&mut self, _input: &mut &[u8], draining: bool) -> Result<Option<Event>, End> {
        if let Some(Fetched { slot, buffer, is_intact }) = self.fetched.pop_front() {
            return Ok(Some(Event::Fetched { slot, buffer, is_intact }));
        }
        if std::mem::take(&mut self.has_progress) {
            return Ok(Some(Event::Progress { answered: true }));
        }
        self.take_capsule(draining)
    }

    fn unparsed(&self) -> usize {
        self.received.len() + self.fetched.len()
    }

    fn fetch(&mut self, fetch: Fetch) -> Result<(), Buffer> {
        if fetch.pointer.is_in_capsule() {
            self.fetch_inline(fetch);
            return Ok(());
        }
        let Fetch { slot, buffer, offset, length, .. } = fetch;
        let Some(segments) = Segments::from_pointer(&fetch.pointer).filter(|_| length > 0) else {
            self.fetched.push_back(Fetched { slot, buffer, is_intact: length == 0 });
            return Ok(());
        };
        let buffer_bytes = buffer.capacity();
        let held = match self.connected().hold(buffer) {
            Ok(held) => held,
            Err((buffer, error)) => {
                self.log_refusal(&error);
                return Err(buffer);
            }
        };
        let is_enough = segments.length() >= length;
        let offset = u32::try_from(offset).expect("buffers are far below 4 GiB");
        if self.fetching.len() <= slot as usize {
            self.fetching.resize_with(slot as usize + 1, || None);
        }
        let before = self.fetching[slot as usize].replace(Fetching { held, offset, length, buffer_bytes, is_enough });
        assert!(before.is_none(), "the buffer of a command that is over is taken before its slot is used again");
        let has_reads = self.core.read(slot, segments, length);
        debug_assert!(has_reads, "neither the command nor its segments are empty");
        Ok(())
    }

    fn stop_fetching(&mut self, _cid: Cid, slot: u32) -> Stopped {
        if let Some(at) = self.fetched.iter().position(|fetched| fetched.slot == slot) {
            return Stopped::Ended(self.fetched.remove(at).expect("its place was found").buffer);
        }
        match self.core.cancel(slot) {
            Cancelled::UnderWay => Stopped::Arriving,
            Cancelled::Ended => Stopped::Ended(self.take_fetching(slot).1),
        }
    }

    #[inline]
    fn respond(&mut self, cqe: &Cqe) {
        let segments = self.take_segments(cqe.cid());
        self.push_response(cqe, segments);
    }

    fn send_bytes(&mut self, cid: Cid, data: &[u8], cqe: &Cqe) {
        let length = u32::try_from(data.len()).expect("as much as the command asked for");
        let pointer = self.take_segments(cid);
        let Some(segments) = pointer.filter(|_| length > 0) else {
            return self.push_response(cqe, pointer);
        };
        let spare = self.spare.take().filter(|buffer| buffer.capacity() >= data.len());
        let mut buffer = spare.unwrap_or_else(|| Buffer::zeroed(data.len()));
        buffer.as_mut_slice()[..data.len()].copy_from_slice(data);
        // Where the device does not take it, the command has failed.
        let _ = self.hold_and_push(segments, buffer, length, cqe, Origin::Own);
    }

    #[inline]
    fn send_buffer(&mut self, cid: Cid, buffer: Buffer, length: u32, cqe: &Cqe, pool: &mut Pool) {
        self.push_data(cid, buffer, length, cqe, pool);
    }

    #[inline]
    fn unsent_bytes(&self) -> usize {
        // Nothing of it is ever sent where the adapter has given up.
        if self.loss.is_some() { 0 } else { self.unsent_bytes }
    }

    fn flush(&mut self, context: &mut ReactorContext<'_>) -> Result<Flushed, End> {
        self.report_loss(context);
        self.give_returned(context.pool);
        self.post()?;
        self.note_standstill(context.now_ms);
        Ok(Flushed::All)
    }

    fn drop_input(&mut self, give: &mut dyn FnMut(Buffer)) {
        if self.shares_receives {
            self.return_receives();
        }
        self.received.clear();
        self.current = None;
        self.fetched.drain(..).for_each(|fetched| give(fetched.buffer));
    }

    fn start_closing(&mut self, _end: &End, pool: &mut Pool) -> bool {
        // The transport has no message about a reason.
        self.disconnect();
        self.take_back(pool);
        false
    }

    fn close(&mut self, _peer: &Peer, context: &mut ReactorContext<'_>) {
        self.disconnect();
        self.settle_held(context);
    }

    fn peer_is_gone(&mut self) -> bool {
        self.take_events();
        self.peer_is_gone
    }

    fn shrink(&mut self, pool: &mut Pool) {
        self.spare = None;
        self.give_kept(pool);
    }
}

impl Messages for Rdma {
    fn open(&mut self, opening: &Opening) {
        self.queue.open(opening.submission_queue);
        self.in_capsule_bytes_max = opening.in_capsule_bytes.unwrap_or(UNLIMITED);
        let QueueId(asked) = self.core.queue();
        if asked != opening.id.0 {
            self.end = Some(End::OtherQueue { private_data: QueueId(asked), connect: opening.id });
        }
    }

    fn withdraw(&mut self) {
        // Asynchronous Event Requests only end so, and they have no data.
        self.queue.withdraw();
        self.core.withdraw(None);
    }
}

impl Capsules for Rdma {
    fn take_inline<'s, 'i: 's>(&'s mut self, _input: &mut &'i [u8]) -> Option<Inline<'s>> {
        let Current { slot, data, .. } = self.current.as_ref().filter(|current| !current.data.is_empty())?;
        let bytes = self.pair.as_ref()?.pair.received(*slot).get(data.clone())?;
        Some(Inline { bytes, is_intact: true })
    }

    #[inline]
    fn after_command(&mut self) {
        if let Some(Current { slot, cid, segments, .. }) = self.current.take() {
            if let Some(segments) = segments {
                self.pointers.insert(cid, segments);
            }
            self.post_receive(slot);
        }
    }
}

impl OwnMemory for Rdma {
    #[inline]
    fn own_memory(&mut self, length: u32) -> Option<&mut [u8]> {
        self.memory_of_kept(length)
    }

    #[inline]
    fn send_own(&mut self, cid: Cid, length: u32, cqe: &Cqe) {
        self.push_kept(cid, length, cqe);
    }
}

impl ZeroCopy for Rdma {
    fn unacknowledged_since_ms(&self) -> Option<u64> {
        match &self.loss {
            // Given up only after `KEPT_MS`.
            Some(GivenUp { since_ms, .. }) => since_ms.map(|since_ms| since_ms + KEPT_MS - STALLED_MS),
            None => self.standstill.map(|(since_ms, _)| since_ms),
        }
    }

    fn look_at_stall(&mut self, now_ms: u64) {
        self.note_standstill(now_ms);
    }

    fn settle(&mut self, _peer: &Peer, context: &mut ReactorContext<'_>) {
        self.settle_held(context);
    }

    fn settle_ms(&self) -> Option<u64> {
        self.closing.as_ref().map(|closing| closing.look_ms)
    }
}

impl Polled for Rdma {
    #[inline]
    fn is_polled(&self) -> bool {
        !self.is_armed && self.pair.is_some()
    }

    fn arm(&mut self) -> Result<bool, End> {
        self.arm_and_look()
    }
}
