//! CRC32C as NVMe/TCP's header and data digest (NVMe/TCP, PDU Header Digest and PDU Data Digest;
//! RFC 3720, B.4).

use crc_fast::CrcAlgorithm;

/// The digest of one contiguous piece, in the order in which it stands on the wire.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let mut digest = Incremental::new();
    digest.update(bytes);
    digest.finish()
}

/// A digest that is computed piece by piece while data arrive.
#[derive(Debug)]
pub struct Incremental(crc_fast::Digest);

impl Incremental {
    /// The digest of nothing.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self(crc_fast::Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Takes the next bytes in.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of everything taken in so far, in wire order.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a 32-bit CRC in a 64-bit return value")]
    pub fn finish(&self) -> [u8; 4] {
        (self.0.finalize() as u32).to_le_bytes()
    }
}

impl Default for Incremental {
    fn default() -> Self {
        Self::new()
    }
}
