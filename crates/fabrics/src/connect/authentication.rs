//! Authentication Send and Authentication Receive (NVMe over Fabrics, Fabrics Command Set): which
//! hosts have to prove who they are, and the commands by which they do.
//!
//! What a message means is decided in `ebof_authentication`, what a proof opens in `registry`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use ebof_authentication::controller::{self, Credentials, Next, Policy, TransactionOutcome};
use ebof_authentication::{Computed, Entropy};
use ebof_nvme::connect::ConnectResult;
use ebof_nvme::opcode::{Direction, FABRICS, fabrics};
use ebof_nvme::security::Security;
use ebof_nvme::{Sqe, Status};

use crate::model::secrets::HostSecrets;
use crate::task::executing::Executing;
use crate::task::outcome::{self, Decision, Fault, SglRules, byte};
use crate::task::{Authenticate, Task};

/// The most data of either command, bytes. Hosts of today allocate as much for every message.
pub(crate) const DATA_BYTES_MAX: u32 = 4096;
const _: () = assert!(ebof_authentication::message::BYTES_MAX <= DATA_BYTES_MAX as usize);

/// How long a transaction of a live queue may take, milliseconds; then another one may begin. As
/// Linux and SPDK for hosts without a keep-alive time-out. The first one has less time (the
/// gate's).
const TRANSACTION_MS: u64 = 120_000;

/// What is demanded of a host before the gate of its queue opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstProof {
    /// Nothing: TLS was the proof. Its host may authenticate later, to replace the PSK.
    Given,
    /// Authentication.
    Due,
    /// Authentication that generates a PSK. The gate of this queue does not open at all: the host
    /// comes again with the PSK.
    DueForSecureChannel,
}

/// A queue's end of authentication.
#[derive(Debug)]
pub(crate) struct Authenticator {
    end: controller::ControllerEnd,
    first: FirstProof,
    /// A PSK for TLS was generated: the host comes again with it.
    has_generated: bool,
    /// What the host's last message came to, until the registry has heard of it.
    outcome: Option<TransactionOutcome>,
    /// When the transaction began that is under way, milliseconds.
    began_ms: u64,
}

impl Authenticator {
    /// For a host that has to prove that it has one of these secrets.
    pub(crate) fn new(credentials: Credentials, policy: Policy, first: FirstProof) -> Self {
        Self {
            end: controller::ControllerEnd::new(credentials, policy),
            first,
            has_generated: false,
            outcome: None,
            began_ms: 0,
        }
    }

    /// A PSK for TLS was generated.
    pub(crate) fn note_generated(&mut self) {
        self.has_generated = true;
    }

    /// Whether a PSK for TLS was generated.
    pub(crate) fn has_generated(&self) -> bool {
        self.has_generated
    }

    /// Whether the gate of its queue is shut until the host has authenticated.
    pub(crate) fn is_due(&self) -> bool {
        self.first != FirstProof::Given
    }

    /// What Connect's response demands (AUTHREQ).
    pub(crate) fn authreq(&self) -> u16 {
        const ATR: u16 = ConnectResult::AUTHENTICATION_REQUIRED;
        match self.first {
            FirstProof::Given => 0,
            FirstProof::Due => ATR,
            FirstProof::DueForSecureChannel => ATR | ConnectResult::SECURE_CHANNEL_REQUIRED,
        }
    }

    /// Other secrets count from the next transaction on.
    pub(crate) fn replace(&mut self, secrets: &HostSecrets) {
        let HostSecrets { host, controller } = secrets.clone();
        self.end.replace(host, controller);
    }

    /// Takes a message.
    pub(crate) fn receive(&mut self, message: &[u8], entropy: &Entropy, now_ms: u64) -> outcome::Outcome {
        if self.end.is_under_way() && self.began_ms.saturating_add(TRANSACTION_MS) <= now_ms {
            self.end.forget();
        }
        if !self.end.is_under_way() {
            self.began_ms = now_ms;
        }
        let next = self.end.receive(message, entropy);
        self.go_on(next)
    }

    /// Takes what was computed.
    pub(crate) fn computed(&mut self, computed: Computed) -> outcome::Outcome {
        let next = self.end.computed(computed);
        self.go_on(next)
    }

    fn go_on(&mut self, next: Next) -> outcome::Outcome {
        match next {
            Next::Complete(None) => Ok(Decision::Done(0)),
            Next::Complete(outcome) => {
                self.outcome = outcome;
                Ok(Decision::Go(Task::Shared, 0))
            }
            Next::Compute(work) => Ok(Decision::Go(Task::Authenticate(Box::new(Authenticate::Compute(Some(work)))), 0)),
        }
    }

    /// What the registry has to know of a command that it executes, and the data for the host.
    ///
    /// # Errors
    /// There is nothing to receive.
    pub(crate) fn conclude(&mut self, executing: &Executing) -> Result<(Vec<u8>, Option<TransactionOutcome>), Fault> {
        if executing.fctype() == fabrics::AUTHENTICATION_SEND {
            return Ok((Vec::new(), self.outcome.take()));
        }
        let room = Security::decode(&executing.sqe()).bytes.min(DATA_BYTES_MAX) as usize;
        let message = self.end.transmit(room);
        let (mut message, outcome) = message.map_err(|nothing| match nothing {
            controller::Nothing::ToReceive => Fault::new(Status::COMMAND_SEQUENCE_ERROR),
            controller::Nothing::ThatFits => Fault::field(byte::CDW11),
        })?;
        // As Linux' target does: nothing of the host's buffer stays as it was.
        message.resize(room, 0);
        Ok((message, outcome))
    }
}

/// Whether it is one of the two commands.
pub(crate) fn is_one(opcode: u8, fctype: u8) -> bool {
    opcode == FABRICS && matches!(fctype, fabrics::AUTHENTICATION_SEND | fabrics::AUTHENTICATION_RECEIVE)
}

/// Takes one of the two commands.
pub(crate) fn submit(sqe: &Sqe, rules: SglRules) -> outcome::Outcome {
    let Security { protocol, specific, bytes, .. } = Security::decode(sqe);
    if specific != Security::AUTHENTICATION_SPECIFIC {
        return Err(Fault::field(byte::CDW10 + 1));
    }
    if protocol != Security::AUTHENTICATION {
        return Err(Fault::field(byte::CDW10 + 3));
    }
    if bytes == 0 {
        return Err(Fault::field(byte::CDW11));
    }
    if sqe.fctype() == Some(fabrics::AUTHENTICATION_RECEIVE) {
        rules.exactly(sqe, Direction::ControllerToHost, bytes.into())?;
        return Ok(Decision::Go(Task::Shared, bytes));
    }
    if bytes > DATA_BYTES_MAX {
        return Err(Fault::field(byte::CDW11));
    }
    let length = rules.exactly(sqe, Direction::HostToController, bytes.into())?;
    Ok(Decision::Go(Task::Receive, length))
}
