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
mod commands;
mod endpoint;
mod fetches;
mod health;
mod held;
mod pointers;
mod responses;

use ebof_backend::Buffer;
use ebof_nvme::{Cid, Cqe, QueueId};
use ebof_rdma::controller::SendEntry;
use ebof_verbs::{Bell, WorkCompletion, WorkRequest, WorkStatus};

use self::closing::Closing;
use self::commands::{Capsule, ReceivedCommands, UNLIMITED};
use self::endpoint::{Endpoint, GivenUp, KEPT_MS};
use self::fetches::{Fetched, Fetches};
use self::health::ConnectionHealth;
use self::responses::Responses;
use super::transport::{Capsules, Messages, Notifier, OwnMemory, Polled, Transport, ZeroCopy};
use super::{End, Event, Fetch, Flushed, Inline, Opening, Received, STALLED_MS, Stopped};
use crate::ports::peer::{Peer, PeerAddress};
use crate::ports::rdma_connection::RdmaConnection;
use crate::shared::buffer::Pool;
use crate::shared::reactor_context::ReactorContext;

/// One connection's NVMe/RDMA.
pub(crate) struct Rdma {
    peer: PeerAddress,
    endpoint: Endpoint,
    commands: ReceivedCommands,
    fetches: Fetches,
    responses: Responses,
    health: ConnectionHealth,
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
    /// Why what was posted early could not be begun, until the next flush.
    not_begun: Option<End>,
    closing: Option<Closing>,
}

/// When as much is posted and not begun, it is begun before the next command: that is two reads or
/// three writes of a drive in memory, with their receives, or as many again of other devices. The
/// adapter works on them while the thread goes on.
const FLUSH_AT: usize = 6;

/// What a completion costs of the connection's share at least, bytes.
const COMPLETION_BYTES: usize = 16;

/// Looks that find nothing, until the queue pair is armed although its reactor does not sleep.
const IDLE_LOOKS_MAX: u32 = 256;

/// Every so many looks, events are asked for although nothing told of them.
const EVENTS_EVERY: u32 = 16;

/// The most that is collected before the reactor may sleep, bytes: there is nothing normally.
const LOOK_BYTES: usize = 1 << 20;

impl Rdma {
    /// `bell` rings where there is no descriptor.
    pub(crate) fn new(connection: RdmaConnection, peer: PeerAddress, bell: Bell) -> Self {
        let RdmaConnection { core, sends, entries, sends_with_invalidate, shares_receives, is_busy_polled, pair } =
            connection;
        pair.pair.set_bell(bell);
        let entries = entries as usize;
        Self {
            peer,
            endpoint: Endpoint::new(pair, core),
            commands: ReceivedCommands::new(entries, shares_receives),
            fetches: Fetches::new(entries),
            responses: Responses::new(entries, sends, sends_with_invalidate),
            health: ConnectionHealth::default(),
            is_armed: false,
            is_busy_polled,
            idle_looks: 0,
            collected_bytes: 0,
            has_progress: false,
            not_begun: None,
            closing: None,
        }
    }

    /// What the adapter has said when it gave up the connection.
    pub(super) fn loss(&self) -> Option<WorkStatus> {
        self.endpoint.loss.map(|loss| loss.status)
    }

    /// Collects what is there, up to `limit` bytes.
    fn collect_events(&mut self, limit: usize) -> Result<(), End> {
        // Also where it was told that there is something: it will not be told again.
        let was_armed = std::mem::replace(&mut self.is_armed, false);
        if was_armed || self.idle_looks.is_multiple_of(EVENTS_EVERY) {
            self.take_events();
        }
        self.collect(limit)?;
        if self.collected_bytes > 0 {
            self.idle_looks = 0;
            return Ok(());
        }
        self.idle_looks = self.idle_looks.wrapping_add(1);
        if was_armed || (self.idle_looks >= IDLE_LOOKS_MAX && !self.is_busy_polled) {
            self.arm_and_look()?;
        }
        Ok(())
    }

    /// Has its descriptor or bell tell what comes from now on. `false`: something has come before.
    fn arm_and_look(&mut self) -> Result<bool, End> {
        self.endpoint.connected().arm()?;
        self.idle_looks = 0;
        self.take_events();
        self.collect(LOOK_BYTES)?;
        self.is_armed = self.collected_bytes == 0;
        Ok(self.is_armed)
    }

    fn take_events(&mut self) {
        if self.health.take_events(&mut self.endpoint) {
            self.has_progress = true;
            self.collected_bytes += COMPLETION_BYTES;
        }
    }

    fn collect(&mut self, limit: usize) -> Result<(), End> {
        while self.collected_bytes < limit {
            let Some(completion) = self.endpoint.connected().poll()? else { break };
            self.collected_bytes += COMPLETION_BYTES;
            match completion {
                WorkCompletion::Received { slot, length, .. } => {
                    self.collected_bytes += length as usize;
                    self.commands.push(Capsule { slot, length });
                }
                WorkCompletion::Sent { slot } => self.on_sent(slot),
                WorkCompletion::Done { id } => self.on_read(id),
                WorkCompletion::Failed { what, status } => self.on_failed(what, status),
            }
        }
        self.commands.check(self.endpoint.core.entries())?;
        self.health.check()
    }

    #[inline]
    fn on_sent(&mut self, slot: u32) {
        self.health.on_done();
        self.has_progress = true;
        self.endpoint.core.on_sent();
        self.responses.on_sent(slot);
    }

    #[inline]
    fn on_read(&mut self, id: u64) {
        self.health.on_done();
        // The next read may begin.
        self.has_progress = true;
        let tag = u32::try_from(id).expect("only reads have one, and it is their tag");
        self.collected_bytes += self.fetches.on_read(tag, &mut self.endpoint) as usize;
    }

    fn on_failed(&mut self, what: WorkRequest, status: WorkStatus) {
        // The reason may be an event: a disconnect, or the end of the device.
        self.take_events();
        if let WorkRequest::Receive(slot) = what
            && self.commands.shares_receives
        {
            self.endpoint.post_receive(slot);
        }
        if self.health.on_failed(status, &mut self.endpoint) {
            self.has_progress = true;
        }
    }

    /// Begins what was posted, if that is much. Not before the receive of the command that executes
    /// is posted again.
    #[inline]
    fn begin_early(&mut self) {
        if !self.commands.has_current()
            && let Err(end) = self.endpoint.flush_if(FLUSH_AT)
        {
            self.not_begun.get_or_insert(end);
        }
    }

    /// Posts what the core says, as far as there is room, and begins everything that is posted.
    fn post(&mut self) -> Result<(), End> {
        if let Some(end) = self.not_begun.take() {
            return Err(end);
        }
        loop {
            let Endpoint { registered: Some(registered), core, loss, .. } = &mut self.endpoint else {
                return Err(End::PeerClosed);
            };
            let pair = &mut registered.pair;
            // Receives that are shared are posted again whatever becomes of the connection.
            let work = if loss.is_some() { None } else { core.poll_work(pair.room()) };
            let Some(work) = work else {
                core.on_flushed();
                return Ok(pair.flush()?);
            };
            match work {
                SendEntry::Read { tag, offset, length, remote } => {
                    self.fetches.post(pair, tag, offset, length, remote);
                }
                SendEntry::Write { tag, offset, length, remote } => {
                    self.responses.post_write(pair, tag, offset, length, remote);
                }
                SendEntry::Send { cqe, invalidate, tag } => {
                    self.responses.post_queued(&mut self.endpoint, &cqe, invalidate, tag);
                    self.begin_early();
                }
            }
        }
    }

    /// Looks whether anything that is under way goes on.
    fn note_standstill(&mut self, now_ms: u64) {
        let Endpoint { core, loss, .. } = &self.endpoint;
        let is_idle = self.responses.unsent_bytes() == 0 && core.reads_under_way() == 0;
        self.health.note_standstill(now_ms, is_idle || loss.is_some());
    }

    /// Ends the connection: what is under way comes back.
    fn disconnect(&mut self) {
        if let Some(pair) = self.endpoint.pair() {
            pair.disconnect();
            // What this turn has posted comes back, too: it fails as all work does from now on.
            let _ = pair.flush();
            self.closing.get_or_insert_default();
        }
        self.responses.stop();
        self.health.on_disconnected();
        self.commands.forget_pointers();
    }

    /// Gives the pool what the adapter is done with. Returns whether that is everything.
    fn take_back(&mut self, pool: &mut Pool) -> bool {
        let pair = self.endpoint.connected();
        closing::collect_rest(pair, self.commands.shares_receives);
        let has_read = self.fetches.take_back(pair, pool);
        self.responses.take_back(pair, pool) && has_read
    }

    /// Looks again at what the adapter has. When that is nothing, or it takes too long, the control
    /// thread destroys the queue pair.
    fn settle_held(&mut self, context: &mut ReactorContext<'_>) {
        // Nothing is left, and only commands at a device keep the connection.
        let Some(closing) = &mut self.closing else { return };
        let is_late = closing.check(context.now_ms);
        if !self.take_back(context.pool) {
            if !is_late {
                return;
            }
            self.fetches.abandon(context.pool);
            self.responses.abandon(context.pool);
        }
        self.closing = None;
        if let Some(pair) = self.endpoint.registered.take() {
            context.shared.leave_to_control(pair);
        }
    }
}

impl Transport for Rdma {
    fn notifier(&self) -> Notifier<'_> {
        let descriptor = self.endpoint.registered.as_ref().and_then(|registered| registered.pair.descriptor());
        // Without one its bell may be missed until it is armed: it is polled until then.
        descriptor.map_or(Notifier::ArmedBell, Notifier::Descriptor)
    }

    fn is_initialized(&self) -> bool {
        self.health.is_established
    }

    fn receive(&mut self, limit: usize, _scratch: &mut [u8]) -> Result<Option<Received>, End> {
        self.collect_events(limit)?;
        let total = std::mem::take(&mut self.collected_bytes);
        Ok((total > 0).then_some(Received { total, in_scratch: 0, room: usize::MAX }))
    }

    fn is_at_command(&self, _input: &[u8]) -> bool {
        self.fetches.unreported() == 0 && !self.has_progress && self.commands.waiting() > 0
    }

    #[inline(always)]
    fn poll(&mut self, _input: &mut &[u8], draining: bool) -> Result<Option<Event>, End> {
        if let Some(Fetched { slot, buffer, is_intact }) = self.fetches.pop() {
            return Ok(Some(Event::Fetched { slot, buffer, is_intact }));
        }
        if std::mem::take(&mut self.has_progress) {
            return Ok(Some(Event::Progress { answered: true }));
        }
        self.commands.take(&mut self.endpoint, draining)
    }

    fn unparsed(&self) -> usize {
        self.commands.waiting() + self.fetches.unreported()
    }

    fn fetch(&mut self, fetch: Fetch) -> Result<(), Buffer> {
        if fetch.pointer.is_in_capsule() {
            self.fetches.copy(fetch, self.commands.inline(&self.endpoint));
            return Ok(());
        }
        self.fetches.read(fetch, &mut self.endpoint)
    }

    fn stop_fetching(&mut self, _cid: Cid, slot: u32) -> Stopped {
        self.fetches.stop(slot, &mut self.endpoint)
    }

    #[inline]
    fn respond(&mut self, cqe: &Cqe) {
        let segments = self.commands.take_segments(cqe.cid());
        self.responses.push(&mut self.endpoint, cqe, segments);
        self.begin_early();
    }

    fn send_bytes(&mut self, cid: Cid, data: &[u8], cqe: &Cqe) {
        let segments = self.commands.take_segments(cid);
        self.responses.push_copy(&mut self.endpoint, segments, data, cqe);
        self.begin_early();
    }

    #[inline]
    fn send_buffer(&mut self, cid: Cid, buffer: Buffer, length: u32, cqe: &Cqe, pool: &mut Pool) {
        let segments = self.commands.take_segments(cid);
        self.responses.push_data(&mut self.endpoint, segments, buffer, length, cqe, pool);
        self.begin_early();
    }

    #[inline]
    fn unsent_bytes(&self) -> usize {
        // Nothing of it is ever sent where the adapter has given up.
        if self.endpoint.loss.is_some() { 0 } else { self.responses.unsent_bytes() }
    }

    fn flush(&mut self, context: &mut ReactorContext<'_>) -> Result<Flushed, End> {
        self.endpoint.report_loss(self.peer, context);
        self.responses.give_returned(self.endpoint.connected(), context.pool);
        self.post()?;
        self.note_standstill(context.now_ms);
        Ok(Flushed::All)
    }

    fn drop_input(&mut self, give: &mut dyn FnMut(Buffer)) {
        self.commands.drop_capsules(&mut self.endpoint);
        self.fetches.drain().for_each(give);
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
        self.health.peer_is_gone
    }

    fn shrink(&mut self, pool: &mut Pool) {
        self.responses.forget_spare();
        // Of a connection that is gone nothing is left.
        if let Some(pair) = self.endpoint.pair() {
            self.responses.give_kept(pair, pool);
        }
    }
}

impl Messages for Rdma {
    fn open(&mut self, opening: &Opening) {
        self.responses.queue.open(opening.submission_queue);
        self.commands.in_capsule_bytes_max = opening.in_capsule_bytes.unwrap_or(UNLIMITED);
        let QueueId(asked) = self.endpoint.core.queue();
        if asked != opening.id.0 {
            self.health.end_with(End::OtherQueue { private_data: QueueId(asked), connect: opening.id });
        }
    }

    fn withdraw(&mut self) {
        // Asynchronous Event Requests only end so, and they have no data.
        self.responses.queue.withdraw();
        self.endpoint.core.withdraw(None);
    }
}

impl Capsules for Rdma {
    fn take_inline<'s, 'i: 's>(&'s mut self, _input: &mut &'i [u8]) -> Option<Inline<'s>> {
        let bytes = self.commands.inline(&self.endpoint).filter(|bytes| !bytes.is_empty())?;
        Some(Inline { bytes, is_intact: true })
    }

    #[inline]
    fn after_command(&mut self) {
        self.commands.finish_current(&mut self.endpoint);
    }
}

impl OwnMemory for Rdma {
    #[inline]
    fn own_memory(&mut self, length: u32) -> Option<&mut [u8]> {
        self.responses.memory_of_kept(&mut self.endpoint, length)
    }

    #[inline]
    fn send_own(&mut self, cid: Cid, length: u32, cqe: &Cqe) {
        let segments = self.commands.take_segments(cid);
        self.responses.push_kept(&mut self.endpoint, segments, length, cqe);
        self.begin_early();
    }
}

impl ZeroCopy for Rdma {
    fn unacknowledged_since_ms(&self) -> Option<u64> {
        match &self.endpoint.loss {
            // Given up only after `KEPT_MS`.
            Some(GivenUp { since_ms, .. }) => since_ms.map(|since_ms| since_ms + KEPT_MS - STALLED_MS),
            None => self.health.standstill_since_ms(),
        }
    }

    fn look_at_stall(&mut self, now_ms: u64) {
        self.note_standstill(now_ms);
    }

    fn poll_release(&mut self, _peer: &Peer, context: &mut ReactorContext<'_>) {
        self.settle_held(context);
    }

    fn settle_ms(&self) -> Option<u64> {
        self.closing.as_ref().map(|closing| closing.look_ms)
    }
}

impl Polled for Rdma {
    #[inline]
    fn is_polled(&self) -> bool {
        !self.is_armed && self.endpoint.registered.is_some()
    }

    fn arm(&mut self) -> Result<bool, End> {
        self.arm_and_look()
    }
}
