//! The active side, before there is a queue pair.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::pair::Side;
use super::queue_pair::QueuePair;
use super::shared::{NetworkState, Resolution, Stage};
use crate::{Attributes, Bell, DeviceAttributes, Error};

/// A connection whose address and route are being resolved.
#[derive(Debug)]
pub(crate) struct Connecting {
    shared: Arc<NetworkState>,
    resolution: Arc<Resolution>,
    remote: SocketAddr,
    local: SocketAddr,
}

impl Connecting {
    pub(crate) fn new(shared: &Arc<NetworkState>, to: SocketAddr, from: Option<IpAddr>) -> Result<Self, Error> {
        let resolution = Arc::new(Resolution::default());
        let mut parts = shared.parts();
        if parts.removed {
            return Err(Error::NoDevice(from.unwrap_or_else(|| to.ip())));
        }
        let local = SocketAddr::new(from.unwrap_or_else(|| to.ip()), parts.unused_port());
        if shared.stepped {
            parts.resolutions.push(Arc::downgrade(&resolution));
            parts.tidy();
        }
        drop(parts);
        while !shared.stepped && resolution.stage() != Stage::Route {
            resolution.advance();
        }
        Ok(Self { shared: Arc::clone(shared), resolution, remote: to, local })
    }

    #[expect(clippy::unused_self, reason = "its counterpart of the system has one")]
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    pub(crate) fn set_bell(&self, bell: Bell) {
        self.resolution.set_bell(bell);
    }

    pub(crate) fn poll(&mut self) -> Result<bool, Error> {
        let stage = self.resolution.stage();
        let parts = self.shared.parts();
        if parts.removed {
            return Err(Error::DeviceRemoved);
        }
        if stage != Stage::Begun && parts.unreachable.contains(&self.remote.ip()) {
            return Err(Error::Address { to: self.remote, source: io::ErrorKind::TimedOut.into() });
        }
        Ok(stage == Stage::Route)
    }

    pub(crate) fn device(&self) -> Option<&DeviceAttributes> {
        (self.resolution.stage() != Stage::Begun).then_some(&self.shared.device)
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        self.remote
    }

    pub(crate) fn local(&self) -> SocketAddr {
        match (self.resolution.stage(), self.remote) {
            (Stage::Address | Stage::Route, _) => self.local,
            (Stage::Begun, SocketAddr::V4(_)) => SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
            (Stage::Begun, SocketAddr::V6(_)) => SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
        }
    }

    pub(crate) fn open(self, attributes: &Attributes) -> Result<QueuePair, Error> {
        if self.resolution.stage() != Stage::Route {
            return Err(Error::State("not resolved yet"));
        }
        let pair = self.shared.pair(self.local, self.remote);
        QueuePair::open(&self.shared, &pair, Side::Host, attributes)
    }
}
