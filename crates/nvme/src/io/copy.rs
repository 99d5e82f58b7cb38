//! Copy: its dwords and the source range entries of its four descriptor formats. What may be copied
//! where is decided elsewhere.
//!
//! NVM Command Set 1.1, "Copy command".

use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::Sqe;
use crate::command::opcode::nvm;
use crate::name::id::Nsid;

/// Copy, dwords 10 to 15: where to copy to. The data is the source range entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copy {
    /// Starting Destination LBA (SDLBA).
    pub slba: u64,
    /// Number of Ranges (NR), 1 to 256.
    pub ranges: u16,
    /// Descriptor Format (DF), 0 to 15: `CopyFormat::decode`.
    pub format: u8,
    /// Protection information fields for the sources (PRINFOR), as in `io::protection`.
    pub read_protection: u8,
    /// Protection information fields for the destination (PRINFOW), as in `io::protection`.
    pub write_protection: u8,
    /// Storage Tag Check Write (STCW).
    pub storage_tag_check_write: bool,
    /// Storage Tag Check Read (STCR).
    pub storage_tag_check_read: bool,
    /// Directive Type (DTYPE).
    pub directive: u8,
    /// Directive Specific (DSPEC).
    pub directive_specific: u16,
    /// Force Unit Access.
    pub fua: bool,
    /// Limited Retry.
    pub limited_retry: bool,
    /// Initial Logical Block Reference Tag (ILBRT) of the destination, the low 32 bits.
    pub reference_tag: u32,
    /// Logical Block Application Tag (LBAT) of the destination.
    pub application_tag: u16,
    /// Logical Block Application Tag Mask (LBATM).
    pub application_mask: u16,
}

impl Copy {
    /// Decodes dwords 10 to 15.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let [nr, format_and_read, flags, high] = sqe.cdw12.to_bytes();
        let [_, _, dspec @ ..] = sqe.cdw13.to_bytes();
        let [tag_low, tag_high, mask @ ..] = sqe.cdw15.to_bytes();
        Self {
            slba: u64::from(sqe.cdw10.get()) | u64::from(sqe.cdw11.get()) << 32,
            ranges: u16::from(nr) + 1,
            format: format_and_read & 0x0f,
            read_protection: format_and_read >> 4,
            directive: flags >> 4,
            write_protection: high >> 2 & 0x0f,
            storage_tag_check_write: high & 1 != 0,
            storage_tag_check_read: high & 2 != 0,
            fua: high & 0x40 != 0,
            limited_retry: high & 0x80 != 0,
            directive_specific: u16::from_le_bytes(dspec),
            reference_tag: sqe.cdw14.get(),
            application_tag: u16::from_le_bytes([tag_low, tag_high]),
            application_mask: u16::from_le_bytes(mask),
        }
    }

    /// The command for the destination `nsid`; `ranges` of 0 or above 256 are cut to what the field
    /// holds.
    #[must_use]
    pub fn encode(&self, nsid: Nsid) -> Sqe {
        let [a, b, c, d, e, f, g, h] = self.slba.to_le_bytes();
        let [nr, _] = (self.ranges.clamp(1, 256) - 1).to_le_bytes();
        let high = u8::from(self.storage_tag_check_write)
            | u8::from(self.storage_tag_check_read) << 1
            | (self.write_protection & 0x0f) << 2
            | u8::from(self.fua) << 6
            | u8::from(self.limited_retry) << 7;
        let second = self.format & 0x0f | self.read_protection << 4;
        Sqe::new(nvm::COPY)
            .with_nsid(nsid)
            .with_cdw(10, u32::from_le_bytes([a, b, c, d]))
            .with_cdw(11, u32::from_le_bytes([e, f, g, h]))
            .with_cdw(12, u32::from_le_bytes([nr, second, self.directive << 4, high]))
            .with_cdw(13, u32::from(self.directive_specific) << 16)
            .with_cdw(14, self.reference_tag)
            .with_cdw(15, u32::from(self.application_tag) | u32::from(self.application_mask) << 16)
    }
}

/// Descriptor Format of Copy: how long a source range entry is and what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyFormat {
    /// 0h: 32 bytes; the namespace itself, 16-bit guards.
    Format0,
    /// 1h: 40 bytes; the namespace itself, 32-bit and 64-bit guards.
    Format1,
    /// 2h: 32 bytes; any namespace, 16-bit guards.
    Format2,
    /// 3h: 40 bytes; any namespace, 32-bit and 64-bit guards.
    Format3,
}

impl CopyFormat {
    /// From DF; `None` for what no specification names.
    #[must_use]
    pub const fn decode(df: u8) -> Option<Self> {
        Some(match df {
            0 => Self::Format0,
            1 => Self::Format1,
            2 => Self::Format2,
            3 => Self::Format3,
            _ => return None,
        })
    }

    /// To DF.
    #[must_use]
    pub const fn encode(self) -> u8 {
        match self {
            Self::Format0 => 0,
            Self::Format1 => 1,
            Self::Format2 => 2,
            Self::Format3 => 3,
        }
    }

    /// Length of a source range entry, bytes.
    #[must_use]
    pub const fn entry_bytes(self) -> usize {
        if self.has_long_tags() { size_of::<LongEntry>() } else { size_of::<ShortEntry>() }
    }

    /// Whether entries name their namespace (2h and 3h); a host says in Host Behavior Support that
    /// it uses such.
    #[must_use]
    pub const fn names_namespace(self) -> bool {
        matches!(self, Self::Format2 | Self::Format3)
    }

    /// Whether entries have the tags of 32-bit and 64-bit guards (1h and 3h).
    #[must_use]
    pub const fn has_long_tags(self) -> bool {
        matches!(self, Self::Format1 | Self::Format3)
    }
}

/// A source range, in any format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopySource {
    /// Source namespace (SNSID); `Nsid::NONE` in formats that have none: that of the command.
    pub nsid: Nsid,
    /// Starting LBA.
    pub slba: u64,
    /// Number of logical blocks, 1 to 65536.
    pub blocks: u32,
    /// Fast Copy Only (FCO): rather fail than be slow; of formats 2h and 3h.
    pub fast_only: bool,
    /// Expected Initial Logical Block Reference Tag and storage tag: the last 4 bytes in formats 0h
    /// and 2h, 10 in the others, as on the wire.
    pub expected_tags: [u8; 10],
    /// Expected Logical Block Application Tag (ELBAT).
    pub application_tag: u16,
    /// Expected Logical Block Application Tag Mask (ELBATM).
    pub application_mask: u16,
}

impl CopySource {
    /// Plain blocks of the namespace that the command names.
    #[must_use]
    pub fn new(slba: u64, blocks: u32) -> Self {
        Self { slba, blocks, ..Self::default() }
    }

    /// The expected reference tag of formats 0h and 2h (EILBRT).
    #[must_use]
    pub const fn reference_tag(&self) -> u32 {
        let [.., a, b, c, d] = self.expected_tags;
        u32::from_le_bytes([a, b, c, d])
    }

    /// Sets the expected reference tag of formats 0h and 2h (EILBRT).
    pub fn set_reference_tag(&mut self, tag: u32) {
        self.expected_tags[6..].copy_from_slice(&tag.to_le_bytes());
    }

    /// Reads the entries that `data` holds whole; what is behind the last whole one is left out.
    #[must_use]
    pub fn decode_all(format: CopyFormat, data: &[u8]) -> Vec<Self> {
        let entries = data.chunks_exact(format.entry_bytes());
        entries.filter_map(|entry| Self::decode(format, entry)).collect()
    }

    /// Reads one entry; `None` where `data` is shorter than it.
    #[must_use]
    pub fn decode(format: CopyFormat, data: &[u8]) -> Option<Self> {
        let (head, application_tag, application_mask, expected_tags) = if format.has_long_tags() {
            let (entry, _) = LongEntry::read_from_prefix(data).ok()?;
            (entry.head, entry.elbat, entry.elbatm, entry.elbt)
        } else {
            let (entry, _) = ShortEntry::read_from_prefix(data).ok()?;
            let mut tags = [0; 10];
            tags[6..].copy_from_slice(&entry.eilbrt.to_bytes());
            (entry.head, entry.elbat, entry.elbatm, tags)
        };
        Some(Self {
            nsid: if format.names_namespace() { Nsid(head.snsid.get()) } else { Nsid::NONE },
            slba: head.slba.get(),
            blocks: u32::from(head.nlb.get()) + 1,
            fast_only: format.names_namespace() && head.sopt.get() & FAST_COPY_ONLY != 0,
            expected_tags,
            application_tag: application_tag.get(),
            application_mask: application_mask.get(),
        })
    }

    /// Appends the entry to `out`. What the format has no place for is left out, `blocks` of 0 or
    /// above 65536 cut.
    pub fn encode(&self, format: CopyFormat, out: &mut Vec<u8>) {
        let head = EntryHead {
            snsid: if format.names_namespace() { self.nsid.0.into() } else { U32::ZERO },
            slba: self.slba.into(),
            nlb: u16::try_from(self.blocks.saturating_sub(1)).unwrap_or(u16::MAX).into(),
            sopt: if format.names_namespace() && self.fast_only { FAST_COPY_ONLY.into() } else { U16::ZERO },
            ..EntryHead::default()
        };
        let elbat = self.application_tag.into();
        let elbatm = self.application_mask.into();
        if format.has_long_tags() {
            let entry = LongEntry { head, rsvd24: [0; 2], elbt: self.expected_tags, elbat, elbatm };
            out.extend_from_slice(entry.as_bytes());
        } else {
            let entry = ShortEntry { head, eilbrt: self.reference_tag().into(), elbat, elbatm };
            out.extend_from_slice(entry.as_bytes());
        }
    }
}

/// The first 24 bytes of a source range entry; SNSID and SOPT are reserved in formats 0h and 1h.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct EntryHead {
    snsid: U32,
    rsvd4: [u8; 4],
    slba: U64,
    nlb: U16,
    rsvd18: [u8; 4],
    sopt: U16,
}

const _: () = assert!(size_of::<EntryHead>() == 24);

/// Source range entry of formats 0h and 2h.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ShortEntry {
    head: EntryHead,
    eilbrt: U32,
    elbat: U16,
    elbatm: U16,
}

const _: () = assert!(size_of::<ShortEntry>() == 32);

/// Source range entry of formats 1h and 3h.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct LongEntry {
    head: EntryHead,
    rsvd24: [u8; 2],
    elbt: [u8; 10],
    elbat: U16,
    elbatm: U16,
}

const _: () = assert!(size_of::<LongEntry>() == 40);

/// Fast Copy Only, bit 15 of SOPT.
const FAST_COPY_ONLY: u16 = 1 << 15;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_command_has_the_layout_of_the_specification() {
        let copy = Copy {
            slba: 0x1_0000_0002,
            ranges: 3,
            format: 2,
            read_protection: 0x5,
            write_protection: 0xa,
            storage_tag_check_write: true,
            directive: 1,
            directive_specific: 0x0203,
            fua: true,
            reference_tag: 0x0405_0607,
            application_tag: 0x0809,
            application_mask: 0x0a0b,
            ..Copy::default()
        };
        let sqe = copy.encode(Nsid(4));
        let dwords = [sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15].map(|dword| dword.get());
        assert_eq!(dwords, [2, 1, 0x6910_5202, 0x0203_0000, 0x0405_0607, 0x0a0b_0809]);
        assert_eq!((sqe.opcode, Copy::decode(&sqe)), (0x19, copy));
    }

    #[test]
    fn entries_have_the_layout_of_the_specification() {
        let mut source = CopySource {
            nsid: Nsid(0x0102),
            slba: 0x0304,
            blocks: 0x0506,
            fast_only: true,
            application_tag: 0x0708,
            application_mask: 0x090a,
            ..CopySource::default()
        };
        source.set_reference_tag(0x0b0c_0d0e);
        let bytes = |format| {
            let mut out = Vec::new();
            source.encode(format, &mut out);
            assert_eq!(out.len(), CopyFormat::entry_bytes(format));
            out
        };
        let short = bytes(CopyFormat::Format2);
        assert_eq!(short[..8], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(short[8..24], [4, 3, 0, 0, 0, 0, 0, 0, 5, 5, 0, 0, 0, 0, 0, 0x80]);
        assert_eq!(short[24..], [0x0e, 0x0d, 0x0c, 0x0b, 8, 7, 0x0a, 9]);
        let long = bytes(CopyFormat::Format3);
        assert_eq!(long[24..], [0, 0, 0, 0, 0, 0, 0, 0, 0x0e, 0x0d, 0x0c, 0x0b, 8, 7, 0x0a, 9]);
        let own = bytes(CopyFormat::Format0);
        assert_eq!((&own[..4], &own[22..24]), (&[0; 4][..], &[0; 2][..]));
        assert_eq!(CopySource::decode(CopyFormat::Format0, &own).unwrap().nsid, Nsid::NONE);
        assert_eq!(CopySource::decode(CopyFormat::Format3, &long[..39]), None);
        assert_eq!(CopySource::decode_all(CopyFormat::Format2, &[short.as_slice(), &short[..31]].concat()), [source]);
        assert_eq!(CopyFormat::decode(4), None);
    }

    proptest! {
        #[test]
        fn commands_round_trip(dwords in any::<[u32; 6]>()) {
            let mut sqe = Sqe::new(nvm::COPY).with_nsid(Nsid(1));
            for (at, dword) in (10..).zip(dwords) {
                sqe = sqe.with_cdw(at, dword);
            }
            let again = Copy::decode(&sqe).encode(Nsid(1));
            prop_assert_eq!(again.cdw12.get(), dwords[2] & 0xfff0_ffff);
            prop_assert_eq!(again.cdw13.get(), dwords[3] & 0xffff_0000);
            prop_assert_eq!((again.cdw10, again.cdw11, again.cdw14, again.cdw15),
                (sqe.cdw10, sqe.cdw11, sqe.cdw14, sqe.cdw15));
        }

        #[test]
        fn entries_round_trip(bytes in any::<[u8; 32]>(), more in any::<[u8; 8]>(), df in 0u8..4) {
            let format = CopyFormat::decode(df).unwrap();
            let data = [bytes.as_slice(), &more].concat();
            let source = CopySource::decode(format, &data).unwrap();
            let mut out = Vec::new();
            source.encode(format, &mut out);
            prop_assert_eq!(CopySource::decode(format, &out), Some(source));
        }
    }
}
