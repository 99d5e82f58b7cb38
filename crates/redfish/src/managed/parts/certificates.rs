//! Whoever has the certificate of HTTPS.

/// Whoever has the certificate that HTTPS shows.
pub trait Certificates: Send + Sync {
    /// The one in force; `None` if there is no HTTPS.
    fn shown(&self) -> Option<ShownCertificate>;

    /// Puts another one in force, with those of its issuers, in PEM. Without a key it is that of
    /// the last request, or the present one.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence; the present one stays.
    fn replace(&self, chain: &str, key: Option<&str>) -> Result<(), String>;

    /// Makes a key, which stays where it is, and a request for a certificate (PKCS#10, PEM).
    ///
    /// # Errors
    /// What is wrong with the names, as a sentence, or that it cannot be stored.
    fn request(&self, subject: &CertificateSubject) -> Result<String, String>;
}

/// A certificate.
#[derive(Clone, Debug)]
pub struct ShownCertificate {
    /// As `CN=box, O=Example`.
    pub subject: String,
    /// Who has issued it, likewise.
    pub issuer: String,
    /// In hexadecimal digits.
    pub serial_number: String,
    /// Since when it is valid, seconds since 1970.
    pub valid_from: u64,
    /// Until when.
    pub valid_to: u64,
    /// Its SHA-256, as browsers show it.
    pub fingerprint: String,
    /// In PEM, those of its issuers behind it.
    pub pem: String,
}

/// What a request for a certificate says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateSubject {
    /// The name by which clients reach the target.
    pub common_name: String,
    /// All its names and addresses; empty: the common name.
    pub alternative_names: Vec<String>,
    /// The organization.
    pub organization: Option<String>,
    /// Its unit.
    pub organizational_unit: Option<String>,
    /// Its city.
    pub city: Option<String>,
    /// Its state or province.
    pub state: Option<String>,
    /// Its country, two letters.
    pub country: Option<String>,
}

/// Why there is nothing to be shown or replaced.
#[derive(Clone, Copy, Debug)]
pub struct NoCertificates;

impl Certificates for NoCertificates {
    fn shown(&self) -> Option<ShownCertificate> {
        None
    }

    fn replace(&self, _chain: &str, _key: Option<&str>) -> Result<(), String> {
        Err("this target has no HTTPS, and so no certificate".to_owned())
    }

    fn request(&self, _subject: &CertificateSubject) -> Result<String, String> {
        Err("this target has no HTTPS, and so no certificate".to_owned())
    }
}
