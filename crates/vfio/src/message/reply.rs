//! Replies: what a command is answered with, appended to the bytes that are to be sent.

use alloc::vec::Vec;

use super::HEADER_BYTES;
use super::command::DmaUnmap;
use super::version::{MAJOR, MINOR_MAX, Proposal, answer};
use crate::errno::Errno;

/// What a command has to be answered to. Each is answered once, by one of its methods; a client may
/// have asked for no answer, and gets none then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the client waits for the answer"]
pub struct Call {
    id: u16,
    command: u16,
    no_reply: bool,
}

/// What DEVICE_GET_REGION_INFO says about a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo<'a> {
    /// Number of the region.
    pub index: u32,
    /// Bytes; 0 if there is no such region.
    pub size: u64,
    /// It can be read and written by messages.
    pub is_accessible: bool,
    /// Parts of it that a client may map, from the file whose descriptor comes with the reply, at
    /// the same offsets as in the region. At most [`AREAS_MAX`](Self::AREAS_MAX).
    pub areas: &'a [Area],
}

/// A part of a region: whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

impl RegionInfo<'_> {
    /// Areas of a region at most.
    pub const AREAS_MAX: usize = 8;

    const BYTES: u32 = 32;

    /// Bytes of the whole answer, without the header.
    fn bytes(&self) -> u32 {
        match u32::try_from(self.areas.len()).expect("at most AREAS_MAX") {
            0 => Self::BYTES,
            // Capability header, number of areas and a reserved field.
            areas => Self::BYTES + 16 + 16 * areas,
        }
    }
}

const REPLY: u32 = 1;
const ERROR: u32 = 1 << 5;

impl Call {
    pub(super) const fn new(id: u16, command: u16, no_reply: bool) -> Self {
        Self { id, command, no_reply }
    }

    /// The number of the command, for logs.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.command
    }

    /// Whether the client waits for an answer.
    #[must_use]
    pub const fn wants_reply(&self) -> bool {
        !self.no_reply
    }

    /// The command succeeded and has no result: DMA_MAP, DEVICE_SET_IRQS, DEVICE_RESET.
    #[inline]
    pub fn succeed(self, out: &mut Vec<u8>) {
        self.header(0, out);
    }

    /// The command is refused or has failed.
    pub fn refuse(self, errno: Errno, out: &mut Vec<u8>) {
        if self.no_reply {
            return;
        }
        self.raw_header(0, REPLY | ERROR, errno.0, out);
    }

    /// VERSION: what was agreed on.
    pub fn agree(self, proposal: &Proposal, out: &mut Vec<u8>) {
        let text = answer();
        if self.header(4 + text.len() + 1, out) {
            out.extend_from_slice(&MAJOR.to_le_bytes());
            out.extend_from_slice(&proposal.minor.min(MINOR_MAX).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
            out.push(0);
        }
    }

    /// DMA_UNMAP: what is not mapped any more.
    pub fn unmapped(self, unmap: &DmaUnmap, out: &mut Vec<u8>) {
        let (flags, address, size) = match *unmap {
            DmaUnmap::Range { address, size } => (0, address, size),
            DmaUnmap::All => (DmaUnmap::ALL, 0, 0),
        };
        if self.header(24, out) {
            numbers(&[24, flags], out);
            out.extend_from_slice(&address.to_le_bytes());
            out.extend_from_slice(&size.to_le_bytes());
        }
    }

    /// DEVICE_GET_INFO: a PCI device that can be reset.
    pub fn device_info(self, regions: u32, interrupts: u32, out: &mut Vec<u8>) {
        const RESET: u32 = 1;
        const PCI: u32 = 2;
        if self.header(16, out) {
            numbers(&[16, RESET | PCI, regions, interrupts], out);
        }
    }

    /// DEVICE_GET_REGION_INFO. `room` is the command's: areas are left out where it does not
    /// suffice, and the answer says how much would. Returns whether the descriptor of the file with
    /// the areas has to be sent with this reply.
    pub fn region_info(self, room: u32, info: &RegionInfo<'_>, out: &mut Vec<u8>) -> bool {
        const ACCESS: u32 = 1 | 2;
        const MAP: u32 = 4;
        const CAPABILITIES: u32 = 8;
        const SPARSE_MAP: u32 = 1;
        let needed = info.bytes();
        let has_areas = needed > RegionInfo::BYTES;
        let fits = has_areas && room >= needed;
        let length = if fits { needed } else { RegionInfo::BYTES };
        if !self.header(length as usize, out) {
            return false;
        }
        let access = if info.is_accessible { ACCESS } else { 0 };
        // QEMU refuses a reply that announces capabilities without an offset: they are announced
        // only where they fit.
        let flags = access | if has_areas { MAP } else { 0 } | if fits { CAPABILITIES } else { 0 };
        numbers(&[needed, flags, info.index, if fits { RegionInfo::BYTES } else { 0 }], out);
        out.extend_from_slice(&info.size.to_le_bytes());
        // The offset in the file.
        out.extend_from_slice(&0_u64.to_le_bytes());
        if fits {
            // Identifier and version, the next capability: none, areas, reserved.
            numbers(&[SPARSE_MAP | 1 << 16, 0, (needed - RegionInfo::BYTES - 16) / 16, 0], out);
            for area in info.areas {
                out.extend_from_slice(&area.offset.to_le_bytes());
                out.extend_from_slice(&area.size.to_le_bytes());
            }
        }
        fits
    }

    /// DEVICE_GET_IRQ_INFO: how many interrupts of the kind `index` there are.
    pub fn interrupt_info(self, index: u32, count: u32, out: &mut Vec<u8>) {
        const EVENTFD: u32 = 1;
        const NO_RESIZE: u32 = 8;
        if self.header(16, out) {
            let flags = if count > 0 { EVENTFD | NO_RESIZE } else { 0 };
            numbers(&[16, flags, index, count], out);
        }
    }

    /// REGION_READ: room for the `count` bytes that were read, to be filled; `None` where the
    /// client wants no answer.
    pub fn read(self, region: u32, offset: u64, count: u32, out: &mut Vec<u8>) -> Option<&mut [u8]> {
        if !self.access(region, offset, count, count as usize, out) {
            return None;
        }
        let at = out.len();
        out.resize(at + count as usize, 0);
        Some(&mut out[at..])
    }

    /// REGION_WRITE: `count` bytes were written.
    #[inline]
    pub fn written(self, region: u32, offset: u64, count: u32, out: &mut Vec<u8>) {
        self.access(region, offset, count, 0, out);
    }

    #[inline]
    fn access(&self, region: u32, offset: u64, count: u32, data: usize, out: &mut Vec<u8>) -> bool {
        let wanted = self.header(16 + data, out);
        if wanted {
            out.extend_from_slice(&offset.to_le_bytes());
            numbers(&[region, count], out);
        }
        wanted
    }

    /// The header of a reply with `length` bytes behind it. `false`: the client wants none.
    #[inline]
    fn header(&self, length: usize, out: &mut Vec<u8>) -> bool {
        if !self.no_reply {
            self.raw_header(length, REPLY, 0, out);
        }
        !self.no_reply
    }

    fn raw_header(&self, length: usize, flags: u32, error: u32, out: &mut Vec<u8>) {
        let size = u32::try_from(HEADER_BYTES + length).expect("replies have a few kilobytes at most");
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.command.to_le_bytes());
        numbers(&[size, flags, error], out);
    }
}

fn numbers(numbers: &[u32], out: &mut Vec<u8>) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}
