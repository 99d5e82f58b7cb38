//! The events that a drive records, one builder each.
//!
//! NVMe Base 2.1, "Persistent Event Log Events".

use alloc::string::String;
use alloc::vec::Vec;

use ebof_nvme::log::persistent_event::{
    ChangeNamespaceEvent, ControllerResetInformation, FirmwareCommitEvent, FormatCompletionEvent, FormatStartEvent,
    HardwareErrorEvent, SanitizeCompletionEvent, SanitizeStartEvent, SetFeatureEvent, ThermalExcursionEvent,
    TimestampChangeEvent, hardware_error,
};
use ebof_nvme::log::{EventKind, SmartHealth, TelemetryHeader};
use ebof_nvme::{Cqe, Nsid, Status};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use super::timestamp;
use crate::request::{DecisionInput, Origin};

/// Controllers that a Power-on or Reset event describes; the others are left out.
pub const RESET_CONTROLLERS_MAX: usize = 100;

/// A temperature threshold that was crossed, with its value in the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thermal {
    /// 1h: up to WCTEMP or beyond.
    Warning,
    /// 2h: up to CCTEMP or beyond.
    Critical,
    /// 88h: back between the under temperature threshold and WCTEMP.
    Normal,
    /// B0h: down to the under temperature threshold or below.
    Low,
}

/// An event of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// Event Type.
    pub(super) kind: u8,
    /// The controller whose command it was, or any other.
    pub(super) cntlid: u16,
    /// When it happened, milliseconds since 1970.
    pub(super) at_ms: u64,
    /// Event data.
    #[serde(with = "bytes")]
    pub(super) data: Vec<u8>,
}

impl Event {
    /// Bytes of event data at most; longer data are truncated.
    pub const DATA_MAX: usize = 4096;

    fn new(kind: EventKind, origin: &Origin, input: &DecisionInput, data: &[u8]) -> Self {
        let data = data[..data.len().min(Self::DATA_MAX)].to_vec();
        Self { kind: kind.0, cntlid: origin.cntlid.0, at_ms: input.unix_ms, data }
    }

    /// Which event.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        EventKind(self.kind)
    }

    /// Whether two events are of the same kind; for hardware errors, with the same code.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let same = |bytes: usize| self.data.get(..bytes) == other.data.get(..bytes);
        self.kind == other.kind && (self.kind() != EventKind::HARDWARE_ERROR || same(2))
    }

    /// SMART / Health Log Snapshot: due every 24 power-on hours.
    #[must_use]
    pub fn smart_snapshot(origin: &Origin, input: &DecisionInput, page: &SmartHealth) -> Self {
        Self::new(EventKind::SMART_SNAPSHOT, origin, input, page.as_bytes())
    }

    /// Firmware Commit was completed, successfully or not: `old` ran before, `new` was to run.
    #[must_use]
    pub fn firmware_commit(
        origin: &Origin,
        input: &DecisionInput,
        (old, new): (&str, &str),
        (action, slot): (u8, u8),
        status: Status,
    ) -> Self {
        let data = FirmwareCommitEvent {
            ofwrev: revision(old),
            nfwrev: revision(new),
            fwca: action,
            fwslot: slot,
            sct: status.code_type(),
            sc: status.code(),
            ..FirmwareCommitEvent::default()
        };
        Self::new(EventKind::FIRMWARE_COMMIT, origin, input, data.as_bytes())
    }

    /// A host set the timestamp, `since_reset_ms` after the controller's last reset.
    #[must_use]
    pub fn timestamp_change(origin: &Origin, input: &DecisionInput, previous_ms: u64, since_reset_ms: u64) -> Self {
        let previous = U64::from_bytes(timestamp(previous_ms));
        let data = TimestampChangeEvent { prvts: previous, mssr: since_reset_ms.into() };
        Self::new(EventKind::TIMESTAMP_CHANGE, origin, input, data.as_bytes())
    }

    /// The drive was powered on, or reset with its controllers.
    #[must_use]
    pub fn power_on(
        origin: &Origin,
        input: &DecisionInput,
        firmware: &str,
        controllers: &[ControllerResetInformation],
    ) -> Self {
        let mut data = revision(firmware).to_vec();
        data.extend_from_slice(controllers[..controllers.len().min(RESET_CONTROLLERS_MAX)].as_bytes());
        Self::new(EventKind::POWER_ON_OR_RESET, origin, input, &data)
    }

    /// A command completed with a Media and Data Integrity Error.
    #[must_use]
    pub fn media_error(origin: &Origin, input: &DecisionInput, completion: &Cqe) -> Self {
        Self::hardware_error(origin, input, hardware_error::MEDIA_AND_DATA_INTEGRITY, completion.as_bytes())
    }

    /// A bit of SMART's Critical Warning was set.
    #[must_use]
    pub fn critical_warning(origin: &Origin, input: &DecisionInput, warning: u8) -> Self {
        Self::hardware_error(origin, input, hardware_error::CRITICAL_WARNING, &[warning, 0, 0, 0])
    }

    /// The drive had not been closed when it was opened; `count` is how often that was so.
    #[must_use]
    pub fn unsafe_shutdown(origin: &Origin, input: &DecisionInput, count: u128) -> Self {
        let mut information = count.to_le_bytes().to_vec();
        information.resize(20, 0);
        Self::hardware_error(origin, input, hardware_error::UNSAFE_SHUTDOWN, &information)
    }

    /// NVM Subsystem Hardware Error of any kind; `code` is of [`hardware_error`].
    #[must_use]
    pub fn hardware_error(origin: &Origin, input: &DecisionInput, code: u16, information: &[u8]) -> Self {
        let data = HardwareErrorEvent { nsheec: code.into(), ..HardwareErrorEvent::default() };
        let data = [data.as_bytes(), information].concat();
        Self::new(EventKind::HARDWARE_ERROR, origin, input, &data)
    }

    /// A namespace was created or deleted by Namespace Management.
    #[must_use]
    pub fn change_namespace(origin: &Origin, input: &DecisionInput, data: &ChangeNamespaceEvent) -> Self {
        Self::new(EventKind::CHANGE_NAMESPACE, origin, input, data.as_bytes())
    }

    /// Format NVM begins; FNA is of Identify Controller.
    #[must_use]
    pub fn format_start(origin: &Origin, input: &DecisionInput, nsid: Nsid, fna: u8, cdw10: u32) -> Self {
        let data =
            FormatStartEvent { nsid: nsid.0.into(), fna, fnvmcdw10: cdw10.into(), ..FormatStartEvent::default() };
        Self::new(EventKind::FORMAT_START, origin, input, data.as_bytes())
    }

    /// Format NVM ended with `status`; `left_percent` is what was still to be done.
    #[must_use]
    pub fn format_completion(
        origin: &Origin,
        input: &DecisionInput,
        nsid: Nsid,
        left_percent: u8,
        status: Status,
    ) -> Self {
        let failed = !status.is_success();
        let data = FormatCompletionEvent {
            nsid: nsid.0.into(),
            sfpi: if nsid == Nsid::ALL { 0 } else { left_percent },
            fnvms: u8::from(failed) | u8::from(failed && left_percent < 100) << 1,
            sf: (u32::from(status.0) << 1).into(),
            ..FormatCompletionEvent::default()
        };
        Self::new(EventKind::FORMAT_COMPLETION, origin, input, data.as_bytes())
    }

    /// A sanitize operation begins; SANICAP is of Identify Controller.
    #[must_use]
    pub fn sanitize_start(origin: &Origin, input: &DecisionInput, sanicap: u32, cdw10: u32, cdw11: u32) -> Self {
        let data = SanitizeStartEvent { sanicap: sanicap.into(), scdw10: cdw10.into(), scdw11: cdw11.into() };
        Self::new(EventKind::SANITIZE_START, origin, input, data.as_bytes())
    }

    /// A sanitize operation ended; SPROG and SSTAT are of the Sanitize Status log page.
    #[must_use]
    pub fn sanitize_completion(origin: &Origin, input: &DecisionInput, sprog: u16, sstat: u16) -> Self {
        let data =
            SanitizeCompletionEvent { sprog: sprog.into(), sstat: sstat.into(), ..SanitizeCompletionEvent::default() };
        Self::new(EventKind::SANITIZE_COMPLETION, origin, input, data.as_bytes())
    }

    /// Set Features changed something: the dwords from 10 on, six at most, and the data. A
    /// timestamp has an event of its own.
    #[must_use]
    pub fn set_feature(origin: &Origin, input: &DecisionInput, dwords: &[u32], data: &[u8]) -> Self {
        let dwords = &dwords[..dwords.len().min(6)];
        let room = Self::DATA_MAX - size_of::<SetFeatureEvent>() - size_of_val(dwords);
        let data = &data[..data.len().min(room)];
        let count = u8::try_from(dwords.len()).unwrap_or(6);
        let layout = SetFeatureEvent::new(count, false, u16::try_from(data.len()).unwrap_or(0));
        let mut event = layout.as_bytes().to_vec();
        event.extend(dwords.iter().flat_map(|dword| dword.to_le_bytes()));
        event.extend_from_slice(data);
        Self::new(EventKind::SET_FEATURE, origin, input, &event)
    }

    /// Telemetry data was created.
    #[must_use]
    pub fn telemetry_created(origin: &Origin, input: &DecisionInput, header: &TelemetryHeader) -> Self {
        Self::new(EventKind::TELEMETRY_CREATED, origin, input, header.as_bytes())
    }

    /// A temperature threshold was crossed; the temperature is `delta_kelvin` away from it.
    #[must_use]
    pub fn thermal_excursion(origin: &Origin, input: &DecisionInput, thermal: Thermal, delta_kelvin: u16) -> Self {
        let thresh = match thermal {
            Thermal::Warning => 0x01,
            Thermal::Critical => 0x02,
            Thermal::Normal => 0x88,
            Thermal::Low => 0xb0,
        };
        let data = ThermalExcursionEvent { otemp: u8::try_from(delta_kelvin).unwrap_or(u8::MAX), thresh };
        Self::new(EventKind::THERMAL_EXCURSION, origin, input, data.as_bytes())
    }
}

/// A revision as Identify Controller has it: padded with spaces.
fn revision(text: &str) -> [u8; 8] {
    let mut field = [b' '; 8];
    let text: Vec<u8> = text.bytes().take(8).collect();
    field[..text.len()].copy_from_slice(&text);
    field
}

/// Bytes as hexadecimal text.
mod bytes {
    use core::fmt::Write as _;

    use serde::ser::Error as _;

    use super::{Deserialize, Deserializer, Serializer, String, Vec};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            write!(text, "{byte:02x}").map_err(S::Error::custom)?;
        }
        serializer.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::read_hex(&text).ok_or_else(|| super::wrong_hex::<D>())
    }
}

fn read_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

fn wrong_hex<'de, D: Deserializer<'de>>() -> D::Error {
    D::Error::custom("an even number of hexadecimal digits is expected")
}
