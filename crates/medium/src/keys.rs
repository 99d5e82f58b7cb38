//! The keys of encrypted namespaces: makes them, keeps them on the medium, and destroys them.
//!
//! Both copies of the table are written, one after the other, before a change counts: a removed key
//! is then nowhere on the medium, provided that the backing device overwrites in place. The rest of
//! a longer table, or of the table of an earlier drive, is overwritten as well.
//!
//! What is done with the keys is in `keys/crypt.rs`.

pub(crate) mod crypt;

use std::collections::BTreeMap;
use std::sync::Arc;

use aes_kw::KwAes256;
use ebof_backend::Error as DeviceError;
use ebof_drive::frame::FRAME_BYTES;
use ebof_drive::keys::{KeyTable, TABLE_BYTES, WRAPPED_BYTES};
use ebof_drive::layout::Layout;
use ebof_vault::{KeptBytes, KeptValue, with_clean_stack};
use zeroize::Zeroizing;

use crate::disk::Disk;
use crate::keys::crypt::{Cipher, KEY_BYTES};
use crate::{DriveKey, Error, OpenError, VolumeId};

/// Bytes of a copy of the table at most.
#[expect(clippy::cast_possible_truncation, reason = "448 KiB")]
const TABLE_LEN: usize = TABLE_BYTES as usize;

/// The keys of a medium.
#[derive(Debug)]
pub(crate) struct Keys {
    layout: Layout,
    drive_key: Option<DriveKey>,
    table: KeyTable,
    ciphers: BTreeMap<VolumeId, Arc<Cipher>>,
    /// A copy on the medium may differ from the table.
    stale: bool,
    /// Bytes of each copy, from its beginning on, that may not be zeros.
    used_bytes: [usize; 2],
    /// The copy that is written first, because the other one is current.
    first: usize,
}

impl Keys {
    /// Reads the keys of a drive.
    ///
    /// # Errors
    /// `KeyMissing`, `KeyWrong` or `Device`.
    pub(crate) fn open(disk: &mut Disk, layout: Layout, drive_key: Option<DriveKey>) -> Result<Self, OpenError> {
        let name = disk.base().describe();
        let mut copies = [None, None];
        let mut used_bytes = [0; 2];
        for (which, (copy, used_bytes)) in (0..).zip(copies.iter_mut().zip(&mut used_bytes)) {
            let held = disk.read(layout.keys(which), TABLE_LEN);
            let held = held.map_err(|source| OpenError::Device { device: name.clone(), source })?;
            let held = &held.as_slice()[..TABLE_LEN];
            let end = held.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            *used_bytes = end.next_multiple_of(FRAME_BYTES);
            *copy = KeyTable::decode(layout.id, held);
        }
        let differ = copies[0] != copies[1];
        if differ && copies.iter().any(Option::is_none) {
            tracing::warn!(
                device = name,
                "one of the two tables of keys is not whole, because it was cut off or is damaged: it is written again"
            );
        }
        let [first, second] = copies;
        let sequence = |copy: &Option<KeyTable>| copy.as_ref().map(|table| table.sequence);
        let first_counts = sequence(&first) > sequence(&second);
        let newest = if first_counts { first } else { second };
        // The rest of a longer table, or of the table of an earlier drive, has to be overwritten.
        let bytes = newest.as_ref().map_or(0, |table| table.encode(layout.id).len());
        let mut keys = Self {
            layout,
            drive_key: None,
            table: KeyTable::default(),
            ciphers: BTreeMap::new(),
            stale: differ || used_bytes.iter().any(|&used_bytes| used_bytes > bytes),
            used_bytes,
            first: usize::from(first_counts),
        };
        let table = newest.unwrap_or_default();
        if table.locked && drive_key.is_none() {
            return Err(OpenError::KeyMissing { device: name });
        }
        let wrapper = drive_key.as_ref().filter(|_| table.locked).map(DriveKey::wrapper);
        let rewrap = drive_key.is_some() && !table.locked;
        keys.drive_key = drive_key;
        for (volume, wrapped) in &table.keys {
            let key = unwrap(wrapper.as_ref(), wrapped).ok_or_else(|| OpenError::KeyWrong { device: name.clone() })?;
            keys.ciphers.insert(*volume, Arc::new(Cipher::new(&key)));
        }
        if rewrap {
            // The keys were not wrapped so far: they are as soon as the table is written.
            let wrapper = keys.drive_key.as_ref().map(DriveKey::wrapper);
            let mut locked = KeyTable { locked: true, ..table.clone() };
            for wrapped in locked.keys.values_mut() {
                let key = unwrap(None, wrapped).ok_or_else(|| OpenError::KeyWrong { device: name.clone() })?;
                *wrapped = wrap(wrapper.as_ref(), &key);
            }
            keys.table = locked;
            keys.stale = true;
        } else {
            keys.table = table;
        }
        Ok(keys)
    }

    /// The cipher of a namespace; `None` if it has no key.
    pub(crate) fn cipher(&self, volume: VolumeId) -> Option<Arc<Cipher>> {
        self.ciphers.get(&volume).cloned()
    }

    /// Makes a key for a namespace, durably.
    ///
    /// # Errors
    /// `NoRandomness` or `Device`.
    pub(crate) fn make(&mut self, disk: &mut Disk, volume: VolumeId) -> Result<Arc<Cipher>, Error> {
        let mut key = Zeroizing::new(vec![0; KEY_BYTES]);
        disk.clock.fill(&mut key).map_err(|_| Error::NoRandomness)?;
        let wrapped = wrap(self.drive_key.as_ref().map(DriveKey::wrapper).as_ref(), &key);
        let mut table = self.table.clone();
        table.keys.insert(volume, wrapped);
        table.locked = self.drive_key.is_some();
        self.write(disk, table)?;
        let cipher = Arc::new(Cipher::new(&key));
        self.ciphers.insert(volume, Arc::clone(&cipher));
        Ok(cipher)
    }

    /// Destroys the keys of all namespaces that are not `known`, durably. After an error they may
    /// still be on the medium; the next call tries again.
    pub(crate) fn retain(&mut self, disk: &mut Disk, known: impl Fn(VolumeId) -> bool) -> Result<(), DeviceError> {
        self.ciphers.retain(|volume, _| known(*volume));
        let mut table = self.table.clone();
        table.keys.retain(|volume, _| known(*volume));
        if table.keys.len() == self.table.keys.len() && !self.stale {
            return Ok(());
        }
        self.write(disk, table)
    }

    /// The medium may have a key of a namespace that could not be created.
    pub(crate) fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// Whether keys may be on the medium that should not be there.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale
    }

    fn write(&mut self, disk: &mut Disk, mut table: KeyTable) -> Result<(), DeviceError> {
        // Also if the write fails: a later table must have a larger number.
        self.table.sequence += 1;
        table.sequence = self.table.sequence;
        let bytes = table.encode(self.layout.id);
        self.stale = true;
        // One copy after the other: one of them is whole at any time.
        for which in [self.first, 1 - self.first] {
            self.first = which;
            // Overwrites the end of a longer table with zeros.
            let mut whole = bytes.clone();
            whole.resize(whole.len().max(self.used_bytes[which]), 0);
            self.used_bytes[which] = whole.len();
            disk.write(self.layout.keys(which as u64), &whole)?;
            disk.flush()?;
            self.used_bytes[which] = bytes.len();
        }
        self.table = table;
        self.stale = false;
        Ok(())
    }
}

fn wrap(wrapper: Option<&KeptValue<KwAes256>>, key: &[u8]) -> [u8; WRAPPED_BYTES] {
    let mut wrapped = [0; WRAPPED_BYTES];
    with_clean_stack(|| match wrapper {
        Some(wrapper) => {
            wrapper.wrap_key(key, &mut wrapped).expect("the lengths are those of RFC 3394");
        }
        None => wrapped[..KEY_BYTES].copy_from_slice(key),
    });
    wrapped
}

fn unwrap(wrapper: Option<&KeptValue<KwAes256>>, wrapped: &[u8; WRAPPED_BYTES]) -> Option<KeptBytes> {
    let Some(wrapper) = wrapper else { return Some(KeptBytes::copy_of(&wrapped[..KEY_BYTES])) };
    with_clean_stack(|| {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        wrapper.unwrap_key(wrapped, &mut *key).ok()?;
        Some(KeptBytes::copy_of(&*key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3394, section 4.6: 256 bits of key data, wrapped with a key of 256 bits.
    #[test]
    fn the_test_vector_of_the_key_wrap_matches() {
        let key: [u8; 32] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        let data: [u8; 32] = std::array::from_fn(|at| u8::try_from(if at < 16 { at * 0x11 } else { at - 16 }).unwrap());
        let mut wrapped = [0; 40];
        DriveKey::copy_of(&key).wrapper().wrap_key(&data, &mut wrapped).unwrap();
        let expected = "28c9f404c4b810f4cbccb35cfb87f8263f5786e2d80ed326cbc7f0e71a99f43bfb988b9b7a02dd21";
        assert_eq!(wrapped.map(|byte| format!("{byte:02x}")).concat(), expected);
    }
}
