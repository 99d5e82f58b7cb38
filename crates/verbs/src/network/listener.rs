//! The passive side of making connections.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use crate::select::either;
use crate::{Bell, Error, Request, simulated, system};

/// Waits for requests at an address.
#[derive(Debug)]
pub struct Listener(Inner);

#[derive(Debug)]
enum Inner {
    System(system::Listener),
    Simulated(simulated::Listener),
}

/// What has happened at the address of a listener.
#[derive(Debug)]
pub enum ListenerEvent {
    /// A host asks for a connection.
    Request(Request),
    /// The address has moved to another device. The listener does nothing any more; its owner makes
    /// another one.
    AddressChanged,
    /// The device is going away. As `AddressChanged`, as soon as there is a device again.
    DeviceRemoved,
}

impl Listener {
    /// Readable when there is something to poll; `None` if it is simulated.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        either!(&self.0, listener => listener.descriptor())
    }

    /// From now on `bell` rings when there is something to poll, if the listener is simulated.
    pub fn set_bell(&self, bell: Bell) {
        either!(&self.0, listener => listener.set_bell(bell));
    }

    /// Where it listens.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        either!(&self.0, listener => listener.local_address())
    }

    /// The next event, if there is one.
    ///
    /// # Errors
    /// The system fails; the listener can be polled again.
    pub fn poll(&mut self) -> Result<Option<ListenerEvent>, Error> {
        match &mut self.0 {
            Inner::System(listener) => Ok(listener.poll()?.map(|event| match event {
                system::ListenerEvent::Request(request) => ListenerEvent::Request(request.into()),
                system::ListenerEvent::AddressChanged => ListenerEvent::AddressChanged,
                system::ListenerEvent::DeviceRemoved => ListenerEvent::DeviceRemoved,
            })),
            Inner::Simulated(listener) => Ok(listener.poll()?.map(|event| match event {
                simulated::ListenerEvent::Request(request) => ListenerEvent::Request(request.into()),
                simulated::ListenerEvent::AddressChanged => ListenerEvent::AddressChanged,
                simulated::ListenerEvent::DeviceRemoved => ListenerEvent::DeviceRemoved,
            })),
        }
    }
}

impl From<system::Listener> for Listener {
    fn from(listener: system::Listener) -> Self {
        Self(Inner::System(listener))
    }
}

impl From<simulated::Listener> for Listener {
    fn from(listener: simulated::Listener) -> Self {
        Self(Inner::Simulated(listener))
    }
}
