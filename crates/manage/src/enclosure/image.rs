//! Firmware images that were handed over, and wait to be staged.

use serde::{Deserialize, Serialize};

/// Bytes of a firmware image at most.
pub const IMAGE_BYTES_MAX: usize = 1 << 20;

/// Images that a target keeps at a time: a new one takes the place of the oldest.
pub const IMAGES_MAX: usize = 8;

/// A firmware image that a target keeps. It is forgotten with the target's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredImage {
    /// By which [`StageFirmware`](super::Change::StageFirmware) names it: a UUID of version 5 of
    /// its bytes, so that the same image has the same name.
    pub id: String,
    /// Its bytes, zeros at its end included.
    pub bytes: u64,
    /// The firmware revision that it gives a drive.
    pub revision: String,
    /// The product that it is for.
    pub product: String,
}
