//! Where the keys of hosts are: in files, credentials of systemd and the kernel's keyrings, or in a
//! simulation of these. Which key is whose, and what the text of one means, is not decided here.

use std::path::{Path, PathBuf};

use ebof_authentication::secret::TextError;
use ebof_manage::config::KeyPlace;
use ebof_state::{KeyringError, PrivateFileError, read_credential, read_private, read_user_key};
use thiserror::Error;
use zeroize::Zeroizing;

/// The longest file with keys.
const FILE_BYTES_MAX: usize = 4096;
/// Where systemd has the credentials of a service.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Where the keys of hosts are.
pub trait KeyPlaces: Send + Sync {
    /// The text at a place: keys, one in a line.
    ///
    /// # Errors
    /// It cannot be read, or others can read it, too.
    fn read(&self, place: &KeyPlace) -> Result<Zeroizing<String>, KeyError>;
}

/// Those of this machine.
#[derive(Debug)]
pub(crate) struct SystemKeys;

impl KeyPlaces for SystemKeys {
    fn read(&self, place: &KeyPlace) -> Result<Zeroizing<String>, KeyError> {
        Ok(match place {
            KeyPlace::File(path) => read_private(Path::new(path), FILE_BYTES_MAX)?,
            KeyPlace::Keyring(name) => read_user_key(name)?,
            KeyPlace::Credential(name) => {
                let directory = std::env::var_os(CREDENTIALS).map(PathBuf::from).ok_or(KeyError::NoCredentials)?;
                // Whose they are and who may read them is systemd's matter.
                read_credential(&directory.join(name), FILE_BYTES_MAX)?
            }
        })
    }
}

/// Why a key cannot be used.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// The kernel's key cannot be used.
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// A keyring without a key of the host.
    #[error("no PSK identity in it names the host, or this user may read none (`keyctl show %keyring:{keyring}`)")]
    NoIdentity {
        /// The keyring.
        keyring: String,
    },
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
