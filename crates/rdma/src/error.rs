//! The peer broke the transport: the connection ends. Unlike NVMe/TCP, the transport has no message
//! about that.

use ebof_nvme::Cid;
use thiserror::Error;

/// A violation after which the connection cannot go on: disconnect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FatalError {
    /// Of a host: the capsule is shorter than a command.
    #[error("a command capsule of {length} bytes, a command has 64")]
    ShortCommand {
        /// Bytes of the capsule.
        length: usize,
    },
    /// Of a host: as many commands are outstanding as the queue has entries.
    #[error("more than {entries} commands outstanding, which is all that the queue holds")]
    TooManyCommands {
        /// Entries of the Submission Queue.
        entries: u32,
    },
    /// Of a controller: the capsule is not as long as a response.
    #[error("a response capsule of {length} bytes, a response has 16")]
    ResponseLength {
        /// Bytes of the capsule.
        length: usize,
    },
    /// Of a controller: no command with this identifier is outstanding.
    #[error("a response to command {cid}, which is not outstanding")]
    UnknownCommand {
        /// The identifier in the response.
        cid: Cid,
    },
    /// Of a controller: a key was invalidated that this command did not allow to invalidate.
    #[error("the response to command {cid} invalidated the key {key:#010x}, which is not for it to invalidate")]
    WrongKey {
        /// The command.
        cid: Cid,
        /// The key.
        key: u32,
    },
}
