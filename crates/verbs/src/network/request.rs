//! A request for a connection, on the passive side.

use std::net::SocketAddr;

use crate::select::either;
use crate::{Attributes, DeviceAttributes, Error, QueuePair, simulated, system};

/// A host asks for a connection. Dropping it rejects it, without private data.
#[derive(Debug)]
pub struct Request(Inner);

#[derive(Debug)]
enum Inner {
    System(Box<system::Request>),
    Simulated(simulated::Request),
}

impl Request {
    /// The host's private data; with RoCE followed by zeros up to
    /// [`REQUEST_PRIVATE_DATA_MAX`](crate::REQUEST_PRIVATE_DATA_MAX).
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        either!(&self.0, request => request.private_data())
    }

    /// The host's address.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        either!(&self.0, request => request.remote())
    }

    /// The address that the host has reached.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        either!(&self.0, request => request.local())
    }

    /// How many RDMA READs the host wants to have outstanding (its `initiator_depth`): the most
    /// that `responder_resources` of the acceptance can usefully be.
    #[must_use]
    pub fn responder_resources(&self) -> u8 {
        either!(&self.0, request => request.responder_resources())
    }

    /// How many RDMA READs the host serves at a time (its `responder_resources`): the most that
    /// `initiator_depth` of the acceptance may be.
    #[must_use]
    pub fn initiator_depth(&self) -> u8 {
        either!(&self.0, request => request.initiator_depth())
    }

    /// The device that the connection would be on.
    #[must_use]
    pub fn device(&self) -> &DeviceAttributes {
        either!(&self.0, request => request.device())
    }

    /// Makes a queue pair for the connection and posts its receives. The host learns nothing of it
    /// before [`QueuePair::accept`].
    ///
    /// # Errors
    /// The device has not enough resources. The request can still be rejected.
    pub fn open(self, attributes: &Attributes) -> Result<QueuePair, (Request, Error)> {
        match self.0 {
            Inner::System(request) => match request.open(attributes) {
                Ok(queue_pair) => Ok(queue_pair.into()),
                Err((request, error)) => Err((request.into(), error)),
            },
            Inner::Simulated(request) => match request.open(attributes) {
                Ok(queue_pair) => Ok(queue_pair.into()),
                Err((request, error)) => Err((request.into(), error)),
            },
        }
    }

    /// Refuses the connection.
    ///
    /// # Errors
    /// The private data are longer than
    /// [`REJECT_PRIVATE_DATA_MAX`](crate::REJECT_PRIVATE_DATA_MAX), or the system fails. The host
    /// is refused in any case.
    pub fn reject(self, private_data: &[u8]) -> Result<(), Error> {
        either!(self.0, request => request.reject(private_data))
    }
}

impl From<Box<system::Request>> for Request {
    fn from(request: Box<system::Request>) -> Self {
        Self(Inner::System(request))
    }
}

impl From<simulated::Request> for Request {
    fn from(request: simulated::Request) -> Self {
        Self(Inner::Simulated(request))
    }
}
