//! The list of keys as JSON, which has a version.

use std::collections::BTreeMap;

use ebof_manage::api::{KeyKind, KeyText, STORED_KEYS_MAX};
use ebof_nvme::Nqn;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{DamagedKeys, HostKey, KeyList, StoredKey};

/// The version that is written.
const VERSION: u32 = 1;

/// The longest text of a key without that of its host, bytes.
const KEY_BYTES_MAX: usize = 256;

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    next: u64,
    keys: Vec<WrittenKey<'a>>,
}

#[derive(Serialize)]
struct WrittenKey<'a> {
    number: u64,
    host: &'a str,
    kind: KeyKind,
    since_s: u64,
    key: KeyText,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    #[serde(rename = "version")]
    _version: u32,
    next: u64,
    keys: Vec<ReadKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadKey {
    number: u64,
    host: String,
    kind: KeyKind,
    since_s: u64,
    key: KeyText,
}

/// Read first: what else there is depends on it.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl DamagedKeys {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }

    /// Where a text is not understood. What stands there may be a key.
    fn at(error: &serde_json::Error) -> Self {
        Self::new(format!("line {}, column {} is not what is written there", error.line(), error.column()))
    }
}

/// The text of a list.
pub(super) fn write(list: &KeyList) -> Zeroizing<Vec<u8>> {
    let bytes: usize = list.keys.iter().map(|key| key.host.as_str().len() + KEY_BYTES_MAX).sum();
    // It does not grow, and so leaves no copies of keys behind.
    let mut text = Zeroizing::new(Vec::with_capacity(bytes + KEY_BYTES_MAX));
    let key = |key: &StoredKey| KeyText::new(key.key.to_text());
    let keys = list.keys.iter().map(|stored| WrittenKey {
        number: stored.number,
        host: stored.host.as_str(),
        kind: stored.key.kind(),
        since_s: stored.since_s,
        key: key(stored),
    });
    let written = Written { version: VERSION, next: list.next, keys: keys.collect() };
    serde_json::to_writer(&mut *text, &written).expect("it has no map, and memory takes everything");
    text
}

/// The list of a text.
pub(super) fn read(text: &[u8]) -> Result<KeyList, DamagedKeys> {
    let Version { version } = serde_json::from_slice(text).map_err(|error| DamagedKeys::at(&error))?;
    if version != VERSION {
        return Err(DamagedKeys::new(format!("they have version {version}, and this program knows version {VERSION}")));
    }
    let Read { _version, next, keys } = serde_json::from_slice(text).map_err(|error| DamagedKeys::at(&error))?;
    if keys.len() > STORED_KEYS_MAX {
        return Err(DamagedKeys::new(format!("there are {} keys, more than {STORED_KEYS_MAX}", keys.len())));
    }
    let mut list = KeyList { next, keys: Vec::with_capacity(keys.len()) };
    let mut counts: BTreeMap<(Nqn, KeyKind), usize> = BTreeMap::new();
    let mut last = 0;
    for ReadKey { number, host, kind, since_s, key } in keys {
        let wrong = |why: &str| DamagedKeys::new(format!("key k{number}: {why}"));
        if number <= last || number >= next {
            return Err(wrong("its number is not its own"));
        }
        last = number;
        let host = Nqn::parse(&host).map_err(|_| wrong("its host has no legal NQN"))?;
        let key = HostKey::parse(kind, key.as_str()).map_err(|error| wrong(&error.to_string()))?;
        let count = counts.entry((host.clone(), kind)).or_default();
        *count += 1;
        if *count > kind.most() {
            return Err(wrong("its host has more keys of this kind than it may have"));
        }
        list.keys.push(StoredKey { number, host, key, since_s });
    }
    Ok(list)
}
