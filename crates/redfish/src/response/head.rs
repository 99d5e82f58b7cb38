//! What resources have in common: annotations, links, collections, status.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::place::Place;

/// The annotations and properties that every resource begins with.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Head {
    #[serde(rename = "@odata.id")]
    place: Place,
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    #[serde(rename = "Id")]
    id: String,
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Description")]
    description: String,
}

impl Head {
    /// `kind` is the annotation `@odata.type`: `#Drive.v1_22_0.Drive`. The identifier is the last
    /// segment of the address.
    pub(crate) fn new(
        place: impl Into<Place>,
        kind: &'static str,
        name: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        debug_assert!(crate::place::kinds::is_known(kind), "{kind} is not listed in kinds.rs");
        let place = place.into();
        let id = place.id().to_owned();
        Self { place, kind, id, name: name.into(), description: description.into() }
    }

    /// With an identifier other than the last segment of the address.
    pub(crate) fn with_id(mut self, id: &str) -> Self {
        id.clone_into(&mut self.id);
        self
    }
}

/// An address, as in `"@odata.id"`.
impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A reference to a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Link {
    #[serde(rename = "@odata.id")]
    pub(crate) place: Place,
}

/// A reference.
pub(crate) fn link(place: impl Into<Place>) -> Link {
    Link { place: place.into() }
}

/// References.
pub(crate) fn links<P: Into<Place>>(places: impl IntoIterator<Item = P>) -> Vec<Link> {
    places.into_iter().map(link).collect()
}

/// A collection: `#DriveCollection.DriveCollection`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Collection {
    #[serde(rename = "@odata.id")]
    place: Place,
    #[serde(rename = "@odata.type")]
    kind: String,
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Description")]
    description: String,
    #[serde(rename = "Members")]
    members: Vec<Link>,
    #[serde(rename = "Members@odata.count")]
    count: usize,
}

impl Collection {
    /// Of resources of a type: `Drive`.
    pub(crate) fn new<P: Into<Place>>(
        place: impl Into<Place>,
        of: &str,
        name: &str,
        members: impl IntoIterator<Item = P>,
    ) -> Self {
        let members = links(members);
        Self {
            place: place.into(),
            kind: format!("#{of}Collection.{of}Collection"),
            name: name.to_owned(),
            description: format!("Resources of the type {of}"),
            count: members.len(),
            members,
        }
    }
}

/// `Resource.Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Status {
    pub(crate) state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) health: Option<Health>,
}

impl Status {
    /// In use, and well.
    pub(crate) const OK: Self = Self { state: State::Enabled, health: Some(Health::OK) };

    /// In use, with a health.
    pub(crate) const fn enabled(health: Health) -> Self {
        Self { state: State::Enabled, health: Some(health) }
    }

    /// Not in use, and well.
    pub(crate) const fn with_state(state: State) -> Self {
        Self { state, health: Some(Health::OK) }
    }
}

/// `Resource.State`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum State {
    Enabled,
    Disabled,
    StandbyOffline,
    InTest,
    Quiesced,
    UnavailableOffline,
}

/// `Resource.Health`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) enum Health {
    OK,
    Warning,
    Critical,
}

/// `Resource.Identifier`: a durable name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Identifier {
    durable_name: String,
    durable_name_format: &'static str,
}

impl Identifier {
    pub(crate) fn nqn(name: &str) -> Self {
        Self { durable_name: name.to_owned(), durable_name_format: "NQN" }
    }

    pub(crate) fn uuid(name: &str) -> Self {
        Self { durable_name: name.to_owned(), durable_name_format: "UUID" }
    }

    pub(crate) fn nguid(digits: &str) -> Self {
        Self { durable_name: digits.to_owned(), durable_name_format: "NGUID" }
    }

    /// With colons between the bytes, which are two digits each.
    pub(crate) fn eui(digits: &str) -> Self {
        let mut name = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && at % 2 == 0 {
                name.push(':');
            }
            name.push(digit);
        }
        Self { durable_name: name, durable_name_format: "EUI" }
    }
}

/// `Oem` with ebof's own object.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Oem<T> {
    #[serde(rename = "Ebof")]
    pub(crate) ebof: T,
}

/// An object of ebof's own, with what adds it.
pub(crate) const fn oem<T>(ebof: T) -> Oem<T> {
    Oem { ebof }
}

/// An action, as it is listed in `Actions`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ResourceAction {
    target: Place,
    /// The accepted values of its parameters, by annotation: `ResetType@Redfish.AllowableValues`.
    #[serde(flatten)]
    accepted: BTreeMap<&'static str, Vec<&'static str>>,
}

impl ResourceAction {
    pub(crate) fn new(target: impl Into<Place>) -> Self {
        Self { target: target.into(), accepted: BTreeMap::new() }
    }

    /// With a parameter that has one of some values.
    pub(crate) fn accepts(mut self, annotation: &'static str, values: Vec<&'static str>) -> Self {
        self.accepted.insert(annotation, values);
        self
    }
}

/// A resource as JSON.
pub(crate) fn json(resource: &impl Serialize) -> Value {
    serde_json::to_value(resource).expect("all keys of a resource are strings")
}
