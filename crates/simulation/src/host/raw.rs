//! A host of the simulation's own: its association with a controller, made, used, reset, shut down
//! and lost. It decides nothing about what its commands mean; whoever has it is notified how they
//! ended.

mod queue;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ebof_authentication::Secret;
use ebof_clock::Clock;
use ebof_nvme::connect::{Connect, ConnectData, ConnectResult, Property};
use ebof_nvme::opcode::admin;
use ebof_nvme::property::{Cc, Csts, offset};
use ebof_nvme::{Nqn, QueueId, Sqe, Status};
use zerocopy::IntoBytes;

use super::Event;
use super::proof::{Prover, Step, listen, say};
use crate::story::{Failure, fail};
use crate::transport::wire::{Command, CompletedCommand, Lost, Wire};
use queue::{CommandPurpose, Queue};

/// How long a host waits for what has to come to its end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it reads CSTS.
const LOOK: Duration = Duration::from_millis(10);
/// Stands for a command that found its connection gone; queues have fewer entries.
const LOST_CID: u16 = u16::MAX;
/// Messages that are kept.
const SAID_MAX: usize = 4;
/// After so long it tries again, where it was not believed.
const AGAIN: Duration = Duration::from_millis(200);
/// Keep Alive Timeout.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// What a host is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Down {
        until: Instant,
    },
    /// Until the controller is ready.
    Enabling,
    /// Until all I/O queues are there.
    Queues,
    Live,
    /// Until CSTS says that it is over: SHST where it is shut down, RDY where it is reset.
    Leaving {
        reset: bool,
    },
}

/// One host with its Admin Queue and I/O queues, over either transport.
#[derive(Debug)]
pub struct RawHost {
    /// Its NQN.
    pub nqn: Nqn,
    id: [u8; 16],
    subsystem: Nqn,
    phase: Phase,
    since: Instant,
    cntlid: u16,
    queues: Vec<Queue>,
    /// I/O queues that it wants.
    io_queues: u16,
    entries: usize,
    look_at: Option<Instant>,
    keep_alive_at: Instant,
    /// A controller may be refused: it tries again later.
    is_patient: bool,
    /// Whoever has to prove who he is.
    prover: Option<Prover>,
    /// The last that it has said for that.
    pub said: VecDeque<Vec<u8>>,
}

impl RawHost {
    /// A host that has no controller yet.
    #[must_use]
    pub fn new(nqn: Nqn, id: [u8; 16], subsystem: Nqn, io_queues: u16, entries: usize, now: Instant) -> Self {
        Self {
            nqn,
            id,
            subsystem,
            phase: Phase::Down { until: now },
            since: now,
            cntlid: 0,
            queues: Vec::new(),
            io_queues,
            entries,
            look_at: None,
            keep_alive_at: now,
            is_patient: false,
            prover: None,
            said: VecDeque::new(),
        }
    }

    /// The same host, whose subsystem may be away for some time.
    #[must_use]
    pub fn patient(self) -> Self {
        Self { is_patient: true, ..self }
    }

    /// See [`crate::host::Host::set_secret`].
    pub fn set_secret(&mut self, secret: Secret, clock: &Clock) {
        self.prover = Some(Prover { secret, clock: clock.clone() });
    }

    /// See [`crate::host::Host::prove_again`].
    ///
    /// # Errors
    /// Never, on a simulated clock.
    pub fn prove_again(&mut self, now: Instant) -> Result<(), Failure> {
        if self.phase == Phase::Live && self.queues[0].proof.is_none() { self.begin_proof(0, now) } else { Ok(()) }
    }

    /// Whether commands can be sent.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    /// Whether it waits for the controller to end: that closes the connections of I/O queues then.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        matches!(self.phase, Phase::Leaving { .. })
    }

    /// The identifier of its controller, from the time that it received it.
    #[must_use]
    pub fn cntlid(&self) -> Option<u16> {
        self.queues.first().filter(|admin| admin.is_connected).map(|_| self.cntlid)
    }

    /// Commands of its own that are under way.
    fn under_way(&self) -> impl Iterator<Item = u64> {
        self.queues.iter().flat_map(Queue::ops)
    }

    /// Sends a command on a queue, 0 for the Admin Queue; I/O queues are taken modulo their number.
    /// `false` where it cannot.
    pub fn submit(&mut self, queue: usize, op: u64, command: Command, now: Instant) -> bool {
        if self.phase != Phase::Live {
            return false;
        }
        let at = if queue == 0 { 0 } else { self.io_queue(queue) };
        self.send(at, CommandPurpose::Op(op), command, now)
    }

    fn io_queue(&self, queue: usize) -> usize {
        1 + (queue - 1) % (self.queues.len() - 1).max(1)
    }

    /// Sends two commands on an I/O queue, right after each other; none where it cannot send both.
    pub fn submit_fused(&mut self, queue: usize, pair: [(u64, Command); 2], now: Instant) -> bool {
        let at = self.io_queue(queue);
        let has_room = |queue: &Queue| queue.under_way.len() + pair.len() < queue.entries;
        if self.phase != Phase::Live || !self.queues.get(at).is_some_and(has_room) {
            return false;
        }
        let [(first, compare), (second, write)] = pair;
        if !self.send(at, CommandPurpose::Op(first), compare, now) {
            return false;
        }
        if !self.send(at, CommandPurpose::Op(second), write, now) {
            // The next step finds that the connection is gone, and both with it.
            self.queues[at].under_way.insert(LOST_CID, (CommandPurpose::Op(second), now));
        }
        true
    }

    fn send(&mut self, at: usize, purpose: CommandPurpose, command: Command, now: Instant) -> bool {
        let Some(queue) = self.queues.get_mut(at) else { return false };
        let free = (0..queue.entries - 1).map(|cid| u16::try_from(cid).unwrap_or(u16::MAX));
        let Some(cid) = free.into_iter().find(|cid| !queue.under_way.contains_key(cid)) else { return false };
        let mut command = command;
        command.sqe.cid = cid.into();
        if queue.wire.submit(command).is_err() {
            return false;
        }
        queue.under_way.insert(cid, (purpose, now));
        true
    }

    /// Leaves the controller: shuts it down, or resets it, or one right after the other.
    pub fn leave(&mut self, shutdown: bool, reset: bool, now: Instant) {
        if self.phase != Phase::Live {
            return;
        }
        let cc = if shutdown { Cc::ENABLE.with_shutdown(1) } else { Cc(0) };
        self.send(0, CommandPurpose::Leave, plain(Property::set(offset::CC, cc.0)), now);
        if shutdown && reset {
            self.send(0, CommandPurpose::Leave, plain(Property::set(offset::CC, 0)), now);
        }
        self.phase = Phase::Leaving { reset: reset || !shutdown };
        (self.since, self.look_at) = (now, Some(now + LOOK));
    }

    /// Its connections are gone, whichever way; it comes back after a time.
    pub fn drop_all(&mut self, now: Instant, pause: Duration) -> Option<Event> {
        let lost: Vec<u64> = self.under_way().collect();
        self.queues.clear();
        self.phase = Phase::Down { until: now + pause };
        (self.since, self.look_at) = (now, None);
        (!lost.is_empty()).then_some(Event::Lost(lost))
    }

    /// Breaks one of its connections after so many bytes.
    pub fn break_after(&self, queue: usize, bytes: u64) {
        if let Some(queue) = self.queues.get(queue % self.queues.len().max(1)) {
            queue.wire.break_after(bytes);
        }
    }

    /// When it has something to do, as far as it knows.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let open = self.queues.iter().filter(|queue| !queue.is_closed);
        let own = match self.phase {
            Phase::Down { until } => Some(until.max(now)),
            Phase::Live => Some(self.keep_alive_at.max(now)),
            Phase::Enabling | Phase::Queues | Phase::Leaving { .. } => self.look_at,
        };
        own.into_iter().chain(open.filter_map(|queue| queue.wire.due(now))).min()
    }

    /// Does what there is to do. `connect` makes a connection for a queue with this identifier and
    /// so many entries, where the target takes one.
    ///
    /// # Errors
    /// Something that a host must not see.
    pub fn step(
        &mut self,
        now: Instant,
        connect: &mut dyn FnMut(u16, usize) -> Option<Wire>,
    ) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        self.begin(now, connect);
        for at in 0..self.queues.len() {
            let Some(queue) = self.queues.get_mut(at) else { break };
            if queue.is_closed {
                continue;
            }
            match queue.wire.poll() {
                Ok(ended) => {
                    for ended in ended {
                        self.ended(at, ended, now, &mut events)?;
                    }
                }
                // What it had accepted may be done still; the Admin Queue reports when it is over.
                Err(Lost::Closed) if at > 0 && matches!(self.phase, Phase::Leaving { .. }) => {
                    events.extend(queue.close());
                }
                Err(Lost::Closed) => {
                    events.extend(self.drop_all(now, Duration::from_millis(20)));
                    break;
                }
                Err(Lost::Wrong(what)) => return fail(format!("{}: queue {at}: {what}", self.nqn)),
            }
        }
        self.go_on(now, connect, &mut events)?;
        Ok(events)
    }

    /// Asks for an Admin Queue when it is time.
    fn begin(&mut self, now: Instant, connect: &mut dyn FnMut(u16, usize) -> Option<Wire>) {
        if let Phase::Down { until } = self.phase
            && until <= now
        {
            match connect(0, ADMIN_ENTRIES) {
                Some(wire) => {
                    self.queues = vec![Queue::new(wire, 0, ADMIN_ENTRIES)];
                    (self.phase, self.since, self.look_at) = (Phase::Enabling, now, None);
                }
                None => self.phase = Phase::Down { until: now + Duration::from_millis(50) },
            }
        }
    }

    /// What follows from where it stands.
    fn go_on(
        &mut self,
        now: Instant,
        connect: &mut dyn FnMut(u16, usize) -> Option<Wire>,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        for at in 0..self.queues.len() {
            let queue = &self.queues[at];
            if !queue.is_asked && queue.wire.is_ready() {
                let command = self.connect_command(queue.id, queue.entries);
                self.queues[at].is_asked = self.send(at, CommandPurpose::Connect, command, now);
            }
        }
        match self.phase {
            Phase::Queues if self.queues.iter().all(|queue| queue.is_connected) => {
                let next = u16::try_from(self.queues.len()).unwrap_or(u16::MAX);
                if next > self.io_queues {
                    (self.phase, self.keep_alive_at) = (Phase::Live, now + KEEP_ALIVE / 2);
                    events.extend([Event::Settled, Event::Live]);
                } else if let Some(wire) = connect(next, self.entries) {
                    self.queues.push(Queue::new(wire, next, self.entries));
                    self.since = now;
                } else {
                    events.extend(self.drop_all(now, Duration::from_millis(50)));
                }
            }
            Phase::Live if self.keep_alive_at <= now => {
                self.send(0, CommandPurpose::KeepAlive, plain(Sqe::new(admin::KEEP_ALIVE)), now);
                self.keep_alive_at = now + KEEP_ALIVE / 2;
            }
            _ => {}
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = None;
            self.send(0, CommandPurpose::Look, plain(Property::get(offset::CSTS, 4)), now);
        }
        let is_busy = matches!(self.phase, Phase::Enabling | Phase::Queues | Phase::Leaving { .. });
        if is_busy && now > self.since + PATIENCE {
            return fail(format!("{}: {:?} does not come to its end", self.nqn, self.phase));
        }
        Ok(())
    }

    fn connect_command(&self, queue: u16, entries: usize) -> Command {
        let mut data = ConnectData::zeroed();
        data.hostid = self.id;
        data.cntlid = if queue == 0 { 0xffff } else { self.cntlid }.into();
        data.subnqn = self.subsystem.to_field();
        data.hostnqn = self.nqn.to_field();
        let kato_ms = if queue == 0 { u32::try_from(KEEP_ALIVE.as_millis()).unwrap_or(u32::MAX) } else { 0 };
        let entries = u32::try_from(entries).unwrap_or(u32::MAX);
        let sqe = Connect { recfmt: 0, qid: QueueId(queue), entries, cattr: 0, kato_ms }.encode();
        Command { sqe, data: Some(data.as_bytes().into()), read_bytes: 0 }
    }

    fn ended(
        &mut self,
        at: usize,
        ended: CompletedCommand,
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Result<(), Failure> {
        let Some(queue) = self.queues.get_mut(at) else { return Ok(()) };
        let cid = ended.cqe.cid().0;
        let Some((purpose, _)) = queue.under_way.remove(&cid) else {
            return fail(format!("{}: queue {at}: a completion of {cid}, which is not under way", self.nqn));
        };
        let status = ended.cqe.status();
        match purpose {
            CommandPurpose::Op(op) => events.push(Event::Ended(op, ended)),
            CommandPurpose::Connect if status.is_success() => self.admitted(at, ended.cqe.result(), now)?,
            CommandPurpose::Say | CommandPurpose::Listen => {
                self.proof_ended(at, purpose == CommandPurpose::Say, &ended, now, events);
            }
            // The controller of before may still be at work, or this one is gone already.
            CommandPurpose::Connect if status.is(Status::CONNECT_CONTROLLER_BUSY) || at > 0 => {
                events.extend(self.drop_all(now, Duration::from_millis(100)));
            }
            CommandPurpose::Connect if self.is_patient => {
                events.extend(self.drop_all(now, Duration::from_millis(100)));
            }
            CommandPurpose::Enable if status.is_success() => self.look_at = Some(now),
            CommandPurpose::Look if status.is_success() => self.on_csts(ended.cqe.result(), now, events),
            CommandPurpose::KeepAlive if status.is_success() => {}
            CommandPurpose::Leave if status.is_success() => {}
            // What is under way while the controller goes away ends somehow.
            CommandPurpose::KeepAlive | CommandPurpose::Look if !matches!(self.phase, Phase::Live) => {}
            purpose => return fail(format!("{}: {purpose:?} of queue {at} ends as {status}", self.nqn)),
        }
        Ok(())
    }

    /// CSTS is known.
    fn on_csts(&mut self, csts: u64, now: Instant, events: &mut Vec<Event>) {
        let csts = Csts(u32::try_from(csts & 0xffff_ffff).unwrap_or_default());
        self.look_at = Some(now + LOOK);
        match self.phase {
            Phase::Enabling if csts.ready() => (self.phase, self.look_at) = (Phase::Queues, None),
            Phase::Leaving { reset: true } if !csts.ready() => self.left(now, events),
            Phase::Leaving { reset: false } if csts.shutdown_complete() => self.left(now, events),
            _ => {}
        }
    }

    /// Connect has succeeded; the controller may want to know who it is.
    fn admitted(&mut self, at: usize, result: u64, now: Instant) -> Result<(), Failure> {
        let (cntlid, authreq) = ConnectResult::connected(result);
        if self.queues[at].id == 0 {
            self.cntlid = cntlid.0;
        }
        if (authreq != 0) != self.prover.is_some() {
            return fail(format!("{}: AUTHREQ of queue {at} is {authreq:x}", self.nqn));
        }
        if self.prover.is_some() {
            return self.begin_proof(at, now);
        }
        self.connected(at, now);
        Ok(())
    }

    /// A queue may be used.
    fn connected(&mut self, at: usize, now: Instant) {
        self.queues[at].is_connected = true;
        if self.queues[at].id == 0 {
            let enable = Property::set(offset::CC, Cc::ENABLE.0);
            self.send(0, CommandPurpose::Enable, plain(enable), now);
        }
    }

    fn begin_proof(&mut self, at: usize, now: Instant) -> Result<(), Failure> {
        let Some(prover) = &self.prover else { return Ok(()) };
        let (transaction, step) = prover.begin(&self.nqn, &self.subsystem, now)?;
        self.queues[at].proof = Some(transaction);
        self.go_on_proving(at, step, now, &mut Vec::new());
        Ok(())
    }

    /// A message was taken, or came.
    fn proof_ended(
        &mut self,
        at: usize,
        is_said: bool,
        ended: &CompletedCommand,
        now: Instant,
        events: &mut Vec<Event>,
    ) {
        if !ended.cqe.status().is_success() {
            // The controller is on its way to its end.
            events.extend(self.drop_all(now, AGAIN));
            return;
        }
        let Some(transaction) = &mut self.queues[at].proof else { return };
        let step = if is_said { transaction.said() } else { transaction.heard(&ended.data) };
        self.go_on_proving(at, step, now, events);
    }

    fn go_on_proving(&mut self, at: usize, step: Step, now: Instant, events: &mut Vec<Event>) {
        match step {
            Step::Say(message) => {
                self.send(at, CommandPurpose::Say, say(&message), now);
                if self.said.len() == SAID_MAX {
                    self.said.pop_front();
                }
                self.said.push_back(message);
            }
            Step::Listen => _ = self.send(at, CommandPurpose::Listen, listen(), now),
            Step::Over(outcome) => {
                let Some(transaction) = self.queues[at].proof.take() else { return };
                if outcome.is_err() {
                    events.push(Event::Denied(transaction.begun));
                    events.extend(self.drop_all(now, AGAIN));
                    return;
                }
                events.push(Event::Proven(transaction.begun));
                if !self.queues[at].is_connected {
                    self.connected(at, now);
                }
            }
        }
    }

    /// The controller has done all that it will.
    fn left(&mut self, now: Instant, events: &mut Vec<Event>) {
        events.extend(self.drop_all(now, Duration::from_millis(1)));
        events.push(Event::Settled);
    }
}

/// Entries of an Admin Queue.
const ADMIN_ENTRIES: usize = 32;

fn plain(sqe: Sqe) -> Command {
    Command { sqe, data: None, read_bytes: 0 }
}
