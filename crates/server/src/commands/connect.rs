//! Connect: how a connection becomes a queue.

use ebof_fabrics::{Arrival, Attachment, Executing, Handle, Queue, Refusal, Step, Task};

use crate::commands::counters::text;
use crate::link::{End, Link};
use crate::observe::log_limit::Kind;
use crate::ports::peer::Peer;
use crate::shared::reactor_context::ReactorContext;
use crate::shared::reports;

/// What the registry has decided about Connect.
pub(crate) struct Decided {
    pub(crate) step: Step,
    /// The connection is a queue now, whose host may have to prove who it is.
    pub(crate) is_connected: bool,
}

/// Has the registry decide about Connect, whose data have come.
pub(crate) fn decide(
    queue: &mut Queue,
    handle: Handle,
    (executing, data): (Executing, &[u8]),
    link: &Link,
    context: &ReactorContext<'_>,
) -> Decided {
    let peer = link.peer();
    let arrival = arrival(handle, peer);
    let mut registry = context.shared.registry();
    let (step, refusal) = registry.connect(queue, executing, data, &arrival, context.now_ms);
    // Under the lock, so that a later notice does not overtake one.
    context.shared.deliver(registry.take_notices());
    drop(registry);
    let is_deferred = matches!(step, Step::Execute(_, Task::DeferConnect(_)));
    if let Some(refusal) = &refusal {
        context.shared.refuse_connect(peer, refusal);
    } else if is_deferred {
        tracing::debug!(peer = %peer.address, "Connect waits for the host's earlier queues");
    }
    Decided { step, is_connected: queue.is_connected() }
}

/// Has the registry decide about a host that is attached directly, without a Connect.
///
/// # Errors
/// It is refused.
pub(crate) fn attach(
    queue: &mut Queue,
    handle: Handle,
    attachment: &Attachment,
    link: &Link,
    context: &ReactorContext<'_>,
) -> Result<(), End> {
    let peer = link.peer();
    let arrival = arrival(handle, peer);
    let mut registry = context.shared.registry();
    let attached = registry.attach(queue, attachment, &arrival, context.now_ms);
    context.shared.deliver(registry.take_notices());
    drop(registry);
    attached.map_err(|refusal: Refusal| {
        context.shared.refuse_connect(peer, &refusal);
        End::NotAttached(refusal.reason)
    })
}

fn arrival(handle: Handle, peer: &Peer) -> Arrival {
    Arrival {
        handle,
        port: peer.port.id,
        local: peer.local(),
        peer: peer.address.to_string(),
        network: peer.address.network(),
        channel: peer.channel.clone(),
    }
}

/// The connection is a queue that executes commands: reports it and logs it.
pub(crate) fn report(queue: &Queue, link: &Link, context: &ReactorContext<'_>) {
    let shared = context.shared;
    if queue.is_admin()
        && let Some(association) = queue.association()
    {
        reports::connected(shared, association, link.peer());
    }
    shared.wake_control();
    let host = text(queue.host());
    let subsystem = text(queue.subsystem());
    let id = queue.id().map_or(0, |id| id.0);
    let entries = queue.submission_queue().map(|queue| queue.entries);
    let about = link.peer().about();
    let peer = link.peer().address;
    if let Some(more) = shared.may_log(about.clone(), Kind::Connected) {
        tracing::info!(%peer, host, subsystem, queue = id, entries, "connected{more}");
    }
    if let Some(tolerated) = queue.tolerated()
        && let Some(more) = shared.may_log(about, Kind::Tolerated)
    {
        tracing::info!(%peer, host, subsystem, queue = id, "accepted although {tolerated}{more}");
    }
}
