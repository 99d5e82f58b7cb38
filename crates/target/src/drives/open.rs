//! From a drive's configuration to its keeper: the backing device is made or opened, and the settings are translated.

use std::path::Path;
use std::sync::Arc;

use ebof_backend::{Memory, Source, Spec};
use ebof_drive::{Identity, Managers, Profile, Settings, error_log};
use ebof_manage::Drive as Backing;
use ebof_manage::config::{Attach, DriveProfile, ManagedDrive, Subsystem};
use ebof_nvme::Nqn;

use super::keeper::{Keeper, KeeperError, Plan};
use super::sensor::Sensor;

/// Opens the drive that `subsystem` offers.
pub(crate) fn open(config: &ManagedDrive, subsystem: &Subsystem) -> Result<Arc<Keeper>, KeeperError> {
    let capacity = config.size_bytes.or(config.backing.size_bytes());
    let (backing, zeroed): (Arc<dyn ebof_backend::Device>, bool) = match &config.backing {
        Backing::Memory { size_bytes } | Backing::Null { size_bytes } => {
            let bytes = ebof_medium::medium_bytes(capacity.unwrap_or(*size_bytes))?;
            (Arc::new(Memory::new(bytes, 512, false)), true)
        }
        Backing::File(file) => {
            // Only a file that is made now has to be told how large it is to be, and is known to be empty.
            let missing = !Path::new(&file.path).exists();
            let size_bytes = match capacity {
                Some(capacity) if missing => Some(ebof_medium::medium_bytes(capacity)?),
                _ => None,
            };
            let source = Source::Path { path: file.path.clone().into(), size_bytes, direct: file.direct };
            let spec = Spec { source, read_only: file.read_only, block_bytes: None };
            (ebof_backend::open(&spec)?, missing)
        }
    };
    let id = *uuid::Uuid::new_v4().as_bytes();
    // On a block device without a size: as much as there is room for.
    let create = capacity.or(matches!(backing.geometry().capacity_bytes, 1..).then_some(0));
    let options = ebof_medium::Options { create, zeroed, id, ..ebof_medium::Options::default() };
    let identity = Identity { serial: subsystem.serial.clone(), model: subsystem.model.clone(), uuid: id };
    let sensor = config.backing.path().and_then(|path| Sensor::of(Path::new(path)));
    let settings = settings(config, subsystem);
    Keeper::open(Plan { name: config.name.clone(), backing, options, settings, identity, sensor })
}

/// What the configuration says, as the drive understands it.
pub(crate) fn settings(config: &ManagedDrive, subsystem: &Subsystem) -> Settings {
    let mut profile = match config.profile {
        DriveProfile::Default => Profile::unlimited(),
        DriveProfile::EthernetSsd => Profile::ethernet_ssd(),
    };
    if let Some(namespaces) = config.namespaces {
        profile.namespaces = namespaces;
    }
    let names = |hosts: &Vec<Nqn>| hosts.iter().map(Nqn::to_string).collect();
    Settings {
        checked: false,
        encrypted: false,
        profile,
        overcommit: config.overcommit,
        exclusive: config.exclusive,
        attach_everyone: config.attach == Attach::Everyone,
        managers: config.managers.as_ref().map_or(Managers::Everyone, |hosts| Managers::Only(names(hosts))),
        quotas: config.quotas.clone(),
        endurance_bytes: config.endurance_bytes,
        error_entries: error_log::ENTRIES_DEFAULT,
        revision: subsystem.firmware.clone(),
        subsystem: subsystem.nqn.to_string(),
    }
}
