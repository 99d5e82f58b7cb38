//! What a request sees: the state of the target, taken once, so that its answer is consistent.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use ebof_manage::Config;
use ebof_manage::api::{Keys, NamespaceStatus, Status, SubsystemStatus};
use ebof_manage::config::Subsystem;
use ebof_manage::enclosure::{
    ControllerDetails, DriveDetails, DriveObject, FunctionObject, Inventory, NamespaceDetails, NamespaceObject,
    PortObject, SubsystemObject,
};

use crate::managed::names::Names;
use crate::managed::parts::{NetworkInterface, Parts};
use crate::response::head::{self, State};
use crate::response::time::date_time;

/// The state of a target at one moment, as far as somebody asks for it.
pub struct View<'p> {
    pub(crate) parts: &'p Parts,
    inventory: OnceCell<Inventory>,
    status: OnceCell<Status>,
    config: OnceCell<Config>,
    keys: OnceCell<Keys>,
    names: OnceCell<Names>,
    interfaces: OnceCell<Vec<NetworkInterface>>,
    details: RefCell<BTreeMap<String, Option<Rc<DriveDetails>>>>,
}

/// What hosts connect to: a drive's NVM subsystem, or one of plain namespaces.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Storage<'v> {
    /// That of a drive, with its functions.
    Drive(&'v DriveObject),
    /// One of plain namespaces.
    Plain(&'v SubsystemObject),
}

/// A namespace of a [`Storage`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Namespace<'v> {
    /// Of a drive.
    OfDrive(&'v DriveObject, &'v NamespaceObject),
    /// Of a plain subsystem.
    Plain(&'v SubsystemObject, &'v NamespaceStatus),
}

impl<'p> View<'p> {
    /// Of the moment at which each part is asked for first.
    #[must_use]
    pub fn new(parts: &'p Parts) -> Self {
        Self {
            parts,
            inventory: OnceCell::new(),
            status: OnceCell::new(),
            config: OnceCell::new(),
            keys: OnceCell::new(),
            names: OnceCell::new(),
            interfaces: OnceCell::new(),
            details: RefCell::new(BTreeMap::new()),
        }
    }

    /// The present moment, as Redfish writes it.
    #[expect(clippy::unused_self, reason = "a view is of one moment")]
    pub(crate) fn now(&self) -> String {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        date_time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    /// When the target was started, as Redfish writes it.
    pub(crate) fn started(&self) -> String {
        date_time(self.parts.events.since(0, 0).started_unix_ms)
    }

    /// The network interfaces of the machine.
    pub(crate) fn interfaces(&self) -> &[NetworkInterface] {
        self.interfaces.get_or_init(|| self.parts.program.interfaces())
    }

    /// What there is, and who has it.
    pub(crate) fn inventory(&self) -> &Inventory {
        self.inventory.get_or_init(|| self.parts.enclosure.inventory())
    }

    /// The target's status.
    pub(crate) fn status(&self) -> &Status {
        self.status.get_or_init(|| self.parts.target.status())
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> &Config {
        self.config.get_or_init(|| self.parts.target.config())
    }

    /// The keys of hosts.
    pub(crate) fn keys(&self) -> &Keys {
        self.keys.get_or_init(|| self.parts.keys.keys())
    }

    /// The identifiers of everything.
    pub(crate) fn names(&self) -> &Names {
        self.names.get_or_init(|| Names::new(self.inventory(), self.config()))
    }

    /// The drives, each with its identifier.
    pub(crate) fn drives(&self) -> impl Iterator<Item = (&str, &DriveObject)> {
        self.names().storages.iter().zip(&self.inventory().drives)
    }

    /// The drive of an identifier.
    pub(crate) fn drive(&self, id: &str) -> Option<&DriveObject> {
        self.inventory().drives.get(self.names().storages.index(id)?)
    }

    /// The identifier of the drive of this name, or of the subsystem of this NQN.
    pub(crate) fn storage_id(&self, name: &str) -> Option<&str> {
        self.names().storages.id_of(name)
    }

    /// Everything that hosts connect to, with identifiers.
    pub(crate) fn storages(&self) -> impl Iterator<Item = (&str, Storage<'_>)> {
        let inventory = self.inventory();
        let drives = inventory.drives.iter().map(Storage::Drive);
        self.names().storages.iter().zip(drives.chain(inventory.subsystems.iter().map(Storage::Plain)))
    }

    /// What hosts connect to, by its identifier.
    pub(crate) fn storage(&self, id: &str) -> Option<Storage<'_>> {
        let index = self.names().storages.index(id)?;
        let inventory = self.inventory();
        match inventory.drives.get(index) {
            Some(drive) => Some(Storage::Drive(drive)),
            None => inventory.subsystems.get(index - inventory.drives.len()).map(Storage::Plain),
        }
    }

    /// The status of a plain subsystem.
    pub(crate) fn subsystem_status(&self, nqn: &str) -> Option<&SubsystemStatus> {
        self.status().subsystems.iter().find(|subsystem| subsystem.nqn == nqn)
    }

    /// Whether a plain subsystem is there for hosts.
    pub(crate) fn plain_status(&self, nqn: &str) -> head::Status {
        match self.subsystem_status(nqn) {
            Some(SubsystemStatus { enabled: false, .. }) => head::Status::with_state(State::Disabled),
            _ => head::Status::OK,
        }
    }

    /// A subsystem as it is configured.
    pub(crate) fn subsystem_config(&self, nqn: &str) -> Option<&Subsystem> {
        self.config().subsystems.iter().find(|subsystem| subsystem.nqn.as_str() == nqn)
    }

    /// What a drive says of itself.
    pub(crate) fn details(&self, drive: &str) -> Option<Rc<DriveDetails>> {
        let mut known = self.details.borrow_mut();
        let details =
            known.entry(drive.to_owned()).or_insert_with(|| self.parts.enclosure.drive_details(drive).map(Rc::new));
        details.clone()
    }

    /// The ports, each with its identifier.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (&str, &PortObject)> {
        self.names().ports.iter().zip(&self.inventory().ports)
    }

    /// The port of an identifier.
    pub(crate) fn port(&self, id: &str) -> Option<&PortObject> {
        self.inventory().ports.get(self.names().ports.index(id)?)
    }

    /// The identifier of the port with this name.
    pub(crate) fn port_id(&self, name: &str) -> Option<&str> {
        self.names().ports.id_of(name)
    }
}

impl<'v> Storage<'v> {
    /// Its NQN.
    pub(crate) fn nqn(self) -> &'v str {
        match self {
            Self::Drive(drive) => &drive.nqn,
            Self::Plain(subsystem) => &subsystem.nqn,
        }
    }

    /// What ebof calls it: a drive's name, or an NQN.
    pub(crate) fn name(self) -> &'v str {
        match self {
            Self::Drive(drive) => &drive.name,
            Self::Plain(subsystem) => &subsystem.nqn,
        }
    }

    /// Its functions.
    pub(crate) fn functions(self) -> &'v [FunctionObject] {
        match self {
            Self::Drive(drive) => &drive.functions,
            Self::Plain(_) => &[],
        }
    }

    /// Its namespaces.
    pub(crate) fn namespaces(self, view: &'v View<'_>) -> Vec<Namespace<'v>> {
        match self {
            Self::Drive(drive) => {
                drive.namespaces.iter().map(|namespace| Namespace::OfDrive(drive, namespace)).collect()
            }
            Self::Plain(subsystem) => {
                let status = view.subsystem_status(&subsystem.nqn);
                let namespaces = status.map_or(&[][..], |status| &status.namespaces).iter();
                namespaces.map(|namespace| Namespace::Plain(subsystem, namespace)).collect()
            }
        }
    }
}

impl<'v> Namespace<'v> {
    /// What it is of.
    pub(crate) const fn storage(self) -> Storage<'v> {
        match self {
            Self::OfDrive(drive, _) => Storage::Drive(drive),
            Self::Plain(subsystem, _) => Storage::Plain(subsystem),
        }
    }

    /// NSID.
    pub(crate) fn nsid(self) -> u32 {
        match self {
            Self::OfDrive(_, namespace) => namespace.name.nsid,
            Self::Plain(_, namespace) => namespace.nsid,
        }
    }

    /// What may be done with it: `StorageReplicaInfo.StorageAccessCapability`.
    pub(crate) fn access_capabilities(self) -> Vec<&'static str> {
        let write_protected = match self {
            Self::OfDrive(_, namespace) => namespace.write_protected,
            Self::Plain(_, namespace) => namespace.write_protect,
        };
        if write_protected { vec!["Read"] } else { vec!["Read", "Write"] }
    }

    /// Its identifier: `ns4`.
    pub(crate) fn id(self) -> String {
        format!("ns{}", self.nsid())
    }
}

/// The controller of a function in a drive's details; `None` asks for the primary one.
pub(crate) fn controller_of(details: &DriveDetails, function: Option<u16>) -> Option<&ControllerDetails> {
    details
        .controllers
        .iter()
        .find(|controller| controller.function.as_ref().map(|function| function.number) == function)
}

/// A namespace in a drive's details.
pub(crate) fn namespace_of(details: &DriveDetails, nsid: u32) -> Option<&NamespaceDetails> {
    details.namespaces.iter().find(|namespace| namespace.name.nsid == nsid)
}
