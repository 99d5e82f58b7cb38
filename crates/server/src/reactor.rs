//! A thread that owns queue pairs: an event loop over sockets, devices and messages.
//!
//! A turn is one iteration of the loop: it takes all events, runs the commands, and answers each
//! connection with one gathered send. A reactor without work polls its sources for a short while,
//! yielding the processor now and then, and then sleeps in the kernel: an idle target costs no CPU.

pub(crate) mod admission;
mod barrier;
mod connection;
mod devices;
mod direct;
mod fairness;
mod memory;
mod message;
mod polled;
pub(crate) mod rdma_admission;
mod source;
mod stepped;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ebof_backend::{BATCH_MAX, Device, Io, Request, Vital};
use ebof_fabrics::Handle;
use ebof_idle::{Idle, Step};
use rustix::event::epoll;

use self::direct::{DirectDevice, Stalls, WATCHED_SHARE};
use self::memory::SHRINK_MS;
use self::polled::{BusyPoll, SHARED_POLL_AGAIN};
use self::source::{DEVICES, DIRECT, MAILBOX, Source};
use crate::drives::device::DeviceTable;
use crate::link::{End, Flushed, Rings, State};
use crate::observe::log_limit::Kind;
use crate::reactor::connection::Connection;
use crate::reactor::fairness::Fairness;
use crate::shared::Shared;
use crate::shared::buffer::Pool;
use crate::shared::handle::index_of;
use crate::shared::mailbox::{Barrier, Mailbox, Message};
use crate::shared::reactor_context::ReactorContext;
use crate::shared::share::HostBuffers;
use crate::shared::shares::LocalShares;

pub(crate) use source::timespec;

/// One read of a socket takes up to this much, bytes.
const SCRATCH_BYTES: usize = 256 << 10;

/// Of so many turns one asks the kernel which sockets have something, even while the busy ones are
/// looked at directly.
const ASK_EVERY: u32 = 4;

/// One thread's worth of target.
pub(crate) struct Reactor {
    index: usize,
    pub(crate) shared: Arc<Shared>,
    mailbox: Mailbox,
    source: Source,
    io: Io,
    pool: Pool,
    /// What hosts have of it.
    host_buffers: HostBuffers,
    devices: Arc<DeviceTable>,
    pub(crate) connections: Vec<Option<Box<Connection>>>,
    free: Vec<u32>,
    /// Hosts that are attached directly.
    direct: Vec<Option<Box<DirectDevice>>>,
    /// An Admin Queue of one of them has done something, or a queue has ended.
    look_at_direct: bool,
    serial: u64,
    scratch: Vec<u8>,
    retry: VecDeque<(Arc<dyn Device>, Request)>,
    /// Pairs that wait until no older change of their bytes is left at a device.
    pub(crate) barriers: Vec<Barrier>,
    /// What the functions of drives have done and may do.
    local_shares: LocalShares,
    dirty: VecDeque<u32>,
    /// Connections to look at in every turn, by index: nothing tells that they have something.
    polled: Vec<u32>,
    /// The list of before, while it is gone through; its memory is kept.
    polling: Vec<u32>,
    /// Aborts that came in the last turn: what they are about was sent before them, but may have
    /// come after the sockets were asked.
    aborts: Vec<Message>,
    /// Connections that wait for a buffer or a free slot, by index.
    waiting: Vec<u32>,
    /// The list of before, while it is gone through; its memory is kept.
    resuming: Vec<u32>,
    deadlines: BinaryHeap<Reverse<(u64, Handle)>>,
    shutdown_ms: Option<u64>,
    /// There may be more completions of devices than were taken in the last turn.
    has_completions: bool,
    /// Requests for devices wait because the kernel took none.
    kick_failed: bool,
    /// When the last work was done, microseconds of the target's clock; `None` once memory was
    /// given back.
    last_work_us: Option<u64>,
    fairness: Fairness,
    stalls: Stalls,
    idle: Idle,
    /// From all hosts.
    received_bytes: u64,
    busy_poll: BusyPoll,
    /// Running number of the turn.
    turns: u32,
}

impl Reactor {
    /// `is_stepped`: it has no thread, and [`Reactor::step`] is called in place of
    /// [`Reactor::run`].
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        mailbox: Mailbox,
        devices: Arc<DeviceTable>,
        is_stepped: bool,
    ) -> io::Result<Self> {
        let io = shared.settings.environment.io.make(shared.settings.device_queue_depth).map_err(io::Error::other)?;
        let source = if is_stepped { Source::Stepped } else { Source::epoll(&mailbox, &io)? };
        let settings = &shared.settings;
        let pool = Pool::new(settings.reactor_buffer_bytes).shared_by_hosts(settings.host_share_percent);
        let idle = Idle::new(settings.spin_us);
        Ok(Self {
            index,
            shared,
            mailbox,
            source,
            io,
            pool,
            host_buffers: HostBuffers::default(),
            devices,
            connections: Vec::new(),
            free: Vec::new(),
            direct: Vec::new(),
            look_at_direct: false,
            serial: 0,
            scratch: vec![0; SCRATCH_BYTES],
            retry: VecDeque::new(),
            barriers: Vec::new(),
            local_shares: LocalShares::new(index),
            dirty: VecDeque::new(),
            polled: Vec::new(),
            polling: Vec::new(),
            aborts: Vec::new(),
            waiting: Vec::new(),
            resuming: Vec::new(),
            deadlines: BinaryHeap::new(),
            shutdown_ms: None,
            has_completions: false,
            kick_failed: false,
            last_work_us: None,
            fairness: Fairness::default(),
            stalls: Stalls::default(),
            idle,
            received_bytes: 0,
            busy_poll: BusyPoll::default(),
            turns: 0,
        })
    }

    /// Serves until it has shut down.
    pub(crate) fn run(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
        let mut messages = Vec::new();
        let mut idle_turns = 0_u32;
        let mut timeout = Some(Duration::ZERO);
        let _vital = Vital::new();
        loop {
            events.clear();
            self.turns = self.turns.wrapping_add(1);
            let awake = timeout == Some(Duration::ZERO);
            let direct = awake && self.looks_directly();
            if !direct {
                self.wait(&mut events, timeout);
            }
            if !awake {
                self.mailbox.wake_up();
                ebof_idle::after_sleep();
            }
            let now_us = self.shared.clock.now_us();
            if !awake {
                self.idle.woke(now_us, !events.is_empty());
            }
            let worked = self.turn(now_us, direct, &events, &mut messages);
            if self.shutdown_ms.is_some() && self.connections.iter().all(Option::is_none) {
                return self.hang_up();
            }
            idle_turns = if worked { 0 } else { idle_turns.saturating_add(1) };
            timeout = self.next_timeout(now_us, worked, idle_turns);
        }
    }

    /// Whether a few sockets are looked at in this turn, in place of asking for all.
    fn looks_directly(&self) -> bool {
        // What clients write to registers is in sockets.
        self.direct_is_polled()
            && !self.turns.is_multiple_of(ASK_EVERY)
            && self.aborts.is_empty()
            && self.fairness.are_few()
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, timeout: Option<Duration>) {
        if let Err(error) = self.source.wait(events, timeout) {
            tracing::error!(reactor = self.index, "waiting for events failed: {error}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// One turn: everything that is there, with a `direct` look at the sockets that are busy.
    /// Returns whether anything was.
    fn turn(&mut self, now_us: u64, direct: bool, events: &[epoll::Event], messages: &mut Vec<Message>) -> bool {
        let mut worked = false;
        self.fairness.start_turn(now_us, self.idle.spin_us());
        let aborts = std::mem::take(&mut self.aborts);
        worked |= self.take_messages(messages, now_us);
        if direct {
            for index in self.fairness.busy() {
                // Those that are polled have their turn.
                let known = self.connections.get(index as usize).and_then(Option::as_ref);
                if known.is_some_and(|connection| connection.link.listed) {
                    continue;
                }
                worked |= self.on_socket(index, epoll::EventFlags::IN, now_us);
            }
        }
        for event in events {
            match event.data.u64() {
                MAILBOX => self.mailbox.silence(),
                DEVICES => {}
                number @ DIRECT.. => {
                    let at = usize::try_from(number - DIRECT).unwrap_or(usize::MAX);
                    worked |= self.on_client(at, event.flags, now_us);
                }
                index => {
                    let flags = event.flags;
                    worked |= self.on_socket(index_of(Handle(index)), flags, now_us);
                }
            }
        }
        worked |= self.look_at_polled(now_us);
        for abort in aborts {
            worked = true;
            self.on_message(abort, now_us);
        }
        let mut completions = 0;
        while completions < BATCH_MAX
            && let Some(completion) = self.io.poll()
        {
            worked = true;
            completions += 1;
            self.on_device(completion, now_us);
        }
        self.has_completions = completions == BATCH_MAX;
        worked |= self.retry_busy(now_us);
        if !self.direct.is_empty() {
            worked |= self.look_at_devices(now_us);
        }
        worked |= self.settle_shares(now_us);
        worked |= self.resume_waiting(now_us);
        worked |= self.flush_dirty(now_us);
        if !self.barriers.is_empty() {
            self.answer_barriers();
        }
        self.kick_failed = false;
        if let Err(error) = self.io.kick() {
            tracing::error!(reactor = self.index, "device I/O cannot be started: {error}");
            self.kick_failed = true;
        }
        worked |= self.on_deadlines(now_us) | self.look_at_direct | self.local_shares.has_work();
        self.note_turn(now_us);
        if worked {
            self.last_work_us = Some(now_us);
        }
        worked
    }

    /// What other threads have to tell comes before what hosts send: a command must not find a
    /// namespace whose removal its host has seen. Aborts are kept for the next turn: what they
    /// are about may still be in a socket.
    fn take_messages(&mut self, messages: &mut Vec<Message>, now_us: u64) -> bool {
        self.mailbox.take(messages);
        let worked = !messages.is_empty();
        let others = messages.extract_if(.., |message| !matches!(message, Message::Abort { .. }));
        for message in others {
            self.on_message(message, now_us);
        }
        self.aborts.append(messages);
        worked
    }

    /// How long to wait for the next event: not at all while there may be work soon, then until
    /// something happens.
    fn next_timeout(&mut self, now_us: u64, worked: bool, idle_turns: u32) -> Option<Duration> {
        if worked {
            self.idle.found(now_us);
            return Some(Duration::ZERO);
        }
        if !idle_turns.is_multiple_of(self.idle.polls_per_step()) {
            return Some(Duration::ZERO);
        }
        // Whoever polls takes the processor from those who share it, its own host among them.
        let polls = self.polls_on(now_us);
        if polls && !self.idle.is_shared() {
            self.idle.give_way(now_us);
            return Some(Duration::ZERO);
        }
        self.idle.set_work(self.received_bytes);
        let Step::Sleep(probe_us) = self.idle.step(now_us) else {
            self.idle.give_way(now_us);
            return Some(Duration::ZERO);
        };
        let now_ms = now_us / 1000;
        self.shrink_after_a_while(now_us);
        if !(self.arm_polled(now_us) && self.mailbox.fall_asleep()) {
            return Some(Duration::ZERO);
        }
        let shrink_ms = self.last_work_us.map(|last| last / 1000 + SHRINK_MS);
        let next = self.next_deadline_ms(now_ms).into_iter().chain(shrink_ms).min();
        let next = next.map(|at| Duration::from_millis(at.saturating_sub(now_ms).max(1)));
        let share_us = self.local_shares.due_us().map(|at| at.saturating_sub(now_us).max(1));
        let soon = [probe_us, share_us].map(|us| us.map(Duration::from_micros));
        let again = polls.then_some(SHARED_POLL_AGAIN);
        soon.into_iter().chain([next, self.doorbell_interval(), again]).flatten().min()
    }

    /// When something is overdue or tried again, milliseconds.
    fn next_deadline_ms(&self, now_ms: u64) -> Option<u64> {
        let deadline_ms = self.deadlines.peek().map(|Reverse((deadline, _))| *deadline);
        // What could not be started is tried again soon, although nothing else may happen until
        // then.
        let again_ms = self.kick_failed.then_some(now_ms + 10);
        let share_ms = self.local_shares.due_us().map(|us| us.div_ceil(1000));
        [deadline_ms, self.shutdown_ms, again_ms, share_ms, self.direct_deadline_ms(now_ms)].into_iter().flatten().min()
    }

    /// Runs `work` on the connection at `index`, and ends it when that fails.
    fn with(
        &mut self,
        index: u32,
        now_us: u64,
        work: impl FnOnce(&mut Connection, &mut ReactorContext<'_>) -> Result<(), End>,
    ) {
        let Some(mut connection) = self.connections.get_mut(index as usize).and_then(Option::take) else { return };
        let is_watched = self.stalls.are_watched(now_us);
        let function = if is_watched { connection.link.rings().map(Rings::function) } else { None };
        let watch = function.and_then(|function| self.stalls.watch(function, now_us));
        let share = self.fairness.share(index);
        let mut context = ReactorContext {
            shared: &self.shared,
            pool: &mut self.pool,
            host_buffers: &mut self.host_buffers,
            io: &mut self.io,
            devices: &self.devices,
            scratch: &mut self.scratch,
            retry: &mut self.retry,
            local_shares: &mut self.local_shares,
            dirty: &mut self.dirty,
            number: self.turns,
            share: if watch.is_some() { share.min(WATCHED_SHARE) } else { share },
            now_ms: now_us / 1000,
            now_us,
        };
        let state_before = connection.link.state;
        let result = work(&mut connection, &mut context);
        if let Err(end) = result {
            end_connection(&mut connection, &end, &mut context);
        }
        connection.commands.notify_waiters(&context);
        let used = connection.link.take_charged();
        if used > 0 {
            self.fairness.note_use(used);
        }
        let stalled_us = watch.map_or(0, |watch| self.end_watch(watch));
        if stalled_us > 0 {
            self.charge_queue(index, stalled_us);
        }
        self.look_at_direct |= connection.concerns_function(state_before);
        if connection.is_finished() {
            // Closing the socket takes it out of the epoll set.
            self.free.push(index);
            self.busy_poll.is_outdated = true;
            self.shared.connection_gone(&connection.link.peer().port);
            connection.commands.waiters.notify_all(&self.shared);
            return;
        }
        if connection.link.state != state_before {
            self.busy_poll.is_outdated = true;
            self.watch(&connection);
        }
        if let Some(deadline) = connection.deadline_ms()
            && connection.armed_ms.is_none_or(|armed| deadline < armed)
        {
            connection.armed_ms = Some(deadline);
            self.deadlines.push(Reverse((deadline, connection.handle)));
        }
        if connection.link.is_polled() && !connection.link.listed {
            connection.link.listed = true;
            self.polled.push(index);
        }
        if connection.waits_for_turn() && !self.waiting.contains(&index) {
            self.waiting.push(index);
            self.watch(&connection);
        }
        self.connections[index as usize] = Some(connection);
    }

    /// Sets which events of the connection are of interest.
    fn watch(&self, connection: &Connection) {
        if let Err(error) = self.source.watch(connection) {
            let peer = connection.link.peer().address;
            if let Some(more) = self.shared.may_log(peer.about(), Kind::Unwatched) {
                tracing::error!(%peer, "a connection cannot be watched: {error}{more}");
            }
        }
    }

    fn on_socket(&mut self, index: u32, flags: epoll::EventFlags, now_us: u64) -> bool {
        let mut worked = false;
        let mut received = 0;
        self.with(index, now_us, |connection, context| {
            if connection.link.state == State::Gone {
                // An event of the same batch as the one that ended it.
                return Ok(());
            }
            if flags.contains(epoll::EventFlags::OUT) {
                worked = true;
                connection.link.mark_dirty(context);
            }
            if flags.contains(epoll::EventFlags::ERR) && connection.link.reports_sent_by_errors() {
                worked |= connection.on_sent(context)?;
            }
            if connection.link.is_shut() {
                // Nothing is read while the queue is full, but a peer that has gone is noticed.
                let gone = flags.contains(epoll::EventFlags::HUP).then_some(End::PeerClosed);
                let failed = || flags.contains(epoll::EventFlags::ERR).then(|| connection.link.failure()).flatten();
                return gone.or_else(failed).map_or(Ok(()), Err);
            }
            received = connection.on_readable(context)?;
            worked |= connection.share_is_used_up();
            Ok(())
        });
        if received > 0 {
            self.fairness.note(index);
            self.received_bytes = self.received_bytes.wrapping_add(received as u64);
        }
        worked || received > 0
    }

    /// Connections that waited for a buffer or a free slot go on, each in its turn. Returns whether
    /// one did.
    fn resume_waiting(&mut self, now_us: u64) -> bool {
        let mut worked = false;
        let mut resuming = std::mem::take(&mut self.resuming);
        std::mem::swap(&mut resuming, &mut self.waiting);
        for index in resuming.drain(..) {
            self.with(index, now_us, |connection, context| {
                let before = connection.backlog();
                // A copy has a piece in every turn.
                worked |= connection.commands.has_pending_copies();
                let result = connection.resume(context);
                // A connection that has used up its share goes on in the next turn: nothing else
                // may bring that about. One that ends gives buffers back: those before it may have
                // waited for them.
                worked |= connection.backlog() != before || connection.share_is_used_up() || result.is_err();
                result
            });
            if let Some(connection) = self.connections.get(index as usize).and_then(Option::as_ref)
                && !self.waiting.contains(&index)
            {
                self.watch(connection);
            }
        }
        self.resuming = resuming;
        worked
    }

    /// Sends what was queued. Returns whether some of it has to wait for the next turn.
    fn flush_dirty(&mut self, now_us: u64) -> bool {
        for _ in 0..self.dirty.len() {
            let Some(index) = self.dirty.pop_front() else { break };
            let mut changed = false;
            self.with(index, now_us, |connection, context| {
                connection.link.dirty = false;
                if connection.link.has_ended() {
                    return Ok(());
                }
                let was_blocked = connection.link.is_blocked();
                let flushed = connection.flush(context)?;
                changed = was_blocked != (flushed == Flushed::Blocked);
                if flushed == Flushed::Share {
                    connection.link.mark_dirty(context);
                }
                let over = connection.link.is_draining() && connection.is_drained();
                if over { Err(End::Shutdown) } else { Ok(()) }
            });
            if let Some(connection) = self.connections.get(index as usize).and_then(Option::as_ref)
                && changed
            {
                self.watch(connection);
            }
        }
        !self.dirty.is_empty()
    }

    /// Ends what is overdue. Returns whether anything was.
    fn on_deadlines(&mut self, now_us: u64) -> bool {
        let now_ms = now_us / 1000;
        let handshake_ms = self.shared.settings.handshake_ms;
        let mut worked = false;
        while let Some(&Reverse((deadline, handle))) = self.deadlines.peek() {
            if deadline > now_ms {
                break;
            }
            self.deadlines.pop();
            // What is still to come is noted again by `with`.
            let index = index_of(handle);
            let known = self.connections.get(index as usize).and_then(Option::as_ref);
            if known.is_none_or(|connection| connection.handle != handle || connection.armed_ms != Some(deadline)) {
                continue;
            }
            self.with(index, now_us, |connection, context| {
                connection.armed_ms = None;
                if connection.link.state == State::Gone {
                    let before = context.pool.outstanding_bytes();
                    connection.settle(context);
                    // Another connection may wait for the buffers that have come back, and is only
                    // looked at in the next turn.
                    worked |= context.pool.outstanding_bytes() < before;
                    return Ok(());
                }
                connection.link.look_at_stall(now_ms);
                let overdue = connection.overdue(now_ms, handshake_ms);
                worked |= overdue.is_some();
                overdue.map_or(Ok(()), Err)
            });
        }
        if self.shutdown_ms.is_some_and(|deadline| deadline <= now_ms) {
            for index in self.indices() {
                self.with(index, now_us, |connection, context| {
                    connection.close(context);
                    Ok(())
                });
            }
        }
        worked
    }
}

/// Ends a connection and notifies the registry, the log and whoever waits for it.
fn end_connection(connection: &mut Connection, end: &End, context: &mut ReactorContext<'_>) {
    match connection.link.state {
        State::Gone => return,
        State::Closing { .. } => return connection.close(context),
        State::Handshake { .. } | State::Open | State::Draining => {}
    }
    context.shared.ending(connection.handle);
    connection.book_end(end, context.shared);
    match end {
        End::Fatal(_) | End::Shutdown | End::Association(_) | End::PortGone => connection.start_closing(end, context),
        _ => connection.close(context),
    }
    connection.commands.report_closed(&connection.link, context);
    if connection.commands.drains() {
        // The control thread says so if it takes long.
        context.shared.wake_control();
    }
}
