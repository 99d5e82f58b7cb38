//! What is to be served and cannot be had: conditions with the reason, and drives that are missing.

use ebof_manage::api::{MissingKind, MissingObject};
use ebof_manage::events::EventKind;
use serde::Serialize;

use crate::managed::view::View;
use crate::place::id::slug;
use crate::place::{ChassisPlace, StoragePlace};
use crate::response::head::{Head, Health, Identifier, Link, State, Status, link, links};
use crate::response::message::{OWN, camel};
use crate::response::time::date_time;

/// `Resource.Status`, with what is to be served and cannot be had.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct StatusOfMissing {
    #[serde(flatten)]
    status: Status,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<Condition>,
}

/// `Resource.Condition`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Condition {
    message_id: String,
    message: String,
    message_args: Vec<String>,
    severity: Health,
    timestamp: String,
}

impl StatusOfMissing {
    /// Of what works, but for these parts of it: then it is critical.
    pub(crate) fn without<'m>(status: Status, missing: impl IntoIterator<Item = &'m MissingObject>) -> Self {
        let conditions: Vec<Condition> = missing.into_iter().map(Condition::new).collect();
        let health = if conditions.is_empty() { status.health } else { Some(Health::Critical) };
        Self { status: Status { health, ..status }, conditions }
    }

    fn away(missing: &MissingObject) -> Self {
        let status = Status { state: State::UnavailableOffline, health: Some(Health::Critical) };
        Self { status, conditions: vec![Condition::new(missing)] }
    }
}

impl Condition {
    fn new(missing: &MissingObject) -> Self {
        let MissingObject { kind, name, reason, since_unix_ms } = missing;
        let message = format!("{kind} {name} is missing: {reason}");
        let message_id = format!("{OWN}.{}", camel(EventKind::ObjectMissing.name()));
        let (message_args, timestamp) = (vec![message.clone()], date_time(*since_unix_ms));
        Self { message_id, message, message_args, severity: Health::Critical, timestamp }
    }
}

/// The drives that are missing, by their identifiers.
pub(crate) fn drives<'v>(view: &'v View<'_>) -> impl Iterator<Item = (String, &'v MissingObject)> {
    let missing = view.status().missing.iter().filter(|missing| missing.kind == MissingKind::Drive);
    // An object that is in the inventory again is not missing any more.
    missing.map(|missing| (slug(&missing.name), missing)).filter(|(id, _)| view.drive(id).is_none())
}

/// The drive that is missing, by its identifier.
pub(crate) fn drive<'v>(id: &str, view: &'v View<'_>) -> Option<&'v MissingObject> {
    drives(view).find(|(own, _)| own == id).map(|(_, missing)| missing)
}

/// `Drive`, as far as there is anything to say of it.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct MissingDrive {
    #[serde(flatten)]
    head: Head,
    manufacturer: &'static str,
    status: StatusOfMissing,
    links: DriveLinks,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct DriveLinks {
    chassis: Link,
    storage: Link,
}

impl MissingDrive {
    pub(crate) fn new(id: &str, missing: &MissingObject) -> Self {
        Self {
            head: Head::new(
                ChassisPlace::Drive(id.to_owned()),
                "#Drive.v1_22_0.Drive",
                missing.name.clone(),
                "An NVMe drive of the box, which cannot be had",
            ),
            manufacturer: "ebof",
            status: StatusOfMissing::away(missing),
            links: DriveLinks {
                chassis: link(ChassisPlace::Enclosure),
                storage: link(StoragePlace::Subsystem(id.to_owned())),
            },
        }
    }
}

/// `Storage` of such a drive: no host sees it, and it has nothing.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct MissingSubsystem {
    #[serde(flatten)]
    head: Head,
    identifiers: Vec<Identifier>,
    status: StatusOfMissing,
    drives: Vec<Link>,
    links: SubsystemLinks,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SubsystemLinks {
    enclosures: Vec<Link>,
}

impl MissingSubsystem {
    pub(crate) fn new(id: &str, missing: &MissingObject, view: &View<'_>) -> Self {
        let own = |drive: &Option<String>| drive.as_ref() == Some(&missing.name);
        let nqn = view.config().subsystems.iter().find(|subsystem| own(&subsystem.drive));
        Self {
            head: Head::new(
                StoragePlace::Subsystem(id.to_owned()),
                "#Storage.v1_21_0.Storage",
                missing.name.clone(),
                "The NVM subsystem of a drive that cannot be had",
            ),
            identifiers: nqn.map(|subsystem| Identifier::nqn(subsystem.nqn.as_str())).into_iter().collect(),
            status: StatusOfMissing::away(missing),
            drives: links([ChassisPlace::Drive(id.to_owned())]),
            links: SubsystemLinks { enclosures: links([ChassisPlace::Enclosure]) },
        }
    }
}
