//! The certificate that HTTPS shows, with its key: self-made at first start, stored, and replaced
//! while connections go on. A connection keeps the one that it began with.
//!
//! The key leaves this file only to be stored. How a certificate is read is in
//! `identity/certificate.rs`.

mod certificate;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use ebof_clock::Clock;
use ebof_manage::api::RequestCertificate;
use ebof_state::{StateDirectory, StateError, StoreError};
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};

pub(crate) use certificate::CertificateInfo;

/// The file with the certificate, those of its issuers and the key: one, so that they are replaced
/// together.
pub(crate) const FILE: &str = "tls.pem";

/// The file with the key of the last request for a certificate.
const REQUESTED_FILE: &str = "tls-requested.pem";

/// How long a self-made certificate is valid: what browsers accept at most of a private one.
const LIFETIME: Duration = Duration::from_secs(825 * 24 * 3600);

/// A self-made certificate is replaced by another one so long before it ends.
const RENEWED_BEFORE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Clocks of clients may be behind.
const BACKDATED: Duration = Duration::from_secs(24 * 3600);

/// The organization in self-made certificates, by which they are recognized and renewed.
const SELF_MADE: &str = "ebof (self-made)";

/// The largest text with certificates or a key, bytes.
const PEM_BYTES_MAX: usize = 64 << 10;

/// The most certificates: that of the target, and those of its issuers.
const CHAIN_MAX: usize = 8;

/// The most names and addresses in a request for a certificate.
const NAMES_MAX: usize = 32;

/// The certificate of this target.
#[derive(Debug)]
pub(crate) struct Identity {
    current: RwLock<Arc<Current>>,
    state: Arc<StateDirectory>,
    clock: Clock,
    provider: Arc<CryptoProvider>,
    /// What a self-made certificate is for.
    names: Vec<String>,
    /// Held while it is replaced.
    changes: Mutex<()>,
}

#[derive(Debug)]
struct Current {
    shown: Arc<CertifiedKey>,
    /// The certificates.
    pem: String,
    key: String,
    info: CertificateInfo,
}

/// Why a certificate is not taken or made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateError {
    #[error("{0} has more than {PEM_BYTES_MAX} bytes")]
    TooLong(&'static str),
    #[error("{what} is not PEM: want -----BEGIN {wanted}----- and what follows")]
    NotPem { what: &'static str, wanted: &'static str },
    #[error("a chain has 1 to {CHAIN_MAX} certificates, that of the target first")]
    ChainLength,
    #[error("the certificate is not understood: {0}")]
    NotUnderstood(String),
    #[error("the certificate is not valid now: from {from} to {to} (seconds since 1970)")]
    NotValidNow { from: i64, to: i64 },
    #[error("the key cannot be used: {0}")]
    Key(rustls::Error),
    #[error(
        "the key does not belong to the certificate: send the key with it, or have the target make a request (CSR) and send \
         what was issued for the last one"
    )]
    OtherKey,
    #[error("a request needs a common name, and has at most {NAMES_MAX} names, each of at most 253 characters")]
    Names,
    #[error("a country has two letters")]
    Country,
    #[error("making it failed: {0}")]
    Making(#[from] rcgen::Error),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "{0} is damaged: {1}: restore it from a backup, or move it away (`mv {0} {0}.damaged`): `ebof serve --create` makes another \
         certificate then, which clients have to trust anew"
    )]
    Stored(String, Box<Self>),
}

impl Identity {
    /// The stored certificate, or a new one for `names` and addresses.
    ///
    /// # Errors
    /// It is damaged, or cannot be made or stored.
    pub(crate) fn open(
        state: Arc<StateDirectory>,
        names: Vec<String>,
        clock: Clock,
    ) -> Result<Arc<Self>, CertificateError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let stored = state.read(FILE)?;
        let damaged = |error| CertificateError::Stored(state.path_of(FILE).display().to_string(), Box::new(error));
        let current = match stored {
            Some(bytes) => {
                let text = String::from_utf8(bytes);
                let text = text.map_err(|error| damaged(CertificateError::NotUnderstood(error.to_string())))?;
                Current::new(&text, &text, &provider).map_err(damaged)?
            }
            None => {
                let made = make(&names, clock.unix_time(), &provider)?;
                state.replace(FILE, made.file().as_bytes())?;
                made
            }
        };
        let current = RwLock::new(Arc::new(current));
        let identity = Arc::new(Self { current, state, clock, provider, names, changes: Mutex::default() });
        identity.renew()?;
        Ok(identity)
    }

    /// Makes another certificate if this one is self-made and is about to end. Whether it did.
    ///
    /// # Errors
    /// It cannot be made or stored.
    pub(crate) fn renew(&self) -> Result<bool, CertificateError> {
        let _one = self.changes();
        let current = self.current();
        let now = self.clock.unix_time();
        if !current.info.is_self_made || seconds(now + RENEWED_BEFORE) < current.info.valid_to {
            return Ok(false);
        }
        self.store(make(&self.names, now, &self.provider)?)?;
        Ok(true)
    }

    /// Puts another certificate in force, with those of its issuers. Without a key it is that of
    /// the last request, or the present one.
    ///
    /// # Errors
    /// What is wrong with it; the present one stays.
    pub(crate) fn replace(&self, chain: &str, key: Option<&str>) -> Result<CertificateInfo, CertificateError> {
        let _one = self.changes();
        if chain.len() > PEM_BYTES_MAX || key.is_some_and(|key| key.len() > PEM_BYTES_MAX) {
            return Err(CertificateError::TooLong("the certificate or the key"));
        }
        let new = match key {
            Some(key) => Current::new(chain, key, &self.provider)?,
            None => {
                let requested = self.state.read(REQUESTED_FILE)?.and_then(|bytes| String::from_utf8(bytes).ok());
                let keys = requested.into_iter().chain([self.current().key.clone()]);
                let mut outcomes = keys.map(|key| Current::new(chain, &key, &self.provider));
                let first = outcomes.next().unwrap_or(Err(CertificateError::OtherKey));
                match first {
                    Err(CertificateError::OtherKey) => outcomes.next().unwrap_or(Err(CertificateError::OtherKey))?,
                    outcome => outcome?,
                }
            }
        };
        let (from, to, now) = (new.info.valid_from, new.info.valid_to, seconds(self.clock.unix_time()));
        if now < from || now > to {
            return Err(CertificateError::NotValidNow { from, to });
        }
        self.store(new)
    }

    /// A request for a certificate, in PEM. Its key is made here and stays here.
    ///
    /// # Errors
    /// What is wrong with the names, or the key cannot be stored.
    pub(crate) fn request(&self, subject: &RequestCertificate) -> Result<String, CertificateError> {
        let _one = self.changes();
        let parameters = requested(subject)?;
        let key = KeyPair::generate()?;
        let request = parameters.serialize_request(&key)?.pem()?;
        self.state.replace(REQUESTED_FILE, key.serialize_pem().as_bytes())?;
        Ok(request)
    }

    /// What is in force.
    pub(crate) fn info(&self) -> CertificateInfo {
        self.current().info.clone()
    }

    /// The same with the certificates in PEM.
    pub(crate) fn shown(&self) -> (CertificateInfo, String) {
        let current = self.current();
        (current.info.clone(), current.pem.clone())
    }

    /// How TLS is spoken with it: 1.2 and 1.3.
    ///
    /// # Errors
    /// The library has no such versions.
    pub(crate) fn server(self: &Arc<Self>) -> Result<Arc<rustls::ServerConfig>, rustls::Error> {
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&self.provider));
        let builder = builder.with_protocol_versions(&[&TLS13, &TLS12])?.with_no_client_auth();
        let mut config = builder.with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    fn store(&self, new: Current) -> Result<CertificateInfo, CertificateError> {
        self.state.replace(FILE, new.file().as_bytes())?;
        let info = new.info.clone();
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        Ok(info)
    }

    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResolvesServerCert for Identity {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current().shown))
    }
}

impl Current {
    /// From PEM texts, which may be the same one.
    fn new(chain: &str, key: &str, provider: &CryptoProvider) -> Result<Self, CertificateError> {
        let not_pem = |what, wanted| move |_| CertificateError::NotPem { what, wanted };
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(chain.as_bytes()).take(CHAIN_MAX + 1).collect();
        let certificates = certificates.map_err(not_pem("the certificate", "CERTIFICATE"))?;
        if certificates.is_empty() {
            return Err(CertificateError::NotPem { what: "the certificate", wanted: "CERTIFICATE" });
        }
        if certificates.len() > CHAIN_MAX {
            return Err(CertificateError::ChainLength);
        }
        let info = certificate::read(&certificates[0], SELF_MADE).map_err(CertificateError::NotUnderstood)?;
        let pem = certificates.iter().map(|der| certificate::pem(der)).collect();
        let secret = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(not_pem("the key", "PRIVATE KEY"))?;
        let key = only_key(key).ok_or(CertificateError::NotPem { what: "the key", wanted: "PRIVATE KEY" })?;
        let shown = CertifiedKey::from_der(certificates, secret, provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => CertificateError::OtherKey,
            other => CertificateError::Key(other),
        })?;
        Ok(Self { shown: Arc::new(shown), pem, key, info })
    }

    /// The text of the file.
    fn file(&self) -> String {
        format!("{}{}", self.pem, self.key)
    }
}

/// The part of a text that is the key.
fn only_key(text: &str) -> Option<String> {
    let begin = text.match_indices("-----BEGIN ").find(|(at, _)| {
        let line = text[*at..].lines().next().unwrap_or_default();
        line.ends_with("PRIVATE KEY-----")
    });
    let rest = &text[begin?.0..];
    let end = rest.find("-----END ").and_then(|at| Some(at + rest[at..].find("PRIVATE KEY-----")?))?;
    Some(format!("{}\n", &rest[..end + "PRIVATE KEY-----".len()]))
}

/// A self-made certificate.
fn make(names: &[String], now: Duration, provider: &CryptoProvider) -> Result<Current, CertificateError> {
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name = DistinguishedName::new();
    let name = names.first().map_or("ebof", String::as_str);
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.distinguished_name.push(DnType::OrganizationName, SELF_MADE);
    let at = |since: Duration| SystemTime::UNIX_EPOCH + since;
    parameters.not_before = at(now.saturating_sub(BACKDATED)).into();
    parameters.not_after = at(now + LIFETIME).into();
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    Current::new(&certificate.pem(), &key.serialize_pem(), provider)
}

fn requested(subject: &RequestCertificate) -> Result<CertificateParams, CertificateError> {
    let RequestCertificate { common_name, alternative_names, organization, organizational_unit, city, state, country } =
        subject;
    let is_text = |text: &String| (1..=253).contains(&text.len()) && !text.contains(char::is_control);
    let optional = [organization, organizational_unit, city, state];
    let are_texts = optional.iter().all(|text| text.as_ref().is_none_or(is_text));
    if !is_text(common_name)
        || alternative_names.len() > NAMES_MAX
        || !alternative_names.iter().all(is_text)
        || !are_texts
    {
        return Err(CertificateError::Names);
    }
    if country.as_ref().is_some_and(|it| it.len() != 2 || !it.bytes().all(|byte| byte.is_ascii_alphabetic())) {
        return Err(CertificateError::Country);
    }
    let mut names = alternative_names.clone();
    if names.is_empty() {
        names.push(common_name.clone());
    }
    let mut parameters = CertificateParams::new(names)?;
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    let [organization, unit, city, state] = optional;
    for (kind, text) in [
        (DnType::OrganizationName, organization),
        (DnType::OrganizationalUnitName, unit),
        (DnType::LocalityName, city),
        (DnType::StateOrProvinceName, state),
        (DnType::CountryName, country),
    ] {
        if let Some(text) = text {
            name.push(kind, text);
        }
    }
    parameters.distinguished_name = name;
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(parameters)
}

/// The names of a self-made certificate: those of the machine, and the addresses of the listener.
pub(crate) fn names(host: &str, addresses: &[IpAddr]) -> Vec<String> {
    let is_name = |text: &str| {
        !text.is_empty()
            && text.len() <= 253
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte))
    };
    let mut names: Vec<String> =
        [host, "localhost"].into_iter().filter(|name| is_name(name)).map(str::to_owned).collect();
    let shown = addresses.iter().filter(|address| !address.is_unspecified()).map(IpAddr::to_string);
    names.extend(shown.chain(["127.0.0.1".to_owned(), "::1".to_owned()]));
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names.truncate(NAMES_MAX);
    names
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
