//! The views of what happens on a running target: events and slow commands.

use std::fmt::Write as _;

use ebof_audit::date_time;
use ebof_manage::events::{Event, EventsSince};
use ebof_manage::slow::{SlowCommand, SlowCommands};

use super::View;
use super::json::Object;
use super::text::{safe, table};

/// Events.
pub(crate) struct ShownEvents(pub(crate) EventsSince);

/// Slow commands.
pub(crate) struct ShownSlow(pub(crate) SlowCommands);

impl View for ShownEvents {
    fn text(&self, _verbose: bool) -> String {
        let mut text = lost_line(self.0.lost);
        self.0.events.iter().for_each(|event| text += &event_line(event));
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("target-events", 1).with("events", serde_json::to_value(&self.0).unwrap_or_default())
    }
}

/// An event of those that are followed, as an object.
pub(crate) fn event_json(event: &Event, news: &EventsSince) -> Object {
    Object::document("target-event", 1)
        .with("started_unix_ms", news.started_unix_ms)
        .with("lost", if news.events.first() == Some(event) { news.lost } else { 0 })
        .with("event", serde_json::to_value(event).unwrap_or_default())
}

/// A line that says that events are missing, if some are.
pub(crate) fn lost_line(lost: u64) -> String {
    match lost {
        0 => String::new(),
        lost => format!("({lost} earlier events are not remembered any more)\n"),
    }
}

/// `2026-11-26T17:05:00.123Z warning connection-refused fabric0: ...`
pub(crate) fn event_line(event: &Event) -> String {
    let who = event.who.as_ref().map(|who| format!(" [{}]", safe(who))).unwrap_or_default();
    format!("{} {}{who}\n", date_time(event.time_unix_ms), safe(&event.to_string()))
}

impl View for ShownSlow {
    fn text(&self, verbose: bool) -> String {
        let Self(slow) = self;
        let threshold = match slow.threshold_us {
            Some(us) => format!("commands of {} or more since the start", micros(us)),
            None => "commands; none is noted now: slow_threshold is 0".to_owned(),
        };
        let mut text = format!("{} {threshold}\n", slow.total);
        if slow.commands.is_empty() {
            return text;
        }
        let columns = [
            ("TIME", 4),
            ("OBJECT", 6),
            ("NS", 2),
            ("COMMAND", 7),
            ("LBA", 3),
            ("BYTES", 5),
            ("TOTAL", 5),
            ("QUEUE", 5),
            ("BUFFER", 6),
            ("NETWORK", 7),
            ("DEVICE", 6),
            ("HOST", 4),
        ];
        let rows: Vec<_> = slow.commands.iter().map(slow_row).collect();
        text += &table(&columns, &rows);
        for command in slow.commands.iter().filter(|_| verbose) {
            let SlowCommand { id, status, port, queue, unsent_bytes, .. } = command;
            let _infallible = writeln!(
                text,
                "{id}: {}, queue {queue} through port {}, {unsent_bytes} bytes unsent before its answer",
                safe(status),
                safe(port)
            );
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        Object::document("target-slow", 1).with("slow", serde_json::to_value(&self.0).unwrap_or_default())
    }
}

fn slow_row(command: &SlowCommand) -> Vec<String> {
    let parts = &command.parts;
    vec![
        date_time(command.time_unix_ms),
        safe(&command.object),
        command.nsid.to_string(),
        safe(&command.command),
        command.lba.map_or_else(|| "-".to_owned(), |lba| lba.to_string()),
        command.bytes.to_string(),
        micros(command.total_us),
        micros(parts.queue_us),
        micros(parts.buffer_us),
        micros(parts.network_us),
        micros(parts.device_us),
        safe(&command.host_nqn),
    ]
}

/// `850 µs`, `12.3 ms`, `1.5 s`.
pub(super) fn micros(us: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let of = |unit: f64| us as f64 / unit;
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", of(1e3)),
        _ => format!("{:.1} s", of(1e6)),
    }
}

#[cfg(test)]
mod tests;
