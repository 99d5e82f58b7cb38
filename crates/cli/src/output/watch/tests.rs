//! The views of what happens, as snapshots.

use ebof_manage::events::{EVENTS_SCHEMA, EventKind, EventSeverity};
use ebof_manage::slow::{SLOW_SCHEMA, SlowParts};

use super::*;

fn event(id: u64, kind: EventKind, object: &str, message: &str) -> Event {
    Event {
        id,
        time_unix_ms: 1_795_000_000_123 + id,
        severity: kind.severity(),
        kind,
        object: object.to_owned(),
        message: message.to_owned(),
        advice: (kind.severity() > EventSeverity::Ok).then(|| "do something".to_owned()),
        who: Some("nqn.2014-08.org.example:host\x1b[31m".to_owned()),
        from: None,
        count: id,
    }
}

fn events() -> EventsSince {
    EventsSince {
        events_schema: EVENTS_SCHEMA,
        started_unix_ms: 1_795_000_000_000,
        latest: 4,
        lost: 2,
        events: vec![
            event(3, EventKind::ConnectionRefused, "fabric0", "not allowed"),
            event(1, EventKind::HostConnected, "d3/vf2", "controller 1 connected"),
        ],
    }
}

#[test]
fn events_are_lines() {
    let shown = ShownEvents(events());
    insta::assert_snapshot!("events", shown.text(false));
    insta::assert_snapshot!("events_json", shown.json(false).to_text().unwrap());
    insta::assert_snapshot!("event_json", event_json(&events().events[0], &events()).to_line().unwrap());
}

#[test]
fn slow_commands_are_a_table() {
    let parts = SlowParts { buffer_us: 0, network_us: 500, queue_us: 1_500, device_us: 150_000 };
    let command = SlowCommand {
        id: 7,
        time_unix_ms: 1_795_000_000_000,
        host_nqn: "nqn.2014-08.org.example:host".to_owned(),
        subsystem_nqn: "nqn.2014-08.org.example:d3:vf2".to_owned(),
        object: "d3/vf2".to_owned(),
        port: "fabric0".to_owned(),
        queue: 1,
        nsid: 4,
        opcode: 2,
        command: "read".to_owned(),
        lba: Some(2048),
        bytes: 4096,
        status: "Success".to_owned(),
        total_us: 152_000,
        parts,
        unsent_bytes: 0,
    };
    let slow =
        SlowCommands { slow_schema: SLOW_SCHEMA, threshold_us: Some(100_000), total: 9, commands: vec![command] };
    insta::assert_snapshot!("slow", ShownSlow(slow.clone()).text(true));
    insta::assert_snapshot!("slow_json", ShownSlow(slow).json(true).to_text().unwrap());
    let none = SlowCommands { slow_schema: SLOW_SCHEMA, threshold_us: None, total: 0, commands: Vec::new() };
    assert_eq!(ShownSlow(none).text(false), "0 commands; none is noted now: slow_threshold is 0\n");
}

#[test]
fn times_are_dates() {
    for (unix_s, date) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_399, "2000-02-28T23:59:59.000Z"),
        (951_782_400, "2000-02-29T00:00:00.000Z"),
        (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        (1_795_000_000, "2026-11-18T11:06:40.000Z"),
    ] {
        assert_eq!(date_time(unix_s * 1000), date);
    }
}
