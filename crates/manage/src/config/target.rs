//! What holds for the whole target.

use std::net::SocketAddr;
use std::time::Duration;

use ebof_nvme::Nqn;
use serde::Serialize;

use super::written::{as_duration, as_optional_text};

/// What holds for the whole target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TargetOptions {
    /// Threads that own queue pairs; `None` is one for each processor it may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u16>,
    /// The most connections at a time, over all ports.
    pub max_connections: u32,
    /// The most controllers at a time, discovery included.
    pub max_controllers: u32,
    /// What one host may use of connections, controllers and buffers, percent.
    pub host_share: u8,
    /// How many of the connections may come from one address and not be admitted yet, percent.
    pub address_share: u8,
    /// How long a connection may take from its first byte to an accepted Connect.
    #[serde(serialize_with = "as_duration")]
    pub handshake_timeout: Duration,
    /// How many refused connections are remembered.
    pub refused_journal: u32,
    /// How many entries the Error Information log of a controller has.
    pub error_log_entries: u16,
    /// Where OpenMetrics are served over HTTP; `None` is nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// The discovery subsystem's own NQN, besides the well-known one, which always answers.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_optional_text")]
    pub discovery_nqn: Option<Nqn>,
}

impl Default for TargetOptions {
    fn default() -> Self {
        Self {
            threads: None,
            max_connections: 16384,
            max_controllers: 4096,
            host_share: 85,
            address_share: 10,
            handshake_timeout: Duration::from_secs(30),
            refused_journal: 1024,
            error_log_entries: 64,
            metrics: None,
            discovery_nqn: None,
        }
    }
}
