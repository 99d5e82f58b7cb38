//! What queues share: the model in force, the controllers, and who is told of changes.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_nvme::{ControllerId, HostId, Nqn, Nsid, QueueId};

use crate::association::{Association, Counts};
use crate::connect::{Arrival, Refusal};
use crate::model::{Limits, Model, PortId, Subsystem};
use crate::queue::Queue;
use crate::step::{Executing, Step};

/// The target's name for a connection; never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// What a queue must be told: `Queue::notify`, on the thread that owns it.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The association has ended: tell the queue, then close the connection.
    Close(CloseReason),
    /// The subsystem changed.
    Subsystem(Arc<Subsystem>),
    /// What this host may discover has changed.
    Discovery,
}

/// Notices and whom they are for.
pub type Notices = Vec<(Handle, Notice)>;

/// Why an association ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CloseReason {
    /// The connection of the Admin Queue is gone.
    #[error("the connection of the Admin Queue ended")]
    AdminQueueLost,
    /// No command within the keep alive time-out.
    #[error("keep alive time-out")]
    KeepAlive,
    /// The host did not enable the controller in time.
    #[error("the host did not enable the controller in time")]
    NotEnabled,
    /// The subsystem is no longer served, or not on this port.
    #[error("the subsystem was removed")]
    SubsystemRemoved,
    /// The host may no longer use the subsystem.
    #[error("the host is no longer allowed")]
    HostNotAllowed,
}

/// A host changed the write protection of a namespace (feature 84h): to be kept by who keeps the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectionChange {
    /// The subsystem.
    pub subsystem: Nqn,
    /// The namespace.
    pub nsid: Nsid,
    /// Whether it is now write protected.
    pub protected: bool,
}

/// A controller, for status and metrics.
#[derive(Clone, Debug)]
pub struct ControllerInfo {
    /// Who and where; also whether it is ready.
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
    /// What it has done.
    pub counts: Counts,
}

/// Everything that queues share. It has no lock inside: the target puts one around it.
#[derive(Debug)]
pub struct Registry {
    limits: Limits,
}

impl Registry {
    /// An empty registry that serves `model`. `seed` decides with which controller IDs it begins, so that a host of an
    /// earlier life of the target does not hit another host's controller.
    #[must_use]
    pub fn new(limits: Limits, model: Arc<Model>, seed: u64) -> Self {
        let _ = (model, seed);
        Self { limits }
    }

    /// The model in force.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        todo!()
    }

    /// Serves `model` from now on. Deliver the notices; devices that the new model lacks may go once every queue has
    /// had its notice and what it had under way is complete.
    pub fn replace_model(&mut self, model: Arc<Model>) -> Notices {
        let _ = model;
        todo!()
    }

    /// Decides a [`Step::Connect`]; `data` is what the host sent as Connect data. After a refusal the queue may try
    /// again.
    pub fn connect(
        &mut self,
        queue: &mut Queue,
        executing: Executing,
        data: &[u8],
        arrival: &Arrival,
        now_ms: u64,
    ) -> (Step, Option<Refusal>) {
        let _ = (queue, executing, data, arrival, now_ms);
        todo!()
    }

    /// Executes a [`Step::Shared`] command of `queue`. Deliver the notices also when the step is a refusal.
    pub fn execute(&mut self, queue: &mut Queue, executing: Executing, now_ms: u64) -> (Step, Notices) {
        let _ = (queue, executing, now_ms);
        todo!()
    }

    /// What hosts changed in the write protection of namespaces since the last call.
    pub fn take_protection_changes(&mut self) -> Vec<ProtectionChange> {
        todo!()
    }

    /// The connection `handle` has ended and its queue is gone (also for connections that never had one).
    pub fn closed(&mut self, handle: Handle) -> Notices {
        let _ = handle;
        todo!()
    }

    /// Ends the associations whose time is up. Each is reported once; it is gone when all its connections are
    /// [`closed`](Self::closed).
    pub fn expire(&mut self, now_ms: u64) -> Notices {
        let _ = now_ms;
        todo!()
    }

    /// When [`expire`](Self::expire) has to be called next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        todo!()
    }

    /// The controllers.
    pub fn controllers(&self) -> impl Iterator<Item = ControllerInfo> + '_ {
        let _ = &self.limits;
        core::iter::empty()
    }
}
