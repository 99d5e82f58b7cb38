//! NVM subsystems: `/redfish/v1/Storage`, one for each drive and one for each subsystem of plain
//! namespaces, with their controllers and volumes (namespaces).

mod change;
mod controller;
mod subsystem;
mod volume;

use ebof_manage::enclosure::{DriveObject, FunctionObject, SubsystemObject};
use http::Method;
use serde_json::Value;

use crate::area::{ACTION, Area, Change, Done, GET_POST, PATCH, PATCH_DELETE, READ};
use crate::chassis::{function_id, function_of};
use crate::head::{Collection, json};
use crate::input::Input;
use crate::message::Problem;
use crate::names::{PLAIN, PRIMARY};
use crate::place::Place;
use crate::view::{Namespace, Storage, View};
use crate::wanted::{Demand, carry_out};

/// Addresses below `/redfish/v1/Storage`. The first name is the subsystem's identifier.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum StoragePlace {
    /// All subsystems.
    Collection,
    /// A subsystem.
    Subsystem(String),
    /// The action that resets the primary controller of a drive.
    ResetDrive(String),
    /// Its controllers.
    Controllers(String),
    /// A controller.
    Controller(String, String),
    /// The action that attaches namespaces to a controller.
    Attach(String, String),
    /// The action that detaches them.
    Detach(String, String),
    /// Its volumes.
    Volumes(String),
    /// A volume.
    Volume(String, String),
    /// What a volume takes, and its traffic.
    VolumeMetrics(String, String),
    /// The action that formats a volume.
    Initialize(String, String),
    /// The action that formats a volume with other blocks.
    Format(String, String),
    /// The action that gives a volume to one function and takes it from all others.
    Map(String, String),
}

/// A controller of a subsystem.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AnyController<'v> {
    /// The primary controller of a drive: what hosts of its own subsystem get.
    Primary(&'v DriveObject),
    /// A function of a drive.
    Function(&'v DriveObject, &'v FunctionObject),
    /// What hosts of a plain subsystem get.
    Plain(&'v SubsystemObject),
}

impl Area for StoragePlace {
    fn parse(segments: &[&str]) -> Option<Self> {
        let [collection, below @ ..] = segments else { return None };
        if *collection != "Storage" {
            return None;
        }
        let [storage, below @ ..] = below else { return Some(Self::Collection) };
        let storage = (*storage).to_owned();
        let name = |name: &&str| (*name).to_owned();
        Some(match below {
            [] => Self::Subsystem(storage),
            ["Actions", "Oem", "EbofStorage.ResetDrive"] => Self::ResetDrive(storage),
            ["Controllers"] => Self::Controllers(storage),
            ["Controllers", id] => Self::Controller(storage, name(id)),
            ["Controllers", id, "Actions", "StorageController.AttachNamespaces"] => Self::Attach(storage, name(id)),
            ["Controllers", id, "Actions", "StorageController.DetachNamespaces"] => Self::Detach(storage, name(id)),
            ["Volumes"] => Self::Volumes(storage),
            ["Volumes", id] => Self::Volume(storage, name(id)),
            ["Volumes", id, "Metrics"] => Self::VolumeMetrics(storage, name(id)),
            ["Volumes", id, "Actions", "Volume.Initialize"] => Self::Initialize(storage, name(id)),
            ["Volumes", id, "Actions", "Oem", "EbofVolume.Format"] => Self::Format(storage, name(id)),
            ["Volumes", id, "Actions", "Oem", "EbofVolume.Map"] => Self::Map(storage, name(id)),
            _ => return None,
        })
    }

    fn patterns() -> &'static [(&'static str, &'static str)] {
        &[
            ("StorageCollection", "Storage"),
            ("Storage", "Storage/{StorageId}"),
            ("", "Storage/{StorageId}/Actions/Oem/EbofStorage.ResetDrive"),
            ("StorageControllerCollection", "Storage/{StorageId}/Controllers"),
            ("StorageController", "Storage/{StorageId}/Controllers/{StorageControllerId}"),
            ("", "Storage/{StorageId}/Controllers/{StorageControllerId}/Actions/StorageController.AttachNamespaces"),
            ("", "Storage/{StorageId}/Controllers/{StorageControllerId}/Actions/StorageController.DetachNamespaces"),
            ("VolumeCollection", "Storage/{StorageId}/Volumes"),
            ("Volume", "Storage/{StorageId}/Volumes/{VolumeId}"),
            ("VolumeMetrics", "Storage/{StorageId}/Volumes/{VolumeId}/Metrics"),
            ("", "Storage/{StorageId}/Volumes/{VolumeId}/Actions/Volume.Initialize"),
            ("", "Storage/{StorageId}/Volumes/{VolumeId}/Actions/Oem/EbofVolume.Format"),
            ("", "Storage/{StorageId}/Volumes/{VolumeId}/Actions/Oem/EbofVolume.Map"),
        ]
    }

    fn segments(&self) -> Vec<&str> {
        let (storage, below): (&str, &[&str]) = match self {
            Self::Collection => return vec!["Storage"],
            Self::Subsystem(storage) => (storage, &[]),
            Self::ResetDrive(storage) => (storage, &["Actions", "Oem", "EbofStorage.ResetDrive"]),
            Self::Controllers(storage) => (storage, &["Controllers"]),
            Self::Controller(storage, id) => (storage, &["Controllers", id]),
            Self::Attach(storage, id) => {
                (storage, &["Controllers", id, "Actions", "StorageController.AttachNamespaces"])
            }
            Self::Detach(storage, id) => {
                (storage, &["Controllers", id, "Actions", "StorageController.DetachNamespaces"])
            }
            Self::Volumes(storage) => (storage, &["Volumes"]),
            Self::Volume(storage, id) => (storage, &["Volumes", id]),
            Self::VolumeMetrics(storage, id) => (storage, &["Volumes", id, "Metrics"]),
            Self::Initialize(storage, id) => (storage, &["Volumes", id, "Actions", "Volume.Initialize"]),
            Self::Format(storage, id) => (storage, &["Volumes", id, "Actions", "Oem", "EbofVolume.Format"]),
            Self::Map(storage, id) => (storage, &["Volumes", id, "Actions", "Oem", "EbofVolume.Map"]),
        };
        [&["Storage", storage], below].concat()
    }

    fn methods(&self) -> &'static [Method] {
        match self {
            Self::Controller(_, id) if id != PRIMARY && id != PLAIN => PATCH,
            Self::Volumes(_) => GET_POST,
            Self::Volume(..) => PATCH_DELETE,
            _ if self.is_action() => ACTION,
            _ => READ,
        }
    }

    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Collection => {
                let all = view.storages().map(|(id, _)| Self::Subsystem(id.to_owned()));
                json(&Collection::new(Self::Collection, "Storage", "Storage", all))
            }
            Self::Subsystem(id) => json(&subsystem::Subsystem::new(view, id, self.storage(view, id)?)),
            Self::Controllers(id) => {
                let all = AnyController::all(self.storage(view, id)?);
                let all = all.into_iter().map(|controller| Self::Controller(id.clone(), controller.id()));
                json(&Collection::new(self.clone(), "StorageController", "Controllers", all))
            }
            Self::Controller(id, controller) => {
                let storage = self.storage(view, id)?;
                let controller = AnyController::find(storage, controller).ok_or_else(|| self.missing())?;
                json(&controller::StorageController::new(view, id, controller))
            }
            Self::Volumes(id) => {
                let all = self.storage(view, id)?.namespaces(view);
                let all = all.into_iter().map(|namespace| Self::Volume(id.clone(), namespace.id()));
                json(&Collection::new(self.clone(), "Volume", "Namespaces", all))
            }
            Self::Volume(id, volume) => json(&volume::Volume::new(view, id, self.namespace(view, id, volume)?)),
            Self::VolumeMetrics(id, volume) => {
                json(&volume::VolumeMetrics::new(view, id, self.namespace(view, id, volume)?))
            }
            _ => return Err(self.missing()),
        })
    }

    fn translate(&self, method: &Method, input: Input, view: &View<'_>) -> Result<Demand, Problem> {
        match self {
            Self::ResetDrive(id) => change::reset_drive(self.storage(view, id)?, input),
            Self::Controller(id, controller) => {
                let storage = self.storage(view, id)?;
                let controller = AnyController::find(storage, controller).ok_or_else(|| self.missing())?;
                change::alter_controller(controller, input, &self.read(view)?)
            }
            Self::Attach(id, controller) | Self::Detach(id, controller) => {
                let storage = self.storage(view, id)?;
                let controller = AnyController::find(storage, controller).ok_or_else(|| self.missing())?;
                change::attachments(id, controller, matches!(self, Self::Attach(..)), input)
            }
            Self::Volumes(id) => change::create(id, self.storage(view, id)?, input, view),
            Self::Volume(id, volume) => {
                let namespace = self.namespace(view, id, volume)?;
                if *method == Method::DELETE {
                    return change::delete(namespace, input, view);
                }
                change::alter_volume(namespace, input, &self.read(view)?, view)
            }
            Self::Initialize(id, volume) => change::initialize(self.namespace(view, id, volume)?, input),
            Self::Format(id, volume) => change::format(self.namespace(view, id, volume)?, input),
            Self::Map(id, volume) => change::map(id, self.namespace(view, id, volume)?, input),
            _ => Err(self.missing()),
        }
    }

    fn change(&self, method: &Method, input: Input, request: &Change<'_>) -> Result<Done, Problem> {
        carry_out(self.translate(method, input, request.view)?, request)
    }
}

impl StoragePlace {
    const fn is_action(&self) -> bool {
        matches!(
            self,
            Self::ResetDrive(_)
                | Self::Attach(..)
                | Self::Detach(..)
                | Self::Initialize(..)
                | Self::Format(..)
                | Self::Map(..)
        )
    }

    fn missing(&self) -> Problem {
        Problem::not_found(&Place::from(self.clone()))
    }

    fn storage<'v>(&self, view: &'v View<'_>, id: &str) -> Result<Storage<'v>, Problem> {
        view.storage(id).ok_or_else(|| self.missing())
    }

    fn namespace<'v>(&self, view: &'v View<'_>, id: &str, volume: &str) -> Result<Namespace<'v>, Problem> {
        let all = self.storage(view, id)?.namespaces(view);
        all.into_iter().find(|namespace| namespace.id() == volume).ok_or_else(|| self.missing())
    }
}

impl<'v> AnyController<'v> {
    /// All of a subsystem: the primary one first.
    pub(crate) fn all(storage: Storage<'v>) -> Vec<Self> {
        match storage {
            Storage::Drive(drive) => {
                let functions = drive.functions.iter().map(|function| Self::Function(drive, function));
                [Self::Primary(drive)].into_iter().chain(functions).collect()
            }
            Storage::Plain(subsystem) => vec![Self::Plain(subsystem)],
        }
    }

    /// The one of an identifier.
    pub(crate) fn find(storage: Storage<'v>, id: &str) -> Option<Self> {
        match storage {
            Storage::Drive(drive) => Some(match function_of(drive, id)? {
                None => Self::Primary(drive),
                Some(function) => Self::Function(drive, function),
            }),
            Storage::Plain(subsystem) => (id == PLAIN).then_some(Self::Plain(subsystem)),
        }
    }

    /// Its identifier.
    pub(crate) fn id(self) -> String {
        match self {
            Self::Primary(_) => PRIMARY.to_owned(),
            Self::Function(_, function) => function_id(function),
            Self::Plain(_) => PLAIN.to_owned(),
        }
    }

    /// What ebof calls it.
    pub(crate) fn object(self) -> String {
        match self {
            Self::Primary(drive) => drive.name.clone(),
            Self::Function(_, function) => function.name.to_string(),
            Self::Plain(subsystem) => subsystem.nqn.clone(),
        }
    }
}
