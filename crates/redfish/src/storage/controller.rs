//! `StorageController`: the primary controller of a drive, or a function of it.

use std::rc::Rc;

use ebof_manage::enclosure::{ControllerDetails, DriveDetails, FunctionObject, HostObject};
use serde::Serialize;

use crate::managed::site::{AnyController, Site};
use crate::managed::view::{Namespace, Storage, View, controller_of};
use crate::place::{ChassisPlace, FabricKind, FabricPlace, StoragePlace};
use crate::response::head::{Head, Identifier, Link, Oem, ResourceAction, State, Status, link, links, oem};
use crate::response::health::{CriticalWarnings, status_of};
use crate::response::time::date_time;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct StorageController {
    #[serde(flatten)]
    head: Head,
    manufacturer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serial_number: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    firmware_version: Option<String>,
    supported_controller_protocols: Vec<&'static str>,
    identifiers: Vec<Identifier>,
    status: Status,
    #[serde(rename = "NVMeControllerProperties")]
    nvme: ControllerProperties,
    links: ControllerLinks,
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<Actions>,
    oem: Oem<OemController>,
}

#[derive(Serialize)]
struct ControllerProperties {
    #[serde(rename = "ControllerType")]
    kind: &'static str,
    #[serde(rename = "NVMeVersion")]
    version: Option<String>,
    #[serde(rename = "MaxQueueSize")]
    max_queue_size: Option<u32>,
    #[serde(rename = "AllocatedSubmissionQueues", skip_serializing_if = "Option::is_none")]
    submission_queues: Option<u16>,
    #[serde(rename = "AllocatedCompletionQueues", skip_serializing_if = "Option::is_none")]
    completion_queues: Option<u16>,
    #[serde(rename = "NVMeControllerAttributes")]
    attributes: Attributes,
    #[serde(rename = "NVMeSMARTCriticalWarnings")]
    warnings: CriticalWarnings,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Attributes {
    #[serde(rename = "Supports128BitHostId")]
    host_id_128: bool,
    supports_exceeding_power_of_non_operational_state: bool,
    #[serde(rename = "SupportsNVMSets")]
    nvm_sets: bool,
    supports_read_recovery_levels: bool,
    supports_endurance_groups: bool,
    supports_predictable_latency_mode: bool,
    supports_traffic_based_keep_alive: bool,
    reports_namespace_granularity: bool,
    #[serde(rename = "SupportsSQAssociations")]
    sq_associations: bool,
    #[serde(rename = "ReportsUUIDList")]
    uuid_list: bool,
    supports_reservations: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct ControllerLinks {
    attached_volumes: Vec<Link>,
    endpoints: Vec<Link>,
    #[serde(rename = "PCIeFunctions")]
    pcie_functions: Vec<Link>,
}

#[derive(Serialize)]
struct Actions {
    #[serde(rename = "#StorageController.AttachNamespaces")]
    attach: ResourceAction,
    #[serde(rename = "#StorageController.DetachNamespaces")]
    detach: ResourceAction,
}

/// `EbofStorageController.v1_0_0.Function`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemController {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    object: String,
    #[serde(rename = "NQN")]
    nqn: String,
    state: &'static str,
    ports: Vec<String>,
    #[serde(flatten)]
    function: Option<OfFunction>,
    hosts: Vec<Host>,
}

/// What the primary controller has not.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OfFunction {
    port: Option<String>,
    port_exists: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<Link>,
    queue_pairs: u16,
    interrupt_vectors: u16,
    weight: u16,
    #[serde(rename = "IOPSLimit")]
    iops_limit: Option<u64>,
    bytes_per_second_limit: Option<u64>,
    #[serde(rename = "MinimumIOPS")]
    minimum_iops: Option<u64>,
    task: Option<u64>,
}

/// A host that has a controller.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Host {
    #[serde(rename = "NQN")]
    nqn: String,
    address: String,
    controller_id: u16,
    port: String,
    #[serde(rename = "IOQueues")]
    io_queues: u32,
    connected_since: String,
}

impl StorageController {
    pub(super) fn new(view: &View<'_>, id: &str, controller: AnyController<'_>) -> Self {
        let details = match controller {
            AnyController::Primary(drive) | AnyController::Function(drive, _) => view.details(&drive.name),
            AnyController::Plain(_) => None,
        };
        let plain = match controller {
            AnyController::Plain(subsystem) => view.subsystem_config(&subsystem.nqn),
            _ => None,
        };
        let site = Site::new(id, controller);
        let own_id = controller.id();
        let place = |place: fn(String, String) -> StoragePlace| place(id.to_owned(), own_id.clone());
        Self {
            head: Head::new(
                place(StoragePlace::Controller),
                "#StorageController.v1_11_0.StorageController",
                controller.object(),
                match controller {
                    AnyController::Primary(_) => "The primary controller of a drive",
                    AnyController::Function(..) => "A virtual function of a drive: a secondary controller",
                    AnyController::Plain(_) => "What each host of the subsystem gets",
                },
            ),
            manufacturer: "ebof",
            model: details.as_ref().map(|details| details.model.clone()).or(plain.map(|plain| plain.model.clone())),
            serial_number: details
                .as_ref()
                .map(|details| details.serial.clone())
                .or(plain.map(|plain| plain.serial.clone())),
            firmware_version: details
                .as_ref()
                .map(|details| details.firmware.running.clone())
                .or(plain.map(|plain| plain.firmware.clone())),
            supported_controller_protocols: vec!["NVMeOverFabrics", "PCIe"],
            identifiers: vec![Identifier::nqn(site.nqn())],
            status: status(view, controller),
            nvme: ControllerProperties::new(view, controller, details.as_ref()),
            links: ControllerLinks::new(view, id, controller, &site),
            actions: (!matches!(controller, AnyController::Plain(_))).then(|| Actions {
                attach: ResourceAction::new(place(StoragePlace::Attach)),
                detach: ResourceAction::new(place(StoragePlace::Detach)),
            }),
            oem: oem(OemController::new(view, controller, &site)),
        }
    }
}

/// The state of a controller, with its drive's health.
fn status(view: &View<'_>, controller: AnyController<'_>) -> Status {
    match controller {
        AnyController::Primary(drive) => status_of(drive),
        AnyController::Function(drive, function) if function.online => status_of(drive),
        AnyController::Function(drive, _) => Status { state: State::StandbyOffline, ..status_of(drive) },
        AnyController::Plain(plain) => view.plain_status(&plain.nqn),
    }
}

/// Optional features that controllers of plain subsystems have, and their version.
const PLAIN_CTRATT: u32 = 1 | 1 << 6;
const PLAIN_ONCS: u16 = 0;
const PLAIN_VERSION: &str = "2.1.0";

impl ControllerProperties {
    fn new(view: &View<'_>, controller: AnyController<'_>, details: Option<&Rc<DriveDetails>>) -> Self {
        let number = match controller {
            AnyController::Function(_, function) => Some(function.name.number),
            _ => None,
        };
        let found = details.and_then(|details| controller_of(details, number));
        let Some(found) = found else { return Self::plain(view, controller) };
        Self {
            kind: "IO",
            version: Some(found.version.clone()),
            max_queue_size: Some(zero_based(found.queue_entries_max)),
            submission_queues: queues(found),
            completion_queues: queues(found),
            attributes: Attributes::new(found.ctratt, found.oncs),
            warnings: CriticalWarnings::new(found.critical_warning),
        }
    }

    /// Of a subsystem without a drive, at the port that allows the longest queues.
    fn plain(view: &View<'_>, controller: AnyController<'_>) -> Self {
        let ports: &[String] = match controller {
            AnyController::Plain(subsystem) => &subsystem.ports,
            _ => &[],
        };
        let ports = view.config().ports.iter().filter(|port| ports.contains(&port.name));
        Self {
            kind: "IO",
            version: Some(PLAIN_VERSION.to_owned()),
            max_queue_size: ports.map(|port| zero_based(port.max_queue_size.into())).max(),
            submission_queues: None,
            completion_queues: None,
            attributes: Attributes::new(PLAIN_CTRATT, PLAIN_ONCS),
            warnings: CriticalWarnings::new(0),
        }
    }
}

/// `MaxQueueSize` is one less than the entries.
const fn zero_based(entries: u32) -> u32 {
    entries.saturating_sub(1)
}

/// The queue pairs of a function. The primary controller has what is left.
fn queues(controller: &ControllerDetails) -> Option<u16> {
    controller.function.as_ref().map(|_| controller.queues)
}

impl Attributes {
    const fn new(ctratt: u32, oncs: u16) -> Self {
        const fn bit(ctratt: u32, bit: u32) -> bool {
            ctratt & (1 << bit) != 0
        }
        Self {
            host_id_128: bit(ctratt, 0),
            supports_exceeding_power_of_non_operational_state: bit(ctratt, 1),
            nvm_sets: bit(ctratt, 2),
            supports_read_recovery_levels: bit(ctratt, 3),
            supports_endurance_groups: bit(ctratt, 4),
            supports_predictable_latency_mode: bit(ctratt, 5),
            supports_traffic_based_keep_alive: bit(ctratt, 6),
            reports_namespace_granularity: bit(ctratt, 7),
            sq_associations: bit(ctratt, 8),
            uuid_list: bit(ctratt, 9),
            supports_reservations: oncs & (1 << 5) != 0,
        }
    }
}

impl ControllerLinks {
    fn new(view: &View<'_>, id: &str, controller: AnyController<'_>, site: &Site<'_>) -> Self {
        let storage = match controller {
            AnyController::Primary(drive) | AnyController::Function(drive, _) => Storage::Drive(drive),
            AnyController::Plain(subsystem) => Storage::Plain(subsystem),
        };
        let attached = storage.namespaces(view).into_iter().filter(|namespace| is_attached(*namespace, controller));
        let volume = |namespace: Namespace<'_>| StoragePlace::Volume(id.to_owned(), namespace.id());
        let endpoint = |kind| FabricPlace::Endpoint(kind, site.endpoint_id());
        let of_drive = !matches!(controller, AnyController::Plain(_));
        let function = of_drive.then(|| ChassisPlace::Function(id.to_owned(), controller.id()));
        Self {
            attached_volumes: links(attached.map(volume)),
            endpoints: links([FabricKind::Nvmeof, FabricKind::Pcie].map(endpoint)),
            pcie_functions: links(function),
        }
    }
}

/// Whether a controller has a namespace: the primary one if any host of its subsystem has.
pub(super) fn is_attached(namespace: Namespace<'_>, controller: AnyController<'_>) -> bool {
    match (namespace, controller) {
        (Namespace::OfDrive(_, namespace), AnyController::Primary(_)) => !namespace.hosts.is_empty(),
        (Namespace::OfDrive(_, namespace), AnyController::Function(_, function)) => {
            namespace.functions.contains(&function.name)
        }
        (Namespace::Plain(..), AnyController::Plain(_)) => true,
        _ => false,
    }
}

impl OemController {
    fn new(view: &View<'_>, controller: AnyController<'_>, site: &Site<'_>) -> Self {
        let function = match controller {
            AnyController::Function(_, function) => Some(function),
            _ => None,
        };
        Self {
            kind: "#EbofStorageController.v1_0_0.Function",
            object: controller.object(),
            nqn: site.nqn().to_owned(),
            state: if function.is_none_or(|function| function.online) { "Online" } else { "Offline" },
            ports: site.ports().iter().map(|port| (*port).to_owned()).collect(),
            function: function.map(|function| OfFunction::new(view, function)),
            hosts: site.hosts().iter().map(Host::new).collect(),
        }
    }
}

impl OfFunction {
    fn new(view: &View<'_>, function: &FunctionObject) -> Self {
        let port = function.port();
        let zone = port.and_then(|name| Some((view.inventory().port(name)?, view.port_id(name)?)));
        Self {
            port: port.map(str::to_owned),
            port_exists: function.port_exists,
            zone: zone.map(|(port, id)| link(FabricPlace::Zone(FabricKind::of_port(port.kind), id.to_owned()))),
            queue_pairs: function.queues,
            interrupt_vectors: function.interrupts,
            weight: function.share.weight,
            iops_limit: function.share.iops,
            bytes_per_second_limit: function.share.bytes_per_second,
            minimum_iops: function.share.minimum_iops,
            task: function.task,
        }
    }
}

impl Host {
    fn new(host: &HostObject) -> Self {
        Self {
            nqn: host.nqn.clone(),
            address: host.peer.clone(),
            controller_id: host.cntlid,
            port: host.port.clone(),
            io_queues: host.io_queues,
            connected_since: date_time(host.connected_since_unix_ms),
        }
    }
}
