//! `Storage`: an NVM subsystem.

use ebof_manage::api::{MissingKind, MissingObject};
use serde::Serialize;

use crate::managed::missing::StatusOfMissing;
use crate::managed::view::{Storage, View};
use crate::place::{ChassisPlace, StoragePlace};
use crate::response::head::{Head, Identifier, Link, ResourceAction, link, links};
use crate::response::health::status_of;

/// The most namespaces of a plain subsystem.
const PLAIN_NAMESPACES_MAX: u32 = 1024;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Subsystem {
    #[serde(flatten)]
    head: Head,
    identifiers: Vec<Identifier>,
    status: StatusOfMissing,
    controllers: Link,
    volumes: Link,
    drives: Vec<Link>,
    #[serde(rename = "NVMeSubsystemProperties")]
    nvme: SubsystemProperties,
    links: StorageLinks,
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<Actions>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SubsystemProperties {
    max_namespaces_supported: u32,
    shared_namespace_controller_attachment_supported: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct StorageLinks {
    enclosures: Vec<Link>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Actions {
    oem: OemActions,
}

#[derive(Serialize)]
struct OemActions {
    #[serde(rename = "#EbofStorage.ResetDrive")]
    reset: ResourceAction,
}

impl Subsystem {
    pub(super) fn new(view: &View<'_>, id: &str, storage: Storage<'_>) -> Self {
        let id = || id.to_owned();
        let (description, status, most, drives) = match storage {
            Storage::Drive(drive) => (
                "The NVM subsystem of a drive",
                status_of(drive),
                drive.namespaces_max,
                links([ChassisPlace::Drive(id())]),
            ),
            Storage::Plain(plain) => (
                "An NVM subsystem of plain namespaces",
                view.plain_status(&plain.nqn),
                PLAIN_NAMESPACES_MAX,
                Vec::new(),
            ),
        };
        // `NQN/NSID`
        let is_part =
            |missing: &&MissingObject| missing.name.rsplit_once('/').is_some_and(|(of, _)| of == storage.nqn());
        let parts =
            view.status().missing.iter().filter(|missing| missing.kind == MissingKind::Namespace).filter(is_part);
        // A drive that gives a namespace to one host at a time does not share it.
        let shares = view.details(storage.name()).is_none_or(|details| !details.is_exclusive);
        let with_functions = !storage.functions().is_empty();
        Self {
            head: Head::new(StoragePlace::Subsystem(id()), "#Storage.v1_21_0.Storage", storage.name(), description),
            identifiers: vec![Identifier::nqn(storage.nqn())],
            status: StatusOfMissing::without(status, parts),
            controllers: link(StoragePlace::Controllers(id())),
            volumes: link(StoragePlace::Volumes(id())),
            drives,
            nvme: SubsystemProperties {
                max_namespaces_supported: most,
                shared_namespace_controller_attachment_supported: shares,
            },
            links: StorageLinks { enclosures: links([ChassisPlace::Enclosure]) },
            actions: with_functions
                .then(|| Actions { oem: OemActions { reset: ResourceAction::new(StoragePlace::ResetDrive(id())) } }),
        }
    }
}
