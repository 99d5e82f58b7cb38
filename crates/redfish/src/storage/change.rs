//! Changes of controllers and volumes: shares, attachments, namespaces.

use std::collections::BTreeSet;

use ebof_manage::enclosure::{
    Attachee, BLOCK_BYTES_DEFAULT, Change, CreateNamespace, Erase, FormatNamespace, FunctionName, NamespaceName,
    ProtectionObject, Rate,
};
use serde_json::Value;

use crate::area::demand::{Creates, Demand};
use crate::managed::site::{AnyController, nsid};
use crate::managed::view::{Namespace, Storage, View};
use crate::place::{PRIMARY, Place, StoragePlace};
use crate::request::input::Input;
use crate::response::message::{Message, Problem};

/// Sizes are at most this many bytes (an `Int64` of OData).
const BYTES_MAX: u64 = i64::MAX.unsigned_abs();

/// `EbofStorage.ResetDrive`.
pub(super) fn reset_drive(storage: Storage<'_>, input: Input) -> Result<Demand, Problem> {
    input.finish(None)?;
    match storage {
        Storage::Drive(drive) => Ok(Demand::change(Change::ResetDrive { drive: drive.name.clone() })),
        Storage::Plain(_) => Err(only_of_drives("EbofStorage.ResetDrive")),
    }
}

/// An action that subsystems of plain namespaces do not have.
fn only_of_drives(action: &str) -> Problem {
    Problem::bad_request(Message::action_not_supported(action))
}

/// The ports of a function, and its share: weight and limits.
pub(super) fn alter_controller(
    controller: AnyController<'_>,
    mut input: Input,
    current: &Value,
) -> Result<Demand, Problem> {
    let AnyController::Function(_, function) = controller else {
        input.finish(Some(current))?;
        return Err(Problem::bad_request(Message::no_operation()));
    };
    let wanted = input.ebof(|own| {
        let limit = |own: &mut Input, name| own.number_or_null(name, 1..=BYTES_MAX).map(Rate);
        (
            own.texts("Ports"),
            own.number("Weight", 1..=1000),
            limit(own, "IOPSLimit"),
            limit(own, "BytesPerSecondLimit"),
            limit(own, "MinimumIOPS"),
        )
    });
    input.finish(Some(current))?;
    let (ports, weight, iops, bytes_per_second, minimum_iops) = wanted.unwrap_or_default();
    let ports = ports.map(BTreeSet::from_iter).filter(|ports| *ports != function.ports);
    let is_more = ports.as_ref().is_some_and(|ports| function.ports.is_subset(ports) || ports.is_empty());
    let function = function.name.clone();
    let mut changes = Vec::new();
    changes.extend(ports.map(|ports| match is_more {
        true => Change::Assign { function: function.clone(), ports },
        false => Change::Move { function: function.clone(), to: ports },
    }));
    if let Some(weight) = weight {
        changes.push(Change::Weight { function: function.clone(), weight });
    }
    if iops.is_some() || bytes_per_second.is_some() || minimum_iops.is_some() {
        changes.push(Change::Limit { function, iops, bytes_per_second, minimum_iops });
    }
    Demand::changes(changes)
}

/// `StorageController.AttachNamespaces` and `DetachNamespaces`. The primary controller stands for
/// every host of its subsystem.
pub(super) fn attachments(
    id: &str,
    controller: AnyController<'_>,
    attach: bool,
    mut input: Input,
) -> Result<Demand, Problem> {
    let action = if attach { "StorageController.AttachNamespaces" } else { "StorageController.DetachNamespaces" };
    let (drive, function) = match controller {
        AnyController::Primary(drive) => (drive, None),
        AnyController::Function(drive, function) => (drive, Some(&function.name)),
        AnyController::Plain(_) => return Err(only_of_drives(action)),
    };
    let volumes = input.links("Namespaces");
    let volumes = input.parameter(action, "Namespaces", volumes).unwrap_or_default();
    let mut changes = Vec::new();
    for (at, volume) in volumes.iter().enumerate() {
        let Some(namespace) = nsid_of(id, volume) else {
            input
                .mistake(&format!("Namespaces/{at}"), Message::not_this_kind(volume, "a volume of the same subsystem"));
            continue;
        };
        let name = NamespaceName { drive: drive.name.clone(), nsid: namespace };
        let hosts = drive.namespaces.iter().find(|one| one.name == name).map_or(&[][..], |one| &one.hosts);
        let whom: Vec<Attachee> = match function {
            Some(function) => vec![Attachee::Function(function.clone())],
            None if attach || hosts.is_empty() => vec![Attachee::Everyone],
            None => hosts.iter().filter_map(|host| host.parse().ok()).collect(),
        };
        changes.extend(whom.into_iter().map(|who| match attach {
            true => Change::AttachNamespace { namespace: name.clone(), to: who },
            false => Change::DetachNamespace { namespace: name.clone(), from: who },
        }));
    }
    input.finish(None)?;
    Demand::changes(changes)
}

/// The NSID of a volume of this subsystem.
fn nsid_of(id: &str, place: &Place) -> Option<u32> {
    match place {
        Place::Storage(StoragePlace::Volume(storage, volume)) if storage == id => nsid(volume),
        _ => None,
    }
}

/// Who a controller of this subsystem stands for.
fn attachee(id: &str, drive: &str, place: &Place) -> Option<Attachee> {
    let Place::Storage(StoragePlace::Controller(storage, controller)) = place else { return None };
    if storage != id {
        return None;
    }
    if controller == PRIMARY {
        return Some(Attachee::Everyone);
    }
    format!("{drive}/{controller}").parse::<FunctionName>().ok().map(Attachee::Function)
}

/// What is read of the body of a new volume.
#[derive(Default)]
struct NewVolume {
    bytes: Option<u64>,
    allocatable: Option<u64>,
    block: Option<u32>,
    metadata: Option<u16>,
    shared: Option<bool>,
    nsid: Option<u32>,
    protection: ProtectionObject,
    controllers: Vec<Place>,
    hosts: Vec<String>,
    backing: Option<String>,
}

impl NewVolume {
    fn read(input: &mut Input) -> Self {
        let bytes = input.number("CapacityBytes", 1..=BYTES_MAX);
        let block = input.number("BlockSizeBytes", BLOCK_BYTES);
        let mut new = Self { bytes, block, ..Self::default() };
        input.object("NVMeNamespaceProperties", |nvme| {
            new.shared = nvme.flag("IsShareable");
            let format = nvme.object("LBAFormat", |format| {
                (format.number("LBADataSizeBytes", BLOCK_BYTES), format.number("LBAMetadataSizeBytes", METADATA_BYTES))
            });
            let (data, metadata) = format.unwrap_or_default();
            (new.block, new.metadata) = (data.or(new.block), metadata);
        });
        new.controllers = input.object("Links", |links| links.links("Controllers")).flatten().unwrap_or_default();
        input.ebof(|own| {
            new.nsid = own.number("NamespaceId", 1..=u64::from(u32::MAX));
            new.allocatable = own.number("AllocatableBytes", 1..=BYTES_MAX);
            new.protection = protection(own).unwrap_or_default();
            new.hosts = own.texts("AttachedHosts").unwrap_or_default();
            new.backing = own.text("Backing");
        });
        new
    }
}

/// What blocks may be asked for; which there are is the drive's matter.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 512..=1 << 20;
const METADATA_BYTES: std::ops::RangeInclusive<u64> = 0..=4096;

fn protection(own: &mut Input) -> Option<ProtectionObject> {
    let kind = own.number("ProtectionType", 0..=3);
    let first = own.flag("ProtectionFirst");
    (kind.is_some() || first.is_some())
        .then(|| ProtectionObject { kind: kind.unwrap_or_default(), first: first.unwrap_or_default() })
}

/// A new volume.
pub(super) fn create(id: &str, storage: Storage<'_>, mut input: Input, view: &View<'_>) -> Result<Demand, Problem> {
    let mut new = NewVolume::read(&mut input);
    let Storage::Drive(drive) = storage else { return create_plain(storage, new, input, view) };
    new.bytes = input.required("CapacityBytes", new.bytes);
    let mut attach_to = Vec::new();
    for (at, place) in new.controllers.iter().enumerate() {
        match attachee(id, &drive.name, place) {
            Some(who) => attach_to.push(who),
            None => input.mistake(
                &format!("Links/Controllers/{at}"),
                Message::not_this_kind(place, "a controller of the same subsystem"),
            ),
        }
    }
    for (at, host) in new.hosts.iter().enumerate() {
        match host.parse() {
            Ok(who @ (Attachee::Host(_) | Attachee::Everyone)) => attach_to.push(who),
            _ => input.mistake(
                &format!("Oem/Ebof/AttachedHosts/{at}"),
                Message::property_value("AttachedHosts", &host.as_str().into(), "NQNs, or * for every host"),
            ),
        }
    }
    if new.backing.is_some() {
        let message = Message::property_error(
            "Backing",
            "the namespaces of a drive are on the drive",
            "Leave it out, or create the volume in a subsystem of plain namespaces",
        );
        input.mistake("Oem/Ebof/Backing", message);
    }
    input.finish(None)?;
    Ok(Demand::change(Change::CreateNamespace(CreateNamespace {
        drive: drive.name.clone(),
        size_bytes: new.bytes.unwrap_or_default(),
        capacity_bytes: new.allocatable,
        block_size_bytes: new.block.unwrap_or(BLOCK_BYTES_DEFAULT),
        metadata_bytes: new.metadata.unwrap_or_default(),
        protection: new.protection,
        shared: new.shared.unwrap_or_default(),
        nsid: new.nsid,
        attach_to,
    })))
}

/// A new namespace of a plain subsystem: the configuration has it.
fn create_plain(storage: Storage<'_>, new: NewVolume, mut input: Input, view: &View<'_>) -> Result<Demand, Problem> {
    let backing = input.required("Oem/Ebof/Backing", new.backing);
    let backing = backing.and_then(|text| match text.parse::<ebof_manage::Drive>() {
        Ok(backing) => Some(backing),
        Err(error) => {
            let message = Message::property_error("Backing", &error.to_string(), BACKINGS);
            input.mistake("Oem/Ebof/Backing", message);
            None
        }
    });
    if let (Some(_), Some(backing)) = (new.bytes, &backing)
        && !matches!(backing, ebof_manage::Drive::File(_))
    {
        let message = Message::property_error("CapacityBytes", "Backing says the size", "Leave it out, or name a file");
        input.mistake("CapacityBytes", message);
    }
    if let Some(bytes) = new.block.filter(|bytes| ![512, 4096].contains(bytes)) {
        input.mistake("BlockSizeBytes", Message::property_value("BlockSizeBytes", &bytes.into(), "512, 4096"));
    }
    for (pointer, is_sent) in [
        ("NVMeNamespaceProperties/IsShareable", new.shared.is_some()),
        ("NVMeNamespaceProperties/LBAFormat/LBAMetadataSizeBytes", new.metadata.is_some_and(|bytes| bytes > 0)),
        ("Links/Controllers", !new.controllers.is_empty()),
        ("Oem/Ebof/AllocatableBytes", new.allocatable.is_some()),
        ("Oem/Ebof/ProtectionType", new.protection != ProtectionObject::default()),
        ("Oem/Ebof/AttachedHosts", !new.hosts.is_empty()),
    ] {
        if is_sent {
            let name = pointer.rsplit('/').next().unwrap_or(pointer);
            let why = "it is for namespaces of drives";
            input.mistake(pointer, Message::property_error(name, why, "Leave it out"));
        }
    }
    input.finish(None)?;
    let nqn = storage.nqn();
    let mut config = view.config().clone();
    let Some(subsystem) = config.subsystems.iter_mut().find(|subsystem| subsystem.nqn.as_str() == nqn) else {
        return Err(Problem::bad_request(Message::no_operation()));
    };
    let free = (1..=u32::MAX).find(|nsid| subsystem.namespaces.iter().all(|one| one.nsid != *nsid)).unwrap_or(1);
    let nsid = new.nsid.unwrap_or(free);
    // Without a backing there is a mistake: `finish` has failed then.
    let Some(mut backing) = backing else { return Err(Problem::bad_request(Message::no_operation())) };
    if let (ebof_manage::Drive::File(file), Some(bytes)) = (&mut backing, new.bytes) {
        file.size_bytes = Some(bytes);
    }
    let mut namespace = ebof_manage::config::Namespace::new(nsid, backing);
    namespace.block_size = new.block.map(|bytes| {
        if bytes == 512 { ebof_manage::config::BlockSize::B512 } else { ebof_manage::config::BlockSize::B4096 }
    });
    subsystem.namespaces.push(namespace);
    subsystem.namespaces.sort_by_key(|namespace| namespace.nsid);
    Ok(Demand::configuration(config, Some(Creates::Volume { nqn: nqn.to_owned(), nsid })))
}

const BACKINGS: &str = "Accepted: PATH, PATH:SIZE, mem:SIZE or null:SIZE";

/// A volume goes, with its data where it is a drive's.
pub(super) fn delete(namespace: Namespace<'_>, input: Input, view: &View<'_>) -> Result<Demand, Problem> {
    input.finish(None)?;
    match namespace {
        Namespace::OfDrive(_, own) => Ok(Demand::change(Change::DeleteNamespace { namespace: own.name.clone() })),
        Namespace::Plain(subsystem, own) => {
            let mut config = view.config().clone();
            let found = config.subsystems.iter_mut().find(|one| one.nqn.as_str() == subsystem.nqn);
            if let Some(found) = found {
                found.namespaces.retain(|one| one.nsid != own.nsid);
            }
            Ok(Demand::configuration(config, None))
        }
    }
}

/// Write protection.
pub(super) fn alter_volume(
    namespace: Namespace<'_>,
    mut input: Input,
    current: &Value,
    view: &View<'_>,
) -> Result<Demand, Problem> {
    let protect = input.ebof(|own| own.flag("WriteProtected")).flatten();
    input.finish(Some(current))?;
    let Some(on) = protect else { return Err(Problem::bad_request(Message::no_operation())) };
    match namespace {
        Namespace::OfDrive(_, own) => Ok(Demand::change(Change::WriteProtect { namespace: own.name.clone(), on })),
        Namespace::Plain(subsystem, own) => {
            let mut config = view.config().clone();
            let namespaces = config
                .subsystems
                .iter_mut()
                .filter(|one| one.nqn.as_str() == subsystem.nqn)
                .flat_map(|subsystem| &mut subsystem.namespaces);
            namespaces.filter(|one| one.nsid == own.nsid).for_each(|one| one.write_protect = on);
            Ok(Demand::configuration(config, None))
        }
    }
}

/// `Volume.Initialize`: a format with the blocks that it has.
pub(super) fn initialize(namespace: Namespace<'_>, mut input: Input) -> Result<Demand, Problem> {
    let erase = input.one_of("InitializeType", &[("Fast", Erase::None), ("Slow", Erase::UserData)]);
    input.finish(None)?;
    let Namespace::OfDrive(_, own) = namespace else { return Err(only_of_drives("Volume.Initialize")) };
    Ok(formatted(&own.name, None, None, None, erase))
}

/// `EbofVolume.Format`.
pub(super) fn format(namespace: Namespace<'_>, mut input: Input) -> Result<Demand, Problem> {
    let block = input.number("BlockSizeBytes", BLOCK_BYTES);
    let metadata = input.number("MetadataBytes", METADATA_BYTES);
    let protection = protection(&mut input);
    let erases = [("None", Erase::None), ("UserData", Erase::UserData), ("Cryptographic", Erase::Cryptographic)];
    let erase = input.one_of("Erase", &erases);
    input.finish(None)?;
    let Namespace::OfDrive(_, own) = namespace else { return Err(only_of_drives("EbofVolume.Format")) };
    Ok(formatted(&own.name, block, metadata, protection, erase))
}

fn formatted(
    namespace: &NamespaceName,
    block_size_bytes: Option<u32>,
    metadata_bytes: Option<u16>,
    protection: Option<ProtectionObject>,
    erase: Option<Erase>,
) -> Demand {
    Demand::change(Change::FormatNamespace(FormatNamespace {
        namespace: namespace.clone(),
        block_size_bytes,
        metadata_bytes,
        protection,
        erase: erase.unwrap_or_default(),
    }))
}

/// `EbofVolume.Map`: one function gets it, all others and hosts lose it.
pub(super) fn map(id: &str, namespace: Namespace<'_>, mut input: Input) -> Result<Demand, Problem> {
    const ACTION: &str = "EbofVolume.Map";
    let Namespace::OfDrive(drive, own) = namespace else { return Err(only_of_drives(ACTION)) };
    let nobody = input.null("Controller");
    let place = if nobody { None } else { input.link("Controller") };
    if !nobody {
        input.parameter(ACTION, "Controller", place.as_ref());
    }
    let function = match place.as_ref().map(|place| (place, attachee(id, &drive.name, place))) {
        Some((_, Some(Attachee::Function(function)))) => Some(function),
        Some((place, _)) => {
            input.mistake("Controller", Message::not_this_kind(place, "a virtual function of the same drive"));
            None
        }
        None => None,
    };
    input.finish(None)?;
    Ok(Demand::change(Change::Map { namespace: own.name.clone(), function }))
}
