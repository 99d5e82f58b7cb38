//! From a command's data pointer to the pieces of the host's memory that it describes: PRP entries
//! and lists, and SGLs (Base, Physical Region Page Entry and List, Scatter Gather List).
//!
//! The host may describe circles, and change what it described while it is read. So a walk reads
//! each entry once and no more of them than the transfer can need, and what it returns is a copy.

use alloc::vec::Vec;

use ebof_nvme::sgl::SglDescriptor;
use ebof_nvme::{DataLocation, DataPointer, Status};
use zerocopy::FromBytes;

use crate::memory::Memory;

/// Descriptors of an SGL at most, those that point to segments among them.
pub const DESCRIPTORS_MAX: u32 = 1024;

/// A piece of the host's memory. Its end is below 2^64, and it is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Address of the host.
    pub address: u64,
    /// Bytes.
    pub length: u32,
}

/// The pieces for a transfer of `length` bytes, in order, appended to `pieces`; adjacent ones are
/// one. `page_bytes` is what CC.MPS says, a power of two. Whether the pieces are memory is not
/// checked, except for those that hold lists.
///
/// # Errors
/// The status that the command ends with; `pieces` is then undefined.
#[inline]
pub fn walk(
    pointer: &DataPointer,
    length: u32,
    page_bytes: u32,
    memory: &impl Memory,
    pieces: &mut Vec<Piece>,
) -> Result<(), Status> {
    if length == 0 {
        return Ok(());
    }
    let mut walk = Walk { left: length, pieces };
    match (pointer.decode(), pointer.descriptor()) {
        (DataLocation::Prp { first, second }, _) => walk.prps(first, second, page_bytes.into(), memory),
        (DataLocation::Sgl(_), Some(descriptor)) => walk.sgl(&descriptor, memory),
        (DataLocation::Sgl(_), None) => Err(Status::SGL_TYPE_INVALID.dnr()),
    }
}

struct Walk<'a> {
    /// Bytes that have no piece yet.
    left: u32,
    pieces: &'a mut Vec<Piece>,
}

/// Bytes of a list that are copied at a time.
const COPY_BYTES: usize = 512;
/// Bytes of an entry of a PRP list.
const ENTRY_BYTES: u64 = 8;

impl Walk<'_> {
    #[inline]
    fn push(&mut self, address: u64, length: u32) -> Result<(), Status> {
        if address.checked_add(length.into()).is_none() {
            return Err(Status::DATA_TRANSFER_ERROR.dnr());
        }
        debug_assert!(0 < length && length <= self.left, "callers take no more than is left, and not nothing");
        self.left -= length;
        if let Some(last) = self.pieces.last_mut()
            && last.address + u64::from(last.length) == address
        {
            // Together they are at most the whole transfer.
            last.length += length;
            return Ok(());
        }
        self.pieces.push(Piece { address, length });
        Ok(())
    }

    #[inline]
    fn prps(&mut self, first: u64, second: u64, page: u64, memory: &impl Memory) -> Result<(), Status> {
        // An offset is a multiple of 4; the first entry is the only one that may have one.
        if !first.is_multiple_of(4) {
            return Err(Status::PRP_OFFSET_INVALID.dnr());
        }
        self.push_page(first, page)?;
        if self.left == 0 {
            return Ok(());
        }
        if u64::from(self.left) <= page {
            return self.push_whole(second, page);
        }
        self.list(second, page, memory)
    }

    /// The rest of the page at `address`, or what the transfer needs of it.
    fn push_page(&mut self, address: u64, page: u64) -> Result<(), Status> {
        let rest = page - address % page;
        let length = u32::try_from(rest).expect("no more than a page, whose size is a u32").min(self.left);
        self.push(address, length)
    }

    fn push_whole(&mut self, address: u64, page: u64) -> Result<(), Status> {
        if !address.is_multiple_of(page) {
            return Err(Status::PRP_OFFSET_INVALID.dnr());
        }
        self.push_page(address, page)
    }

    /// A PRP list. Each page of it but the first has a place for an entry of data and for one that
    /// goes on, so the walk ends, whatever the host writes there.
    fn list(&mut self, list: u64, page: u64, memory: &impl Memory) -> Result<(), Status> {
        if !list.is_multiple_of(ENTRY_BYTES) {
            return Err(Status::PRP_OFFSET_INVALID.dnr());
        }
        let mut at = list;
        loop {
            let needed = u64::from(self.left).div_ceil(page);
            let places = (page - at % page) / ENTRY_BYTES;
            // The last place of a page points to the next one if there are more.
            let data = if needed > places { places - 1 } else { needed };
            let next = self.entries(at, data, needed > places, page, memory)?;
            match next {
                None => return Ok(()),
                Some(next) if next.is_multiple_of(page) => at = next,
                Some(_) => return Err(Status::PRP_OFFSET_INVALID.dnr()),
            }
        }
    }

    /// So many entries of data at `at`, and the one behind them if the list goes on.
    fn entries(
        &mut self,
        at: u64,
        data: u64,
        goes_on: bool,
        page: u64,
        memory: &impl Memory,
    ) -> Result<Option<u64>, Status> {
        let mut bytes = [0_u8; COPY_BYTES];
        let mut done = 0;
        let count = data + u64::from(goes_on);
        while done < count {
            let now = (count - done).min(COPY_BYTES as u64 / ENTRY_BYTES);
            let part = &mut bytes[..usize::try_from(now * ENTRY_BYTES).expect("at most COPY_BYTES")];
            let address = at.checked_add(done * ENTRY_BYTES).ok_or(Status::DATA_TRANSFER_ERROR.dnr())?;
            memory.read(address, part).map_err(|_fault| Status::DATA_TRANSFER_ERROR.dnr())?;
            for (number, entry) in (done..).zip(part.as_chunks::<8>().0) {
                let entry = u64::from_le_bytes(*entry);
                if number == data {
                    return Ok(Some(entry));
                }
                self.push_whole(entry, page)?;
            }
            done += now;
        }
        Ok(None)
    }

    fn sgl(&mut self, descriptor: &SglDescriptor, memory: &impl Memory) -> Result<(), Status> {
        let mut segment = match Descriptor::decode(descriptor)? {
            Descriptor::Data { address, length } => {
                self.data_block(address, length)?;
                return self.sgl_end();
            }
            Descriptor::Segment(segment) => segment,
        };
        let mut count = 0_u32;
        while let Some(next) = self.segment(&segment, &mut count, memory)? {
            segment = next;
        }
        self.sgl_end()
    }

    /// The descriptors of a segment; returns the segment that follows.
    fn segment(&mut self, segment: &Segment, count: &mut u32, memory: &impl Memory) -> Result<Option<Segment>, Status> {
        const BYTES: u32 = 16;
        let invalid = Status::INVALID_SGL_SEGMENT.dnr();
        if segment.length == 0 || !segment.length.is_multiple_of(BYTES) || !segment.address.is_multiple_of(8) {
            return Err(invalid);
        }
        let descriptors = segment.length / BYTES;
        *count = count.saturating_add(descriptors);
        if *count > DESCRIPTORS_MAX {
            return Err(Status::INVALID_SGL_COUNT.dnr());
        }
        let mut bytes = [0_u8; COPY_BYTES];
        let mut done = 0;
        while done < segment.length {
            let part = &mut bytes[..((segment.length - done) as usize).min(COPY_BYTES)];
            let address = segment.address.checked_add(done.into()).ok_or(Status::DATA_TRANSFER_ERROR.dnr())?;
            memory.read(address, part).map_err(|_fault| Status::DATA_TRANSFER_ERROR.dnr())?;
            for bytes in part.as_chunks::<16>().0 {
                done += BYTES;
                let is_last = done == segment.length;
                let descriptor = SglDescriptor::read_from_bytes(bytes).map_err(|_size| invalid)?;
                match Descriptor::decode(&descriptor)? {
                    Descriptor::Data { address, length } => self.data_block(address, length)?,
                    // Base, SGL Segment: another segment follows its last descriptor, and none
                    // follows a last segment.
                    Descriptor::Segment(next) if is_last && !segment.is_last => return Ok(Some(next)),
                    Descriptor::Segment(_) => return Err(invalid),
                }
            }
        }
        // What is no last segment has to name the next one.
        if segment.is_last { Ok(None) } else { Err(invalid) }
    }

    fn data_block(&mut self, address: u64, length: u32) -> Result<(), Status> {
        if length > self.left {
            return Err(Status::DATA_SGL_LENGTH_INVALID.dnr());
        }
        if length == 0 { Ok(()) } else { self.push(address, length) }
    }

    fn sgl_end(&self) -> Result<(), Status> {
        if self.left == 0 { Ok(()) } else { Err(Status::DATA_SGL_LENGTH_INVALID.dnr()) }
    }
}

/// A descriptor, as far as a memory-based transport knows it.
enum Descriptor {
    Data { address: u64, length: u32 },
    Segment(Segment),
}

struct Segment {
    address: u64,
    length: u32,
    is_last: bool,
}

impl Descriptor {
    fn decode(descriptor: &SglDescriptor) -> Result<Self, Status> {
        let (address, length) = (descriptor.address.get(), descriptor.length.get());
        // Type in bits 7:4, subtype (address) in bits 3:0. Bit buckets (10h) are not announced.
        match descriptor.identifier {
            0x00 => Ok(Self::Data { address, length }),
            0x20 => Ok(Self::Segment(Segment { address, length, is_last: false })),
            0x30 => Ok(Self::Segment(Segment { address, length, is_last: true })),
            _ => Err(Status::SGL_TYPE_INVALID.dnr()),
        }
    }
}
