//! The hosts that a configuration knows, and where their keys are: never the keys themselves.

use std::fmt;
use std::path::Path;

use ebof_nvme::Nqn;
use serde::Serialize;

use super::written::as_text;
use crate::keys::Absent::{Required, Words};
use crate::keys::{Form, Key};

/// A host that subsystems can name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Its NQN.
    #[serde(serialize_with = "as_text")]
    pub nqn: Nqn,
    /// Where its secrets for DH-HMAC-CHAP are: with one, the host has to prove who it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhchap_key: Option<KeyPlace>,
    /// Where the secret is by which subsystems prove themselves to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhchap_ctrl_key: Option<KeyPlace>,
    /// Where its PSKs for TLS are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_psk: Option<KeyPlace>,
}

/// Where a key is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyPlace {
    /// In a file.
    File(String),
    /// In a credential of the service manager (systemd.exec, `LoadCredential`).
    Credential(String),
    /// In the kernel: a key of this description, or a keyring of this name.
    Keyring(String),
}

impl KeyPlace {
    /// The keys of the table that names one, of which it has one.
    pub const NAMES: [&str; 3] = ["file", "credential", "keyring"];

    /// The place that a key of such a table names.
    pub(crate) fn named(key: &str, value: &str) -> Option<Self> {
        match key {
            "file" => Some(Self::File(value.to_owned())),
            "credential" => Some(Self::Credential(value.to_owned())),
            "keyring" => Some(Self::Keyring(value.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.write_str(path),
            Self::Credential(name) => write!(f, "credential {name}"),
            Self::Keyring(name) => write!(f, "keyring {name}"),
        }
    }
}

impl Host {
    /// A host without keys.
    #[must_use]
    pub fn new(nqn: Nqn) -> Self {
        Self { nqn, dhchap_key: None, dhchap_ctrl_key: None, tls_psk: None }
    }

    /// Whether it can prove who it is by a key of the configuration.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.dhchap_key.is_some() || self.tls_psk.is_some()
    }

    /// Puts `base` in front of relative paths of files.
    pub(super) fn rebase(&mut self, base: &Path) {
        for place in [&mut self.dhchap_key, &mut self.dhchap_ctrl_key, &mut self.tls_psk] {
            if let Some(KeyPlace::File(path)) = place
                && let Some(joined) = base.join(&path).to_str()
            {
                *path = joined.to_owned();
            }
        }
    }

    pub(crate) const KEYS: &[Key<Self>] = &[
        Key { name: "nqn", form: Form::Nqn { set: None }, default: Required, text: "its NQN" },
        Key {
            name: "dhchap_key",
            form: Form::Other("table"),
            default: Words("none"),
            text: "where its secrets for DH-HMAC-CHAP are, `{ file = \"PATH\" }`, `{ credential = \"NAME\" }` (of \
                   systemd) or `{ keyring = \"NAME\" }` (a key of type `user` with that description, in the kernel): up \
                   to 8 lines, each a secret as `ebof gen-dhchap-key` makes it. The host has to prove that it has one of \
                   them, whatever it connects to but discovery. A file must belong to root or to the target's user, and \
                   be readable by nobody else",
        },
        Key {
            name: "dhchap_ctrl_key",
            form: Form::Other("table"),
            default: Words("none: hosts that ask for a proof are refused"),
            text: "where the secret is with which its subsystems prove themselves to the host, if it asks them to; one line",
        },
        Key {
            name: "tls_psk",
            form: Form::Other("table"),
            default: Words("none"),
            text: "where its keys for TLS are, in the same way: up to 8 lines, each a PSK as `ebof gen-tls-key` makes \
                   it. By one of them it connects through ports with `tls`. `{ keyring = \".nvme\" }` names a keyring \
                   with keys that were derived for the host, as nvme-cli puts them there",
        },
    ];
}
