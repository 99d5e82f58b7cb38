//! From a drive's configuration to its actor: the backing device is made or opened, and the
//! settings are translated.

use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use ebof_backend::{Memory, Removable, Remover, Source, Spec};
use ebof_drive::{Identity, Managers, Profile, Settings, error_log};
use ebof_manage::Drive as Backing;
use ebof_manage::config::{Attach, DriveProfile, ManagedDrive, Subsystem};
use ebof_medium::DriveKey;
use ebof_nvme::Nqn;
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::actor::DriveActor;
use super::open_error::DriveOpenError;
use super::sensor::Sensor;
use super::start::{Plan, start, start_stepped};
use super::{DriveThreads, SteppedDrive};
use crate::environment::Environment;

/// A drive that was opened.
pub(crate) struct Opened {
    pub(crate) actor: Arc<DriveActor>,
    /// What it lies on.
    pub(crate) backing: Arc<dyn ebof_backend::Device>,
    /// Pulls that out.
    pub(crate) remover: Remover,
}

/// Opens the drive that `subsystem` offers.
pub(crate) fn open(
    config: &ManagedDrive,
    subsystem: &Subsystem,
    environment: &Environment,
    threads: &mut DriveThreads<'_>,
) -> Result<Opened, DriveOpenError> {
    // `100M` is no whole number of blocks: what is made is a little larger.
    let capacity = config.size_bytes.or(config.backing.size_bytes());
    let capacity = capacity.map(|bytes| bytes.checked_next_multiple_of(512).unwrap_or(bytes));
    // Whatever can be wrong without the backing is found before a file is made.
    let key = config.key_file.as_deref().map(read_key).transpose()?;
    let (backing, zeroed): (Arc<dyn ebof_backend::Device>, bool) = match &config.backing {
        Backing::Memory { size_bytes } | Backing::Null { size_bytes } => {
            let bytes = ebof_medium::medium_bytes(capacity.unwrap_or(*size_bytes))?;
            (Arc::new(Memory::new(bytes, 512, false)), true)
        }
        Backing::File(file) => {
            // Only a file that is made now needs a size, and is known to be
            // empty.
            let missing = environment.storage.is_missing(Path::new(&file.path));
            let size_bytes = match capacity {
                Some(capacity) if missing => Some(ebof_medium::medium_bytes(capacity)?),
                _ => None,
            };
            let source = Source::Path { path: file.path.clone().into(), size_bytes, direct: file.direct };
            let spec = Spec { source, ..Spec::from(&config.backing) };
            (environment.storage.open(&spec)?, missing)
        }
    };
    let (backing, remover) = Removable::new(backing);
    let backing: Arc<dyn ebof_backend::Device> = Arc::new(backing);
    let mut id = [0; 16];
    environment.clock.fill(&mut id)?;
    let id = *uuid::Builder::from_random_bytes(id).as_uuid().as_bytes();
    // On a block device without a size: as much as there is room for.
    let create = capacity.or(matches!(backing.geometry().capacity_bytes, 1..).then_some(0));
    // A medium that lost its drive is not made another one.
    let is_known = config.backing.path().is_some_and(|path| !environment.making.allows(path));
    let create = create.filter(|_| !is_known);
    let read_only_if_damaged = config.read_only_if_damaged;
    let overwrite = config.overwrite;
    let options = ebof_medium::Options {
        create,
        zeroed,
        overwrite,
        id,
        key,
        read_only_if_damaged,
        io: environment.io.clone(),
        clock: environment.clock.clone(),
        ..ebof_medium::Options::default()
    };
    let identity = Identity { serial: subsystem.serial.clone(), model: subsystem.model.clone(), uuid: id };
    let sensor = config.backing.path().and_then(|path| Sensor::for_path(Path::new(path)));
    let settings = settings(config, subsystem);
    let name = config.name.clone();
    let clock = environment.clock.clone();
    let plan = Plan { name, backing: Arc::clone(&backing), options, settings, identity, sensor, clock };
    let opened = match threads {
        DriveThreads::Own => start(plan),
        DriveThreads::Stepped(drives) => start_stepped(plan).map(|(actor, stepper)| {
            drives.push(SteppedDrive { actor: Arc::clone(&actor), stepper });
            actor
        }),
    };
    if let (Err(_), true, Backing::File(file)) = (&opened, zeroed, &config.backing) {
        // It was made here a moment ago, is still locked, and holds nothing; what made it fail is
        // the message to give.
        environment.storage.remove(Path::new(&file.path));
    }
    let actor = opened.map_err(|error| match error {
        DriveOpenError::Medium(ebof_medium::OpenError::NoDrive { device }) if is_known => {
            DriveOpenError::Gone { device }
        }
        error => error,
    })?;
    Ok(Opened { actor, backing, remover })
}

/// The key in a file: 32 bytes as they are, or as 64 hexadecimal digits.
fn read_key(path: &str) -> Result<DriveKey, DriveOpenError> {
    let wrong = |reason: String| DriveOpenError::Key { path: path.to_owned(), reason };
    let help = "a key file has 32 bytes, or 64 hexadecimal digits: `head -c 32 /dev/urandom > FILE` makes one";
    let unreadable = |error: std::io::Error| wrong(format!("the key cannot be read: {error}; {help}"));
    // A pipe without a writer must not be waited for: a running target opens drives, too.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open(2) is an int");
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(wrong(format!("the key cannot be read: it is no regular file; {help}")));
    }
    if file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0) {
        tracing::warn!(path, "others than the owner may read the key file: `chmod 600` keeps it to one user");
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(KEY_FILE_BYTES_MAX));
    let read = file.take(KEY_FILE_BYTES_MAX as u64).read_to_end(&mut bytes);
    read.map_err(|error| wrong(format!("the key cannot be read: {error}")))?;
    let digits = bytes.trim_ascii_end();
    let key = match <&[u8; 32]>::try_from(&bytes[..]) {
        Ok(key) => Some(DriveKey::copy_of(key)),
        Err(_) if digits.len() == 64 => unhex(digits),
        Err(_) => None,
    };
    key.ok_or_else(|| wrong(format!("this is no key ({} bytes were read): {help}", bytes.len())))
}

fn unhex(digits: &[u8]) -> Option<DriveKey> {
    let mut key = Zeroizing::new([0; 32]);
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        *byte = digit(0)? << 4 | digit(1)?;
    }
    Some(DriveKey::copy_of(&key))
}

/// More than a key file has, with a line's end.
const KEY_FILE_BYTES_MAX: usize = 128;

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
        checked: config.checksums,
        encrypted: config.encryption,
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
        functions: config.functions,
        one_subsystem: config.one_subsystem,
        ana_on_failure: config.ana_on_failure.state(),
    }
}
