//! The messages of a transaction (Base, Authentication messages), as the data of Authentication
//! Send and Authentication Receive. All are little endian, except for Diffie-Hellman values.
//!
//! A message that exists is legal by itself; whether it fits a transaction is decided elsewhere
//! (`controller`, `host`). Bytes behind a message are ignored: controllers fill the host's buffer.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::group::Group;
use crate::hash::Hash;

/// Security Protocol (SECP) of in-band authentication, in Authentication Send and Receive.
pub const SECURITY_PROTOCOL: u8 = 0xe9;
/// Security Protocol Specific, both bytes.
pub const SECURITY_PROTOCOL_SPECIFIC: [u8; 2] = [1, 1];
/// The longest message in bytes: a Reply with SHA-512 and ffdhe8192. Negotiate with the most
/// descriptors would be longer, and has at most four here.
pub const BYTES_MAX: usize = 16 + 2 * Hash::BYTES_MAX + Group::VALUE_BYTES_MAX;

/// AUTH_TYPE of messages that belong to no protocol.
const COMMON: u8 = 0;
/// AUTH_TYPE of DH-HMAC-CHAP.
const DH_HMAC_CHAP: u8 = 1;
/// AUTH_ID
const NEGOTIATE: u8 = 0;
const CHALLENGE: u8 = 1;
const REPLY: u8 = 2;
const SUCCESS1: u8 = 3;
const SUCCESS2: u8 = 4;
const FAILURE2: u8 = 0xf0;
const FAILURE1: u8 = 0xf1;

/// Length of a descriptor of Negotiate.
const DESCRIPTOR_BYTES: usize = 64;
/// AUTHID of DH-HMAC-CHAP in a descriptor.
const DESCRIPTOR_DH_HMAC_CHAP: u8 = 1;
/// Identifiers in each of a descriptor's two lists.
const LIST_MAX: usize = 30;

/// Why a transaction failed (Base, AUTH_Failure, Reason Code Explanation). There is one reason
/// code, Authentication failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Explanation {
    /// A response is wrong.
    AuthenticationFailed = 1,
    /// No protocol that both ends have.
    ProtocolNotUsable = 2,
    /// The ends disagree about secure channel concatenation.
    SecureChannelMismatch = 3,
    /// No hash that both ends have.
    HashNotUsable = 4,
    /// No group that both ends have.
    GroupNotUsable = 5,
    /// A message has a wrong value or length.
    IncorrectPayload = 6,
    /// Another message was expected.
    IncorrectProtocolMessage = 7,
}

impl Explanation {
    const ALL: [Self; 7] = [
        Self::AuthenticationFailed,
        Self::ProtocolNotUsable,
        Self::SecureChannelMismatch,
        Self::HashNotUsable,
        Self::GroupNotUsable,
        Self::IncorrectPayload,
        Self::IncorrectProtocolMessage,
    ];
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AuthenticationFailed => "authentication failed",
            Self::ProtocolNotUsable => "no authentication protocol that both have",
            Self::SecureChannelMismatch => "disagreement about secure channel concatenation",
            Self::HashNotUsable => "no hash function that both have",
            Self::GroupNotUsable => "no Diffie-Hellman group that both have",
            Self::IncorrectPayload => "a message with a wrong value or length",
            Self::IncorrectProtocolMessage => "another message was expected",
        })
    }
}

/// Secure channel concatenation (SC_C): whether TLS follows, with a PSK of this transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SecureChannel {
    /// No.
    None = 0,
    /// TLS follows.
    New = 2,
    /// The PSK replaces the one of the TLS connection that the transaction is on.
    Replace = 3,
}

impl SecureChannel {
    /// Its number.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    fn from_id(id: u8) -> Option<Self> {
        [Self::None, Self::New, Self::Replace].into_iter().find(|channel| channel.id() == id)
    }
}

/// What the host offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiate {
    /// Transaction identifier (T_ID).
    pub t_id: u16,
    /// Secure channel concatenation.
    pub secure_channel: SecureChannel,
    /// Hashes, with the host's preferred one first. Unknown ones are left out.
    pub hashes: Vec<Hash>,
    /// Groups, likewise.
    pub groups: Vec<Group>,
}

/// What the controller has chosen, and its challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// Transaction identifier.
    pub t_id: u16,
    /// The hash.
    pub hash: Hash,
    /// The group.
    pub group: Group,
    /// Sequence number (SEQNUM, S1).
    pub sequence: u32,
    /// The challenge (C1), as long as the hash.
    pub challenge: Vec<u8>,
    /// The controller's Diffie-Hellman value, as long as the group's values.
    pub value: Vec<u8>,
}

/// The host's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyMessage {
    /// Transaction identifier.
    pub t_id: u16,
    /// Sequence number (SEQNUM, S2).
    pub sequence: u32,
    /// The response (R1). Its length is that of the hash.
    pub response: Vec<u8>,
    /// The host's challenge (C2), as long as the response; `None` unless CVALID is set.
    pub challenge: Option<Vec<u8>>,
    /// The host's Diffie-Hellman value.
    pub value: Vec<u8>,
}

/// The controller has accepted the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Success1 {
    /// Transaction identifier.
    pub t_id: u16,
    /// The hash, whose length the message has even without a response.
    pub hash: Hash,
    /// The controller's response (R2); `None` unless RVALID is set.
    pub response: Option<Vec<u8>>,
}

/// What a host sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromHost {
    /// The first message.
    Negotiate(Negotiate),
    /// The answer to a challenge.
    Reply(ReplyMessage),
    /// The host has accepted the controller.
    Success2 {
        /// Transaction identifier.
        t_id: u16,
    },
    /// The host gives up.
    Failure2 {
        /// Transaction identifier.
        t_id: u16,
        /// Why; `None` if it is unknown here.
        explanation: Option<Explanation>,
    },
}

/// What a controller sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromController {
    /// The answer to Negotiate.
    Challenge(Challenge),
    /// The host is accepted.
    Success1(Success1),
    /// The controller gives up.
    Failure1 {
        /// Transaction identifier.
        t_id: u16,
        /// Why; `None` if it is unknown here.
        explanation: Option<Explanation>,
    },
}

/// Reads fields one after the other; a message that is too short has a wrong payload.
struct Reader<'m>(&'m [u8]);

impl<'m> Reader<'m> {
    fn take(&mut self, bytes: usize) -> Result<&'m [u8], Explanation> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Explanation::IncorrectPayload)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Explanation> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Explanation::IncorrectPayload)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u16(&mut self) -> Result<u16, Explanation> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Explanation> {
        self.array().map(u32::from_le_bytes)
    }

    /// AUTH_TYPE, AUTH_ID and T_ID.
    fn header(&mut self) -> Result<(u8, u8, u16), Explanation> {
        let [auth_type, auth_id, _, _] = self.array()?;
        Ok((auth_type, auth_id, self.u16()?))
    }

    /// What is behind the header of AUTH_Failure.
    fn explanation(&mut self) -> Result<Option<Explanation>, Explanation> {
        let [_reason, explanation] = self.array()?;
        Ok(Explanation::ALL.into_iter().find(|known| *known as u8 == explanation))
    }
}

fn header(auth_type: u8, auth_id: u8, t_id: u16) -> Vec<u8> {
    let [low, high] = t_id.to_le_bytes();
    vec![auth_type, auth_id, 0, 0, low, high]
}

fn failure(auth_id: u8, t_id: u16, explanation: Explanation) -> Vec<u8> {
    let mut message = header(COMMON, auth_id, t_id);
    message.extend([1, explanation as u8]);
    message
}

/// A length in a field of one or two bytes.
fn length<T: TryFrom<usize>>(bytes: &[u8]) -> T {
    T::try_from(bytes.len()).ok().expect("digests have at most 64 bytes, values at most 1024")
}

/// AUTH_Failure1, with which the controller gives up.
#[must_use]
pub fn failure1(t_id: u16, explanation: Explanation) -> Vec<u8> {
    failure(FAILURE1, t_id, explanation)
}

/// AUTH_Failure2, with which the host gives up.
#[must_use]
pub fn failure2(t_id: u16, explanation: Explanation) -> Vec<u8> {
    failure(FAILURE2, t_id, explanation)
}

/// DH-HMAC-CHAP_Success2.
#[must_use]
pub fn success2(t_id: u16) -> Vec<u8> {
    let mut message = header(DH_HMAC_CHAP, SUCCESS2, t_id);
    message.resize(16, 0);
    message
}

impl FromHost {
    /// Decodes a message to a controller.
    ///
    /// # Errors
    /// What AUTH_Failure1 is to say.
    pub fn decode(message: &[u8]) -> Result<Self, Explanation> {
        let mut reader = Reader(message);
        let (auth_type, auth_id, t_id) = reader.header()?;
        match (auth_type, auth_id) {
            (COMMON, NEGOTIATE) => Negotiate::decode(t_id, reader).map(Self::Negotiate),
            (DH_HMAC_CHAP, REPLY) => ReplyMessage::decode(t_id, reader).map(Self::Reply),
            (DH_HMAC_CHAP, SUCCESS2) => Ok(Self::Success2 { t_id }),
            (COMMON, FAILURE2) => Ok(Self::Failure2 { t_id, explanation: reader.explanation()? }),
            _ => Err(Explanation::IncorrectProtocolMessage),
        }
    }
}

impl FromController {
    /// Decodes a message to a host.
    ///
    /// # Errors
    /// What AUTH_Failure2 is to say.
    pub fn decode(message: &[u8]) -> Result<Self, Explanation> {
        let mut reader = Reader(message);
        let (auth_type, auth_id, t_id) = reader.header()?;
        match (auth_type, auth_id) {
            (DH_HMAC_CHAP, CHALLENGE) => Challenge::decode(t_id, reader).map(Self::Challenge),
            (DH_HMAC_CHAP, SUCCESS1) => Success1::decode(t_id, reader).map(Self::Success1),
            (COMMON, FAILURE1) => Ok(Self::Failure1 { t_id, explanation: reader.explanation()? }),
            _ => Err(Explanation::IncorrectProtocolMessage),
        }
    }
}

impl Negotiate {
    fn decode(t_id: u16, mut reader: Reader<'_>) -> Result<Self, Explanation> {
        let [secure_channel, descriptors] = reader.array()?;
        let secure_channel = SecureChannel::from_id(secure_channel).ok_or(Explanation::SecureChannelMismatch)?;
        let mut offered = None;
        for _ in 0..descriptors {
            let descriptor = reader.take(DESCRIPTOR_BYTES)?;
            let [protocol, _, hashes, groups, lists @ ..] = descriptor else {
                return Err(Explanation::IncorrectPayload);
            };
            if *protocol != DESCRIPTOR_DH_HMAC_CHAP || offered.is_some() {
                continue;
            }
            let (of_hashes, of_groups) = lists.split_at(LIST_MAX);
            let of_hashes = of_hashes.get(..usize::from(*hashes)).ok_or(Explanation::IncorrectPayload)?;
            let of_groups = of_groups.get(..usize::from(*groups)).ok_or(Explanation::IncorrectPayload)?;
            let hashes = of_hashes.iter().copied().filter_map(Hash::from_id).collect();
            let groups = of_groups.iter().copied().filter_map(Group::from_id).collect();
            offered = Some((hashes, groups));
        }
        let (hashes, groups) = offered.ok_or(Explanation::ProtocolNotUsable)?;
        Ok(Self { t_id, secure_channel, hashes, groups })
    }

    /// The message, with one descriptor; no more than 30 of each list.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut message = header(COMMON, NEGOTIATE, self.t_id);
        message.extend([self.secure_channel.id(), 1]);
        let hashes: Vec<u8> = self.hashes.iter().take(LIST_MAX).map(|hash| hash.id()).collect();
        let groups: Vec<u8> = self.groups.iter().take(LIST_MAX).map(|group| group.id()).collect();
        message.extend([DESCRIPTOR_DH_HMAC_CHAP, 0, length(&hashes), length(&groups)]);
        for mut list in [hashes, groups] {
            list.resize(LIST_MAX, 0);
            message.extend(list);
        }
        message
    }
}

impl Challenge {
    fn decode(t_id: u16, mut reader: Reader<'_>) -> Result<Self, Explanation> {
        let [hash_bytes, _, hash, group] = reader.array()?;
        let value_bytes = usize::from(reader.u16()?);
        let sequence = reader.u32()?;
        let hash = Hash::from_id(hash).ok_or(Explanation::HashNotUsable)?;
        let group = Group::from_id(group).ok_or(Explanation::GroupNotUsable)?;
        if usize::from(hash_bytes) != hash.bytes() || value_bytes != group.value_bytes() {
            return Err(Explanation::IncorrectPayload);
        }
        let challenge = reader.take(hash.bytes())?.to_vec();
        let value = reader.take(value_bytes)?.to_vec();
        Ok(Self { t_id, hash, group, sequence, challenge, value })
    }

    /// The message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut message = header(DH_HMAC_CHAP, CHALLENGE, self.t_id);
        message.extend([length(&self.challenge), 0, self.hash.id(), self.group.id()]);
        message.extend(length::<u16>(&self.value).to_le_bytes());
        message.extend(self.sequence.to_le_bytes());
        message.extend_from_slice(&self.challenge);
        message.extend_from_slice(&self.value);
        message
    }
}

impl ReplyMessage {
    fn decode(t_id: u16, mut reader: Reader<'_>) -> Result<Self, Explanation> {
        let [hash_bytes, _, challenge_valid, _] = reader.array()?;
        let value_bytes = usize::from(reader.u16()?);
        let sequence = reader.u32()?;
        let hash_bytes = usize::from(hash_bytes);
        if challenge_valid > 1 || hash_bytes > Hash::BYTES_MAX || value_bytes > Group::VALUE_BYTES_MAX {
            return Err(Explanation::IncorrectPayload);
        }
        let response = reader.take(hash_bytes)?.to_vec();
        let challenge = reader.take(hash_bytes)?.to_vec();
        let value = reader.take(value_bytes)?.to_vec();
        Ok(Self { t_id, sequence, response, challenge: (challenge_valid == 1).then_some(challenge), value })
    }

    /// The message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut message = header(DH_HMAC_CHAP, REPLY, self.t_id);
        message.extend([length(&self.response), 0, self.challenge.is_some().into(), 0]);
        message.extend(length::<u16>(&self.value).to_le_bytes());
        message.extend(self.sequence.to_le_bytes());
        message.extend_from_slice(&self.response);
        match &self.challenge {
            Some(challenge) => message.extend_from_slice(challenge),
            None => message.resize(message.len() + self.response.len(), 0),
        }
        message.extend_from_slice(&self.value);
        message
    }
}

impl Success1 {
    fn decode(t_id: u16, mut reader: Reader<'_>) -> Result<Self, Explanation> {
        let [hash_bytes, _, response_valid, _] = reader.array()?;
        let _: [u8; 6] = reader.array()?;
        let hash = Hash::ALL.into_iter().find(|hash| hash.bytes() == usize::from(hash_bytes));
        let hash = hash.ok_or(Explanation::IncorrectPayload)?;
        let response = match response_valid {
            0 => None,
            1 => Some(reader.take(hash.bytes())?.to_vec()),
            _ => return Err(Explanation::IncorrectPayload),
        };
        Ok(Self { t_id, hash, response })
    }

    /// The message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut message = header(DH_HMAC_CHAP, SUCCESS1, self.t_id);
        // At most 64.
        let hash_bytes = u8::try_from(self.hash.bytes()).unwrap_or(u8::MAX);
        message.extend([hash_bytes, 0, self.response.is_some().into()]);
        message.resize(16, 0);
        message.extend_from_slice(self.response.as_deref().unwrap_or_default());
        message
    }
}

#[cfg(test)]
mod tests;
