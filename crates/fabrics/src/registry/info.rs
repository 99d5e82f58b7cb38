//! Controllers and queues for status and metrics.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use ebof_nvme::{ControllerId, HostId, Nqn, QueueId};

use super::controllers::ControllerEntry;
use crate::association::{Association, Counts};
use crate::model::PortId;
use crate::task::handle::Handle;

/// A controller, for status and metrics.
#[derive(Clone, Debug)]
pub struct ControllerInfo {
    /// Host, subsystem and port; also whether the controller is ready.
    pub association: Arc<Association>,
    /// The subsystem.
    pub subsystem: Nqn,
    /// The controller.
    pub cntlid: ControllerId,
    /// The host.
    pub host: Nqn,
    /// The host's identifier.
    pub host_id: HostId,
    /// The port.
    pub port: PortId,
    /// The host's address.
    pub peer: String,
    /// Whether it is a discovery controller.
    pub discovery: bool,
    /// When the Admin Queue was connected, on the clock of `now_ms`.
    pub connected_ms: u64,
    /// Keep alive time-out, 0 for none.
    pub keep_alive_ms: u32,
    /// Its queues, the Admin Queue first.
    pub queues: Vec<QueueInfo>,
}

/// A queue, for status and metrics.
#[derive(Clone, Debug)]
pub struct QueueInfo {
    /// The queue.
    pub id: QueueId,
    /// Its connection.
    pub handle: Handle,
    /// Its entries.
    pub entries: u32,
    /// Its counters.
    pub counts: Counts,
}

impl ControllerInfo {
    /// What there is to say of it now.
    pub(super) fn of(entry: &ControllerEntry) -> Self {
        let association = &entry.association;
        let queues = entry.queues.iter();
        Self {
            association: Arc::clone(association),
            subsystem: association.subsystem.clone(),
            cntlid: association.cntlid,
            host: association.host.clone(),
            host_id: association.host_id(),
            port: association.port.id,
            peer: entry.peer.clone(),
            discovery: association.discovery,
            connected_ms: entry.connected_ms,
            keep_alive_ms: association.keep_alive_ms.load(Ordering::Relaxed),
            queues: queues
                .map(|queue| QueueInfo {
                    id: queue.id,
                    handle: queue.handle,
                    entries: queue.entries.into(),
                    counts: queue.counters.read(),
                })
                .collect(),
        }
    }
}
