//! Namespaces, and the checks of Namespace Management (Base, Namespace Management; NVM Command Set,
//! Namespace Management). The formats of their blocks, and where they are attached, are in the
//! folder.

pub mod block_format;
pub mod placement;

use alloc::collections::BTreeSet;
use alloc::string::String;

use ebof_nvme::Status;
use serde::{Deserialize, Serialize};

use crate::request::{DecisionInput, Origin, Refusal};
use crate::stored::{count, hex};

use block_format::{BlockFormat, METADATA_BYTES};

/// The name of a namespace on the medium. It is never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VolumeId(#[serde(deserialize_with = "count::deserialize_last")] pub u64);

/// An LBA format that the drive offers (Identify Namespace, LBAF).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Logical block size as a power of two: 9 or 12.
    pub block_shift: u8,
    /// Metadata of a block, bytes.
    pub metadata_bytes: u16,
}

impl Format {
    /// The format of these blocks on the medium.
    #[must_use]
    pub const fn block_format(self, checked: bool, encrypted: bool) -> BlockFormat {
        BlockFormat { block_shift: self.block_shift, metadata_bytes: self.metadata_bytes, checked, encrypted }
    }
}

/// The LBA formats, in the order in which FLBAS and Format NVM count them.
pub const FORMATS: [Format; 4] = [
    Format { block_shift: 9, metadata_bytes: 0 },
    Format { block_shift: 12, metadata_bytes: 0 },
    Format { block_shift: 9, metadata_bytes: METADATA_BYTES },
    Format { block_shift: 12, metadata_bytes: METADATA_BYTES },
];

/// End-to-end data protection of a namespace (DPS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    /// Protection Information Type: 0 for none, 1 to 3.
    pub kind: u8,
    /// The protection information is in the first bytes of the metadata, else in the last.
    pub first: bool,
}

impl Protection {
    /// The same, without a position if there is no protection information.
    #[must_use]
    pub const fn in_force(self) -> Self {
        if self.kind == 0 { Self { kind: 0, first: false } } else { self }
    }

    /// The field DPS of Identify Namespace.
    #[must_use]
    pub const fn dps(self) -> u8 {
        self.kind | (self.first as u8) << 3
    }
}

/// The parameters of a new namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewNamespace {
    /// Size in blocks (NSZE).
    pub blocks: u64,
    /// Capacity in blocks (NCAP).
    pub capacity_blocks: u64,
    /// Index into [`FORMATS`].
    pub format: u8,
    /// Metadata at the end of each block (FLBAS bit 4).
    pub metadata_extended: bool,
    /// Protection information.
    pub protection: Protection,
    /// Whether more than one controller may have it (NMIC bit 0).
    pub shared: bool,
    /// Its ANA group (ANAGRPID); 0: the first.
    pub ana_group: u32,
}

/// The highest ANA group identifier (ANAGRPMAX): as many as Linux' target has.
pub const ANA_GROUPS_MAX: u32 = 128;

/// The number and format of a namespace's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Size in blocks (NSZE).
    pub blocks: u64,
    /// Capacity in blocks (NCAP): how many may be allocated.
    pub capacity_blocks: u64,
    /// Index into [`FORMATS`].
    pub format: u8,
    /// Protection information.
    #[serde(default)]
    pub protection: Protection,
    /// Blocks have a checksum on the medium.
    #[serde(default)]
    pub checked: bool,
    /// Blocks are encrypted on the medium.
    #[serde(default)]
    pub encrypted: bool,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Its name on the medium.
    #[serde(rename = "instance")]
    pub volume: VolumeId,
    /// Its blocks.
    #[serde(flatten)]
    pub shape: Shape,
    /// Whether more than one host may be attached to it.
    pub shared: bool,
    /// Whether all hosts are attached to it, unknown ones included.
    #[serde(default)]
    pub for_everyone: bool,
    /// NQNs of the hosts that are attached to it.
    #[serde(default)]
    pub hosts: BTreeSet<String>,
    /// The functions that it is attached to.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub functions: BTreeSet<u16>,
    /// NQN of the host that created it; empty for the configuration.
    #[serde(default)]
    pub owner: String,
    /// NGUID; it never changes.
    #[serde(with = "hex")]
    pub nguid: [u8; 16],
    /// EUI-64; it never changes.
    #[serde(with = "hex")]
    pub eui64: [u8; 8],
    /// UUID; it never changes.
    #[serde(with = "hex")]
    pub uuid: [u8; 16],
    /// Write protected by a host (feature 84h).
    #[serde(default)]
    pub write_protected: bool,
    /// Its ANA group, 1 to [`ANA_GROUPS_MAX`].
    #[serde(default = "first_group", skip_serializing_if = "is_first_group")]
    pub ana_group: u32,
}

/// The group of namespaces of which nothing is said.
const fn first_group() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_first_group(group: &u32) -> bool {
    *group == first_group()
}

/// Checks the identifier of a group.
///
/// # Errors
/// ANA Group Identifier Invalid.
pub(crate) fn check_ana_group(group: u32) -> Result<(), Refusal> {
    if group <= ANA_GROUPS_MAX { Ok(()) } else { Err(Refusal::new(Status::ANA_GROUP_INVALID)) }
}

impl NewNamespace {
    /// Checks what does not depend on the drive's state.
    ///
    /// # Errors
    /// The status for the first parameter that is wrong.
    pub fn check(&self) -> Result<Shape, Refusal> {
        let format = check_format(self.format, self.metadata_extended, self.protection)?;
        check_ana_group(self.ana_group)?;
        if self.blocks == 0 || self.capacity_blocks == 0 || self.capacity_blocks > self.blocks {
            return Err(Refusal::new(Status::INVALID_FIELD));
        }
        // Programs that use signed numbers can handle sizes in bytes of up to 63 bits.
        if self.blocks >= 1 << (63 - format.block_shift) {
            return Err(Refusal::new(Status::NAMESPACE_INSUFFICIENT_CAPACITY));
        }
        let Self { blocks, capacity_blocks, format, .. } = *self;
        let protection = self.protection.in_force();
        Ok(Shape { blocks, capacity_blocks, format, protection, checked: false, encrypted: false })
    }
}

/// The LBA format with this index, if it allows these metadata and protection settings.
///
/// # Errors
/// Invalid Format.
pub(crate) fn check_format(index: u8, extended: bool, protection: Protection) -> Result<Format, Refusal> {
    let format = FORMATS.get(usize::from(index)).copied().ok_or(Refusal::new(Status::INVALID_FORMAT))?;
    // Over fabrics metadata has no buffer of its own (NVMe over Fabrics, Metadata); without
    // metadata the setting means nothing.
    let metadata = format.metadata_bytes > 0;
    let fits = if metadata { extended } else { protection.kind == 0 };
    if fits && protection.kind <= 3 { Ok(format) } else { Err(Refusal::new(Status::INVALID_FORMAT)) }
}

impl Shape {
    /// The LBA format in use.
    #[must_use]
    pub fn format(&self) -> Format {
        // A change with a format that this version does not know is not replayed.
        FORMATS[usize::from(self.format) % FORMATS.len()]
    }

    /// The field FLBAS of Identify Namespace: metadata, where there is any, is at the end of each
    /// block.
    #[must_use]
    pub fn flbas(&self) -> u8 {
        self.format | u8::from(self.format().metadata_bytes > 0) << 4
    }

    /// The format of the blocks on the medium.
    #[must_use]
    pub fn block_format(&self) -> BlockFormat {
        self.format().block_format(self.checked, self.encrypted)
    }

    /// Bytes of all blocks, metadata aside.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks << self.format().block_shift
    }
}

impl Namespace {
    pub(crate) fn new(shape: Shape, shared: bool, volume: VolumeId, owner: String, input: &DecisionInput) -> Self {
        let [mut uuid, mut rest] = [[0; 16], [0; 16]];
        uuid.copy_from_slice(&input.entropy[..16]);
        rest.copy_from_slice(&input.entropy[16..]);
        // RFC 9562, version 4 and the variant. The NGUID is the same number, as on most targets.
        uuid[6] = uuid[6] & 0x0f | 0x40;
        uuid[8] = uuid[8] & 0x3f | 0x80;
        let mut eui64 = [0; 8];
        eui64.copy_from_slice(&rest[..8]);
        // A locally administered identifier of one device: no vendor's.
        eui64[0] = eui64[0] & 0xfc | 0x02;
        Self {
            volume,
            shape,
            shared,
            for_everyone: false,
            hosts: BTreeSet::new(),
            functions: BTreeSet::new(),
            owner,
            nguid: uuid,
            eui64,
            uuid,
            write_protected: false,
            ana_group: first_group(),
        }
    }

    /// Whether `host` is attached to it, over the drive's own subsystem.
    #[must_use]
    pub fn is_attached(&self, host: &str) -> bool {
        self.for_everyone || self.hosts.contains(host)
    }

    /// Whether the controller that a command came from is attached to it: that of a function, or
    /// one of a host.
    #[must_use]
    pub fn is_attached_to(&self, origin: &Origin) -> bool {
        match origin.function {
            Some(function) => self.functions.contains(&function.0),
            None => self.is_attached(origin.host.as_str()),
        }
    }
}
