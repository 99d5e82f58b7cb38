//! Why attaching did not work: what was tried, what came back, what to do.

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An error of this crate. Its text is for people: it says what to do.
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
    /// The program `losetup` is not there.
    #[error("the program losetup was not found; it makes the loop device: install it (Debian: apt install mount)")]
    NoLosetup,
    /// There are no loop devices.
    #[error("opening /dev/loop-control failed: {0}; {advice}", advice = loop_advice(.0))]
    NoLoop(#[source] io::Error),
    /// losetup said no.
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
    /// The controller did not come back, and nobody has acknowledged that yet.
    #[error(
        "{name} was given up at {}: {reason}; its devices are gone; `ebof disconnect -d {name}` acknowledges that, its log is {}",
        crate::time::utc(*.at), log.display()
    )]
    GivenUp {
        /// The controller.
        name: String,
        /// What came back at the last attempt.
        reason: String,
        /// Seconds since 1970.
        at: u64,
        /// What its daemon logged.
        log: PathBuf,
    },
    /// A name that no attached controller or namespace has.
    #[error("{name} is not connected; `ebof list` shows what is")]
    NotConnected {
        /// The name.
        name: String,
    },
    /// A name of something that the superuser has attached, asked for by somebody else.
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
        /// Where it writes what happens.
        log: PathBuf,
    },
    /// What the attach daemon answered, in its words.
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
    /// A device in use that was not to be forced.
    #[error("{name} is in use: {used_by}; unmount it first, or use --force and lose what was not written")]
    InUse {
        /// The device.
        name: String,
        /// By what.
        used_by: String,
    },
    /// A file in the state directory that is not what this version writes.
    #[error("{} is not understood: {error}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The JSON error.
        #[source]
        error: serde_json::Error,
    },
    /// The connection could not be made.
    #[error(transparent)]
    Connect(Box<ebof_initiator::ConnectError>),
    /// The controller could not be asked.
    #[error(transparent)]
    Initiator(Box<ebof_initiator::Error>),
}

/// A connection that is there already.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Existing {
    /// The controller.
    pub name: String,
    /// Its subsystem.
    pub nqn: String,
    /// Its address.
    pub address: String,
    /// The device that is one of the same namespaces, where that is what would be there twice.
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
    /// What a daemon says.
    pub(crate) fn daemon(message: impl Into<String>) -> Self {
        Self::Daemon { message: message.into(), kind: None }
    }

    /// An I/O error with what was tried.
    pub(crate) fn io(what: impl Into<String>, error: io::Error) -> Self {
        Self::Io { what: what.into(), error }
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
