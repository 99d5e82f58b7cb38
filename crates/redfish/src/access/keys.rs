//! Keys of hosts, and what subsystems demand of them: `/redfish/v1/KeyService`.
//!
//! Owns resources and bodies. A key goes in one direction: no answer, message or event has its
//! text. Those that the configuration names are told by the service, and are no members of the
//! collection: they are changed where they are.

mod key;
mod policy;

use ebof_manage::api::KeyStatus;
use http::Method;
use serde::Serialize;
use serde_json::Value;

use crate::area::carry_out::carry_out;
use crate::area::demand::Preview;
use crate::area::{Area, ChangeRequest, Done};
use crate::managed::view::View;
use crate::place::KeyPlace;
use crate::request::input::Input;
use crate::response::head::{Collection, Head, Link, Oem, json, link, oem};
use crate::response::message::Problem;
use policy::KeyPolicy;

impl Area for KeyPlace {
    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Service => json(&KeyService::new(view)),
            Self::Keys => {
                let stored = view.keys().keys.iter().filter_map(|key| key.id.clone());
                json(&Collection::new(Self::Keys, "Key", "Keys of hosts", stored.map(Self::Key)))
            }
            Self::Key(id) => json(&key::KeyResource::new(id, self.key(id, view)?, view.keys())),
            Self::Policies => {
                let members = policy::ids(view).map(Self::Policy);
                json(&Collection::new(Self::Policies, "KeyPolicy", "What subsystems demand", members))
            }
            Self::Policy(id) => json(&KeyPolicy::new(id, view).ok_or_else(|| self.missing())?),
        })
    }

    fn preview(&self, method: &Method, input: Input, view: &View<'_>) -> Result<Preview, Problem> {
        let keeper = &view.parts.keys;
        let planned = match self {
            Self::Policy(id) => return policy::demand(self, id, input, view).map(Preview::Demand),
            Self::Key(id) if *method == Method::DELETE => {
                self.key(id, view)?;
                input.finish(None)?;
                keeper.plan_remove(std::slice::from_ref(id))?
            }
            _ => keeper.plan_add(&key::wanted(input, view.keys())?)?,
        };
        Ok(Preview::Keys(Box::new(planned)))
    }

    fn change(&self, method: &Method, input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        let (view, keeper) = (request.view, &request.parts.keys);
        match self {
            Self::Policy(id) => carry_out(policy::demand(self, id, input, view)?, request),
            Self::Key(id) if *method == Method::DELETE => {
                self.key(id, view)?;
                keeper.remove(std::slice::from_ref(id), request.planned.as_ref(), &request.asker())?;
                Ok(Done::Made)
            }
            _ => {
                let wanted = key::wanted(input, view.keys())?;
                let made = keeper.add(&wanted, request.planned.as_ref(), &request.asker())?;
                let id = made.added.and_then(|added| added.id).ok_or_else(|| self.missing())?;
                Ok(Done::Created(Self::Key(id).into(), Vec::new()))
            }
        }
    }
}

impl KeyPlace {
    /// The stored key with this identifier.
    fn key<'v>(&self, id: &str, view: &'v View<'_>) -> Result<&'v KeyStatus, Problem> {
        let all = &view.keys().keys;
        all.iter().find(|key| key.id.as_deref() == Some(id)).ok_or_else(|| self.missing())
    }
}

/// `KeyService`.
#[derive(Serialize)]
struct KeyService {
    #[serde(flatten)]
    head: Head,
    #[serde(rename = "NVMeoFSecrets")]
    secrets: Link,
    #[serde(rename = "NVMeoFKeyPolicies")]
    policies: Link,
    #[serde(rename = "Oem")]
    oem: Oem<OemService>,
}

/// `EbofKeyService.KeyService`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemService {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    durable: bool,
    configured_keys: Vec<ConfiguredKey>,
}

/// `EbofKeyService.ConfiguredKey`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ConfiguredKey {
    #[serde(rename = "HostNQN")]
    host: String,
    kind: &'static str,
    place: Option<String>,
    hash: Option<String>,
    bits: u32,
    connected_controllers: Option<u32>,
}

impl KeyService {
    fn new(view: &View<'_>) -> Self {
        let keys = view.keys();
        let configured = keys.keys.iter().filter(|key| key.id.is_none()).map(|key| ConfiguredKey {
            host: key.host.clone(),
            kind: key::kind_name(key.kind),
            place: key.place.clone(),
            hash: key.hash.clone(),
            bits: key.bits,
            connected_controllers: key.connected,
        });
        Self {
            head: Head::new(
                KeyPlace::Service,
                "#KeyService.v1_0_1.KeyService",
                "Key Service",
                "By which keys hosts prove who they are, and who has to",
            ),
            secrets: link(KeyPlace::Keys),
            policies: link(KeyPlace::Policies),
            oem: oem(OemService {
                kind: "#EbofKeyService.v1_0_0.KeyService",
                durable: keys.durable,
                configured_keys: configured.collect(),
            }),
        }
    }
}
