//! Where hosts reach the target.

use std::net::IpAddr;

use serde::Serialize;

use super::Assigned;
use super::written::{as_optional_size, as_size};
use crate::listen::Listen;

/// Where hosts reach the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// What subsystems call it; its address where none was given.
    pub name: String,
    /// Its number in the discovery log (PORTID).
    pub id: u16,
    /// Whether the configuration leaves the number to [`load`](crate::load()).
    #[serde(skip)]
    pub assigned: Assigned,
    /// The address it listens on.
    pub listen: Listen,
    /// The IP address that discovery tells hosts to connect to instead of the one they reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<IpAddr>,
    /// Serves the discovery subsystem and nothing else.
    pub discovery_only: bool,
    /// Data that a host may send inside a command capsule of an I/O queue, in bytes.
    #[serde(rename = "in_capsule_data", serialize_with = "as_size")]
    pub in_capsule_data_bytes: u32,
    /// The most data in one H2CData PDU (MAXH2CDATA), in bytes.
    #[serde(rename = "max_h2c_data", serialize_with = "as_size")]
    pub max_h2c_data_bytes: u32,
    /// Whether the last C2HData PDU stands for the response too (SUCCESS flag).
    pub c2h_success: bool,
    /// Checksums over PDU headers.
    pub header_digest: Digest,
    /// Checksums over PDU data.
    pub data_digest: Digest,
    /// The deepest I/O queue in entries.
    pub max_queue_size: u16,
    /// The most I/O queues of a controller.
    pub max_io_queues: u16,
    /// IP type of service of what is sent; `None` is the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tos: Option<u8>,
    /// Priority of what is sent (`SO_PRIORITY`); `None` is the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub so_priority: Option<u32>,
    /// How long a receive may poll the network card's queue, in microseconds (`SO_BUSY_POLL`);
    /// connections of one such queue are then served by one thread. `None` is the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_poll_us: Option<u32>,
    /// Whether polling stands in for the network card's interrupts (`SO_PREFER_BUSY_POLL`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prefer_busy_poll: bool,
    /// Payloads of this size or more are sent without a copy (`MSG_ZEROCOPY`) where they are in
    /// buffers, in bytes; `None` copies all.
    #[serde(rename = "zerocopy_send", skip_serializing_if = "Option::is_none", serialize_with = "as_optional_size")]
    pub zerocopy_send_bytes: Option<u32>,
}

/// Whether a port uses a digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Digest {
    /// Never, also when the host asks for it.
    Off,
    /// When the host asks for it.
    #[default]
    Allowed,
    /// A host that does not ask for it is refused.
    Required,
}

impl Port {
    /// A port with the defaults, named after its address.
    #[must_use]
    pub fn new(id: u16, listen: Listen) -> Self {
        Self {
            name: listen.to_string(),
            id,
            assigned: Assigned(false),
            listen,
            advertise: None,
            discovery_only: false,
            in_capsule_data_bytes: 8192,
            max_h2c_data_bytes: 1 << 20,
            c2h_success: true,
            header_digest: Digest::Allowed,
            data_digest: Digest::Allowed,
            max_queue_size: 1024,
            max_io_queues: 1024,
            tos: None,
            so_priority: None,
            busy_poll_us: None,
            prefer_busy_poll: false,
            zerocopy_send_bytes: None,
        }
    }

    /// Whether both are one listening socket with, perhaps, other options. A port whose number the
    /// system chooses is known by its name.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.listen == other.listen && (self.listen.port != 0 || self.name == other.name)
    }
}
