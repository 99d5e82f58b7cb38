//! `Drive`.

use ebof_manage::enclosure::{DriveDetails, DriveObject, FormatObject, SanitizeAction, SanitizeStateObject};
use serde::Serialize;

use super::pcie;
use crate::managed::site::Site;
use crate::managed::view::View;
use crate::place::{ChassisPlace, FabricKind, FabricPlace, StoragePlace};
use crate::response::head::{Head, Health, Identifier, Link, Oem, ResourceAction, Status, link, links, oem};
use crate::response::health::{health_of, status_of};

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Drive {
    #[serde(flatten)]
    head: Head,
    manufacturer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    serial_number: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    firmware_version: Option<String>,
    capacity_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_size_bytes: Option<u32>,
    media_type: &'static str,
    protocol: &'static str,
    hotspare_type: &'static str,
    encryption_ability: &'static str,
    encryption_status: &'static str,
    failure_predicted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_media_life_left_percent: Option<u8>,
    multipath: bool,
    identifiers: Vec<Identifier>,
    operations: Vec<Operation>,
    status: Status,
    metrics: Link,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment_metrics: Option<Link>,
    links: DriveLinks,
    actions: Actions,
    oem: Oem<OemDrive>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Operation {
    operation: &'static str,
    percentage_complete: u8,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct DriveLinks {
    chassis: Link,
    storage: Link,
    volumes: Vec<Link>,
    endpoints: Vec<Link>,
    #[serde(rename = "PCIeFunctions")]
    pcie_functions: Vec<Link>,
}

#[derive(Serialize)]
struct Actions {
    #[serde(rename = "#Drive.SecureErase")]
    secure_erase: ResourceAction,
    #[serde(rename = "Oem")]
    oem: OemActions,
}

#[derive(Serialize)]
struct OemActions {
    #[serde(rename = "#EbofDrive.Remove")]
    remove: ResourceAction,
    #[serde(rename = "#EbofDrive.SelfTest")]
    self_test: ResourceAction,
}

/// `EbofDrive.v1_0_0.Drive`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemDrive {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    object: String,
    backing: String,
    is_added: bool,
    task: Option<u64>,
    unallocated_bytes: u64,
    max_namespaces: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<Resources>,
    formats: Vec<Format>,
    #[serde(flatten)]
    details: Option<OwnDetails>,
}

/// The flexible resources of a drive.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Resources {
    queue_pairs_total: u32,
    queue_pairs_assigned: u32,
    interrupt_vectors_total: u32,
    interrupt_vectors_assigned: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Format {
    index: u8,
    block_size_bytes: u32,
    metadata_bytes: u16,
}

/// What only the drive itself can tell.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OwnDetails {
    is_read_only: bool,
    overcommits: bool,
    is_exclusive: bool,
    keeps_checksums: bool,
    allocation_unit_bytes: u64,
    /// Without it every host that may connect.
    #[serde(skip_serializing_if = "Option::is_none")]
    managers: Option<Vec<String>>,
    firmware: Firmware,
    sanitize: Sanitize,
    self_test_percent: Option<u8>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Firmware {
    running: String,
    active_slot: u8,
    next_slot: Option<u8>,
    slots: Vec<Slot>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Slot {
    slot: u8,
    revision: Option<String>,
    is_read_only: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Sanitize {
    state: &'static str,
    sanitization_type: Option<&'static str>,
    percent: Option<u8>,
    passes: u8,
    is_erased: bool,
    block_erase_seconds: Option<u32>,
    overwrite_seconds: Option<u32>,
    cryptographic_erase_seconds: Option<u32>,
}

impl Drive {
    pub(super) fn new(view: &View<'_>, id: &str, drive: &DriveObject) -> Self {
        let details = view.details(&drive.name);
        let details = details.as_deref();
        let encrypts = details.is_some_and(|details| details.encrypts);
        let place = |place: fn(String) -> ChassisPlace| place(id.to_owned());
        let used = details.map(|details| details.endurance.used_percent);
        Self {
            head: Head::new(
                place(ChassisPlace::Drive),
                "#Drive.v1_22_0.Drive",
                drive.name.clone(),
                "An NVMe drive of the box",
            ),
            manufacturer: "ebof",
            model: details.map(|details| details.model.clone()),
            serial_number: drive.serial.clone(),
            firmware_version: details.map(|details| details.firmware.running.clone()),
            capacity_bytes: drive.capacity_bytes,
            block_size_bytes: drive.formats.iter().map(|format| format.block_size_bytes).min(),
            media_type: "SSD",
            protocol: "NVMeOverFabrics",
            hotspare_type: "None",
            // Not that of the Trusted Computing Group.
            encryption_ability: if encrypts { "Other" } else { "None" },
            encryption_status: if encrypts { "Unlocked" } else { "Unencrypted" },
            failure_predicted: health_of(drive.critical_warning) == Health::Critical,
            predicted_media_life_left_percent: used.map(|used| 100_u8.saturating_sub(used)),
            multipath: drive.ports.len() > 1,
            identifiers: details
                .map(|details| Identifier::uuid(&details.uuid))
                .into_iter()
                .chain([Identifier::nqn(&drive.nqn)])
                .collect(),
            operations: drive
                .sanitize_percent
                .map(|percentage_complete| Operation { operation: "Sanitize", percentage_complete })
                .into_iter()
                .collect(),
            status: status_of(drive),
            metrics: link(place(ChassisPlace::DriveMetrics)),
            environment_metrics: drive.temperature_kelvin.map(|_| link(place(ChassisPlace::DriveEnvironment))),
            links: DriveLinks::new(id, drive),
            actions: Actions {
                secure_erase: ResourceAction::new(place(ChassisPlace::SecureErase))
                    .accepts("SanitizationType@Redfish.AllowableValues", sanitizations(details)),
                oem: OemActions {
                    remove: ResourceAction::new(place(ChassisPlace::RemoveDrive)),
                    self_test: ResourceAction::new(place(ChassisPlace::SelfTest))
                        .accepts("Kind@Redfish.AllowableValues", vec!["Short", "Extended", "Abort"]),
                },
            },
            oem: oem(OemDrive::new(drive, details)),
        }
    }
}

impl DriveLinks {
    fn new(id: &str, drive: &DriveObject) -> Self {
        let volume = |nsid: u32| StoragePlace::Volume(id.to_owned(), format!("ns{nsid}"));
        Self {
            chassis: link(ChassisPlace::Enclosure),
            storage: link(StoragePlace::Subsystem(id.to_owned())),
            volumes: links(drive.namespaces.iter().map(|namespace| volume(namespace.name.nsid))),
            endpoints: links(
                Site::of_drive(id, drive).map(|site| FabricPlace::Endpoint(FabricKind::Nvmeof, site.endpoint_id())),
            ),
            pcie_functions: links(pcie::functions(id, drive)),
        }
    }
}

impl OemDrive {
    fn new(drive: &DriveObject, details: Option<&DriveDetails>) -> Self {
        let format = |format: &FormatObject| Format {
            index: format.index,
            block_size_bytes: format.block_size_bytes,
            metadata_bytes: format.metadata_bytes,
        };
        Self {
            kind: "#EbofDrive.v1_0_0.Drive",
            object: drive.name.clone(),
            backing: drive.backing.clone(),
            is_added: drive.added,
            task: drive.task,
            unallocated_bytes: drive.unallocated_bytes,
            max_namespaces: drive.namespaces_max,
            resources: drive.resources.map(|resources| Resources {
                queue_pairs_total: resources.queues_total,
                queue_pairs_assigned: resources.queues_assigned,
                interrupt_vectors_total: resources.interrupts_total,
                interrupt_vectors_assigned: resources.interrupts_assigned,
            }),
            formats: drive.formats.iter().map(format).collect(),
            details: details.map(|details| OwnDetails::new(drive, details)),
        }
    }
}

impl OwnDetails {
    fn new(drive: &DriveObject, details: &DriveDetails) -> Self {
        let (firmware, sanitize) = (&details.firmware, &details.sanitize);
        Self {
            is_read_only: details.is_read_only,
            overcommits: details.overcommits,
            is_exclusive: details.is_exclusive,
            keeps_checksums: details.checks,
            allocation_unit_bytes: details.extent_bytes,
            managers: details.managers.clone(),
            firmware: Firmware {
                running: firmware.running.clone(),
                active_slot: firmware.active_slot,
                next_slot: firmware.next_slot,
                slots: firmware
                    .slots
                    .iter()
                    .map(|slot| Slot {
                        slot: slot.slot,
                        revision: slot.revision.clone(),
                        is_read_only: slot.is_read_only,
                    })
                    .collect(),
            },
            sanitize: Sanitize {
                state: match sanitize.state {
                    SanitizeStateObject::Never => "Never",
                    SanitizeStateObject::Succeeded => "Succeeded",
                    SanitizeStateObject::InProgress => "InProgress",
                    SanitizeStateObject::Failed => "Failed",
                    SanitizeStateObject::SucceededDeallocated => "SucceededDeallocated",
                },
                sanitization_type: sanitize.action.and_then(sanitization),
                percent: sanitize.percent,
                passes: sanitize.passes,
                is_erased: sanitize.is_erased,
                block_erase_seconds: sanitize.estimates.block_erase_s,
                overwrite_seconds: sanitize.estimates.overwrite_s,
                cryptographic_erase_seconds: sanitize.estimates.crypto_erase_s,
            },
            self_test_percent: drive.self_test_percent,
        }
    }
}

/// The name of a sanitize operation in `Drive.SecureErase`; `None` for what erases nothing.
pub(super) const fn sanitization(action: SanitizeAction) -> Option<&'static str> {
    match action {
        SanitizeAction::BlockErase => Some("BlockErase"),
        SanitizeAction::Overwrite => Some("Overwrite"),
        SanitizeAction::CryptoErase => Some("CryptographicErase"),
        SanitizeAction::ExitFailure => None,
    }
}

/// What a drive can do now.
pub(super) fn sanitizations(details: Option<&DriveDetails>) -> Vec<&'static str> {
    details.map_or(Vec::new(), |details| {
        details.sanitize.actions.iter().filter_map(|action| sanitization(*action)).collect()
    })
}
