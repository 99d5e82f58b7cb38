//! What hosts connect to, wherever it is: the subsystem of a drive, a function, a plain subsystem.

use ebof_manage::enclosure::{DriveObject, HostObject};

use crate::storage::{AnyController, StoragePlace};
use crate::view::{Storage, View};

/// A target of hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'v> {
    /// The identifier of its storage.
    pub(crate) storage: &'v str,
    /// Its controller.
    pub(crate) controller: AnyController<'v>,
}

impl<'v> Site<'v> {
    pub(crate) const fn of(storage: &'v str, controller: AnyController<'v>) -> Self {
        Self { storage, controller }
    }

    /// Those of a drive: the primary one first.
    pub(crate) fn of_drive(storage: &'v str, drive: &'v DriveObject) -> impl Iterator<Item = Self> {
        AnyController::all(Storage::Drive(drive)).into_iter().map(move |controller| Self { storage, controller })
    }

    /// All, in the order of storage.
    pub(crate) fn all(view: &'v View<'_>) -> impl Iterator<Item = Self> {
        view.storages().flat_map(|(storage, found)| {
            AnyController::all(found).into_iter().map(move |controller| Self { storage, controller })
        })
    }

    /// The one with an endpoint of this identifier.
    pub(crate) fn find(view: &'v View<'_>, endpoint: &str) -> Option<Self> {
        let (storage, controller) = endpoint.rsplit_once('-')?;
        let index = view.names().storages.index(storage)?;
        let controller = AnyController::find(view.storage(storage)?, controller)?;
        Some(Self { storage: view.names().storages.at(index), controller })
    }

    /// The identifier of its endpoints.
    pub(crate) fn endpoint_id(&self) -> String {
        format!("{}-{}", self.storage, self.controller.id())
    }

    /// The NQN that hosts connect to.
    pub(crate) fn nqn(&self) -> &'v str {
        match self.controller {
            AnyController::Primary(drive) => &drive.nqn,
            AnyController::Function(_, function) => &function.nqn,
            AnyController::Plain(subsystem) => &subsystem.nqn,
        }
    }

    /// The names of the ports that it is at.
    pub(crate) fn ports(&self) -> Vec<&'v str> {
        match self.controller {
            AnyController::Primary(drive) => drive.ports.iter().map(String::as_str).collect(),
            AnyController::Function(_, function) => function.port.iter().map(String::as_str).collect(),
            AnyController::Plain(subsystem) => subsystem.ports.iter().map(String::as_str).collect(),
        }
    }

    /// Whether it is at a port.
    pub(crate) fn is_at(&self, port: &str) -> bool {
        match self.controller {
            AnyController::Primary(drive) => drive.ports.iter().any(|own| own == port),
            AnyController::Function(_, function) => function.port.as_deref() == Some(port),
            AnyController::Plain(subsystem) => subsystem.ports.iter().any(|own| own == port),
        }
    }

    /// The controllers that hosts have of it.
    pub(crate) fn hosts(&self) -> &'v [HostObject] {
        match self.controller {
            AnyController::Primary(drive) => &drive.hosts,
            AnyController::Function(_, function) => &function.hosts,
            AnyController::Plain(subsystem) => &subsystem.hosts,
        }
    }

    /// The address of its controller.
    pub(crate) fn place(&self) -> StoragePlace {
        StoragePlace::Controller(self.storage.to_owned(), self.controller.id())
    }
}
