//! The view of a drive of a running target in detail.

use std::fmt::Write as _;

use ebof_audit::date_time;
use ebof_manage::enclosure::{
    ControllerDetails, DriveDetails, ErrorObject, EventObject, NamespaceDetails, SanitizeStateObject, SelfTestKind,
    SelfTestOutcome,
};

use super::View;
use super::json::Object;
use super::text::{safe, si, si_and_binary, table, temperature};

/// Errors and events that are shown at most, unless everything is wanted.
const LATEST: usize = 8;

/// A drive in detail.
pub(crate) struct ShownDrive(pub(crate) DriveDetails);

impl View for ShownDrive {
    fn text(&self, verbose: bool) -> String {
        let Self(drive) = self;
        let latest = if verbose { usize::MAX } else { LATEST };
        let mut text = format!("drive {}: {}, serial number {}\n", drive.name, safe(&drive.model), safe(&drive.serial));
        for (name, value) in properties(drive) {
            let _infallible = writeln!(text, "  {name:<12}{value}");
        }
        let namespaces: Vec<Vec<String>> = drive.namespaces.iter().map(namespace_row).collect();
        let columns =
            [("NAMESPACE", 9), ("SIZE", 4), ("CAPACITY", 8), ("USED", 4), ("BLOCK", 5), ("STATE", 5), ("UUID", 4)];
        text += &part(&columns, &namespaces);
        let controllers: Vec<Vec<String>> = drive.controllers.iter().map(controller_row).collect();
        let columns =
            [("CONTROLLER", 10), ("CNTLID", 6), ("STATE", 5), ("I/O QUEUES", 10), ("ENTRIES", 7), ("TRANSFER", 8)];
        text += &part(&columns, &controllers);
        let tests: Vec<Vec<String>> = drive.self_test.results.iter().take(latest).map(test_row).collect();
        text += &part(&[("SELF-TEST", 9), ("AT HOUR", 7), ("RESULT", 6)], &tests);
        let errors: Vec<Vec<String>> = drive.errors.iter().take(latest).map(error_row).collect();
        text += &part(&[("ERROR", 5), ("QUEUE", 5), ("NAMESPACE", 9), ("LBA", 3), ("STATUS", 6)], &errors);
        let events: Vec<Vec<String>> = drive.events.latest.iter().take(latest).map(event_row).collect();
        text += &part(&[("EVENT", 5), ("CONTROLLER", 10), ("AT", 2)], &events);
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let drive = serde_json::to_value(&self.0).unwrap_or_default();
        Object::document("target-drive", 1).with("drive", drive)
    }
}

/// A table with a line above, if it has rows.
fn part(columns: &[(&str, usize)], rows: &[Vec<String>]) -> String {
    if rows.is_empty() { String::new() } else { format!("\n{}", table(columns, rows)) }
}

fn properties(drive: &DriveDetails) -> Vec<(&'static str, String)> {
    let DriveDetails { health, endurance, firmware, sanitize, .. } = drive;
    let slots = firmware.slots.iter().filter_map(|slot| {
        let revision = safe(slot.revision.as_ref()?);
        let active = if slot.slot == firmware.active_slot { ", active" } else { "" };
        let next = if Some(slot.slot) == firmware.next_slot { ", next" } else { "" };
        Some(format!("slot {}: {revision}{active}{next}", slot.slot))
    });
    let slots: Vec<String> = slots.collect();
    let formats = drive.formats.iter().map(|format| match format.metadata_bytes {
        0 => format.block_size_bytes.to_string(),
        metadata => format!("{}+{metadata}", format.block_size_bytes),
    });
    let formats: Vec<String> = formats.collect();
    let now = drive.temperature.now_kelvin.map_or_else(|| "no sensor".to_owned(), temperature);
    let warning = match health.critical_warning {
        0 => "none".to_owned(),
        bits => format!("{bits:#04x}{}", if drive.is_read_only { ", the drive is damaged and read only" } else { "" }),
    };
    let rated = endurance.rated_bytes.map_or_else(|| "any number of bytes".to_owned(), |bytes| si(bytes.into()));
    let mut all = vec![
        ("uuid", drive.uuid.clone()),
        (
            "firmware",
            format!("{} runs of {} slots; {}", safe(&firmware.running), firmware.slots.len(), slots.join("; ")),
        ),
        ("formats", formats.join(", ")),
        (
            "allocated",
            format!("{}, in extents of {}", si(drive.allocated_bytes.into()), si_and_binary(drive.extent_bytes.into())),
        ),
        ("warnings", warning),
        ("temperature", format!("{now}; too warm from {}", temperature(drive.temperature.warning_kelvin))),
        (
            "endurance",
            format!(
                "{} % used: {} of {rated} were written",
                endurance.used_percent,
                si(endurance.written_bytes.into())
            ),
        ),
        (
            "hosts",
            format!("{} read, {} written", si(health.host_read_bytes.into()), si(health.host_written_bytes.into())),
        ),
        (
            "on",
            format!(
                "{} hours, {} times, {} of them not closed",
                health.power_on_hours, health.power_cycles, health.unsafe_shutdowns
            ),
        ),
        ("errors", format!("{} logged, {} of the medium", health.error_log_entries, health.media_errors)),
        ("sanitize", sanitize_text(sanitize.state, sanitize.percent)),
    ];
    if let Some(running) = &drive.self_test.running {
        all.push(("self-test", format!("{} test is going on, {} %", kind(Some(running.kind)), running.percent)));
    }
    if let Some(managers) = &drive.managers {
        let managers: Vec<String> = managers.iter().map(|host| safe(host)).collect();
        all.push(("managers", managers.join(", ")));
    }
    all
}

fn sanitize_text(state: SanitizeStateObject, percent: Option<u8>) -> String {
    match (state, percent) {
        (SanitizeStateObject::InProgress, percent) => format!("going on, {} %", percent.unwrap_or(0)),
        (SanitizeStateObject::Never, _) => "never".to_owned(),
        (SanitizeStateObject::Succeeded | SanitizeStateObject::SucceededDeallocated, _) => "succeeded".to_owned(),
        (SanitizeStateObject::Failed, _) => "FAILED: the drive refuses most commands".to_owned(),
    }
}

fn namespace_row(namespace: &NamespaceDetails) -> Vec<String> {
    let format = &namespace.format;
    let block = match (format.metadata_bytes, namespace.protection.kind) {
        (0, _) => format.block_size_bytes.to_string(),
        (metadata, 0) => format!("{}+{metadata}", format.block_size_bytes),
        (metadata, kind) => format!("{}+{metadata}, type {kind}", format.block_size_bytes),
    };
    let mut state = Vec::new();
    if let Some(percent) = namespace.format_percent {
        state.push(format!("being erased, {percent} %"));
    }
    let flags = [
        (namespace.shared, "shared"),
        (namespace.write_protected, "write protected"),
        (namespace.encrypted, "encrypted"),
        (namespace.checked, "checked"),
        (namespace.reservation.is_some(), "reserved"),
    ];
    state.extend(flags.into_iter().filter(|(is_so, _)| *is_so).map(|(_, words)| words.to_owned()));
    vec![
        format!("ns{}", namespace.name.nsid),
        si(namespace.size_bytes.into()),
        si(namespace.capacity_bytes.into()),
        si(namespace.used_bytes.into()),
        block,
        if state.is_empty() { "-".to_owned() } else { state.join(", ") },
        namespace.uuid.clone(),
    ]
}

fn controller_row(controller: &ControllerDetails) -> Vec<String> {
    vec![
        controller.function.as_ref().map_or_else(|| "primary".to_owned(), |name| format!("vf{}", name.number)),
        controller.cntlid.to_string(),
        if controller.online { "online" } else { "offline" }.to_owned(),
        controller.io_queues_max.to_string(),
        controller.queue_entries_max.to_string(),
        si_and_binary(controller.transfer_bytes_max.into()),
    ]
}

fn kind(kind: Option<SelfTestKind>) -> &'static str {
    kind.map_or("other", SelfTestKind::name)
}

fn test_row(outcome: &SelfTestOutcome) -> Vec<String> {
    let mut result = outcome.meaning.clone();
    if let Some(segment) = outcome.segment {
        let _infallible = write!(result, ", segment {segment}");
    }
    if let (Some(nsid), Some(lba)) = (outcome.nsid, outcome.lba) {
        let _infallible = write!(result, ": block {lba} of ns{nsid}");
    }
    vec![kind(outcome.kind).to_owned(), outcome.power_on_hours.to_string(), result]
}

fn error_row(error: &ErrorObject) -> Vec<String> {
    fn or_none<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(|| "-".to_owned(), |value| value.to_string())
    }
    vec![
        error.number.to_string(),
        or_none(error.queue),
        or_none(error.nsid.map(|nsid| format!("ns{nsid}"))),
        or_none(error.lba),
        safe(&error.meaning),
    ]
}

fn event_row(event: &EventObject) -> Vec<String> {
    let controller = event.cntlid.map_or_else(|| "-".to_owned(), |cntlid| cntlid.to_string());
    vec![safe(&event.name), controller, utc(event.unix_ms)]
}

/// `2023-11-14T22:13:20Z`
fn utc(unix_ms: u64) -> String {
    let mut text = date_time(unix_ms);
    text.truncate(text.len() - ".123Z".len());
    text + "Z"
}

#[cfg(test)]
mod tests {
    use super::*;

    const DETAILED: &str = r#"
        {"details_schema": 1, "name": "d3", "model": "ebof drive", "serial": "S3RIAL0001",
        "uuid": "6f3a1f1e-8f0b-4a57-9d0e-0d8f5b2f8c11", "managers": ["nqn.2014-08.org.example:manager"],
        "overcommits": false, "is_exclusive": false, "encrypts": true, "checks": true,
        "allocated_bytes": 1048576, "extent_bytes": 262144, "is_read_only": false, "formats": [{"index": 0,
        "block_size_bytes": 512, "metadata_bytes": 0}, {"index": 3, "block_size_bytes": 4096,
        "metadata_bytes": 8}], "firmware": {"running": "9.1", "active_slot": 2, "next_slot": 3,
        "slots": [{"slot": 1, "revision": "0.2.0", "is_read_only": false}, {"slot": 2, "revision": "9.1",
        "is_read_only": false}, {"slot": 3, "revision": "9.2", "is_read_only": false}, {"slot": 4,
        "revision": null, "is_read_only": false}]}, "health": {"critical_warning": 4,
        "temperature_kelvin": 310, "available_spare_percent": 100, "available_spare_threshold_percent": 10,
        "percentage_used": 3, "media_errors": 1, "error_log_entries": 7, "power_cycles": 5,
        "unsafe_shutdowns": 1, "power_on_hours": 1200, "host_read_bytes": 5000000000,
        "host_written_bytes": 7000000}, "temperature": {"now_kelvin": 310, "warning_kelvin": 343,
        "critical_kelvin": 353, "warning_minutes": 2, "critical_minutes": 0},
        "endurance": {"rated_bytes": 18250000000000, "written_bytes": 9000000, "used_percent": 3},
        "sanitize": {"state": "in-progress", "action": "overwrite", "percent": 43, "passes": 2,
        "is_erased": false, "actions": ["block-erase", "overwrite", "crypto-erase"],
        "estimates": {"block_erase_s": 2, "overwrite_s": null, "crypto_erase_s": 1}},
        "self_test": {"running": {"kind": "short", "percent": 12}, "results": [{"kind": "extended",
        "result": 7, "meaning": "failed", "passed": false, "power_on_hours": 1100, "segment": 3, "nsid": 4,
        "lba": 4096}, {"kind": "short", "result": 0, "meaning": "passed", "passed": true,
        "power_on_hours": 1000, "segment": null, "nsid": null, "lba": null}]}, "errors": [{"number": 7,
        "queue": 1, "cid": 12, "status_type": 2, "status_code": 129,
        "meaning": "Unrecovered Read Error (SCT 2h, SC 81h)", "byte": null, "nsid": 4, "lba": 4096,
        "opcode": 2}, {"number": 6, "queue": null, "cid": null, "status_type": 0, "status_code": 6,
        "meaning": "Internal Error (SCT 0h, SC 06h)", "byte": null, "nsid": null, "lba": null,
        "opcode": null}], "events": {"count": 2, "total": 9, "latest": [{"kind": 9, "name": "Sanitize Start",
        "unix_ms": 1700000000000, "cntlid": null}, {"kind": 6, "name": "Change Namespace",
        "unix_ms": 951827696789, "cntlid": 128}]}, "namespaces": [{"name": "d3/ns4", "size_bytes": 1073741824,
        "capacity_bytes": 536870912, "used_bytes": 1048576, "claimed_bytes": 536870912, "format": {"index": 3,
        "block_size_bytes": 4096, "metadata_bytes": 8}, "protection": {"type": 1, "first": false},
        "shared": true, "write_protected": true, "encrypted": true, "checked": true, "format_percent": 43,
        "uuid": "6f3a1f1e-8f0b-4a57-9d0e-0d8f5b2f8c12", "nguid": "6f3a1f1e8f0b4a579d0e0d8f5b2f8c12",
        "eui64": "021122334455aabb", "owner": null, "registrants": 1, "reservation": 1}],
        "controllers": [{"function": null, "cntlid": 0, "online": true, "version": "2.1.0", "queues": 0,
        "interrupts": 0, "io_queues_max": 128, "queue_entries_max": 1024, "transfer_bytes_max": 1048576,
        "oacs": 148, "oncs": 511, "ctratt": 512, "critical_warning": 4}, {"function": "d3/vf1", "cntlid": 1,
        "online": false, "version": "2.1.0", "queues": 0, "interrupts": 0, "io_queues_max": 1,
        "queue_entries_max": 1024, "transfer_bytes_max": 1048576, "oacs": 528, "oncs": 511, "ctratt": 512,
        "critical_warning": 4}]}"#;

    #[test]
    fn a_drive_in_detail() {
        let drive: DriveDetails = serde_json::from_str(DETAILED).unwrap();
        insta::assert_snapshot!(ShownDrive(drive.clone()).text(false));
        let json = ShownDrive(drive.clone()).json(false).to_text().unwrap();
        let back: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(serde_json::from_value::<DriveDetails>(back["drive"].clone()).unwrap(), drive);
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (unix_s, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_827_696, "2000-02-29T12:34:56Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(unix_s * 1000 + 999), text);
        }
    }
}
