//! The crate's errors, with what to do about them, and times as messages have them.

pub mod time;

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An error of this crate. The text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call or file operation.
    #[error("{what} failed: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What came back.
        #[source]
        error: io::Error,
    },
    /// /dev/fuse cannot be opened.
    #[error("opening /dev/fuse failed: {0}; {advice}", advice = fuse_advice(.0))]
    NoFuse(#[source] io::Error),
    /// The FUSE file system cannot be mounted.
    #[error("mounting a FUSE file system at {} failed: {error}; {advice}", directory.display(), advice = mount_advice(error))]
    Mount {
        /// Where.
        directory: PathBuf,
        /// What came back.
        #[source]
        error: io::Error,
    },
    /// The program `losetup` is not installed.
    #[error("the program losetup was not found; it makes the loop device: install it (Debian: apt install mount)")]
    NoLosetup,
    /// There are no loop devices.
    #[error("opening /dev/loop-control failed: {0}; {advice}", advice = loop_advice(.0))]
    NoLoop(#[source] io::Error),
    /// losetup or blockdev failed.
    #[error("`{command}` failed: {message}")]
    Losetup {
        /// The command line.
        command: String,
        /// What it printed.
        message: String,
    },
    /// ublk cannot be used.
    #[error("ublk: {0}")]
    Ublk(String),
    /// Neither ublk nor FUSE with a loop device can be used.
    #[error(
        "no block device can be made here.\n  ublk: {ublk}\n  FUSE and a loop device: {fuse}\nWithout one, give the commands a URI (nvme+tcp://HOST:PORT/NQN/NSID): that needs no device"
    )]
    NoDevice {
        /// Why not ublk.
        ublk: Box<Error>,
        /// Why not FUSE.
        fuse: Box<Error>,
    },
    /// The same connection exists.
    #[error(
        "already connected: {0}; disconnect it first (ebof disconnect -d {name}), or ask for a second connection with --duplicate-connect{warning}",
        name = .0.name, warning = duplicate_warning(.0)
    )]
    AlreadyConnected(Existing),
    /// The controller was given up, which has not been acknowledged yet.
    #[error(
        "{name} was given up at {}: {reason}; its devices are gone; `ebof disconnect -d {name}` acknowledges that, its log is {}",
        crate::error::time::utc(*.at), log.display()
    )]
    GivenUp {
        /// The controller.
        name: String,
        /// What came back at the last attempt.
        reason: String,
        /// Seconds since 1970.
        at: u64,
        /// Its daemon's log.
        log: PathBuf,
    },
    /// There is no attached controller or namespace with this name.
    #[error("{name} is not connected; `ebof list` shows what is")]
    NotConnected {
        /// The name.
        name: String,
    },
    /// The superuser has attached the controller or namespace with this name.
    #[error("{name} is connected by the superuser: this needs root (sudo ebof ...)")]
    OfRoot {
        /// The name.
        name: String,
    },
    /// A daemon that does not answer.
    #[error("the process {pid} that holds {name} does not answer ({error}); its log is {}; `ebof disconnect -d {name}` ends it", log.display())]
    Unresponsive {
        /// The controller.
        name: String,
        /// The daemon.
        pid: u32,
        /// What came back.
        #[source]
        error: io::Error,
        /// Its log file.
        log: PathBuf,
    },
    /// An error that the attach daemon reported.
    #[error("{message}")]
    Daemon {
        /// The text.
        message: String,
        /// For a connection that could not be made: [`ebof_initiator::ConnectErrorKind::name`].
        kind: Option<String>,
    },
    /// The attach daemon ended before it was ready.
    #[error("the background process ended before the device was ready ({status}); the end of its log {}:\n{tail}", log.display())]
    DaemonDied {
        /// How.
        status: String,
        /// The log file.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// A device is in use, and the disconnect was not forced.
    #[error("{name} is in use: {used_by}; unmount it first, or use --force and lose what was not written")]
    InUse {
        /// The device.
        name: String,
        /// By what, or why that cannot be told.
        used_by: String,
    },
    /// Whether a device is in use was not answered, and the disconnect was not forced.
    #[error(
        "{name} may be in use: {why}; its log is {}; nothing was done; try again later, or use --force and lose what was not \
         written", log.display()
    )]
    MayBeInUse {
        /// The controller.
        name: String,
        /// What its daemon said, or did not say.
        why: String,
        /// Its log file.
        log: PathBuf,
    },
    /// A file in the state directory cannot be parsed.
    #[error("{} is not understood: {error}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The JSON error.
        #[source]
        error: serde_json::Error,
    },
    /// The directory of attached devices, or something in it, is not to be believed or not to be
    /// had.
    #[error("{0}; {advice}", advice = directory_advice(.0))]
    Directory(#[from] ebof_state::StateError),
    /// What is attached is not stored, or it is not known whether it is.
    #[error("{0}; {advice}", advice = store_advice(.0))]
    Store(#[from] ebof_state::StoreError),
    /// The connection could not be made.
    #[error(transparent)]
    Connect(Box<ebof_initiator::ConnectError>),
    /// A command to the controller failed.
    #[error(transparent)]
    Initiator(Box<ebof_initiator::Error>),
}

/// A connection that exists already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Existing {
    /// The controller.
    pub name: String,
    /// Its subsystem.
    pub nqn: String,
    /// Its address.
    pub address: String,
    /// The device of the same namespace, if that is the duplicate.
    pub device: Option<String>,
}

impl fmt::Display for Existing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, nqn, address, device } = self;
        write!(f, "{name} is {nqn} at {address}")?;
        match device {
            Some(device) => write!(f, ", and the same namespace is {device} there"),
            None => Ok(()),
        }
    }
}

fn duplicate_warning(existing: &Existing) -> &'static str {
    if existing.device.is_some() { " (two block devices of one namespace must not both be mounted)" } else { "" }
}

impl Error {
    /// An error reported by a daemon.
    pub(crate) fn daemon(message: impl Into<String>) -> Self {
        Self::Daemon { message: message.into(), kind: None }
    }

    /// An I/O error and the action that failed.
    pub(crate) fn io(what: impl Into<String>, error: io::Error) -> Self {
        Self::Io { what: what.into(), error }
    }
}

fn directory_advice(error: &ebof_state::StateError) -> String {
    match error {
        // What others have put there is not to be taken over.
        ebof_state::StateError::Owner { .. } | ebof_state::StateError::Mode { .. } => {
            "nothing in it was believed: name a directory of your own in XDG_RUNTIME_DIR or EBOF_RUNTIME_DIR".to_owned()
        }
        error => error.advice(),
    }
}

fn store_advice(error: &ebof_state::StoreError) -> String {
    match error {
        ebof_state::StoreError::NotStored(error) => directory_advice(error),
        ebof_state::StoreError::Unknown { .. } => error.advice(),
    }
}

fn fuse_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "load the module (modprobe fuse), or give the container the device /dev/fuse",
        io::ErrorKind::PermissionDenied => "run as root",
        _ => "is the kernel built with CONFIG_FUSE_FS?",
    }
}

fn mount_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "run as root (in a container: with CAP_SYS_ADMIN)",
        _ => "load the module (modprobe fuse)",
    }
}

fn loop_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "load the module (modprobe loop), or give the container the loop devices",
        io::ErrorKind::PermissionDenied => "run as root",
        _ => "is the kernel built with CONFIG_BLK_DEV_LOOP?",
    }
}
