//! The key that a drive's owner hands over with the options. What it wraps is in `keys.rs`.

use std::fmt;

use aes_kw::{KeyInit, KwAes256};
use ebof_vault::{KeptBytes, KeptValue};

/// The key that wraps the keys of namespaces; it is not on the medium. 32 bytes, neither swapped
/// nor dumped, not shown by `Debug`, and zeroed when it is dropped.
#[derive(Clone)]
pub struct DriveKey(KeptBytes);

impl DriveKey {
    /// A key with these bytes, which stay where they are.
    #[must_use]
    pub fn copy_of(bytes: &[u8; 32]) -> Self {
        Self(KeptBytes::copy_of(bytes))
    }

    /// What wraps keys by it.
    pub(crate) fn wrapper(&self) -> KeptValue<KwAes256> {
        KeptValue::new(|| KwAes256::new_from_slice(&self.0).expect("it has 32 bytes"))
    }
}

impl fmt::Debug for DriveKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DriveKey")
    }
}
