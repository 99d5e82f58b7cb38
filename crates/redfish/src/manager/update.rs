//! Firmware: `/redfish/v1/UpdateService`, with the program itself and the slots of each drive.
//!
//! An image is sent (`MultipartHttpPushUri`), stored in a slot and activated by a task. Images are
//! not fetched from a URI: the target opens no connections that a request chooses.

mod multipart;

use ebof_manage::enclosure::{
    Activation, Change as BoxChange, DriveDetails, FirmwareSlotObject, IMAGE_BYTES_MAX, Transaction,
};
use http::Method;
use serde::Serialize;
use serde_json::Value;

use crate::area::carry_out::carry_out;
use crate::area::demand::{Demand, Preview};
use crate::area::{Area, ChangeRequest, Done};
use crate::managed::view::View;
use crate::place::{ChassisPlace, ManagerPlace, Place, UpdatePlace};
use crate::request::input::Input;
use crate::response::head::{Collection, Head, Link, ResourceAction, Status, json, link, links};
use crate::response::message::{Message, Problem};

/// The identifier of the program itself.
const EBOF: &str = "ebof";

impl Area for UpdatePlace {
    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        match self {
            Self::Service => Ok(json(&UpdateService::new())),
            Self::Inventory => {
                let slots = all_details(view).iter().flat_map(slots).collect::<Vec<_>>();
                let members = std::iter::once(Self::Image(EBOF.to_owned())).chain(slots);
                Ok(json(&Collection::new(Self::Inventory, "SoftwareInventory", "Firmware", members)))
            }
            Self::Image(id) if id == EBOF => Ok(json(&SoftwareInventory::of_program(view))),
            Self::Image(id) => {
                let found = slot_named(id, view).ok_or_else(|| self.missing())?;
                Ok(json(&SoftwareInventory::of_slot(id, &found.0, &found.1)))
            }
            Self::Upload | Self::Activate => Err(self.missing()),
        }
    }

    fn upload(&self, kind: &str, body: &[u8], request: &ChangeRequest<'_>) -> Option<Result<Done, Problem>> {
        (*self == Self::Upload).then(|| upload(kind, body, request))
    }

    fn preview(&self, _method: &Method, input: Input, view: &View<'_>) -> Result<Preview, Problem> {
        match self {
            Self::Activate => activation(input, view).map(Preview::Demand),
            // An image is no JSON.
            _ => Ok(Preview::Nothing),
        }
    }

    fn change(&self, _method: &Method, input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        carry_out(activation(input, request.view)?, request)
    }
}

/// `UpdateService.Activate`
fn activation(mut input: Input, view: &View<'_>) -> Result<Demand, Problem> {
    let targets = input.links("Targets");
    let targets = input.parameter("UpdateService.Activate", "Targets", targets).unwrap_or_default();
    let mut changes = Vec::new();
    for target in &targets {
        match target {
            Place::Update(UpdatePlace::Image(id)) if let Some((details, slot)) = slot_named(id, view) => {
                let (drive, slot) = (details.name, slot.slot);
                changes.push(BoxChange::ActivateFirmware { drive, slot, when: Activation::Now });
            }
            other => input.mistake("Targets", no_target(&other.to_string())),
        }
    }
    input.finish(None)?;
    Demand::changes(changes)
}

fn begin(changes: Vec<BoxChange>, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
    let transaction = Transaction { changes, ..Transaction::default() };
    let task = request.parts.enclosure.begin_for(transaction, &request.asker())?;
    Ok(Done::Task(task.id))
}

fn no_target(target: &str) -> Message {
    let accepted = "a drive's slot of the FirmwareInventory; a drive of the chassis, too, where an image is sent";
    Message::property_value("Targets", &target.into(), accepted)
}

fn all_details(view: &View<'_>) -> Vec<DriveDetails> {
    let drives = &view.inventory().drives;
    drives.iter().filter_map(|drive| view.parts.enclosure.drive_details(&drive.name)).collect()
}

fn slots(details: &DriveDetails) -> Vec<UpdatePlace> {
    let id = |slot: &FirmwareSlotObject| UpdatePlace::Image(format!("{}-slot{}", details.name, slot.slot));
    details.firmware.slots.iter().map(id).collect()
}

/// The slot of an identifier, with its drive.
fn slot_named(id: &str, view: &View<'_>) -> Option<(DriveDetails, FirmwareSlotObject)> {
    let (drive, number) = id.rsplit_once("-slot")?;
    let number: u8 = number.parse().ok().filter(|slot: &u8| slot.to_string() == number)?;
    let details = view.parts.enclosure.drive_details(drive)?;
    let slot = details.firmware.slots.iter().find(|slot| slot.slot == number)?.clone();
    Some((details, slot))
}

/// Stores an image in slots, and has it run unless it is only to be staged.
fn upload(kind: &str, body: &[u8], request: &ChangeRequest<'_>) -> Result<Done, Problem> {
    let parts = multipart::parse(kind, body)?;
    let mut input = Input::parse(parts.parameters)?;
    let targets = input.texts("Targets").unwrap_or_default();
    let is_staged = input.flag("Stage").unwrap_or(false);
    let times = [("Immediate", Activation::Now), ("OnReset", Activation::AtReset)];
    let when = input.one_of("@Redfish.OperationApplyTime", &times).unwrap_or(Activation::Now);
    let places: Vec<(String, Option<Place>)> =
        targets.into_iter().map(|target| (target.clone(), Place::parse(&target))).collect();
    let mut wanted: Vec<(String, Option<u8>)> = Vec::new();
    for (text, place) in places {
        match place {
            Some(Place::Chassis(ChassisPlace::Drive(drive))) if request.view.drive(&drive).is_some() => {
                wanted.push((drive, None));
            }
            Some(Place::Update(UpdatePlace::Image(id))) if let Some((of, slot)) = slot_named(&id, request.view) => {
                wanted.push((of.name, Some(slot.slot)));
            }
            _ => input.mistake("Targets", no_target(&text)),
        }
    }
    input.finish(None)?;
    if wanted.is_empty() {
        wanted = all_details(request.view).into_iter().map(|details| (details.name, None)).collect();
    }
    let image = request.parts.enclosure.store_image(parts.image)?;
    let (mut changes, mut activations) = (Vec::new(), Vec::new());
    for (drive, slot) in wanted {
        let slot = slot.or_else(|| free_slot(&drive, request.view));
        changes.push(BoxChange::StageFirmware { drive: drive.clone(), slot, image: image.id.clone() });
        if let Some(slot) = slot.filter(|_| !is_staged) {
            activations.push(BoxChange::ActivateFirmware { drive, slot, when });
        }
    }
    // All drives get the image first, then it is activated on all.
    changes.append(&mut activations);
    begin(changes, request)
}

/// The slot that an image goes to if nobody says so: one that is empty, else one that does not run.
fn free_slot(drive: &str, view: &View<'_>) -> Option<u8> {
    let firmware = view.parts.enclosure.drive_details(drive)?.firmware;
    let mut usable = firmware.slots.iter().filter(|slot| !slot.is_read_only && slot.slot != firmware.active_slot);
    let empty = usable.clone().find(|slot| slot.revision.is_none());
    empty.or_else(|| usable.next()).map(|slot| slot.slot)
}

/// `UpdateService`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct UpdateService {
    #[serde(flatten)]
    head: Head,
    service_enabled: bool,
    status: Status,
    max_image_size_bytes: usize,
    multipart_http_push_uri: Place,
    firmware_inventory: Link,
    actions: Actions,
}

#[derive(Serialize)]
struct Actions {
    #[serde(rename = "#UpdateService.Activate")]
    activate: ResourceAction,
}

impl UpdateService {
    fn new() -> Self {
        let description = "What runs on the drives, and how that is replaced";
        Self {
            head: Head::new(
                UpdatePlace::Service,
                "#UpdateService.v1_17_0.UpdateService",
                "Update Service",
                description,
            ),
            service_enabled: true,
            status: Status::OK,
            max_image_size_bytes: IMAGE_BYTES_MAX,
            multipart_http_push_uri: UpdatePlace::Upload.into(),
            firmware_inventory: link(UpdatePlace::Inventory),
            actions: Actions { activate: ResourceAction::new(UpdatePlace::Activate) },
        }
    }
}

/// `SoftwareInventory`.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct SoftwareInventory {
    #[serde(flatten)]
    head: Head,
    manufacturer: &'static str,
    version: Option<String>,
    updateable: bool,
    write_protected: bool,
    active: bool,
    staged: bool,
    status: Status,
    related_item: Vec<Link>,
}

const KIND: &str = "#SoftwareInventory.v1_13_0.SoftwareInventory";

impl SoftwareInventory {
    fn of_program(view: &View<'_>) -> Self {
        let place = UpdatePlace::Image(EBOF.to_owned());
        Self {
            head: Head::new(place, KIND, "ebof", "The program; its package is replaced by the system"),
            manufacturer: "ebof",
            version: Some(view.status().version.clone()),
            updateable: false,
            write_protected: true,
            active: true,
            staged: false,
            status: Status::OK,
            related_item: links([ManagerPlace::Manager]),
        }
    }

    fn of_slot(id: &str, details: &DriveDetails, slot: &FirmwareSlotObject) -> Self {
        let name = format!("Firmware slot {} of {}", slot.slot, details.name);
        Self {
            head: Head::new(UpdatePlace::Image(id.to_owned()), KIND, name, "An image that a drive can run"),
            manufacturer: "ebof",
            version: slot.revision.clone(),
            updateable: !slot.is_read_only,
            write_protected: slot.is_read_only,
            active: slot.slot == details.firmware.active_slot,
            staged: Some(slot.slot) == details.firmware.next_slot,
            status: Status::OK,
            related_item: links([ChassisPlace::Drive(details.name.clone())]),
        }
    }
}

#[cfg(test)]
mod tests;
