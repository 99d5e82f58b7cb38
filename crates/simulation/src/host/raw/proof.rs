//! A host's part in its proof of who it is, on its queues: before they are used, and again on a
//! live Admin Queue.

use std::time::{Duration, Instant};

use ebof_authentication::Secret;
use ebof_clock::Clock;
use ebof_nvme::connect::{ConnectResult, Property};
use ebof_nvme::property::{Cc, offset};

use super::{Phase, Purpose, RawHost, plain};
use crate::host::Event;
use crate::host::proof::{Prover, Step, listen, say};
use crate::story::{Failure, fail};
use crate::transport::wire::CompletedCommand;

/// Messages that are kept.
const SAID_MAX: usize = 4;
/// After so long it tries again, where it was not believed.
const AGAIN: Duration = Duration::from_millis(200);

impl RawHost {
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

    /// Connect has succeeded; the controller may want to know who it is.
    pub(super) fn admitted(&mut self, at: usize, result: u64, now: Instant) -> Result<(), Failure> {
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
            self.send(0, Purpose::Enable, plain(enable), now);
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
    pub(super) fn proof_ended(
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
                self.send(at, Purpose::Say, say(&message), now);
                if self.said.len() == SAID_MAX {
                    self.said.pop_front();
                }
                self.said.push_back(message);
            }
            Step::Listen => _ = self.send(at, Purpose::Listen, listen(), now),
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
}
