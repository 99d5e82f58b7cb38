//! The certificate of the target's HTTPS, as the API tells and takes it. Reading, checking and
//! making certificates is the target's.

use serde::{Deserialize, Serialize};

/// The version of the JSON shape of [`CertificateStatus`].
pub const CERTIFICATE_SCHEMA: u32 = 1;

/// The certificate in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// [`CERTIFICATE_SCHEMA`].
    pub schema: u32,
    /// As `CN=box, O=Example`.
    pub subject: String,
    /// Who has issued it, likewise.
    pub issuer: String,
    /// In hexadecimal digits.
    pub serial_number: String,
    /// Seconds since 1970.
    pub valid_from: i64,
    /// Seconds since 1970.
    pub valid_to: i64,
    /// Its SHA-256, as browsers and `openssl x509 -fingerprint -sha256` show it.
    pub fingerprint: String,
    /// Whether the target has made it for itself, and renews it.
    pub self_made: bool,
    /// In PEM, those of its issuers behind it.
    pub pem: String,
}

/// Another certificate.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceCertificate {
    /// In PEM, those of its issuers behind it.
    pub certificate: String,
    /// Its key, in PEM; `None`: that of the last request, or of the certificate in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// What a request for a certificate (CSR) is to say.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestCertificate {
    /// The name by which clients reach the target.
    pub common_name: String,
    /// All its names and addresses; empty: the common name.
    #[serde(default)]
    pub alternative_names: Vec<String>,
    /// The organization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// Its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organizational_unit: Option<String>,
    /// Its city.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub city: Option<String>,
    /// Its state or province.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Its country, two letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub country: Option<String>,
}

/// A request for a certificate, whose key stays in the target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateRequest {
    /// PKCS#10 in PEM.
    pub request: String,
}
