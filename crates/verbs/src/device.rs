//! RDMA devices: what they can do, and the state of their ports.

use std::fmt;

/// What queue pairs of a device can be and do. Counts are maxima.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// Its name, such as `rxe0`.
    pub name: String,
    /// What it speaks at the address of the connection.
    pub protocol: Protocol,
    /// Queue pairs of the device.
    pub queue_pairs: u32,
    /// Entries of a send or receive queue.
    pub queue_entries: u32,
    /// Entries of a completion queue.
    pub completion_entries: u32,
    /// Shared receive queues; 0: not supported.
    pub shared_receive_queues: u32,
    /// Entries of a shared receive queue.
    pub shared_receive_entries: u32,
    /// RDMA READs of the peer that a queue pair serves at a time.
    pub responder_resources: u8,
    /// RDMA READs that a queue pair can have outstanding.
    pub initiator_depth: u8,
    /// Registered regions.
    pub regions: u32,
    /// Size of a registered region, in bytes.
    pub region_bytes: u64,
    /// A message can invalidate a key of the peer ([`QueuePair::post_send`]). Where it cannot,
    /// flushing one that is to do so breaks the connection.
    ///
    /// [`QueuePair::post_send`]: crate::QueuePair::post_send
    pub send_with_invalidate: bool,
    /// A peer can invalidate the key of a region ([`QueuePair::remote_key`]), and not only that of
    /// a memory window. Where it cannot, trying breaks the connection. No adapter lets programs do
    /// that; simulated ones may.
    ///
    /// [`QueuePair::remote_key`]: crate::QueuePair::remote_key
    pub region_invalidation: bool,
    /// Memory windows; 0: not supported. What soft-RoCE has does not keep the peer within the part
    /// of the region that a window is for.
    pub memory_windows: u32,
    /// A peer can invalidate the key of a memory window, and the message that does so says so. With
    /// soft-RoCE it does not tell, so that nobody may ask for it.
    pub window_invalidation: bool,
}

/// What is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// InfiniBand.
    Infiniband,
    /// RoCE, version 1.
    RoceV1,
    /// RoCE, version 2 (routable).
    RoceV2,
    /// iWARP.
    Iwarp,
}

/// A device and its ports, for those who look for the reason why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// What it can do; `protocol` is that of its first port.
    pub attributes: DeviceAttributes,
    /// Version of its firmware, as the driver reports it.
    pub firmware: String,
    /// Its ports.
    pub ports: Vec<PortInfo>,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// From 1.
    pub number: u8,
    /// Whether it can be used.
    pub state: PortState,
    /// What it is plugged into.
    pub link_layer: LinkLayer,
    /// Bytes of payload per packet, now.
    pub active_mtu: u32,
    /// and at most.
    pub max_mtu: u32,
    /// Its addresses.
    pub gids: Vec<Gid>,
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its index in the port's table.
    pub index: u32,
    /// An IPv6 address; an IPv4 address is mapped.
    pub address: [u8; 16],
    /// What is spoken with it.
    pub protocol: Protocol,
    /// The network interface that it comes from.
    pub interface: Option<String>,
}

/// Whether a port can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// No link.
    Down,
    /// A link that is being configured.
    Initializing,
    /// Configured, not yet in use.
    Armed,
    /// In use.
    Active,
    /// Any other.
    Other,
}

/// What a port is plugged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand.
    Infiniband,
    /// Ethernet.
    Ethernet,
    /// The device does not tell.
    Unspecified,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Infiniband => "InfiniBand",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
            Self::Iwarp => "iWARP",
        })
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "down",
            Self::Initializing => "initializing",
            Self::Armed => "armed",
            Self::Active => "active",
            Self::Other => "unknown",
        })
    }
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Infiniband => "InfiniBand",
            Self::Ethernet => "Ethernet",
            Self::Unspecified => "unspecified",
        })
    }
}
