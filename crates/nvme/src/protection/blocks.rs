//! Blocks with 16b Guard Protection Information behind their data: the guard, and what a command
//! has checked, inserted or stripped. Where the blocks come from and go to is the caller's
//! business.
//!
//! ```text
//! data of block 0 | its 8 bytes | data of block 1 | its 8 bytes | ...
//! ```
//! With no more metadata than that, the first bytes of the metadata are the last ones as well, and
//! the guard covers the data alone.

use core::fmt;

use crc_fast::CrcAlgorithm;
use zerocopy::FromBytes;

use super::{Guard16, Tags, prinfo};
use crate::command::status::Status;
use crate::identify::ProtectionType;

/// Bytes of the protection information of a block.
pub const INFORMATION_BYTES: usize = size_of::<Guard16>();

/// The guard of a block's data: CRC-16/T10-DIF (NVM Command Set 1.1, "16b Guard Protection
/// Information").
#[inline]
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "a 16-bit CRC in a 64-bit return value")]
pub fn guard(data: &[u8]) -> u16 {
    crc_fast::checksum(CrcAlgorithm::Crc16T10Dif, data) as u16
}

/// What a command wants of the protection information of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    kind: ProtectionType,
    prinfo: u8,
    /// Reference tag of the first block.
    reference: u32,
    application: u16,
    application_mask: u16,
}

/// What is wrong with the protection information of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The guard is not that of the data.
    Guard,
    /// The application tag is not the expected one, as far as its mask goes.
    Application,
    /// The reference tag is not the expected one.
    Reference,
}

/// The first block whose protection information is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Its number, from 0.
    pub block: u64,
    /// What is wrong.
    pub mismatch: Mismatch,
}

impl Rules {
    /// The rules of a command with these tags that begins at `slba`, for blocks formatted with
    /// `kind`.
    ///
    /// Type 1 counts its reference tags by the blocks' addresses, whatever a command says that does
    /// not have them checked.
    ///
    /// # Errors
    /// Invalid Protection Information: the reference tag is to be checked, and is not that of type
    /// 1, or there is none to check (type 3); or there is no protection information at all, and
    /// something is wanted of it.
    pub fn new(kind: ProtectionType, prinfo: u8, slba: u64, tags: &Tags) -> Result<Self, Status> {
        let checks_reference = prinfo & prinfo::CHECK_REFERENCE != 0;
        let [a, b, c, d, ..] = slba.to_le_bytes();
        let of_address = u32::from_le_bytes([a, b, c, d]);
        let (legal, reference) = match kind {
            // NVM Command Set, Reference Tag: the initial one is the least significant bits of
            // SLBA.
            //
            // Deviation: Linux 6.11 to 6.17 has type 1 inserted (PRACT) with an initial reference
            // tag of 0 wherever it writes. Blocks with such tags would fail every later check, so
            // those of type 1 are inserted instead of refusing.
            ProtectionType::Type1 => (!checks_reference || tags.reference() == of_address, of_address),
            ProtectionType::Type2 => (true, tags.reference()),
            ProtectionType::Type3 => (!checks_reference, tags.reference()),
            ProtectionType::None | ProtectionType::Reserved(_) => (prinfo == 0, 0),
        };
        let Tags { application, application_mask, .. } = *tags;
        let rules = Self { kind, prinfo, reference, application, application_mask };
        if legal { Ok(rules) } else { Err(Status::INVALID_PROTECTION_INFORMATION) }
    }

    /// The same for what comes `blocks` blocks later.
    #[must_use]
    pub fn after(self, blocks: u64) -> Self {
        Self { reference: self.reference_of(blocks), ..self }
    }

    /// Whether the controller inserts or strips the protection information (PRACT).
    #[must_use]
    pub const fn acts(&self) -> bool {
        self.prinfo & prinfo::ACTION != 0
    }

    /// Whether anything is checked (PRCHK).
    #[must_use]
    pub const fn checks(&self) -> bool {
        self.prinfo & !prinfo::ACTION != 0
    }

    /// Checks blocks of `data_bytes` bytes and their protection information, as far as the rules
    /// want it.
    ///
    /// # Errors
    /// The first that is wrong; of its errors the guard's comes first, then the application tag's.
    pub fn check(&self, blocks: &[u8], data_bytes: usize) -> Result<(), Bad> {
        if !self.checks() {
            return Ok(());
        }
        for (block, bytes) in (0..).zip(blocks.chunks_exact(data_bytes + INFORMATION_BYTES)) {
            let (data, information) = bytes.split_at(data_bytes);
            let Ok(information) = Guard16::ref_from_bytes(information) else { continue };
            if let Some(mismatch) = self.mismatch(block, data, information) {
                return Err(Bad { block, mismatch });
            }
        }
        Ok(())
    }

    /// What is wrong with the block of this number.
    fn mismatch(&self, block: u64, data: &[u8], information: &Guard16) -> Option<Mismatch> {
        if information.escapes(self.kind) {
            return None;
        }
        let checks = |bit| self.prinfo & bit != 0;
        let other = (information.application_tag.get() ^ self.application) & self.application_mask;
        if checks(prinfo::CHECK_GUARD) && information.guard.get() != guard(data) {
            Some(Mismatch::Guard)
        } else if checks(prinfo::CHECK_APPLICATION) && other != 0 {
            Some(Mismatch::Application)
        } else if checks(prinfo::CHECK_REFERENCE) && information.reference_tag.get() != self.reference_of(block) {
            Some(Mismatch::Reference)
        } else {
            None
        }
    }

    /// Writes the protection information of blocks of `data_bytes` bytes of data.
    pub fn insert(&self, blocks: &mut [u8], data_bytes: usize) {
        for (block, bytes) in (0..).zip(blocks.chunks_exact_mut(data_bytes + INFORMATION_BYTES)) {
            let (data, information) = bytes.split_at_mut(data_bytes);
            if let Ok(information) = Guard16::mut_from_bytes(information) {
                *information = self.information(block, guard(data));
            }
        }
    }

    /// Writes blocks whose data are zeros: as a Write Zeroes leaves them, with protection
    /// information where the controller is to make it (PRACT), else with zeros for it.
    pub fn write_zeroes(&self, blocks: &mut [u8], data_bytes: usize) {
        blocks.fill(0);
        if self.acts() {
            // The guard of zeros is 0.
            for (block, bytes) in (0..).zip(blocks.chunks_exact_mut(data_bytes + INFORMATION_BYTES)) {
                if let Ok(information) = Guard16::mut_from_bytes(&mut bytes[data_bytes..]) {
                    *information = self.information(block, 0);
                }
            }
        }
    }

    fn information(&self, block: u64, guard: u16) -> Guard16 {
        Guard16 {
            guard: guard.into(),
            application_tag: self.application.into(),
            reference_tag: self.reference_of(block).into(),
        }
    }

    /// The reference tag of the block of this number; that of type 3 is the same for all.
    fn reference_of(&self, block: u64) -> u32 {
        if self.kind == ProtectionType::Type3 {
            return self.reference;
        }
        let [a, b, c, d, ..] = block.to_le_bytes();
        self.reference.wrapping_add(u32::from_le_bytes([a, b, c, d]))
    }
}

/// Moves the data of blocks together, over their protection information. Returns how many bytes
/// they are now, at the beginning of `blocks`.
pub fn strip(blocks: &mut [u8], data_bytes: usize) -> usize {
    let count = blocks.len() / (data_bytes + INFORMATION_BYTES);
    for block in 1..count {
        let from = block * (data_bytes + INFORMATION_BYTES);
        blocks.copy_within(from..from + data_bytes, block * data_bytes);
    }
    count * data_bytes
}

/// Moves the data at the beginning of `blocks` apart, so that there is room for the protection
/// information of each: the opposite of [`strip`]. What stands in that room is not specified.
pub fn spread(blocks: &mut [u8], data_bytes: usize) {
    let count = blocks.len() / (data_bytes + INFORMATION_BYTES);
    for block in (1..count).rev() {
        let from = block * data_bytes;
        blocks.copy_within(from..from + data_bytes, block * (data_bytes + INFORMATION_BYTES));
    }
}

/// Whether the data of blocks are the same, whatever their protection information.
#[must_use]
pub fn same_data(one: &[u8], other: &[u8], data_bytes: usize) -> bool {
    let block_bytes = data_bytes + INFORMATION_BYTES;
    let mut blocks = one.chunks_exact(block_bytes).zip(other.chunks_exact(block_bytes));
    one.len() == other.len() && blocks.all(|(a, b)| a[..data_bytes] == b[..data_bytes])
}

impl Mismatch {
    /// The status of a command that found it.
    #[must_use]
    pub const fn status(self) -> Status {
        match self {
            Self::Guard => Status::GUARD_CHECK_ERROR,
            Self::Application => Status::APPLICATION_TAG_CHECK_ERROR,
            Self::Reference => Status::REFERENCE_TAG_CHECK_ERROR,
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Guard => "the guard is not that of the data",
            Self::Application => "another application tag than expected",
            Self::Reference => "another reference tag than expected",
        })
    }
}

#[cfg(test)]
mod tests;
