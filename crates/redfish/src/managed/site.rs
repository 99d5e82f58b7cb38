//! What hosts connect to, wherever it is: the subsystem of a drive, a function, a plain subsystem.

use ebof_manage::enclosure::{DriveObject, FunctionObject, HostObject, SubsystemObject};

use crate::managed::view::{Storage, View};
use crate::place::{PLAIN, PRIMARY, StoragePlace};

/// A target of hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'v> {
    /// The identifier of its storage.
    pub(crate) storage: &'v str,
    /// Its controller.
    pub(crate) controller: AnyController<'v>,
}

impl<'v> Site<'v> {
    pub(crate) const fn new(storage: &'v str, controller: AnyController<'v>) -> Self {
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
            AnyController::Function(_, function) => function.known_as(),
            AnyController::Plain(subsystem) => &subsystem.nqn,
        }
    }

    /// The names of the ports that it is at.
    pub(crate) fn ports(&self) -> Vec<&'v str> {
        match self.controller {
            AnyController::Primary(drive) => drive.ports.iter().map(String::as_str).collect(),
            AnyController::Function(_, function) => function.ports.iter().map(String::as_str).collect(),
            AnyController::Plain(subsystem) => subsystem.ports.iter().map(String::as_str).collect(),
        }
    }

    /// Whether it is at a port.
    pub(crate) fn is_at(&self, port: &str) -> bool {
        match self.controller {
            AnyController::Primary(drive) => drive.ports.iter().any(|own| own == port),
            AnyController::Function(_, function) => function.ports.contains(port),
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

/// A function of a drive by its identifier: `pf` is the primary controller, as `Some(None)`.
#[expect(clippy::option_option, reason = "no such function, the primary one, or another")]
pub(crate) fn function_of<'d>(drive: &'d DriveObject, id: &str) -> Option<Option<&'d FunctionObject>> {
    if id == PRIMARY {
        return Some(None);
    }
    drive.functions.iter().find(|function| function_id(function) == id).map(Some)
}

/// The identifier of a function: `vf2`.
pub(crate) fn function_id(function: &FunctionObject) -> String {
    format!("vf{}", function.name.number)
}

/// The identifier of a function, or of the primary one.
pub(crate) fn id_of(function: Option<&FunctionObject>) -> String {
    function.map_or_else(|| PRIMARY.to_owned(), function_id)
}

/// The NSID in the identifier of a volume, which is written in one way only.
pub(crate) fn nsid(volume: &str) -> Option<u32> {
    let digits = volume.strip_prefix("ns")?;
    digits.parse().ok().filter(|nsid: &u32| nsid.to_string() == digits)
}
