//! The key that a drive's owner hands over with the options. What it wraps is in `keys.rs`.

use std::fmt;

use aes_kw::{KeyInit, KwAes256};
use zeroize::Zeroizing;

/// The key that wraps the keys of namespaces; it is not on the medium. 32 bytes, not shown by
/// `Debug`, and zeroed when it is dropped.
#[derive(Clone)]
pub struct DriveKey(Zeroizing<[u8; 32]>);

impl DriveKey {
    /// A key with these bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub(crate) fn wrapper(&self) -> KwAes256 {
        KwAes256::new(&(*self.0).into())
    }
}

impl fmt::Debug for DriveKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DriveKey")
    }
}
