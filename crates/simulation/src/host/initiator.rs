//! A host that is the product's initiator, stepped: it connects, opens namespaces, sends over queue
//! pairs and by handles of namespaces, which repeat what was lost, is reset, reconnects and
//! disconnects. What it says to its user becomes events.

mod proof;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use ebof_authentication::Secret;
use ebof_clock::Clock;
use ebof_initiator::stepped::{self, AdminCommand, AdminQueue, QueuePair, Sequence};
use ebof_initiator::{
    ConnectError, Controller, Data, Error, KeySource, Namespace, Options, State, SubmitError, Transport,
};
use ebof_nvme::io::{BlockRange, DsmRange};
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Cid, Cqe, HostId, Nqn, Nsid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use super::Event;
use crate::random::Random;
use crate::story::{Failure, fail, trace};
use crate::transport::fabric::TARGET;
use crate::transport::reach::Reach;
use crate::transport::wire::{Command, CompletedCommand, RdmaRoute};
use proof::Proving;

/// Virtual time after which connecting and disconnecting are over.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it waits before it asks for a controller again, or for a queue if it was not believed.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// Calls of namespaces at a time: more wait for a queue pair.
const CALLS_MAX: usize = 6;

/// One host with a controller of the product's initiator.
#[derive(Debug)]
pub struct InitiatorHost {
    options: Options,
    reach: Reach,
    phase: Phase,
    since: Instant,
    /// As they were opened last.
    namespaces: BTreeMap<u32, Namespace>,
    calls: BTreeMap<u64, Call>,
    admin_commands: BTreeMap<u64, AdminCommand>,
    /// Sent over queue pairs.
    sent: BTreeSet<u64>,
    /// Lost in the present association, and
    lost: Vec<u64>,
    /// in those before it.
    lost_before: Vec<u64>,
    /// What there is to say at the next step.
    events: Vec<Event>,
    /// The controller was made with another secret than it has now.
    is_outdated: bool,
}

#[derive(Debug)]
enum Phase {
    Down { until: Instant },
    Connecting(Sequence<Result<(Controller, AdminQueue), ConnectError>>),
    Up(Box<Up>),
}

/// While there is a controller.
#[derive(Debug)]
struct Up {
    queues: Vec<Queue>,
    /// The next queue that is being opened, since then.
    opening: Option<(Instant, Sequence<Result<QueuePair, Error>>)>,
    /// No queue is opened before: whoever asked at once, as long as the target knows another
    /// secret, would ask for nothing else.
    open_from: Option<Instant>,
    /// It proves again who it is.
    proving: Option<Proving>,
    happened: Receiver<ebof_initiator::Event>,
    admin_queue: AdminQueue,
    controller: Controller,
    /// All queues were there once.
    is_told: bool,
    is_leaving: bool,
}

#[derive(Debug)]
struct Queue {
    pair: QueuePair,
    /// It was connected when it was polled last.
    is_ready: bool,
}

/// A call of a namespace under way.
#[derive(Debug)]
enum Call {
    Open(Nsid, Sequence<Result<Namespace, Error>>),
    Read(Sequence<(Vec<u8>, Result<(), Error>)>),
    Other(Sequence<Result<(), Error>>),
}

impl InitiatorHost {
    /// A host that has no controller yet. Its link, its queues and its times follow from `random`.
    #[must_use]
    pub fn new(name: Nqn, id: [u8; 16], subsystem: Nqn, reach: Reach, clock: &Clock, random: &mut Random) -> Self {
        let few = |random: &mut Random, bound| u16::try_from(random.below(bound)).unwrap_or_default();
        let mut options = Options::loopback(reach.port(), subsystem);
        match random.weighted(&[(4, 0), (3, 1), (3, 2)]) {
            0 => options.transport = Transport::Streams(reach.dialer()),
            1 => {
                let RdmaRoute { fabric, from } = reach.way();
                options.transport = Transport::QueuePairs(fabric.network());
                (options.traddr, options.trsvcid) = (TARGET.ip().to_string(), TARGET.port());
                options.host_traddr = Some(from.to_string());
            }
            _ => {}
        }
        (options.host_nqn, options.host_id) = (name, HostId(id));
        options.clock = clock.clone();
        // One is for calls of namespaces.
        options.nr_io_queues = 2 + few(random, 3);
        options.queue_size = 4 << few(random, 4);
        options.hdr_digest = random.percent(30);
        options.data_digest = random.percent(30);
        options.reconnect_delay_ms = 1000;
        options.ctrl_loss_tmo = Some(Duration::from_secs(if random.percent(20) { 2 } else { 600 }));
        options.batch_timeout_us = if random.percent(20) { 50 } else { 0 };
        let now = clock.now();
        Self {
            options,
            reach,
            phase: Phase::Down { until: now },
            since: now,
            namespaces: BTreeMap::new(),
            calls: BTreeMap::new(),
            admin_commands: BTreeMap::new(),
            sent: BTreeSet::new(),
            lost: Vec::new(),
            lost_before: Vec::new(),
            events: Vec::new(),
            is_outdated: false,
        }
    }

    /// The number of its controller.
    #[must_use]
    pub fn cntlid(&self) -> Option<u16> {
        let Phase::Up(up) = &self.phase else { return None };
        Some(up.controller.id().0)
    }

    /// Whether its queues are queue pairs of the RDMA network.
    #[must_use]
    pub fn is_over_rdma(&self) -> bool {
        matches!(self.options.transport, Transport::QueuePairs(_))
    }

    /// Its way to the target.
    #[must_use]
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Whether commands can be sent.
    #[must_use]
    pub fn is_live(&self) -> bool {
        let Phase::Up(up) = &self.phase else { return false };
        let is_live = up.is_told && !up.is_leaving && up.controller.state() == State::Live;
        is_live && up.queues.iter().all(|queue| queue.is_ready)
    }

    /// From now on it proves who it is by this secret: it leaves the controller that it has with
    /// another one.
    pub fn set_secret(&mut self, secret: Secret, now: Instant) {
        self.options.dhchap_key = Some(KeySource::Secret(secret));
        self.is_outdated = !matches!(self.phase, Phase::Down { .. });
        self.leave(true, false, now);
    }

    /// Has it prove once more who it is, while it is connected.
    pub fn prove_again(&mut self, now: Instant) {
        if let Phase::Up(up) = &mut self.phase
            && up.proving.is_none()
            && !up.is_leaving
        {
            up.proving = Some(Proving::begin(&up.controller, now));
        }
    }

    /// Whether a command is a call of a namespace, which repeats it.
    #[must_use]
    pub fn repeats(&self, op: u64) -> bool {
        self.calls.contains_key(&op)
    }

    /// See [`super::Host::submit`]. Every other command that a call of a namespace can make is made
    /// that way.
    pub fn submit(&mut self, queue: usize, op: u64, command: Command) -> bool {
        if !self.is_live() {
            return false;
        }
        let Phase::Up(up) = &mut self.phase else { return false };
        let Command { sqe, data, read_bytes } = command;
        let owned = match data {
            Some(data) => Data::FromHost(data.to_vec()),
            None if read_bytes > 0 => Data::ToHost(vec![0; usize::try_from(read_bytes).unwrap_or_default()]),
            None => Data::None,
        };
        if queue == 0 {
            return match stepped::admin(&up.controller, sqe, owned, None) {
                Ok(command) => self.admin_commands.insert(op, command).is_none(),
                Err(_) => false,
            };
        }
        let namespace = self.namespaces.get(&sqe.nsid().0);
        if op.is_multiple_of(2)
            && self.calls.len() < CALLS_MAX
            && let Some(call) = namespace.and_then(|namespace| call(namespace, &sqe, &owned))
        {
            self.calls.insert(op, call);
            return true;
        }
        let count = up.queues.len();
        let Some(Queue { pair, .. }) = up.queues.get_mut((queue - 1) % count.max(1)) else { return false };
        let submitted = match namespace {
            Some(namespace) => pair.submit_bound(namespace.binding(), sqe, owned, op),
            None => pair.submit(sqe, owned, op),
        };
        match submitted {
            Ok(()) => self.sent.insert(op),
            Err(SubmitError { reason, .. }) if is_about_namespace(&reason) => {
                self.events.push(Event::Refused(op, reason.to_string()));
                true
            }
            Err(SubmitError { reason, .. }) => {
                trace(|| format!("{op} is not sent: {reason}"));
                false
            }
        }
    }

    /// Opens a namespace. The outcome has its Identify data.
    pub fn open(&mut self, op: u64, nsid: Nsid) -> bool {
        let Phase::Up(up) = &self.phase else { return false };
        self.calls.insert(op, Call::Open(nsid, stepped::namespace(&up.controller, nsid)));
        true
    }

    /// See [`super::Host::leave`]. Shutting down is disconnecting.
    pub fn leave(&mut self, shutdown: bool, reset: bool, now: Instant) {
        let Phase::Up(up) = &mut self.phase else { return };
        if reset {
            up.controller.reset();
        }
        if shutdown && !up.is_leaving {
            up.controller.clone().disconnect();
            up.is_leaving = true;
            self.since = now;
        }
    }

    /// See [`super::Host::drop_all`].
    pub fn drop_all(&mut self, now: Instant, pause: Duration) -> Option<Event> {
        self.phase = Phase::Down { until: now + pause };
        self.since = now;
        self.namespaces.clear();
        let calls = std::mem::take(&mut self.calls).into_keys();
        let admin_commands = std::mem::take(&mut self.admin_commands).into_keys();
        let mut lost: Vec<u64> =
            std::mem::take(&mut self.sent).into_iter().chain(admin_commands).chain(calls).collect();
        for event in self.events.drain(..) {
            if let Event::Refused(op, _) = event {
                lost.push(op);
            }
        }
        // A new controller ends all of them.
        self.lost.clear();
        self.lost_before.clear();
        (!lost.is_empty()).then_some(Event::Lost(lost))
    }

    /// When it has something to do, as far as it knows.
    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        let mut due = Vec::new();
        match &mut self.phase {
            Phase::Down { until } => due.push(Some((*until).max(now))),
            Phase::Connecting(sequence) => due.push(sequence.due()),
            Phase::Up(up) => {
                due.push(up.admin_queue.due());
                due.extend(up.queues.iter_mut().map(|queue| queue.pair.due()));
                due.extend(up.opening.as_ref().map(|(_, sequence)| sequence.due()));
                due.push(up.open_from.filter(|from| *from > now));
                due.extend(up.proving.as_ref().map(Proving::due));
            }
        }
        due.extend(self.calls.values().map(|call| match call {
            Call::Open(_, sequence) => sequence.due(),
            Call::Read(sequence) => sequence.due(),
            Call::Other(sequence) => sequence.due(),
        }));
        due.push(self.reach.due());
        due.into_iter().flatten().min()
    }

    /// Does what there is to do.
    ///
    /// # Errors
    /// Something that a user of the initiator must not see.
    pub fn step(&mut self, now: Instant) -> Result<Vec<Event>, Failure> {
        let mut events = std::mem::take(&mut self.events);
        match &mut self.phase {
            Phase::Down { until } if *until <= now => {
                self.phase = Phase::Connecting(stepped::connect(&self.options));
                (self.since, self.is_outdated) = (now, false);
            }
            Phase::Down { .. } => {}
            Phase::Connecting(sequence) => match sequence.step() {
                Some(Ok((controller, admin_queue))) => {
                    if self.options.dhchap_key.is_some() {
                        events.push(Event::Proven(self.since));
                    }
                    self.phase = Phase::Up(Box::new(Up::new(controller, admin_queue)));
                    self.since = now;
                    if self.is_outdated {
                        self.leave(true, false, now);
                    }
                }
                Some(Err(error)) => {
                    trace(|| format!("{}: {}", self.options.host_nqn, error.summary()));
                    if proof::is_denied(&error) && !self.is_outdated {
                        events.push(Event::Denied(self.since));
                    }
                    self.phase = Phase::Down { until: now + ASK_AGAIN };
                }
                None if now > self.since + PATIENCE => return fail("connecting does not come to its end"),
                None => {}
            },
            Phase::Up(_) => self.step_up(now, &mut events)?,
        }
        Ok(events)
    }

    fn step_up(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<(), Failure> {
        let Phase::Up(up) = &mut self.phase else { return Ok(()) };
        up.admin_queue.step();
        let mut lost = Vec::new();
        while let Ok(event) = up.happened.try_recv() {
            trace(|| format!("{}: {event:?}", self.options.host_nqn));
            if event == ebof_initiator::Event::Reconnected {
                self.lost_before.append(&mut self.lost);
                up.queues.iter_mut().for_each(|queue| queue.is_ready = false);
            }
        }
        for Queue { pair, is_ready } in &mut up.queues {
            loop {
                match pair.poll() {
                    Ok(Some(completion)) => {
                        let op = completion.user;
                        if !self.sent.remove(&op) {
                            return fail(format!("{op} has ended twice, or was never sent"));
                        }
                        let data = completion.data.into_buffer().unwrap_or_default();
                        match completion.result {
                            Ok(cqe) => events.push(Event::Ended(op, CompletedCommand { cqe, data })),
                            Err(error) => lost.push((op, error)),
                        }
                    }
                    polled => {
                        *is_ready = polled.is_ok();
                        break;
                    }
                }
            }
        }
        self.admin_commands.retain(|&op, command| match command.poll() {
            None => true,
            Some(Ok((cqe, data))) => {
                let data = data.into_buffer().unwrap_or_default();
                events.push(Event::Ended(op, CompletedCommand { cqe, data }));
                false
            }
            Some(Err(error)) => {
                lost.push((op, error));
                false
            }
        });
        let namespaces = &mut self.namespaces;
        self.calls.retain(|&op, call| match call.step(namespaces) {
            None => true,
            Some(Ok(outcome)) => {
                events.push(Event::Ended(op, outcome));
                false
            }
            Some(Err(error)) if is_about_namespace(&error) => {
                events.push(Event::Refused(op, error.to_string()));
                false
            }
            Some(Err(error)) => {
                lost.push((op, error));
                false
            }
        });
        self.lost(lost, events)?;
        if let Phase::Up(up) = &mut self.phase
            && let Some(proven) = up.proving.as_mut().and_then(|proving| proving.step(&self.options.host_nqn))
        {
            up.proving = None;
            // What it was asked for, by a secret that it has not any more, is of no interest.
            events.extend(proven.event().filter(|_| !self.is_outdated));
        }
        self.go_on(now, events)
    }

    /// Commands have ended with errors of the initiator's own.
    fn lost(&mut self, lost: Vec<(u64, Error)>, events: &mut Vec<Event>) -> Result<(), Failure> {
        let mut ops = Vec::new();
        for (op, error) in lost {
            if !error.is_connection() {
                return fail(format!("{op}: {error}"));
            }
            trace(|| format!("{op}: {error}"));
            ops.push(op);
        }
        if !ops.is_empty() {
            self.lost.extend(&ops);
            events.push(Event::Lost(ops));
        }
        Ok(())
    }

    /// What follows from where it stands.
    fn go_on(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<(), Failure> {
        let Phase::Up(up) = &mut self.phase else { return Ok(()) };
        if up.admin_queue.is_over() {
            if self.sent.is_empty() && self.admin_commands.is_empty() && self.calls.is_empty() {
                // Disconnected, or given up.
                events.extend(self.drop_all(now, Duration::from_millis(5)));
                return Ok(());
            }
            if now > self.since + 2 * PATIENCE {
                let Self { sent, calls, .. } = self;
                return fail(format!("the controller is gone, and commands are left: {sent:?}, {:?}", calls.keys()));
            }
        } else if !up.is_leaving {
            self.since = now;
        }
        let Phase::Up(up) = &mut self.phase else { return Ok(()) };
        let is_live = up.controller.state() == State::Live && !up.is_leaving;
        let is_wanted = up.queues.len() + 1 < usize::from(up.controller.io_queues()).max(2);
        if is_live && is_wanted && up.open_from.is_none_or(|from| from <= now) {
            let (begun, opening) = up.opening.get_or_insert_with(|| (now, stepped::queue_pair(&up.controller)));
            let (begun, opened) = (*begun, opening.step());
            if opened.is_some() {
                up.opening = None;
            }
            match opened {
                Some(Ok(pair)) => up.queues.push(Queue { pair, is_ready: true }),
                Some(Err(Error::Connect(error))) if proof::is_denied(&error) => {
                    up.open_from = Some(now + ASK_AGAIN);
                    events.extend((!self.is_outdated).then_some(Event::Denied(begun)));
                }
                Some(Err(_)) | None => {}
            }
        }
        let is_ready = |queue: &Queue| queue.is_ready;
        if is_live && up.queues.iter().any(is_ready) && !self.lost_before.is_empty() {
            events.push(Event::SettledOnly(std::mem::take(&mut self.lost_before)));
        }
        let are_there = up.queues.len() + 1 >= usize::from(up.controller.io_queues()).max(2);
        if is_live && !up.is_told && are_there && up.queues.iter().all(is_ready) {
            up.is_told = true;
            events.extend([Event::Settled, Event::Live]);
        }
        Ok(())
    }
}

impl Up {
    fn new(controller: Controller, admin_queue: AdminQueue) -> Self {
        let happened = controller.events();
        Self {
            queues: Vec::new(),
            opening: None,
            open_from: None,
            proving: None,
            happened,
            admin_queue,
            controller,
            is_told: false,
            is_leaving: false,
        }
    }
}

impl Call {
    fn step(&mut self, namespaces: &mut BTreeMap<u32, Namespace>) -> Option<Result<CompletedCommand, Error>> {
        let (data, done) = match self {
            Self::Open(nsid, sequence) => match sequence.step()? {
                Ok(namespace) => {
                    let data = namespace.identify().as_bytes().to_vec();
                    namespaces.insert(nsid.0, namespace);
                    (data, Ok(()))
                }
                Err(error) => (Vec::new(), Err(error)),
            },
            Self::Read(sequence) => sequence.step()?,
            Self::Other(sequence) => (Vec::new(), sequence.step()?),
        };
        let status = match done {
            Ok(()) => Status::SUCCESS,
            Err(Error::Status { status, .. }) => status,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(CompletedCommand { cqe: Cqe::new(Cid(0), status), data }))
    }
}

/// The call of a namespace that does the same as a command; `None` where there is none.
fn call(namespace: &Namespace, sqe: &Sqe, data: &Data) -> Option<Call> {
    let BlockRange { slba, blocks, fua, deallocate, .. } = BlockRange::decode(sqe);
    Some(match (sqe.opcode, data) {
        (nvm::READ, Data::ToHost(buffer)) => Call::Read(stepped::read(namespace, slba, vec![0; buffer.len()])),
        (nvm::WRITE, Data::FromHost(bytes)) => Call::Other(stepped::write(namespace, slba, bytes.clone(), fua)),
        (nvm::WRITE_ZEROES, _) => Call::Other(stepped::write_zeroes(namespace, slba, u64::from(blocks), deallocate)),
        (nvm::DATASET_MANAGEMENT, Data::FromHost(bytes)) => {
            let ranges = bytes.chunks(size_of::<DsmRange>()).filter_map(|bytes| DsmRange::read_from_bytes(bytes).ok());
            let ranges = ranges.map(|range| (range.slba.get(), u64::from(range.nlb.get()))).collect();
            Call::Other(stepped::deallocate(namespace, ranges))
        }
        (nvm::FLUSH, _) => Call::Other(stepped::flush(namespace)),
        _ => return None,
    })
}

/// Whether the initiator does not send a command for what it knows of its namespace.
fn is_about_namespace(error: &Error) -> bool {
    matches!(
        error,
        Error::Replaced { .. } | Error::Format { .. } | Error::NoSuchNamespace(_) | Error::OutOfRange { .. }
    )
}
