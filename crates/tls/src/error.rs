//! Why there is no connection: what was tried, what came back, and what to do about it.

use std::fmt;
use std::io;

use thiserror::Error;

use crate::alert::Alert;
use crate::client_hello::HelloError;
use crate::schedule::Suite;

/// Why a handshake failed. The connection is closed then.
#[derive(Debug, Error)]
pub enum HandshakeError {
    /// None of the offered identities has a key here.
    #[error(
        "the host offers the PSK identity {identity}{}, and no key here has that name: configure the key of this host \
         and subsystem, with the same hash and version of the identity",
        more(*.others)
    )]
    UnknownIdentity {
        /// The first one that is offered.
        identity: OfferedIdentity,
        /// How many others are offered.
        others: usize,
    },
    /// There is a key with this name, and another was used.
    #[error(
        "the host knows the PSK identity {identity} and has another key for it: its binder fits none of the {candidates} \
         derived here, compare the configured keys of both ends (the derivation of nvme-cli 2.x is \
         tried, too, where it differs)"
    )]
    WrongKey {
        /// The identity.
        identity: OfferedIdentity,
        /// How many keys were tried.
        candidates: usize,
    },
    /// The ClientHello offers no key.
    #[error("the host speaks TLS but offers no pre-shared key: configure one on it (nvme connect --tls)")]
    NoPsk,
    /// Pre-shared keys are to be used without (EC)DHE.
    #[error(
        "the host offers a pre-shared key without (EC)DHE (psk_dhe_ke), which NVMe/TCP needs: allow that mode on it"
    )]
    NoPskDheKe,
    /// The suite of the key is not offered.
    #[error("the key of PSK identity {identity} is for {suite}, which the host does not offer: allow it on the host")]
    NoSuite {
        /// The identity.
        identity: OfferedIdentity,
        /// The suite of its key.
        suite: Suite,
    },
    /// Another suite was chosen than that of the key.
    #[error("the key is for {suite}, and the peer chose {chosen}: allow {suite} on the peer")]
    OtherSuite {
        /// The suite of the key.
        suite: Suite,
        /// What the library calls the other one.
        chosen: Box<str>,
    },
    /// An older version of TLS.
    #[error("the host does not speak TLS 1.3, and NVMe/TCP has no other version: update it")]
    NotTls13,
    /// NVMe/TCP in the clear.
    #[error(
        "the peer speaks NVMe/TCP without TLS (its first bytes are an ICReq): connect with TLS (nvme connect --tls), or \
         use a port that does not require it"
    )]
    Plain,
    /// A target of NVMe/TCP in the clear.
    #[error(
        "the target speaks NVMe/TCP without TLS on this port (its first bytes are a C2HTermReq): have TLS there, or name a \
         port that has it"
    )]
    PlainTarget,
    /// Something else.
    #[error(
        "the peer speaks neither TLS nor NVMe/TCP: its first bytes are {first:02x?}, check what is at the other end"
    )]
    NotTls {
        /// The first bytes, at most 64.
        first: Vec<u8>,
    },
    /// The ClientHello cannot be read.
    #[error("the host's ClientHello is refused: {0}")]
    Hello(
        #[source]
        #[from]
        HelloError,
    ),
    /// The peer ended the handshake.
    #[error("the peer ended the TLS handshake with {alert}: {}", alert.advice())]
    Alert {
        /// What it has told in its last message.
        alert: Alert,
    },
    /// The peer closed the connection.
    #[error(
        "the peer closed the connection in the TLS handshake, after {received} bytes of it: its log tells why; a peer that \
         does not speak TLS on this port does that, too"
    )]
    Closed {
        /// Bytes that it had sent.
        received: u64,
    },
    /// The socket.
    #[error("the TLS handshake: {0}")]
    Io(#[source] io::Error),
    /// The peer does not follow the protocol, or the library failed.
    #[error("the TLS handshake was ended here: {0}; if both ends are as intended, this is a bug of one of them")]
    Library(#[source] LibraryError),
    /// The library did not tell the secrets.
    #[error("the TLS library (s2n-tls) completed the handshake without its traffic secrets: report this")]
    NoSecrets,
    /// No keys can be made of the secrets.
    #[error("the TLS handshake is done, and aws-lc makes no keys of its secrets ({0}): report this")]
    Keys(#[source] aws_lc_rs::error::Unspecified),
    /// It had ended before.
    #[error("the TLS handshake is over")]
    Over,
}

impl HandshakeError {
    /// Whether the peer closed or reset the connection and said nothing: one that does not speak
    /// TLS may do that, and one that does not want to say why it refuses a key.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        match self {
            Self::Closed { received } => *received == 0,
            Self::Io(error) => error.kind() == io::ErrorKind::ConnectionReset,
            _ => false,
        }
    }

    /// What a peer is told that cannot be told in TLS yet, or no more.
    pub(crate) fn alert(&self) -> Option<Alert> {
        match self {
            // The same for both (RFC 8446, 6.2): nobody finds out which hosts have keys here.
            Self::UnknownIdentity { .. } | Self::WrongKey { .. } => Some(Alert::DECRYPT_ERROR),
            Self::NoPsk | Self::NoPskDheKe => Some(Alert::MISSING_EXTENSION),
            Self::NoSuite { .. } | Self::OtherSuite { .. } => Some(Alert::HANDSHAKE_FAILURE),
            Self::NotTls13 => Some(Alert::PROTOCOL_VERSION),
            Self::Hello(HelloError::Field { .. } | HelloError::TooLarge) => Some(Alert::DECODE_ERROR),
            // NVMe/TCP has no word for it: a host that knows TLS understands this.
            Self::Plain | Self::Hello(HelloError::Record { .. } | HelloError::Message { .. }) => {
                Some(Alert::UNEXPECTED_MESSAGE)
            }
            Self::Library(_) | Self::NoSecrets | Self::Keys(_) => Some(Alert::HANDSHAKE_FAILURE),
            Self::PlainTarget
            | Self::NotTls { .. }
            | Self::Alert { .. }
            | Self::Closed { .. }
            | Self::Io(_)
            | Self::Over => None,
        }
    }
}

fn more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" (and {count} more)") }
}

/// A name that an unauthenticated peer has sent, fit for a log: printable ASCII, and not longer
/// than two NQNs need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedIdentity(String);

impl OfferedIdentity {
    /// Two NQNs of 223 bytes, a digest and a version.
    const CHARACTERS_MAX: usize = 2 * 223 + 80;

    pub(crate) fn new(bytes: &[u8]) -> Self {
        let printable = |byte: &u8| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '?' };
        let mut text: String = bytes.iter().take(Self::CHARACTERS_MAX).map(printable).collect();
        if bytes.len() > Self::CHARACTERS_MAX {
            text.push_str("...");
        }
        Self(text)
    }
}

impl fmt::Display for OfferedIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0)
    }
}

/// An error of s2n-tls.
pub struct LibraryError(pub(crate) s2n_tls::error::Error);

impl std::error::Error for LibraryError {}

impl fmt::Display for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (s2n-tls: {})", self.0.message(), self.0.name())
    }
}

impl fmt::Debug for LibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LibraryError").field(&self.0.name()).finish()
    }
}
