//! The passive side: listeners, and requests of hosts.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::pair::{Asked, Pair, Side};
use super::queue_pair::{QueuePair, padded};
use super::shared::{Backlog, NetworkState, Stopped};
use crate::{Attributes, Bell, DeviceAttributes, Error, Event, REJECT_PRIVATE_DATA_MAX};

/// Listens at an address.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) shared: Arc<NetworkState>,
    pub(crate) backlog: Arc<Backlog>,
}

/// What has happened at the address.
pub(crate) enum ListenerEvent {
    Request(Request),
    AddressChanged,
    DeviceRemoved,
}

/// A host asks for a connection.
#[derive(Debug)]
pub(crate) struct Request {
    shared: Arc<NetworkState>,
    pair: Arc<Pair>,
    asked: Asked,
    /// It was accepted as a queue pair, or rejected.
    over: bool,
}

impl Listener {
    #[expect(clippy::unused_self, reason = "its counterpart of the system has one")]
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    pub(crate) fn set_bell(&self, bell: Bell) {
        self.backlog.set_bell(bell);
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.backlog.address
    }

    #[expect(clippy::unnecessary_wraps, reason = "its counterpart of the system can fail")]
    pub(crate) fn poll(&mut self) -> Result<Option<ListenerEvent>, Error> {
        Ok(match self.backlog.take_ended() {
            Some(Stopped::AddressChanged) => Some(ListenerEvent::AddressChanged),
            Some(Stopped::DeviceRemoved) => Some(ListenerEvent::DeviceRemoved),
            None => {
                let request = self.backlog.pop();
                request.map(|(pair, asked)| ListenerEvent::Request(self.request(pair, asked)))
            }
        })
    }

    fn request(&self, pair: Arc<Pair>, asked: Asked) -> Request {
        Request { shared: Arc::clone(&self.shared), pair, asked, over: false }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        {
            let mut parts = self.shared.parts();
            let address = self.backlog.address;
            if parts.listeners.get(&address).is_some_and(|other| Arc::ptr_eq(other, &self.backlog)) {
                parts.listeners.remove(&address);
            }
        }
        // Dropping them rejects them.
        for (pair, asked) in self.backlog.close() {
            drop(self.request(pair, asked));
        }
    }
}

impl Request {
    pub(crate) fn private_data(&self) -> &[u8] {
        &self.asked.private_data
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        self.pair.addresses[Side::Host as usize]
    }

    pub(crate) fn local(&self) -> SocketAddr {
        self.pair.addresses[Side::Target as usize]
    }

    pub(crate) fn responder_resources(&self) -> u8 {
        self.asked.responder_resources
    }

    pub(crate) fn initiator_depth(&self) -> u8 {
        self.asked.initiator_depth
    }

    pub(crate) fn device(&self) -> &DeviceAttributes {
        &self.shared.device
    }

    pub(crate) fn open(mut self, attributes: &Attributes) -> Result<QueuePair, (Self, Error)> {
        match QueuePair::open(&self.shared, &self.pair, Side::Target, attributes) {
            Ok(queue_pair) => {
                self.over = true;
                Ok(queue_pair)
            }
            Err(error) => Err((self, error)),
        }
    }

    pub(crate) fn reject(mut self, private_data: &[u8]) -> Result<(), Error> {
        // The longest that can be sent: the host is refused in any case.
        let sent = &private_data[..private_data.len().min(REJECT_PRIVATE_DATA_MAX)];
        self.refuse(padded(sent, REJECT_PRIVATE_DATA_MAX, self.shared.pads())?);
        padded(private_data, REJECT_PRIVATE_DATA_MAX, false).map(drop)
    }

    fn refuse(&mut self, private_data: Vec<u8>) {
        self.over = true;
        self.pair.with(|state| {
            if !std::mem::replace(&mut state.ended, true) && !state.cut {
                state.tell(Side::Host, Event::Rejected { reason: Event::BY_CONSUMER, private_data });
                state.fail(Side::Host);
            }
        });
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.over {
            let nothing = if self.shared.pads() { vec![0; REJECT_PRIVATE_DATA_MAX] } else { Vec::new() };
            self.refuse(nothing);
        }
    }
}
