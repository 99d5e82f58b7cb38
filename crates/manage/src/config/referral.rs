//! Referrals: other discovery controllers that a port's discovery log names.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::PortTls;
use crate::listen::{DEFAULT_PORT, Listen, ListenError, Transport};

/// Another discovery controller, for hosts that ask at a port (NVMe Base, Discovery Log Page, entry
/// of subsystem type 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    /// Where it is.
    pub address: Listen,
    /// Whether it has TLS.
    pub tls: PortTls,
}

/// The port that IANA assigned to discovery over TCP (`nvme-disc`).
pub const DISCOVERY_PORT: u16 = 8009;

impl Referral {
    /// Reads an address, without a port number that of discovery.
    ///
    /// # Errors
    /// It is none that a host could connect to.
    pub(crate) fn address(text: &str) -> Result<Listen, ReferralError> {
        let mut address: Listen = text.parse()?;
        if !address.is_network() || address.address.is_unspecified() || address.port == 0 {
            return Err(ReferralError::NotReachable);
        }
        // Without a number, an address of this form has that of NVMe.
        if address.port == DEFAULT_PORT && !text.ends_with(&format!(":{DEFAULT_PORT}")) {
            address.port = if address.transport == Transport::Tcp { DISCOVERY_PORT } else { DEFAULT_PORT };
        }
        Ok(address)
    }
}

/// Why something is no referral.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReferralError {
    /// It is no address.
    #[error(transparent)]
    Address(#[from] ListenError),
    /// A wildcard, a number that the system chooses, or a socket in the file system.
    #[error("no host can be referred to this address")]
    NotReachable,
}

impl ReferralError {
    /// What to write.
    pub(crate) fn advice(&self) -> String {
        match self {
            Self::Address(error) => error.advice(),
            Self::NotReachable => "accepted: the address of a discovery controller, `tcp://192.0.2.2:8009`".to_owned(),
        }
    }
}

/// As the configuration has it: the address, or a table where there is TLS.
impl Serialize for Referral {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.tls.is_off() {
            return serializer.collect_str(&self.address);
        }
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("address", &self.address.to_string())?;
        map.serialize_entry("tls", &self.tls)?;
        map.end()
    }
}
