//! Drives whose hosts create namespaces on them, as configured.
//!
//! Owns the types and how they are written; [`words`] reads the form of the command line. What a
//! drive remembers is not here.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use ebof_nvme::Nqn;
use ebof_nvme::log::AnaState;
use serde::{Serialize, Serializer};

use super::limits;
use super::written::as_optional_size64;
use crate::diagnostic::nearest::names;
use crate::drive::Drive;
use crate::keys::Absent::{Required, Value, Words};
use crate::keys::{Form, Key, Refused};
use crate::units::format_size;

mod words;

pub use words::WordsError;
pub(crate) use words::{FORGETFUL, READ_ONLY, WITHOUT_SIZE};

/// A drive whose hosts create namespaces on it. A [`Subsystem`](super::Subsystem) refers to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ManagedDrive {
    /// What subsystems call it: 1 to 32 letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Where its data are stored: memory or a path, without a size for the latter and never
    /// read-only.
    pub backing: Drive,
    /// Usable capacity in bytes. `None`: that of the drive which is on the backing already; on a
    /// block device without one, and in memory, as much as there is room for. A file that does not
    /// exist yet needs it.
    #[serde(rename = "size", skip_serializing_if = "Option::is_none", serialize_with = "as_optional_size64")]
    pub size_bytes: Option<u64>,
    /// Whether a new drive is made although the backing holds something else, which is lost. A
    /// drive that is there is never overwritten.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub overwrite: bool,
    /// The limits that it announces and keeps.
    pub profile: DriveProfile,
    /// Namespaces at most, 1 to 1024; `None` is what the profile says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<u32>,
    /// Functions, each with a subsystem or a direct port of its own: 0 to 127.
    pub functions: u16,
    /// Whether its functions are controllers of its own subsystem, instead of each having one.
    pub one_subsystem: bool,
    /// Whether its namespaces may promise more than it holds.
    pub overcommit: bool,
    /// Whether a namespace has one host at a time, shared or not.
    pub exclusive: bool,
    /// Whether new and formatted namespaces keep a checksum with each block, verified when it is
    /// read.
    pub checksums: bool,
    /// Whether new and formatted namespaces are encrypted on the backing, each with a key of its
    /// own.
    pub encryption: bool,
    /// A file with the key that those keys are wrapped with; `None` leaves them on the backing as
    /// they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<String>,
    /// Whether a drive that is damaged is opened for reading what is left of it, instead of being
    /// refused.
    pub read_only_if_damaged: bool,
    /// How hosts reach its namespaces while it fails.
    #[serde(skip_serializing_if = "AnaOnFailure::is_nothing")]
    pub ana_on_failure: AnaOnFailure,
    /// Whom a new namespace is attached to.
    pub attach: Attach,
    /// The hosts that may create, delete, attach, detach and format; `None` is every host that may
    /// connect.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_optional_texts")]
    pub managers: Option<Vec<Nqn>>,
    /// Its subsystem's serial number. [`load`](crate::load()) gives it to the subsystem, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Its subsystem's model number. [`load`](crate::load()) gives it to the subsystem, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Bytes that may be written over its life, for Percentage Used; `None` is what the profile
    /// says.
    #[serde(rename = "endurance", skip_serializing_if = "Option::is_none", serialize_with = "as_optional_size64")]
    pub endurance_bytes: Option<u64>,
    /// The most that a host's own namespaces may hold together in bytes, by the host's NQN.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", serialize_with = "as_sizes")]
    pub quotas: BTreeMap<String, u64>,
}

names! {
    /// The limits that a drive announces, by name.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum DriveProfile {
        /// None but the target's own.
        #[default]
        Default = "default";
        /// Those of an Ethernet SSD after the white paper ODCC-2021-05008.
        EthernetSsd = "ethernet-ssd";
    }
}

names! {
    /// The state of a drive's ANA groups at all ports while it is degraded or read only.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum AnaOnFailure {
        /// As its ports say, as otherwise.
        #[default]
        Nothing = "nothing";
        /// Non-optimized, where the port says optimized.
        NonOptimized = "non-optimized";
        /// Inaccessible, where the port says something better.
        Inaccessible = "inaccessible";
    }
}

names! {
    /// Whom a new namespace is attached to.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
    pub enum Attach {
        /// Nobody: a host attaches it with Namespace Attachment, as on every drive.
        #[default]
        #[serde(rename = "manual")]
        Nobody = "manual";
        /// Every host that connects, now or later.
        #[serde(rename = "everyone")]
        Everyone = "everyone";
    }
}

impl ManagedDrive {
    /// A drive with the defaults.
    #[must_use]
    pub fn new(name: impl Into<String>, backing: Drive) -> Self {
        Self {
            name: name.into(),
            backing,
            size_bytes: None,
            overwrite: false,
            profile: DriveProfile::Default,
            namespaces: None,
            functions: 0,
            one_subsystem: false,
            overcommit: false,
            exclusive: false,
            checksums: false,
            encryption: false,
            key_file: None,
            read_only_if_damaged: false,
            ana_on_failure: AnaOnFailure::Nothing,
            attach: Attach::Nobody,
            managers: None,
            serial: None,
            model: None,
            endurance_bytes: None,
            quotas: BTreeMap::new(),
        }
    }

    /// Puts `base` in front of relative paths.
    pub(crate) fn rebase(&mut self, base: &Path) {
        self.backing.rebase(base);
        if let Some(path) = &mut self.key_file
            && let Some(joined) = base.join(&path).to_str()
        {
            *path = joined.to_owned();
        }
    }

    /// The lowest controller id of a host. Users write controller ids (`attach-ns -c 0`), so they
    /// begin at 0, but above those of functions if there are any.
    #[must_use]
    pub fn least_cntlid(&self) -> u16 {
        if self.functions == 0 { 0 } else { limits::CNTLID_MIN_WITH_FUNCTIONS }
    }

    /// The NQN of the subsystem that a function has on a fabric port; `subsystem` is the drive's
    /// own.
    #[must_use]
    pub fn function_nqn(subsystem: &Nqn, function: u16) -> Option<Nqn> {
        Nqn::parse(&format!("{subsystem}:vf{function}")).ok()
    }

    /// Whether the two are the same drive with, perhaps, other options: hosts may take them for
    /// one. What is on a file makes a drive, whatever it is called here.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.backing.path(), other.backing.path()) {
            // Memory has nothing but the drive's name: another size of it is a change that cannot
            // be made, not another drive.
            (None, None) => self.name == other.name,
            (one, another) => one == another,
        }
    }
}

impl DriveProfile {
    /// The profile with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }
}

impl AnaOnFailure {
    /// The variant with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether it is the default.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::Nothing
    }

    /// The state, if there is one.
    #[must_use]
    pub const fn state(self) -> Option<AnaState> {
        match self {
            Self::Nothing => None,
            Self::NonOptimized => Some(AnaState::NON_OPTIMIZED),
            Self::Inaccessible => Some(AnaState::INACCESSIBLE),
        }
    }
}

impl Attach {
    /// The variant with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|attach| attach.name() == name)
    }
}

/// Whether a text can name a drive.
pub(crate) fn is_drive_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=limits::DRIVE_NAME_CHARS_MAX).contains(&text.len()) && text.bytes().all(legal)
}

fn as_optional_texts<T: fmt::Display, S: Serializer>(
    values: &Option<Vec<T>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match values {
        Some(values) => serializer.collect_seq(values.iter().map(ToString::to_string)),
        None => serializer.serialize_none(),
    }
}

fn as_sizes<S: Serializer>(sizes: &BTreeMap<String, u64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(sizes.iter().map(|(host, bytes)| (host, format_size(*bytes))))
}

impl ManagedDrive {
    pub(crate) const KEYS: &[Key<Self>] = &[
        Key {
            name: "name",
            form: Form::Other("string"),
            default: Required,
            text: "1 to 32 letters, digits, `.`, `_` and `-`; must be unique",
        },
        Key {
            name: "backing",
            form: Form::Other("string or table"),
            default: Required,
            text: "`PATH` of a file or block device, `{ path = \"...\", direct = true }`, or \
                   `mem:SIZE`, which is lost when the target ends. Nothing else may use the file. \
                   `null:` and read-only files are refused, because a drive stores metadata",
        },
        Key {
            name: "size",
            form: Form::Size {
                range: limits::DRIVE_SIZE_BYTES,
                step: 512,
                set: Some(|drive, bytes| drive.size_bytes = Some(bytes)),
            },
            default: Words("that of the existing drive; otherwise the whole block device"),
            text: "usable capacity. Required if the file does not exist; it is then created, \
                   sparse and slightly larger. Not allowed with `mem:SIZE`. It cannot be changed \
                   later",
        },
        Key {
            name: "overwrite",
            form: Form::Boolean { set: Some(|drive, overwrite| drive.overwrite = overwrite) },
            default: Value,
            text: "a new drive is created although the backing contains other data, which are \
                   lost. An existing drive, intact or damaged, is never overwritten",
        },
        Key {
            name: "profile",
            form: Form::Name {
                names: &[DriveProfile::Default.name(), DriveProfile::EthernetSsd.name()],
                set: |drive, name| drive.profile = DriveProfile::named(name).unwrap_or_default(),
            },
            default: Value,
            text: "the limits that the drive announces and enforces. `\"default\"`: 128 \
                   namespaces, and otherwise only the limits of the target. `\"ethernet-ssd\"`: \
                   those of the white paper ODCC-2021-05008: 1024 queue pairs with up to 64 \
                   entries each and fewer than 8192 in all, 128 namespaces, 16 of them with \
                   reservations, two firmware slots",
        },
        Key {
            name: "namespaces",
            form: Form::Integer {
                range: 1..=limits::NAMESPACES_MAX as u64,
                set: Some(|drive, count| drive.namespaces = u32::try_from(count).ok()),
            },
            default: Words("that of the profile"),
            text: "maximum number of namespaces",
        },
        Key {
            name: "functions",
            form: Form::Integer {
                range: 0..=limits::FUNCTIONS_MAX as u64,
                set: Some(|drive, count| drive.functions = u16::try_from(count).unwrap_or_default()),
            },
            default: Value,
            text: "virtual functions, each of which is given to ports, see below. \
                   Controller ids of hosts then begin at 128",
        },
        Key {
            name: "one_subsystem",
            form: Form::Boolean { set: Some(|drive, one| drive.one_subsystem = one) },
            default: Value,
            text: "its functions are controllers of its own subsystem: hosts that have several of \
                   them find the namespaces that these share once, see below",
        },
        Key {
            name: "overcommit",
            form: Form::Boolean { set: Some(|drive, overcommit| drive.overcommit = overcommit) },
            default: Value,
            text: "the capacities of the namespaces may exceed that of the drive, see below",
        },
        Key {
            name: "exclusive",
            form: Form::Boolean { set: Some(|drive, exclusive| drive.exclusive = exclusive) },
            default: Value,
            text: "a namespace is attached to one host at a time, see below",
        },
        Key {
            name: "checksums",
            form: Form::Boolean { set: Some(|drive, checksums| drive.checksums = checksums) },
            default: Value,
            text: "new and formatted namespaces store a checksum with each block, see below",
        },
        Key {
            name: "encryption",
            form: Form::Boolean { set: Some(|drive, encryption| drive.encryption = encryption) },
            default: Value,
            text: "new and formatted namespaces are encrypted on the backing, see below",
        },
        Key {
            name: "key_file",
            form: Form::Text { set: set_key_file },
            default: Words("none"),
            text: "a file with 32 bytes, or 64 hexadecimal digits: the key with which the keys of \
                   encrypted namespaces are wrapped on the backing. A relative path is relative to \
                   the directory of the configuration. Changes need a restart",
        },
        Key {
            name: "read_only_if_damaged",
            form: Form::Boolean { set: Some(|drive, read_only| drive.read_only_if_damaged = read_only) },
            default: Value,
            text: "if its journal is damaged, what is left of the drive is served read-only, \
                   instead of being refused; see [a damaged drive](operations.md#a-damaged-drive). \
                   Changes take effect when the drive is opened",
        },
        Key {
            name: "ana_on_failure",
            form: Form::Name {
                names: &[
                    AnaOnFailure::Nothing.name(),
                    AnaOnFailure::NonOptimized.name(),
                    AnaOnFailure::Inaccessible.name(),
                ],
                set: |drive, name| drive.ana_on_failure = AnaOnFailure::named(name).unwrap_or_default(),
            },
            default: Value,
            text: "what hosts are told of the paths to it while it is degraded or read only: nothing, or that all \
                   are `\"non-optimized\"` or `\"inaccessible\"`, so that they take another target's. See \
                   [paths](paths.md#paths-of-a-drive-that-fails)",
        },
        Key {
            name: "attach",
            form: Form::Name {
                names: &[Attach::Nobody.name(), Attach::Everyone.name()],
                set: |drive, name| drive.attach = Attach::named(name).unwrap_or_default(),
            },
            default: Value,
            text: "the hosts that a new namespace is attached to: none, until a host attaches it, \
                   or every host that connects, now or later. `\"everyone\"` cannot be combined \
                   with `exclusive`",
        },
        Key {
            name: "managers",
            form: Form::Other("list of NQNs"),
            default: Words("every host that may connect"),
            text: "at most 4096 hosts that may create, delete, attach, detach and format; others \
                   are refused with Operation Denied. An empty list means no host",
        },
        Key {
            name: "quotas",
            form: Form::Other("table of sizes by NQN"),
            default: Words("none"),
            text: "at most 4096: the total capacity of the namespaces that a host has created. \
                   More is refused with Namespace Insufficient Capacity. A host without an entry \
                   has no quota",
        },
        Key {
            name: "serial",
            form: Form::Printable {
                chars_max: limits::SERIAL_CHARS_MAX,
                set: Some(|drive, text| drive.serial = Some(text)),
            },
            default: Words("derived from the NQN"),
            text: "the serial number of its subsystem. If the subsystem has this key, too, the \
                   values must be equal",
        },
        Key {
            name: "model",
            form: Form::Printable {
                chars_max: limits::MODEL_CHARS_MAX,
                set: Some(|drive, text| drive.model = Some(text)),
            },
            default: Words("the subsystem's"),
            text: "the model number of its subsystem, likewise",
        },
        Key {
            name: "endurance",
            form: Form::Size {
                range: 1 << 20..=i64::MAX.unsigned_abs(),
                step: 1,
                set: Some(|drive, bytes| drive.endurance_bytes = Some(bytes)),
            },
            default: Words("that of the profile"),
            text: "bytes that can be written during the drive's life; Percentage Used is relative \
                   to it",
        },
    ];
}

fn set_key_file(drive: &mut ManagedDrive, text: &str) -> Result<(), Refused> {
    if text.is_empty() {
        return Err(Refused {
            message: "`key_file` is empty".into(),
            help: "name a file with 32 bytes or 64 hexadecimal digits, or leave it out",
        });
    }
    drive.key_file = Some(text.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests;
