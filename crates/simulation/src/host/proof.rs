//! The proof of who a host is, on one queue, as the simulation's own hosts give it: messages and
//! the commands that take them there.

use std::time::Instant;

use ebof_authentication::host::{Credentials, Next, Offer, Refusal};
use ebof_authentication::message::SecureChannel;
use ebof_authentication::response::Names;
use ebof_authentication::{Entropy, HostEnd, Secret, SequenceNumbers};
use ebof_clock::Clock;
use ebof_nvme::Nqn;
use ebof_nvme::opcode::fabrics;
use ebof_nvme::security::Security;

use crate::story::Failure;
use crate::transport::wire::Command;

/// Room for what the controller says.
const ROOM: u32 = 4096;

/// By what a host proves who it is.
#[derive(Clone, Debug)]
pub struct Prover {
    /// Its secret.
    pub secret: Secret,
    /// Where random bytes come from.
    pub clock: Clock,
}

/// A transaction under way.
#[derive(Debug)]
pub struct Transaction {
    end: HostEnd,
    /// When it began.
    pub begun: Instant,
    /// It is known, and the last message is on its way.
    outcome: Option<Result<(), Refusal>>,
}

/// What follows.
#[derive(Debug)]
pub enum Step {
    /// This is to be sent.
    Say(Vec<u8>),
    /// The controller is to be asked for its message.
    Listen,
    /// It is over.
    Over(Result<(), Refusal>),
}

impl Prover {
    /// Begins; gives the first message.
    ///
    /// # Errors
    /// Never, on a simulated clock.
    pub fn begin(&self, host: &Nqn, subsystem: &Nqn, now: Instant) -> Result<(Transaction, Step), Failure> {
        let (t_id, entropy) = self.entropy()?;
        let names = Names { host: host.clone(), subsystem: subsystem.clone() };
        let credentials = Credentials { names, host: self.secret.clone(), controller: None };
        let end = HostEnd::new(credentials, Offer::everything(SecureChannel::None));
        let mut transaction = Transaction { end, begun: now, outcome: None };
        let next = transaction.end.begin(t_id, entropy);
        let step = transaction.follow(next);
        Ok((transaction, step))
    }

    fn entropy(&self) -> Result<(u16, Entropy), Failure> {
        let mut random = [0; 6];
        let mut filled = self.clock.fill(&mut random);
        let [a, b, c, d, e, f] = random;
        let sequence = SequenceNumbers::beginning_with(u32::from_le_bytes([a, b, c, d])).take();
        let entropy = Entropy::new(sequence, |bytes| filled = filled.and_then(|()| self.clock.fill(bytes)));
        filled.map_err(|error| Failure(error.to_string()))?;
        Ok((u16::from_le_bytes([e, f]), entropy))
    }
}

impl Transaction {
    /// The message was taken.
    #[must_use]
    pub fn said(&mut self) -> Step {
        self.outcome.take().map_or(Step::Listen, Step::Over)
    }

    /// This is what the controller says.
    #[must_use]
    pub fn heard(&mut self, message: &[u8]) -> Step {
        let next = self.end.receive(message);
        self.follow(next)
    }

    fn follow(&mut self, mut next: Next) -> Step {
        loop {
            next = match next {
                Next::Compute(work) => self.end.computed(work.run()),
                Next::Exchange(message) => return Step::Say(message),
                Next::Over { message: None, result } => return Step::Over(result.map(|_| ())),
                Next::Over { message: Some(message), result } => {
                    self.outcome = Some(result.map(|_| ()));
                    return Step::Say(message);
                }
            }
        }
    }
}

/// Authentication Send of a message.
pub(crate) fn say(message: &[u8]) -> Command {
    let bytes = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let sqe = Security::authentication(bytes).encode_authentication(fabrics::AUTHENTICATION_SEND);
    Command { sqe, data: Some(message.into()), read_bytes: 0 }
}

/// Authentication Receive.
pub(crate) fn listen() -> Command {
    let sqe = Security::authentication(ROOM).encode_authentication(fabrics::AUTHENTICATION_RECEIVE);
    Command { sqe, data: None, read_bytes: ROOM }
}
