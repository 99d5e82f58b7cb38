//! Profiles: the limits of a kind of drive.

use serde::{Deserialize, Serialize};

/// Limits of a drive. They are announced to hosts and enforced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// Namespaces at most (NN, MNAN), 1 to [`Profile::NAMESPACES_MAX`].
    pub namespaces: u32,
    /// Namespaces that may have registrants at the same time; the others answer with Reservation
    /// Conflict to none and take no registrations.
    pub reserved_namespaces: u32,
    /// I/O queue pairs of one controller, 1 to 65535; `None`: as many as the target allows.
    pub queue_pairs: Option<u16>,
    /// Entries of a queue, 2 to 65535; `None`: as many as the target allows.
    pub queue_entries: Option<u16>,
    /// Queue entries of all queue pairs of all controllers together; `None`: no limit.
    pub queue_entries_total: Option<u32>,
    /// Firmware slots, 1 to 7.
    pub firmware_slots: u8,
    /// Endurance for Percentage Used: how many times the capacity may be written.
    pub endurance_writes: u32,
}

impl Profile {
    /// Namespaces of a drive at most.
    pub const NAMESPACES_MAX: u32 = 1024;

    /// A drive without limits of its own.
    #[must_use]
    pub fn unlimited() -> Self {
        Self {
            namespaces: 128,
            reserved_namespaces: Self::NAMESPACES_MAX,
            queue_pairs: None,
            queue_entries: None,
            queue_entries_total: None,
            firmware_slots: 4,
            endurance_writes: 1825,
        }
    }

    /// The Ethernet SSD of the white paper ODCC-2021-05008, section 3.2.1: 1024 queue pairs of up
    /// to 64 entries, which together are fewer than 8192; 128 namespaces, 16 of them with
    /// reservations; two firmware images.
    #[must_use]
    pub fn ethernet_ssd() -> Self {
        Self {
            namespaces: 128,
            reserved_namespaces: 16,
            queue_pairs: Some(1024),
            queue_entries: Some(64),
            queue_entries_total: Some(8191),
            firmware_slots: 2,
            endurance_writes: 1825,
        }
    }

    /// The profile called `name`: `default` or `ethernet-ssd`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "default" => Some(Self::unlimited()),
            "ethernet-ssd" => Some(Self::ethernet_ssd()),
            _ => None,
        }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::unlimited()
    }
}
