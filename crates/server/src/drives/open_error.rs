//! Why a drive cannot be opened.

use ebof_clock::NoRandomness;
use ebof_drive::RestoreError;
use ebof_medium::OpenError;

/// Why a drive is not served.
#[derive(Debug, thiserror::Error)]
pub enum DriveOpenError {
    /// Its backing device.
    #[error(transparent)]
    Backing(#[from] ebof_backend::OpenError),
    /// The file with its key.
    #[error("{path}: {reason}")]
    Key {
        /// The file.
        path: String,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// Its medium.
    #[error(transparent)]
    Medium(#[from] OpenError),
    /// It was served before, and is gone.
    #[error(
        "{device}: there is no drive on it, where one was served before, and another one is not made in its place: bring the \
         right device or file back; `ebof serve --create` makes a new, empty drive on it"
    )]
    Gone {
        /// What it was on.
        device: String,
    },
    /// What it remembers.
    #[error(transparent)]
    State(#[from] RestoreError),
    /// The identity of a new one.
    #[error(transparent)]
    Identity(#[from] NoRandomness),
    /// Its first changes.
    #[error("the drive cannot be put in order: {0}")]
    Repair(#[from] ebof_medium::Error),
}
