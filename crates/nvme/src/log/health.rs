//! What went wrong and how the drive fares: Error Information (01h), SMART / Health Information
//! (02h), Firmware Slot Information (03h).

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::status::Status;
use crate::identify::{Text, set_ascii};

/// Error Information Log Entry. NVMe Base 2.1, "Error Information log page".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ErrorInformation {
    /// Error Count: 1 for the first error of the controller's life, 0 for an entry that is none.
    pub ec: U64,
    /// Submission Queue ID; FFFFh for no command in particular.
    pub sqid: U16,
    /// Command ID; FFFFh for no command in particular.
    pub cid: U16,
    /// Status in bits 15:1, the phase tag in bit 0: `status`.
    pub si: U16,
    /// Parameter Error Location: `parameter_error_location`.
    pub pel: U16,
    /// The first LBA concerned.
    pub lba: U64,
    /// Namespace.
    pub nsid: U32,
    /// Vendor Specific Information Available: a LID, or 0.
    pub vsia: u8,
    /// Transport Type, as in the discovery log; 0 where no transport is concerned.
    pub trtype: u8,
    /// Command Set Indicator, valid from LPVER 1 on.
    pub csi: u8,
    /// Opcode, valid from LPVER 1 on.
    pub opc: u8,
    /// Command Specific Information.
    pub csinfo: U64,
    /// Transport Type Specific Information.
    pub ttsi: U16,
    /// Reserved.
    pub rsvd42: [u8; 21],
    /// Log Page Version.
    pub lpver: u8,
}

const _: () = assert!(size_of::<ErrorInformation>() == 64);

impl ErrorInformation {
    /// The status of the command, without the phase tag.
    #[must_use]
    pub fn status(&self) -> Status {
        Status(self.si.get() >> 1)
    }

    /// Sets the status, with the phase tag 0.
    pub fn set_status(&mut self, status: Status) {
        self.si.set(status.0 << 1);
    }

    /// PEL; `None` where no parameter is to blame.
    #[must_use]
    pub fn parameter_error_location(&self) -> Option<ParameterErrorLocation> {
        let [byte, bit] = self.pel.to_bytes();
        (self.pel.get() != u16::MAX).then_some(ParameterErrorLocation { byte, bit: bit & 7 })
    }

    /// Sets PEL.
    pub fn set_parameter_error_location(&mut self, location: Option<ParameterErrorLocation>) {
        self.pel = location.map_or(U16::MAX_VALUE, |location| U16::from_bytes([location.byte, location.bit & 7]));
    }
}

/// Parameter Error Location: the first byte and bit of the submission queue entry that the error is
/// about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterErrorLocation {
    /// Byte in the command; the entry has 64.
    pub byte: u8,
    /// Bit in the byte, 0 to 7.
    pub bit: u8,
}

/// SMART / Health Information. NVMe Base 2.1, section of that name. Temperatures are in kelvin.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SmartHealth {
    /// Critical Warning: `critical_warning`.
    pub cw: u8,
    /// Composite Temperature.
    pub ctemp: U16,
    /// Available Spare, percent.
    pub avsp: u8,
    /// Available Spare Threshold, percent.
    pub avspt: u8,
    /// Percentage Used, 255 for more than 254.
    pub pused: u8,
    /// Endurance Group Critical Warning Summary.
    pub egcws: u8,
    /// Reserved.
    pub rsvd7: [u8; 25],
    /// Data Units Read: `data_units`.
    pub dur: U128,
    /// Data Units Written: `data_units`.
    pub duw: U128,
    /// Host Read Commands.
    pub hrc: U128,
    /// Host Write Commands.
    pub hwc: U128,
    /// Controller Busy Time, minutes.
    pub cbt: U128,
    /// Power Cycles.
    pub pwrc: U128,
    /// Power On Hours.
    pub poh: U128,
    /// Unexpected Power Losses, once called Unsafe Shutdowns.
    pub upl: U128,
    /// Media and Data Integrity Errors.
    pub mdie: U128,
    /// Number of Error Information Log Entries.
    pub neile: U128,
    /// Warning Composite Temperature Time, minutes.
    pub wctt: U32,
    /// Critical Composite Temperature Time, minutes.
    pub cctt: U32,
    /// Temperature Sensors 1 to 8; 0 for one that is not there.
    pub tsen: [U16; 8],
    /// Thermal Management Temperature 1 Transition Count.
    pub tmt1tc: U32,
    /// Thermal Management Temperature 2 Transition Count.
    pub tmt2tc: U32,
    /// Total Time for Thermal Management Temperature 1, seconds.
    pub ttmt1: U32,
    /// Total Time for Thermal Management Temperature 2, seconds.
    pub ttmt2: U32,
    /// Reserved.
    pub rsvd232: [u8; 280],
}

const _: () = assert!(size_of::<SmartHealth>() == 512);

impl SmartHealth {
    /// Bytes as the page counts them: in thousands of 512 bytes, rounded up.
    #[must_use]
    pub const fn data_units(bytes: u128) -> u128 {
        bytes.div_ceil(512 * 1000)
    }

    /// Data read, in bytes, rounded up to the page's unit.
    #[must_use]
    pub fn bytes_read(&self) -> u128 {
        self.dur.get().saturating_mul(512 * 1000)
    }

    /// Data written, in bytes, rounded up to the page's unit.
    #[must_use]
    pub fn bytes_written(&self) -> u128 {
        self.duw.get().saturating_mul(512 * 1000)
    }

    /// The composite temperature in degrees Celsius; `None` where it is not reported.
    #[must_use]
    pub fn temperature_celsius(&self) -> Option<i32> {
        Some(i32::from(self.ctemp.get())).filter(|&kelvin| kelvin != 0).map(|kelvin| kelvin - 273)
    }
}

impl Default for SmartHealth {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// The bits of Critical Warning; bits of Asynchronous Event Configuration have the same meaning and
/// place.
pub mod critical_warning {
    /// Available spare below its threshold.
    pub const SPARE: u8 = 1 << 0;
    /// A temperature is beyond a threshold.
    pub const TEMPERATURE: u8 = 1 << 1;
    /// Reliability is degraded.
    pub const DEGRADED: u8 = 1 << 2;
    /// All media is read only.
    pub const READ_ONLY: u8 = 1 << 3;
    /// The backup of volatile memory failed.
    pub const VOLATILE_BACKUP: u8 = 1 << 4;
    /// The persistent memory region is read only or unreliable.
    pub const PERSISTENT_MEMORY: u8 = 1 << 5;
}

/// Firmware Slot Information. NVMe Base 2.1, section of that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FirmwareSlots {
    /// Active Firmware Info: `active_slot`, `next_slot`.
    pub afi: u8,
    /// Reserved.
    pub rsvd1: [u8; 7],
    /// Firmware Revision for Slot 1 to 7, ASCII; all zeros where there is none.
    pub frs: [[u8; 8]; 7],
    /// Reserved.
    pub rsvd64: [u8; 448],
}

const _: () = assert!(size_of::<FirmwareSlots>() == 512);

impl FirmwareSlots {
    /// The slot the running firmware came from, 1 to 7; 0 is not said.
    #[must_use]
    pub const fn active_slot(&self) -> u8 {
        self.afi & 7
    }

    /// The slot that becomes active at the next controller reset, 1 to 7; 0 is not said.
    #[must_use]
    pub const fn next_slot(&self) -> u8 {
        self.afi >> 4 & 7
    }

    /// Sets AFI; slots are taken modulo 8.
    pub fn set_slots(&mut self, active: u8, next: u8) {
        self.afi = (active & 7) | (next & 7) << 4;
    }

    /// The revision in `slot`, 1 to 7; `None` beyond or where there is none.
    #[must_use]
    pub fn revision(&self, slot: u8) -> Option<Text<'_>> {
        let index = usize::from(slot).checked_sub(1)?;
        self.frs.get(index).map(|frs| Text::new(frs)).filter(|text| !text.is_empty())
    }

    /// Sets the revision in `slot`; does nothing unless it is 1 to 7.
    pub fn set_revision(&mut self, slot: u8, revision: &str) {
        if let Some(frs) = usize::from(slot).checked_sub(1).and_then(|index| self.frs.get_mut(index)) {
            set_ascii(frs, revision);
        }
    }
}

impl Default for FirmwareSlots {
    fn default() -> Self {
        Self::new_zeroed()
    }
}
