//! An initiator's proof of who it is: the product's, from when it is asked for to what comes of it.

use std::time::Instant;

use ebof_authentication::Secret;
use ebof_initiator::{ConnectError, ConnectErrorKind, KeySource, stepped};

use super::{InitiatorHost, Phase};
use crate::host::Event;
use crate::story::trace;

impl InitiatorHost {
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
            up.proving = Some((now, stepped::reauthenticate(&up.controller)));
        }
    }

    /// It may be proving once more who it is.
    pub(super) fn step_proof(&mut self, events: &mut Vec<Event>) {
        let Phase::Up(up) = &mut self.phase else { return };
        let Some((begun, sequence)) = &mut up.proving else { return };
        let (begun, Some(done)) = (*begun, sequence.step()) else { return };
        up.proving = None;
        trace(|| format!("{}: it has proven again who it is: {done:?}", self.options.host_nqn));
        match done {
            Ok(_) if self.is_outdated => {}
            Ok(_) => events.push(Event::Proven(begun)),
            Err(error) if is_denied(&error) && !self.is_outdated => events.push(Event::Denied(begun)),
            // The connection is gone.
            Err(_) => {}
        }
    }
}

/// Whether the target does not believe who it is.
pub(super) fn is_denied(error: &ConnectError) -> bool {
    matches!(error.kind(), ConnectErrorKind::Authentication(_) | ConnectErrorKind::AuthenticationRequired)
}
