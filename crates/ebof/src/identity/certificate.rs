//! Reading a certificate (RFC 5280): what of it is shown to people and clients.

use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateInfo {
    /// As `CN=box, O=Example`.
    pub(crate) subject: String,
    pub(crate) issuer: String,
    /// In hexadecimal digits.
    pub(crate) serial_number: String,
    /// Seconds since 1970.
    pub(crate) valid_from: i64,
    /// Seconds since 1970.
    pub(crate) valid_to: i64,
    /// SHA-256 of the certificate, as browsers and `openssl x509 -fingerprint -sha256` show it.
    pub(crate) fingerprint: String,
    /// Whether this program made it for itself.
    pub(crate) is_self_made: bool,
}

/// Reads a certificate. `organization` is the one by which self-made certificates are recognized.
///
/// # Errors
/// It is not a certificate.
pub(super) fn read(der: &CertificateDer<'_>, organization: &str) -> Result<CertificateInfo, String> {
    let (rest, certificate) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
    if !rest.is_empty() {
        return Err(format!("{} bytes follow it", rest.len()));
    }
    let of = |mut names: Box<dyn Iterator<Item = String> + '_>| names.any(|name| name == organization);
    let organizations =
        certificate.subject().iter_organization().filter_map(|name| name.as_str().ok().map(str::to_owned));
    let is_self_made = certificate.subject() == certificate.issuer() && of(Box::new(organizations));
    Ok(CertificateInfo {
        subject: certificate.subject().to_string(),
        issuer: certificate.issuer().to_string(),
        serial_number: certificate.raw_serial_as_string(),
        valid_from: certificate.validity().not_before.timestamp(),
        valid_to: certificate.validity().not_after.timestamp(),
        fingerprint: fingerprint(der),
        is_self_made,
    })
}

/// `3F:A0:...`
fn fingerprint(der: &[u8]) -> String {
    let bytes: Vec<String> = Sha256::digest(der).iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}

/// In PEM (RFC 7468).
pub(super) fn pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let mut pem = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in text.as_bytes().chunks(64) {
        pem.extend(line.iter().map(|&byte| char::from(byte)));
        pem.push('\n');
    }
    pem + "-----END CERTIFICATE-----\n"
}
