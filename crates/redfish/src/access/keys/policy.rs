//! `KeyPolicy`: what a subsystem demands of hosts, as its `security` in the configuration says.

use ebof_manage::config::{Security, Subsystem};
use serde::Serialize;

use crate::area::Area as _;
use crate::area::demand::Demand;
use crate::managed::view::View;
use crate::place::id::slug;
use crate::place::{DEFAULT_POLICY, KeyPlace, StoragePlace};
use crate::request::input::Input;
use crate::response::head::{Head, Link, Oem, link, oem};
use crate::response::message::{Message, Problem};

/// What is demanded, as CSDL has its names.
const NAMES: [(&str, Security); 4] = [
    ("Anyone", Security::Anyone),
    ("Authenticated", Security::Authenticated),
    ("TLS", Security::Tls),
    ("AuthenticatedTLS", Security::AuthenticatedTls),
];

/// The protocols of a list, and what both together come to.
const DHHC: &str = "DHHC";
const TLS_PSK: &str = "TLS_PSK";

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct KeyPolicy {
    #[serde(flatten)]
    head: Head,
    key_policy_type: &'static str,
    is_default: bool,
    #[serde(rename = "NVMeoF")]
    fabrics: Fabrics,
    oem: Oem<OemPolicy>,
}

/// `KeyPolicy.NVMeoF`. Absent lists allow everything.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Fabrics {
    #[serde(skip_serializing_if = "Option::is_none")]
    security_protocol_allow_list: Option<Vec<&'static str>>,
    security_transport_allow_list: [&'static str; 1],
}

/// `EbofKeyPolicy.KeyPolicy`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemPolicy {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    security: &'static str,
    #[serde(rename = "SubsystemNQN")]
    subsystem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<Link>,
}

/// The identifiers of all.
pub(super) fn ids(view: &View<'_>) -> impl Iterator<Item = String> {
    let subsystems = view.config().subsystems.iter().map(|subsystem| slug(subsystem.nqn.as_str()));
    std::iter::once(DEFAULT_POLICY.to_owned()).chain(subsystems)
}

fn subsystem<'v>(id: &str, view: &'v View<'_>) -> Option<&'v Subsystem> {
    view.config().subsystems.iter().find(|subsystem| slug(subsystem.nqn.as_str()) == id)
}

impl KeyPolicy {
    pub(super) fn new(id: &str, view: &View<'_>) -> Option<Self> {
        if id == DEFAULT_POLICY {
            let description = "What a subsystem demands that is not told anything else";
            return Some(Self::with_security(id, "Default", description, Security::default(), None, None));
        }
        let own = subsystem(id, view)?;
        let nqn = own.nqn.to_string();
        let storage = view.storage_id(own.drive.as_deref().unwrap_or(&nqn));
        let storage = storage.map(|id| link(StoragePlace::Subsystem(id.to_owned())));
        let description = match own.security {
            Security::Anyone => "Hosts that have a key have to prove it; others may connect without",
            Security::Authenticated => "Hosts have to authenticate",
            Security::Tls => "Hosts have to connect over TLS",
            Security::AuthenticatedTls => "Hosts have to connect over TLS, and to authenticate",
        };
        let name = format!("Keys at {nqn}");
        Some(Self::with_security(id, &name, description, own.security, Some(nqn), storage))
    }

    fn with_security(
        id: &str,
        name: &str,
        description: &str,
        security: Security,
        subsystem: Option<String>,
        storage: Option<Link>,
    ) -> Self {
        let place = KeyPlace::Policy(id.to_owned());
        Self {
            head: Head::new(place, "#KeyPolicy.v1_0_1.KeyPolicy", name, description),
            key_policy_type: "NVMeoF",
            is_default: subsystem.is_none(),
            fabrics: Fabrics {
                security_protocol_allow_list: protocols(security),
                security_transport_allow_list: ["TLSv3"],
            },
            oem: oem(OemPolicy {
                kind: "#EbofKeyPolicy.v1_0_0.KeyPolicy",
                security: NAMES.iter().find(|(_, own)| *own == security).map_or("Anyone", |(name, _)| *name),
                subsystem,
                storage,
            }),
        }
    }
}

/// What a connection has to be secured by, all of it; `None`: by nothing.
fn protocols(security: Security) -> Option<Vec<&'static str>> {
    match security {
        Security::Anyone => None,
        Security::Authenticated => Some(vec![DHHC]),
        Security::Tls => Some(vec![TLS_PSK]),
        Security::AuthenticatedTls => Some(vec![DHHC, TLS_PSK]),
    }
}

/// What a PATCH of a policy asks for: another configuration.
pub(super) fn demand(place: &KeyPlace, id: &str, mut input: Input, view: &View<'_>) -> Result<Demand, Problem> {
    let current = place.read(view)?;
    let by_list = input.object("NVMeoF", listed).flatten();
    let by_name = input.ebof(|own| own.one_of("Security", &NAMES)).flatten();
    if by_list.zip(by_name).is_some_and(|(one, other)| one != other) {
        let why = "Oem.Ebof.Security says something else";
        let message = Message::property_error("SecurityProtocolAllowList", why, "Send one of them");
        input.mistake("NVMeoF/SecurityProtocolAllowList", message);
    }
    input.finish(Some(&current))?;
    let wanted = by_list.or(by_name).ok_or_else(|| Problem::bad_request(Message::no_operation()))?;
    let mut config = view.config().clone();
    let own = config.subsystems.iter_mut().find(|subsystem| slug(subsystem.nqn.as_str()) == *id);
    own.ok_or_else(|| place.missing())?.security = wanted;
    Ok(Demand::configuration(config, None))
}

/// What a list of protocols demands.
fn listed(own: &mut Input) -> Option<Security> {
    const NAME: &str = "SecurityProtocolAllowList";
    if own.null(NAME) {
        return Some(Security::Anyone);
    }
    let sent = own.texts(NAME)?;
    let has = |name: &str| sent.iter().any(|one| one == name);
    let is_known = sent.iter().all(|one| one == DHHC || one == TLS_PSK);
    if sent.is_empty() || !is_known {
        let why = if sent.is_empty() { "nobody could connect" } else { "there are other protocols in it" };
        let accepted = "Accepted: DHHC, TLS_PSK, both, or null for a subsystem that demands nothing";
        own.mistake(NAME, Message::property_error(NAME, why, accepted));
        return None;
    }
    Some(Security::proven(has(DHHC), has(TLS_PSK)))
}
