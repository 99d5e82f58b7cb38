//! Keys of hosts that a running target is given, as the API tells and takes them: for DH-HMAC-CHAP
//! and for TLS. They are no part of a configuration.
//!
//! Owns the types and the trait. Which keys are accepted, where they are stored and how they come
//! into force is the target's. The text of a key goes in one direction, to the target:
//! nothing here that a target answers has one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use zeroize::{Zeroize as _, Zeroizing};

use super::{Asker, Revision};
use crate::diagnostic::nearest::names;
use crate::enclosure::{DISTURBED_MAX, DisturbedHost, Refused};

/// The version of the JSON shape of [`Keys`] and [`KeysChange`].
pub const KEYS_SCHEMA: u32 = 1;

/// The most keys of a host that are good at a time, of each kind but `dhchap-ctrl`, of which there
/// is one.
pub const HOST_KEYS_MAX: usize = 8;

/// The most keys that a target stores, of all hosts.
pub const STORED_KEYS_MAX: usize = 4096;

/// A target whose hosts can be given keys while it runs.
///
/// A key says who a host is, and nothing about where it may connect. The keys of a host are those
/// that its configuration names and those that are stored, and each of them is as good as another.
pub trait KeyKeeper: Send + Sync {
    /// All keys, by host and kind, the oldest first; those of the configuration before those that
    /// are stored.
    fn keys(&self) -> Keys;

    /// What [`KeyKeeper::add`] would do, and whom it would disturb. Nothing is stored.
    ///
    /// # Errors
    /// As there.
    fn plan_add(&self, key: &AddKey) -> Result<KeysChange, Refused>;

    /// Stores a key and puts it in force. If `planned` is given, only if that still is the revision
    /// of what [`KeyKeeper::plan_add`] tells.
    ///
    /// # Errors
    /// What is wrong with the key, or why it cannot be stored ([`MistakeKind::NotStored`]): nothing
    /// is changed then, unless it is [`MistakeKind::Unknown`].
    ///
    /// [`MistakeKind::NotStored`]: crate::enclosure::MistakeKind::NotStored
    /// [`MistakeKind::Unknown`]: crate::enclosure::MistakeKind::Unknown
    fn add(&self, key: &AddKey, planned: Option<&Revision>, by: &Asker) -> Result<KeysChange, Refused>;

    /// What [`KeyKeeper::remove`] would do, and whom it would disturb.
    ///
    /// # Errors
    /// As there.
    fn plan_remove(&self, ids: &[String]) -> Result<KeysChange, Refused>;

    /// Removes the stored keys with these ids, all or none. If `planned` is given, only if that
    /// still is the revision of what [`KeyKeeper::plan_remove`] tells.
    ///
    /// # Errors
    /// An id that there is not, or as with [`KeyKeeper::add`].
    fn remove(&self, ids: &[String], planned: Option<&Revision>, by: &Asker) -> Result<KeysChange, Refused>;
}

/// All keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// [`KEYS_SCHEMA`].
    pub schema: u32,
    /// Whether stored keys are in force after the next start, too; without a state directory they
    /// are not.
    pub durable: bool,
    /// By host and kind: those of the configuration first, then the oldest first.
    pub keys: Vec<KeyStatus>,
}

/// A key, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyStatus {
    /// Names a stored key for ever: no other one gets its id. `None` for a key of the
    /// configuration, which is changed where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The host's NQN.
    pub host: String,
    /// What it is for.
    pub kind: KeyKind,
    /// Where a key of the configuration is, such as the path of its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The hash that it is bound to, such as `SHA-256`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// Its length.
    pub bits: u32,
    /// When a stored key was added, seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_s: Option<u64>,
    /// Controllers of the host that are connected with a proof of this kind; which of several keys
    /// it was by is not known. Whether subsystems have proven themselves is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<u32>,
}

names! {
    /// What a key is for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum KeyKind {
        /// The host proves by it who it is (DH-HMAC-CHAP).
        Dhchap = "dhchap";
        /// Subsystems prove by it to the host who they are, if it asks for that (DH-HMAC-CHAP).
        DhchapCtrl = "dhchap-ctrl";
        /// Host and target encrypt by it, and so prove who they are (TLS).
        Tls = "tls";
    }
}

/// A text is no kind of key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("want dhchap, dhchap-ctrl or tls")]
pub struct NoSuchKeyKind;

/// The text of a key, as `ebof gen-dhchap-key` and `ebof gen-tls-key` make it. It is erased from
/// memory when it is dropped, and never formatted.
#[derive(Clone)]
pub struct KeyText(Zeroizing<String>);

/// A key to be added.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddKey {
    /// The host's NQN.
    pub host: String,
    /// What it is for.
    pub kind: KeyKind,
    /// Its text. The target never gives it back.
    pub key: KeyText,
    /// `true`: it takes the place of all stored keys of this host and kind, in one step; if not, it
    /// is good beside them.
    #[serde(default)]
    pub replace: bool,
}

/// A change of keys, planned or made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysChange {
    /// [`KEYS_SCHEMA`].
    pub schema: u32,
    /// Names what is changed and who notices: another one as soon as that is something else.
    pub revision: Revision,
    /// Whether it is in force after the next start, too.
    pub durable: bool,
    /// The key that is added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<KeyStatus>,
    /// The keys that are removed.
    pub removed: Vec<KeyStatus>,
    /// The connected hosts that notice, each controller once: at most
    /// [`DISTURBED_MAX`](crate::enclosure::DISTURBED_MAX).
    pub disturbed: Vec<DisturbedHost>,
    /// How many more there are.
    pub disturbed_left_out: usize,
    /// What is remarkable about it, for people: such as that no subsystem admits the host.
    pub notes: Vec<String>,
}

impl KeysChange {
    /// What is changed, and who notices.
    #[must_use]
    pub fn new(
        added: Option<KeyStatus>,
        removed: Vec<KeyStatus>,
        durable: bool,
        mut disturbed: Vec<DisturbedHost>,
        notes: Vec<String>,
    ) -> Self {
        // Not the number that the key would get, which others get meanwhile, nor who is connected.
        let new = added.as_ref().map(|key| (&key.host, key.kind, &key.hash, key.bits));
        let gone: Vec<_> = removed.iter().map(|key| &key.id).collect();
        let answer = serde_json::json!([new, gone, durable, disturbed]);
        let revision = Revision::named(crate::config::digest(&answer.to_string()).to_string());
        let disturbed_left_out = disturbed.len().saturating_sub(DISTURBED_MAX);
        disturbed.truncate(DISTURBED_MAX);
        Self { schema: KEYS_SCHEMA, revision, durable, added, removed, disturbed, disturbed_left_out, notes }
    }
}

impl KeyKind {
    /// The most keys of this kind that a host has, those of its configuration included.
    #[must_use]
    pub const fn most(self) -> usize {
        match self {
            Self::DhchapCtrl => 1,
            Self::Dhchap | Self::Tls => HOST_KEYS_MAX,
        }
    }
}

impl FromStr for KeyKind {
    type Err = NoSuchKeyKind;

    fn from_str(text: &str) -> Result<Self, NoSuchKeyKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(NoSuchKeyKind)
    }
}

/// Erases all texts of a body that may have a key or a password in it. Names of properties are
/// left.
pub fn erase_texts(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(list) => list.iter_mut().for_each(erase_texts),
        Value::Object(properties) => properties.values_mut().for_each(erase_texts),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl KeyText {
    /// That of a key.
    #[must_use]
    pub fn new(text: impl Into<Zeroizing<String>>) -> Self {
        Self(text.into())
    }

    /// It.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyText(..)")
    }
}

impl Serialize for KeyText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for KeyText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self(Zeroizing::new(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKED: &str = "DHHC-1:00:bWFya2Vk:";

    #[test]
    fn a_key_is_sent_and_never_shown() {
        let sent = format!(r#"{{"host": "nqn.2014-08.org.example:a", "kind": "dhchap-ctrl", "key": "{MARKED}"}}"#);
        let add: AddKey = serde_json::from_str(&sent).unwrap();
        assert_eq!((add.kind, add.key.as_str(), add.replace), (KeyKind::DhchapCtrl, MARKED, false));
        assert!(serde_json::to_string(&add).unwrap().contains(MARKED), "a client has to send it");
        let shown = format!("{add:?}");
        assert!(!shown.contains("bWFya2Vk") && shown.contains("nqn.2014-08.org.example:a"), "{shown}");
    }

    #[test]
    fn an_error_of_a_body_has_nothing_of_the_key() {
        for wrong in [
            format!(r#"{{"host": "h", "kind": "tls", "key": "{MARKED}", "more": 1}}"#),
            format!(r#"{{"host": "h", "key": "{MARKED}"}}"#),
            format!(r#"{{"host": "h", "kind": "tls", "key": "{MARKED}""#),
        ] {
            let error = serde_json::from_str::<AddKey>(&wrong).unwrap_err().to_string();
            assert!(!error.contains("bWFya2Vk"), "{error}");
        }
    }

    #[test]
    fn kinds_have_the_same_names_everywhere() {
        for kind in KeyKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        assert_eq!("psk".parse::<KeyKind>(), Err(NoSuchKeyKind));
    }
}
