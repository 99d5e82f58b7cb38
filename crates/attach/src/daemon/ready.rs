//! What a daemon says first, to the process that started it and waits for the devices.

use serde::{Deserialize, Serialize};

use crate::error::Existing;
use crate::request::Attached;

/// A daemon's first message to the process that started it: one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Ready {
    /// The devices were made.
    Attached(Attached),
    /// They could not be made.
    Failed { message: String, kind: Option<String>, existing: Option<Existing> },
}
