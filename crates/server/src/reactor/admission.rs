//! Admission of connections over any transport: checks the limits, counts the connection, and hands
//! it to a reactor.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ebof_loopback::{ConnectError, Port, TargetEnd};
use ebof_manage::api::RefusalReason;

use crate::observe::log_limit::Network;
use crate::ports::peer::{Peer, PeerAddress};
use crate::ports::port::PortState;
use crate::shared::Shared;
use crate::shared::host_limits::{self, Waiting};
use crate::shared::mailbox::{Accepted, Incoming, Message};

/// Connections not admitted yet that one address may always have: a host connects several at a
/// time.
const UNADMITTED_MIN: u32 = 4;

/// There is no room for a connection; the refusal is in the connection log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoRoom;

/// Checks whether there is room for a connection. Returns the count that it is part of until it is
/// admitted, if it comes from the network.
pub(crate) fn room_for(shared: &Shared, address: PeerAddress, port: &PortState) -> Result<Option<Waiting>, NoRoom> {
    let max = shared.settings.connections_max;
    if shared.connections.load(Relaxed) >= max {
        let detail = format!("{max} connections are open, which is the limit");
        shared.refuse(address, port, RefusalReason::TooManyConnections, None, None, detail);
        return Err(NoRoom);
    }
    let PeerAddress::Network { remote, .. } = address else { return Ok(None) };
    let most = host_limits::percent_of(max, shared.settings.address_share_percent).max(UNADMITTED_MIN);
    let from: IpAddr = remote.ip();
    let Some(waiting) = shared.unadmitted.enter(Network::from_address(from), most) else {
        let detail = format!("{most} connections from there are not admitted yet, which is the share of one address");
        shared.refuse(address, port, RefusalReason::AddressShare, None, None, detail);
        return Err(NoRoom);
    };
    Ok(Some(waiting))
}

/// Hands a connection, for which there is room, to a reactor.
pub(crate) fn hand_over(shared: &Shared, reactor: usize, incoming: Incoming, peer: Peer, waiting: Option<Waiting>) {
    shared.connections.fetch_add(1, Relaxed);
    peer.port.counts.connections.fetch_add(1, Relaxed);
    peer.port.counts.accepted.fetch_add(1, Relaxed);
    let mailbox = shared.reactors().get(reactor).expect("it is one of them that was chosen");
    mailbox.post(Message::Accept(Accepted { incoming, peer, waiting }));
}

/// The port at which hosts in this process reach `port`. Connections go to the reactors round
/// robin.
pub(crate) fn loopback(shared: &Arc<Shared>, port: &Arc<PortState>) -> Port {
    let shared = Arc::downgrade(shared);
    let port = Arc::clone(port);
    Port::new(move |end: TargetEnd| {
        let shared = shared.upgrade().filter(|shared| !shared.stopping.load(Relaxed));
        let shared = shared.ok_or(ConnectError::NotListening)?;
        let address = PeerAddress::SameProcess;
        let waiting = room_for(&shared, address, &port).map_err(|NoRoom| ConnectError::TooMany)?;
        let reactor = shared.next_reactor();
        let peer = Peer::new(Arc::clone(&port), address);
        hand_over(&shared, reactor, Incoming::Loopback(end), peer, waiting);
        Ok(())
    })
}
