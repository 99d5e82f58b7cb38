//! End-to-end data protection: what a command says of it, and the protection information of a
//! block. What becomes of whole blocks is in `blocks`.
//!
//! NVM Command Set 1.1, "End-to-end Data Protection", "Protection Information Formats".

use zerocopy::byteorder::big_endian;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::Sqe;
use crate::command::opcode::nvm;
use crate::identify::ProtectionType;

pub mod blocks;

pub use blocks::{Bad, INFORMATION_BYTES, Mismatch, Rules};

/// The bits of PRINFO, `BlockRange::prinfo`.
pub mod prinfo {
    /// PRCHK: check the reference tag.
    pub const CHECK_REFERENCE: u8 = 1 << 0;
    /// PRCHK: check the application tag.
    pub const CHECK_APPLICATION: u8 = 1 << 1;
    /// PRCHK: check the guard.
    pub const CHECK_GUARD: u8 = 1 << 2;
    /// PRACT: the controller inserts or strips the protection information.
    pub const ACTION: u8 = 1 << 3;
}

/// Tags that a Read, Write, Compare, Verify or Write Zeroes gives or expects: dwords 2, 3, 14 and
/// 15, and the Storage Tag Check of dword 12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// Storage tag and initial reference tag (LBST and ILBRT, or ELBST and EILBRT), 80 bits: dword
    /// 2 bits 15:0, dword 3, dword 14. The reference tag of 16-bit guards without storage tag is
    /// `reference`.
    pub storage_and_reference: u128,
    /// Application tag (LBAT, ELBAT).
    pub application: u16,
    /// Application tag mask (LBATM, ELBATM).
    pub application_mask: u16,
    /// Storage Tag Check (STC).
    pub check_storage: bool,
}

impl Tags {
    /// From the command.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let upper = u128::from(sqe.cdw2.get() & 0xffff) << 64 | u128::from(sqe.cdw3.get()) << 32;
        let [tag_low, tag_high, mask @ ..] = sqe.cdw15.to_bytes();
        Self {
            storage_and_reference: upper | u128::from(sqe.cdw14.get()),
            application: u16::from_le_bytes([tag_low, tag_high]),
            application_mask: u16::from_le_bytes(mask),
            check_storage: sqe.cdw12.get() & STORAGE_TAG_CHECK != 0,
        }
    }

    /// The low 32 bits of the tags: the reference tag of 16-bit guards without storage tag.
    #[must_use]
    pub const fn reference(self) -> u32 {
        let [a, b, c, d, ..] = self.storage_and_reference.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// Writes the tags into a command, and nothing else of it.
    #[must_use]
    pub fn encode(self, mut sqe: Sqe) -> Sqe {
        let [a, b, c, d, e, f, g, h, i, j, ..] = self.storage_and_reference.to_le_bytes();
        sqe.cdw14 = U32::from_bytes([a, b, c, d]);
        sqe.cdw3 = U32::from_bytes([e, f, g, h]);
        sqe.cdw2 = U32::from_bytes([i, j, 0, 0]);
        sqe.cdw15 = (u32::from(self.application) | u32::from(self.application_mask) << 16).into();
        let check = if self.check_storage { STORAGE_TAG_CHECK } else { 0 };
        sqe.cdw12 = (sqe.cdw12.get() & !STORAGE_TAG_CHECK | check).into();
        sqe
    }
}

/// A command for blocks with protection information of this type as a host sends it that keeps none
/// itself: the controller inserts it, and checks the guard and strips it (PRACT). The reference
/// tags are the blocks' addresses. A command that is none of Read, Write, Write Zeroes and Verify
/// stays as it is, as does every one where there is no such information.
#[must_use]
pub fn left_to_controller(kind: ProtectionType, sqe: Sqe) -> Sqe {
    if kind == ProtectionType::None { sqe } else { left(kind, sqe) }
}

#[cold]
fn left(kind: ProtectionType, mut sqe: Sqe) -> Sqe {
    // Reference tags are not checked: Linux 6.11 to 6.17 inserts others.
    let prinfo = match sqe.opcode {
        nvm::READ => prinfo::ACTION | prinfo::CHECK_GUARD,
        nvm::WRITE | nvm::WRITE_ZEROES => prinfo::ACTION,
        nvm::VERIFY => prinfo::CHECK_GUARD,
        _ => return sqe,
    };
    sqe.cdw12 = (sqe.cdw12.get() & !PRINFO_MASK | u32::from(prinfo) << 26).into();
    if kind != ProtectionType::Type3 {
        sqe.cdw14 = sqe.cdw10;
    }
    sqe
}

/// 16b Guard Protection Information, 8 bytes, big endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Guard16 {
    /// Guard: CRC-16 with polynomial 8BB7h (T10 DIF) of the block.
    pub guard: big_endian::U16,
    /// Application Tag.
    pub application_tag: big_endian::U16,
    /// Storage and Reference Space: the reference tag where there is no storage tag.
    pub reference_tag: big_endian::U32,
}

const _: () = assert!(size_of::<Guard16>() == 8);

impl Guard16 {
    /// Whether nothing of the block is checked: application tag FFFFh, for type 3 the reference tag
    /// FFFFFFFFh as well.
    #[must_use]
    pub fn escapes(&self, kind: ProtectionType) -> bool {
        self.application_tag.get() == u16::MAX
            && (kind != ProtectionType::Type3 || self.reference_tag.get() == u32::MAX)
    }
}

/// 32b Guard Protection Information, 16 bytes, big endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Guard32 {
    /// Guard: CRC-32C of the block.
    pub guard: big_endian::U32,
    /// Application Tag.
    pub application_tag: big_endian::U16,
    /// Storage and Reference Space, 80 bits.
    pub storage_and_reference: [u8; 10],
}

const _: () = assert!(size_of::<Guard32>() == 16);

/// 64b Guard Protection Information, 16 bytes, big endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Guard64 {
    /// Guard: CRC-64 (NVMe) of the block.
    pub guard: big_endian::U64,
    /// Application Tag.
    pub application_tag: big_endian::U16,
    /// Storage and Reference Space, 48 bits.
    pub storage_and_reference: [u8; 6],
}

const _: () = assert!(size_of::<Guard64>() == 16);

/// PRINFO, bits 29:26 of dword 12.
const PRINFO_MASK: u32 = 0xf << 26;

/// STC, bit 24 of dword 12.
const STORAGE_TAG_CHECK: u32 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::opcode::nvm;
    use crate::io::BlockRange;
    use crate::name::id::Nsid;
    use proptest::prelude::*;

    #[test]
    fn tags_have_the_layout_of_the_specification() {
        let tags = Tags {
            storage_and_reference: 0x0102_0304_0506_0708_090a,
            application: 0x0b0c,
            application_mask: 0x0d0e,
            check_storage: true,
        };
        let sqe = tags.encode(BlockRange::new(1, 1).encode(nvm::WRITE, Nsid(1)));
        let dwords = [sqe.cdw2, sqe.cdw3, sqe.cdw12, sqe.cdw14, sqe.cdw15].map(|dword| dword.get());
        assert_eq!(dwords, [0x0102, 0x0304_0506, 1 << 24, 0x0708_090a, 0x0d0e_0b0c]);
        assert_eq!((Tags::decode(&sqe), tags.reference()), (tags, 0x0708_090a));
        assert_eq!(BlockRange::decode(&sqe), BlockRange::new(1, 1));
    }

    #[test]
    fn a_host_without_protection_information_sets_pract() {
        let range = BlockRange { fua: true, ..BlockRange::new(0x1_0000_0005, 8) };
        for (opcode, prinfo) in [(nvm::READ, 0xc), (nvm::WRITE, 8), (nvm::WRITE_ZEROES, 8), (nvm::VERIFY, 4)] {
            let sqe = range.encode(opcode, Nsid(1));
            assert_eq!(left_to_controller(ProtectionType::None, sqe), sqe);
            for (kind, reference) in
                [(ProtectionType::Type1, 5), (ProtectionType::Type2, 5), (ProtectionType::Type3, 0)]
            {
                let left = left_to_controller(kind, sqe);
                assert_eq!(BlockRange::decode(&left), BlockRange { prinfo, ..range });
                assert_eq!((Tags::decode(&left).reference(), left.opcode), (reference, opcode));
            }
        }
        let flush = Sqe::new(nvm::FLUSH).with_nsid(Nsid(1));
        assert_eq!(left_to_controller(ProtectionType::Type1, flush), flush);
    }

    #[test]
    fn protection_information_is_big_endian_and_may_disable_checks() {
        let mut info = Guard16 { guard: 0x0102.into(), application_tag: 0xffff.into(), reference_tag: 3.into() };
        assert_eq!(info.as_bytes(), [1, 2, 0xff, 0xff, 0, 0, 0, 3]);
        assert!(info.escapes(ProtectionType::Type1) && !info.escapes(ProtectionType::Type3));
        info.reference_tag = u32::MAX.into();
        assert!(info.escapes(ProtectionType::Type3));
        info.application_tag = 0.into();
        assert!(!info.escapes(ProtectionType::Type2));
    }

    proptest! {
        #[test]
        fn tags_round_trip(low in any::<u128>(), application: u16, application_mask: u16, check_storage: bool) {
            let tags = Tags { storage_and_reference: low >> 48, application, application_mask, check_storage };
            prop_assert_eq!(Tags::decode(&tags.encode(Sqe::new(1))), tags);
        }
    }
}
