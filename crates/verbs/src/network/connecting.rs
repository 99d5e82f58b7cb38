//! The active side of making connections, up to the queue pair.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::select::either;
use crate::{Attributes, Bell, DeviceAttributes, Error, QueuePair, simulated, system};

/// A connection whose address and route are being resolved. Dropping it gives it up.
#[derive(Debug)]
pub struct Connecting(Inner);

#[derive(Debug)]
enum Inner {
    System(Box<system::Connecting>),
    Simulated(simulated::Connecting),
}

impl Connecting {
    /// Readable when there is something to poll; `None` if it is simulated.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        either!(&self.0, connecting => connecting.descriptor())
    }

    /// From now on `bell` rings when there is something to poll, if it is simulated.
    pub fn set_bell(&self, bell: Bell) {
        either!(&self.0, connecting => connecting.set_bell(bell));
    }

    /// Proceeds as far as possible. `true`: address and route are resolved, and
    /// [`Connecting::open`] makes the queue pair.
    ///
    /// # Errors
    /// Tells which step has failed, and why. It is over then.
    pub fn poll(&mut self) -> Result<bool, Error> {
        either!(&mut self.0, connecting => connecting.poll())
    }

    /// The device that the connection is on; `None` before the address is resolved.
    #[must_use]
    pub fn device(&self) -> Option<&DeviceAttributes> {
        either!(&self.0, connecting => connecting.device())
    }

    /// The address that it connects to.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        either!(&self.0, connecting => connecting.remote())
    }

    /// Its own address; unspecified before the address is resolved.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        either!(&self.0, connecting => connecting.local())
    }

    /// Makes the queue pair and posts its receives. The peer learns nothing of it before
    /// [`QueuePair::connect`].
    ///
    /// # Errors
    /// It is not resolved yet, or the device has not enough resources.
    pub fn open(self, attributes: &Attributes) -> Result<QueuePair, Error> {
        match self.0 {
            Inner::System(connecting) => connecting.open(attributes).map(QueuePair::from),
            Inner::Simulated(connecting) => connecting.open(attributes).map(QueuePair::from),
        }
    }
}

impl From<system::Connecting> for Connecting {
    fn from(connecting: system::Connecting) -> Self {
        Self(Inner::System(Box::new(connecting)))
    }
}

impl From<simulated::Connecting> for Connecting {
    fn from(connecting: simulated::Connecting) -> Self {
        Self(Inner::Simulated(connecting))
    }
}
