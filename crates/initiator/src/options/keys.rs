//! Where a secret or key of this host comes from.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebof_authentication::psk::{IdentityVersion, KeyOrigin};
use ebof_authentication::response::Names;
use ebof_authentication::secret::TextError;
use ebof_authentication::{ConfiguredPsk, Derivation, Identity, KeyMaterial, Secret};
use ebof_grammar::keys::has_key;
use ebof_tls::TlsPsk;

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
    /// This one, as text.
    Text(KeyText),
}

/// A key as somebody gave it to this process: kept like the key itself, and shown by no `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText(KeyMaterial);

impl KeyText {
    /// The text. It must not be copied to where it is not erased, or where others can read it.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.0.bytes()).expect("it was made of text")
    }
}

impl From<&str> for KeyText {
    fn from(text: &str) -> Self {
        Self(KeyMaterial::copy_of(text.as_bytes()))
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
}

impl KeySource {
    /// The secret.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(crate) fn load(&self) -> Result<Secret, String> {
        match self {
            Self::Secret(secret) => Ok(secret.clone()),
            Self::Text(text) => {
                Secret::parse(text.text()).map_err(|error| format!("the secret that was given: {error}"))
            }
            Self::File(path) => first_key(path, Secret::parse),
        }
    }
}

/// The key in the first line of a file that is neither empty nor a comment.
fn first_key<K>(path: &Path, parse: fn(&str) -> Result<K, TextError>) -> Result<K, String> {
    if has_key(&path.to_string_lossy()) {
        return Err("a key itself is given where the path of its file belongs".to_owned());
    }
    let name = path.display();
    let text = ebof_state::read_private(path, FILE_BYTES_MAX).map_err(|error| format!("{name}: {error}"))?;
    let (_, line) = key_lines(&text).next().ok_or_else(|| format!("{name}: there is no key in it"))?;
    parse(line).map_err(|error| format!("{name}: {error}"))
}

/// The lines of a file that are keys, neither empty nor a comment, by number from 1. A host uses
/// the first.
pub fn key_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
}

/// Where a PSK for TLS comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PskSource {
    /// A file, which is read at every connection: its first line that is neither empty nor a
    /// comment (`#`).
    File(PathBuf),
    /// This one.
    Psk(ConfiguredPsk),
    /// A keyring of the kernel, with keys that were derived for this host and subsystem (nvme-cli's
    /// `check-tls-key`); it is read at every connection.
    Keyring {
        /// Its name.
        name: String,
        /// Only the key of this description or number.
        key: Option<String>,
    },
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

    /// What a target may know the PSK by, the likeliest first.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(crate) fn offers(&self, names: &Names) -> Result<Vec<TlsPsk>, String> {
        match &self.psk {
            PskSource::Psk(psk) => Ok(offers(psk, names)),
            PskSource::File(path) => Ok(offers(&first_key(path, ConfiguredPsk::parse)?, names)),
            PskSource::Keyring { name, key } => in_keyring(name, key.as_deref(), names),
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

/// Each name and derivation of a PSK.
fn offers(psk: &ConfiguredPsk, names: &Names) -> Vec<TlsPsk> {
    let mut offers: Vec<TlsPsk> = Vec::new();
    for version in [IdentityVersion::V1, IdentityVersion::V0] {
        for derivation in [Derivation::Specification, Derivation::Libnvme1] {
            let retained = psk.retained(&names.host, derivation);
            let identity = retained.identity(names, version).to_string();
            // With version 0, names may be too long for one of them.
            let key = retained.for_tls(names, version, derivation).ok();
            let offer = key.and_then(|key| TlsPsk::new(identity, retained.hash(), key).ok());
            offers.extend(offer);
        }
    }
    offers
}

/// The keys of both names in a keyring, in the order in which Linux' host takes them.
fn in_keyring(keyring: &str, key: Option<&str>, names: &Names) -> Result<Vec<TlsPsk>, String> {
    let identity_of = |description: &str| {
        let identity = description.parse::<Identity>().ok()?;
        (identity.names == *names && identity.origin == KeyOrigin::Retained).then_some(identity)
    };
    let is_named =
        |description: &str, serial: i32| key.is_none_or(|key| key == description || key.parse() == Ok(serial));
    let found = ebof_state::read_psks(keyring, |description, serial| {
        is_named(description, serial) && identity_of(description).is_some()
    });
    let mut found: Vec<(Identity, TlsPsk)> = found
        .map_err(|error| error.to_string())?
        .into_iter()
        .filter_map(|key| {
            let identity = identity_of(&key.description)?;
            let material = KeyMaterial::copy_of(&key.payload);
            Some((identity.clone(), TlsPsk::new(key.description, identity.hash, material).ok()?))
        })
        .collect();
    if found.is_empty() {
        let Names { host, subsystem } = names;
        let which = key.map_or(String::new(), |key| format!(" {key:?}"));
        return Err(format!("keyring {keyring:?} has no key{which} of host {host} for {subsystem}"));
    }
    found.sort_by_key(|(identity, _)| std::cmp::Reverse((identity.version() as u8, identity.hash.bytes())));
    Ok(found.into_iter().map(|(_, psk)| psk).collect())
}

#[cfg(test)]
mod tests {
    use ebof_nvme::Nqn;

    use super::*;

    #[test]
    fn a_key_in_place_of_its_file_is_not_repeated() {
        let error = KeySource::File("/tmp/DHHC-1:01:AA/AAEC:".into()).load().unwrap_err();
        assert!(error.contains("a key itself") && !error.contains("AAEC"), "{error}");
    }

    #[test]
    fn a_psk_is_offered_by_both_versions_and_derivations() {
        let names = |long: usize| {
            let nqn = |end: &str| Nqn::parse(&format!("nqn.2014-08.org.example:{}{end}", "x".repeat(long))).unwrap();
            Names { host: nqn("a"), subsystem: nqn("b") }
        };
        let psk = ConfiguredPsk::new(KeyMaterial::new(vec![9; 32]), None).unwrap();
        let versions =
            |offers: &[TlsPsk]| offers.iter().map(|offer| offer.identity()[..5].to_owned()).collect::<Vec<_>>();
        assert_eq!(versions(&offers(&psk, &names(0))), ["NVMe1", "NVMe1", "NVMe0", "NVMe0"]);
        // Version 0 has the names in what is derived from, which has at most 255 bytes but with
        // libnvme 1.x.
        assert_eq!(versions(&offers(&psk, &names(120))), ["NVMe1", "NVMe1", "NVMe0"]);
    }
}
