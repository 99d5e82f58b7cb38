//! Bytes that nobody else may see.

use alloc::vec::Vec;
use core::fmt;

use ebof_vault::KeptBytes;
use subtle::ConstantTimeEq;

/// Secret bytes: in memory that is neither swapped nor dumped, erased when dropped, compared in
/// constant time, and shown by no `Debug`.
#[derive(Clone)]
pub struct KeyMaterial(KeptBytes);

impl KeyMaterial {
    /// Takes the bytes over, and erases them where they were.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }

    /// The same bytes, which stay where they are.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        Self(KeptBytes::copy_of(bytes))
    }

    /// The bytes, for a computation. They must not be copied to where they are not erased.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl PartialEq for KeyMaterial {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for KeyMaterial {}

impl fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secret bytes", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec;

    use super::*;

    #[test]
    fn no_byte_of_a_key_is_formatted() {
        let key = KeyMaterial::new(vec![0xab; 32]);
        assert_eq!(format!("{key:?}"), "32 secret bytes");
        assert_eq!(format!("{key:#?}"), "32 secret bytes");
    }
}
