//! A feature's value with the keys and the types of nvme-cli 2.13's JSON. What people read is in
//! `features`.

use ebof_nvme::feature::{
    Arbitration, AsyncEventConfig, Capabilities, EnduranceGroupEvents, ErrorRecovery, Fid, HostBehaviorSupport,
    KeepAliveTimer, NumberOfQueues, PowerManagement, ReservationMask, ReservationPersistence, SanitizeConfig,
    TemperatureThreshold, ThermalManagement, ThresholdType, Timestamp, VolatileWriteCache, WriteAtomicity,
};
use ebof_nvme::log::ReservationEvent;
use zerocopy::FromBytes as _;

use super::features::{enabled, write_protection};
use super::json::Object;
use super::text::digits;

/// The capabilities that are there, by name.
pub(super) fn capabilities(value: u32) -> Vec<&'static str> {
    let capabilities = Capabilities::decode(value);
    let all = [
        (capabilities.saveable, "saveable"),
        (capabilities.namespace_specific, "per-namespace"),
        (capabilities.changeable, "changeable"),
    ];
    all.into_iter().filter_map(|(set, name)| set.then_some(name)).collect()
}

/// The fields of a value; empty for a feature that is not known.
pub(super) fn fields(fid: Fid, value: u32, data: &[u8]) -> Object {
    match fid {
        Fid::ARBITRATION => {
            let arbitration = Arbitration::decode(value);
            let burst = arbitration.burst_commands().map_or_else(|| "No limit".to_owned(), |burst| burst.to_string());
            Object::new()
                .with("High Priority Weight (HPW)", arbitration.high_weight)
                .with("Medium Priority Weight (MPW)", arbitration.medium_weight)
                .with("Low Priority Weight (LPW)", arbitration.low_weight)
                .with("Arbitration Burst (AB)", burst)
        }
        Fid::POWER_MANAGEMENT => power(PowerManagement::decode(value)),
        Fid::TEMPERATURE_THRESHOLD => temperature_threshold(TemperatureThreshold::decode(value)),
        Fid::ERROR_RECOVERY => {
            let recovery = ErrorRecovery::decode(value);
            let limit = u32::from(recovery.time_limit_100ms) * 100;
            let key = "Deallocated or Unwritten Logical Block Error Enable (DULBE)";
            Object::new()
                .with(key, enabled(recovery.deallocated_error))
                .with("Time Limited Error Recovery (TLER)", format!("{limit} ms"))
        }
        Fid::VOLATILE_WRITE_CACHE => {
            Object::new().with("Volatile Write Cache Enable (WCE)", enabled(VolatileWriteCache::decode(value).enabled))
        }
        Fid::NUMBER_OF_QUEUES => NumberOfQueues::decode(value).map_or_else(Object::new, |queues| {
            Object::new()
                .with("Number of IO Completion Queues Allocated (NCQA)", queues.completion)
                .with("Number of IO Submission Queues Allocated (NSQA)", queues.submission)
        }),
        Fid::WRITE_ATOMICITY => {
            Object::new().with("Disable Normal (DN)", truth(WriteAtomicity::decode(value).disable_normal))
        }
        Fid::ASYNC_EVENT_CONFIG => events(AsyncEventConfig(value)),
        Fid::KEEP_ALIVE_TIMER => {
            let timeout = KeepAliveTimer::decode(value).timeout_ms;
            Object::new().with("Keep Alive Timeout (KATO) in milliseconds", timeout)
        }
        Fid::WRITE_PROTECTION => Object::new().with("Namespace Write Protect", write_protection(value)),
        Fid::TIMESTAMP => timestamp(data),
        Fid::HOST_BEHAVIOR_SUPPORT => host_behavior(data),
        Fid::HOST_IDENTIFIER => match data {
            [] => Object::new(),
            data => Object::new().with("Host Identifier (HOSTID)", digits(data)),
        },
        Fid::IO_COMMAND_SET_PROFILE => Object::new().with("I/O Command Set Profile", truth(value & 1 != 0)),
        _ => of_drives(fid, value),
    }
}

fn of_drives(fid: Fid, value: u32) -> Object {
    match fid {
        Fid::THERMAL_MANAGEMENT => {
            let thermal = ThermalManagement::decode(value);
            Object::new()
                .with("Thermal Management Temperature 1 (TMT1)", format!("{} K", thermal.light_kelvin))
                .with("TMT1 celsius", celsius(thermal.light_kelvin))
                .with("Thermal Management Temperature 2", format!("{} K", thermal.heavy_kelvin))
                .with("TMT2 celsius", celsius(thermal.heavy_kelvin))
        }
        Fid::SANITIZE_CONFIG => {
            let warn = SanitizeConfig::decode(value).warn;
            Object::new().with("No-Deallocate Response Mode (NODRM)", u8::from(warn))
        }
        Fid::ENDURANCE_GROUP_EVENT => {
            let events = EnduranceGroupEvents::decode(value);
            Object::new()
                .with("Endurance Group Identifier (ENDGID)", events.group)
                .with("Endurance Group Critical Warnings", events.warnings)
        }
        Fid::RESERVATION_NOTIFICATION_MASK => {
            let mask = ReservationMask::decode(value);
            let masked = |event| truth(mask.masks(event));
            let preempted = masked(ReservationEvent::ReservationPreempted);
            let registration = masked(ReservationEvent::RegistrationPreempted);
            Object::new()
                .with("Mask Reservation Preempted Notification (RESPRE)", preempted)
                .with("Mask Reservation Released Notification (RESREL)", masked(ReservationEvent::ReservationReleased))
                .with("Mask Registration Preempted Notification (REGPRE)", registration)
        }
        Fid::RESERVATION_PERSISTENCE => {
            let persist = ReservationPersistence::decode(value).persist;
            Object::new().with("Persist Through Power Loss (PTPL)", truth(persist))
        }
        _ => Object::new(),
    }
}

fn truth(set: bool) -> &'static str {
    if set { "True" } else { "False" }
}

fn celsius(kelvin: u16) -> String {
    format!("{} Celsius", i32::from(kelvin) - 273)
}

fn power(power: PowerManagement) -> Object {
    let hint = match power.workload_hint {
        0 => "No Workload",
        1 => "Extended Idle Period with a Burst of Random Writes",
        2 => "Heavy Sequential Writes",
        _ => "Reserved",
    };
    Object::new()
        .with("Workload Hint (WH)", power.workload_hint)
        .with("WH description", hint)
        .with("Power State (PS)", power.power_state)
}

fn temperature_threshold(threshold: TemperatureThreshold) -> Object {
    let (kind, kind_name) = match threshold.threshold {
        ThresholdType::Over => (0, "Over Temperature Threshold"),
        ThresholdType::Under => (1, "Under Temperature Threshold"),
        ThresholdType::Reserved(kind) => (kind, "Reserved"),
    };
    let sensor = match threshold.sensor {
        0 => "Composite Temperature".to_owned(),
        sensor @ 1..=8 => format!("Temperature Sensor {sensor}"),
        _ => "Reserved".to_owned(),
    };
    Object::new()
        // A difference: nvme-cli takes it for a temperature and has 273 less.
        .with("Temperature Threshold Hysteresis (TMPTHH)", format!("{} Celsius", threshold.hysteresis))
        .with("TMPTHH kelvin", format!("{} K", threshold.hysteresis))
        .with("Threshold Type Select (THSEL)", kind)
        .with("THSEL description", kind_name)
        .with("Threshold Temperature Select (TMPSEL)", threshold.sensor)
        .with("TMPSEL description", sensor)
        .with("Temperature Threshold (TMPTH)", celsius(threshold.kelvin))
        .with("TMPTH kelvin", format!("{} K", threshold.kelvin))
}

fn events(config: AsyncEventConfig) -> Object {
    use AsyncEventConfig as E;
    let word = |set: bool| if set { "Send async event" } else { "Do not send async event" };
    let smart = [E::SPARE, E::TEMPERATURE, E::DEGRADED, E::READ_ONLY, E::VOLATILE_BACKUP, E::PERSISTENT_MEMORY];
    let single = [
        ("Discovery Log Page Change Notices", E::DISCOVERY_LOG),
        ("Host Discovery Log Page Change Notification", E(1 << 30)),
        ("AVE Discovery Log Page Change Notification", E(1 << 29)),
        ("Pull Model DDC Request Log Page Change Notification", E(1 << 28)),
        ("Zone Descriptor Changed Notices", E::ZONE_DESCRIPTOR),
        ("Reachability Group", E(1 << 18)),
        ("Reachability Association", E(1 << 17)),
        ("Normal NVM Subsystem Shutdown", E::NORMAL_SHUTDOWN),
        ("Endurance Group Event Aggregate Log Change Notices", E::ENDURANCE_GROUP),
        ("LBA Status Information Notices", E::LBA_STATUS),
        ("Predictable Latency Event Aggregate Log Change Notices", E::PREDICTABLE_LATENCY),
        ("Asymmetric Namespace Access Change Notices", E::ANA_CHANGE),
        ("Telemetry Log Notices", E::TELEMETRY_LOG),
        ("Firmware Activation Notices", E::FIRMWARE_ACTIVATION),
        ("Namespace Attribute Notices", E::NAMESPACE_ATTRIBUTE),
    ];
    let object =
        single.into_iter().fold(Object::new(), |object, (key, bit)| object.with(key, word(config.contains(bit))));
    object.with("SMART / Health Critical Warnings", word(smart.into_iter().any(|bit| config.contains(bit))))
}

fn timestamp(data: &[u8]) -> Object {
    let Ok((timestamp, _)) = Timestamp::ref_from_prefix(data) else { return Object::new() };
    let origin = if timestamp.set_by_host() { "set by a host" } else { "since the last reset" };
    let synch = if timestamp.attr & 1 == 0 { "counted without a break" } else { "may have stopped counting" };
    let milliseconds = timestamp.milliseconds();
    Object::new()
        .with("timestamp", milliseconds)
        .with("timestamp string", ebof_attach::time::utc(milliseconds / 1000))
        .with("timestamp origin", origin)
        .with("synch", synch)
}

fn host_behavior(data: &[u8]) -> Object {
    let Ok((support, _)) = HostBehaviorSupport::ref_from_prefix(data) else { return Object::new() };
    let copy = |format: u16| truth(support.cdfe.get() >> format & 1 != 0);
    Object::new()
        .with("Host Behavior Support", truth(support.acre & 1 != 0))
        .with("Advanced Command Retry Enable (ACRE)", truth(support.acre != 0))
        .with("Extended Telemetry Data Area 4 Supported (ETDAS)", truth(support.etdas != 0))
        .with("LBA Format Extension Enable (LBAFEE)", truth(support.lbafee != 0))
        .with("Host Dispersed Namespace Support (HDISNS)", enabled(support.hdisns != 0))
        .with("Copy Descriptor Format 2h Enable (CDF2E)", copy(2))
        .with("Copy Descriptor Format 3h Enable (CDF3E)", copy(3))
        .with("Copy Descriptor Format 4h Enable (CDF4E)", copy(4))
}
