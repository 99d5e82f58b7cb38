//! Transactions of the box over several objects, as each drive remembers them until they are over:
//! what its objects were before, so that they can be made that again.

use alloc::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::function::Function;
use crate::namespace::VolumeId;
use crate::namespace::placement::Attachments;
use crate::stored::hex;

/// What a drive's objects were before a transaction that is not over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unfinished {
    /// UUID of the drive that decides: once that one has forgotten the transaction, it is made, and
    /// is not to be taken back anywhere.
    #[serde(with = "hex")]
    pub decider: [u8; 16],
    /// Functions by number.
    pub functions: BTreeMap<u16, Function>,
    /// Who had which namespaces, by NSID.
    pub namespaces: BTreeMap<u32, Attachments>,
    /// Which namespaces were write protected and which were not, by NSID.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub protected: BTreeMap<u32, bool>,
    /// The ANA groups that namespaces were in, by NSID.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub groups: BTreeMap<u32, u32>,
    /// The namespaces that it has created so far.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub created: BTreeSet<VolumeId>,
}

impl Unfinished {
    /// The most transactions that a drive remembers.
    pub const MAX: usize = 32;
    /// The most bytes of one, as JSON.
    pub const BYTES_MAX: usize = 64 << 10;
    /// The most namespaces that one creates.
    pub const CREATED_MAX: usize = 256;
    /// The longest identifier of one.
    pub const ID_BYTES_MAX: usize = 64;
}
