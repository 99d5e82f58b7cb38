//! Errors for fio: an errno that fio counts, and a text that says what to do.

use ebof_initiator::{ConnectError, ConnectPathsError, Error};
use ebof_nvme::Status;

use crate::address::{AddressError, NamespaceAddress};
use crate::settings::SettingsError;

/// Why something failed.
#[derive(Clone, Debug)]
pub(crate) struct JobFailure {
    /// A positive errno.
    pub(crate) errno: i32,
    pub(crate) text: String,
}

impl JobFailure {
    pub(crate) fn new(errno: i32, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    /// A command to `address` that was lost or could not be submitted.
    pub(crate) fn of_error(command: &str, address: &NamespaceAddress, error: &Error) -> Self {
        if let Error::Status { status, .. } = error {
            return Self::of_status(command, address, *status);
        }
        let errno = match error {
            Error::Timeout { .. } => libc::ETIMEDOUT,
            Error::NotConnected(_) | Error::Connect(_) | Error::NoFreeQueue { .. } => libc::ENOTCONN,
            Error::Lost(_) => libc::ECONNRESET,
            Error::Unaligned { .. } | Error::Format { .. } | Error::TooLarge { .. } => libc::EINVAL,
            Error::OutOfRange { .. } => libc::ENOSPC,
            Error::NoSuchNamespace(_) => libc::ENXIO,
            Error::System { errno, .. } => errno.raw_os_error(),
            _ => libc::EIO,
        };
        Self::new(errno, format!("ebof: {command} on {}: {error}{}", name(address), advice(error)))
    }

    /// A command that the controller completed with `status`.
    pub(crate) fn of_status(command: &str, address: &NamespaceAddress, status: Status) -> Self {
        let is = |one| status.is(one);
        let (errno, advice) = if is(Status::NAMESPACE_WRITE_PROTECTED) {
            (libc::EROFS, "; the namespace is read-only: load it with rw=read or rw=randread")
        } else if is(Status::LBA_OUT_OF_RANGE) || is(Status::CAPACITY_EXCEEDED) {
            (libc::ENOSPC, "; it is smaller than it was when fio asked, or full: see `ebof id-ns`")
        } else if is(Status::INVALID_NAMESPACE) {
            (libc::ENXIO, "; the namespace is gone: see `ebof list-ns`")
        } else if is(Status::INVALID_OPCODE) {
            (libc::EOPNOTSUPP, "; the controller does not have this command: see ONCS in `ebof id-ctrl -H`")
        } else {
            (libc::EIO, "")
        };
        Self::new(errno, format!("ebof: {command} on {}: the controller answered {status}{advice}", name(address)))
    }
}

/// What to do about it.
fn advice(error: &Error) -> &'static str {
    match error {
        Error::NoFreeQueue { .. } => {
            "\n  what to do: the target grants too few I/O queues; raise its limit, or use fewer jobs"
        }
        Error::Lost(_) | Error::NotConnected(_) => {
            "\n  what to do: see whether the target still runs (`ebof discover`); run the job again"
        }
        Error::Timeout { .. } => "\n  what to do: the target or the network stalls; see the target's log",
        Error::NoSuchNamespace(_) => "\n  what to do: see which there are with `ebof list-ns`",
        _ => "",
    }
}

/// The URI of a namespace.
fn name(address: &NamespaceAddress) -> String {
    let NamespaceAddress { transport, traddr, trsvcid, nqn, nsid } = address;
    let transport = transport.name();
    if traddr.contains(':') {
        format!("nvme+{transport}://[{traddr}]:{trsvcid}/{}/{nsid}", nqn.as_str())
    } else {
        format!("nvme+{transport}://{traddr}:{trsvcid}/{}/{nsid}", nqn.as_str())
    }
}

impl From<AddressError> for JobFailure {
    fn from(error: AddressError) -> Self {
        Self::new(libc::EINVAL, format!("ebof: {error}"))
    }
}

impl From<SettingsError> for JobFailure {
    fn from(error: SettingsError) -> Self {
        Self::new(libc::EINVAL, format!("ebof: {error}"))
    }
}

impl From<ConnectPathsError> for JobFailure {
    fn from(error: ConnectPathsError) -> Self {
        Self::new(libc::ENOTCONN, format!("ebof: {error:#}"))
    }
}

impl From<ConnectError> for JobFailure {
    fn from(error: ConnectError) -> Self {
        // With `tried`, `answer` and `to do` lines.
        Self::new(libc::ENOTCONN, format!("ebof: {error:#}"))
    }
}
