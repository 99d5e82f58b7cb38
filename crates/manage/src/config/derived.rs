//! Identifiers that follow from names, so that they stay the same from start to start.

use ebof_nvme::{Nqn, Uuid};

/// Twenty characters that stay the same for an NQN: Linux' multipath wants the serial number equal
/// on every path.
#[must_use]
pub fn default_serial(nqn: &Nqn) -> String {
    let hash = uuid::Uuid::new_v5(&EBOF_SPACE, nqn.as_str().as_bytes()).simple().to_string();
    format!("EBOF{}", hash[..16].to_ascii_uppercase())
}

/// A UUID that stays the same for a namespace (RFC 9562, version 5).
#[must_use]
pub fn default_uuid(nqn: &Nqn, nsid: u32) -> Uuid {
    Uuid(uuid::Uuid::new_v5(&EBOF_SPACE, format!("{nqn}/{nsid}").as_bytes()).into_bytes())
}

/// A digest of a text, as a UUID (RFC 9562, version 5).
pub(crate) fn digest(text: &str) -> Uuid {
    Uuid(uuid::Uuid::new_v5(&EBOF_SPACE, text.as_bytes()).into_bytes())
}

/// A UUID that stays the same for the virtual machine at a socket (RFC 9562, version 5).
pub(super) fn direct_host_uuid(socket: &str) -> Uuid {
    Uuid(uuid::Uuid::new_v5(&EBOF_SPACE, format!("vfio-user:{socket}").as_bytes()).into_bytes())
}

/// The name space of the derived identifiers. Changing it changes every one of them.
const EBOF_SPACE: uuid::Uuid = uuid::Uuid::from_u128(0x9f0c_4f9e_64f2_5d0b_8f6b_6562_6f66_0001);
