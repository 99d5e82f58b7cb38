//! Keys of hosts that were added while the target runs: the list, its text form, and where that is
//! stored.
//!
//! Owns what is remembered of a key and which lists are whole. Which keys a host may be given, and
//! how they come into force, is in `server/life/keys.rs`.

mod text;

use std::sync::{Arc, Mutex, PoisonError};

use ebof_authentication::psk::ConfiguredPsk;
use ebof_authentication::secret::TextError;
use ebof_authentication::{Hash, Secret};
use ebof_manage::api::{ConfigStoreError, KeyKind, STORED_KEYS_MAX};
use ebof_nvme::Nqn;
use zeroize::Zeroizing;

/// Where keys are stored that have to outlive the process.
pub trait KeyStore: Send + Sync {
    /// Replaces what is stored. When this returns, it survives a crash. Nobody but the target's
    /// user may read it.
    ///
    /// # Errors
    /// It is not stored, or that is not known.
    fn replace(&self, content: &[u8]) -> Result<(), ConfigStoreError>;
}

/// What was stored is no list of keys. None of it is in the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored keys are damaged: {why}")]
pub struct DamagedKeys {
    why: String,
}

/// The keys of hosts that a target has been given, beside those of its configuration. The default
/// keeps them in memory.
#[derive(Default)]
pub struct StoredKeys {
    list: Mutex<Arc<KeyList>>,
    store: Option<Box<dyn KeyStore>>,
}

/// All stored keys at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyList {
    /// The number of the next key.
    pub(crate) next: u64,
    /// By number.
    pub(crate) keys: Vec<StoredKey>,
}

/// A key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredKey {
    pub(crate) number: u64,
    pub(crate) host: Nqn,
    pub(crate) key: HostKey,
    /// When it was added, seconds since 1970.
    pub(crate) since_s: u64,
}

/// A key of some kind. Nothing of it is formatted but its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostKey {
    Dhchap(Secret),
    DhchapCtrl(Secret),
    Tls(ConfiguredPsk),
}

impl HostKey {
    /// Reads the text of a key.
    pub(crate) fn parse(kind: KeyKind, text: &str) -> Result<Self, TextError> {
        Ok(match kind {
            KeyKind::Dhchap => Self::Dhchap(Secret::parse(text)?),
            KeyKind::DhchapCtrl => Self::DhchapCtrl(Secret::parse(text)?),
            KeyKind::Tls => Self::Tls(ConfiguredPsk::parse(text)?),
        })
    }

    pub(crate) fn kind(&self) -> KeyKind {
        match self {
            Self::Dhchap(_) => KeyKind::Dhchap,
            Self::DhchapCtrl(_) => KeyKind::DhchapCtrl,
            Self::Tls(_) => KeyKind::Tls,
        }
    }

    /// The hash that it is bound to.
    pub(crate) fn hash(&self) -> Option<Hash> {
        match self {
            Self::Dhchap(secret) | Self::DhchapCtrl(secret) => secret.transform(),
            Self::Tls(psk) => psk.hash(),
        }
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Dhchap(secret) | Self::DhchapCtrl(secret) => secret.key_bytes(),
            Self::Tls(psk) => psk.key_bytes(),
        }
    }

    fn to_text(&self) -> Zeroizing<String> {
        match self {
            Self::Dhchap(secret) | Self::DhchapCtrl(secret) => secret.to_text(),
            Self::Tls(psk) => psk.to_text(),
        }
    }
}

impl StoredKey {
    /// `k3`
    pub(crate) fn id(&self) -> String {
        format!("k{}", self.number)
    }

    /// Whether it is one of this host and kind.
    pub(crate) fn is_of(&self, host: &Nqn, kind: KeyKind) -> bool {
        self.host == *host && self.key.kind() == kind
    }
}

impl Default for KeyList {
    fn default() -> Self {
        Self { next: 1, keys: Vec::new() }
    }
}

impl KeyList {
    /// The keys of a host of one kind, the oldest first.
    pub(crate) fn keys_of<'l>(&'l self, host: &'l Nqn, kind: KeyKind) -> impl Iterator<Item = &'l StoredKey> {
        self.keys.iter().filter(move |key| key.is_of(host, kind))
    }

    /// The list with one more key, and that key. Its number is one that no key has had before.
    pub(crate) fn with(&self, host: Nqn, key: HostKey, since_s: u64) -> (Self, StoredKey) {
        let mut list = self.clone();
        let key = StoredKey { number: list.next, host, key, since_s };
        list.next += 1;
        list.keys.push(key.clone());
        (list, key)
    }

    /// The list without some keys.
    pub(crate) fn without(&self, numbers: &[u64]) -> Self {
        let mut list = self.clone();
        list.keys.retain(|key| !numbers.contains(&key.number));
        list
    }

    /// Whether there is room for another one.
    pub(crate) fn has_room(&self) -> bool {
        self.keys.len() < STORED_KEYS_MAX
    }
}

impl StoredKeys {
    /// Those that were stored before, if any, and where they are stored from now on.
    ///
    /// # Errors
    /// They are damaged.
    pub fn open(content: Option<Vec<u8>>, store: Box<dyn KeyStore>) -> Result<Self, DamagedKeys> {
        let content = content.map(Zeroizing::new);
        let list = content.map(|content| text::read(&content)).transpose()?.unwrap_or_default();
        Ok(Self { list: Mutex::new(Arc::new(list)), store: Some(store) })
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list().keys.len()
    }

    /// Whether they outlive the process.
    pub(crate) fn are_durable(&self) -> bool {
        self.store.is_some()
    }

    /// Those that there are now.
    pub(crate) fn list(&self) -> Arc<KeyList> {
        Arc::clone(&self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Has another list in place of the one that there is, once it is stored. Only who changes the
    /// target calls this, one after the other.
    pub(crate) fn replace(&self, list: KeyList) -> Result<(), ConfigStoreError> {
        if let Some(store) = &self.store
            && let Err(error) = store.replace(&text::write(&list))
        {
            if matches!(error, ConfigStoreError::Unknown(_)) {
                // A number that may be stored is not given again.
                let mut now = self.list.lock().unwrap_or_else(PoisonError::into_inner);
                let next = list.next.max(now.next);
                Arc::make_mut(&mut now).next = next;
            }
            return Err(error);
        }
        *self.list.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(list);
        Ok(())
    }
}

impl std::fmt::Debug for StoredKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredKeys").field("count", &self.count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
