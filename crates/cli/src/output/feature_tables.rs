//! The fields of features' values: the text has short names, JSON the keys and types of nvme-cli
//! 2.13.

use ebof_nvme::HostId;
use ebof_nvme::feature::{Arbitration, AsyncEventConfig, Fid, HostBehaviorSupport, NumberOfQueues, Timestamp};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::health::kelvin;
use super::json::Object;
use super::structure::{FieldTable, LineFormat, Row, table};
use super::text::digits;

/// A value's fields.
#[derive(Default)]
pub(super) struct Explained {
    /// A line for each.
    pub(super) text: String,
    /// The names and values of these lines.
    pub(super) fields: Object,
    /// nvme-cli's keys.
    pub(super) json: Object,
}

impl Explained {
    fn from_table<T: IntoBytes + Immutable>(table: &FieldTable<T>, data: &T) -> Self {
        let values = table.named_values(data).into_iter();
        Self {
            text: table.text(data, true),
            fields: values.fold(Object::new(), |object, (name, value)| object.with(name, value)),
            json: table.json(data, true),
        }
    }

    /// As [`Self::from_table`], of bytes that came; nothing if they are too few.
    fn from_bytes<T: FromBytes + IntoBytes + Immutable>(table: &FieldTable<T>, data: &[u8]) -> Self {
        T::read_from_prefix(data).map_or_else(|_short| Self::default(), |(data, _)| Self::from_table(table, &data))
    }
}

/// The fields of dword 0, or of the data structure; none for a feature that is not known.
pub(super) fn explained(fid: Fid, value: u32, data: &[u8]) -> Explained {
    match fid {
        Fid::TIMESTAMP => Explained::from_bytes(&TIMESTAMP, data),
        Fid::HOST_BEHAVIOR_SUPPORT => Explained::from_bytes(&HOST_BEHAVIOR, data),
        Fid::HOST_IDENTIFIER => {
            let shown = Explained::from_bytes(&HOST_IDENTIFIER, data);
            // nvme-cli shows an identifier of 8 bytes, too.
            let json = Object::new().with("Host Identifier (HOSTID)", digits(data));
            Explained { json: if data.is_empty() { Object::new() } else { json }, ..shown }
        }
        _ => {
            let table = FEATURES.iter().find(|(known, _)| *known == fid);
            table
                .map(|(_, rows)| Explained::from_table(&FieldTable::new(LINE, rows), &value.into()))
                .unwrap_or_default()
        }
    }
}

const LINE: LineFormat = LineFormat { before: "\t", width: 48, between: ": " };
const ENABLED: &[&str] = &["Disabled", "Enabled"];
const TRUTH: &[&str] = &["False", "True"];

/// Bits of dword 0.
const fn field(name: &'static str, high: u8, low: u8) -> Row<U32> {
    Row::at(name, 0, 4).bits(high, low)
}

static FEATURES: [(Fid, &[Row<U32>]); 16] = [
    (Fid::ARBITRATION, ARBITRATION),
    (Fid::POWER_MANAGEMENT, POWER_MANAGEMENT),
    (Fid::TEMPERATURE_THRESHOLD, TEMPERATURE_THRESHOLD),
    (Fid::ERROR_RECOVERY, ERROR_RECOVERY),
    (Fid::VOLATILE_WRITE_CACHE, &[field("Volatile Write Cache Enable (WCE)", 0, 0).words(ENABLED)]),
    (Fid::NUMBER_OF_QUEUES, NUMBER_OF_QUEUES),
    (Fid::WRITE_ATOMICITY, &[field("Disable Normal (DN)", 0, 0).words(TRUTH)]),
    (Fid::ASYNC_EVENT_CONFIG, EVENTS),
    (Fid::KEEP_ALIVE_TIMER, KEEP_ALIVE_TIMER),
    (Fid::THERMAL_MANAGEMENT, THERMAL_MANAGEMENT),
    (Fid::SANITIZE_CONFIG, SANITIZE_CONFIG),
    (Fid::ENDURANCE_GROUP_EVENT, ENDURANCE_GROUP_EVENT),
    (Fid::IO_COMMAND_SET_PROFILE, &[field("I/O Command Set Profile", 0, 0).only_json().words(TRUTH)]),
    (Fid::RESERVATION_NOTIFICATION_MASK, RESERVATION_MASK),
    (Fid::RESERVATION_PERSISTENCE, RESERVATION_PERSISTENCE),
    (Fid::WRITE_PROTECTION, WRITE_PROTECTION),
];

const ARBITRATION: &[Row<U32>] = &[
    field("High Priority Weight (HPW)", 31, 24).scaled(|weight| weight + 1),
    field("Medium Priority Weight (MPW)", 23, 16).scaled(|weight| weight + 1),
    field("Low Priority Weight (LPW)", 15, 8).scaled(|weight| weight + 1),
    field("Arbitration Burst (AB)", 2, 0).shown(|value| {
        let burst = Arbitration::decode(value.get()).burst_commands();
        burst.map_or_else(|| "No limit".to_owned(), |burst| burst.to_string())
    }),
];

const POWER_MANAGEMENT: &[Row<U32>] = &[
    field("Workload Hint (WH)", 7, 5),
    field("WH description", 7, 5).only_json().words(&[
        "No Workload",
        "Extended Idle Period with a Burst of Random Writes",
        "Heavy Sequential Writes",
    ]),
    field("Power State (PS)", 4, 0),
];

const THRESHOLD_TYPES: &[&str] = &["Over Temperature Threshold", "Under Temperature Threshold"];

const TEMPERATURE_THRESHOLD: &[Row<U32>] = &[
    // A difference: nvme-cli takes it for a temperature and has 273 less.
    field("Temperature Threshold Hysteresis (TMPTHH)", 24, 22).only_json().unit(" Celsius").text_in_json(),
    field("Temperature Threshold Hysteresis (TMPTHH)", 24, 22).key("TMPTHH kelvin").unit(" K").text_in_json(),
    field("Threshold Type Select (THSEL)", 21, 20).words(THRESHOLD_TYPES).number(),
    field("THSEL description", 21, 20).only_json().words(THRESHOLD_TYPES),
    field("Threshold Temperature Select (TMPSEL)", 19, 16),
    field("TMPSEL description", 19, 16).only_json().words(&[
        "Composite Temperature",
        "Temperature Sensor 1",
        "Temperature Sensor 2",
        "Temperature Sensor 3",
        "Temperature Sensor 4",
        "Temperature Sensor 5",
        "Temperature Sensor 6",
        "Temperature Sensor 7",
        "Temperature Sensor 8",
    ]),
    field("Temperature Threshold (TMPTH)", 15, 0).only_text().written(kelvin),
    field("Temperature Threshold (TMPTH)", 15, 0).only_json().written(celsius).text_in_json(),
    field("TMPTH kelvin", 15, 0).only_json().unit(" K").text_in_json(),
];

fn celsius(kelvin: u128) -> String {
    format!("{} Celsius", i32::try_from(kelvin).unwrap_or(i32::MAX) - 273)
}

const ERROR_RECOVERY: &[Row<U32>] = &[
    field("Deallocated Block Error Enable (DULBE)", 16, 16)
        .key("Deallocated or Unwritten Logical Block Error Enable (DULBE)")
        .words(ENABLED),
    field("Time Limited Error Recovery (TLER)", 15, 0).scaled(|units| units * 100).unit(" ms").text_in_json(),
];

const NUMBER_OF_QUEUES: &[Row<U32>] = &[
    field("Number of IO Completion Queues Allocated (NCQA)", 31, 16)
        .scaled(|last| last + 1)
        .only_if(|value| NumberOfQueues::decode(value.get()).is_some()),
    field("Number of IO Submission Queues Allocated (NSQA)", 15, 0)
        .scaled(|last| last + 1)
        .only_if(|value| NumberOfQueues::decode(value.get()).is_some()),
];

/// An event by its bit.
const fn event(name: &'static str, event: AsyncEventConfig) -> Row<U32> {
    bit(name, event.0.ilog2())
}

const fn bit(name: &'static str, bit: u32) -> Row<U32> {
    let [bit, ..] = bit.to_le_bytes();
    field(name, bit, bit).words(&["Do not send async event", "Send async event"])
}

const EVENTS: &[Row<U32>] = &[
    event("Discovery Log Page Change Notices", AsyncEventConfig::DISCOVERY_LOG),
    bit("Host Discovery Log Page Change Notification", 30).only_json(),
    bit("AVE Discovery Log Page Change Notification", 29).only_json(),
    bit("Pull Model DDC Request Log Page Change Notification", 28).only_json(),
    event("Zone Descriptor Changed Notices", AsyncEventConfig::ZONE_DESCRIPTOR),
    event("Cross-Controller Reset Completed Notices", AsyncEventConfig::CROSS_CONTROLLER_RESET).only_text(),
    event("Allocated Namespace Attribute Notices", AsyncEventConfig::ALLOCATED_NAMESPACE_ATTRIBUTE).only_text(),
    event("Reachability Group", AsyncEventConfig::REACHABILITY_GROUP).only_json(),
    event("Reachability Association", AsyncEventConfig::REACHABILITY_ASSOCIATION).only_json(),
    event("Temperature Threshold Hysteresis Recovery", AsyncEventConfig::TEMPERATURE_HYSTERESIS).only_text(),
    event("Normal NVM Subsystem Shutdown", AsyncEventConfig::NORMAL_SHUTDOWN),
    event("Endurance Group Event Aggregate Log Change", AsyncEventConfig::ENDURANCE_GROUP)
        .key("Endurance Group Event Aggregate Log Change Notices"),
    event("LBA Status Information Notices", AsyncEventConfig::LBA_STATUS),
    event("Predictable Latency Event Aggregate Log Change", AsyncEventConfig::PREDICTABLE_LATENCY)
        .key("Predictable Latency Event Aggregate Log Change Notices"),
    event("Asymmetric Namespace Access Change Notices", AsyncEventConfig::ANA_CHANGE),
    event("Telemetry Log Notices", AsyncEventConfig::TELEMETRY_LOG),
    event("Firmware Activation Notices", AsyncEventConfig::FIRMWARE_ACTIVATION),
    event("Namespace Attribute Notices", AsyncEventConfig::NAMESPACE_ATTRIBUTE),
    event("SMART: Persistent Memory Region", AsyncEventConfig::PERSISTENT_MEMORY).only_text(),
    event("SMART: Volatile Memory Backup", AsyncEventConfig::VOLATILE_BACKUP).only_text(),
    event("SMART: Media Read-Only", AsyncEventConfig::READ_ONLY).only_text(),
    event("SMART: NVM Subsystem Reliability", AsyncEventConfig::DEGRADED).only_text(),
    event("SMART: Temperature", AsyncEventConfig::TEMPERATURE).only_text(),
    event("SMART: Available Spare", AsyncEventConfig::SPARE).only_text(),
    bit("SMART / Health Critical Warnings", 0).only_json().computed(|value| u128::from(value.get() & 0x3f != 0)),
];

const KEEP_ALIVE_TIMER: &[Row<U32>] =
    &[field("Keep Alive Timeout (KATO)", 31, 0).key("Keep Alive Timeout (KATO) in milliseconds").unit(" ms")];

const THERMAL_MANAGEMENT: &[Row<U32>] = &[
    field("Thermal Management Temperature 1 (TMT1)", 31, 16).unit(" K").text_in_json(),
    field("TMT1 celsius", 31, 16).only_json().written(celsius).text_in_json(),
    field("Thermal Management Temperature 2 (TMT2)", 15, 0)
        .key("Thermal Management Temperature 2")
        .unit(" K")
        .text_in_json(),
    field("TMT2 celsius", 15, 0).only_json().written(celsius).text_in_json(),
];

const SANITIZE_CONFIG: &[Row<U32>] =
    &[field("No-Deallocate Response Mode (NODRM)", 0, 0).words(&["Error", "Warning"]).number()];

const ENDURANCE_GROUP_EVENT: &[Row<U32>] = &[
    field("Endurance Group Identifier (ENDGID)", 15, 0),
    field("Endurance Group Critical Warnings", 23, 16).written(|warnings| format!("{warnings:#04x}")),
];

const RESERVATION_MASK: &[Row<U32>] = &[
    field("Mask Reservation Preempted Notification", 3, 3)
        .key("Mask Reservation Preempted Notification (RESPRE)")
        .words(TRUTH),
    field("Mask Reservation Released Notification", 2, 2)
        .key("Mask Reservation Released Notification (RESREL)")
        .words(TRUTH),
    field("Mask Registration Preempted Notification", 1, 1)
        .key("Mask Registration Preempted Notification (REGPRE)")
        .words(TRUTH),
];

const RESERVATION_PERSISTENCE: &[Row<U32>] = &[
    field("Persist Through Power Loss (PTPL)", 0, 0).only_text().words(ENABLED),
    field("Persist Through Power Loss (PTPL)", 0, 0).only_json().words(TRUTH),
];

const WRITE_PROTECTION: &[Row<U32>] = &[field("Namespace Write Protect", 2, 0).words(&[
    "No Write Protect",
    "Write Protect",
    "Write Protect Until Power Cycle",
    "Permanent Write Protect",
])];

static TIMESTAMP: FieldTable<Timestamp> = table! { LINE, Timestamp:
    timestamp as "Timestamp" .key("timestamp").unit(" ms"),
    timestamp as "timestamp string"
        .only_json()
        .shown(|timestamp| ebof_attach::time::utc(timestamp.milliseconds() / 1000)),
    attr as "Timestamp Origin"
        .key("timestamp origin")
        .computed(|timestamp| timestamp.set_by_host().into())
        .words(&["since the last reset", "set by a host"]),
    attr as "synch" .only_json().bits(0, 0).words(&["counted without a break", "may have stopped counting"]),
};

static HOST_BEHAVIOR: FieldTable<HostBehaviorSupport> = table! { LINE, HostBehaviorSupport:
    acre as "Advanced Command Retry Enable (ACRE)"
        .only_text()
        .computed(|data| (data.acre == 1).into())
        .words(ENABLED),
    lbafee as "LBA Format Extension Enable (LBAFEE)"
        .only_text()
        .computed(|data| (data.lbafee == 1).into())
        .words(ENABLED),
    acre as "Host Behavior Support" .only_json().bits(0, 0).words(TRUTH),
    acre as "Advanced Command Retry Enable (ACRE)"
        .only_json()
        .computed(|data| (data.acre != 0).into())
        .words(TRUTH),
    etdas as "Extended Telemetry Data Area 4 Supported (ETDAS)"
        .only_json()
        .computed(|data| (data.etdas != 0).into())
        .words(TRUTH),
    lbafee as "LBA Format Extension Enable (LBAFEE)"
        .only_json()
        .computed(|data| (data.lbafee != 0).into())
        .words(TRUTH),
    hdisns as "Host Dispersed Namespace Support (HDISNS)"
        .only_json()
        .computed(|data| (data.hdisns != 0).into())
        .words(ENABLED),
    cdfe as "Copy Descriptor Format 2h Enable (CDF2E)" .only_json().bits(2, 2).words(TRUTH),
    cdfe as "Copy Descriptor Format 3h Enable (CDF3E)" .only_json().bits(3, 3).words(TRUTH),
    cdfe as "Copy Descriptor Format 4h Enable (CDF4E)" .only_json().bits(4, 4).words(TRUTH),
};

static HOST_IDENTIFIER: FieldTable<[u8; 16]> =
    FieldTable::new(LINE, &[Row::at("Host Identifier", 0, 16).only_text().shown(|id| HostId(*id).to_string())]);
