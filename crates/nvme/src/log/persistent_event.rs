//! What the events of the Persistent Event Log hold. NVMe Base 2.1, "Persistent Event Log Events".

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::status::Status;
use crate::identify::Text;

/// Firmware Commit event (02h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FirmwareCommitEvent {
    /// Old Firmware Revision, ASCII.
    pub ofwrev: [u8; 8],
    /// New Firmware Revision, ASCII.
    pub nfwrev: [u8; 8],
    /// Firmware Commit Action.
    pub fwca: u8,
    /// Firmware Slot.
    pub fwslot: u8,
    /// Status Code Type of the command.
    pub sct: u8,
    /// Status Code of the command.
    pub sc: u8,
    /// Vendor Assigned Firmware Commit Result Code.
    pub vafcrc: U16,
}

const _: () = assert!(size_of::<FirmwareCommitEvent>() == 22);

impl FirmwareCommitEvent {
    /// How the command ended.
    #[must_use]
    pub fn status(&self) -> Status {
        Status(u16::from(self.sct & 7) << 8 | u16::from(self.sc))
    }

    /// Old revision without its padding.
    #[must_use]
    pub fn old_revision(&self) -> Text<'_> {
        Text::new(&self.ofwrev)
    }

    /// New revision without its padding.
    #[must_use]
    pub fn new_revision(&self) -> Text<'_> {
        Text::new(&self.nfwrev)
    }
}

/// Timestamp Change event (03h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct TimestampChangeEvent {
    /// Previous Timestamp, as in the Timestamp feature.
    pub prvts: U64,
    /// Milliseconds Since Reset.
    pub mssr: U64,
}

const _: () = assert!(size_of::<TimestampChangeEvent>() == 16);

/// Controller Reset Information, one for each controller in a Power-on or Reset event (04h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ControllerResetInformation {
    /// Controller ID.
    pub cntlid: U16,
    /// Firmware Activation: 0 none, 1 there was one.
    pub fwact: u8,
    /// Operation In Progress: bit 0 Format NVM, bit 1 sanitize.
    pub opip: u8,
    /// Reserved.
    pub rsvd4: [u8; 12],
    /// Controller Power Cycle, count.
    pub cpc: U32,
    /// Power on milliseconds, since the latest power on.
    pub pwronms: U64,
    /// Controller Timestamp, as in the Timestamp feature.
    pub ctstmp: U64,
}

const _: () = assert!(size_of::<ControllerResetInformation>() == 36);

/// NVM Subsystem Hardware Error event (05h); additional information may follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct HardwareErrorEvent {
    /// NVM Subsystem Hardware Error Event Code: `hardware_error`.
    pub nsheec: U16,
    /// Reserved.
    pub rsvd2: [u8; 2],
}

const _: () = assert!(size_of::<HardwareErrorEvent>() == 4);

/// NVM Subsystem Hardware Error Event Codes that a drive without PCI may have.
pub mod hardware_error {
    /// Critical Warning condition; the additional information begins with SMART / Health's Critical
    /// Warning.
    pub const CRITICAL_WARNING: u16 = 0x06;
    /// Endurance group critical warning condition.
    pub const ENDURANCE_GROUP_WARNING: u16 = 0x07;
    /// Unsafe shutdown.
    pub const UNSAFE_SHUTDOWN: u16 = 0x08;
    /// Controller Fatal Status.
    pub const CONTROLLER_FATAL_STATUS: u16 = 0x09;
    /// Media and data integrity; the additional information begins with the status field.
    pub const MEDIA_AND_DATA_INTEGRITY: u16 = 0x0a;
    /// The controller did not become ready in time.
    pub const READY_TIMEOUT: u16 = 0x0b;

    /// In words, as for a person; `None` where no specification names it.
    #[must_use]
    pub const fn name(code: u16) -> Option<&'static str> {
        Some(match code {
            0x01 => "PCIe correctable error",
            0x02 => "PCIe uncorrectable non-fatal error",
            0x03 => "PCIe uncorrectable fatal error",
            0x04 => "PCIe link status change",
            0x05 => "PCIe link not active",
            CRITICAL_WARNING => "critical warning condition",
            ENDURANCE_GROUP_WARNING => "endurance group critical warning condition",
            UNSAFE_SHUTDOWN => "unsafe shutdown",
            CONTROLLER_FATAL_STATUS => "controller fatal status",
            MEDIA_AND_DATA_INTEGRITY => "media and data integrity error",
            READY_TIMEOUT => "controller ready time-out exceeded",
            _ => return None,
        })
    }
}

/// Change Namespace event (06h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ChangeNamespaceEvent {
    /// Dword 10 of Namespace Management: what was done.
    pub nsmcdw10: U32,
    /// Reserved.
    pub rsvd4: [u8; 4],
    /// Namespace Size, blocks.
    pub nsze: U64,
    /// Reserved.
    pub rsvd16: [u8; 8],
    /// Namespace Capacity, blocks.
    pub ncap: U64,
    /// Formatted LBA Size.
    pub flbas: u8,
    /// End-to-end Data Protection Type Settings.
    pub dps: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities.
    pub nmic: u8,
    /// Reserved.
    pub rsvd35: u8,
    /// ANA Group Identifier.
    pub anagrpid: U32,
    /// NVM Set Identifier.
    pub nvmsetid: U16,
    /// Endurance Group Identifier.
    pub endgid: U16,
    /// Namespace; FFFFFFFFh where all were deleted.
    pub nsid: U32,
}

const _: () = assert!(size_of::<ChangeNamespaceEvent>() == 48);

impl Default for ChangeNamespaceEvent {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Format NVM Start event (07h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FormatStartEvent {
    /// Namespace; FFFFFFFFh for all.
    pub nsid: U32,
    /// Format NVM Attributes of Identify Controller.
    pub fna: u8,
    /// Reserved.
    pub rsvd5: [u8; 3],
    /// Dword 10 of Format NVM.
    pub fnvmcdw10: U32,
}

const _: () = assert!(size_of::<FormatStartEvent>() == 12);

/// Format NVM Completion event (08h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FormatCompletionEvent {
    /// Namespace; FFFFFFFFh for all.
    pub nsid: U32,
    /// Smallest Format Progress Indicator there was.
    pub sfpi: u8,
    /// Format NVM Status: bit 0, an error; bit 1, the format was incomplete.
    pub fnvms: u8,
    /// Completion Information.
    pub cinfo: U16,
    /// Status Field of the completion, in bits 15:1 of the low half as in a completion queue entry.
    pub sf: U32,
}

const _: () = assert!(size_of::<FormatCompletionEvent>() == 12);

/// Sanitize Start event (09h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SanitizeStartEvent {
    /// Sanitize Capabilities of Identify Controller.
    pub sanicap: U32,
    /// Dword 10 of Sanitize.
    pub scdw10: U32,
    /// Dword 11 of Sanitize.
    pub scdw11: U32,
}

const _: () = assert!(size_of::<SanitizeStartEvent>() == 12);

/// Sanitize Completion event (0Ah).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SanitizeCompletionEvent {
    /// Sanitize Progress.
    pub sprog: U16,
    /// Sanitize Status, as in the Sanitize Status log page.
    pub sstat: U16,
    /// Completion Information.
    pub cinfo: U16,
    /// Reserved.
    pub rsvd6: [u8; 2],
}

const _: () = assert!(size_of::<SanitizeCompletionEvent>() == 8);

/// The first dword of a Set Feature event (0Bh): what follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SetFeatureEvent {
    /// Set Feature Event Layout: `command_dwords`, `has_completion`, `data_bytes`.
    pub sfel: U32,
}

const _: () = assert!(size_of::<SetFeatureEvent>() == 4);

impl SetFeatureEvent {
    /// Dwords 10 to 10 + `dwords` - 1 (1 to 6) of the command follow, then `data_bytes` of its
    /// data, then dword 0 of the completion where `completion`.
    #[must_use]
    pub fn new(dwords: u8, completion: bool, data_bytes: u16) -> Self {
        Self { sfel: (u32::from(dwords.min(6)) | u32::from(completion) << 3 | u32::from(data_bytes) << 16).into() }
    }

    /// Number of command dwords that follow, from dword 10 on.
    #[must_use]
    pub fn command_dwords(&self) -> usize {
        usize::from(self.sfel.to_bytes()[0] & 7)
    }

    /// Whether dword 0 of the completion is among what follows.
    #[must_use]
    pub fn has_completion(&self) -> bool {
        self.sfel.get() & 8 != 0
    }

    /// Bytes of the command's data that follow.
    #[must_use]
    pub fn data_bytes(&self) -> u16 {
        let [_, _, low, high] = self.sfel.to_bytes();
        u16::from_le_bytes([low, high])
    }
}

/// Thermal Excursion event (0Dh).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ThermalExcursionEvent {
    /// Over Temperature: kelvin beyond the threshold.
    pub otemp: u8,
    /// Threshold: which one, and whether it was crossed upwards.
    pub thresh: u8,
}

const _: () = assert!(size_of::<ThermalExcursionEvent>() == 2);
