//! Where everything lies on a drive's medium, and the superblock that says so.

use thiserror::Error;

/// Why a medium cannot hold a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LayoutError {
    /// Not enough room.
    #[error("a drive of {capacity_bytes} bytes takes a medium of {needed_bytes} bytes, this one has {medium_bytes}")]
    TooSmall {
        /// What the drive was to have.
        capacity_bytes: u64,
        /// With what else is needed.
        needed_bytes: u64,
        /// What there is.
        medium_bytes: u64,
    },
    /// Outside of what a drive can have.
    #[error("a drive of {capacity_bytes} bytes: it can have 1 MiB to 1 EiB")]
    Capacity {
        /// The size asked for.
        capacity_bytes: u64,
    },
}
