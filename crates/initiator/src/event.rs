//! Events of a connected controller.

use ebof_nvme::Nsid;

/// Something that happened to a controller; see [`crate::Controller::events`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A namespace was added.
    NamespaceAdded(Nsid),
    /// A namespace was removed.
    NamespaceRemoved(Nsid),
    /// A namespace changed: its size, its write protection, anything in its Identify data.
    NamespaceChanged(Nsid),
    /// An open namespace was replaced or reformatted: its handles fail from now on, and it can be
    /// opened again.
    NamespaceReplaced(Nsid),
    /// The discovery log changed: read it again.
    DiscoveryChanged,
    /// The connection is lost and reconnecting has begun. With the reason.
    ConnectionLost(String),
    /// The connection is back.
    Reconnected,
    /// Reconnecting was given up: the controller is dead. With the reason.
    GaveUp(String),
    /// Any other asynchronous event: type, information and log page of the completion's dword 0.
    Asynchronous {
        /// Event type.
        kind: u8,
        /// Event information.
        info: u8,
        /// Log page with details (LID).
        log_page: u8,
    },
}
