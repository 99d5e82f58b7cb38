//! Addresses of certificates.

use ebof_access::Privilege;
use http::Method;

use super::{ACTION, Address, READ};

/// Addresses of certificates.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CertificatePlace {
    /// The service.
    Service,
    /// Makes a request for a certificate.
    GenerateCsr,
    /// Replaces a certificate.
    Replace,
    /// Where certificates are.
    Locations,
    /// Those of HTTPS.
    Https,
    /// The one of HTTPS.
    HttpsCertificate,
}

/// Where the certificates of HTTPS are.
const HTTPS: [&str; 5] = ["Managers", "ebof", "NetworkProtocol", "HTTPS", "Certificates"];

const ID: &str = "1";

impl Address for CertificatePlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        if let Some(rest) = segments.strip_prefix(&HTTPS) {
            return match rest {
                [] => Some(Self::Https),
                [ID] => Some(Self::HttpsCertificate),
                _ => None,
            };
        }
        let ["CertificateService", rest @ ..] = segments else { return None };
        Some(match rest {
            [] => Self::Service,
            ["Actions", Self::GENERATE] => Self::GenerateCsr,
            ["Actions", Self::REPLACE] => Self::Replace,
            ["CertificateLocations"] => Self::Locations,
            _ => return None,
        })
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("CertificateService", "CertificateService"),
            ("", "CertificateService/Actions/CertificateService.GenerateCSR"),
            ("", "CertificateService/Actions/CertificateService.ReplaceCertificate"),
            ("CertificateLocations", "CertificateService/CertificateLocations"),
            ("CertificateCollection", "Managers/ebof/NetworkProtocol/HTTPS/Certificates"),
            ("Certificate", "Managers/ebof/NetworkProtocol/HTTPS/Certificates/1"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        let below: &[&str] = match self {
            Self::Service => &[],
            Self::GenerateCsr => &["Actions", Self::GENERATE],
            Self::Replace => &["Actions", Self::REPLACE],
            Self::Locations => &["CertificateLocations"],
            Self::Https => return HTTPS.to_vec(),
            Self::HttpsCertificate => return [&HTTPS[..], &[ID]].concat(),
        };
        [&["CertificateService"], below].concat()
    }

    fn methods(&self) -> &'static [Method] {
        match self {
            Self::GenerateCsr | Self::Replace => ACTION,
            _ => READ,
        }
    }

    fn privilege(&self, method: &Method) -> Option<Privilege> {
        Some(if *method == Method::GET { Privilege::Login } else { Privilege::ConfigureManager })
    }
}

impl CertificatePlace {
    /// The action that makes a request for a certificate.
    pub(crate) const GENERATE: &str = "CertificateService.GenerateCSR";

    /// The action that replaces a certificate.
    pub(crate) const REPLACE: &str = "CertificateService.ReplaceCertificate";
}
