//! A namespace of a subsystem, and its identifiers.

use std::fmt;
use std::ops::RangeInclusive;

use ebof_nvme::Uuid;
use serde::{Serialize, Serializer};

use super::written::{as_optional_text, is_true};
use super::{Assigned, limits};
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
    /// Its UUID. `None`: by the rule of its subsystem ([`IdentityRule`](super::IdentityRule)).
    #[serde(serialize_with = "as_optional_text", skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Uuid>,
    /// Its Namespace Globally Unique Identifier; `None` is that of the UUID.
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
    /// A namespace with the defaults.
    #[must_use]
    pub fn new(nsid: u32, drive: Drive) -> Self {
        Self {
            nsid,
            assigned: Assigned(false),
            drive,
            block_size: None,
            uuid: None,
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
    pub(crate) const NSID: RangeInclusive<u64> = 1..=limits::NSID_MAX as u64;

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
            default: Words("that of its data, see [identifiers](#identifiers-of-namespaces)"),
            text: "8-4-4-4-12 hexadecimal digits, not all zero. Hosts take what has it for the same disk, \
                   whatever the data are",
        },
        Key {
            name: "nguid",
            form: Form::Other("string"),
            default: Words("the digits of the UUID"),
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
            text: "the ANA group, whose state each port has in its `ana`",
        },
        Key {
            name: "enabled",
            form: Form::Boolean { set: Some(|namespace, enabled| namespace.enabled = enabled) },
            default: Words("`true`"),
            text: "`false`: the namespace is not there for hosts, and what it stores its data in is closed",
        },
    ];
}
