//! `Key`: a key of a host that the target stores, without its text; and what makes one.

use ebof_manage::api::{AddKey, KeyKind, KeyStatus, KeyText, Keys};
use serde::Serialize;

use crate::place::KeyPlace;
use crate::request::input::Input;
use crate::response::head::{Head, Oem, oem};
use crate::response::message::{Message, Problem};
use crate::response::time::date_time;

/// What a text has to be that is a key.
const ACCEPTED: &str = "Send the text of a key: DHHC-1:... or NVMeTLSkey-1:..., as `ebof gen-dhchap-key` and `ebof \
                        gen-tls-key` make it";

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct KeyResource {
    #[serde(flatten)]
    head: Head,
    /// Always null when read.
    key_string: Option<String>,
    key_type: &'static str,
    #[serde(rename = "NVMeoF")]
    fabrics: Fabrics,
    oem: Oem<OemKey>,
}

/// `Key.NVMeoF`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Fabrics {
    #[serde(rename = "NQN")]
    nqn: String,
    security_protocol_type: Protocol,
    /// Absent where any is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    secure_hash_allow_list: Option<[&'static str; 1]>,
    /// Absent for keys by which hosts prove themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    host_key_id: Option<String>,
}

/// `Key.NVMeoFSecurityProtocolType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Protocol {
    #[serde(rename = "DHHC")]
    Dhhc,
    #[serde(rename = "TLS_PSK")]
    TlsPsk,
}

/// `EbofKey.Key`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemKey {
    #[serde(rename = "@odata.type")]
    kind_of_object: &'static str,
    kind: &'static str,
    hash: Option<String>,
    bits: u32,
    since: Option<String>,
    connected_controllers: Option<u32>,
}

/// What a key is for, as CSDL has its name.
pub(super) const fn kind_name(kind: KeyKind) -> &'static str {
    match kind {
        KeyKind::Dhchap => "DHCHAP",
        KeyKind::DhchapCtrl => "DHCHAPController",
        KeyKind::Tls => "TLS",
    }
}

impl KeyResource {
    pub(super) fn new(id: &str, key: &KeyStatus, all: &Keys) -> Self {
        let (protocol, description) = match key.kind {
            KeyKind::Dhchap => (Protocol::Dhhc, "By it a host proves who it is"),
            KeyKind::DhchapCtrl => (Protocol::Dhhc, "By it subsystems prove to a host who they are"),
            KeyKind::Tls => (Protocol::TlsPsk, "By it a host and the target encrypt, and prove who they are"),
        };
        let is_paired = key.kind == KeyKind::DhchapCtrl;
        Self {
            head: Head::new(
                KeyPlace::Key(id.to_owned()),
                "#Key.v1_4_1.Key",
                format!("Key {id} of {}", key.host),
                description,
            ),
            key_string: None,
            key_type: "NVMeoF",
            fabrics: Fabrics {
                nqn: key.host.clone(),
                security_protocol_type: protocol,
                // The suites of TLS belong to the length of a key. The hash of a secret only says
                // how it becomes that of an NQN.
                secure_hash_allow_list: (protocol == Protocol::TlsPsk).then_some([if key.bits > 256 {
                    "SHA384"
                } else {
                    "SHA256"
                }]),
                host_key_id: is_paired.then(|| paired(&key.host, all).unwrap_or_default().to_owned()),
            },
            oem: oem(OemKey {
                kind_of_object: "#EbofKey.v1_0_0.Key",
                kind: kind_name(key.kind),
                hash: key.hash.clone(),
                bits: key.bits,
                since: key.since_s.map(|since| date_time(since.saturating_mul(1000))),
                connected_controllers: key.connected,
            }),
        }
    }
}

/// The latest stored key by which a host proves itself.
fn paired<'k>(host: &str, all: &'k Keys) -> Option<&'k str> {
    let of_host = all.keys.iter().filter(|key| key.host == host && key.kind == KeyKind::Dhchap);
    of_host.filter_map(|key| key.id.as_deref()).next_back()
}

/// The key that a body is to add.
pub(super) fn wanted(mut input: Input, all: &Keys) -> Result<AddKey, Problem> {
    let text = input.secret("KeyString").map(KeyText::new);
    let text = input.required("KeyString", text);
    let kind = input.one_of("KeyType", &[("NVMeoF", ())]);
    input.required("KeyType", kind);
    let protocol = text.as_ref().and_then(|text| protocol_of(text.as_str()));
    if text.is_some() && protocol.is_none() {
        let why = "it begins neither as a secret for DH-HMAC-CHAP nor as a PSK for TLS does";
        input.mistake("KeyString", Message::property_error("KeyString", why, ACCEPTED));
    }
    let derived_hash = text.as_ref().and_then(|text| hash_of(text.as_str()));
    let read = input.object("NVMeoF", |own| {
        let nqn = own.text("NQN");
        let nqn = own.required("NQN", nqn);
        check_protocol(own, protocol);
        check_hashes(own, derived_hash.filter(|_| protocol == Some(Protocol::TlsPsk)));
        let is_paired = own.has("HostKeyId");
        if let Some(id) = own.text("HostKeyId") {
            check_pair(own, &id, nqn.as_deref().unwrap_or_default(), protocol, all);
        }
        (nqn, is_paired)
    });
    let read = input.required("NVMeoF", read);
    let replace = input.ebof(|own| own.flag("Replace")).flatten();
    input.finish(None)?;
    // What is missing is a mistake: `finish` has failed then.
    let missing = || Problem::bad_request(Message::no_operation());
    let ((nqn, is_paired), text) = read.zip(text).ok_or_else(missing)?;
    let kind = match protocol {
        Some(Protocol::TlsPsk) => KeyKind::Tls,
        _ if is_paired => KeyKind::DhchapCtrl,
        _ => KeyKind::Dhchap,
    };
    let host = nqn.ok_or_else(missing)?;
    Ok(AddKey { host, kind, key: text, replace: replace.unwrap_or_default() })
}

/// What the text of a key is for, by its beginning. Whether it is a key is the target's to say.
fn protocol_of(text: &str) -> Option<Protocol> {
    match text.trim_start().split_once(':')?.0 {
        "DHHC-1" => Some(Protocol::Dhhc),
        "NVMeTLSkey-1" => Some(Protocol::TlsPsk),
        _ => None,
    }
}

/// The hash that the text of a key names.
fn hash_of(text: &str) -> Option<&'static str> {
    match text.split(':').nth(1)? {
        "01" => Some("SHA256"),
        "02" => Some("SHA384"),
        "03" => Some("SHA512"),
        _ => None,
    }
}

/// The protocol follows from the key: whoever sends it, too, has to mean the same.
fn check_protocol(own: &mut Input, protocol: Option<Protocol>) {
    let sent = own.one_of("SecurityProtocolType", &[("DHHC", Protocol::Dhhc), ("TLS_PSK", Protocol::TlsPsk)]);
    if let (Some(sent), Some(protocol)) = (sent, protocol)
        && sent != protocol
    {
        let message = Message::property_error(
            "SecurityProtocolType",
            "it follows from KeyString, which is for the other one",
            "Leave it out, or send another KeyString",
        );
        own.mistake("SecurityProtocolType", message);
    }
    if own.has("OEMSecurityProtocolType") && !own.null("OEMSecurityProtocolType") {
        own.mistake("OEMSecurityProtocolType", Message::property_not_writable("OEMSecurityProtocolType"));
        own.value("OEMSecurityProtocolType");
    }
}

/// So do the hashes that are accepted with it: `derived`, or any.
fn check_hashes(own: &mut Input, derived: Option<&str>) {
    let sent = own.texts("SecureHashAllowList").unwrap_or_default();
    if !sent.is_empty() && sent != derived.as_slice() {
        let message = Message::property_error(
            "SecureHashAllowList",
            "what is accepted with a key follows from its KeyString",
            "Leave it out",
        );
        own.mistake("SecureHashAllowList", message);
    }
}

/// A key of subsystems is paired with one of its host, or with none that is stored.
fn check_pair(own: &mut Input, id: &str, host: &str, protocol: Option<Protocol>, all: &Keys) {
    let is_it = |key: &KeyStatus| key.id.as_deref() == Some(id) && key.host == host && key.kind == KeyKind::Dhchap;
    let why = if protocol == Some(Protocol::TlsPsk) {
        "a key for TLS is of both ends, and not paired with another one"
    } else if !id.is_empty() && !all.keys.iter().any(is_it) {
        "no key by which this host proves itself has this identifier"
    } else {
        return;
    };
    let accepted = "Send the Id of such a key, or an empty text; leave it out for a key of the host itself";
    own.mistake("HostKeyId", Message::property_error("HostKeyId", why, accepted));
}
