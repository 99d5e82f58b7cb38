//! The host's end of authentication, for one controller.
//!
//! ```text
//!          begin            Challenge                  Success1
//!   Idle ─────────▶ Offered ─────────▶ Replied ─────────────────────▶ Idle
//!                      └── AUTH_Failure1, or what the host does not accept ──▶ Idle
//! ```
//!
//! The host does not trust the controller: it takes no hash and no group that it did not offer, no
//! challenge twice, and no silence where it asked for a proof.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use thiserror::Error;

use crate::entropy::Entropy;
use crate::group::{Computed, Group, Work};
use crate::hash::Hash;
use crate::key::KeyMaterial;
use crate::message::{self, Explanation, FromController, Negotiate, ReplyMessage, SecureChannel, Success1};
use crate::psk::Psk;
use crate::response::{Challenge, Names, Terms};
use crate::secret::Secret;

/// Challenges that are remembered: one that comes again was recorded.
const CHALLENGES_MAX: usize = 64;

/// What the host has, and what it asks for.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Host and subsystem.
    pub names: Names,
    /// The host's secret.
    pub host: Secret,
    /// The subsystem's: with it the controller has to prove itself, too.
    pub controller: Option<Secret>,
}

/// What is offered, in the order of preference.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Hashes; not SHA-512 with secure channel concatenation.
    pub hashes: Vec<Hash>,
    /// Groups; not the null group with secure channel concatenation.
    pub groups: Vec<Group>,
    /// Secure channel concatenation.
    pub secure_channel: SecureChannel,
}

impl Offer {
    /// All that goes with `secure_channel`, ascending, as other hosts do.
    #[must_use]
    pub fn everything(secure_channel: SecureChannel) -> Self {
        let seals = secure_channel != SecureChannel::None;
        Self {
            hashes: Hash::ALL.into_iter().filter(|hash| !(seals && *hash == Hash::Sha512)).collect(),
            groups: Group::ALL.into_iter().filter(|group| !(seals && *group == Group::Null)).collect(),
            secure_channel,
        }
    }
}

/// What both ends have proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The hash.
    pub hash: Hash,
    /// The group.
    pub group: Group,
    /// Whether the controller has proven itself, too.
    pub is_mutual: bool,
    /// The PSK for TLS, if the host asked for one.
    pub psk: Option<Psk>,
}

/// Why a host is not authenticated, or does not accept the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The controller gave up. Which secrets it has, it does not say.
    #[error("the controller refuses the host: {explanation}")]
    ByController {
        /// Its explanation.
        explanation: Explanation,
    },
    /// The controller gave up, with an explanation that the specification does not have.
    #[error("the controller refuses the host, without an explanation that is known")]
    Unexplained,
    /// The controller's response is wrong: it does not have the subsystem's secret.
    #[error("the controller's response is wrong: it has another secret for the subsystem than the host")]
    WrongResponse,
    /// The controller was asked for a proof and gave none.
    #[error("the controller gives no proof of who it is, although the host asks for one")]
    NoResponse,
    /// A hash that was not offered.
    #[error("the controller chose {hash}, which the host did not offer")]
    HashNotOffered {
        /// The hash.
        hash: Hash,
    },
    /// A group that was not offered.
    #[error("the controller chose the group {group}, which the host did not offer")]
    GroupNotOffered {
        /// The group.
        group: Group,
    },
    /// A challenge of an earlier transaction.
    #[error("the controller's challenge was used before: somebody may be repeating a recorded one")]
    RepeatedChallenge,
    /// A Diffie-Hellman value that gives the session away.
    #[error("the controller's Diffie-Hellman value is none: it has to be between 2 and p - 2")]
    Value,
    /// A message that is not legal, or not the expected one.
    #[error("the controller sent {explanation}")]
    Message {
        /// What the host answered.
        explanation: Explanation,
    },
}

/// What follows.
#[derive(Debug)]
#[must_use]
pub enum Next {
    /// Send this, then receive: [`HostEnd::receive`].
    Exchange(Vec<u8>),
    /// Compute, then [`HostEnd::computed`].
    Compute(Work),
    /// Send the message, if there is one. The transaction is over; if it is refused, the
    /// controller must not be used.
    Over {
        /// The last message.
        message: Option<Vec<u8>>,
        /// What the transaction came to.
        result: Result<Proof, Refusal>,
    },
}

#[derive(Debug)]
enum State {
    Idle,
    Offered {
        t_id: u16,
        entropy: Entropy,
    },
    /// The Diffie-Hellman values are being computed.
    Computing {
        terms: Terms,
        c1: Challenge,
        entropy: Entropy,
    },
    Replied {
        terms: Terms,
        c1: KeyMaterial,
        c2: Option<Challenge>,
        session_key: Option<KeyMaterial>,
    },
}

/// The host's end on one queue, for all of its transactions.
#[derive(Debug)]
pub struct HostEnd {
    credentials: Credentials,
    offer: Offer,
    state: State,
    /// Digests of challenges, the last one at the end.
    seen: VecDeque<KeyMaterial>,
}

impl HostEnd {
    /// For a queue that has to be authenticated.
    #[must_use]
    pub fn new(credentials: Credentials, offer: Offer) -> Self {
        Self { credentials, offer, state: State::Idle, seen: VecDeque::new() }
    }

    /// Uses other secrets from the next transaction on.
    pub fn replace(&mut self, credentials: Credentials) {
        self.credentials = credentials;
    }

    /// Begins a transaction; one that was under way is forgotten. `t_id` has to differ from that of
    /// the one before.
    pub fn begin(&mut self, t_id: u16, entropy: Entropy) -> Next {
        let Offer { hashes, groups, secure_channel } = self.offer.clone();
        self.state = State::Offered { t_id, entropy };
        Next::Exchange(Negotiate { t_id, secure_channel, hashes, groups }.encode())
    }

    /// Takes what an Authentication Receive returned.
    pub fn receive(&mut self, message: &[u8]) -> Next {
        let state = core::mem::replace(&mut self.state, State::Idle);
        let t_id = state.t_id();
        let fail = |explanation| Next::refused(t_id, explanation, Refusal::Message { explanation });
        match (FromController::decode(message), state) {
            (Ok(FromController::Failure1 { explanation, .. }), _) => {
                let refusal =
                    explanation.map_or(Refusal::Unexplained, |explanation| Refusal::ByController { explanation });
                Next::Over { message: None, result: Err(refusal) }
            }
            (Ok(FromController::Challenge(challenge)), State::Offered { t_id, entropy }) if challenge.t_id == t_id => {
                self.challenged(challenge, entropy)
            }
            (Ok(FromController::Success1(success)), State::Replied { terms, c1, c2, session_key })
                if success.t_id == terms.t_id && success.hash.bytes() == terms.hash.bytes() =>
            {
                self.accepted(&terms, &c1, c2.as_ref(), session_key.as_ref(), success)
            }
            (Ok(FromController::Challenge(_)), State::Offered { .. })
            | (Ok(FromController::Success1(_)), State::Replied { .. }) => fail(Explanation::IncorrectPayload),
            (Ok(_), _) => fail(Explanation::IncorrectProtocolMessage),
            (Err(explanation), _) => fail(explanation),
        }
    }

    /// Takes what [`Next::Compute`] asked for.
    pub fn computed(&mut self, computed: Computed) -> Next {
        let state = core::mem::replace(&mut self.state, State::Idle);
        let t_id = state.t_id();
        match (state, computed.0) {
            (State::Computing { terms, c1, entropy }, Ok(powers)) => {
                let session_key = powers.shared.map(|shared| terms.session_key(&shared));
                self.reply(terms, c1, &entropy, session_key, powers.public)
            }
            (_, Err(_)) => Next::refused(t_id, Explanation::IncorrectPayload, Refusal::Value),
            (_, Ok(_)) => {
                let explanation = Explanation::IncorrectProtocolMessage;
                Next::refused(t_id, explanation, Refusal::Message { explanation })
            }
        }
    }

    fn challenged(&mut self, challenge: message::Challenge, entropy: Entropy) -> Next {
        let message::Challenge { t_id, hash, group, sequence, challenge, value } = challenge;
        if !self.offer.hashes.contains(&hash) {
            return Next::refused(t_id, Explanation::HashNotUsable, Refusal::HashNotOffered { hash });
        }
        // Deviation: Linux' target, 6.12 to 7.3, chooses the group it is configured with, offered
        // or not.
        if !self.offer.groups.contains(&group) {
            return Next::refused(t_id, Explanation::GroupNotUsable, Refusal::GroupNotOffered { group });
        }
        if sequence == 0 {
            let explanation = Explanation::IncorrectPayload;
            return Next::refused(t_id, explanation, Refusal::Message { explanation });
        }
        let digest = Hash::Sha256.digest(&challenge);
        if self.seen.contains(&digest) {
            return Next::refused(t_id, Explanation::AuthenticationFailed, Refusal::RepeatedChallenge);
        }
        if self.seen.len() == CHALLENGES_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back(digest);
        let terms = Terms { t_id, hash, group, secure_channel: self.offer.secure_channel };
        let c1 = Challenge { value: KeyMaterial::new(challenge), sequence };
        if group == Group::Null {
            return self.reply(terms, c1, &entropy, None, Vec::new());
        }
        let exponent = entropy.exponent(group);
        self.state = State::Computing { terms, c1, entropy };
        Next::Compute(Work::both(group, exponent, value))
    }

    fn reply(
        &mut self,
        terms: Terms,
        c1: Challenge,
        entropy: &Entropy,
        session_key: Option<KeyMaterial>,
        value: Vec<u8>,
    ) -> Next {
        let Credentials { names, host, controller } = &self.credentials;
        let response = terms.of_host(names, host, &c1, session_key.as_ref()).bytes().to_vec();
        let seals = terms.secure_channel != SecureChannel::None;
        // 0 says that C2 is for the PSK of secure channel concatenation only. The PSK is no proof
        // of the controller: somebody in the middle would have one with each end.
        let sequence = if controller.is_some() { entropy.sequence.get() } else { 0 };
        let c2 = (seals || controller.is_some())
            .then(|| Challenge { value: KeyMaterial::copy_of(&entropy.challenge[..terms.hash.bytes()]), sequence });
        let challenge = c2.as_ref().map(|c2| c2.value.bytes().to_vec());
        let reply = ReplyMessage { t_id: terms.t_id, sequence, response, challenge, value }.encode();
        self.state = State::Replied { terms, c1: c1.value, c2, session_key };
        Next::Exchange(reply)
    }

    fn accepted(
        &mut self,
        terms: &Terms,
        c1: &KeyMaterial,
        c2: Option<&Challenge>,
        session_key: Option<&KeyMaterial>,
        success: Success1,
    ) -> Next {
        let Credentials { names, controller, .. } = &self.credentials;
        let Success1 { t_id, response, .. } = success;
        let seals = terms.secure_channel != SecureChannel::None;
        let is_mutual = match (c2, controller) {
            (Some(c2), Some(secret)) => {
                let Some(response) = response else {
                    return Next::refused(t_id, Explanation::AuthenticationFailed, Refusal::NoResponse);
                };
                let expected = terms.of_controller(names, secret, c2, session_key);
                if KeyMaterial::new(response) != expected {
                    return Next::refused(t_id, Explanation::AuthenticationFailed, Refusal::WrongResponse);
                }
                true
            }
            _ => false,
        };
        let psk = match (session_key, c2) {
            (Some(key), Some(c2)) if seals => Psk::generated(terms.generated_psk(key, c1, &c2.value), terms.hash),
            _ => None,
        };
        let proof = Proof { hash: terms.hash, group: terms.group, is_mutual, psk };
        Next::Over { message: is_mutual.then(|| message::success2(t_id)), result: Ok(proof) }
    }
}

impl Next {
    fn refused(t_id: u16, explanation: Explanation, refusal: Refusal) -> Self {
        Self::Over { message: Some(message::failure2(t_id, explanation)), result: Err(refusal) }
    }
}

impl State {
    fn t_id(&self) -> u16 {
        match self {
            Self::Idle => 0,
            Self::Offered { t_id, .. } => *t_id,
            Self::Computing { terms, .. } | Self::Replied { terms, .. } => terms.t_id,
        }
    }
}
