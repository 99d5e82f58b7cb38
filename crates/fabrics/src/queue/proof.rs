//! The part of a queue in its host's proof of who it is: the messages, of which the registry has to
//! know only what they come to.

use ebof_authentication::{Computed, Entropy};

use super::Queue;
use crate::connect::authentication::Authenticator;
use crate::model::secrets::HostSecrets;
use crate::task::executing::Executing;
use crate::task::outcome::{Fault, Outcome, byte};
use crate::task::step::Step;

impl Queue {
    /// Goes on with [`Authenticate::Message`](crate::Authenticate::Message).
    pub fn authenticate(&mut self, executing: Executing, message: &[u8], entropy: &Entropy) -> Step {
        let now_ms = self.live.as_ref().map_or(0, |live| live.last_command_ms);
        self.prove(executing, |authenticator| authenticator.receive(message, entropy, now_ms))
    }

    /// Goes on with [`Authenticate::Compute`](crate::Authenticate::Compute).
    pub fn computed(&mut self, executing: Executing, computed: Computed) -> Step {
        self.prove(executing, |authenticator| authenticator.computed(computed))
    }

    fn prove(&mut self, executing: Executing, decide: impl FnOnce(&mut Authenticator) -> Outcome) -> Step {
        // Nobody asked the host for a proof.
        let outcome = self.authenticator_mut().map_or(Err(Fault::field(byte::NSID)), decide);
        self.conclude(executing, outcome)
    }

    /// Whether the host still has to prove who it is: not if it has, and comes again over TLS.
    #[must_use]
    pub fn is_unproven(&self) -> bool {
        let generated = |live: &super::Live| live.authenticator.as_ref().is_some_and(|it| it.has_generated());
        !self.is_open() && self.live().is_some_and(|live| !generated(live))
    }

    /// The end of authentication, if the host has to prove who it is.
    pub(crate) fn authenticator_mut(&mut self) -> Option<&mut Authenticator> {
        self.live.as_mut()?.authenticator.as_deref_mut()
    }

    /// The host has other secrets: they count from its next proof on.
    pub(super) fn replace_secrets(&mut self, secrets: &HostSecrets) {
        if let Some(authenticator) = self.authenticator_mut() {
            authenticator.replace(secrets);
        }
    }
}
