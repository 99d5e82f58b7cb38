//! What a drive says of itself beside the inventory: firmware, formats, health, logs, sanitizing,
//! self-tests, namespaces and controllers. A snapshot: values of one moment.

use serde::{Deserialize, Serialize};

use super::drive_change::{ProtectionObject, SanitizeAction, SelfTestKind};
use super::name::{FunctionName, NamespaceName};
use crate::api::DriveHealth;

/// The version of the JSON shape of [`DriveDetails`].
pub const DETAILS_SCHEMA: u32 = 1;

/// Errors that [`DriveDetails`] has at most: the latest.
pub const ERRORS_MAX: usize = 64;

/// Events that [`DriveDetails`] has at most: the latest.
pub const EVENTS_MAX: usize = 64;

/// A drive in detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveDetails {
    /// [`DETAILS_SCHEMA`].
    pub details_schema: u32,
    /// Its name: `d3`.
    pub name: String,
    /// Model Number (MN) without the spaces at its end, with what the running firmware adds.
    pub model: String,
    /// Serial Number (SN) without the spaces at its end.
    pub serial: String,
    /// The drive's own UUID, in the form 8-4-4-4-12. It goes where the drive goes.
    pub uuid: String,
    /// NQNs of the hosts that may create, delete, attach and format by Admin commands; `None`:
    /// every host that may connect. The box always may.
    pub managers: Option<Vec<String>>,
    /// Whether namespaces together may have more capacity than the drive.
    pub overcommits: bool,
    /// Whether a namespace has one function or host at a time, shared or not.
    pub is_exclusive: bool,
    /// Whether new and formatted namespaces are encrypted on the medium.
    pub encrypts: bool,
    /// Whether new and formatted namespaces have a checksum for each block.
    pub checks: bool,
    /// Bytes that the medium has given to namespaces and holds data in, whole extents.
    pub allocated_bytes: u64,
    /// The unit in which capacity is given to namespaces, bytes: a power of two.
    pub extent_bytes: u64,
    /// Whether the drive is damaged and takes no writes.
    pub is_read_only: bool,
    /// The formats that a namespace can have, in the order of Identify Namespace (LBAF).
    pub formats: Vec<FormatObject>,
    /// Firmware slots.
    pub firmware: FirmwareObject,
    /// SMART / Health Information, as of the last collection (every ten seconds).
    pub health: DriveHealth,
    /// Temperatures and their thresholds.
    pub temperature: TemperatureObject,
    /// Endurance.
    pub endurance: EnduranceObject,
    /// The sanitize operation.
    pub sanitize: SanitizeObject,
    /// Self-tests.
    pub self_test: SelfTestObject,
    /// The Error Information log as of the last collection, the latest first, [`ERRORS_MAX`] at
    /// most.
    pub errors: Vec<ErrorObject>,
    /// The Persistent Event Log.
    pub events: EventsObject,
    /// Its namespaces, by NSID.
    pub namespaces: Vec<NamespaceDetails>,
    /// Its controllers: the primary one first, then those of its functions, by number.
    pub controllers: Vec<ControllerDetails>,
}

/// A format of blocks (LBAF).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatObject {
    /// Its index, as FLBAS and Format NVM count.
    pub index: u8,
    /// Data bytes of a block.
    pub block_size_bytes: u32,
    /// Metadata bytes at the end of each block.
    pub metadata_bytes: u16,
}

/// The firmware of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareObject {
    /// The revision that runs (FR of Identify Controller).
    pub running: String,
    /// The slot that it came from, 1 to 7.
    pub active_slot: u8,
    /// The slot that runs after the next reset of a controller, if that is another one.
    pub next_slot: Option<u8>,
    /// Its slots, from 1 on.
    pub slots: Vec<FirmwareSlotObject>,
}

/// A firmware slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirmwareSlotObject {
    /// Its number, 1 to 7.
    pub slot: u8,
    /// The revision that is in it; `None` where it is empty.
    pub revision: Option<String>,
    /// Whether it cannot be written.
    pub is_read_only: bool,
}

/// Temperatures of a drive, in kelvin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemperatureObject {
    /// What its sensor says now; `None` where it has none.
    pub now_kelvin: Option<u16>,
    /// From where on it is too warm (WCTEMP).
    pub warning_kelvin: u16,
    /// From where on it is much too warm (CCTEMP).
    pub critical_kelvin: u16,
    /// Whole minutes that it was at the warning threshold or above, and below the critical one.
    pub warning_minutes: u64,
    /// Whole minutes that it was at the critical threshold or above.
    pub critical_minutes: u64,
}

/// How much of a drive's life is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnduranceObject {
    /// Bytes that may be written to the medium over its life; `None`: any number.
    pub rated_bytes: Option<u64>,
    /// Bytes that were written to the medium since the drive was made, the drive's own included.
    pub written_bytes: u64,
    /// Percentage Used: 255 for more than 254; 0 where any number of bytes may be written.
    pub used_percent: u8,
}

/// The sanitize operation of a drive (Sanitize Status).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SanitizeObject {
    /// How the last one ended, or that one is going on.
    pub state: SanitizeStateObject,
    /// What the last operation, or the one that is going on, does; `None` if there never was one.
    pub action: Option<SanitizeAction>,
    /// How much of the one that is going on is done, 0 to 99.
    pub percent: Option<u8>,
    /// Overwrite passes that are done; 0 for other actions.
    pub passes: u8,
    /// Whether nothing was written since the drive was made or sanitized (Global Data Erased).
    pub is_erased: bool,
    /// The actions that the drive can do now.
    pub actions: Vec<SanitizeAction>,
    /// How long each action would take, in seconds, as far as it was measured.
    pub estimates: SanitizeEstimates,
}

/// Estimated times of sanitize operations, in seconds; `None` where nothing was measured, or the
/// drive cannot do it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SanitizeEstimates {
    /// Block Erase.
    pub block_erase_s: Option<u32>,
    /// Overwrite with 16 passes.
    pub overwrite_s: Option<u32>,
    /// Crypto Erase.
    pub crypto_erase_s: Option<u32>,
}

/// The state of a sanitize operation (SSTAT, SOS).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SanitizeStateObject {
    /// The drive was never sanitized.
    Never,
    /// The last operation succeeded.
    Succeeded,
    /// One is going on: most commands are refused meanwhile.
    InProgress,
    /// The last operation failed. Until another one succeeds, or the failure is left, most commands
    /// are refused.
    Failed,
    /// The last operation succeeded, and deallocated blocks although it was asked not to.
    SucceededDeallocated,
}

/// Self-tests of a drive (Device Self-test log).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfTestObject {
    /// The one that is going on.
    pub running: Option<RunningSelfTest>,
    /// The results of the last ones, the latest first, 20 at most.
    pub results: Vec<SelfTestOutcome>,
}

/// A self-test that is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningSelfTest {
    /// Short or extended.
    pub kind: SelfTestKind,
    /// How much of it is done, 0 to 99.
    pub percent: u8,
}

/// How a self-test ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfTestOutcome {
    /// Short or extended; `None` for another one.
    pub kind: Option<SelfTestKind>,
    /// The result's number (0 passed, 1 to 4 and 8, 9 aborted, 5 to 7 failed).
    pub result: u8,
    /// The same in words.
    pub meaning: String,
    /// Whether it passed.
    pub passed: bool,
    /// Whole hours that the drive had been open when it ended.
    pub power_on_hours: u64,
    /// The first segment that failed (1 health, 2 the drive's own data, 3 data, 4 life).
    pub segment: Option<u8>,
    /// The namespace whose data could not be read.
    pub nsid: Option<u32>,
    /// The block that could not be read.
    pub lba: Option<u64>,
}

/// An entry of the Error Information log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// Its number, from 1 since the drive was made (Error Count).
    pub number: u64,
    /// The queue of the command; `None` if it is no command's.
    pub queue: Option<u16>,
    /// The command's identifier; `None` if it is no command's.
    pub cid: Option<u16>,
    /// Status Type, 0 to 7.
    pub status_type: u8,
    /// Status Code.
    pub status_code: u8,
    /// The status in words.
    pub meaning: String,
    /// The byte of the command that is wrong.
    pub byte: Option<u8>,
    /// The namespace; `None` if it is about none.
    pub nsid: Option<u32>,
    /// The first block concerned; `None` where it is about none, or while LBAs are hidden by a
    /// sanitize operation.
    pub lba: Option<u64>,
    /// The command's opcode; `None` if it is no command's.
    pub opcode: Option<u8>,
}

/// The Persistent Event Log of a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventsObject {
    /// Events that it has.
    pub count: u64,
    /// Events that there ever were: the oldest are gone.
    pub total: u64,
    /// The latest, the latest first, [`EVENTS_MAX`] at most.
    pub latest: Vec<EventObject>,
}

/// An event of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventObject {
    /// Its type (Event Type), such as 6 for Change Namespace.
    pub kind: u8,
    /// The type in words: `Change Namespace`.
    pub name: String,
    /// When, in milliseconds since 1970-01-01T00:00:00Z.
    pub unix_ms: u64,
    /// The controller whose command it was; `None` for the drive itself and the box.
    pub cntlid: Option<u16>,
}

/// A namespace in detail. Where it is attached is in the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceDetails {
    /// Its name: `d3/ns4`.
    pub name: NamespaceName,
    /// Data bytes of all its blocks (NSZE).
    pub size_bytes: u64,
    /// Data bytes of the blocks that may be allocated (NCAP): fewer than its size where it is thin.
    pub capacity_bytes: u64,
    /// Data bytes of the blocks that are allocated (NUSE), in whole extents.
    pub used_bytes: u64,
    /// What it takes from the drive's capacity, metadata and checksums included (NVMCAP).
    pub claimed_bytes: u64,
    /// Its format.
    pub format: FormatObject,
    /// Protection information.
    pub protection: ProtectionObject,
    /// Whether it may be attached to more than one function or host.
    pub shared: bool,
    /// Whether it is write protected.
    pub write_protected: bool,
    /// Whether its blocks are encrypted on the medium.
    pub encrypted: bool,
    /// Whether its blocks have checksums on the medium.
    pub checked: bool,
    /// How much of erasing its old data after a format is done, 0 to 99; `None` if nothing is being
    /// erased.
    pub format_percent: Option<u8>,
    /// UUID, in the form 8-4-4-4-12.
    pub uuid: String,
    /// NGUID, 32 hexadecimal digits.
    pub nguid: String,
    /// EUI-64, 16 hexadecimal digits.
    pub eui64: String,
    /// NQN of the host that created it; `None` for the box and the configuration.
    pub owner: Option<String>,
    /// Hosts that are registered for its reservation.
    pub registrants: u32,
    /// Type of the reservation that is held (Reservation Type, 1 to 6); `None` if none is.
    pub reservation: Option<u8>,
}

/// A controller of a drive, as hosts see it: each host that connects to the primary controller's
/// subsystem, or to a function's, gets controllers like it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControllerDetails {
    /// Its function; `None` for the primary controller.
    pub function: Option<FunctionName>,
    /// Its Controller Identifier among primary and secondary controllers: 0 for the primary one,
    /// the function's number for others. Controllers of hosts on fabrics have others.
    pub cntlid: u16,
    /// Whether it is online; the primary controller always is.
    pub online: bool,
    /// The version of the specification (VS): `2.1.0`.
    pub version: String,
    /// Queue pairs assigned to it (VQ), flexible ones.
    pub queues: u16,
    /// Interrupt vectors assigned to it (VI), flexible ones.
    pub interrupts: u16,
    /// I/O queue pairs that one controller of a host can have at most.
    pub io_queues_max: u32,
    /// Entries of a queue at most (CAP.MQES + 1).
    pub queue_entries_max: u32,
    /// Bytes of one command's data at most (MDTS).
    pub transfer_bytes_max: u32,
    /// Optional Admin Command Support (OACS).
    pub oacs: u16,
    /// Optional NVM Command Support (ONCS).
    pub oncs: u16,
    /// Controller Attributes (CTRATT).
    pub ctratt: u32,
    /// Critical Warning bits that it reports now (SMART / Health Information).
    pub critical_warning: u8,
}
