//! `PCIeDevice` and `PCIeFunction`: a drive and its functions, as direct ports show them.

use ebof_manage::enclosure::{DriveObject, FunctionObject};
use serde::Serialize;

use crate::managed::site::{function_id, id_of};
use crate::managed::view::View;
use crate::place::{ChassisPlace, PRIMARY, StoragePlace};
use crate::response::head::{Head, Link, Oem, State, Status, link, links, oem};
use crate::response::health::status_of;

/// What direct ports show in configuration space.
const VENDOR: &str = "0xEB0F";
const DEVICE: &str = "0x0001";
const REVISION: &str = "0x01";

/// An NVM Express I/O controller.
const CLASS: &str = "0x010802";

/// Addresses of the functions of a drive: the primary one first.
pub(super) fn functions(id: &str, drive: &DriveObject) -> Vec<ChassisPlace> {
    let names = [PRIMARY.to_owned()].into_iter().chain(drive.functions.iter().map(function_id));
    names.map(|function| ChassisPlace::Function(id.to_owned(), function)).collect()
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Device {
    #[serde(flatten)]
    head: Head,
    manufacturer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    serial_number: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    firmware_version: Option<String>,
    device_type: &'static str,
    status: Status,
    #[serde(rename = "PCIeFunctions")]
    functions: Link,
    links: DeviceLinks,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct DeviceLinks {
    chassis: Vec<Link>,
}

impl Device {
    pub(super) fn new(view: &View<'_>, id: &str, drive: &DriveObject) -> Self {
        let details = view.details(&drive.name);
        Self {
            head: Head::new(
                ChassisPlace::Device(id.to_owned()),
                "#PCIeDevice.v1_21_0.PCIeDevice",
                drive.name.clone(),
                "A drive with its physical and virtual functions",
            ),
            manufacturer: "ebof",
            model: details.as_ref().map(|details| details.model.clone()),
            serial_number: drive.serial.clone(),
            firmware_version: details.as_ref().map(|details| details.firmware.running.clone()),
            device_type: if drive.functions.is_empty() { "SingleFunction" } else { "MultiFunction" },
            status: status_of(drive),
            functions: link(ChassisPlace::Functions(id.to_owned())),
            links: DeviceLinks { chassis: links([ChassisPlace::Enclosure]) },
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct FunctionResource {
    #[serde(flatten)]
    head: Head,
    function_id: u16,
    function_type: &'static str,
    function_protocol: &'static str,
    device_class: &'static str,
    vendor_id: &'static str,
    device_id: &'static str,
    revision_id: &'static str,
    subsystem_vendor_id: &'static str,
    subsystem_id: &'static str,
    class_code: &'static str,
    enabled: bool,
    status: Status,
    links: FunctionLinks,
    oem: Oem<OemFunction>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct FunctionLinks {
    #[serde(rename = "PCIeDevice")]
    device: Link,
    drives: Vec<Link>,
}

/// `EbofPCIeFunction.v1_0_0.Function`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemFunction {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    object: String,
    /// The standard's property is for another type of controllers.
    storage_controller: Link,
    state: &'static str,
    #[serde(flatten)]
    function: Option<OfFunction>,
}

/// What the primary function has not.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OfFunction {
    port: Option<String>,
    queue_pairs: u16,
    interrupt_vectors: u16,
}

impl FunctionResource {
    pub(super) fn new(id: &str, drive: &DriveObject, function: Option<&FunctionObject>) -> Self {
        let name = id_of(function);
        let number = function.map_or(0, |function| function.name.number);
        // A function is at most as healthy as its drive.
        let health = status_of(drive).health;
        let is_online = function.is_none_or(|function| function.online);
        let state = if is_online { State::Enabled } else { State::StandbyOffline };
        Self {
            head: Head::new(
                ChassisPlace::Function(id.to_owned(), name.clone()),
                "#PCIeFunction.v1_7_0.PCIeFunction",
                format!("{}/{name}", drive.name),
                "A function of a drive",
            ),
            function_id: number,
            function_type: if number == 0 { "Physical" } else { "Virtual" },
            function_protocol: "PCIe",
            device_class: "MassStorageController",
            vendor_id: VENDOR,
            device_id: DEVICE,
            revision_id: REVISION,
            subsystem_vendor_id: VENDOR,
            subsystem_id: DEVICE,
            class_code: CLASS,
            enabled: is_online,
            status: Status { state, health },
            links: FunctionLinks {
                device: link(ChassisPlace::Device(id.to_owned())),
                drives: links([ChassisPlace::Drive(id.to_owned())]),
            },
            oem: oem(OemFunction {
                kind: "#EbofPCIeFunction.v1_0_0.Function",
                object: format!("{}/{name}", drive.name),
                storage_controller: link(StoragePlace::Controller(id.to_owned(), name)),
                state: if is_online { "Online" } else { "Offline" },
                function: function.map(|function| OfFunction {
                    port: function.port().map(str::to_owned),
                    queue_pairs: function.queues,
                    interrupt_vectors: function.interrupts,
                }),
            }),
        }
    }
}
