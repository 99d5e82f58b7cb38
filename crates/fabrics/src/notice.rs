//! Notices from the registry to queues, and the handles of the connections that they go to.

use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_nvme::Nsid;
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::log::ReservationEvent;

use crate::model::Subsystem;

/// The target's name for a connection; never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub u64);

/// A notice to a queue, for `Queue::notify` on the thread that owns it.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The association has ended: notify the queue, then close the connection.
    Close(CloseReason),
    /// The subsystem changed.
    Subsystem(Arc<Subsystem>),
    /// What this host may discover has changed.
    Discovery,
    /// Something happened to the drive.
    Event(AsyncEvent),
    /// Another host changed what this one had registered or held.
    Reservation(Nsid, ReservationEvent),
    /// A Connect that was held ([`Task::DeferConnect`](crate::Task::DeferConnect)) is to be tried
    /// again.
    Connect,
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
    /// The port is no longer served.
    #[error("the port was removed")]
    PortRemoved,
    /// The subsystem is no longer served, or not on this port.
    #[error("the subsystem was removed")]
    SubsystemRemoved,
    /// The function was taken offline, or given to another port.
    #[error("the function was taken offline, or given to another port")]
    FunctionTaken,
    /// The host may no longer use the subsystem.
    #[error("the host is no longer allowed")]
    HostNotAllowed,
}
