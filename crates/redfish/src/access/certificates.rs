//! The certificate of HTTPS: `/redfish/v1/CertificateService`, and where the certificate is.

use ebof_manage::events::{EventKind, NewEvent};
use http::Method;
use serde::Serialize;
use serde_json::Value;

use crate::area::{Area, ChangeRequest, Done};
use crate::managed::parts::{CertificateSubject, ShownCertificate};
use crate::managed::view::View;
use crate::place::CertificatePlace;
use crate::request::input::Input;
use crate::response::head::{Collection, Head, Link, ResourceAction, json, link, links};
use crate::response::message::{Message, Problem, Severity};
use crate::response::time::date_time;

/// The longest text with certificates and a key, bytes.
const PEM_BYTES_MAX: usize = 64 << 10;

impl Area for CertificatePlace {
    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        let shown = || view.parts.certificates.shown();
        let members = || shown().map(|_| Self::HttpsCertificate);
        Ok(match self {
            Self::Service => json(&CertificateService::new()),
            Self::Locations => json(&CertificateLocations {
                head: Head::new(
                    Self::Locations,
                    "#CertificateLocations.v1_0_4.CertificateLocations",
                    "Certificate Locations",
                    "Where certificates are",
                ),
                links: LocationLinks { certificates: links(members()) },
            }),
            Self::Https => json(&Collection::new(Self::Https, "Certificate", "Certificates of HTTPS", members())),
            Self::HttpsCertificate => json(&Certificate::new(&shown().ok_or_else(|| self.missing())?)),
            Self::GenerateCsr | Self::Replace => return Err(self.missing()),
        })
    }

    fn change(&self, _method: &Method, input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        if *self == Self::GenerateCsr { generate(input, request) } else { replace(input, request) }
    }
}

fn refused(why: &str) -> Problem {
    let resolution = "Correct it and send it again; the present certificate is in force.";
    Problem::bad_request(Message::own("CertificateRefused", Severity::Warning, why, resolution))
}

/// The actions.
const GENERATE: &str = "CertificateService.GenerateCSR";
const REPLACE: &str = "CertificateService.ReplaceCertificate";

/// [`GENERATE`].
fn generate(mut input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
    let name = input.text("CommonName");
    let common_name = input.parameter(GENERATE, "CommonName", name).unwrap_or_default();
    let collection = input.link("CertificateCollection");
    let collection = input.parameter(GENERATE, "CertificateCollection", collection);
    if collection.is_some_and(|place| place != CertificatePlace::Https.into()) {
        let accepted = "the collection of the certificates of HTTPS";
        let message = Message::property_error("CertificateCollection", "it is another resource", accepted);
        input.mistake("CertificateCollection", message);
    }
    // The only kind of key that is made; other values are refused.
    input.one_of("KeyPairAlgorithm", &[("TPM_ALG_ECDSA", ())]);
    input.one_of("KeyCurveId", &[("TPM_ECC_NIST_P256", ())]);
    input.number::<u64>("KeyBitLength", 256..=256);
    let subject = CertificateSubject {
        common_name,
        alternative_names: input.texts("AlternativeNames").unwrap_or_default(),
        organization: input.text("Organization"),
        organizational_unit: input.text("OrganizationalUnit"),
        city: input.text("City"),
        state: input.text("State"),
        country: input.text("Country"),
    };
    input.finish(None)?;
    let csr = request.parts.certificates.request(&subject).map_err(|why| refused(&why))?;
    Ok(Done::Answer(json(&CsrResponse { csr, collection: link(CertificatePlace::Https) })))
}

#[derive(Serialize)]
struct CsrResponse {
    #[serde(rename = "CSRString")]
    csr: String,
    #[serde(rename = "CertificateCollection")]
    collection: Link,
}

/// [`REPLACE`].
fn replace(mut input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
    let text = input.long_secret("CertificateString", PEM_BYTES_MAX);
    let text = input.parameter(REPLACE, "CertificateString", text).unwrap_or_default();
    let kind = input.one_of("CertificateType", &[("PEM", ()), ("PEMchain", ())]);
    input.parameter(REPLACE, "CertificateType", kind);
    let place = input.link("CertificateUri");
    let place = input.parameter(REPLACE, "CertificateUri", place);
    if place.is_some_and(|place| place != CertificatePlace::HttpsCertificate.into()) {
        let message = Message::property_error("CertificateUri", "it is another resource", "the certificate of HTTPS");
        input.mistake("CertificateUri", message);
    }
    input.finish(None)?;
    let (chain, key) = parted(&text);
    request.parts.certificates.replace(&chain, key.as_deref()).map_err(|why| refused(&why))?;
    let event = NewEvent::new(EventKind::CertificateChanged, "", "the certificate of HTTPS was replaced");
    let who = request.caller.user.as_ref().map(|user| user.name.clone());
    request.parts.events.report(NewEvent { who, ..event });
    Ok(Done::Made)
}

/// The certificates of a PEM text, and its key, if there is one.
fn parted(text: &str) -> (String, Option<String>) {
    let (mut chain, mut key) = (String::new(), None::<String>);
    for block in text.split_inclusive("-----END ").collect::<Vec<_>>().windows(2) {
        let [begin, end] = block else { unreachable!("windows of two") };
        let Some(at) = begin.find("-----BEGIN ") else { continue };
        let label = end.split_inclusive("-----").next().unwrap_or_default();
        let whole = format!("{}{label}\n", begin.get(at..).unwrap_or_default());
        if label.contains("PRIVATE KEY") {
            key = Some(whole);
        } else {
            chain.push_str(&whole);
        }
    }
    // A text that is no PEM is passed on: `Certificates::replace` refuses it with the reason.
    if chain.is_empty() && key.is_none() { (text.to_owned(), None) } else { (chain, key) }
}

/// `CertificateService`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct CertificateService {
    #[serde(flatten)]
    head: Head,
    certificate_locations: Link,
    actions: Actions,
}

#[derive(Serialize)]
struct Actions {
    #[serde(rename = "#CertificateService.GenerateCSR")]
    generate: ResourceAction,
    #[serde(rename = "#CertificateService.ReplaceCertificate")]
    replace: ResourceAction,
}

impl CertificateService {
    fn new() -> Self {
        let generate = ResourceAction::new(CertificatePlace::GenerateCsr)
            .accepts("KeyPairAlgorithm@Redfish.AllowableValues", vec!["TPM_ALG_ECDSA"])
            .accepts("KeyCurveId@Redfish.AllowableValues", vec!["TPM_ECC_NIST_P256"]);
        let replace = ResourceAction::new(CertificatePlace::Replace)
            .accepts("CertificateType@Redfish.AllowableValues", vec!["PEM", "PEMchain"]);
        Self {
            head: Head::new(
                CertificatePlace::Service,
                "#CertificateService.v1_2_1.CertificateService",
                "Certificate Service",
                "The certificate that this service shows",
            ),
            certificate_locations: link(CertificatePlace::Locations),
            actions: Actions { generate, replace },
        }
    }
}

/// `CertificateLocations`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct CertificateLocations {
    #[serde(flatten)]
    head: Head,
    links: LocationLinks,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct LocationLinks {
    certificates: Vec<Link>,
}

/// `Certificate`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Certificate {
    #[serde(flatten)]
    head: Head,
    certificate_string: String,
    certificate_type: &'static str,
    certificate_usage_types: [&'static str; 1],
    subject: DistinguishedName,
    issuer: DistinguishedName,
    serial_number: String,
    fingerprint: String,
    fingerprint_hash_algorithm: &'static str,
    valid_not_before: String,
    valid_not_after: String,
    key_usage: [&'static str; 2],
}

/// `Certificate.Identifier`.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
struct DistinguishedName {
    display_string: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    common_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    organization: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    organizational_unit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    city: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    country: Option<String>,
}

impl DistinguishedName {
    fn new(text: &str) -> Self {
        let part = |name: &str| {
            let mut parts = text.split(", ").filter_map(|part| part.split_once('='));
            parts.find(|(own, _)| *own == name).map(|(_, value)| value.to_owned())
        };
        Self {
            display_string: text.to_owned(),
            common_name: part("CN"),
            organization: part("O"),
            organizational_unit: part("OU"),
            city: part("L"),
            state: part("ST"),
            country: part("C"),
        }
    }
}

impl Certificate {
    fn new(shown: &ShownCertificate) -> Self {
        let is_chain = shown.pem.matches("-----BEGIN CERTIFICATE-----").count() > 1;
        Self {
            head: Head::new(
                CertificatePlace::HttpsCertificate,
                "#Certificate.v1_11_0.Certificate",
                "Certificate of HTTPS",
                "What this service shows to its clients",
            ),
            certificate_string: shown.pem.clone(),
            certificate_type: if is_chain { "PEMchain" } else { "PEM" },
            certificate_usage_types: ["Web"],
            subject: DistinguishedName::new(&shown.subject),
            issuer: DistinguishedName::new(&shown.issuer),
            serial_number: shown.serial_number.clone(),
            fingerprint: shown.fingerprint.clone(),
            fingerprint_hash_algorithm: "TPM_ALG_SHA256",
            valid_not_before: date_time(shown.valid_from.saturating_mul(1000)),
            valid_not_after: date_time(shown.valid_to.saturating_mul(1000)),
            key_usage: ["DigitalSignature", "ServerAuthentication"],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use ebof_access::Role;
    use serde_json::json;

    use super::*;
    use crate::managed::parts::{Certificates, Parts};
    use crate::service::Service;
    use crate::service::tests::{ask_of, caller, code, parts};

    #[derive(Default)]
    struct One {
        taken: Mutex<Vec<(String, Option<String>)>>,
        asked: Mutex<Vec<CertificateSubject>>,
    }

    impl Certificates for One {
        fn shown(&self) -> Option<ShownCertificate> {
            let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".to_owned();
            let (subject, issuer) = ("CN=box, O=ebof".to_owned(), "CN=root".to_owned());
            let (serial_number, fingerprint) = ("01".to_owned(), "AB:CD".to_owned());
            Some(ShownCertificate { subject, issuer, serial_number, valid_from: 0, valid_to: 86_400, fingerprint, pem })
        }

        fn replace(&self, chain: &str, key: Option<&str>) -> Result<(), String> {
            if !chain.contains("CERTIFICATE") {
                return Err("it is not PEM".to_owned());
            }
            self.taken.lock().unwrap().push((chain.to_owned(), key.map(str::to_owned)));
            Ok(())
        }

        fn request(&self, subject: &CertificateSubject) -> Result<String, String> {
            self.asked.lock().unwrap().push(subject.clone());
            Ok("-----BEGIN CERTIFICATE REQUEST-----".to_owned())
        }
    }

    const HTTPS: &str = "/redfish/v1/Managers/ebof/NetworkProtocol/HTTPS/Certificates";

    #[test]
    fn a_certificate_is_shown_requested_and_replaced() {
        let one = Arc::new(One::default());
        let service = Service::new(Parts { certificates: Arc::clone(&one) as Arc<_>, ..parts() });
        let admin = caller(Some(Role::Administrator));
        let post = |action: &str, body: Value| {
            let uri = format!("/redfish/v1/CertificateService/Actions/CertificateService.{action}");
            let (status, _, body) = ask_of(&service, "POST", &uri, &[], body, &admin);
            (status, body)
        };
        let shown = ask_of(&service, "GET", &format!("{HTTPS}/1"), &[], Value::Null, &admin).2;
        assert_eq!(
            (&shown["Subject"]["CommonName"], &shown["Subject"]["Organization"]),
            (&json!("box"), &json!("ebof"))
        );
        assert_eq!(shown["ValidNotAfter"], "1970-01-02T00:00:00.000Z");
        let (status, body) = post(
            "GenerateCSR",
            json!({ "CommonName": "box", "Country": "DE", "CertificateCollection": { "@odata.id": HTTPS } }),
        );
        assert_eq!((status, body["CSRString"].is_string()), (200, true));
        assert_eq!(one.asked.lock().unwrap()[0].country.as_deref(), Some("DE"));
        let key = "-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY-----\n";
        let chain = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        let body = |text: String| json!({ "CertificateString": text, "CertificateType": "PEM", "CertificateUri": { "@odata.id": format!("{HTTPS}/1") } });
        assert_eq!(post("ReplaceCertificate", body(format!("{key}{chain}{chain}"))).0, 204);
        assert_eq!(service.parts().events.since(0, 1).events[0].kind.name(), "certificate-changed");
        assert_eq!(*one.taken.lock().unwrap(), [(format!("{chain}{chain}"), Some(key.to_owned()))]);
        for (action, body, id) in [
            ("ReplaceCertificate", body("nothing".to_owned()), "CertificateRefused"),
            ("ReplaceCertificate", json!({ "CertificateString": key }), "GeneralError"),
            ("GenerateCSR", json!({ "CommonName": "a" }), "ActionParameterMissing"),
            (
                "GenerateCSR",
                json!({ "CommonName": "a", "CertificateCollection": { "@odata.id": "/redfish/v1/Chassis" } }),
                "PropertyValueError",
            ),
        ] {
            let (status, answer) = post(action, body);
            assert_eq!((status, code(&answer)), (400, id));
            assert!(!answer.to_string().contains("SECRET"));
        }
    }

    #[test]
    fn without_https_there_is_none() {
        let service = Service::new(parts());
        let admin = caller(Some(Role::Administrator));
        assert_eq!(ask_of(&service, "GET", &format!("{HTTPS}/1"), &[], Value::Null, &admin).0, 404);
        let all = ask_of(&service, "GET", HTTPS, &[], Value::Null, &admin).2;
        assert_eq!(all["Members@odata.count"], 0);
    }
}
