//! The secrets of hosts, from where the configuration says that they are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ebof_authentication::Secret;
use ebof_authentication::secret::TextError;
use ebof_fabrics::HostSecrets;
use ebof_manage::config::{Config, KeyPlace};
use ebof_nvme::Nqn;
use ebof_state::{PrivateFileError, read_credential, read_private};
use thiserror::Error;

use crate::life::startup::StartError;

/// The most secrets of one host that are good at a time.
const SECRETS_MAX: usize = 8;
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
    #[error("there is no key in it: `ebof gen-dhchap-key` makes one")]
    Empty,
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

/// The secrets of all hosts that have some.
pub(crate) type Secrets = BTreeMap<Nqn, Arc<HostSecrets>>;

/// Reads them.
pub(crate) fn read(config: &Config) -> Result<Secrets, StartError> {
    let mut secrets = Secrets::new();
    for host in &config.hosts {
        let read = |key: &'static str, place: &KeyPlace, most| {
            read_place(place, most).map_err(|error| StartError::HostKey {
                host: host.nqn.clone(),
                key,
                place: place.clone(),
                error: Box::new(error),
            })
        };
        let Some(own) = &host.dhchap_key else { continue };
        let own = read("dhchap_key", own, SECRETS_MAX)?;
        let controller = host.dhchap_ctrl_key.as_ref().map(|place| read("dhchap_ctrl_key", place, 1)).transpose()?;
        let controller = controller.and_then(|mut keys| keys.pop());
        secrets.insert(host.nqn.clone(), Arc::new(HostSecrets { host: own, controller }));
    }
    Ok(secrets)
}

fn read_place(place: &KeyPlace, most: usize) -> Result<Vec<Secret>, KeyError> {
    let text = match place {
        KeyPlace::File(path) => read_private(Path::new(path), FILE_BYTES_MAX)?,
        KeyPlace::Credential(name) => {
            let directory = std::env::var_os(CREDENTIALS).map(PathBuf::from).ok_or(KeyError::NoCredentials)?;
            // Whose they are and who may read them is systemd's matter.
            read_credential(&directory.join(name), FILE_BYTES_MAX)?
        }
    };
    let mut secrets = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if secrets.len() == most {
            return Err(KeyError::Many { most });
        }
        secrets.push(Secret::parse(line).map_err(|error| KeyError::Text { line: at + 1, error })?);
    }
    if secrets.is_empty() { Err(KeyError::Empty) } else { Ok(secrets) }
}
