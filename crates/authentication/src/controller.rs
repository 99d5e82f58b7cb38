//! The controller's end of authentication, on one queue.
//!
//! ```text
//!            Negotiate                Reply                        CVALID   Success2
//!   Idle ──────────────▶ Challenged ─────────▶ Accepted ─ Success1 ───────▶ Proving ────▶ Idle
//!    ▲                                            └────── Success1 ─ no CVALID ─────────────┘
//!    │   a message that is wrong, at any of them: Refused ─ Failure1 ─▶ the controller ends
//! ```
//!
//! A wrong message is not an error of the command that brings it: the next Authentication Receive
//! returns AUTH_Failure1 (Base, In-band Authentication). What a queue may do meanwhile, and how
//! long a transaction may take, is decided elsewhere.

use alloc::vec::Vec;

use crate::entropy::Entropy;
use crate::group::{Computed, Group, Work};
use crate::hash::Hash;
use crate::key::KeyMaterial;
use crate::message::{self, Explanation, FromHost, Negotiate, ReplyMessage, SecureChannel, Success1};
use crate::psk::Psk;
use crate::response::{Challenge, Names, Terms};
use crate::secret::Secret;

/// What a controller demands, and how it proves itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Hashes that are acceptable, with the preferred one first.
    pub hashes: Vec<Hash>,
    /// Groups that are acceptable, likewise.
    pub groups: Vec<Group>,
    /// What is demanded of secure channel concatenation.
    pub secure_channel: Demand,
}

impl Default for Policy {
    /// All hashes, the strongest first, and all groups: first those that cost little for what they
    /// give. The null group, with which a secret that becomes known does not keep earlier sessions
    /// apart, comes last. No secure channel concatenation.
    fn default() -> Self {
        Self {
            hashes: alloc::vec![Hash::Sha512, Hash::Sha384, Hash::Sha256],
            groups: alloc::vec![
                Group::Ffdhe3072,
                Group::Ffdhe4096,
                Group::Ffdhe2048,
                Group::Ffdhe6144,
                Group::Ffdhe8192,
                Group::Null,
            ],
            secure_channel: Demand::Refused,
        }
    }
}

/// What a controller demands of secure channel concatenation (SC_C).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// It is refused: there is no TLS that could follow.
    Refused,
    /// As the host likes; on a connection with TLS, [`SecureChannel::Replace`] in place of
    /// [`SecureChannel::New`].
    Allowed {
        /// Whether the connection has TLS.
        over_tls: bool,
    },
    /// The host has to ask for it: ASCR in Connect's response.
    Required,
}

/// Who is to be proven, and by what. Several secrets of a host are good at a time while one
/// replaces another.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Host and subsystem.
    pub names: Names,
    /// The host's secrets.
    pub host: Vec<Secret>,
    /// The subsystem's, for hosts that want a proof, too.
    pub controller: Option<Secret>,
}

/// What a transaction came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionOutcome {
    /// The host has proven who it is.
    Authenticated(Proof),
    /// It has not: the controller ends, once AUTH_Failure1 is sent.
    Refused(Explanation),
    /// The host gave up (AUTH_Failure2), or does not accept the controller.
    GaveUp(Option<Explanation>),
}

/// How a host has proven who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// The hash.
    pub hash: Hash,
    /// The group.
    pub group: Group,
    /// Whether the controller has proven itself, too.
    pub is_mutual: bool,
    /// Which of the host's secrets it was, by its place in [`Credentials::host`].
    pub secret: usize,
    /// The PSK for TLS, if the host asked for one.
    pub psk: Option<Psk>,
}

/// Why there is no message for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// It is the host's turn.
    ToReceive,
    /// The host has too little room for it.
    ThatFits,
}

/// What follows a message.
#[derive(Debug)]
#[must_use]
pub enum Next {
    /// The command completes.
    Complete(Option<TransactionOutcome>),
    /// The command completes once this is computed: [`ControllerEnd::computed`].
    Compute(Work),
}

#[derive(Debug)]
enum State {
    Idle,
    /// The challenge's Diffie-Hellman value is being computed.
    Preparing {
        terms: Terms,
        challenge: Challenge,
    },
    /// The challenge waits for an Authentication Receive, or was sent.
    Challenged {
        terms: Terms,
        challenge: Challenge,
        exchange: Option<Exchange>,
        message: Option<Vec<u8>>,
    },
    /// The shared value is being computed.
    Checking {
        terms: Terms,
        challenge: Challenge,
        reply: ReplyMessage,
    },
    /// The response is right: Success1 waits for an Authentication Receive.
    Accepted {
        t_id: u16,
        message: Vec<u8>,
        proof: Proof,
    },
    /// Success1 with a response is sent: Success2 has to follow.
    Proving {
        t_id: u16,
        proof: Proof,
    },
    /// AUTH_Failure1 waits for an Authentication Receive.
    Refused {
        t_id: u16,
        explanation: Explanation,
    },
    Over,
}

/// The controller's half of a Diffie-Hellman exchange.
#[derive(Debug)]
struct Exchange {
    exponent: KeyMaterial,
    public: Vec<u8>,
}

/// The controller's end on one queue, for all of its transactions.
#[derive(Debug)]
pub struct ControllerEnd {
    credentials: Credentials,
    policy: Policy,
    state: State,
}

impl ControllerEnd {
    /// For a queue whose host has not proven anything yet.
    #[must_use]
    pub fn new(credentials: Credentials, policy: Policy) -> Self {
        Self { credentials, policy, state: State::Idle }
    }

    /// Uses other secrets from the next check of a response on: the host's, and the subsystem's.
    pub fn replace(&mut self, host: Vec<Secret>, controller: Option<Secret>) {
        let names = self.credentials.names.clone();
        self.credentials = Credentials { names, host, controller };
    }

    /// Whether a transaction has begun and is not over.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        !matches!(self.state, State::Idle | State::Over)
    }

    /// The transaction has taken too long: the next message has to begin one. Without effect while
    /// something is being computed, because the host does not decide how long that takes, and once
    /// it has failed.
    pub fn forget(&mut self) {
        match self.state {
            State::Challenged { .. } | State::Accepted { .. } | State::Proving { .. } => self.state = State::Idle,
            State::Idle | State::Preparing { .. } | State::Checking { .. } | State::Refused { .. } | State::Over => {}
        }
    }

    /// Takes the data of an Authentication Send.
    pub fn receive(&mut self, message: &[u8], entropy: &Entropy) -> Next {
        let state = core::mem::replace(&mut self.state, State::Over);
        match (FromHost::decode(message), state) {
            // A failure is final: no other transaction on this queue.
            (_, State::Over) => Next::Complete(None),
            (_, state @ State::Refused { .. }) => {
                self.state = state;
                Next::Complete(None)
            }
            (Ok(FromHost::Failure2 { explanation, .. }), _) => {
                Next::Complete(Some(TransactionOutcome::GaveUp(explanation)))
            }
            (Ok(FromHost::Negotiate(offer)), State::Idle) => self.negotiate(&offer, entropy),
            // Before the challenge was read nobody can have answered it.
            (Ok(FromHost::Reply(reply)), State::Challenged { terms, challenge, exchange, message: None }) => {
                self.check(terms, challenge, exchange, reply)
            }
            (Ok(FromHost::Success2 { t_id }), State::Proving { t_id: expected, proof }) if t_id == expected => {
                self.state = State::Idle;
                Next::Complete(Some(TransactionOutcome::Authenticated(proof)))
            }
            (Ok(FromHost::Success2 { .. }), State::Proving { t_id, .. }) => {
                self.refuse(t_id, Explanation::IncorrectPayload)
            }
            (Ok(_), state) => self.refuse(state.t_id(), Explanation::IncorrectProtocolMessage),
            (Err(explanation), state) => self.refuse(state.t_id(), explanation),
        }
    }

    /// Takes what [`Next::Compute`] asked for.
    pub fn computed(&mut self, computed: Computed) -> Next {
        match (core::mem::replace(&mut self.state, State::Over), computed.0) {
            (State::Preparing { terms, challenge }, Ok(powers)) => {
                let exchange = Exchange { exponent: powers.exponent, public: powers.public };
                self.challenge(terms, challenge, Some(exchange))
            }
            (State::Checking { terms, challenge, reply }, Ok(powers)) => {
                let session_key = powers.shared.map(|shared| terms.session_key(&shared));
                self.conclude(&terms, &challenge, reply, session_key.as_ref())
            }
            // The host's value is none.
            (state, Err(_)) => self.refuse(state.t_id(), Explanation::IncorrectPayload),
            // A message came meanwhile, which is wrong then.
            (state, Ok(_)) => {
                self.state = state;
                Next::Complete(None)
            }
        }
    }

    /// The data for an Authentication Receive with room for `bytes_max`. Whoever gets an outcome
    /// has to send the message first.
    ///
    /// # Errors
    /// There is no message now, or it does not fit; then it stays.
    pub fn transmit(&mut self, bytes_max: usize) -> Result<(Vec<u8>, Option<TransactionOutcome>), Nothing> {
        let message = match &self.state {
            State::Challenged { message: Some(message), .. } | State::Accepted { message, .. } => message.clone(),
            State::Refused { t_id, explanation } => message::failure1(*t_id, *explanation),
            _ => return Err(Nothing::ToReceive),
        };
        if message.len() > bytes_max {
            return Err(Nothing::ThatFits);
        }
        let (next, outcome) = match core::mem::replace(&mut self.state, State::Over) {
            State::Accepted { t_id, proof, .. } if proof.is_mutual => (State::Proving { t_id, proof }, None),
            State::Accepted { proof, .. } => (State::Idle, Some(TransactionOutcome::Authenticated(proof))),
            State::Refused { explanation, .. } => (State::Over, Some(TransactionOutcome::Refused(explanation))),
            State::Challenged { terms, challenge, exchange, .. } => {
                (State::Challenged { terms, challenge, exchange, message: None }, None)
            }
            state => (state, None),
        };
        self.state = next;
        Ok((message, outcome))
    }

    fn negotiate(&mut self, offer: &Negotiate, entropy: &Entropy) -> Next {
        let Negotiate { t_id, secure_channel, .. } = *offer;
        let is_demanded = match self.policy.secure_channel {
            Demand::Refused => secure_channel == SecureChannel::None,
            Demand::Allowed { over_tls: false } => secure_channel != SecureChannel::Replace,
            Demand::Allowed { over_tls: true } => secure_channel != SecureChannel::New,
            Demand::Required => secure_channel == SecureChannel::New,
        };
        if !is_demanded {
            return self.refuse(t_id, Explanation::SecureChannelMismatch);
        }
        // No cipher suite has SHA-512, and without an exchange there is no session key.
        let seals = secure_channel != SecureChannel::None;
        let usable = |hash: &&Hash| offer.hashes.contains(hash) && !(seals && **hash == Hash::Sha512);
        let mut usable = self.policy.hashes.iter().filter(usable);
        // Deviation: of those that seal, SHA-256 comes first, whatever is preferred: Linux' hosts
        // have tlshd do the handshake, which with GnuTLS 3.8 makes wrong binders for SHA-384.
        let first = usable.clone().find(|hash| seals && **hash == Hash::Sha256);
        let Some(&hash) = first.or_else(|| usable.next()) else {
            return self.refuse(t_id, Explanation::HashNotUsable);
        };
        let group =
            self.policy.groups.iter().find(|group| offer.groups.contains(group) && !(seals && **group == Group::Null));
        let Some(&group) = group else { return self.refuse(t_id, Explanation::GroupNotUsable) };
        let terms = Terms { t_id, hash, group, secure_channel };
        let value = KeyMaterial::copy_of(&entropy.challenge[..hash.bytes()]);
        let challenge = Challenge { value, sequence: entropy.sequence.get() };
        if group == Group::Null {
            return self.challenge(terms, challenge, None);
        }
        self.state = State::Preparing { terms, challenge };
        Next::Compute(Work::public(group, entropy.exponent(group)))
    }

    fn challenge(&mut self, terms: Terms, challenge: Challenge, exchange: Option<Exchange>) -> Next {
        let message = message::Challenge {
            t_id: terms.t_id,
            hash: terms.hash,
            group: terms.group,
            sequence: challenge.sequence,
            challenge: challenge.value.bytes().to_vec(),
            value: exchange.as_ref().map(|exchange| exchange.public.clone()).unwrap_or_default(),
        };
        let message = Some(message.encode());
        self.state = State::Challenged { terms, challenge, exchange, message };
        Next::Complete(None)
    }

    fn check(&mut self, terms: Terms, challenge: Challenge, exchange: Option<Exchange>, reply: ReplyMessage) -> Next {
        let is_whole = reply.t_id == terms.t_id
            && reply.response.len() == terms.hash.bytes()
            && reply.value.len() == terms.group.value_bytes();
        if !is_whole {
            return self.refuse(terms.t_id, Explanation::IncorrectPayload);
        }
        let seals = terms.secure_channel != SecureChannel::None;
        match &reply.challenge {
            // A sequence number of 0 says that C2 is there for a PSK only.
            Some(_) if reply.sequence == 0 && !seals => return self.refuse(terms.t_id, Explanation::IncorrectPayload),
            // Both ends' challenges are to be fresh: this one is a reflection.
            Some(c2) if c2[..] == *challenge.value.bytes() => {
                return self.refuse(terms.t_id, Explanation::AuthenticationFailed);
            }
            None if seals => return self.refuse(terms.t_id, Explanation::IncorrectPayload),
            _ => {}
        }
        let Some(Exchange { exponent, public }) = exchange else {
            return self.conclude(&terms, &challenge, reply, None);
        };
        if reply.value == public {
            return self.refuse(terms.t_id, Explanation::IncorrectPayload);
        }
        let value = reply.value.clone();
        let group = terms.group;
        self.state = State::Checking { terms, challenge, reply };
        Next::Compute(Work::shared(group, exponent, value))
    }

    /// Compares the host's response, with each of its secrets so that the time does not tell which
    /// one it was.
    fn conclude(
        &mut self,
        terms: &Terms,
        challenge: &Challenge,
        reply: ReplyMessage,
        session_key: Option<&KeyMaterial>,
    ) -> Next {
        let Credentials { names, host, controller } = &self.credentials;
        let ReplyMessage { t_id, sequence, response, challenge: c2, .. } = reply;
        let response = KeyMaterial::new(response);
        let right = host.iter().map(|secret| terms.of_host(names, secret, challenge, session_key) == response);
        let secret = right.enumerate().fold(None, |found, (index, right)| if right { Some(index) } else { found });
        let Some(secret) = secret else { return self.refuse(t_id, Explanation::AuthenticationFailed) };
        let c2 = c2.map(KeyMaterial::new);
        let wants_proof = c2.clone().filter(|_| sequence != 0);
        let response = match (wants_proof, controller) {
            (None, _) => None,
            (Some(value), Some(secret)) => {
                let challenge = Challenge { value, sequence };
                Some(terms.of_controller(names, secret, &challenge, session_key).bytes().to_vec())
            }
            // There is nothing with which to answer.
            (Some(_), None) => return self.refuse(t_id, Explanation::AuthenticationFailed),
        };
        let psk = match (terms.secure_channel, session_key, &c2) {
            (SecureChannel::New | SecureChannel::Replace, Some(key), Some(c2)) => {
                Psk::generated(terms.generated_psk(key, &challenge.value, c2), terms.hash)
            }
            _ => None,
        };
        let proof = Proof { hash: terms.hash, group: terms.group, is_mutual: response.is_some(), secret, psk };
        let message = Success1 { t_id, hash: terms.hash, response }.encode();
        self.state = State::Accepted { t_id, message, proof };
        Next::Complete(None)
    }

    fn refuse(&mut self, t_id: u16, explanation: Explanation) -> Next {
        self.state = State::Refused { t_id, explanation };
        Next::Complete(None)
    }
}

impl State {
    /// The transaction's identifier; 0 if there is none.
    fn t_id(&self) -> u16 {
        match self {
            Self::Preparing { terms, .. } | Self::Challenged { terms, .. } | Self::Checking { terms, .. } => terms.t_id,
            Self::Accepted { t_id, .. } | Self::Proving { t_id, .. } | Self::Refused { t_id, .. } => *t_id,
            Self::Idle | Self::Over => 0,
        }
    }
}
