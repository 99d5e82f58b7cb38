//! The connections of a reactor, and what they use of it.
//!
//! Owns the places of connections, the buffers, the requests at devices, the shares of a turn and
//! the lists of who is to be looked at. Each piece of work on a connection goes through
//! [`Connections::with`], which ends it when that fails, and notes what it waits for. When anything
//! is done is decided in `server/reactor.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use ebof_backend::Completion;
use ebof_fabrics::Handle;
use rustix::event::epoll;

use super::busy_poll::BusyPoll;
use super::connection::{Connection, SocketWork};
use super::connection_table::ConnectionTable;
use super::deadlines::Deadlines;
use super::devices::{DeviceRequests, Retried};
use super::fairness::Fairness;
use super::incoming;
use super::source::{Source, simulated_event};
use super::stalls::{Stalls, Stopwatch, WATCHED_SHARE};
use super::turn_list::TurnList;
use crate::commands::Commands;
use crate::direct::SharedFunction;
use crate::link::{End, Link, Notifier, Rings as _, State};
use crate::observe::log_limit::Kind;
use crate::observe::troubles::Trouble;
use crate::ports::peer::Peer;
use crate::ports::port::PortState;
use crate::shared::Shared;
use crate::shared::buffer::Pool;
use crate::shared::handle::index_of;
use crate::shared::host_limits::{HostBuffers, Waiting};
use crate::shared::mailbox::{CommandReply, Incoming, Mailbox};
use crate::shared::reactor_context::ReactorContext;
use crate::shared::shares::LocalShares;

/// One read of a socket takes up to this much, bytes.
const SCRATCH_BYTES: usize = 256 << 10;

/// All connections of one reactor.
pub(super) struct Connections {
    pub(super) shared: Arc<Shared>,
    pub(super) source: Source,
    pub(super) table: ConnectionTable,
    pub(super) devices: DeviceRequests,
    pub(super) pool: Pool,
    /// What hosts have of it.
    host_buffers: HostBuffers,
    scratch: Vec<u8>,
    /// What the functions of drives have done and may do.
    pub(super) local_shares: LocalShares,
    pub(super) fairness: Fairness,
    pub(super) stalls: Stalls,
    /// Those with something to send, by index.
    dirty: VecDeque<u32>,
    /// Those to be looked at in every turn: nothing tells that they have something.
    polled: TurnList,
    /// Those that wait for a buffer or a free slot.
    waiting: TurnList,
    pub(super) deadlines: Deadlines,
    busy_poll: BusyPoll,
    /// The Admin Queue of a directly attached host has done something, or a queue has ended.
    has_function_news: bool,
    /// From all hosts.
    received_bytes: u64,
    shutdown_ms: Option<u64>,
    /// Running number of the turn.
    number: u32,
}

impl Connections {
    pub(super) fn new(reactor: usize, shared: Arc<Shared>, source: Source, devices: DeviceRequests) -> Self {
        let settings = &shared.settings;
        let pool = Pool::new(settings.reactor_buffer_bytes).shared_by_hosts(settings.host_share_percent);
        Self {
            shared,
            source,
            table: ConnectionTable::new(reactor),
            devices,
            pool,
            host_buffers: HostBuffers::default(),
            scratch: vec![0; SCRATCH_BYTES],
            local_shares: LocalShares::new(reactor),
            fairness: Fairness::default(),
            stalls: Stalls::default(),
            dirty: VecDeque::new(),
            polled: TurnList::default(),
            waiting: TurnList::default(),
            deadlines: Deadlines::default(),
            busy_poll: BusyPoll::default(),
            has_function_news: false,
            received_bytes: 0,
            shutdown_ms: None,
            number: 0,
        }
    }

    /// The turn with this number begins. A connection that was active is likely to bring more for
    /// `window_us`.
    pub(super) fn start_turn(&mut self, number: u32, now_us: u64, window_us: u64) {
        self.number = number;
        self.fairness.start_turn(now_us, window_us);
        self.devices.start_turn();
    }

    // ---- they come

    /// A host has come; `mailbox` is told what its link rings a bell for.
    pub(super) fn accept(
        &mut self,
        incoming: Incoming,
        peer: Peer,
        waiting: Option<Waiting>,
        mailbox: &Mailbox,
        now_us: u64,
    ) {
        let (index, handle) = self.table.reserve();
        let (transport, attachment) = incoming::open(incoming, handle, &peer, mailbox, &self.shared);
        let deadline_ms = self.handshake_deadline_ms(now_us);
        let link = Link::new(handle, transport, peer, deadline_ms, waiting);
        let address = link.peer().address;
        if let Err(error) = self.source.add(&link, index) {
            if let Some(more) = self.shared.may_log(address.about(), Kind::Unwatched) {
                tracing::error!(peer = %address, "the connection cannot be watched: {error}{more}");
            }
            self.table.release(index);
            self.shared.connection_gone(&link.peer().port);
            return;
        }
        let reactor = crate::shared::handle::reactor_of(handle);
        tracing::debug!(peer = %address, local = link.peer().local(), reactor, "connection accepted");
        let is_told = matches!(link.notifier(), Notifier::Descriptor(_)) && !link.is_polled() && !link.has_received();
        self.insert(index, Connection::new(handle, link), deadline_ms);
        if let Some(attachment) = attachment {
            self.with(index, now_us, |connection, context| connection.attach(&attachment, context));
        }
        if !is_told {
            // What came before it had a bell, or was armed.
            self.arrived(handle, now_us);
        }
    }

    /// Puts a new connection into its place, which was reserved.
    pub(super) fn insert(&mut self, index: u32, mut connection: Connection, deadline_ms: u64) {
        connection.armed_ms = Some(deadline_ms);
        self.deadlines.push(deadline_ms, connection.handle);
        self.table.put(index, Box::new(connection));
        self.busy_poll.invalidate();
    }

    /// Until when a connection that comes now has to be a queue, milliseconds.
    pub(super) fn handshake_deadline_ms(&self, now_us: u64) -> u64 {
        now_us / 1000 + self.shared.settings.handshake_ms
    }

    // ---- work on one of them

    /// Runs `work` on the connection at `index`, and ends it when that fails. Returns whether it
    /// was there: it may have gone between an event, or its place on a list of this turn, and now.
    pub(super) fn with(
        &mut self,
        index: u32,
        now_us: u64,
        work: impl FnOnce(&mut Connection, &mut ReactorContext<'_>) -> Result<(), End>,
    ) -> bool {
        let Some(mut connection) = self.table.take(index) else { return false };
        let is_watched = self.stalls.are_watched(now_us);
        let function = if is_watched { connection.link.rings().map(|rings| rings.function()) } else { None };
        let watch = function.and_then(|function| self.stalls.watch(function, now_us));
        let share = self.fairness.share(index);
        let mut context = ReactorContext {
            shared: &self.shared,
            pool: &mut self.pool,
            host_buffers: &mut self.host_buffers,
            io: &mut self.devices.io,
            devices: &self.devices.table,
            scratch: &mut self.scratch,
            retry: &mut self.devices.retry,
            local_shares: &mut self.local_shares,
            dirty: &mut self.dirty,
            number: self.number,
            share: if watch.is_some() { share.min(WATCHED_SHARE) } else { share },
            now_ms: now_us / 1000,
            now_us,
        };
        let state_before = connection.link.state;
        let result = work(&mut connection, &mut context);
        if let Err(end) = result {
            connection.end(&end, &mut context);
        }
        connection.commands.notify_waiters(&context);
        let used = connection.link.take_charged();
        if used > 0 {
            self.fairness.note_use(used);
        }
        if let Some(watch) = watch {
            self.end_watch(watch, &connection);
        }
        self.has_function_news |= connection.concerns_function(state_before);
        if connection.is_finished() {
            // Closing the socket takes it out of the epoll set.
            self.table.release(index);
            self.busy_poll.invalidate();
            self.shared.connection_gone(&connection.link.peer().port);
            connection.commands.waiters.notify_all(&self.shared);
            return true;
        }
        if connection.link.state != state_before {
            self.busy_poll.invalidate();
            self.watch(&connection);
        }
        if let Some(deadline) = connection.deadline_ms()
            && connection.armed_ms.is_none_or(|armed| deadline < armed)
        {
            connection.armed_ms = Some(deadline);
            self.deadlines.push(deadline, connection.handle);
        }
        if connection.link.is_polled() && !connection.link.listed {
            connection.link.listed = true;
            self.polled.push(index);
        }
        if connection.waits_for_turn() && !self.waiting.contains(index) {
            self.waiting.push(index);
            self.watch(&connection);
        }
        self.table.put(index, connection);
        true
    }

    /// Runs `work` on a connection, also on one whose socket is gone. Returns whether it is there.
    pub(super) fn with_known(
        &mut self,
        handle: Handle,
        now_us: u64,
        work: impl FnOnce(&mut Connection, &mut ReactorContext<'_>) -> Result<(), End>,
    ) -> bool {
        let is_there = self.table.get(handle).is_some();
        if is_there {
            self.with(index_of(handle), now_us, work);
        }
        is_there
    }

    /// Runs `work` on a connection whose socket is not gone. Returns whether it is there.
    pub(super) fn with_open(
        &mut self,
        handle: Handle,
        now_us: u64,
        work: impl FnOnce(&mut Connection, &mut ReactorContext<'_>) -> Result<(), End>,
    ) -> bool {
        let is_open = self.table.get(handle).is_some_and(|connection| connection.link.state != State::Gone);
        if is_open {
            self.with(index_of(handle), now_us, work);
        }
        is_open
    }

    /// Tells the commands of a connection, whose socket is not gone, something that does not end
    /// it. Returns whether it is there.
    pub(super) fn tell(
        &mut self,
        handle: Handle,
        now_us: u64,
        work: impl FnOnce(&mut Commands, &mut Link, &mut ReactorContext<'_>),
    ) -> bool {
        self.with_open(handle, now_us, |connection, context| {
            work(&mut connection.commands, &mut connection.link, context);
            Ok(())
        })
    }

    /// Likewise, also if its socket is gone.
    pub(super) fn tell_known(
        &mut self,
        handle: Handle,
        now_us: u64,
        work: impl FnOnce(&mut Commands, &mut Link, &mut ReactorContext<'_>),
    ) -> bool {
        self.with_known(handle, now_us, |connection, context| {
            work(&mut connection.commands, &mut connection.link, context);
            Ok(())
        })
    }

    /// Runs `work` on each of them.
    pub(super) fn with_all(
        &mut self,
        now_us: u64,
        mut work: impl FnMut(&mut Connection, &mut ReactorContext<'_>) -> Result<(), End>,
    ) {
        for index in self.table.indices() {
            self.with(index, now_us, &mut work);
        }
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

    // ---- what the memory of directly attached hosts costs

    /// A queue of a function was served: requests that devices take from it begin, too, since the
    /// kernel accesses their memory then.
    #[cold]
    fn end_watch(&mut self, watch: Stopwatch, connection: &Connection) {
        // What cannot be started is told at the end of the turn.
        let _ = self.devices.io.kick();
        let cost_us = watch.end();
        let rings = connection.link.rings().expect("those of functions are watched");
        if !self.stalls.is_whole(rings.function()) {
            self.charge(rings.function(), &connection.link.peer().port, cost_us);
        }
    }

    /// Leaves the function of a port alone for a while, since its memory kept the thread for so
    /// long, if that delays others.
    #[cold]
    pub(super) fn charge(&mut self, function: &SharedFunction, port: &PortState, cost_us: u64) {
        let is_other = |connection: &Connection| {
            connection.link.rings().is_none_or(|rings| !Arc::ptr_eq(rings.function(), function))
        };
        if cost_us == 0 || !self.table.iter().any(is_other) {
            return;
        }
        self.stalls.charge(function, cost_us, self.shared.clock.now_us());
        if let Some(host) = port.config.direct_host() {
            self.shared.trouble(host.as_str(), Trouble::Memory);
        }
    }

    /// Whether a function has to be looked at, since this was last asked.
    pub(super) fn take_function_news(&mut self) -> bool {
        std::mem::take(&mut self.has_function_news)
    }

    pub(super) fn has_function_news(&self) -> bool {
        self.has_function_news
    }

    // ---- events

    /// The socket of the connection at `index` has something. Returns whether anything was done.
    pub(super) fn on_socket(&mut self, index: u32, flags: epoll::EventFlags, now_us: u64) -> bool {
        let mut taken = SocketWork::default();
        self.with(index, now_us, |connection, context| connection.on_event(flags, &mut taken, context));
        if taken.bytes > 0 {
            self.fairness.note(index);
            self.received_bytes = self.received_bytes.wrapping_add(taken.bytes as u64);
        }
        taken.worked || taken.bytes > 0
    }

    /// The connection of `handle` has something to receive, or has ended, and no event says so.
    pub(super) fn arrived(&mut self, handle: Handle, now_us: u64) {
        let Some(connection) = self.table.get_mut(handle) else { return };
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::HUP, connection.link.peer_is_gone());
        self.on_socket(index_of(handle), flags, now_us);
    }

    /// Looks at the sockets of those that were busy a moment ago. Returns whether one of them had
    /// something.
    pub(super) fn look_at_busy(&mut self, now_us: u64) -> bool {
        let mut worked = false;
        for index in self.fairness.busy() {
            // Those that are polled have their turn.
            if self.table.at(index).is_none_or(|connection| !connection.link.listed) {
                worked |= self.on_socket(index, epoll::EventFlags::IN, now_us);
            }
        }
        worked
    }

    /// Looks at those that are polled. Returns whether one of them had something.
    pub(super) fn look_at_polled(&mut self, now_us: u64) -> bool {
        let mut worked = false;
        let list = self.polled.take();
        for &index in &list {
            self.unlist(index);
            worked |= self.on_socket(index, epoll::EventFlags::IN, now_us);
        }
        self.polled.keep(list);
        worked
    }

    /// Has those that are polled tell when they have something. Returns whether none has anything
    /// now.
    pub(super) fn arm_polled(&mut self, now_us: u64) -> bool {
        let mut all = true;
        let list = self.polled.take();
        for &index in &list {
            self.unlist(index);
            self.with(index, now_us, |connection, _| {
                all &= connection.link.arm()?;
                Ok(())
            });
        }
        self.polled.keep(list);
        all
    }

    /// The connection is on the list of those that are polled no more; [`Connections::with`] puts
    /// it there again.
    fn unlist(&mut self, index: u32) {
        if let Some(connection) = self.table.at_mut(index) {
            connection.link.listed = false;
        }
    }

    /// A device has done its part of a command.
    pub(super) fn on_device(&mut self, completion: Completion, now_us: u64) {
        let is_there = self.with(ReactorContext::index_of(completion.tag), now_us, |connection, context| {
            connection.commands.on_device(completion, &mut connection.link, context);
            Ok(())
        });
        // Its buffer would be lost otherwise. A connection stays while it has anything at a device,
        // and a device completes each request once.
        assert!(is_there, "a device has completed a command of no connection");
    }

    /// Submits again what the devices had no room for. Returns whether something ended at once.
    pub(super) fn retry_busy(&mut self, now_us: u64) -> bool {
        let mut worked = false;
        for _ in 0..self.devices.waiting() {
            match self.devices.retry_first() {
                Retried::Nothing => break,
                Retried::Pending => {}
                Retried::Done(completion) => {
                    worked = true;
                    self.on_device(completion, now_us);
                }
            }
        }
        worked
    }

    /// Settles what functions of drives have done, and starts what may go then. Returns whether
    /// there was anything.
    pub(super) fn settle_shares(&mut self, now_us: u64) -> bool {
        let mut worked = self.local_shares.finish_done(now_us);
        // What is done at once settles in the next turn.
        for _ in 0..self.local_shares.admitted() {
            let (ticket, reply) = self.local_shares.next_admitted().expect("others only come behind them");
            worked = true;
            self.tell(reply.handle, now_us, |commands, link, context| {
                commands.on_reply(reply.slot, CommandReply::Admitted(ticket), link, context);
            });
        }
        worked
    }

    /// Those that waited for a buffer or a free slot go on, each in its turn. Returns whether one
    /// did.
    pub(super) fn resume_waiting(&mut self, now_us: u64) -> bool {
        let mut worked = false;
        let list = self.waiting.take();
        for &index in &list {
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
            if let Some(connection) = self.table.at(index)
                && !self.waiting.contains(index)
            {
                self.watch(connection);
            }
        }
        self.waiting.keep(list);
        worked
    }

    /// Sends what was queued. Returns whether some of it has to wait for the next turn.
    pub(super) fn flush_dirty(&mut self, now_us: u64) -> bool {
        for _ in 0..self.dirty.len() {
            let index = self.dirty.pop_front().expect("others only come behind them");
            let mut is_changed = false;
            self.with(index, now_us, |connection, context| connection.flush_turn(&mut is_changed, context));
            if let Some(connection) = self.table.at(index)
                && is_changed
            {
                self.watch(connection);
            }
        }
        !self.dirty.is_empty()
    }

    /// Ends what is overdue. Returns whether anything was.
    pub(super) fn on_deadlines(&mut self, now_us: u64) -> bool {
        let now_ms = now_us / 1000;
        let handshake_ms = self.shared.settings.handshake_ms;
        let mut worked = false;
        while let Some((deadline, handle)) = self.deadlines.pop_passed(now_ms) {
            // What is still to come is noted again by `with`.
            if self.table.get(handle).is_none_or(|connection| connection.armed_ms != Some(deadline)) {
                continue;
            }
            self.with(index_of(handle), now_us, |connection, context| {
                let result = connection.on_deadline(handshake_ms, context);
                worked |= !matches!(result, Ok(false));
                result.map(|_| ())
            });
        }
        if self.shutdown_ms.is_some_and(|deadline| deadline <= now_ms) {
            self.with_all(now_us, |connection, context| {
                connection.close(context);
                Ok(())
            });
        }
        worked
    }

    // ---- the end

    /// The target shuts down; whatever is left at the deadline is cut off.
    pub(super) fn start_shutdown(&mut self, deadline_ms: u64, now_us: u64) {
        self.shutdown_ms = Some(deadline_ms);
        self.with_all(now_us, Connection::start_shutdown);
    }

    /// Whether the target shuts down.
    pub(super) fn is_stopping(&self) -> bool {
        self.shutdown_ms.is_some()
    }

    /// Whether it shuts down, and nothing is left.
    pub(super) fn is_shut_down(&self) -> bool {
        self.is_stopping() && self.table.is_empty()
    }

    /// Releases memory that a burst left behind.
    pub(super) fn shrink(&mut self) {
        for connection in self.table.iter_mut() {
            connection.shrink(&mut self.pool);
        }
        self.pool.shrink();
        self.devices.io.release_memory();
    }

    // ---- what is to come

    /// When something is overdue or tried again, milliseconds.
    pub(super) fn next_deadline_ms(&self, now_ms: u64) -> Option<u64> {
        // What could not be started is tried again soon, although nothing else may happen until
        // then.
        let again_ms = self.devices.kick_failed().then_some(now_ms + 10);
        let share_ms = self.local_shares.due_us().map(|us| us.div_ceil(1000));
        [self.deadlines.next_ms(), self.shutdown_ms, again_ms, share_ms].into_iter().flatten().min()
    }

    /// How long their ports have the reactor look for work after the last that it had,
    /// microseconds; [`u64::MAX`]: always.
    pub(super) fn busy_poll_us(&mut self) -> u64 {
        let open = self.table.iter().filter(|connection| connection.link.state != State::Gone);
        self.busy_poll.longest_us(open.map(|connection| connection.link.peer().port.polls_us()))
    }

    /// Bytes from all hosts, as a running number.
    pub(super) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// What is ready of those that are simulated.
    pub(super) fn simulated_events(&self) -> impl Iterator<Item = epoll::Event> {
        self.table.iter().filter_map(simulated_event)
    }

    /// Whether there is work for the next turn that nothing tells of.
    pub(super) fn has_work(&self) -> bool {
        let is_listed = !(self.dirty.is_empty() && self.polled.is_empty());
        self.devices.has_more() || is_listed || self.local_shares.has_work()
    }
}
