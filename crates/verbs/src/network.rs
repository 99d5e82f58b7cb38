//! Where connections come from. The folder has both sides of making one: a listener with its
//! requests, and the active side.

pub(crate) mod connecting;
pub(crate) mod listener;
pub(crate) mod request;

use std::net::{IpAddr, SocketAddr};

use crate::select::either;
use crate::{ConnectOptions, Connecting, DeviceInfo, Error, Listener, LoadError, simulated, system};

/// A network that connections are made in. Clones are the same network.
#[derive(Clone, Debug)]
pub struct Network(Inner);

#[derive(Clone, Debug)]
enum Inner {
    System(system::Network),
    Simulated(simulated::Network),
}

impl Network {
    /// The RDMA devices of this machine, through rdma-core, which is loaded at the first call.
    ///
    /// # Errors
    /// rdma-core is not installed, or too old.
    pub fn system() -> Result<Network, LoadError> {
        system::Network::load().map(|network| Network(Inner::System(network)))
    }

    /// The devices, with their ports.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>, Error> {
        either!(&self.0, network => network.devices())
    }

    /// Waits for connections to `address`. With port 0 an unused one is chosen. The system limits
    /// `backlog`, the number of requests that nobody has polled yet.
    ///
    /// # Errors
    /// No device has the address, or somebody listens there.
    pub fn listen(&self, address: SocketAddr, backlog: u32) -> Result<Listener, Error> {
        either!(&self.0, network => network.listen(address, backlog).map(Listener::from))
    }

    /// Begins a connection to `to`, from the address `from` if that matters. Nothing has been sent
    /// when it returns: see [`Connecting::poll`].
    ///
    /// # Errors
    /// No device has the address `from`, or the system is out of resources.
    pub fn connect(&self, to: SocketAddr, from: Option<IpAddr>, options: &ConnectOptions) -> Result<Connecting, Error> {
        either!(&self.0, network => network.connect(to, from, options).map(Connecting::from))
    }
}

impl From<simulated::Network> for Network {
    fn from(network: simulated::Network) -> Self {
        Self(Inner::Simulated(network))
    }
}
