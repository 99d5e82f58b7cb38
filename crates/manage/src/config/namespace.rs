//! A namespace of a subsystem, and its identifiers.

use std::fmt;
use std::ops::RangeInclusive;

use ebof_nvme::{Nqn, Uuid};
use serde::{Serialize, Serializer};

use super::written::{as_text, is_true};
use super::{Assigned, default_uuid, limits};
use crate::drive::Drive;
use crate::keys::Absent::{Required, Value, Words};
use crate::keys::{Form, Key, store};

/// A namespace of a subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// NSID.
    pub nsid: u32,
    /// Whether the configuration leaves the NSID to [`load`](crate::load()).
    #[serde(skip)]
    pub assigned: Assigned,
    /// Where its data are stored.
    pub drive: Drive,
    /// The size of a logical block; `None` is 512, or that of the drive if it is larger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<BlockSize>,
    /// Its UUID. If the configuration has none, it is derived from the subsystem's NQN and the
    /// NSID, and the same at every start.
    #[serde(serialize_with = "as_text")]
    pub uuid: Uuid,
    /// Its Namespace Globally Unique Identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nguid: Option<Nguid>,
    /// Its IEEE Extended Unique Identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eui64: Option<Eui64>,
    /// Whether hosts cannot write.
    pub write_protect: bool,
    /// Its ANA group.
    pub ana_group: u32,
    /// Whether it is there for hosts.
    #[serde(skip_serializing_if = "is_true")]
    pub enabled: bool,
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
            enabled: true,
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

impl Namespace {
    /// Valid NSIDs.
    pub(crate) const NSID: RangeInclusive<u64> = 1..=limits::NAMESPACES_MAX as u64;

    pub(crate) const KEYS: &[Key<Self>] = &[
        Key {
            name: "nsid",
            form: Form::Integer { range: Self::NSID, set: None },
            default: Words("the lowest unused one; it stays with the drive while the target runs"),
            text: "the NSID",
        },
        Key {
            name: "drive",
            form: Form::Other("string or table"),
            default: Required,
            text: "where the data are stored, see below",
        },
        Key {
            name: "block_size",
            form: Form::Other("size"),
            default: Words("512, or that of the drive if it is larger"),
            text: "512 or 4096",
        },
        Key {
            name: "uuid",
            form: Form::Other("string"),
            default: Words("derived from the NQN and the NSID"),
            text: "8-4-4-4-12 hexadecimal digits, not all zero. The derived one is always the same",
        },
        Key {
            name: "nguid",
            form: Form::Other("string"),
            default: Words("none"),
            text: "32 hexadecimal digits, not all zero",
        },
        Key {
            name: "eui64",
            form: Form::Other("string"),
            default: Words("none"),
            text: "16 hexadecimal digits, not all zero",
        },
        Key {
            name: "write_protect",
            form: Form::Boolean { set: None },
            default: Words("`false`; `true` for a read-only drive"),
            text: "hosts cannot write",
        },
        Key {
            name: "ana_group",
            form: Form::Integer {
                range: 1..=limits::ANA_GROUP_MAX as u64,
                set: Some(|namespace, group| store(&mut namespace.ana_group, group)),
            },
            default: Value,
            text: "the ANA group",
        },
        Key {
            name: "enabled",
            form: Form::Boolean { set: Some(|namespace, enabled| namespace.enabled = enabled) },
            default: Words("`true`"),
            text: "`false`: the namespace is not there for hosts, and what it stores its data in is closed",
        },
    ];
}
