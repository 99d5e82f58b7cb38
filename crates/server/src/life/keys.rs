//! The keys of hosts, from where the configuration says that they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebof_authentication::secret::TextError;
use ebof_authentication::{ConfiguredPsk, Secret};
use ebof_fabrics::HostSecrets;
use ebof_manage::config::{Config, Host, KeyPlace};
use ebof_nvme::Nqn;
use ebof_state::{PrivateFileError, read_credential, read_private};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::life::startup::StartError;

/// The most keys of one kind of one host that are good at a time.
const KEYS_MAX: usize = 8;
/// The longest file with keys.
const FILE_BYTES_MAX: usize = 4096;
/// Where systemd has the credentials of a service.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Why a key cannot be used.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// There are no credentials.
    #[error("the target has no credentials: they come from `LoadCredential=` of its unit ({CREDENTIALS} is not set)")]
    NoCredentials,
    /// A file without a key.
    #[error("there is no key in it: {maker} makes one")]
    Empty {
        /// What makes one.
        maker: &'static str,
    },
    /// Too many keys.
    #[error("there are more than {most} keys in it")]
    Many {
        /// How many there may be.
        most: usize,
    },
    /// Something that is no key.
    #[error("line {line}: {error}")]
    Text {
        /// The line.
        line: usize,
        /// What is wrong.
        #[source]
        error: TextError,
    },
}

/// The keys of all hosts that have some.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostKeys {
    /// For authentication.
    pub(crate) secrets: BTreeMap<Nqn, Arc<HostSecrets>>,
    /// For TLS.
    pub(crate) tls_psks: BTreeMap<Nqn, Arc<Vec<ConfiguredPsk>>>,
}

/// How a line of a file with keys becomes a key.
type ParseKey<K> = fn(&str) -> Result<K, TextError>;

impl HostKeys {
    /// Reads them.
    pub(crate) fn read(config: &Config) -> Result<Self, StartError> {
        let mut keys = Self::default();
        for host in &config.hosts {
            if let Some(place) = &host.dhchap_key {
                let secrets = read(host, "dhchap_key", place, KEYS_MAX, Secret::parse)?;
                let place = host.dhchap_ctrl_key.as_ref();
                let controller =
                    place.map(|place| read(host, "dhchap_ctrl_key", place, 1, Secret::parse)).transpose()?;
                let controller = controller.and_then(|mut keys| keys.pop());
                keys.secrets.insert(host.nqn.clone(), Arc::new(HostSecrets { host: secrets, controller }));
            }
            if let Some(place) = &host.tls_psk {
                let psks = read(host, "tls_psk", place, KEYS_MAX, ConfiguredPsk::parse)?;
                keys.tls_psks.insert(host.nqn.clone(), Arc::new(psks));
            }
        }
        Ok(keys)
    }
}

/// Reads what `key` of a host names.
fn read<K>(
    host: &Host,
    key: &'static str,
    place: &KeyPlace,
    most: usize,
    parse: ParseKey<K>,
) -> Result<Vec<K>, StartError> {
    let read = read_place(place).and_then(|text| parse_lines(&text, most, parse));
    let read = read.and_then(|keys| {
        let maker = if key == "tls_psk" { "`ebof gen-tls-key`" } else { "`ebof gen-dhchap-key`" };
        if keys.is_empty() { Err(KeyError::Empty { maker }) } else { Ok(keys) }
    });
    read.map_err(|error| StartError::HostKey {
        host: host.nqn.clone(),
        key,
        place: place.clone(),
        error: Box::new(error),
    })
}

fn read_place(place: &KeyPlace) -> Result<Zeroizing<String>, KeyError> {
    Ok(match place {
        KeyPlace::File(path) => read_private(Path::new(path), FILE_BYTES_MAX)?,
        KeyPlace::Credential(name) => {
            let directory = std::env::var_os(CREDENTIALS).map(PathBuf::from).ok_or(KeyError::NoCredentials)?;
            // Whose they are and who may read them is systemd's matter.
            read_credential(&directory.join(name), FILE_BYTES_MAX)?
        }
    })
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
