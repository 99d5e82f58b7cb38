//! What is to be opened for a configuration.

use std::path::Path;

use ebof_backend::{BackingId, Spec};
use ebof_manage::Drive;
use ebof_manage::config::{ManagedDrive, Namespace, Port, Subsystem};
use ebof_nvme::Nqn;

use crate::environment::Storage;
use crate::life::control::Listening;

/// Something to be opened. What stands in its way, of the target itself, has to be released first.
#[derive(Clone)]
pub(super) enum Deferred<'c> {
    Namespace(&'c Nqn, &'c Namespace),
    Drive(&'c ManagedDrive, &'c Subsystem),
    Port(&'c Port),
    /// The same address with other options of the socket: its connections stay.
    Rebind(Listening, &'c Port),
}

impl<'c> Deferred<'c> {
    /// Where it is, if that is a file.
    pub(super) fn path(&self) -> Option<&'c Path> {
        self.drive()?.path().map(Path::new)
    }

    /// Which backing it is that is wanted.
    pub(super) fn backing_id(&self, storage: &dyn Storage) -> Option<BackingId> {
        storage.id(&Spec::from(self.drive()?))
    }

    /// What is to be opened, if that is a device.
    fn drive(&self) -> Option<&'c Drive> {
        match self {
            Self::Namespace(_, namespace) => Some(&namespace.drive),
            Self::Drive(drive, _) => Some(&drive.backing),
            Self::Port(_) | Self::Rebind(..) => None,
        }
    }

    /// Whether it is a device, and not a port.
    pub(super) fn is_device(&self) -> bool {
        matches!(self, Self::Namespace(..) | Self::Drive(..))
    }
}
