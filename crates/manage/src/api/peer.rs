//! The address of a host, as the management API shows it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Where a host is connected from. In JSON and for people a text: `192.0.2.1:50000`, or
/// `this process` for a host in the target's own process, `vfio-user` for a
/// virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A host on the network.
    Network(SocketAddr),
    /// A host in the same process, over the in-memory transport.
    SameProcess,
    /// A virtual machine on the same machine, attached directly.
    Direct,
}

impl Peer {
    /// The host's IP address, if it has one.
    #[must_use]
    pub fn ip(self) -> Option<IpAddr> {
        match self {
            Self::Network(address) => Some(address.ip()),
            Self::SameProcess | Self::Direct => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(address) => address.fmt(f),
            Self::SameProcess => f.write_str(SAME_PROCESS),
            Self::Direct => f.write_str(DIRECT),
        }
    }
}

impl FromStr for Peer {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            SAME_PROCESS => Ok(Self::SameProcess),
            DIRECT => Ok(Self::Direct),
            _ => text.parse().map(Self::Network),
        }
    }
}

impl Serialize for Peer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Peer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

const SAME_PROCESS: &str = "this process";
const DIRECT: &str = "vfio-user";
