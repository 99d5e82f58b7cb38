//! Why a target does not start, or a configuration cannot be put in force.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use ebof_fabrics as fabrics;
use ebof_manage::Listen;
use ebof_manage::config::KeyPlace;
use ebof_nvme::{Nqn, Uuid};

use crate::drives::{DriveOpenError, NotShown};
use crate::environment::keys::KeyError;

/// Why a target does not start, or a configuration cannot be put in force.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A key of a host cannot be used.
    #[error("{key} of host {host} ({place}): {error}")]
    HostKey {
        /// The host.
        host: Nqn,
        /// Which key of the configuration.
        key: &'static str,
        /// Where it is.
        place: KeyPlace,
        /// What is wrong.
        error: Box<KeyError>,
    },
    /// A drive was refused.
    #[error("namespace {nsid} of {subsystem}: {error}")]
    Drive {
        /// The subsystem.
        subsystem: Nqn,
        /// The namespace.
        nsid: u32,
        /// What the backend answered.
        error: ebof_backend::OpenError,
    },
    /// A file is missing, and is not made.
    #[error(
        "{what}: {path} is not there, and an empty file is not made in its place: {}; {advice}",
        why_not_made(*.is_known)
    )]
    NotMade {
        /// The namespace or drive.
        what: String,
        /// The file.
        path: String,
        /// Whether it is known that it was served before.
        is_known: bool,
        /// What to do.
        advice: &'static str,
    },
    /// A plain namespace was to be what holds a drive.
    #[error(
        "namespace {nsid} of {subsystem}: {path} holds a drive with namespaces of its own, which a host that writes to it would \
         destroy; serve it as one: `--drive name=d0,backing={path}`, or [[drives]] in a configuration; if a host keeps it \
         in its namespace, add `nested` ({path},nested); if the drive may go, with all data of its namespaces, overwrite its first MiB with zeros"
    )]
    HoldsDrive {
        /// The subsystem.
        subsystem: Nqn,
        /// The namespace.
        nsid: u32,
        /// The file or block device.
        path: String,
    },
    /// Two namespaces of a subsystem have the identity of one object, and different data.
    #[error(
        "namespace {nsid} of {subsystem} has the identity of the data of {}, and is something else: a copy of a whole file \
         system has those of its files, too, and disks of virtual machines may have equal serial numbers; give one of the \
         two its own identifier with `uuid =`",
        whose(*.nsid, *.first)
    )]
    SameObject {
        /// The subsystem.
        subsystem: Nqn,
        /// The namespace.
        nsid: u32,
        /// The namespace that has the identity, too.
        first: u32,
    },
    /// Two namespaces have one UUID, and different data.
    #[error(
        "namespace {nsid} of {subsystem} and {first} would both have the UUID {uuid}: leave `uuid =` out of one of the two"
    )]
    SameUuid {
        /// The subsystem.
        subsystem: Nqn,
        /// The namespace.
        nsid: u32,
        /// The UUID.
        uuid: Uuid,
        /// The other namespace.
        first: String,
    },
    /// Two drives are copies of each other.
    #[error(
        "drive {name} is a copy of drive {first}, with the identity of it and of its namespaces: hosts would take the one for \
         the other; serve one of them at a time"
    )]
    SameDrive {
        /// The drive.
        name: String,
        /// The drive that it is a copy of, or that is a copy of it.
        first: String,
    },
    /// Hosts would take other data for those that they have.
    #[error(
        "namespace {nsid} of {subsystem} would have other data under the identifiers that hosts know: they would go on with \
         them as with those that they have, and destroy them; leave `uuid =`, `nguid =` or `identity = \"name\"` out, or \
         remove the namespace first and add it then"
    )]
    TakenForOther {
        /// The subsystem.
        subsystem: Nqn,
        /// The namespace.
        nsid: u32,
    },
    /// A drive whose hosts cut namespaces from it.
    #[error("drive {name}: {error}")]
    ManagedDrive {
        /// Its name.
        name: String,
        /// What failed when it was opened.
        error: Box<DriveOpenError>,
    },
    /// The namespaces of a subsystem do not fit together.
    #[error("subsystem {subsystem}: {error}")]
    Namespaces {
        /// The subsystem.
        subsystem: Nqn,
        /// What does not fit.
        error: fabrics::model::TableError,
    },
    /// Direct ports are to have subsystems, and functions have them.
    #[error("{text}")]
    PortsTaken {
        /// The first of the subsystems.
        subsystem: Nqn,
        /// All that is wrong, and what to do.
        text: String,
    },
    /// A port cannot be opened.
    #[error("listening on {listen}: {error}; {advice}")]
    Listen {
        /// The address.
        listen: Box<Listen>,
        /// The system's answer.
        error: io::Error,
        /// What to do.
        advice: Cow<'static, str>,
    },
    /// What has to be released before it is taken again is still in use.
    #[error("{what} is still in use by requests of hosts after {}", ebof_manage::units::format_duration(*.waited))]
    Busy {
        /// The subsystem of it.
        subsystem: Nqn,
        /// Its NSID; none where it holds a drive.
        nsid: Option<u32>,
        /// The file, device or socket, as messages name it.
        what: String,
        /// How long that was waited for.
        waited: Duration,
    },
    /// What hosts would be shown cannot be remembered.
    #[error(
        "which namespaces are served cannot be stored: {0}; see to the state directory, or go without: `--state none`"
    )]
    Objects(io::Error),
    /// A thread that serves queues cannot have what it needs.
    #[error("thread {index} of those that serve queues cannot start: {error}; {advice}")]
    Reactor {
        /// Which one, from 0 on.
        index: usize,
        /// What failed.
        error: io::Error,
        /// What to do.
        advice: &'static str,
    },
    /// A thread or what it needs cannot be had.
    #[error("starting a thread of the target")]
    Thread(#[from] io::Error),
}

impl From<NotShown> for StartError {
    fn from(error: NotShown) -> Self {
        match error {
            NotShown::Namespaces(subsystem, error) => Self::Namespaces { subsystem, error },
            NotShown::NotStored(error) => Self::Objects(error),
        }
    }
}

impl StartError {
    /// Whether what was to be opened is in use: it may be opened once it is released.
    pub(crate) fn is_in_use(&self) -> bool {
        match self {
            Self::Drive { error, .. } => error.is_in_use(),
            Self::ManagedDrive { error, .. } => matches!(&**error, DriveOpenError::Backing(error) if error.is_in_use()),
            Self::Listen { error, .. } => error.kind() == io::ErrorKind::AddrInUse,
            _ => false,
        }
    }
}

/// Whose identity a namespace has.
fn whose(nsid: u32, first: u32) -> String {
    if first == nsid { "what was served there before".to_owned() } else { format!("namespace {first}") }
}

const fn why_not_made(is_known: bool) -> &'static str {
    if is_known {
        "it was served before"
    } else {
        "without a state directory it is not known whether it was served before"
    }
}
