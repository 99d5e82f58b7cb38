//! NVM subsystems: `/redfish/v1/Storage`, one for each drive and one for each subsystem of plain
//! namespaces, with their controllers and volumes (namespaces).

mod change;
mod controller;
mod subsystem;
mod volume;

use http::Method;
use serde_json::Value;

use crate::area::carry_out::carry_out;
use crate::area::demand::{Demand, Preview};
use crate::area::{Area, ChangeRequest, Done};
use crate::managed::missing;
use crate::managed::site::AnyController;
use crate::managed::view::{Namespace, Storage, View};
use crate::place::StoragePlace;
use crate::request::input::Input;
use crate::response::head::{Collection, json};
use crate::response::message::Problem;

impl Area for StoragePlace {
    fn read(&self, view: &View<'_>) -> Result<Value, Problem> {
        Ok(match self {
            Self::Collection => {
                let missing = missing::drives(view).map(|(id, _)| Self::Subsystem(id));
                let all = view.storages().map(|(id, _)| Self::Subsystem(id.to_owned())).chain(missing);
                json(&Collection::new(Self::Collection, "Storage", "Storage", all))
            }
            Self::Subsystem(id) if let Some(away) = missing::drive(id, view) => {
                json(&missing::MissingSubsystem::new(id, away, view))
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

    fn preview(&self, method: &Method, input: Input, view: &View<'_>) -> Result<Preview, Problem> {
        self.translate(method, input, view).map(Preview::Demand)
    }

    fn change(&self, method: &Method, input: Input, request: &ChangeRequest<'_>) -> Result<Done, Problem> {
        carry_out(self.translate(method, input, request.view)?, request)
    }
}

impl StoragePlace {
    /// What a request asks for.
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

    fn storage<'v>(&self, view: &'v View<'_>, id: &str) -> Result<Storage<'v>, Problem> {
        view.storage(id).ok_or_else(|| self.missing())
    }

    fn namespace<'v>(&self, view: &'v View<'_>, id: &str, volume: &str) -> Result<Namespace<'v>, Problem> {
        let all = self.storage(view, id)?.namespaces(view);
        all.into_iter().find(|namespace| namespace.id() == volume).ok_or_else(|| self.missing())
    }
}
