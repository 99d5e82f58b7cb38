//! The transport of a connection that a reactor gets.

use std::sync::Arc;

use ebof_fabrics::{Attachment, Handle};

use crate::link::{AnyTransport, InMemory, Loopback, Rdma, Tcp};
use crate::ports::peer::Peer;
use crate::shared::Shared;
use crate::shared::mailbox::{Incoming, Mailbox, Message};

/// The transport of a connection, and what its host says with it if that is attached without a
/// Connect.
///
/// # Panics
/// It is a client of vfio-user: its queues become connections later.
pub(super) fn open(
    incoming: Incoming,
    handle: Handle,
    peer: &Peer,
    mailbox: &Mailbox,
    shared: &Shared,
) -> (AnyTransport, Option<Attachment>) {
    let bell = || {
        let mailbox = mailbox.clone();
        Arc::new(move || mailbox.post(Message::Arrived { handle }))
    };
    match incoming {
        Incoming::Tcp(stream) => {
            (AnyTransport::Tcp(Tcp::new(stream, &peer.port, shared.settings.zerocopy_copied_max)), None)
        }
        Incoming::Rdma(connection) => {
            (AnyTransport::Rdma(Box::new(Rdma::new(*connection, peer.address, bell()))), None)
        }
        Incoming::Loopback(end) => {
            let attachment = end.attachment().map(|said| attachment_of(said, end.entries()));
            (AnyTransport::InMemory(InMemory::Loopback(Loopback::new(end, bell()))), attachment)
        }
        Incoming::Direct(_) => unreachable!("a reactor gives it to `DirectHosts`"),
    }
}

/// What a host says that is attached over the in-memory transport, with a queue of so many entries.
fn attachment_of(said: &ebof_loopback::Attachment, entries: usize) -> Attachment {
    let ebof_loopback::Attachment { queue, controller, subsystem, host, host_id } = said.clone();
    let entries = u32::try_from(entries).unwrap_or(u32::MAX);
    Attachment { queue, entries, controller, subsystem, host, host_id }
}
