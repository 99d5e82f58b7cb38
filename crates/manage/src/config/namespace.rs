//! A namespace of a subsystem, and its identifiers.

use std::fmt;

use ebof_nvme::{Nqn, Uuid};
use serde::{Serialize, Serializer};

use super::written::as_text;
use super::{Assigned, default_uuid};
use crate::drive::Drive;

/// A namespace of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// Its number.
    pub nsid: u32,
    /// Whether the configuration leaves the number to [`load`](crate::load()).
    #[serde(skip)]
    pub assigned: Assigned,
    /// What it stores its data in.
    pub drive: Drive,
    /// The size of a logical block; `None` is 512, or the drive's own where that is larger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<BlockSize>,
    /// Its UUID. Without one in the configuration it is derived from the subsystem's NQN and the
    /// NSID, so that it stays the same from start to start.
    #[serde(serialize_with = "as_text")]
    pub uuid: Uuid,
    /// Its Namespace Globally Unique Identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nguid: Option<Nguid>,
    /// Its IEEE Extended Unique Identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eui64: Option<Eui64>,
    /// Whether hosts are kept from writing.
    pub write_protect: bool,
    /// Its ANA group.
    pub ana_group: u32,
}

/// The size of a logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockSize {
    /// 512 bytes.
    B512,
    /// 4096 bytes.
    B4096,
}

/// A Namespace Globally Unique Identifier: 16 bytes, most significant first; not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nguid(pub [u8; 16]);

/// An IEEE Extended Unique Identifier: 8 bytes, most significant first; not all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Eui64(pub [u8; 8]);

impl Namespace {
    /// A namespace of the subsystem `nqn` with the defaults.
    #[must_use]
    pub fn new(nqn: &Nqn, nsid: u32, drive: Drive) -> Self {
        Self {
            nsid,
            assigned: Assigned(false),
            drive,
            block_size: None,
            uuid: default_uuid(nqn, nsid),
            nguid: None,
            eui64: None,
            write_protect: false,
            ana_group: 1,
        }
    }
}

impl BlockSize {
    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::B512 => 512,
            Self::B4096 => 4096,
        }
    }
}

impl Serialize for BlockSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.bytes())
    }
}

impl fmt::Display for Nguid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Display for Eui64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl Serialize for Nguid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Eui64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
