//! Where a secret or key of this host comes from.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebof_authentication::secret::TextError;
use ebof_authentication::{ConfiguredPsk, Secret};

/// The longest file with a secret.
const FILE_BYTES_MAX: usize = 4096;

/// Where a secret for DH-HMAC-CHAP comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A file, which is read whenever a queue has to be authenticated: its first line that is
    /// neither empty nor a comment (`#`).
    File(PathBuf),
    /// This one.
    Secret(Secret),
}

impl KeySource {
    /// The secret.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(crate) fn load(&self) -> Result<Secret, String> {
        match self {
            Self::Secret(secret) => Ok(secret.clone()),
            Self::File(path) => first_key(path, Secret::parse),
        }
    }
}

/// The key in the first line of a file that is neither empty nor a comment.
fn first_key<K>(path: &Path, parse: fn(&str) -> Result<K, TextError>) -> Result<K, String> {
    let name = path.display();
    let text = ebof_state::read_private(path, FILE_BYTES_MAX).map_err(|error| format!("{name}: {error}"))?;
    let line = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let line = line.ok_or_else(|| format!("{name}: there is no key in it"))?;
    parse(line).map_err(|error| format!("{name}: {error}"))
}

/// Where a PSK for TLS comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PskSource {
    /// A file, which is read at every connection: its first line that is neither empty nor a
    /// comment (`#`).
    File(PathBuf),
    /// This one.
    Psk(ConfiguredPsk),
}

/// That connections are TLS connections, with this host's PSK.
#[derive(Clone, Debug)]
pub struct Tls {
    /// Where the PSK comes from.
    pub psk: PskSource,
    /// Which of the names and derivations of the PSK the target knew last, for all connections by
    /// these options.
    known: Arc<AtomicUsize>,
}

impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        self.psk == other.psk
    }
}

impl Eq for Tls {}

impl Tls {
    /// With a PSK from there.
    #[must_use]
    pub fn new(psk: PskSource) -> Self {
        Self { psk, known: Arc::default() }
    }

    /// The PSK.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(crate) fn load(&self) -> Result<ConfiguredPsk, String> {
        match &self.psk {
            PskSource::Psk(psk) => Ok(psk.clone()),
            PskSource::File(path) => first_key(path, ConfiguredPsk::parse),
        }
    }

    /// Which the target knew last.
    pub(crate) fn known(&self) -> usize {
        self.known.load(Ordering::Relaxed)
    }

    /// The target knows this one.
    pub(crate) fn note_known(&self, which: usize) {
        self.known.store(which, Ordering::Relaxed);
    }
}
