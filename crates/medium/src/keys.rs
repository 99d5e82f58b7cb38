//! The keys of encrypted namespaces: made, kept on the medium, and destroyed.
//!
//! Both copies of the table are written, one after the other, before a change counts: a key that
//! was removed is then nowhere on the medium, as far as the backing device overwrites what it is
//! told to overwrite. Nothing else is left where the tables are: neither the end of a longer table,
//! nor the table of a drive that was there before.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aes_kw::KekAes256;
use ebof_backend::Error as DeviceError;
use ebof_drive::frame::FRAME_BYTES;
use ebof_drive::keys::{KeyTable, TABLE_BYTES, WRAPPED_BYTES};
use ebof_drive::layout::Layout;
use zeroize::Zeroizing;

use crate::crypt::{Cipher, KEY_BYTES};
use crate::disk::Disk;
use crate::{Error, OpenError, VolumeId};

/// A key that is not on the medium: without it the keys that are cannot be had. 32 bytes; not
/// shown, and wiped when it goes.
#[derive(Clone)]
pub struct DriveKey(Zeroizing<[u8; 32]>);

impl DriveKey {
    /// These bytes as a key.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    fn wrapper(&self) -> KekAes256 {
        KekAes256::new((&*self.0).into())
    }
}

impl fmt::Debug for DriveKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DriveKey")
    }
}

type Key = Zeroizing<[u8; KEY_BYTES]>;

/// Bytes of a copy at most.
#[expect(clippy::cast_possible_truncation, reason = "448 KiB")]
const TABLE_LEN: usize = TABLE_BYTES as usize;

/// The keys of a medium.
#[derive(Debug)]
pub(crate) struct Keys {
    layout: Layout,
    drive_key: Option<DriveKey>,
    table: KeyTable,
    ciphers: BTreeMap<VolumeId, Arc<Cipher>>,
    /// A copy on the medium may have keys that are not in the table, or not those that are.
    stale: bool,
    /// Bytes of each copy that may hold something.
    filled: [usize; 2],
    /// The copy that is written first, because the other one is whole.
    first: usize,
}

impl Keys {
    /// Reads the keys of a drive.
    pub(crate) fn open(disk: &mut Disk, layout: Layout, drive_key: Option<DriveKey>) -> Result<Self, OpenError> {
        let name = disk.base().describe();
        let mut copies = [None, None];
        let mut filled = [0; 2];
        for (which, (copy, filled)) in (0..).zip(copies.iter_mut().zip(&mut filled)) {
            let held = disk.read(layout.keys(which), TABLE_LEN);
            let held = held.map_err(|source| OpenError::Device { device: name.clone(), source })?;
            let held = &held.as_slice()[..TABLE_LEN];
            let end = held.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            *filled = end.next_multiple_of(FRAME_BYTES);
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
        // Of the table of an earlier drive, or of a longer one that was cut off while it was
        // replaced, nothing stays.
        let bytes = newest.as_ref().map_or(0, |table| table.encode(layout.id).len());
        let mut keys = Self {
            layout,
            drive_key: None,
            table: KeyTable::default(),
            ciphers: BTreeMap::new(),
            stale: differ || filled.iter().any(|&filled| filled > bytes),
            filled,
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
            // The keys were on the medium as they are: from now on they are not.
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

    /// What encrypts the namespace, if anything does.
    pub(crate) fn cipher(&self, volume: VolumeId) -> Option<Arc<Cipher>> {
        self.ciphers.get(&volume).cloned()
    }

    /// Makes the key of a namespace, durably.
    pub(crate) fn make(&mut self, disk: &mut Disk, volume: VolumeId) -> Result<Arc<Cipher>, Error> {
        let mut key: Key = Zeroizing::new([0; KEY_BYTES]);
        disk.clock.fill(&mut *key).map_err(|_| Error::NoRandomness)?;
        let wrapped = wrap(self.drive_key.as_ref().map(DriveKey::wrapper).as_ref(), &key);
        let mut table = self.table.clone();
        table.keys.insert(volume, wrapped);
        table.locked = self.drive_key.is_some();
        self.write(disk, table)?;
        let cipher = Arc::new(Cipher::new(&key));
        self.ciphers.insert(volume, Arc::clone(&cipher));
        Ok(cipher)
    }

    /// Destroys all keys but those of these namespaces, durably. After an error they may still be
    /// on the medium; the next call tries again.
    pub(crate) fn keep(&mut self, disk: &mut Disk, known: impl Fn(VolumeId) -> bool) -> Result<(), DeviceError> {
        self.ciphers.retain(|volume, _| known(*volume));
        let mut table = self.table.clone();
        table.keys.retain(|volume, _| known(*volume));
        if table.keys.len() == self.table.keys.len() && !self.stale {
            return Ok(());
        }
        self.write(disk, table)
    }

    /// A key may be on the medium of a namespace that was not made after all.
    pub(crate) fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// Whether keys may be on the medium that should not be there.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale
    }

    fn write(&mut self, disk: &mut Disk, mut table: KeyTable) -> Result<(), DeviceError> {
        // Also of a write that fails: whichever is found later, the last one counts.
        self.table.sequence += 1;
        table.sequence = self.table.sequence;
        let bytes = table.encode(self.layout.id);
        self.stale = true;
        // One of the copies is whole at any time.
        for which in [self.first, 1 - self.first] {
            self.first = which;
            // Where there was more, nothing stays of its end.
            let mut whole = bytes.clone();
            whole.resize(whole.len().max(self.filled[which]), 0);
            self.filled[which] = whole.len();
            disk.write(self.layout.keys(which as u64), &whole)?;
            disk.flush()?;
            self.filled[which] = bytes.len();
        }
        (self.table, self.stale) = (table, false);
        Ok(())
    }
}

fn wrap(wrapper: Option<&KekAes256>, key: &Key) -> [u8; WRAPPED_BYTES] {
    let mut wrapped = [0; WRAPPED_BYTES];
    match wrapper {
        Some(wrapper) => wrapper.wrap(&**key, &mut wrapped).expect("the lengths are those of RFC 3394"),
        None => wrapped[..KEY_BYTES].copy_from_slice(&**key),
    }
    wrapped
}

fn unwrap(wrapper: Option<&KekAes256>, wrapped: &[u8; WRAPPED_BYTES]) -> Option<Key> {
    let mut key: Key = Zeroizing::new([0; KEY_BYTES]);
    match wrapper {
        Some(wrapper) => wrapper.unwrap(wrapped, &mut *key).ok()?,
        None => key.copy_from_slice(&wrapped[..KEY_BYTES]),
    }
    Some(key)
}
