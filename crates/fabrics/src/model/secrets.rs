//! What hosts and subsystems prove themselves by: secrets for authentication, and what a connection
//! is worth (NVMe/TCP, TLS; Base, Secure Channel Concatenation).

use alloc::boxed::Box;
use alloc::vec::Vec;

use ebof_authentication::Secret;
use ebof_authentication::response::Names;

/// The secrets of a host for DH-HMAC-CHAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSecrets {
    /// Its own: more than one while one replaces another.
    pub host: Vec<Secret>,
    /// That with which subsystems prove themselves to it.
    pub controller: Option<Secret>,
}

/// What a connection proves of who is at its other end, before that says anything.
#[derive(Clone, Debug, Default)]
pub enum Channel {
    /// Nothing: a name is a claim.
    #[default]
    Plain,
    /// It has a PSK for TLS.
    Tls(Box<TlsPeer>),
}

/// Who is at the other end of a connection over TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPeer {
    /// The host and the subsystem that the PSK is of, and no others.
    pub names: Names,
    /// Where the PSK comes from.
    pub psk: PskSource,
}

/// Where the PSK of a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PskSource {
    /// It is configured for the host.
    Configured,
    /// Authentication generated it: secure channel concatenation.
    Generated(SecureChannelId),
}

impl PskSource {
    /// The secure channel that authentication began.
    pub(crate) fn channel(self) -> Option<SecureChannelId> {
        match self {
            Self::Configured => None,
            Self::Generated(channel) => Some(channel),
        }
    }
}

/// A secure channel that began with an authentication: all PSKs that were generated for it, one
/// replacing the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecureChannelId(pub u64);

impl Channel {
    /// Where the PSK comes from; `None` without TLS.
    pub(crate) fn psk(&self) -> Option<PskSource> {
        match self {
            Self::Plain => None,
            Self::Tls(peer) => Some(peer.psk),
        }
    }
}
