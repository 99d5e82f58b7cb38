//! A port as the target's threads see it: what connections that arrive there are offered.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64};

use ebof_fabrics::PortId;
use ebof_manage::config;
use ebof_tcp::Digest;
use ebof_tcp::controller::Config;

/// A port that listens.
#[derive(Debug)]
pub(crate) struct PortState {
    pub(crate) id: PortId,
    pub(crate) name: String,
    /// Where it really listens: the configuration may leave the port number to the system.
    pub(crate) address: SocketAddr,
    pub(crate) config: config::Port,
    /// Connections open now.
    pub(crate) connections: AtomicU32,
    /// Connections accepted since the start.
    pub(crate) accepted: AtomicU64,
    /// Connections refused since the start.
    pub(crate) refused: AtomicU64,
}

impl PortState {
    pub(crate) fn new(config: config::Port, address: SocketAddr) -> Self {
        Self {
            id: PortId(config.id),
            name: config.name.clone(),
            address,
            config,
            connections: AtomicU32::new(0),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// The largest in-capsule data that a command may carry here, bytes; Connect may always carry its 1024.
    pub(crate) fn in_capsule_bytes(&self) -> u32 {
        self.config.in_capsule_data_bytes.max(ADMIN_IN_CAPSULE_BYTES)
    }

    pub(crate) fn transport_config(&self) -> Config {
        Config {
            in_capsule_bytes: self.config.in_capsule_data_bytes,
            h2c_data_max: self.config.max_h2c_data_bytes,
            alignment: 4,
            header_digest: digest(self.config.header_digest),
            data_digest: digest(self.config.data_digest),
            c2h_success: self.config.c2h_success,
            r2t_bytes: R2T_BYTES,
        }
    }
}

/// What the Admin Queue's capsules may always carry (NVMe/TCP, Capsules: 8192 bytes).
const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;

/// Size of one R2T for hosts that take several at a time, bytes: large enough that the round trip hides behind the
/// previous one's data.
const R2T_BYTES: u32 = 256 << 10;

fn digest(digest: config::Digest) -> Digest {
    match digest {
        config::Digest::Off => Digest::Refused,
        config::Digest::Allowed => Digest::Allowed,
        config::Digest::Required => Digest::Required,
    }
}
