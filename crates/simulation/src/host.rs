//! Hosts, either kind behind one interface. A [`RawHost`] is the simulation's own, and does what a
//! well-behaved host never would; an [`InitiatorHost`] is the product's. Neither decides what its
//! commands mean; whoever has it gets their results. A [`liar::Liar`] is none: it has the name of
//! one.

mod initiator;
pub mod liar;
pub(crate) mod paths;
pub mod proof;
mod raw;
pub(crate) mod secrets;

pub use initiator::InitiatorHost;
pub use raw::RawHost;

use std::time::{Duration, Instant};

use ebof_authentication::Secret;
use ebof_clock::Clock;
use ebof_nvme::Nqn;

use crate::story::Failure;
use crate::transport::wire::{Command, CompletedCommand, Wire};

/// What happens to a host.
#[derive(Debug)]
pub enum Event {
    /// A command has ended.
    Ended(u64, CompletedCommand),
    /// Nobody will say how these end; they may be done for some time yet.
    Lost(Vec<u64>),
    /// The initiator does not send the command, or not again: its namespace is another one, or
    /// away. Says why.
    Refused(u64, String),
    /// What was lost before can do nothing any more: the controller was reset or shut down, or a
    /// new one has an I/O queue.
    Settled,
    /// The same, of these.
    SettledOnly(Vec<u64>),
    /// Commands can be sent, for the first time or after everything was forgotten.
    Live,
    /// It has proven who it is, in a transaction that began then.
    Proven(Instant),
    /// It was not believed.
    Denied(Instant),
}

/// A host.
#[derive(Debug)]
pub enum Host {
    /// The simulation's own.
    Raw(Box<RawHost>),
    /// The product's.
    Initiator(Box<InitiatorHost>),
}

impl Host {
    /// Whether it is the product's.
    #[must_use]
    pub fn is_initiator(&self) -> bool {
        matches!(self, Self::Initiator(_))
    }

    /// Whether commands can be sent.
    #[must_use]
    pub fn is_live(&self) -> bool {
        match self {
            Self::Raw(host) => host.is_live(),
            Self::Initiator(host) => host.is_live(),
        }
    }

    /// Sends a command on a queue, 0 for the Admin Queue; I/O queues are taken modulo their number.
    /// `false` where it cannot.
    pub fn submit(&mut self, queue: usize, op: u64, command: Command, now: Instant) -> bool {
        match self {
            Self::Raw(host) => host.submit(queue, op, command, now),
            Self::Initiator(host) => host.submit(queue, op, command),
        }
    }

    /// Sends two commands right after each other, both or none; `false` where it cannot: an
    /// initiator has no such commands.
    pub fn submit_fused(&mut self, queue: usize, pair: [(u64, Command); 2], now: Instant) -> bool {
        match self {
            Self::Raw(host) => host.submit_fused(queue, pair, now),
            Self::Initiator(_) => false,
        }
    }

    /// Whether a command is repeated by itself when it was lost, until it has ended.
    #[must_use]
    pub fn repeats(&self, op: u64) -> bool {
        match self {
            Self::Raw(_) => false,
            Self::Initiator(host) => host.repeats(op),
        }
    }

    /// Leaves the controller: shuts it down, or resets it, or one right after the other.
    pub fn leave(&mut self, shutdown: bool, reset: bool, now: Instant) {
        match self {
            Self::Raw(host) => host.leave(shutdown, reset, now),
            Self::Initiator(host) => host.leave(shutdown, reset, now),
        }
    }

    /// From now on it proves who it is by this secret.
    pub fn set_secret(&mut self, secret: Secret, clock: &Clock, now: Instant) {
        match self {
            Self::Raw(host) => host.set_secret(secret, clock),
            Self::Initiator(host) => host.set_secret(secret, now),
        }
    }

    /// Has it prove once more who it is, while it is connected.
    ///
    /// # Errors
    /// Never, on a simulated clock.
    pub fn prove_again(&mut self, now: Instant) -> Result<(), Failure> {
        match self {
            Self::Raw(host) => host.prove_again(now),
            Self::Initiator(host) => {
                host.prove_again(now);
                Ok(())
            }
        }
    }

    /// The number of its controller, where commands can be sent.
    #[must_use]
    pub fn live_cntlid(&self) -> Option<u16> {
        match self {
            Self::Raw(host) => host.cntlid().filter(|_| host.is_live()),
            Self::Initiator(host) => host.cntlid().filter(|_| host.is_live()),
        }
    }

    /// It is gone from one moment to the next, and comes back after a time.
    pub fn drop_all(&mut self, now: Instant, pause: Duration) -> Option<Event> {
        match self {
            Self::Raw(host) => host.drop_all(now, pause),
            Self::Initiator(host) => host.drop_all(now, pause),
        }
    }

    /// Breaks one of its connections after so many bytes.
    pub fn break_after(&self, queue: usize, bytes: u64) {
        match self {
            Self::Raw(host) => host.break_after(queue, bytes),
            Self::Initiator(host) => host.reach().break_after(queue, bytes),
        }
    }

    /// When it has something to do, as far as it knows.
    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        match self {
            Self::Raw(host) => host.due(now),
            Self::Initiator(host) => host.due(now),
        }
    }

    /// Does what there is to do. `connect` makes a connection for a queue of a [`RawHost`] with
    /// this identifier and so many entries, where the target takes one.
    ///
    /// # Errors
    /// Something that a host must not see.
    pub fn step(
        &mut self,
        now: Instant,
        connect: &mut dyn FnMut(u16, usize) -> Option<Wire>,
    ) -> Result<Vec<Event>, Failure> {
        match self {
            Self::Raw(host) => host.step(now, connect),
            Self::Initiator(host) => host.step(now),
        }
    }
}

/// The name of a host or a subsystem.
pub(crate) fn nqn(text: &str) -> Result<Nqn, Failure> {
    Nqn::parse(text).map_err(|error| Failure(format!("{text}: {error}")))
}
