//! The keys of encrypted namespaces: made, kept on the medium, and destroyed.
//!
//! Both copies of the table are written, one after the other, before a change counts: a key that was removed is then nowhere on
//! the medium, as far as the backing device overwrites what it is told to overwrite.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aes_kw::KekAes256;
use ebof_backend::Error as DeviceError;
use ebof_drive::frame::FRAME_BYTES;
use ebof_drive::keys::{KeyTable, WRAPPED_BYTES};
use ebof_drive::layout::Layout;
use zeroize::Zeroizing;

use crate::crypt::{Cipher, KEY_BYTES};
use crate::disk::Disk;
use crate::{Error, Instance, OpenError};

/// A key that is not on the medium: without it the keys that are cannot be had. 32 bytes; not shown, and wiped when it goes.
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

/// The keys of a medium.
#[derive(Debug)]
pub(crate) struct Keys {
    layout: Layout,
    drive_key: Option<DriveKey>,
    table: KeyTable,
    ciphers: BTreeMap<Instance, Arc<Cipher>>,
    /// A copy on the medium may have keys that are not in the table, or not those that are.
    stale: bool,
}

impl Keys {
    /// Reads the keys of a drive.
    pub(crate) fn open(disk: &mut Disk, layout: Layout, drive_key: Option<DriveKey>) -> Result<Self, OpenError> {
        let name = disk.base().describe();
        let mut copies = [None, None];
        for (copy, which) in copies.iter_mut().zip(0..) {
            *copy = read(disk, &layout, which).map_err(|source| OpenError::Device { device: name.clone(), source })?;
        }
        let stale = copies[0] != copies[1];
        if stale && copies.iter().any(Option::is_none) {
            tracing::warn!(
                device = name,
                "one of the two tables of keys is not whole, because it was cut off or is damaged: it is written again"
            );
        }
        let [first, second] = copies;
        let table = first.into_iter().chain(second).max_by_key(|table| table.sequence).unwrap_or_default();
        let mut keys = Self { layout, drive_key: None, table: KeyTable::default(), ciphers: BTreeMap::new(), stale };
        if table.locked && drive_key.is_none() {
            return Err(OpenError::KeyMissing { device: name });
        }
        let wrapper = drive_key.as_ref().filter(|_| table.locked).map(DriveKey::wrapper);
        let rewrap = drive_key.is_some() && !table.locked;
        keys.drive_key = drive_key;
        for (instance, wrapped) in &table.keys {
            let key = unwrap(wrapper.as_ref(), wrapped).ok_or_else(|| OpenError::KeyWrong { device: name.clone() })?;
            keys.ciphers.insert(*instance, Arc::new(Cipher::new(&key)));
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
    pub(crate) fn cipher(&self, instance: Instance) -> Option<Arc<Cipher>> {
        self.ciphers.get(&instance).cloned()
    }

    /// Makes the key of a namespace, durably.
    pub(crate) fn make(&mut self, disk: &mut Disk, instance: Instance) -> Result<Arc<Cipher>, Error> {
        let mut key: Key = Zeroizing::new([0; KEY_BYTES]);
        getrandom::fill(&mut *key).map_err(|_| Error::NoRandomness)?;
        let wrapped = wrap(self.drive_key.as_ref().map(DriveKey::wrapper).as_ref(), &key);
        let mut table = self.table.clone();
        table.keys.insert(instance, wrapped);
        table.locked = self.drive_key.is_some();
        self.write(disk, table)?;
        let cipher = Arc::new(Cipher::new(&key));
        self.ciphers.insert(instance, Arc::clone(&cipher));
        Ok(cipher)
    }

    /// Destroys all keys but those of these namespaces, durably. After an error they may still be on the medium; the next
    /// call tries again.
    pub(crate) fn keep(&mut self, disk: &mut Disk, known: impl Fn(Instance) -> bool) -> Result<(), DeviceError> {
        self.ciphers.retain(|instance, _| known(*instance));
        let mut table = self.table.clone();
        table.keys.retain(|instance, _| known(*instance));
        if table.keys.len() == self.table.keys.len() && !self.stale {
            return Ok(());
        }
        self.write(disk, table)
    }

    /// Whether keys may be on the medium that should not be there.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale
    }

    fn write(&mut self, disk: &mut Disk, mut table: KeyTable) -> Result<(), DeviceError> {
        table.sequence = self.table.sequence + 1;
        let bytes = table.encode(self.layout.id);
        let was_bytes = self.table.encode(self.layout.id).len();
        self.stale = true;
        for which in 0..2 {
            // Where the table was longer, nothing stays of its end.
            let mut whole = bytes.clone();
            whole.resize(whole.len().max(was_bytes), 0);
            disk.write(self.layout.keys(which), &whole)?;
            disk.flush()?;
        }
        (self.table, self.stale) = (table, false);
        Ok(())
    }
}

fn read(disk: &mut Disk, layout: &Layout, which: u64) -> Result<Option<KeyTable>, DeviceError> {
    let at = layout.keys(which);
    let header = disk.read(at, FRAME_BYTES)?;
    let Some(bytes) = KeyTable::bytes(layout.id, header.as_slice()) else { return Ok(None) };
    let all = disk.read(at, bytes)?;
    Ok(KeyTable::decode(layout.id, &all.as_slice()[..bytes]))
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
