//! What happens to a connected controller without being asked for.

use ebof_nvme::Nsid;

/// Something that happened to a controller; see [`crate::Controller::events`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A namespace is there that was not.
    NamespaceAdded(Nsid),
    /// A namespace is gone.
    NamespaceRemoved(Nsid),
    /// A namespace changed: its size, its write protection, anything in its Identify data.
    NamespaceChanged(Nsid),
    /// An open namespace is another one now, or has other blocks: handles of it get errors from
    /// here on, and what is there now can be opened anew.
    NamespaceReplaced(Nsid),
    /// The discovery log changed: read it again.
    DiscoveryChanged,
    /// The connection is lost; reconnecting has begun. Says why.
    ConnectionLost(String),
    /// The connection is back.
    Reconnected,
    /// Reconnecting was given up: the controller is dead. Says why.
    GaveUp(String),
    /// Any other asynchronous event: type, information and log page of the completion's dword 0.
    Asynchronous {
        /// Event type.
        kind: u8,
        /// Event information.
        info: u8,
        /// Log page that tells more (LID).
        log_page: u8,
    },
}
