//! Whether a controller is a path of a subsystem: the same names, the same controller's properties,
//! and behind it the same namespaces. Why not, in words.

use std::sync::Arc;

use ebof_nvme::Nsid;
use ebof_nvme::identify::field::nmic;

use super::path::Path;
use super::{PATHS_MAX, reservations};
use crate::controller::Controller;
use crate::controller::namespace::Namespace;
use crate::error::Error;
use crate::error::connect_error::{ConnectError, ConnectErrorKind};
use crate::error::state::State;
use crate::options::Options;
use crate::wait::Waiter;

/// Why a path was not added.
#[derive(Debug)]
#[non_exhaustive]
pub enum AddPathError {
    /// It was not connected.
    Connect(ConnectError),
    /// It has another subsystem or another host than the paths that are there.
    Names {
        /// Which of them: `host NQN`.
        what: &'static str,
        /// Of the paths that are there.
        here: String,
        /// Of the one that was to be added.
        there: String,
    },
    /// Its controller has another property than those of the paths that are there.
    Controller {
        /// Which: `serial number`.
        what: &'static str,
        /// Of the paths that are there.
        here: String,
        /// Of the one that was to be added.
        there: String,
    },
    /// A namespace is another one there, or has another size or format.
    Namespace {
        /// Its number, the same over all paths.
        nsid: Nsid,
        /// What differs: `size in blocks`.
        what: &'static str,
        /// Of the paths that are there.
        here: String,
        /// Of the one that was to be added.
        there: String,
    },
    /// A namespace belongs to its controller alone (NMIC): with the same number, another controller
    /// has another one.
    Private {
        /// Its number, the same over all paths.
        nsid: Nsid,
    },
    /// There are [`PATHS_MAX`] already.
    TooMany,
    /// The threads that send commands got no queue pairs over it.
    Queues(Error),
}

impl From<ConnectError> for AddPathError {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}

impl AddPathError {
    /// What came of connecting, if that failed.
    #[must_use]
    pub fn connect_kind(&self) -> Option<&ConnectErrorKind> {
        if let Self::Connect(error) = self { Some(error.kind()) } else { None }
    }
}

impl std::fmt::Display for AddPathError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "{error:#}"),
            Self::Names { what, here, there } => write!(
                f,
                "not a path of the same device: the {what} is {there}, and {here} on the paths that are there; connect \
                 with that one, or make a device of its own with --duplicate-connect"
            ),
            Self::Controller { what, here, there } => write!(
                f,
                "not a path of the same device: the controller's {what} is {there:?}, and {here:?} on the paths that \
                 are there, although the subsystem's NQN is the same: two targets may have one subsystem only if they \
                 have the same data; give one of them another NQN"
            ),
            Self::Namespace { nsid, what, here, there } => write!(
                f,
                "not a path of the same device: namespace {nsid} has the {what} {there}, and {here} on the paths that \
                 are there: writing to both would mix two namespaces; look at the two targets' configurations"
            ),
            Self::Private { nsid } => write!(
                f,
                "not a path of the same device: namespace {nsid} is private to its controller (NMIC), so another \
                 controller has another one; make a device of its own with --duplicate-connect"
            ),
            Self::TooMany => write!(f, "there are {PATHS_MAX} paths already: disconnect one of them first"),
            Self::Queues(error) => write!(
                f,
                "the path is not used, because it has no queues for the device's threads: {error}; the target's limits \
                 of queues say how many it grants"
            ),
        }
    }
}

impl std::error::Error for AddPathError {}

/// Another path has to be of the same subsystem, for the same host.
pub(super) fn check_names(here: &Options, there: &Options) -> Result<(), AddPathError> {
    let names = |options: &Options| {
        [
            ("subsystem NQN", options.nqn.to_string()),
            ("host NQN", options.host_nqn.to_string()),
            ("Host Identifier", options.host_id.to_string()),
        ]
    };
    for ((what, here), (_, there)) in names(here).into_iter().zip(names(there)) {
        if here != there {
            return Err(AddPathError::Names { what, here, there });
        }
    }
    Ok(())
}

/// Another path has to be another controller of the same subsystem.
pub(super) fn check_controller(paths: &[Arc<Path>], controller: &Controller) -> Result<(), AddPathError> {
    let there = controller.identify();
    let Some(first) = paths.first() else { return Ok(()) };
    let here = first.controller.identify();
    let names = [
        ("serial number", here.serial_number().to_string(), there.serial_number().to_string()),
        ("model number", here.model_number().to_string(), there.model_number().to_string()),
    ];
    for (what, here, there) in names {
        if here != there {
            return Err(AddPathError::Controller { what, here, there });
        }
    }
    // Commands of two controllers with one identifier could not be told apart, as on Linux.
    let same = paths.iter().find(|path| path.controller.id() == controller.id());
    if same.is_some_and(|path| path.controller.state() == State::Live) {
        let id = controller.id().to_string();
        return Err(AddPathError::Controller { what: "identifier", here: format!("{id}, too"), there: id });
    }
    Ok(())
}

/// Opens a namespace over another path, which has to be the same there.
pub(super) async fn bind(path: &Path, head: &Namespace, waiter: &Waiter) -> Result<(), AddPathError> {
    let nsid = head.nsid();
    let here = describe(head);
    let namespace = match Namespace::open(path.controller.clone(), nsid, waiter).await {
        Ok(namespace) => namespace,
        // It may be attached to some of the controllers only.
        Err(Error::NoSuchNamespace(_)) => return Ok(()),
        Err(error) => return Err(AddPathError::Queues(error)),
    };
    compare(head, &here, &namespace).inspect_err(|_| head.keep())?;
    // A stepped host has no queue that waits for a report.
    let reserved = if waiter.is_stepped() { None } else { reservations::differ(head, &namespace) };
    if let Some((here, there)) = reserved {
        return Err(AddPathError::Namespace { nsid, what: "reservations", here, there });
    }
    path.bind(namespace);
    Ok(())
}

/// Compares a namespace with what was found with its number over another path. `here` was said of
/// it before.
fn compare(head: &Namespace, here: &[(&'static str, String); 4], namespace: &Namespace) -> Result<(), AddPathError> {
    let nsid = head.nsid();
    // What it says now counts: a subsystem may have come to a second port since the first path.
    if !is_shared(namespace) {
        return Err(AddPathError::Private { nsid });
    }
    let there = describe(namespace);
    let differs = || here.iter().zip(&there).find(|((_, here), (_, there))| here != there);
    if let Some(((what, here), (_, there))) = differs() {
        return Err(AddPathError::Namespace { nsid, what, here: here.clone(), there: there.clone() });
    }
    if head.head() != namespace.head() {
        let (what, here, there) = ("list of descriptors", "one".to_owned(), "another".to_owned());
        return Err(AddPathError::Namespace { nsid, what, here, there });
    }
    Ok(())
}

/// Whether other controllers may have the namespace, too.
pub(super) fn is_shared(namespace: &Namespace) -> bool {
    namespace.identify().nmic & nmic::SHARED != 0
}

/// What has to be the same over all paths.
fn describe(namespace: &Namespace) -> [(&'static str, String); 4] {
    let identifiers = namespace.identifiers();
    [
        ("identifiers", if identifiers.is_empty() { "none".to_owned() } else { identifiers }),
        ("block size", namespace.block_bytes().to_string()),
        ("size in blocks", namespace.blocks().to_string()),
        ("protection information", format!("{:?}", namespace.protection())),
    ]
}
