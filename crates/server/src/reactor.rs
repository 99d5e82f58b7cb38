//! A thread that owns queue pairs: an event loop over sockets, devices and messages.
//!
//! A turn is one iteration of the loop: it takes all events, runs the commands, and answers each
//! connection with one gathered send. A reactor without work polls its sources for a short while,
//! yielding the processor now and then, and then sleeps in the kernel: an idle target costs no CPU.
//!
//! Here is what is done when, and to whom a message goes. Connections and what they use are in
//! `connections.rs`, directly attached hosts in `direct.rs`; each of the other files has one object
//! that these use, but `incoming.rs`, which makes links of what comes.

pub(crate) mod admission;
mod barriers;
mod busy_poll;
mod connection;
mod connection_table;
mod connections;
mod deadlines;
mod devices;
mod direct;
mod fairness;
pub(crate) mod handshakes;
mod incoming;
mod last_work;
pub(crate) mod rdma_admission;
mod source;
mod stalls;
#[cfg(test)]
mod tests;
mod turn_list;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ebof_backend::Vital;
use ebof_fabrics::{Handle, Notice};
use ebof_idle::{Idle, IdleStep};
use ebof_nvme::Nsid;
use rustix::event::epoll;

use self::barriers::Barriers;
use self::connection::Connection;
use self::connections::Connections;
use self::devices::DeviceRequests;
use self::direct::DirectHosts;
use self::last_work::LastWork;
use self::source::{DEVICES, DIRECT, MAILBOX, Source};
use crate::commands::Commands;
use crate::commands::command::AbortRequest;
use crate::drives::device::DeviceTable;
use crate::link::{End, Link};
use crate::ports::port::PortState;
use crate::shared::Shared;
use crate::shared::handle::index_of;
use crate::shared::mailbox::{Accepted, CommandRef, CommandReply, Incoming, Mailbox, Message};
use crate::shared::reactor_context::ReactorContext;

pub(crate) use source::timespec;

/// Of so many turns one asks the kernel which sockets have something, even while the busy ones are
/// read without asking.
const ASK_EVERY: u32 = 4;

/// A reactor that is to poll, and sleeps since others use its processor, looks again after so long
/// whether they still do.
const SHARED_POLL_AGAIN: Duration = Duration::from_millis(20);

/// One thread's worth of target.
pub(crate) struct Reactor {
    index: usize,
    shared: Arc<Shared>,
    mailbox: Mailbox,
    connections: Connections,
    direct: DirectHosts,
    barriers: Barriers,
    /// Aborts that came in the last turn: what they are about was sent before them, but may have
    /// come after the sockets were asked.
    aborts: Vec<Message>,
    last_work: LastWork,
    idle: Idle,
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
        let idle = Idle::new(shared.settings.spin_us);
        let connections = Connections::new(index, Arc::clone(&shared), source, DeviceRequests::new(io, devices));
        Ok(Self {
            index,
            shared,
            mailbox,
            connections,
            direct: DirectHosts::default(),
            barriers: Barriers::default(),
            aborts: Vec::new(),
            last_work: LastWork::default(),
            idle,
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
            let reads_sockets = awake && self.reads_sockets_itself();
            if !reads_sockets {
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
            let worked = self.turn(now_us, reads_sockets, &events, &mut messages);
            if self.is_shut_down() {
                return self.direct.hang_up();
            }
            idle_turns = if worked { 0 } else { idle_turns.saturating_add(1) };
            timeout = self.next_timeout(now_us, worked, idle_turns);
        }
    }

    // ---- without a thread

    /// One turn without a thread. Returns whether anything was done.
    pub(crate) fn step(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        let events: Vec<_> = self.connections.simulated_events().collect();
        let now_us = self.shared.clock.now_us();
        let worked = self.turn(now_us, false, &events, &mut Vec::new());
        // Its caller may wait for something to happen.
        let armed = self.connections.arm_polled(now_us);
        worked || !armed
    }

    /// When [`Reactor::step`] has something to do although nothing happens before, milliseconds of
    /// the target's clock: in the past where there is something to do at once.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        let has_work = self.connections.has_work() || !self.aborts.is_empty();
        if self.mailbox.has_messages() || has_work || self.connections.simulated_events().next().is_some() {
            return Some(0);
        }
        self.next_deadline_ms(self.shared.clock.now_ms())
    }

    /// Whether it was asked to shut down, and nothing is left.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.connections.is_shut_down()
    }

    // ---- a turn

    /// Whether the few busy sockets are read in this turn, in place of asking the kernel for all.
    fn reads_sockets_itself(&self) -> bool {
        // What clients write to registers is in sockets.
        self.direct.is_polled()
            && !self.turns.is_multiple_of(ASK_EVERY)
            && self.aborts.is_empty()
            && self.connections.fairness.are_few()
    }

    fn wait(&self, events: &mut Vec<epoll::Event>, timeout: Option<Duration>) {
        if let Err(error) = self.connections.source.wait(events, timeout) {
            tracing::error!(reactor = self.index, "waiting for events failed: {error}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// One turn: everything that is there, and with `reads_sockets` what the busy sockets have.
    /// Returns whether anything was.
    fn turn(&mut self, now_us: u64, reads_sockets: bool, events: &[epoll::Event], messages: &mut Vec<Message>) -> bool {
        let mut worked = false;
        self.connections.start_turn(self.turns, now_us, self.idle.spin_us());
        let aborts = std::mem::take(&mut self.aborts);
        worked |= self.take_messages(messages, now_us);
        if reads_sockets {
            worked |= self.connections.look_at_busy(now_us);
        }
        for event in events {
            match event.data.u64() {
                MAILBOX => self.mailbox.silence(),
                DEVICES => {}
                number @ DIRECT.. => {
                    let at = usize::try_from(number - DIRECT).unwrap_or(usize::MAX);
                    worked |= self.direct.on_client(at, event.flags, &mut self.connections, now_us);
                }
                index => {
                    let flags = event.flags;
                    worked |= self.connections.on_socket(index_of(Handle(index)), flags, now_us);
                }
            }
        }
        worked |= self.connections.look_at_polled(now_us);
        for abort in aborts {
            worked = true;
            self.on_message(abort, now_us);
        }
        while let Some(completion) = self.connections.devices.poll() {
            worked = true;
            self.connections.on_device(completion, now_us);
        }
        worked |= self.connections.retry_busy(now_us);
        if !self.direct.is_empty() {
            worked |= self.direct.look_at_devices(&mut self.connections, now_us);
        }
        worked |= self.connections.settle_shares(now_us);
        worked |= self.connections.resume_waiting(now_us);
        worked |= self.connections.flush_dirty(now_us);
        self.barriers.answer(&self.connections.table, &self.shared);
        if let Err(error) = self.connections.devices.kick() {
            tracing::error!(reactor = self.index, "device I/O cannot be started: {error}");
        }
        worked |= self.connections.on_deadlines(now_us)
            | self.connections.has_function_news()
            | self.connections.local_shares.has_work();
        if !self.direct.is_empty() {
            self.connections.stalls.note_turn(now_us, self.shared.clock.now_us());
        }
        if worked {
            self.last_work.note(now_us);
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

    // ---- messages

    fn on_message(&mut self, message: Message, now_us: u64) {
        let connections = &mut self.connections;
        match message {
            Message::Accept(accepted) => self.accept(accepted, now_us),
            Message::Arrived { handle } => connections.arrived(handle, now_us),
            Message::Devices(devices) => connections.devices.table = devices,
            // The Admin Queue is idle first. What the other queues have accepted is completed all
            // the same.
            Message::Notice { notice: Notice::Close(_), .. } if connections.is_stopping() => {}
            Message::Notice { handle, notice } => {
                connections.with_open(handle, now_us, |connection, context| connection.on_notice(notice, context));
            }
            Message::Abort { handle, cid, reply } => self.abort(handle, AbortRequest { cid, reply }, now_us),
            Message::Preempt { handle, nsid, reply } => self.preempt(handle, nsid, reply, now_us),
            Message::Close { handle, reply } => self.close(handle, reply, now_us),
            Message::Look { handle, reply } => self.check_end(handle, reply, now_us),
            Message::Reply { to: CommandRef { handle, slot }, reply } => {
                connections.tell(handle, now_us, |it, link, context| it.on_reply(slot, reply, link, context));
            }
            // Without a connection the token is dropped.
            Message::Drain { handle, nsid, token } => {
                connections.tell_known(handle, now_us, |it, link, context| {
                    it.waiters.drain(nsid, token, &mut it.execution, link, context);
                });
            }
            Message::Cancel { handle, nsid } => {
                connections.tell_known(handle, now_us, |it, link, context| it.cancel(nsid, link, context));
            }
            Message::DriveDone { handle } => {
                connections.tell_known(handle, now_us, |it, link, context| it.on_drive_done(link, context));
            }
            Message::DriveReached { handle, reply } => {
                connections.tell_known(handle, now_us, |it, _, _| it.waiters.drive_reached(reply));
            }
            Message::Barrier(barrier) => self.barriers.push(barrier),
            Message::CreateQueue { reply, task } => self.direct.create_queue(reply, task, connections, now_us),
            Message::PortGone(port) => self.end_port(&port, now_us),
            Message::ShareDue(drive) => connections.local_shares.look_when_due(&drive),
            Message::Shutdown { deadline_ms } => connections.start_shutdown(deadline_ms, now_us),
            Message::Beat => self.shared.heartbeats.beat(self.index),
            #[cfg(test)]
            Message::Panic => panic!("a test wants it"),
            #[cfg(test)]
            Message::Hang(held) => {
                let _gone = held.recv();
            }
        }
    }

    fn accept(&mut self, accepted: Accepted, now_us: u64) {
        let Accepted { incoming, peer, waiting } = accepted;
        match incoming {
            incoming if self.connections.is_stopping() => {
                self.shared.connection_gone(&peer.port);
                if let Incoming::Direct(socket) = incoming {
                    peer.port.reaper.hang_up(socket);
                }
            }
            Incoming::Direct(socket) => self.direct.accept(socket, peer, &mut self.connections, now_us),
            incoming => self.connections.accept(incoming, peer, waiting, &self.mailbox, now_us),
        }
    }

    fn abort(&mut self, handle: Handle, request: AbortRequest, now_us: u64) {
        let reply = request.reply;
        let is_open = self.connections.tell(handle, now_us, |it, link, context| it.on_abort(request, link, context));
        if !is_open {
            self.shared.post(reply.handle, Message::Reply { to: reply, reply: CommandReply::Aborted(false) });
        }
    }

    /// Also for a connection whose socket is gone: what it has at devices can still reach the
    /// medium.
    fn preempt(&mut self, handle: Handle, nsid: Nsid, reply: CommandRef, now_us: u64) {
        let preempt = |it: &mut Commands, link: &mut Link, context: &mut ReactorContext<'_>| {
            it.waiters.preempt(nsid, reply, &mut it.execution, link, context);
        };
        if !self.connections.tell_known(handle, now_us, preempt) {
            self.shared.post(reply.handle, Message::Reply { to: reply, reply: CommandReply::Preempted });
        }
    }

    /// The connection goes away now; its end is known when no device works for it any more, also
    /// where its socket is gone already.
    fn close(&mut self, handle: Handle, reply: CommandRef, now_us: u64) {
        let is_known = self.connections.with_known(handle, now_us, |connection, context| {
            connection.commands.waiters.await_end(reply);
            connection.end(&End::Reset, context);
            Ok(())
        });
        if !is_known {
            self.shared.post(reply.handle, Message::Reply { to: reply, reply: CommandReply::Closed });
        }
    }

    /// Whether the connection of a queue has ended without anybody having read that.
    fn check_end(&mut self, handle: Handle, reply: CommandRef, now_us: u64) {
        let look = |connection: &mut Connection, context: &mut ReactorContext<'_>| connection.check_end(reply, context);
        if !self.connections.with_known(handle, now_us, look) {
            self.shared.acknowledge_check(reply.handle);
        }
    }

    /// A port was removed: its clients and connections end.
    fn end_port(&mut self, port: &PortState, now_us: u64) {
        self.direct.end_clients(port, &mut self.connections, now_us);
        self.connections.with_all(now_us, |connection, _| {
            if connection.link.peer().port.is_same(port) { Err(End::PortGone) } else { Ok(()) }
        });
    }

    // ---- between turns

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
        self.idle.set_work(self.connections.received_bytes());
        let IdleStep::Sleep(probe_us) = self.idle.step(now_us) else {
            self.idle.give_way(now_us);
            return Some(Duration::ZERO);
        };
        let now_ms = now_us / 1000;
        self.shrink_after_a_while(now_us);
        if !(self.connections.arm_polled(now_us) && self.mailbox.fall_asleep()) {
            return Some(Duration::ZERO);
        }
        let next = self.next_deadline_ms(now_ms).into_iter().chain(self.last_work.shrink_ms()).min();
        let next = next.map(|at| Duration::from_millis(at.saturating_sub(now_ms).max(1)));
        let share_us = self.connections.local_shares.due_us().map(|at| at.saturating_sub(now_us).max(1));
        let soon = [probe_us, share_us].map(|us| us.map(Duration::from_micros));
        let again = polls.then_some(SHARED_POLL_AGAIN);
        soon.into_iter().chain([next, self.direct.doorbell_interval(), again]).flatten().min()
    }

    /// When something is overdue or tried again, milliseconds.
    fn next_deadline_ms(&self, now_ms: u64) -> Option<u64> {
        let direct_ms = self.direct.deadline_ms(&self.connections, now_ms);
        self.connections.next_deadline_ms(now_ms).into_iter().chain(direct_ms).min()
    }

    /// Whether a port has the reactor go on looking, after the last work that it had. When it does
    /// sleep, all connections are armed, whatever their ports say.
    fn polls_on(&mut self, now_us: u64) -> bool {
        match self.connections.busy_poll_us() {
            0 => false,
            u64::MAX => {
                self.shrink_after_a_while(now_us);
                true
            }
            us => self.last_work.is_within(us, now_us),
        }
    }

    /// Releases memory that a burst left behind, once, after a while without work.
    fn shrink_after_a_while(&mut self, now_us: u64) {
        if self.last_work.take_shrink(now_us) {
            self.connections.shrink();
        }
    }
}
