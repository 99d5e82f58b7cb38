//! Persistent Event Log (0Dh): its header, the header of an event, and walking the events. What the
//! events hold is in `persistent_event`.

use alloc::vec::Vec;

use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Lid;
use crate::identify::{Text, set_ascii};
use crate::name::id::ControllerId;
use crate::name::nqn::Nqn;
use crate::table::numbers;

/// Persistent Event Log header, 512 bytes. NVMe Base 2.1, "Persistent Event Log page".
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PersistentEventHeader {
    /// Log Page Identifier, 0Dh.
    pub lpid: u8,
    /// Reserved.
    pub rsvd1: [u8; 3],
    /// Total Number of Events.
    pub tne: U32,
    /// Total Log Length, bytes, this header included.
    pub tll: U64,
    /// Log Page Revision: 3 in Base 2.1.
    pub lrev: u8,
    /// Reserved.
    pub rsvd17: u8,
    /// Log Header Length, bytes behind this field: 492.
    pub lhl: U16,
    /// Timestamp when the reporting context was established, as in the Timestamp feature.
    pub tstmp: U64,
    /// Power On Hours.
    pub poh: U128,
    /// Power Cycle Count.
    pub pcc: U64,
    /// PCI Vendor ID.
    pub vid: U16,
    /// PCI Subsystem Vendor ID.
    pub ssvid: U16,
    /// Serial Number, ASCII.
    pub sn: [u8; 20],
    /// Model Number, ASCII.
    pub mn: [u8; 40],
    /// NVM Subsystem NVMe Qualified Name.
    pub subnqn: [u8; 256],
    /// Generation Number: counts reporting contexts whose events differ.
    pub gnum: U16,
    /// Reporting Context Information: port in bits 15:0, its kind in bits 17:16, bit 18 a context
    /// was there already.
    pub rci: U32,
    /// Reserved.
    pub rsvd378: [u8; 102],
    /// Supported Events Bitmap: a bit for each type of event.
    pub seb: [u8; 32],
}

const _: () = assert!(size_of::<PersistentEventHeader>() == 512);

impl PersistentEventHeader {
    /// A header for `events` events that take `bytes` bytes behind it.
    #[must_use]
    pub fn new(events: u32, bytes: u64) -> Self {
        Self {
            lpid: Lid::PERSISTENT_EVENT.0,
            tne: events.into(),
            tll: bytes.saturating_add(512).into(),
            lrev: 3,
            lhl: 492.into(),
            ..Self::new_zeroed()
        }
    }

    /// Says which types of events the controller records.
    pub fn set_supported(&mut self, kinds: impl IntoIterator<Item = EventKind>) {
        for EventKind(kind) in kinds {
            self.seb[usize::from(kind / 8)] |= 1 << (kind % 8);
        }
    }

    /// Whether the controller records events of `kind`.
    #[must_use]
    pub const fn supports(&self, kind: EventKind) -> bool {
        self.seb[(kind.0 / 8) as usize] >> (kind.0 % 8) & 1 != 0
    }

    /// The types of events the controller records, in order.
    pub fn supported(&self) -> impl Iterator<Item = EventKind> {
        (0..=u8::MAX).map(EventKind).filter(|&kind| self.supports(kind))
    }

    /// Sets SN, MN and SUBNQN; what is too long is cut.
    pub fn set_subsystem(&mut self, serial_number: &str, model_number: &str, nqn: &Nqn) {
        set_ascii(&mut self.sn, serial_number);
        set_ascii(&mut self.mn, model_number);
        self.subnqn = nqn.to_field();
    }

    /// SN without its padding.
    #[must_use]
    pub fn serial_number(&self) -> Text<'_> {
        Text::new(&self.sn)
    }

    /// MN without its padding.
    #[must_use]
    pub fn model_number(&self) -> Text<'_> {
        Text::new(&self.mn)
    }

    /// SUBNQN up to its NUL, for showing.
    #[must_use]
    pub fn subsystem_nqn(&self) -> Text<'_> {
        Text::new(&self.subnqn)
    }

    /// Milliseconds of TSTMP, its low 48 bits.
    #[must_use]
    pub fn milliseconds(&self) -> u64 {
        self.tstmp.get() & TIMESTAMP_MASK
    }

    /// Whether a reporting context was there before this command (RCE).
    #[must_use]
    pub fn context_existed(&self) -> bool {
        self.rci.get() & 1 << 18 != 0
    }
}

impl Default for PersistentEventHeader {
    fn default() -> Self {
        Self::new(0, 0)
    }
}

/// Persistent Event header, 24 bytes; the vendor specific information and the event data follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EventHeader {
    /// Event Type: `EventKind`.
    pub etype: u8,
    /// Event Type Revision.
    pub etrev: u8,
    /// Event Header Length, bytes behind this field: 21.
    pub ehl: u8,
    /// Event Header Additional Information: kind of port in bits 1:0.
    pub ehai: u8,
    /// Controller that recorded the event.
    pub cntlid: U16,
    /// Event Timestamp, as in the Timestamp feature.
    pub etstmp: U64,
    /// Port Identifier.
    pub pelpid: U16,
    /// Reserved.
    pub rsvd16: [u8; 4],
    /// Vendor Specific Information Length, bytes.
    pub vsil: U16,
    /// Event Length, bytes behind this header: vendor specific information and event data.
    pub el: U16,
}

const _: () = assert!(size_of::<EventHeader>() == 24);

impl EventHeader {
    /// The header of an event without vendor specific information; `timestamp` is the eight bytes
    /// of the Timestamp feature. `data_bytes` beyond 65535 are cut to that.
    #[must_use]
    pub fn new(kind: EventKind, controller: ControllerId, timestamp: u64, data_bytes: usize) -> Self {
        Self {
            etype: kind.0,
            etrev: kind.revision(),
            ehl: 21,
            cntlid: controller.0.into(),
            etstmp: timestamp.into(),
            el: u16::try_from(data_bytes).unwrap_or(u16::MAX).into(),
            ..Self::default()
        }
    }

    /// The event's type.
    #[must_use]
    pub const fn kind(&self) -> EventKind {
        EventKind(self.etype)
    }

    /// Milliseconds of ETSTMP, its low 48 bits.
    #[must_use]
    pub fn milliseconds(&self) -> u64 {
        self.etstmp.get() & TIMESTAMP_MASK
    }
}

/// Appends an event to `log`: its header and `data`, of which 65535 bytes are taken at most.
pub fn push_event(log: &mut Vec<u8>, kind: EventKind, controller: ControllerId, timestamp: u64, data: &[u8]) {
    let header = EventHeader::new(kind, controller, timestamp, data.len());
    log.extend_from_slice(header.as_bytes());
    log.extend_from_slice(&data[..data.len().min(usize::from(header.el.get()))]);
}

/// An event of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistentEvent<'a> {
    /// Its header.
    pub header: EventHeader,
    /// Vendor specific information.
    pub vendor: &'a [u8],
    /// Event data; `persistent_event` has what is in it.
    pub data: &'a [u8],
}

/// Walks the events behind the log's header, as far as they are whole.
#[derive(Clone, Debug)]
pub struct PersistentEvents<'a> {
    rest: &'a [u8],
}

impl<'a> PersistentEvents<'a> {
    /// The header of `log` and its events; `None` where not even the header is there.
    #[must_use]
    pub fn new(log: &'a [u8]) -> Option<(PersistentEventHeader, Self)> {
        let (header, _) = PersistentEventHeader::read_from_prefix(log).ok()?;
        // LHL: a later revision may have a longer header; one that says less than this one has is
        // not believed.
        let begin = usize::from(header.lhl.get()).saturating_add(20).max(size_of::<PersistentEventHeader>());
        let end = usize::try_from(header.tll.get()).unwrap_or(usize::MAX).min(log.len());
        Some((header, Self { rest: log.get(begin..end).unwrap_or_default() }))
    }
}

impl<'a> Iterator for PersistentEvents<'a> {
    type Item = PersistentEvent<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let (header, _) = EventHeader::read_from_prefix(self.rest).ok()?;
        let begin = usize::from(header.ehl).saturating_add(3).max(size_of::<EventHeader>());
        let end = begin + usize::from(header.el.get());
        let body = self.rest.get(begin..end)?;
        let (vendor, data) = body.split_at_checked(usize::from(header.vsil.get()))?;
        self.rest = &self.rest[end..];
        Some(PersistentEvent { header, vendor, data })
    }
}

/// Persistent Event Type. Unknown values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventKind(pub u8);

impl EventKind {
    /// Event Type Revision of the structures in `persistent_event`.
    const fn revision(self) -> u8 {
        1
    }
}

numbers! { EventKind:
    SMART_SNAPSHOT = 0x01, "SMART / Health Log Snapshot" => SmartHealth;
    FIRMWARE_COMMIT = 0x02, "Firmware Commit" => FirmwareCommitEvent;
    TIMESTAMP_CHANGE = 0x03, "Timestamp Change" => TimestampChangeEvent;
    /// The firmware's revision (8 bytes) and a `ControllerResetInformation` for each controller.
    POWER_ON_OR_RESET = 0x04, "Power-on or Reset";
    HARDWARE_ERROR = 0x05, "NVM Subsystem Hardware Error" => HardwareErrorEvent;
    CHANGE_NAMESPACE = 0x06, "Change Namespace" => ChangeNamespaceEvent;
    FORMAT_START = 0x07, "Format NVM Start" => FormatStartEvent;
    FORMAT_COMPLETION = 0x08, "Format NVM Completion" => FormatCompletionEvent;
    SANITIZE_START = 0x09, "Sanitize Start" => SanitizeStartEvent;
    SANITIZE_COMPLETION = 0x0a, "Sanitize Completion" => SanitizeCompletionEvent;
    SET_FEATURE = 0x0b, "Set Feature" => SetFeatureEvent;
    TELEMETRY_CREATED = 0x0c, "Telemetry Log Created" => TelemetryHeader;
    THERMAL_EXCURSION = 0x0d, "Thermal Excursion" => ThermalExcursionEvent;
    SANITIZE_VERIFICATION = 0x0e, "Sanitize Media Verification";
    VENDOR = 0xde, "Vendor Specific";
    TCG = 0xdf, "TCG Defined";
}

/// The 48 bits of a timestamp that are milliseconds.
const TIMESTAMP_MASK: u64 = (1 << 48) - 1;
