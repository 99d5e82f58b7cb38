//! The secrets of hosts, where a target reads them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ebof_authentication::{Hash, KeyMaterial, Secret};
use ebof_manage::config::{Host, KeyPlace};
use ebof_nvme::Nqn;
use ebof_server::{KeyError, KeyPlaces};
use zeroize::Zeroizing;

use crate::random::Random;

/// What the target knows of each host that has to prove who it is.
#[derive(Debug, Default)]
pub(crate) struct SecretStore(Mutex<BTreeMap<String, Entry>>);

#[derive(Debug)]
struct Entry {
    host: Nqn,
    /// Those that are good.
    secrets: Vec<Secret>,
}

impl SecretStore {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From when the target reads it next on, a host proves itself by one of these.
    pub(crate) fn set(&self, host: &Nqn, secrets: Vec<Secret>) {
        let path = format!("/simulated/keys/{host}");
        self.entries().insert(path, Entry { host: host.clone(), secrets });
    }

    /// The hosts as a configuration has them.
    pub(crate) fn hosts(&self) -> Vec<Host> {
        let entries = self.entries();
        let host = |(path, entry): (&String, &Entry)| {
            let mut host = Host::new(entry.host.clone());
            host.dhchap_key = Some(KeyPlace::File(path.clone()));
            host
        };
        entries.iter().map(host).collect()
    }
}

impl KeyPlaces for SecretStore {
    fn read(&self, place: &KeyPlace) -> Result<Zeroizing<String>, KeyError> {
        let KeyPlace::File(path) = place else { return Err(KeyError::NoCredentials) };
        let entries = self.entries();
        let entry = entries.get(path).ok_or(KeyError::Empty { maker: "the story" })?;
        let lines = entry.secrets.iter().map(|secret| format!("{}\n", *secret.to_text()));
        Ok(Zeroizing::new(lines.collect()))
    }
}

/// A secret that nobody else has.
pub(crate) fn secret(random: &mut Random) -> Secret {
    let mut key = vec![0; random.weighted(&[(3, 32), (1, 48), (1, 64)])];
    random.fill(&mut key);
    let transform = random.weighted(&[(1, None), (1, Some(Hash::Sha256)), (1, Some(Hash::Sha512))]);
    Secret::new(KeyMaterial::new(key), transform).expect("a length that secrets have")
}
