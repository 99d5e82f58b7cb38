//! The other end of a connection, as admission and the log need it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use ebof_fabrics::Channel;
use ebof_manage::api;

use crate::observe::log_limit::{LogSubject, Network};
use crate::ports::port::PortState;

/// The other end of a link, as admission and the log need it.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) port: Arc<PortState>,
    pub(crate) address: PeerAddress,
    /// What the connection proves of who it is.
    pub(crate) channel: Channel,
}

/// Where a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerAddress {
    /// On the network.
    Network {
        /// The host's address.
        remote: SocketAddr,
        /// The address that the host reached.
        local: SocketAddr,
    },
    /// In this process.
    SameProcess,
    /// A virtual machine on this one.
    Direct,
}

impl Peer {
    /// One that has proven nothing.
    pub(crate) fn new(port: Arc<PortState>, address: PeerAddress) -> Self {
        Self { port, address, channel: Channel::Plain }
    }

    /// The subject of log lines about it, for their limit.
    pub(crate) fn about(&self) -> LogSubject {
        self.address.about()
    }

    /// The address of this target that the host reached, without the port; empty where it needed
    /// none.
    pub(crate) fn local(&self) -> String {
        match self.address {
            PeerAddress::Network { local, .. } => local.ip().to_canonical().to_string(),
            PeerAddress::SameProcess | PeerAddress::Direct => String::new(),
        }
    }
}

impl PeerAddress {
    pub(crate) fn about(self) -> LogSubject {
        match self {
            Self::Network { remote, .. } => remote.ip().into(),
            Self::SameProcess | Self::Direct => LogSubject::Target,
        }
    }

    /// As much of it as its owner cannot choose.
    pub(crate) fn network(self) -> String {
        match self {
            Self::Network { remote, .. } => Network::from_address(remote.ip()).to_string(),
            Self::SameProcess | Self::Direct => String::new(),
        }
    }

    /// As the management API has it.
    pub(crate) fn for_api(self) -> api::Peer {
        match self {
            Self::Network { remote, .. } => api::Peer::Network(remote),
            Self::SameProcess => api::Peer::SameProcess,
            Self::Direct => api::Peer::Direct,
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.for_api().fmt(f)
    }
}
