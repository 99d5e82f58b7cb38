//! Notices from the registry to queues.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use ebof_authentication::Explanation;
use ebof_nvme::Nsid;
use ebof_nvme::command::ControllerInstance;
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::log::ReservationEvent;

use crate::connect::RefusalReason;
use crate::model::Subsystem;
use crate::model::secrets::HostSecrets;
use crate::task::handle::Handle;

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
    /// A controller that this one was asked to reset is gone, with all that it had at devices.
    ControllerReset(ControllerInstance),
    /// The host has other secrets.
    Secrets(Arc<HostSecrets>),
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
    /// The host has had the controller reset by another one (Cross-Controller Reset).
    #[error("the host had the controller reset through another path")]
    ResetByHost,
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
    /// The host has to prove who it is from now on.
    #[error("the host has to prove who it is from now on")]
    ProofDemanded,
    /// The host has to come over TLS from now on.
    #[error("the host has to connect over TLS from now on")]
    TlsDemanded,
    /// The target has no key any more by which the host has proven who it is.
    #[error("the key that the host has proven itself by was removed")]
    KeyRemoved,
    /// The host did not prove who it is.
    #[error("the host did not prove who it is: {0}")]
    NotAuthenticated(Explanation),
    /// The host does not accept this controller, or gave up.
    #[error("the host ended its authentication: {}", OfHost(*.0))]
    HostGaveUp(Option<Explanation>),
    /// The host had not proven who it is, when others came and there were too many of such.
    #[error("too many hosts connect without having proven who they are, and this one had to make room")]
    MadeRoom,
    /// The host proved who it is, and what it wants is taken by now.
    #[error("the host proved who it is too late: {0}")]
    NotAdmitted(RefusalReason),
}

/// What a host says of the end of its authentication.
struct OfHost(Option<Explanation>);

impl fmt::Display for OfHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(explanation) => write!(f, "{explanation}"),
            None => f.write_str("with an explanation that is unknown here"),
        }
    }
}
