//! What a port listens with: a socket, or a listener of an RDMA network.
//!
//! Owns the listener and how it is watched. Whom it lets in is decided by admission.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ebof_nvme::log::RdmaProvider;
use ebof_verbs::{Bell, DeviceInfo, Error, Gid, Listener, ListenerEvent, Network, Protocol};

use crate::direct::DirectListener;

/// What a port listens with, which keeps the address in use.
#[derive(Clone, Debug)]
pub(crate) enum Bound {
    Tcp(Arc<TcpListener>),
    Rdma(Arc<RdmaListener>),
    Direct(Arc<DirectListener>),
}

impl Bound {
    /// Does something with the descriptor that tells of new connections, if there is one: over
    /// RDMA there is none in a simulated network, or while no device has the address.
    pub(crate) fn with_descriptor<R>(&self, work: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        match self {
            Self::Tcp(listener) => Some(work(listener.as_fd())),
            Self::Direct(listener) => Some(work(listener.descriptor())),
            Self::Rdma(listener) => listener.lock().as_ref().and_then(Listener::descriptor).map(work),
        }
    }

    /// Listens no more, whoever has it still: the address is free for another listener.
    pub(crate) fn close(&self) {
        match self {
            // tcp(7): a socket that does not listen is not in the way of others with SO_REUSEADDR.
            Self::Tcp(listener) => {
                if let Err(error) = rustix::net::shutdown(listener, rustix::net::Shutdown::Both) {
                    tracing::error!("a port still listens: {error}");
                }
            }
            Self::Rdma(listener) => *listener.lock() = None,
            Self::Direct(listener) => listener.remove(),
        }
    }
}

/// Listens at an address of an RDMA network, also after its device was removed and came back.
#[derive(Debug)]
pub(crate) struct RdmaListener {
    network: Network,
    address: SocketAddr,
    /// `None` while no device has the address.
    listener: Mutex<Option<Listener>>,
}

/// Requests that wait for the control thread.
const BACKLOG: u32 = 128;

impl RdmaListener {
    /// Listens at `address`; of port 0 at one that the network chooses.
    ///
    /// # Errors
    /// No device has the address, or somebody else listens there.
    pub(crate) fn bind(network: Network, address: SocketAddr) -> Result<Self, Error> {
        let listener = network.listen(address, BACKLOG)?;
        let address = SocketAddr::new(address.ip(), listener.local_address().port());
        Ok(Self { network, address, listener: Mutex::new(Some(listener)) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What kind of device hosts reach there, for the discovery log; not specified where there are
    /// several kinds.
    pub(crate) fn provider(&self) -> RdmaProvider {
        let devices = self.network.devices().unwrap_or_default();
        let mut providers = devices.iter().flat_map(|device| self.gids(device)).map(|gid| provider(gid.protocol));
        let Some(first) = providers.next() else { return RdmaProvider::NOT_SPECIFIED };
        providers.fold(first, newer)
    }

    /// Entries that queues of the devices there have at most: of the one with the fewest, where
    /// there are several.
    pub(crate) fn queue_entries(&self) -> u16 {
        let devices = self.network.devices().unwrap_or_default();
        let here = devices.iter().filter(|device| self.gids(device).next().is_some());
        let entries = here.map(|device| u16::try_from(device.attributes.queue_entries).unwrap_or(u16::MAX));
        // Fewer than two are no queue: its requests will be refused.
        entries.min().unwrap_or(u16::MAX).max(2)
    }

    /// The device's addresses where it listens.
    fn gids<'d>(&self, device: &'d DeviceInfo) -> impl Iterator<Item = &'d Gid> {
        device.ports.iter().flat_map(|port| &port.gids).filter(|gid| self.is_at(gid))
    }

    fn is_at(&self, gid: &Gid) -> bool {
        let address = self.address.ip();
        address.is_unspecified() || address.to_canonical() == Ipv6Addr::from(gid.address).to_canonical()
    }

    /// Rings when there is something to take, where there is no descriptor.
    pub(crate) fn set_bell(&self, bell: Bell) {
        if let Some(listener) = &*self.lock() {
            listener.set_bell(bell);
        }
    }

    /// What has happened. After the loss of its address or device it listens no more until
    /// [`RdmaListener::bind_again`].
    ///
    /// # Errors
    /// The system fails.
    pub(crate) fn next(&self) -> Result<Option<ListenerEvent>, Error> {
        let mut guard = self.lock();
        let Some(listener) = &mut *guard else { return Ok(None) };
        let event = listener.poll()?;
        if matches!(event, Some(ListenerEvent::AddressChanged | ListenerEvent::DeviceRemoved)) {
            *guard = None;
        }
        Ok(event)
    }

    /// Whether it listens.
    pub(crate) fn is_bound(&self) -> bool {
        self.lock().is_some()
    }

    /// Listens again at the same address.
    ///
    /// # Errors
    /// No device has it now.
    pub(crate) fn bind_again(&self) -> Result<(), Error> {
        let listener = self.network.listen(self.address, BACKLOG)?;
        *self.lock() = Some(listener);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Listener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same as an error of the system, for those who handle errors of sockets.
pub(crate) fn as_io_error(error: Error) -> io::Error {
    match error {
        Error::Call { source, call } => io::Error::new(source.kind(), format!("{call}: {source}")),
        Error::AddressInUse(_) => io::Error::new(io::ErrorKind::AddrInUse, error),
        Error::NoDevice(_) => io::Error::new(io::ErrorKind::AddrNotAvailable, error),
        error => io::Error::other(error),
    }
}

fn provider(protocol: Protocol) -> RdmaProvider {
    match protocol {
        Protocol::Infiniband => RdmaProvider::INFINIBAND,
        Protocol::RoceV1 => RdmaProvider::ROCE,
        Protocol::RoceV2 => RdmaProvider::ROCE_V2,
        Protocol::Iwarp => RdmaProvider::IWARP,
    }
}

/// What to say of two. A device with RoCE v2 has the same address for v1, which the connection
/// manager does not choose.
fn newer(one: RdmaProvider, other: RdmaProvider) -> RdmaProvider {
    match (one, other) {
        _ if one == other => one,
        (RdmaProvider::ROCE, RdmaProvider::ROCE_V2) | (RdmaProvider::ROCE_V2, RdmaProvider::ROCE) => {
            RdmaProvider::ROCE_V2
        }
        _ => RdmaProvider::NOT_SPECIFIED,
    }
}
