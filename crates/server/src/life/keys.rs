//! The keys of hosts: from where the configuration says that they are, and those that are stored.
//!
//! Owns how both become those that are in force. How the latter are added and removed is in
//! `server/life/keys/keeper.rs`.

mod keeper;
mod told;

use std::collections::BTreeMap;
use std::sync::Arc;

use ebof_authentication::controller::Policy;
use ebof_authentication::psk::KeyOrigin;
use ebof_authentication::secret::TextError;
use ebof_authentication::{ConfiguredPsk, Group, Hash, HostPsk, Identity, KeyMaterial, Secret};
use ebof_fabrics::HostSecrets;
use ebof_manage::api::{HOST_KEYS_MAX, KeyKind};
use ebof_manage::config::{Config, DhchapGroup, DhchapHash, Host, KeyPlace, TargetOptions};
use ebof_nvme::Nqn;
use ebof_state::{has_keyring, read_psks};

use crate::environment::keys::{KeyError, KeyPlaces};
use crate::environment::stored_keys::{HostKey, KeyList};
use crate::life::startup::StartError;

/// The hashes and groups that are acceptable in proofs.
pub(crate) fn policy(target: &TargetOptions) -> Policy {
    let hash = |hash: &DhchapHash| match hash {
        DhchapHash::Sha256 => Hash::Sha256,
        DhchapHash::Sha384 => Hash::Sha384,
        DhchapHash::Sha512 => Hash::Sha512,
    };
    let group = |group: &DhchapGroup| match group {
        DhchapGroup::Null => Group::Null,
        DhchapGroup::Ffdhe2048 => Group::Ffdhe2048,
        DhchapGroup::Ffdhe3072 => Group::Ffdhe3072,
        DhchapGroup::Ffdhe4096 => Group::Ffdhe4096,
        DhchapGroup::Ffdhe6144 => Group::Ffdhe6144,
        DhchapGroup::Ffdhe8192 => Group::Ffdhe8192,
    };
    Policy {
        hashes: target.dhchap_hashes.iter().map(hash).collect(),
        groups: target.dhchap_groups.iter().map(group).collect(),
        ..Policy::default()
    }
}

/// The keys of all hosts that have some.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostKeys {
    /// For authentication.
    pub(crate) secrets: BTreeMap<Nqn, Arc<HostSecrets>>,
    /// For TLS.
    pub(crate) tls_psks: BTreeMap<Nqn, Arc<Vec<HostPsk>>>,
}

/// How a line of a file with keys becomes a key.
type ParseKey<K> = fn(&str) -> Result<K, TextError>;

impl HostKeys {
    /// Reads them from where the configuration says that they are.
    pub(crate) fn read(config: &Config, store: &dyn KeyPlaces) -> Result<Self, StartError> {
        let mut keys = Self::default();
        for host in &config.hosts {
            if let Some(place) = &host.dhchap_key {
                let secrets = read(store, host, "dhchap_key", place, HOST_KEYS_MAX, Secret::parse)?;
                let place = host.dhchap_ctrl_key.as_ref();
                let controller =
                    place.map(|place| read(store, host, "dhchap_ctrl_key", place, 1, Secret::parse)).transpose()?;
                let controller = controller.and_then(|mut keys| keys.pop());
                keys.secrets.insert(host.nqn.clone(), Arc::new(HostSecrets { host: secrets, controller }));
            }
            if let Some(place) = &host.tls_psk {
                let psks = match place {
                    KeyPlace::Keyring(keyring) if is_keyring(keyring) => {
                        read_keyring(host, keyring).map_err(|error| host_key(host, "tls_psk", place, error))?
                    }
                    _ => {
                        let psks = read(store, host, "tls_psk", place, HOST_KEYS_MAX, ConfiguredPsk::parse)?;
                        psks.into_iter().map(HostPsk::Configured).collect()
                    }
                };
                keys.tls_psks.insert(host.nqn.clone(), Arc::new(psks));
            }
        }
        Ok(keys)
    }

    /// These and those that are stored. Of the keys by which subsystems prove themselves there is
    /// one for each host, and one of the configuration comes first.
    pub(crate) fn with(&self, stored: &KeyList) -> Self {
        let mut all = self.clone();
        let none = || Arc::new(HostSecrets { host: Vec::new(), controller: None });
        for stored in &stored.keys {
            let host = || stored.host.clone();
            match &stored.key {
                HostKey::Dhchap(secret) => {
                    let secrets = all.secrets.entry(host()).or_insert_with(none);
                    Arc::make_mut(secrets).host.push(secret.clone());
                }
                HostKey::DhchapCtrl(_) => {}
                HostKey::Tls(psk) => {
                    let psks = all.tls_psks.entry(host()).or_default();
                    Arc::make_mut(psks).push(HostPsk::Configured(psk.clone()));
                }
            }
        }
        for stored in &stored.keys {
            // Of no use to a host that does not prove itself.
            if let HostKey::DhchapCtrl(secret) = &stored.key
                && let Some(secrets) = all.secrets.get_mut(&stored.host)
                && secrets.controller.is_none()
            {
                Arc::make_mut(secrets).controller = Some(secret.clone());
            }
        }
        all
    }

    /// How many keys of a kind a host has.
    fn count(&self, host: &Nqn, kind: KeyKind) -> usize {
        let secrets = self.secrets.get(host);
        match kind {
            KeyKind::Dhchap => secrets.map_or(0, |secrets| secrets.host.len()),
            KeyKind::DhchapCtrl => secrets.map_or(0, |secrets| secrets.controller.iter().len()),
            KeyKind::Tls => self.tls_psks.get(host).map_or(0, |psks| psks.len()),
        }
    }

    /// Whether a host has this key.
    fn has(&self, host: &Nqn, key: &HostKey) -> bool {
        let secrets = self.secrets.get(host);
        match key {
            HostKey::Dhchap(secret) => secrets.is_some_and(|secrets| secrets.host.contains(secret)),
            HostKey::DhchapCtrl(secret) => secrets.is_some_and(|secrets| secrets.controller.as_ref() == Some(secret)),
            HostKey::Tls(psk) => {
                let is_it = |it: &HostPsk| matches!(it, HostPsk::Configured(it) if it == psk);
                self.tls_psks.get(host).is_some_and(|psks| psks.iter().any(is_it))
            }
        }
    }
}

/// What makes a key, for TLS or for authentication.
fn maker(is_tls: bool) -> &'static str {
    if is_tls { "`ebof gen-tls-key`" } else { "`ebof gen-dhchap-key`" }
}

/// Reads what `key` of a host names.
fn read<K>(
    store: &dyn KeyPlaces,
    host: &Host,
    key: &'static str,
    place: &KeyPlace,
    most: usize,
    parse: ParseKey<K>,
) -> Result<Vec<K>, StartError> {
    let read = store.read(place).and_then(|text| parse_lines(&text, most, parse));
    let read = read.and_then(|keys| {
        let maker = maker(key == "tls_psk");
        if keys.is_empty() { Err(KeyError::Empty { maker }) } else { Ok(keys) }
    });
    read.map_err(|error| host_key(host, key, place, error))
}

fn host_key(host: &Host, key: &'static str, place: &KeyPlace, error: KeyError) -> StartError {
    StartError::HostKey { host: host.nqn.clone(), key, place: place.clone(), error: Box::new(error) }
}

/// Whether it is the name of a keyring; else it is that of a key, or there is neither.
fn is_keyring(name: &str) -> bool {
    has_keyring(name).unwrap_or(false)
}

/// The keys of a host in a keyring, which libnvme has derived and named by their identities.
fn read_keyring(host: &Host, keyring: &str) -> Result<Vec<HostPsk>, KeyError> {
    let identity_of = |description: &str| {
        let identity = description.parse::<Identity>().ok()?;
        (identity.names.host == host.nqn && identity.origin == KeyOrigin::Retained).then_some(identity)
    };
    let keys = read_psks(keyring, |description, _| identity_of(description).is_some())?;
    let mut psks = Vec::new();
    for key in keys {
        let Some(identity) = identity_of(&key.description) else { continue };
        psks.push(HostPsk::Derived { identity, key: KeyMaterial::copy_of(&key.payload) });
    }
    if psks.is_empty() { Err(KeyError::NoIdentity { keyring: keyring.to_owned() }) } else { Ok(psks) }
}

fn parse_lines<K>(text: &str, most: usize, parse: ParseKey<K>) -> Result<Vec<K>, KeyError> {
    let mut keys = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if keys.len() == most {
            return Err(KeyError::Many { most });
        }
        keys.push(parse(line).map_err(|error| KeyError::Text { line: at + 1, error })?);
    }
    Ok(keys)
}
