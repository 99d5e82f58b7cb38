//! `Volume`: a namespace.

use ebof_manage::api::NamespaceStatus;
use ebof_manage::enclosure::{Change, ChangePlan, DriveObject, FormatObject, NamespaceDetails, NamespaceObject};
use serde::Serialize;

use super::controller::is_attached;
use crate::managed::site::{AnyController, Site};
use crate::managed::view::{Namespace, View, controller_of, namespace_of};
use crate::place::{ChassisPlace, FabricKind, FabricPlace, StoragePlace};
use crate::response::head::{Head, Identifier, Link, Oem, ResourceAction, State, Status, link, links, oem};
use crate::response::health::status_of;

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Volume {
    #[serde(flatten)]
    head: Head,
    /// `None` while it is disabled: its device is not open.
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_size_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provisioning_policy: Option<&'static str>,
    access_capabilities: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encrypted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encryption_types: Option<Vec<&'static str>>,
    identifiers: Vec<Identifier>,
    operations: Vec<Operation>,
    status: Status,
    #[serde(rename = "NVMeNamespaceProperties")]
    nvme: NamespaceProperties,
    metrics: Link,
    links: VolumeLinks,
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<Actions>,
    oem: Oem<OemVolume>,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Operation {
    operation: &'static str,
    percentage_complete: u8,
}

#[derive(Serialize)]
struct NamespaceProperties {
    #[serde(rename = "NamespaceId")]
    namespace_id: String,
    #[serde(rename = "NamespaceType")]
    namespace_type: &'static str,
    #[serde(rename = "NVMeVersion", skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(rename = "IsShareable")]
    is_shareable: bool,
    #[serde(rename = "SupportsMultipleNamespaceAttachments")]
    several: bool,
    #[serde(rename = "FormattedLBASize")]
    formatted: Option<String>,
    #[serde(rename = "NumberLBAFormats")]
    formats: usize,
    #[serde(rename = "LBAFormatsSupported")]
    supported: Vec<String>,
    #[serde(rename = "LBAFormat")]
    format: Format,
    #[serde(rename = "MetadataTransferredAtEndOfDataLBA")]
    metadata_at_end: bool,
    #[serde(rename = "NamespaceFeatures")]
    features: Features,
}

#[derive(Serialize)]
struct Format {
    #[serde(rename = "LBAFormatType", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(rename = "LBADataSizeBytes")]
    data: u32,
    #[serde(rename = "LBAMetadataSizeBytes")]
    metadata: u16,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Features {
    supports_thin_provisioning: bool,
    #[serde(rename = "SupportsDeallocatedOrUnwrittenLBError")]
    unwritten_error: bool,
    #[serde(rename = "SupportsNGUIDReuse")]
    nguid_reuse: bool,
    supports_atomic_transaction_size: bool,
    #[serde(rename = "SupportsIOPerformanceHints")]
    hints: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct VolumeLinks {
    drives: Vec<Link>,
    controllers: Vec<Link>,
    owning_storage_resource: Link,
    client_endpoints: Vec<Link>,
    server_endpoints: Vec<Link>,
}

#[derive(Serialize)]
struct Actions {
    #[serde(rename = "#Volume.Initialize")]
    initialize: ResourceAction,
    #[serde(rename = "Oem")]
    oem: OemActions,
}

#[derive(Serialize)]
struct OemActions {
    #[serde(rename = "#EbofVolume.Format")]
    format: ResourceAction,
    #[serde(rename = "#EbofVolume.Map")]
    map: ResourceAction,
}

/// `EbofVolume.v1_0_0.Namespace`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OemVolume {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    object: String,
    write_protected: bool,
    attached_hosts: Vec<String>,
    /// Those that have it now: who comes or goes makes it another resource, which is not changed by
    /// who has not seen that.
    connected_hosts: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backing: Option<String>,
    #[serde(rename = "ANAGroupId", skip_serializing_if = "Option::is_none")]
    ana_group: Option<u32>,
    #[serde(flatten)]
    details: Option<OfDrive>,
}

/// What only a drive's namespaces have.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct OfDrive {
    allocatable_bytes: u64,
    claimed_bytes: u64,
    keeps_checksums: bool,
    protection_type: u8,
    protection_first: bool,
    owner: Option<String>,
    registrants: u32,
    reservation_type: Option<u8>,
}

impl Volume {
    pub(super) fn new(view: &View<'_>, id: &str, namespace: Namespace<'_>) -> Self {
        match namespace {
            Namespace::OfDrive(drive, own) => Self::of_drive(view, id, drive, own),
            Namespace::Plain(_, own) => Self::plain(view, id, namespace, own),
        }
    }

    fn of_drive(view: &View<'_>, id: &str, drive: &DriveObject, namespace: &NamespaceObject) -> Self {
        let all = view.details(&drive.name);
        let details = all.as_deref().and_then(|details| namespace_of(details, namespace.name.nsid));
        let own = Namespace::OfDrive(drive, namespace);
        let encrypted = details.map(|details| details.encrypted);
        let is_thin = details.map(|details| details.capacity_bytes < details.size_bytes);
        let identifiers = details.map(|details| [Identifier::nguid(&details.nguid), Identifier::eui(&details.eui64)]);
        let version = all.as_deref().and_then(|details| controller_of(details, None)).map(|one| one.version.clone());
        let place = |place: fn(String, String) -> StoragePlace| place(id.to_owned(), own.id());
        Self {
            head: head(id, own, namespace.name.to_string()),
            capacity_bytes: Some(namespace.size_bytes),
            block_size_bytes: Some(namespace.block_size_bytes),
            provisioning_policy: is_thin.map(|is_thin| if is_thin { "Thin" } else { "Fixed" }),
            access_capabilities: own.access_capabilities(),
            encrypted,
            encryption_types: encrypted.map(|on| if on { vec!["ControllerAssisted"] } else { Vec::new() }),
            identifiers: [Identifier::uuid(&namespace.uuid)]
                .into_iter()
                .chain(identifiers.into_iter().flatten())
                .collect(),
            operations: namespace
                .format_percent
                .map(|percentage_complete| Operation { operation: "Format", percentage_complete })
                .into_iter()
                .collect(),
            status: status_of(drive),
            nvme: NamespaceProperties::new(&drive.formats, namespace, version),
            metrics: link(place(StoragePlace::VolumeMetrics)),
            links: VolumeLinks::new(view, id, own, vec![link(ChassisPlace::Drive(id.to_owned()))]),
            actions: Some(Actions {
                initialize: ResourceAction::new(place(StoragePlace::Initialize))
                    .accepts("InitializeType@Redfish.AllowableValues", vec!["Fast", "Slow"]),
                oem: OemActions {
                    format: ResourceAction::new(place(StoragePlace::Format))
                        .accepts("Erase@Redfish.AllowableValues", vec!["None", "UserData", "Cryptographic"]),
                    map: ResourceAction::new(place(StoragePlace::Map)),
                },
            }),
            oem: oem(OemVolume {
                kind: OWN,
                object: namespace.name.to_string(),
                write_protected: namespace.write_protected,
                attached_hosts: namespace.hosts.clone(),
                connected_hosts: connected(holders(view, namespace)),
                backing: None,
                ana_group: Some(namespace.ana_group),
                details: details.map(OfDrive::new),
            }),
        }
    }

    fn plain(view: &View<'_>, id: &str, own: Namespace<'_>, namespace: &NamespaceStatus) -> Self {
        let storage = own.storage();
        let config = view.subsystem_config(storage.nqn());
        let config = config.and_then(|config| config.namespaces.iter().find(|one| one.nsid == namespace.nsid));
        let is_open = namespace.block_size_bytes > 0;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let uuid = namespace.uuid.as_deref().map(Identifier::uuid);
        let nguid = config.and_then(|config| config.nguid.as_ref()).map(|nguid| Identifier::nguid(&hex(&nguid.0)));
        let eui = config.and_then(|config| config.eui64.as_ref()).map(|eui| Identifier::eui(&hex(&eui.0)));
        Self {
            head: head(id, own, format!("{} {}", storage.nqn(), own.id())),
            capacity_bytes: is_open.then_some(namespace.size_bytes),
            block_size_bytes: is_open.then_some(namespace.block_size_bytes),
            provisioning_policy: None,
            access_capabilities: own.access_capabilities(),
            encrypted: None,
            encryption_types: None,
            identifiers: uuid.into_iter().chain(nguid).chain(eui).collect(),
            operations: Vec::new(),
            status: if namespace.enabled {
                view.plain_status(storage.nqn())
            } else {
                Status::with_state(State::Disabled)
            },
            nvme: NamespaceProperties::plain(namespace),
            metrics: link(StoragePlace::VolumeMetrics(id.to_owned(), own.id())),
            links: VolumeLinks::new(view, id, own, Vec::new()),
            actions: None,
            oem: oem(OemVolume {
                kind: OWN,
                object: format!("{}/{}", storage.nqn(), own.id()),
                write_protected: namespace.write_protect,
                attached_hosts: vec!["*".to_owned()],
                connected_hosts: connected(of_subsystem(view, storage.nqn())),
                backing: Some(namespace.drive.clone()),
                ana_group: Some(namespace.ana_group),
                details: None,
            }),
        }
    }
}

/// The most hosts that are named.
const CONNECTED_MAX: usize = 256;

/// Hosts, each once.
fn connected(mut hosts: Vec<String>) -> Vec<String> {
    hosts.sort();
    hosts.dedup();
    hosts.truncate(CONNECTED_MAX);
    hosts
}

/// The hosts that have a namespace of a drive.
fn holders(view: &View<'_>, namespace: &NamespaceObject) -> Vec<String> {
    let gone = [Change::DeleteNamespace { namespace: namespace.name.clone() }];
    let plan = ChangePlan::new(view.inventory(), &gone);
    plan.disturbed.into_iter().map(|host| host.host_nqn).collect()
}

fn of_subsystem(view: &View<'_>, nqn: &str) -> Vec<String> {
    let controllers = view.status().controllers.iter().filter(|controller| controller.subsystem_nqn == nqn);
    controllers.map(|controller| controller.host_nqn.clone()).collect()
}

const OWN: &str = "#EbofVolume.v1_0_0.Namespace";

fn head(id: &str, namespace: Namespace<'_>, name: String) -> Head {
    Head::new(StoragePlace::Volume(id.to_owned(), namespace.id()), "#Volume.v1_10_2.Volume", name, "An NVMe namespace")
}

/// The name of a format of blocks.
fn format_name(index: u8) -> String {
    format!("LBAFormat{index}")
}

impl NamespaceProperties {
    fn new(formats: &[FormatObject], namespace: &NamespaceObject, version: Option<String>) -> Self {
        let current = formats.iter().find(|format| {
            format.block_size_bytes == namespace.block_size_bytes && format.metadata_bytes == namespace.metadata_bytes
        });
        let kind = current.map(|format| format_name(format.index));
        Self {
            namespace_id: format!("{:#x}", namespace.name.nsid),
            namespace_type: "Block",
            version,
            is_shareable: namespace.shared,
            several: namespace.shared,
            formatted: kind.clone(),
            formats: formats.len(),
            supported: formats.iter().map(|format| format_name(format.index)).collect(),
            format: Format { kind, data: namespace.block_size_bytes, metadata: namespace.metadata_bytes },
            metadata_at_end: namespace.metadata_bytes > 0,
            features: Features::new(true),
        }
    }

    /// Of a namespace with the one format that its data have.
    fn plain(namespace: &NamespaceStatus) -> Self {
        let kind = Some(format_name(0));
        Self {
            namespace_id: format!("{:#x}", namespace.nsid),
            namespace_type: "Block",
            version: None,
            is_shareable: true,
            several: true,
            formatted: kind.clone(),
            formats: 1,
            supported: vec![format_name(0)],
            format: Format { kind, data: namespace.block_size_bytes, metadata: 0 },
            metadata_at_end: false,
            features: Features::new(false),
        }
    }
}

impl Features {
    /// As NSFEAT says: only a drive tells which sizes of writes it prefers.
    const fn new(of_drive: bool) -> Self {
        Self {
            supports_thin_provisioning: true,
            unwritten_error: false,
            nguid_reuse: true,
            supports_atomic_transaction_size: of_drive,
            hints: false,
        }
    }
}

impl VolumeLinks {
    fn new(view: &View<'_>, id: &str, namespace: Namespace<'_>, drives: Vec<Link>) -> Self {
        let storage = namespace.storage();
        let attached = AnyController::all(storage).into_iter().filter(|one| is_attached(namespace, *one));
        let attached: Vec<AnyController<'_>> = attached.collect();
        let target =
            |one: &AnyController<'_>| FabricPlace::Endpoint(FabricKind::Nvmeof, Site::new(id, *one).endpoint_id());
        let hosts: &[String] = match namespace {
            Namespace::OfDrive(_, namespace) => &namespace.hosts,
            Namespace::Plain(..) => &[],
        };
        let names = view.names();
        let known = names.hosts.iter().enumerate().filter(|(_, nqn)| hosts.contains(nqn));
        let host = |at: usize| FabricPlace::Endpoint(FabricKind::Nvmeof, names.host_endpoints.at(at).to_owned());
        Self {
            drives,
            controllers: links(attached.iter().map(|one| StoragePlace::Controller(id.to_owned(), one.id()))),
            owning_storage_resource: link(StoragePlace::Subsystem(id.to_owned())),
            client_endpoints: links(known.map(|(at, _)| host(at))),
            server_endpoints: links(attached.iter().map(target)),
        }
    }
}

impl OfDrive {
    fn new(details: &NamespaceDetails) -> Self {
        Self {
            allocatable_bytes: details.capacity_bytes,
            claimed_bytes: details.claimed_bytes,
            keeps_checksums: details.checked,
            protection_type: details.protection.kind,
            protection_first: details.protection.first,
            owner: details.owner.clone(),
            registrants: details.registrants,
            reservation_type: details.reservation,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct VolumeMetrics {
    #[serde(flatten)]
    head: Head,
    oem: Oem<Usage>,
}

/// `EbofVolumeMetrics.v1_0_0.Usage`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Usage {
    #[serde(rename = "@odata.type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_bytes: Option<u64>,
    #[serde(flatten)]
    traffic: Option<Traffic>,
}

/// What hosts did since the target was started.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Traffic {
    read_commands: u64,
    read_bytes: u64,
    write_commands: u64,
    write_bytes: u64,
    other_commands: u64,
    failed_commands: u64,
}

impl VolumeMetrics {
    pub(super) fn new(view: &View<'_>, id: &str, namespace: Namespace<'_>) -> Self {
        let storage = namespace.storage();
        let details = view.details(storage.name());
        let used = details.as_deref().and_then(|details| namespace_of(details, namespace.nsid()));
        let io = match namespace {
            Namespace::Plain(_, namespace) => Some(namespace.io),
            Namespace::OfDrive(..) => {
                let status = view.subsystem_status(storage.nqn());
                let own = status.and_then(|one| one.namespaces.iter().find(|one| one.nsid == namespace.nsid()));
                own.map(|own| own.io)
            }
        };
        Self {
            head: Head::new(
                StoragePlace::VolumeMetrics(id.to_owned(), namespace.id()),
                "#VolumeMetrics.v1_1_1.VolumeMetrics",
                format!("Metrics of {} {}", storage.name(), namespace.id()),
                "What a namespace takes, and its traffic",
            ),
            oem: oem(Usage {
                kind: "#EbofVolumeMetrics.v1_0_0.Usage",
                used_bytes: used.map(|used| used.used_bytes),
                traffic: io.map(|io| Traffic {
                    read_commands: io.read_commands,
                    read_bytes: io.read_bytes,
                    write_commands: io.write_commands,
                    write_bytes: io.write_bytes,
                    other_commands: io.other_commands,
                    failed_commands: io.errors,
                }),
            }),
        }
    }
}
