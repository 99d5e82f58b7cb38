//! The discovery service: reading its log.

use ebof_nvme::log::DiscoveryEntry;

use crate::connect_error::ConnectError;
use crate::options::Options;

/// A discovery log page, read in one consistent state.
#[derive(Clone, Debug)]
pub struct DiscoveryLog {
    /// Generation counter (GENCTR).
    pub generation: u64,
    /// Record format (RECFMT).
    pub record_format: u16,
    /// The entries.
    pub entries: Vec<DiscoveryEntry>,
    /// Where the service was reached.
    pub peer: std::net::SocketAddr,
}

/// Reads the discovery log at `options`' address, and reads it again while it changes meanwhile. `options.nqn` may be the well-known
/// discovery NQN or the service's own.
///
/// # Errors
/// As [`crate::Controller::connect`].
pub fn discover(options: &Options) -> Result<DiscoveryLog, ConnectError> {
    let _ = options;
    todo!()
}
