//! Requests for connections over RDMA: what a host asks for is checked before anything is allocated
//! for it, then it has a queue pair, and a reactor has the connection.

use std::net::SocketAddr;
use std::sync::Arc;

use ebof_manage::api::RefusalReason;
use ebof_rdma::controller::{Accepted, Connection, Limits};
use ebof_rdma::private_data::{ConnectReject, RejectStatus};
use ebof_verbs::{Attributes, DeviceAttributes, Error, Handshake, ListenerEvent, Request};

use crate::observe::log_limit::Kind;
use crate::ports::listener::RdmaListener;
use crate::ports::peer::{Peer, PeerAddress};
use crate::ports::port::PortState;
use crate::ports::rdma_connection::{RdmaConnection, Registered, Reserved};
use crate::ports::shared_receives::{NoMemory, Share, Wish};
use crate::reactor::admission;
use crate::shared::Shared;
use crate::shared::mailbox::Incoming;

/// Requests taken from one listener before the others are looked at.
const ACCEPT_BATCH: usize = 64;

/// What hosts give the Admin Queue, and always may.
const ADMIN_ENTRIES: u16 = 32;

/// How often an adapter repeats what was not acknowledged.
const RETRIES: u8 = 7;

/// A message for which the host has posted no receive is repeated until it has: one that never does
/// is a peer that reads nothing.
const REPEAT_UNTIL_READY: u8 = 7;

/// What has become of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accepting {
    /// It goes on.
    Goes,
    /// Its device is gone, or has another address now.
    Lost,
}

/// Takes the requests that are there.
///
/// # Errors
/// The system fails.
pub(crate) fn accept_some(shared: &Shared, listener: &RdmaListener, port: &Arc<PortState>) -> Result<Accepting, Error> {
    for _ in 0..ACCEPT_BATCH {
        match listener.next()? {
            None => return Ok(Accepting::Goes),
            Some(ListenerEvent::Request(request)) => admit(shared, request, port),
            Some(event @ (ListenerEvent::AddressChanged | ListenerEvent::DeviceRemoved)) => {
                let what = if matches!(event, ListenerEvent::DeviceRemoved) { "was removed" } else { "has changed" };
                tracing::warn!(
                    port = port.name,
                    address = %listener.address(),
                    "the RDMA device of the port {what}: it listens again as soon as a device has its address"
                );
                return Ok(Accepting::Lost);
            }
        }
    }
    // There may be more, for which a bell does not ring again.
    shared.wake_control();
    Ok(Accepting::Goes)
}

/// Admits a connection, or refuses it.
fn admit(shared: &Shared, request: Request, port: &Arc<PortState>) {
    let remote = SocketAddr::new(request.remote().ip().to_canonical(), request.remote().port());
    let address = PeerAddress::Network { remote, local: request.local() };
    let refuse = |reason, detail| shared.refuse(address, port, reason, None, None, detail);
    let Ok(waiting) = admission::room_for(shared, address, port) else {
        return reject(request, RejectStatus::NO_RESOURCES);
    };
    let limits = limits(port, request.device());
    let accepted = match Connection::accept(request.private_data(), &limits, request.initiator_depth()) {
        Ok(accepted) => accepted,
        Err(status) => {
            let meaning = status.meaning().unwrap_or("unknown reason");
            refuse(
                reason_of(status),
                format!("the private data of the request: {meaning}; rejected with {}", status.0),
            );
            return reject(request, status);
        }
    };
    let reactor = shared.next_reactor();
    let (share, memory) = match reserve(shared, port, reactor, request.device(), &accepted) {
        Ok(reserved) => reserved,
        Err(NoMemory { bytes }) => {
            let detail = format!(
                "queue {} wants {bytes} bytes for its capsules, and {} bytes are for all",
                accepted.request.qid,
                shared.message_memory.max_bytes()
            );
            refuse(RefusalReason::NoResources, detail);
            return reject(request, RejectStatus::NO_RESOURCES);
        }
    };
    let Accepted { connection: core, request: asked, reply, receives, receive_bytes, sends, send_bytes, .. } = accepted;
    let operations = accepted.operations;
    let sends_with_invalidate = request.device().send_with_invalidate;
    let shared_receives = share.as_ref().map(Share::receives);
    let attributes =
        Attributes { receives, receive_bytes, sends, send_bytes, operations, shared_receives, ..Attributes::default() };
    let mut pair = match request.open(&attributes) {
        Ok(pair) => pair,
        Err((request, error)) => {
            refuse(
                RefusalReason::NoResources,
                format!("no queue pair for queue {}: {error}; rejected with {}", asked.qid, RejectStatus::NO_RESOURCES),
            );
            return reject(request, RejectStatus::NO_RESOURCES);
        }
    };
    let handshake = Handshake {
        private_data: &reply,
        // Hosts read nothing of this end.
        responder_resources: 0,
        initiator_depth: accepted.reads,
        retry_count: RETRIES,
        rnr_retry_count: REPEAT_UNTIL_READY,
    };
    if let Err(error) = pair.accept(&handshake) {
        if let Some(more) = shared.may_log(remote.ip().into(), Kind::NotAccepted) {
            tracing::warn!(peer = %remote, port = port.name, "a connection ended before it was accepted: {error}{more}");
        }
        return;
    }
    let shares_receives = share.is_some();
    let pair = Registered::new(pair, share, memory);
    let entries = receives;
    let is_busy_polled = port.polls_us() > 0;
    let connection =
        RdmaConnection { core, sends, entries, sends_with_invalidate, shares_receives, is_busy_polled, pair };
    let peer = Peer::new(Arc::clone(port), address);
    admission::hand_over(shared, reactor, Incoming::Rdma(Box::new(connection)), peer, waiting);
}

/// The memory for a connection's capsules: receives of its own, or a part in those that the
/// reactor's queue pairs share, and what it sends.
fn reserve(
    shared: &Shared,
    port: &PortState,
    reactor: usize,
    device: &DeviceAttributes,
    accepted: &Accepted,
) -> Result<(Option<Share>, Reserved), NoMemory> {
    let Accepted { receives, receive_bytes, sends, send_bytes, .. } = *accepted;
    let memory = &shared.message_memory;
    let share = match port.config.srq_size {
        None => None,
        Some(count) => {
            let wish = Wish { count, bytes: receive_bytes, entries: receives };
            port.receive_sets.share(reactor, device, wish, memory)?
        }
    };
    let own = if share.is_some() { 0 } else { receives };
    let bytes = (own as usize).saturating_mul(receive_bytes as usize) + sends as usize * send_bytes as usize;
    let reserved = memory.reserve(bytes).ok_or(NoMemory { bytes })?;
    Ok((share, reserved))
}

fn limits(port: &PortState, device: &DeviceAttributes) -> Limits {
    let entries = u16::try_from(device.queue_entries).unwrap_or(u16::MAX);
    Limits {
        admin_entries: port.config.max_queue_size.max(ADMIN_ENTRIES).min(entries),
        io_entries: port.config.max_queue_size.min(entries),
        io_queues: port.config.max_io_queues,
        in_capsule_bytes: port.config.in_capsule_data_bytes,
        reads: device.initiator_depth,
        send_queue_entries: device.queue_entries,
    }
}

fn reject(request: Request, status: RejectStatus) {
    // A host that does not even take the reject learns of it all the same: the request is dropped.
    let _ = request.reject(&ConnectReject { status }.encode());
}

fn reason_of(status: RejectStatus) -> RefusalReason {
    match status {
        RejectStatus::INVALID_QID | RejectStatus::INVALID_HSQSIZE | RejectStatus::INVALID_HRQSIZE => {
            RefusalReason::QueueRefused
        }
        RejectStatus::NO_RESOURCES => RefusalReason::NoResources,
        _ => RefusalReason::NotNvme,
    }
}
