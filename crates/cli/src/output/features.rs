//! Views of a feature's value (`get-feature`, `set-feature`).

use std::fmt::Write as _;

use ebof_nvme::HostId;
use ebof_nvme::feature::{
    Arbitration, AsyncEventConfig, Capabilities, EnduranceGroupEvents, ErrorRecovery, Fid, HostBehaviorSupport,
    KeepAliveTimer, NumberOfQueues, PowerManagement, ReservationMask, ReservationPersistence, SanitizeConfig, Select,
    TemperatureThreshold, ThermalManagement, ThresholdType, Timestamp, VolatileWriteCache, WriteAtomicity,
    WriteProtection,
};
use ebof_nvme::log::ReservationEvent;
use zerocopy::FromBytes as _;

use super::json::Object;
use super::text::{digits, dump, temperature};
use super::{View, feature_json};

/// The result of Get Features.
pub(crate) struct FeatureView {
    /// The feature.
    pub(crate) fid: Fid,
    /// Current, default, saved, or supported capabilities.
    pub(crate) select: Select,
    /// Dword 0 of the completion.
    pub(crate) value: u32,
    /// The data structure, empty if there is none.
    pub(crate) data: Vec<u8>,
}

impl View for FeatureView {
    fn text(&self, verbose: bool) -> String {
        let value = dword(self.value);
        let fid = self.fid.0;
        let select = select_name(self.select);
        let mut text = format!("get-feature:{fid:#04x} ({}), {select} value:{value}\n", name(self.fid));
        if self.select == Select::Supported {
            let capabilities = Capabilities::decode(self.value);
            for (set, line) in [
                (capabilities.saveable, "Feature is saveable"),
                (capabilities.namespace_specific, "Feature is per-namespace"),
                (capabilities.changeable, "Feature is changeable"),
            ] {
                text += &if set { format!("  {line}\n") } else { String::new() };
            }
        } else if verbose {
            for (name, value) in explain(self.fid, self.value, &self.data) {
                let _infallible = writeln!(text, "\t{name:<48}: {value}");
            }
        } else if !self.data.is_empty() {
            text += &dump(&self.data);
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let fid = format!("{:#04x}", self.fid.0);
        let named = Object::new().with("name", name(self.fid)).with(select_name(self.select), dword(self.value));
        let mut object = Object::document("get-feature", 1)
            .with("feature", self.fid.0)
            .with("name", name(self.fid))
            .with("select", select_name(self.select).to_lowercase())
            .with("value", self.value)
            .with(format!("feature: {fid}"), vec![named]);
        if self.select == Select::Supported {
            let capabilities = Capabilities::decode(self.value);
            return object
                .with(format!("Feature: {fid}: select"), feature_json::capabilities(self.value))
                .with("saveable", capabilities.saveable)
                .with("namespace_specific", capabilities.namespace_specific)
                .with("changeable", capabilities.changeable);
        }
        if !self.data.is_empty() {
            object.push("data", digits(&self.data));
        }
        let fields = feature_json::fields(self.fid, self.value, &self.data);
        if !fields.is_empty() {
            object.push(format!("Feature: {fid}"), vec![fields]);
        }
        let fields = explain(self.fid, self.value, &self.data).into_iter();
        let fields = fields.fold(Object::new(), |object, (name, value)| object.with(name, value));
        if fields.is_empty() { object } else { object.with("fields", fields) }
    }

    fn binary(&self) -> Option<&[u8]> {
        (!self.data.is_empty()).then_some(&self.data)
    }
}

/// The result of Set Features.
pub(crate) struct FeatureSetView {
    /// The feature.
    pub(crate) fid: Fid,
    /// The requested value.
    pub(crate) value: u32,
    /// Whether the value was saved.
    pub(crate) saved: bool,
    /// Dword 0 of the completion.
    pub(crate) result: u32,
}

impl View for FeatureSetView {
    fn text(&self, _verbose: bool) -> String {
        let fid = self.fid.0;
        let value = self.value;
        let kept = if self.saved { "" } else { " (not saved: lost at a reset)" };
        let mut text = format!("set-feature:{fid:#04x} ({}), value:{value:#010x}{kept}\n", name(self.fid));
        if self.result != 0 {
            let _infallible = writeln!(text, "result:{:#010x}", self.result);
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("set-feature", 1)
            .with("feature", self.fid.0)
            .with("name", name(self.fid))
            .with("value", self.value)
            .with("saved", self.saved)
            .with("result", self.result)
    }
}

fn name(fid: Fid) -> &'static str {
    fid.name().unwrap_or("Unknown")
}

fn select_name(select: Select) -> &'static str {
    match select {
        Select::Current => "Current",
        Select::Default => "Default",
        Select::Saved => "Saved",
        Select::Supported => "Supported capabilities",
        Select::Reserved(_) => "Reserved",
    }
}

/// As C's `%#010x`, but 0.
fn dword(value: u32) -> String {
    if value == 0 { "00000000".to_owned() } else { format!("{value:#010x}") }
}

/// The state of a namespace's write protection.
pub(super) fn write_protection(value: u32) -> &'static str {
    match WriteProtection::decode(value) {
        WriteProtection::None => "No Write Protect",
        WriteProtection::Protected => "Write Protect",
        WriteProtection::UntilPowerCycle => "Write Protect Until Power Cycle",
        WriteProtection::Permanent => "Permanent Write Protect",
        WriteProtection::Reserved(_) => "Reserved",
    }
}

pub(super) fn enabled(set: bool) -> String {
    if set { "Enabled" } else { "Disabled" }.to_owned()
}

/// The value as text, with nvme-cli's names.
fn explain(fid: Fid, value: u32, data: &[u8]) -> Vec<(&'static str, String)> {
    match fid {
        Fid::ARBITRATION => {
            let arbitration = Arbitration::decode(value);
            let burst = arbitration.burst_commands().map_or_else(|| "No limit".to_owned(), |burst| burst.to_string());
            vec![
                ("High Priority Weight (HPW)", arbitration.high_weight.to_string()),
                ("Medium Priority Weight (MPW)", arbitration.medium_weight.to_string()),
                ("Low Priority Weight (LPW)", arbitration.low_weight.to_string()),
                ("Arbitration Burst (AB)", burst),
            ]
        }
        Fid::POWER_MANAGEMENT => {
            let power = PowerManagement::decode(value);
            vec![
                ("Workload Hint (WH)", power.workload_hint.to_string()),
                ("Power State (PS)", power.power_state.to_string()),
            ]
        }
        Fid::TEMPERATURE_THRESHOLD => explain_temperature(value),
        Fid::ERROR_RECOVERY => {
            let recovery = ErrorRecovery::decode(value);
            let limit = u32::from(recovery.time_limit_100ms) * 100;
            vec![
                ("Deallocated Block Error Enable (DULBE)", enabled(recovery.deallocated_error)),
                ("Time Limited Error Recovery (TLER)", format!("{limit} ms")),
            ]
        }
        Fid::VOLATILE_WRITE_CACHE => {
            vec![("Volatile Write Cache Enable (WCE)", enabled(VolatileWriteCache::decode(value).enabled))]
        }
        Fid::NUMBER_OF_QUEUES => match NumberOfQueues::decode(value) {
            Some(queues) => vec![
                ("Number of IO Completion Queues Allocated (NCQA)", queues.completion.to_string()),
                ("Number of IO Submission Queues Allocated (NSQA)", queues.submission.to_string()),
            ],
            None => Vec::new(),
        },
        Fid::WRITE_ATOMICITY => {
            let disabled = if WriteAtomicity::decode(value).disable_normal { "True" } else { "False" };
            vec![("Disable Normal (DN)", disabled.to_owned())]
        }
        Fid::ASYNC_EVENT_CONFIG => explain_events(AsyncEventConfig(value)),
        Fid::KEEP_ALIVE_TIMER => {
            vec![("Keep Alive Timeout (KATO)", format!("{} ms", KeepAliveTimer::decode(value).timeout_ms))]
        }
        Fid::WRITE_PROTECTION => {
            vec![("Namespace Write Protect", write_protection(value).to_owned())]
        }
        Fid::TIMESTAMP | Fid::HOST_IDENTIFIER | Fid::HOST_BEHAVIOR_SUPPORT => explain_data(fid, data),
        _ => explain_drive(fid, value),
    }
}

/// The features of drives as text.
fn explain_drive(fid: Fid, value: u32) -> Vec<(&'static str, String)> {
    match fid {
        Fid::THERMAL_MANAGEMENT => {
            let thermal = ThermalManagement::decode(value);
            vec![
                ("Thermal Management Temperature 1 (TMT1)", format!("{} K", thermal.light_kelvin)),
                ("Thermal Management Temperature 2 (TMT2)", format!("{} K", thermal.heavy_kelvin)),
            ]
        }
        Fid::SANITIZE_CONFIG => {
            let mode = if SanitizeConfig::decode(value).warn { "Warning" } else { "Error" };
            vec![("No-Deallocate Response Mode (NODRM)", mode.to_owned())]
        }
        Fid::ENDURANCE_GROUP_EVENT => {
            let events = EnduranceGroupEvents::decode(value);
            vec![
                ("Endurance Group Identifier (ENDGID)", events.group.to_string()),
                ("Endurance Group Critical Warnings", format!("{:#04x}", events.warnings)),
            ]
        }
        Fid::RESERVATION_NOTIFICATION_MASK => {
            let mask = ReservationMask::decode(value);
            let masked = |event| if mask.masks(event) { "True" } else { "False" }.to_owned();
            vec![
                ("Mask Reservation Preempted Notification", masked(ReservationEvent::ReservationPreempted)),
                ("Mask Reservation Released Notification", masked(ReservationEvent::ReservationReleased)),
                ("Mask Registration Preempted Notification", masked(ReservationEvent::RegistrationPreempted)),
            ]
        }
        Fid::RESERVATION_PERSISTENCE => {
            vec![("Persist Through Power Loss (PTPL)", enabled(ReservationPersistence::decode(value).persist))]
        }
        _ => Vec::new(),
    }
}

fn explain_temperature(value: u32) -> Vec<(&'static str, String)> {
    let threshold = TemperatureThreshold::decode(value);
    let kind = match threshold.threshold {
        ThresholdType::Over => "Over Temperature Threshold",
        ThresholdType::Under => "Under Temperature Threshold",
        ThresholdType::Reserved(_) => "Reserved",
    };
    vec![
        ("Temperature Threshold Hysteresis (TMPTHH)", format!("{} K", threshold.hysteresis)),
        ("Threshold Type Select (THSEL)", kind.to_owned()),
        ("Threshold Temperature Select (TMPSEL)", threshold.sensor.to_string()),
        ("Temperature Threshold (TMPTH)", temperature(threshold.kelvin)),
    ]
}

fn explain_events(config: AsyncEventConfig) -> Vec<(&'static str, String)> {
    use AsyncEventConfig as E;
    [
        ("Discovery Log Page Change Notices", E::DISCOVERY_LOG),
        ("Zone Descriptor Changed Notices", E::ZONE_DESCRIPTOR),
        ("Allocated Namespace Attribute Notices", E::ALLOCATED_NAMESPACE_ATTRIBUTE),
        ("Temperature Threshold Hysteresis Recovery", E::TEMPERATURE_HYSTERESIS),
        ("Normal NVM Subsystem Shutdown", E::NORMAL_SHUTDOWN),
        ("Endurance Group Event Aggregate Log Change", E::ENDURANCE_GROUP),
        ("LBA Status Information Notices", E::LBA_STATUS),
        ("Predictable Latency Event Aggregate Log Change", E::PREDICTABLE_LATENCY),
        ("Asymmetric Namespace Access Change Notices", E::ANA_CHANGE),
        ("Telemetry Log Notices", E::TELEMETRY_LOG),
        ("Firmware Activation Notices", E::FIRMWARE_ACTIVATION),
        ("Namespace Attribute Notices", E::NAMESPACE_ATTRIBUTE),
        ("SMART: Persistent Memory Region", E::PERSISTENT_MEMORY),
        ("SMART: Volatile Memory Backup", E::VOLATILE_BACKUP),
        ("SMART: Media Read-Only", E::READ_ONLY),
        ("SMART: NVM Subsystem Reliability", E::DEGRADED),
        ("SMART: Temperature", E::TEMPERATURE),
        ("SMART: Available Spare", E::SPARE),
    ]
    .into_iter()
    .map(|(name, bit)| {
        (name, if config.contains(bit) { "Send async event" } else { "Do not send async event" }.to_owned())
    })
    .collect()
}

fn explain_data(fid: Fid, data: &[u8]) -> Vec<(&'static str, String)> {
    match fid {
        Fid::TIMESTAMP => match Timestamp::ref_from_prefix(data) {
            Ok((timestamp, _)) => {
                let origin = if timestamp.set_by_host() { "set by a host" } else { "since the last reset" };
                vec![("Timestamp", format!("{} ms", timestamp.milliseconds())), ("Timestamp Origin", origin.to_owned())]
            }
            Err(_) => Vec::new(),
        },
        Fid::HOST_BEHAVIOR_SUPPORT => match HostBehaviorSupport::ref_from_prefix(data) {
            Ok((support, _)) => vec![
                ("Advanced Command Retry Enable (ACRE)", enabled(support.acre == 1)),
                ("LBA Format Extension Enable (LBAFEE)", enabled(support.lbafee == 1)),
            ],
            Err(_) => Vec::new(),
        },
        _ => match data.first_chunk::<16>() {
            Some(id) => vec![("Host Identifier", HostId(*id).to_string())],
            None => Vec::new(),
        },
    }
}
