//! Connections that are being made, up to the queue pair: the address, then the route.

use std::ffi::c_int;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::cm::{Channel, Id};
use super::device::Device;
use super::load::Functions;
use super::queue_pair::QueuePair;
use super::{ffi, inventory};
use crate::{Attributes, Bell, ConnectOptions, DeviceAttributes, Error};

/// One of them.
pub(crate) struct Connecting {
    id: Id,
    to: SocketAddr,
    timeout_ms: c_int,
    /// Once the address is resolved.
    bound: Option<(Arc<Device>, DeviceAttributes)>,
    /// The route is resolved, too.
    ready: bool,
}

impl Connecting {
    pub(super) fn new(
        functions: &'static Functions,
        to: SocketAddr,
        from: Option<IpAddr>,
        options: &ConnectOptions,
    ) -> Result<Connecting, Error> {
        let timeout_ms = c_int::try_from(options.timeout.as_millis()).unwrap_or(c_int::MAX);
        let mut id = Id::new(functions, Channel::new(functions)?)?;
        if let Some(tos) = options.tos {
            id.set_option(ffi::OPTION_ID_TOS, tos)?;
        }
        let from = from.map(|ip| SocketAddr::new(ip, 0));
        id.resolve_address(from, to, timeout_ms).map_err(|error| match (from, error) {
            (Some(from), Error::Call { source, .. })
                if matches!(source.raw_os_error(), Some(libc::ENODEV | libc::EADDRNOTAVAIL)) =>
            {
                Error::NoDevice(from.ip())
            }
            (_, Error::Call { source, .. }) => Error::Address { to, source },
            (_, error) => error,
        })?;
        Ok(Connecting { id, to, timeout_ms, bound: None, ready: false })
    }

    #[expect(clippy::unnecessary_wraps, reason = "simulated ones have none")]
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.id.channel().descriptor())
    }

    /// The descriptor becomes readable.
    pub(crate) fn set_bell(&self, _bell: Bell) {}

    pub(crate) fn poll(&mut self) -> Result<bool, Error> {
        let to = self.to;
        while let Some(event) = self.id.channel().next()? {
            // With some errors librdmacm leaves -1 there, and the reason in `errno`.
            let source = || match event.status {
                -1 => io::Error::last_os_error(),
                status => io::Error::from_raw_os_error(status.saturating_abs()),
            };
            match event.kind {
                ffi::CM_ADDR_RESOLVED => {
                    let device = Device::for_id(&self.id)?;
                    let local = self.id.local().ip();
                    let protocol = inventory::protocol(self.id.functions(), device.context(), self.id.port(), local);
                    let attributes = DeviceAttributes { protocol, ..device.attributes().clone() };
                    self.bound = Some((device, attributes));
                    self.id.resolve_route(self.timeout_ms)?;
                }
                ffi::CM_ADDR_ERROR => return Err(Error::Address { to, source: source() }),
                ffi::CM_ROUTE_RESOLVED => self.ready = true,
                ffi::CM_ROUTE_ERROR => return Err(Error::Route { to, source: source() }),
                ffi::CM_DEVICE_REMOVAL => return Err(Error::DeviceRemoved),
                _ => {}
            }
        }
        Ok(self.ready)
    }

    pub(crate) fn device(&self) -> Option<&DeviceAttributes> {
        self.bound.as_ref().map(|(_, attributes)| attributes)
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        self.to
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.id.local()
    }

    pub(crate) fn open(self, attributes: &Attributes) -> Result<QueuePair, Error> {
        match self.bound {
            Some((device, _)) if self.ready => {
                QueuePair::open(self.id, &device, None, attributes).map_err(|(_, error)| error)
            }
            _ => Err(Error::State("not possible before address and route are resolved")),
        }
    }
}

impl fmt::Debug for Connecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connecting").field("to", &self.to).field("ready", &self.ready).finish_non_exhaustive()
    }
}
