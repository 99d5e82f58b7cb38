//! What a client asks for, decoded: a value that exists is within its limits.

use crate::errno::Errno;

use super::version::Proposal;
use super::{DATA_BYTES_MAX, DMA_PAGE_BYTES};

/// A client's command. Numbers of regions and interrupts are not checked here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// VERSION: always the first command, and never another one.
    Version(Proposal),
    /// DMA_MAP: with one descriptor or none.
    DmaMap(DmaMap),
    /// DMA_UNMAP.
    DmaUnmap(DmaUnmap),
    /// DEVICE_GET_INFO.
    DeviceInfo,
    /// DEVICE_GET_REGION_INFO.
    RegionInfo {
        /// Number of the region.
        index: u32,
        /// Bytes that the client has for the answer (argsz).
        room: u32,
    },
    /// DEVICE_GET_IRQ_INFO.
    InterruptInfo {
        /// Kind of interrupts: 0 pin, 1 MSI, 2 MSI-X, 3 error, 4 request.
        index: u32,
    },
    /// DEVICE_SET_IRQS.
    SetInterrupts(SetInterrupts<'a>),
    /// REGION_READ.
    RegionRead {
        /// Number of the region.
        region: u32,
        /// First byte.
        offset: u64,
        /// Bytes, at most [`DATA_BYTES_MAX`].
        count: u32,
    },
    /// REGION_WRITE.
    RegionWrite {
        /// Number of the region.
        region: u32,
        /// First byte.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// DEVICE_RESET.
    Reset,
}

/// Which way memory may be accessed by the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direction {
    /// The device may read it.
    pub readable: bool,
    /// The device may write it.
    pub writable: bool,
}

/// DMA_MAP: memory of the client. Address and size are multiples of [`DMA_PAGE_BYTES`], the size is
/// not 0, and the end is below 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaMap {
    /// The address that the device uses.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Offset in the file whose descriptor comes with the message, a multiple of
    /// [`DMA_PAGE_BYTES`] if there is one.
    pub offset: u64,
    /// What the device may do.
    pub direction: Direction,
}

/// DMA_UNMAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaUnmap {
    /// What was mapped with these very numbers.
    Range {
        /// The address that the device uses.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// Everything.
    All,
}

/// DEVICE_SET_IRQS: `count` interrupts of the kind `index`, from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetInterrupts<'a> {
    /// Kind of interrupts.
    pub index: u32,
    /// The first one.
    pub start: u32,
    /// How many; `start + count` does not overflow.
    pub count: u32,
    /// What to do with them.
    pub action: InterruptAction,
    /// For which of them, or with what.
    pub data: InterruptData<'a>,
}

/// What DEVICE_SET_IRQS does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptAction {
    /// Does not deliver them until they are unmasked.
    Mask,
    /// Delivers them again.
    Unmask,
    /// With descriptors: connects or disconnects them. Otherwise delivers them now.
    Trigger,
}

/// The data of DEVICE_SET_IRQS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptData<'a> {
    /// All of them.
    None,
    /// Those whose byte is not 0; as many bytes as interrupts.
    Bools(&'a [u8]),
    /// A descriptor for each of them, or none at all, which disconnects them.
    Descriptors,
}

/// Numbers of the commands.
pub(crate) mod number {
    pub(crate) const VERSION: u16 = 1;
    pub(crate) const DMA_MAP: u16 = 2;
    pub(crate) const DMA_UNMAP: u16 = 3;
    pub(crate) const DEVICE_GET_INFO: u16 = 4;
    pub(crate) const DEVICE_GET_REGION_INFO: u16 = 5;
    pub(crate) const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub(crate) const DEVICE_SET_IRQS: u16 = 8;
    pub(crate) const REGION_READ: u16 = 9;
    pub(crate) const REGION_WRITE: u16 = 10;
    pub(crate) const DEVICE_RESET: u16 = 13;
}

/// Decodes what is behind the header of command `number`.
///
/// Commands that are not in the list have no use here: DEVICE_GET_REGION_IO_FDS (6) is an
/// optimization, DMA_READ and DMA_WRITE (11, 12) are a server's, dirty pages (14) are for
/// migration, and REGION_WRITE_MULTI (15) was not offered.
#[inline]
pub(super) fn decode(number: u16, body: &[u8], descriptors: usize) -> Result<Command<'_>, Errno> {
    let mut fields = Fields(body);
    let descriptors_max = match number {
        // Deviation: with DMA_UNMAP there is none in the specification; SPDK's host sends the one
        // that it mapped. It is closed.
        number::DMA_MAP | number::DMA_UNMAP => 1,
        number::DEVICE_SET_IRQS => super::DESCRIPTORS_MAX,
        _ => 0,
    };
    if descriptors > descriptors_max {
        return Err(Errno::INVALID);
    }
    match number {
        number::REGION_WRITE => region_write(&mut fields),
        number::REGION_READ => region_read(&mut fields),
        number::VERSION => Proposal::decode(&mut fields).map(Command::Version),
        number::DMA_MAP => DmaMap::decode(&mut fields, descriptors > 0).map(Command::DmaMap),
        number::DMA_UNMAP => DmaUnmap::decode(&mut fields).map(Command::DmaUnmap),
        number::DEVICE_GET_INFO => fields.u32().map(|_room| Command::DeviceInfo),
        number::DEVICE_GET_REGION_INFO => {
            let (room, _flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
            Ok(Command::RegionInfo { index, room })
        }
        number::DEVICE_GET_IRQ_INFO => {
            let (_room, _flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
            Ok(Command::InterruptInfo { index })
        }
        number::DEVICE_SET_IRQS => SetInterrupts::decode(&mut fields, descriptors).map(Command::SetInterrupts),
        number::DEVICE_RESET => Ok(Command::Reset),
        _ => Err(Errno::NOT_SUPPORTED),
    }
}

fn region_read<'a>(fields: &mut Fields<'_>) -> Result<Command<'a>, Errno> {
    let (offset, region, count) = (fields.u64()?, fields.u32()?, fields.u32()?);
    if count > DATA_BYTES_MAX {
        return Err(Errno::INVALID);
    }
    Ok(Command::RegionRead { region, offset, count })
}

#[inline]
fn region_write<'a>(fields: &mut Fields<'a>) -> Result<Command<'a>, Errno> {
    let (offset, region, count) = (fields.u64()?, fields.u32()?, fields.u32()?);
    let data = fields.rest();
    if count > DATA_BYTES_MAX || data.len() != count as usize {
        return Err(Errno::INVALID);
    }
    Ok(Command::RegionWrite { region, offset, data })
}

impl DmaMap {
    const READ: u32 = 1;
    const WRITE: u32 = 2;

    fn decode(fields: &mut Fields<'_>, has_file: bool) -> Result<Self, Errno> {
        let (_size, flags, offset) = (fields.u32()?, fields.u32()?, fields.u64()?);
        let (address, size) = (fields.u64()?, fields.u64()?);
        let direction = Direction { readable: flags & Self::READ != 0, writable: flags & Self::WRITE != 0 };
        let offset = if has_file { offset } else { 0 };
        let aligned = [address, size, offset].iter().all(|number| number.is_multiple_of(DMA_PAGE_BYTES));
        if !aligned
            || size == 0
            || address.checked_add(size).is_none()
            || offset.checked_add(size).is_none()
            || flags & !(Self::READ | Self::WRITE) != 0
        {
            return Err(Errno::INVALID);
        }
        Ok(Self { address, size, offset, direction })
    }
}

impl DmaUnmap {
    /// The flag that asks for everything.
    pub(super) const ALL: u32 = 2;

    fn decode(fields: &mut Fields<'_>) -> Result<Self, Errno> {
        let (_size, flags) = (fields.u32()?, fields.u32()?);
        let (address, size) = (fields.u64()?, fields.u64()?);
        match flags {
            0 => Ok(Self::Range { address, size }),
            // The numbers have to be 0; hosts differ in what they send.
            Self::ALL => Ok(Self::All),
            // Bit 0 asks for dirty pages.
            _ => Err(Errno::NOT_SUPPORTED),
        }
    }
}

impl<'a> SetInterrupts<'a> {
    fn decode(fields: &mut Fields<'a>, descriptors: usize) -> Result<Self, Errno> {
        let (_size, flags, index) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let (start, count) = (fields.u32()?, fields.u32()?);
        let data = match flags & 0x7 {
            0x1 => InterruptData::None,
            0x2 => InterruptData::Bools(fields.take(count as usize)?),
            0x4 => InterruptData::Descriptors,
            _ => return Err(Errno::INVALID),
        };
        let action = match flags & !0x7 {
            0x8 => InterruptAction::Mask,
            0x10 => InterruptAction::Unmask,
            0x20 => InterruptAction::Trigger,
            _ => return Err(Errno::INVALID),
        };
        let wanted = match data {
            InterruptData::Descriptors => descriptors == 0 || descriptors == count as usize,
            InterruptData::None | InterruptData::Bools(_) => descriptors == 0,
        };
        if !wanted || start.checked_add(count).is_none() {
            return Err(Errno::INVALID);
        }
        Ok(Self { index, start, count, action, data })
    }
}

/// The bytes behind a header, field by field; all numbers are little-endian.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    #[inline]
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Errno> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Errno::INVALID)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Errno::INVALID)?;
        self.0 = rest;
        Ok(*taken)
    }

    #[inline]
    pub(super) fn u16(&mut self) -> Result<u16, Errno> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline]
    pub(super) fn u32(&mut self) -> Result<u32, Errno> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline]
    pub(super) fn u64(&mut self) -> Result<u64, Errno> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline]
    pub(super) fn rest(&mut self) -> &'a [u8] {
        core::mem::take(&mut self.0)
    }
}
