//! An initiator's proof of who it is: the product's, from when it is asked for to what comes of it.

use std::time::Instant;

use ebof_initiator::stepped::{self, Sequence};
use ebof_initiator::{ConnectError, ConnectErrorKind, Controller, Reauthenticated};
use ebof_nvme::Nqn;

use crate::host::Event;
use crate::story::trace;

/// A proof under way while the host is connected.
#[derive(Debug)]
pub(super) struct Proving {
    begun: Instant,
    sequence: Sequence<Result<Reauthenticated, ConnectError>>,
}

impl Proving {
    pub(super) fn begin(controller: &Controller, now: Instant) -> Self {
        Self { begun: now, sequence: stepped::reauthenticate(controller) }
    }

    /// When it goes on.
    pub(super) fn due(&self) -> Option<Instant> {
        self.sequence.due()
    }

    /// Goes on; tells what came of it, once.
    pub(super) fn step(&mut self, host: &Nqn) -> Option<Proven> {
        let done = self.sequence.step()?;
        trace(|| format!("{host}: it has proven again who it is: {done:?}"));
        Some(match done {
            Ok(_) => Proven::Believed(self.begun),
            Err(error) if is_denied(&error) => Proven::Denied(self.begun),
            Err(_) => Proven::Lost,
        })
    }
}

/// What came of a proof that began then.
pub(super) enum Proven {
    Believed(Instant),
    Denied(Instant),
    /// The connection is gone.
    Lost,
}

impl Proven {
    /// What the host's user is told of it.
    pub(super) fn event(self) -> Option<Event> {
        match self {
            Self::Believed(begun) => Some(Event::Proven(begun)),
            Self::Denied(begun) => Some(Event::Denied(begun)),
            Self::Lost => None,
        }
    }
}

/// Whether the target does not believe who it is.
pub(super) fn is_denied(error: &ConnectError) -> bool {
    matches!(error.kind(), ConnectErrorKind::Authentication(_) | ConnectErrorKind::AuthenticationRequired)
}
