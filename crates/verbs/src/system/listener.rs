//! Listeners, and requests for connections.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::cm::{Channel, CmEvent, Id};
use super::device::{Device, with_port};
use super::load::Functions;
use super::queue_pair::{Depths, QueuePair};
use super::{ffi, inventory};
use crate::{Attributes, Bell, DeviceAttributes, Error, REJECT_PRIVATE_DATA_MAX};

/// An address where requests arrive.
pub(crate) struct Listener {
    id: Id,
    local: SocketAddr,
    /// A listener for all addresses belongs to no device, so it gets no notice of a removal. An
    /// identifier for each device that has had requests gets it instead.
    watches: Vec<Id>,
}

/// What has happened there.
#[derive(Debug)]
pub(crate) enum ListenerEvent {
    Request(Box<Request>),
    AddressChanged,
    DeviceRemoved,
}

impl Listener {
    pub(super) fn new(functions: &'static Functions, address: SocketAddr, backlog: u32) -> Result<Self, Error> {
        let mut id = Id::new(functions, Channel::new(functions)?)?;
        // A target that is started again has connections of its predecessor at this address.
        id.set_option(ffi::OPTION_ID_REUSEADDR, 1_i32)?;
        if address.is_ipv6() {
            id.set_option(ffi::OPTION_ID_AFONLY, 1_i32)?;
        }
        id.bind(address).map_err(|error| explain(error, address))?;
        id.listen(backlog).map_err(|error| explain(error, address))?;
        let local = id.local();
        Ok(Listener { id, local, watches: Vec::new() })
    }

    #[expect(clippy::unnecessary_wraps, reason = "simulated ones have none")]
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.id.channel().descriptor())
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// The descriptor becomes readable.
    pub(crate) fn set_bell(&self, _bell: Bell) {}

    pub(crate) fn poll(&mut self) -> Result<Option<ListenerEvent>, Error> {
        while let Some(mut event) = self.id.channel().next()? {
            if let Some(id) = event.request.take() {
                // Without a device there is nothing to accept it with: it is rejected.
                if let Ok(request) = Request::new(id, event) {
                    self.watch(&request.id);
                    return Ok(Some(ListenerEvent::Request(Box::new(request))));
                }
                continue;
            }
            if let Some(at) = self.watches.iter().position(|watch| watch.name() == event.id) {
                if event.kind == ffi::CM_DEVICE_REMOVAL {
                    Device::was_removed(&self.watches.swap_remove(at));
                }
                continue;
            }
            // Requests that nobody has opened yet have their events here. What became of them is
            // seen when they are.
            if event.id != self.id.name() {
                continue;
            }
            match event.kind {
                ffi::CM_DEVICE_REMOVAL => {
                    Device::was_removed(&self.id);
                    return Ok(Some(ListenerEvent::DeviceRemoved));
                }
                ffi::CM_ADDR_CHANGE => return Ok(Some(ListenerEvent::AddressChanged)),
                _ => {}
            }
        }
        Ok(None)
    }
}

impl Listener {
    /// From now on the removal of a request's device is reported, also when nothing is left of its
    /// connections.
    fn watch(&mut self, request: &Id) {
        let is_watched = |watch: &Id| watch.context() == request.context();
        if self.id.context().is_some() || self.watches.iter().any(is_watched) {
            return;
        }
        // Fails if the device is going already; its queue pairs are notified then.
        let bound = Id::new(self.id.functions(), Arc::clone(self.id.channel())).and_then(|mut id| {
            id.bind(with_port(request.local(), 0))?;
            Ok(id)
        });
        self.watches.extend(bound.ok().filter(is_watched));
    }
}

/// Why nobody can listen at an address.
fn explain(error: Error, address: SocketAddr) -> Error {
    let Error::Call { source, .. } = &error else { return error };
    match (source.kind(), source.raw_os_error()) {
        (io::ErrorKind::AddrInUse, _) => Error::AddressInUse(address),
        (io::ErrorKind::AddrNotAvailable, _) | (_, Some(libc::ENODEV)) => Error::NoDevice(address.ip()),
        _ => error,
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("local", &self.local).finish_non_exhaustive()
    }
}

/// A request that is neither accepted nor rejected.
pub(crate) struct Request {
    /// Has its events with its listener until it is opened.
    id: Id,
    device: Arc<Device>,
    attributes: DeviceAttributes,
    private_data: Vec<u8>,
    offered: Depths,
}

impl Request {
    fn new(id: Id, event: CmEvent) -> Result<Request, Error> {
        let device = Device::for_id(&id)?;
        let protocol = inventory::protocol(id.functions(), device.context(), id.port(), id.local().ip());
        let attributes = DeviceAttributes { protocol, ..device.attributes().clone() };
        let offered = Depths { responder_resources: event.responder_resources, initiator_depth: event.initiator_depth };
        Ok(Request { id, device, attributes, private_data: event.private_data, offered })
    }

    pub(crate) fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        self.id.remote()
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.id.local()
    }

    pub(crate) fn responder_resources(&self) -> u8 {
        self.offered.responder_resources
    }

    pub(crate) fn initiator_depth(&self) -> u8 {
        self.offered.initiator_depth
    }

    pub(crate) fn device(&self) -> &DeviceAttributes {
        &self.attributes
    }

    pub(crate) fn open(mut self: Box<Self>, attributes: &Attributes) -> Result<QueuePair, (Box<Request>, Error)> {
        if let Err(error) = self.id.migrate() {
            return Err((self, error));
        }
        let Request { id, device, attributes: can, private_data, offered } = *self;
        QueuePair::open(id, &device, Some(offered), attributes)
            .map_err(|(id, error)| (Box::new(Request { id, device, attributes: can, private_data, offered }), error))
    }

    pub(crate) fn reject(mut self, private_data: &[u8]) -> Result<(), Error> {
        let max = REJECT_PRIVATE_DATA_MAX;
        if private_data.len() > max {
            return Err(Error::PrivateData { length: private_data.len(), max });
        }
        self.id.reject(private_data)
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("remote", &self.remote()).field("local", &self.local()).finish_non_exhaustive()
    }
}
