//! The key table of a medium: the keys of encrypted namespaces, in two copies.
//!
//! Keys are in no journal and no checkpoint: the key of a removed namespace is destroyed as soon as
//! both copies are written without it. A copy is a header, the keys, zeros up to a multiple of 4
//! KiB, and a CRC-32C over all of it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::layout::frame::{FRAME_BYTES, crc};
use crate::namespace::VolumeId;

/// Bytes of a wrapped key: two keys for AES-256 in XTS mode, and 8 bytes for the integrity check
/// (RFC 3394).
pub const WRAPPED_BYTES: usize = 72;
/// Bytes reserved for a copy of the table.
pub const TABLE_BYTES: u64 = 448 << 10;
/// Keys in a table at most.
pub const KEYS_MAX: usize = 4096;

const MAGIC: [u8; 8] = *b"EBOFKEY1";
const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 8 + WRAPPED_BYTES;

/// The keys of a medium.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyTable {
    /// Incremented by every change; the copy with the larger one is valid.
    pub sequence: u64,
    /// Whether the keys are wrapped with a key that is not on the medium.
    pub locked: bool,
    /// The keys of namespaces; if not `locked`, 64 bytes of key and zeros.
    pub keys: BTreeMap<VolumeId, [u8; WRAPPED_BYTES]>,
}

impl KeyTable {
    /// The table as bytes, for drive `id`.
    #[must_use]
    pub fn encode(&self, id: [u8; 16]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.keys.len() * ENTRY_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(id);
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(u32::try_from(self.keys.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.push(u8::from(self.locked));
        bytes.resize(HEADER_BYTES, 0);
        for (volume, key) in &self.keys {
            bytes.extend(volume.0.to_le_bytes());
            bytes.extend(key);
        }
        let len = (bytes.len() + 4).next_multiple_of(FRAME_BYTES);
        bytes.resize(len - 4, 0);
        let sum = crc(&bytes);
        bytes.extend(sum.to_le_bytes());
        bytes
    }

    /// The length in bytes of the table with this header; `None` if it is none of drive `id`.
    #[must_use]
    pub fn bytes(id: [u8; 16], header: &[u8]) -> Option<usize> {
        let header = header.first_chunk::<HEADER_BYTES>()?;
        let count = u32::from_le_bytes([header[32], header[33], header[34], header[35]]);
        let count = usize::try_from(count).ok().filter(|count| *count <= KEYS_MAX)?;
        let is_one = header[..8] == MAGIC && header[8..24] == id;
        is_one.then(|| (HEADER_BYTES + count * ENTRY_BYTES + 4).next_multiple_of(FRAME_BYTES))
    }

    /// Decodes a table; `None` if it is none of drive `id`, or damaged.
    #[must_use]
    pub fn decode(id: [u8; 16], bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::bytes(id, bytes)?)?;
        let (covered, sum) = bytes.split_at(bytes.len() - 4);
        if sum != crc(covered).to_le_bytes() {
            return None;
        }
        let sequence = covered.get(24..32)?;
        let count = covered.get(32..36)?;
        let count = usize::try_from(u32::from_le_bytes(count.try_into().ok()?)).ok()?;
        let mut keys = BTreeMap::new();
        for entry in covered[HEADER_BYTES..].chunks_exact(ENTRY_BYTES).take(count) {
            let (volume, key) = entry.split_at(8);
            keys.insert(VolumeId(u64::from_le_bytes(volume.try_into().ok()?)), key.try_into().ok()?);
        }
        let sequence = u64::from_le_bytes(sequence.try_into().ok()?);
        Some(Self { sequence, locked: covered[36] != 0, keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: [u8; 16] = [7; 16];

    proptest! {
        #[test]
        fn a_table_round_trips_and_damage_is_detected(
            sequence: u64,
            locked: bool,
            keys in proptest::collection::btree_map(any::<u64>().prop_map(VolumeId), any::<u8>().prop_map(|byte| [byte; WRAPPED_BYTES]), 0..120),
            flip in 0..10_000_usize,
        ) {
            let table = KeyTable { sequence, locked, keys };
            let mut bytes = table.encode(ID);
            prop_assert_eq!(bytes.len() % FRAME_BYTES, 0);
            prop_assert_eq!(KeyTable::decode(ID, &bytes), Some(table));
            prop_assert_eq!(KeyTable::decode([8; 16], &bytes), None);
            let at = flip % bytes.len();
            bytes[at] ^= 0x40;
            prop_assert_eq!(KeyTable::decode(ID, &bytes), None);
        }

        #[test]
        fn garbage_is_not_a_table(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(KeyTable::decode(ID, &bytes), None);
        }
    }

    #[test]
    fn as_many_keys_as_there_are_namespaces_fit() {
        let keys = (0..KEYS_MAX as u64).map(|at| (VolumeId(at), [1; WRAPPED_BYTES])).collect();
        let bytes = KeyTable { keys, ..KeyTable::default() }.encode(ID);
        assert!(bytes.len() as u64 <= TABLE_BYTES);
        assert_eq!(KeyTable::decode(ID, &bytes).unwrap().keys.len(), KEYS_MAX);
        assert_eq!(KeyTable::decode(ID, &[0; FRAME_BYTES]), None);
    }
}
