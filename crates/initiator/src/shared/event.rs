//! Events of a connected controller.

use std::fmt;

use ebof_nvme::Nsid;
use ebof_nvme::event::EventType;
use ebof_nvme::log::Lid;

use crate::command::troubles::Trouble;

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
    /// Trouble that went unnoticed otherwise: the first of its kind, and then how many more there
    /// were in each minute.
    Trouble {
        /// Of which kind.
        trouble: Trouble,
        /// How many since the last report.
        count: u64,
    },
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

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NamespaceAdded(nsid) => write!(f, "namespace {nsid} was added"),
            Self::NamespaceRemoved(nsid) => write!(f, "namespace {nsid} was removed"),
            Self::NamespaceChanged(nsid) => write!(f, "namespace {nsid} changed"),
            Self::NamespaceReplaced(nsid) => write!(f, "namespace {nsid} is another one now"),
            Self::DiscoveryChanged => f.write_str("the discovery log changed"),
            Self::ConnectionLost(reason) => write!(f, "the connection is lost: {reason}"),
            Self::Reconnected => f.write_str("the connection is back"),
            Self::GaveUp(reason) => write!(f, "the controller is given up: {reason}"),
            Self::Trouble { trouble, count } => write!(f, "{count} {trouble}"),
            Self::Asynchronous { kind, info, log_page } => {
                let of = if EventType::decode(*kind) == EventType::Notice { "notice" } else { "event" };
                write!(f, "{of} {info:02x}h of type {kind}h, log page {log_page:02x}h")?;
                match Lid(*log_page).name() {
                    Some(name) => write!(f, " ({name})"),
                    None => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_in_words() {
        let ana = Event::Asynchronous { kind: 2, info: 3, log_page: 0x0c };
        assert_eq!(ana.to_string(), "notice 03h of type 2h, log page 0ch (Asymmetric Namespace Access)");
        assert_eq!(Event::NamespaceAdded(Nsid(3)).to_string(), "namespace 3 was added");
    }
}
