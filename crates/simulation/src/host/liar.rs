//! Somebody who has the name and the identifier of a host, knows what its controllers are and what
//! it has said, and does not have its secret. What such a one tries is not decided here; that
//! nothing of it is executed is checked here.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use ebof_authentication::message::{FromController, Negotiate, ReplyMessage, SecureChannel};
use ebof_authentication::{Group, Hash};
use ebof_nvme::connect::{Connect, ConnectData, ConnectResult};
use ebof_nvme::{Nqn, QueueId, Status};
use zerocopy::IntoBytes;

use super::proof::{Prover, Step, Transaction, listen, say};
use crate::story::{Failure, fail, trace};
use crate::transport::wire::{Command, CompletedCommand, Lost, Wire};

/// What commands end with whose host has proven nothing.
const REFUSED: [Status; 3] =
    [Status::AUTHENTICATION_REQUIRED, Status::ABORTED_SQ_DELETION, Status::COMMAND_SEQUENCE_ERROR];
/// Commands at a time: a queue whose host has proven nothing takes no more.
const AT_A_TIME: usize = 3;
/// Connections at a time.
const CONNECTIONS_MAX: usize = 24;
/// After so long it gives up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Challenges that are remembered.
const CHALLENGES_MAX: usize = 8;

/// What is tried on a connection, after Connect.
#[derive(Debug)]
pub enum Plan {
    /// These commands, by the names that they have in a report.
    Commands(VecDeque<(String, Command)>),
    /// A proof by a secret that is none, or was one.
    Prove(Prover),
    /// These messages, whatever the controller says to them.
    Say(VecDeque<Vec<u8>>),
    /// An answer to the challenge that is made of what the controller has said, here or on another
    /// connection, or of this.
    Reflect(Reflection),
    /// Nothing: it waits.
    Wait,
}

/// What the answer to a challenge is made of.
#[derive(Clone, Debug)]
pub enum Reflection {
    /// The response is the challenge, and it comes back as the host's.
    Challenge,
    /// The host's challenge is one that the controller has sent on another connection.
    Another,
    /// The response is this, which the host has given to another challenge.
    Response(Vec<u8>),
}

/// Somebody with the name of another.
#[derive(Debug)]
pub struct Liar {
    subsystem: Nqn,
    connections: Vec<Connection>,
    /// What controllers have sent.
    challenges: VecDeque<Vec<u8>>,
    last: u64,
}

#[derive(Debug)]
struct Connection {
    number: u64,
    wire: Wire,
    connect: Option<Command>,
    /// Whether Connect was answered.
    is_admitted: bool,
    is_admin: bool,
    /// The controller that it was given, of an Admin Queue.
    cntlid: Option<u16>,
    plan: Plan,
    transaction: Option<Transaction>,
    under_way: BTreeMap<u16, Sent>,
    next_cid: u16,
    /// Host and subsystem, as it names them.
    names: (Nqn, Nqn),
    begun: Instant,
    /// It ends then.
    until: Instant,
    /// It stays so much longer when there is nothing left to try.
    linger: Option<Duration>,
}

/// A command that is under way.
#[derive(Debug)]
enum Sent {
    Connect,
    Say,
    Listen,
    Lie(String),
}

/// Whose name is used, and for which queue of which controller.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The host.
    pub host: Nqn,
    /// Its identifier.
    pub id: [u8; 16],
    /// The queue.
    pub queue: u16,
    /// The controller, unless the queue is an Admin Queue.
    pub cntlid: u16,
}

impl Liar {
    /// Nobody, until there is a connection.
    #[must_use]
    pub fn new(subsystem: Nqn) -> Self {
        Self { subsystem, connections: Vec::new(), challenges: VecDeque::new(), last: 0 }
    }

    /// A connection on which this is tried. When that is over it stays for some time.
    pub fn begin(&mut self, wire: Wire, claim: &Claim, plan: Plan, now: Instant, linger: Duration) {
        if self.connections.len() >= CONNECTIONS_MAX {
            self.connections.remove(0);
        }
        let mut data = ConnectData { hostid: claim.id, ..zerocopy::FromZeros::new_zeroed() };
        data.cntlid = if claim.queue == 0 { 0xffff } else { claim.cntlid }.into();
        data.subnqn = self.subsystem.to_field();
        data.hostnqn = claim.host.to_field();
        let (qid, kato_ms) = (QueueId(claim.queue), if claim.queue == 0 { 5000 } else { 0 });
        let sqe = Connect { recfmt: 0, qid, entries: u32::from(ENTRIES), cattr: 0, kato_ms }.encode();
        self.last += 1;
        self.connections.push(Connection {
            number: self.last,
            wire,
            connect: Some(Command { sqe, data: Some(data.as_bytes().into()), read_bytes: 0 }),
            is_admitted: false,
            is_admin: claim.queue == 0,
            cntlid: None,
            plan,
            transaction: None,
            under_way: BTreeMap::new(),
            next_cid: 0,
            names: (claim.host.clone(), self.subsystem.clone()),
            begun: now,
            until: now + PATIENCE,
            linger: Some(linger),
        });
    }

    /// Whether nothing is to come any more, but for connections that wait.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.connections.iter().all(|connection| connection.is_admitted && connection.is_idle())
    }

    /// All of its connections are gone.
    pub fn clear(&mut self) {
        self.connections.clear();
    }

    /// The controllers that it has been given since then, and that end only with its connections.
    pub fn controllers(&self) -> impl Iterator<Item = (u16, Instant)> {
        let stays = |connection: &&Connection| matches!(connection.plan, Plan::Commands(_) | Plan::Wait);
        self.connections.iter().filter(stays).filter_map(|connection| Some((connection.cntlid?, connection.begun)))
    }

    /// When there is something to do, as far as is known.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Instant> {
        self.connections.iter().flat_map(|it| it.wire.due(now).into_iter().chain([it.until])).min()
    }

    /// Does what there is to do; says what was refused.
    ///
    /// # Errors
    /// Something was executed, or somebody took it for the host.
    pub fn step(&mut self, now: Instant) -> Result<Vec<&'static str>, Failure> {
        let mut counted = Vec::new();
        let challenges = &mut self.challenges;
        let mut failed = None;
        self.connections.retain_mut(|connection| match connection.step(challenges, now, &mut counted) {
            Ok(is_open) => is_open && connection.until > now,
            Err(failure) => {
                failed.get_or_insert(failure);
                false
            }
        });
        failed.map_or(Ok(counted), Err)
    }
}

/// Entries of its queues.
pub const ENTRIES: u16 = 16;

impl Connection {
    /// `false` where it is gone.
    fn step(
        &mut self,
        challenges: &mut VecDeque<Vec<u8>>,
        now: Instant,
        counted: &mut Vec<&'static str>,
    ) -> Result<bool, Failure> {
        match self.wire.poll() {
            Ok(ended) => {
                for ended in ended {
                    if !self.ended(&ended, challenges, now, counted)? {
                        return Ok(false);
                    }
                }
            }
            Err(Lost::Closed) => return Ok(false),
            Err(Lost::Wrong(what)) => return fail(format!("the liar's connection {}: {what}", self.number)),
        }
        if self.wire.is_ready()
            && let Some(connect) = self.connect.take()
        {
            self.send(Sent::Connect, connect);
        }
        while self.is_admitted && self.under_way.len() < AT_A_TIME {
            let Plan::Commands(commands) = &mut self.plan else { break };
            let Some((name, command)) = commands.pop_front() else { break };
            self.send(Sent::Lie(name), command);
        }
        if self.is_admitted
            && self.is_idle()
            && let Some(linger) = self.linger.take()
        {
            self.until = now + linger;
        }
        Ok(true)
    }

    fn is_idle(&self) -> bool {
        let is_over = match &self.plan {
            Plan::Commands(commands) => commands.is_empty(),
            Plan::Prove(_) | Plan::Say(_) | Plan::Reflect(_) | Plan::Wait => true,
        };
        is_over && self.under_way.is_empty()
    }

    fn send(&mut self, sent: Sent, mut command: Command) {
        command.sqe.cid = self.next_cid.into();
        if self.wire.submit(command).is_ok() {
            self.under_way.insert(self.next_cid, sent);
            self.next_cid = (self.next_cid + 1) % ENTRIES;
        }
    }

    /// A command has ended; `false` where there is nothing more to try.
    fn ended(
        &mut self,
        ended: &CompletedCommand,
        challenges: &mut VecDeque<Vec<u8>>,
        now: Instant,
        counted: &mut Vec<&'static str>,
    ) -> Result<bool, Failure> {
        let cid = ended.cqe.cid().0;
        let status = ended.cqe.status();
        let Some(sent) = self.under_way.remove(&cid) else {
            return fail(format!("the liar's connection {}: {cid} is not under way", self.number));
        };
        trace(|| format!("the liar's connection {}: {sent:?} has ended: {status}", self.number));
        match sent {
            Sent::Connect if status.is_success() => {
                let (cntlid, authreq) = ConnectResult::connected(ended.cqe.result());
                if authreq & ConnectResult::AUTHENTICATION_REQUIRED == 0 {
                    return fail(format!("a liar was let in: AUTHREQ is {authreq:x}"));
                }
                self.is_admitted = true;
                self.cntlid = Some(cntlid.0).filter(|_| self.is_admin);
                self.begin(now)?;
                counted.push("lies begun");
            }
            Sent::Connect => {
                counted.push("lies not admitted");
                return Ok(false);
            }
            Sent::Say if status.is_success() => match &mut self.transaction {
                Some(transaction) => {
                    let step = transaction.said();
                    return self.follow(step);
                }
                None => self.send(Sent::Listen, listen()),
            },
            Sent::Listen => return self.heard(ended, challenges, counted),
            Sent::Say => return Ok(false),
            Sent::Lie(name) => {
                let is_refused = REFUSED.iter().any(|one| status.is(*one));
                if !is_refused || ended.data.iter().any(|&byte| byte != 0) {
                    return fail(format!("a liar's {name} has ended as {status}, with {} bytes", ended.data.len()));
                }
                counted.push("lies refused");
            }
        }
        Ok(true)
    }

    fn begin(&mut self, now: Instant) -> Result<(), Failure> {
        match &mut self.plan {
            Plan::Prove(prover) => {
                let (transaction, step) = prover.begin(&self.names.0, &self.names.1, now)?;
                self.transaction = Some(transaction);
                self.follow(step)?;
            }
            Plan::Say(messages) => {
                let message = messages.pop_front().unwrap_or_default();
                self.send(Sent::Say, say(&message));
            }
            Plan::Reflect(_) => {
                let (hashes, groups) = (Hash::ALL.to_vec(), Group::ALL.to_vec());
                let negotiate = Negotiate { t_id: 1, secure_channel: SecureChannel::None, hashes, groups };
                self.send(Sent::Say, say(&negotiate.encode()));
            }
            Plan::Commands(_) | Plan::Wait => {}
        }
        Ok(())
    }

    /// The controller has said something, or nothing.
    fn heard(
        &mut self,
        ended: &CompletedCommand,
        challenges: &mut VecDeque<Vec<u8>>,
        counted: &mut Vec<&'static str>,
    ) -> Result<bool, Failure> {
        let said = FromController::decode(&ended.data);
        if ended.cqe.status().is_success() && matches!(said, Ok(FromController::Success1(_))) {
            return fail("a liar is taken for the host whose name it has");
        }
        counted.push("lies answered");
        if let Some(transaction) = &mut self.transaction {
            let step = transaction.heard(&ended.data);
            return self.follow(step);
        }
        if let Ok(FromController::Challenge(challenge)) = &said {
            if challenges.len() == CHALLENGES_MAX {
                challenges.pop_front();
            }
            if let Plan::Reflect(reflection) = &self.plan {
                let own = challenge.challenge.clone();
                let other = challenges.iter().find(|other| other.len() == own.len()).cloned();
                let (response, back) = match reflection.clone() {
                    Reflection::Challenge => (own.clone(), own.clone()),
                    Reflection::Another => (own.clone(), other.unwrap_or_else(|| own.clone())),
                    Reflection::Response(mut response) => {
                        response.resize(own.len(), 0);
                        (response, own.clone())
                    }
                };
                let (t_id, sequence) = (challenge.t_id, challenge.sequence);
                let reply = ReplyMessage { t_id, sequence, response, challenge: Some(back), value: Vec::new() };
                self.plan = Plan::Say(VecDeque::new());
                self.send(Sent::Say, say(&reply.encode()));
            }
            challenges.push_back(challenge.challenge.clone());
        }
        if let Plan::Say(messages) = &mut self.plan
            && let Some(message) = messages.pop_front()
        {
            self.send(Sent::Say, say(&message));
        }
        Ok(true)
    }

    fn follow(&mut self, step: Step) -> Result<bool, Failure> {
        match step {
            Step::Say(message) => self.send(Sent::Say, say(&message)),
            Step::Listen => self.send(Sent::Listen, listen()),
            Step::Over(Ok(())) => return fail("a liar has proven who it is"),
            Step::Over(Err(_)) => self.transaction = None,
        }
        Ok(true)
    }
}
