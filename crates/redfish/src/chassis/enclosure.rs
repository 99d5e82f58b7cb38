//! `Chassis`: the enclosure.

use serde::Serialize;

use super::sensor;
use crate::managed::missing;
use crate::managed::view::View;
use crate::place::{ChassisPlace, ManagerPlace, StoragePlace, SystemPlace};
use crate::response::head::{Head, Health, Link, Oem, ResourceAction, Status, link, links, oem};

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Chassis {
    #[serde(flatten)]
    head: Head,
    chassis_type: &'static str,
    manufacturer: &'static str,
    model: &'static str,
    serial_number: String,
    #[serde(rename = "UUID")]
    uuid: String,
    power_state: &'static str,
    status: Status,
    drives: Link,
    network_adapters: Link,
    #[serde(rename = "PCIeDevices")]
    pcie_devices: Link,
    sensors: Link,
    thermal_subsystem: Link,
    #[serde(skip_serializing_if = "Option::is_none")]
    environment_metrics: Option<Link>,
    links: ChassisLinks,
    actions: Actions,
    oem: Oem<Enclosure>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ChassisLinks {
    drives: Vec<Link>,
    storage: Vec<Link>,
    managed_by: Vec<Link>,
    computer_systems: Vec<Link>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Actions {
    oem: OemActions,
}

#[derive(Serialize)]
struct OemActions {
    #[serde(rename = "#EbofChassis.AddDrive")]
    add_drive: ResourceAction,
}

/// `EbofChassis.v1_0_0.Enclosure`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Enclosure {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    version: String,
    contradictions: Vec<String>,
}

impl Chassis {
    pub(super) fn new(view: &View<'_>) -> Self {
        let inventory = view.inventory();
        let unwell = inventory.drives.iter().any(|drive| drive.critical_warning != 0);
        let missing: Vec<String> = missing::drives(view).map(|(id, _)| id).collect();
        let drives = missing.iter().cloned().map(ChassisPlace::Drive);
        let storage = missing.iter().cloned().map(StoragePlace::Subsystem);
        let health = if !missing.is_empty() {
            Health::Critical
        } else if unwell {
            Health::Warning
        } else {
            Health::OK
        };
        Self {
            head: Head::new(
                ChassisPlace::Enclosure,
                "#Chassis.v1_28_0.Chassis",
                "Enclosure",
                "The box of drives that this target serves",
            ),
            chassis_type: "StorageEnclosure",
            manufacturer: "ebof",
            model: "ebof",
            serial_number: view.parts.uuid.simple().to_string(),
            uuid: view.parts.uuid.to_string(),
            power_state: "On",
            status: Status::enabled(health),
            drives: link(ChassisPlace::Drives),
            network_adapters: link(ChassisPlace::Adapters),
            pcie_devices: link(ChassisPlace::Devices),
            sensors: link(ChassisPlace::Sensors),
            thermal_subsystem: link(ChassisPlace::Thermal),
            environment_metrics: sensor::Environment::of_box(view).map(|_| link(ChassisPlace::Environment)),
            links: ChassisLinks {
                drives: links(view.drives().map(|(id, _)| ChassisPlace::Drive(id.to_owned())).chain(drives)),
                storage: links(view.storages().map(|(id, _)| StoragePlace::Subsystem(id.to_owned())).chain(storage)),
                managed_by: links([ManagerPlace::Manager]),
                computer_systems: links([SystemPlace::System]),
            },
            actions: Actions { oem: OemActions { add_drive: ResourceAction::new(ChassisPlace::AddDrive) } },
            oem: oem(Enclosure {
                kind: "#EbofChassis.v1_0_0.Enclosure",
                version: inventory.version.clone(),
                contradictions: inventory.contradictions.clone(),
            }),
        }
    }
}
