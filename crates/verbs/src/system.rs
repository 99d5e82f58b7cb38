//! The RDMA devices of this machine, through rdma-core: the same handles as in the crate's root,
//! without the choice. Everything unsafe about the libraries is below this module.
//!
//! | | |
//! |---|---|
//! | `ffi`, `load` | the structures of the libraries, and their functions |
//! | `cm` | identifiers and event channels of the connection manager |
//! | `device` | an open device: its protection domain, its registered memory, its asynchronous events |
//! | `inventory` | the devices as they are listed |
//! | `listener`, `connecting` | how connections are made |
//! | `queue_pair` and `completions`, `receives`, `sends`, `windows` | the connection |

mod address;
mod cm;
mod completions;
mod connecting;
mod device;
mod ffi;
mod inventory;
mod listener;
mod load;
mod memory;
mod nudge;
mod queue_pair;
mod receives;
mod sends;
mod waits;
mod windows;

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::{ConnectOptions, DeviceInfo, Error, LoadError};

pub(crate) use connecting::Connecting;
pub(crate) use listener::{Listener, ListenerEvent, Request};
pub(crate) use queue_pair::QueuePair;

use device::Device;
use load::Functions;

/// rdma-core, loaded.
#[derive(Clone)]
pub(crate) struct Network(&'static Functions);

impl Network {
    pub(crate) fn load() -> Result<Network, LoadError> {
        load::functions().map(Network)
    }

    pub(crate) fn devices(&self) -> Result<Vec<DeviceInfo>, Error> {
        inventory::devices(self.0)
    }

    pub(crate) fn listen(&self, address: SocketAddr, backlog: u32) -> Result<Listener, Error> {
        Listener::new(self.0, address, backlog)
    }

    pub(crate) fn connect(
        &self,
        to: SocketAddr,
        from: Option<IpAddr>,
        options: &ConnectOptions,
    ) -> Result<Connecting, Error> {
        Device::close_removed();
        Connecting::new(self.0, to, from, options)
    }
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Network")
    }
}

/// The error of a function that has just failed in this thread and left its reason in `errno`.
fn last_error(call: &'static str) -> Error {
    Error::Call { call, source: io::Error::last_os_error() }
}

/// What a function means that returns 0 or an error number.
fn check(call: &'static str, returned: i32) -> Result<(), Error> {
    match returned {
        0 => Ok(()),
        // Some drivers return it negated, or -1 with `errno`.
        -1 => Err(last_error(call)),
        number => Err(Error::Call { call, source: io::Error::from_raw_os_error(number.abs()) }),
    }
}
