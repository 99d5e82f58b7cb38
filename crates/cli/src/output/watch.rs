//! The views of what happens on a running target: events, slow commands, and what objects do.

use std::fmt::Write as _;

use clap::ValueEnum;
use ebof_manage::events::{Event, EventsSince};
use ebof_manage::history::{ObjectSample, Overview, SeriesKind};
use ebof_manage::slow::{SlowCommand, SlowCommands};

use super::View;
use super::json::Object;
use super::text::{safe, si, table};

/// Events.
pub(crate) struct ShownEvents(pub(crate) EventsSince);

/// Slow commands.
pub(crate) struct ShownSlow(pub(crate) SlowCommands);

/// What objects of a kind did in the latest second.
pub(crate) struct ShownOverview {
    pub(crate) overview: Overview,
    pub(crate) kind: SeriesKind,
    pub(crate) sort: Sort,
    pub(crate) rows_max: usize,
}

/// What a table of objects is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Commands in a second
    Iops,
    /// Bytes in a second
    Bandwidth,
    /// The latency that 99 of 100 commands do not exceed
    Latency,
    /// The name
    Name,
}

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
    format!("{} {}{who}\n", time(event.time_unix_ms), safe(&event.to_string()))
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
        time(command.time_unix_ms),
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

impl ShownOverview {
    /// The objects of the kind, as they are sorted.
    fn sorted(&self) -> Vec<&ObjectSample> {
        let mut objects: Vec<_> = self.overview.objects.iter().filter(|it| it.object.kind == self.kind).collect();
        let by = |value: fn(&ObjectSample) -> f32| {
            move |one: &&ObjectSample, other: &&ObjectSample| value(other).total_cmp(&value(one))
        };
        match self.sort {
            Sort::Iops => objects.sort_by(by(|it| it.sample.all.commands_per_s)),
            Sort::Bandwidth => objects.sort_by(by(|it| it.sample.all.bytes_per_s)),
            Sort::Latency => objects.sort_by_key(|it| std::cmp::Reverse(it.sample.all.p99_us)),
            // They come in that order.
            Sort::Name => {}
        }
        objects
    }
}

impl View for ShownOverview {
    fn text(&self, _verbose: bool) -> String {
        let objects = self.sorted();
        let whole = self.overview.objects.iter().find(|it| it.object.kind == SeriesKind::Target);
        let whole = whole.map(|it| it.sample.all).unwrap_or_default();
        let time = match self.overview.time_unix_ms {
            0 => "nothing measured yet".to_owned(),
            unix_ms => time(unix_ms),
        };
        let bandwidth = si(bytes(whole.bytes_per_s));
        let mut text = format!("{time}  {:.0} commands/s, {bandwidth}/s\n", whole.commands_per_s);
        if self.overview.left_out > 0 {
            let _infallible = writeln!(
                text,
                "{} objects are not shown: there is room for {}",
                self.overview.left_out, self.overview.series_max
            );
        }
        let kind = self.kind.name().to_uppercase();
        let columns = [
            ("READ/s", 6),
            ("WRITE/s", 7),
            ("READ B/s", 8),
            ("WRITE B/s", 9),
            ("P50", 7),
            ("P99", 7),
            ("P99.9", 7),
            ("DEPTH", 5),
            ("WAIT", 4),
            ("ERR/s", 5),
            ("SHARE", 5),
            // Last: names are long, and what does not fit on a terminal is cut.
            (kind.as_str(), 8),
        ];
        let rows: Vec<_> = objects.iter().take(self.rows_max).map(|object| object_row(object)).collect();
        text + &table(&columns, &rows)
    }

    fn json(&self, _verbose: bool) -> Object {
        let Self { overview, .. } = self;
        let objects: Vec<_> = self.sorted().into_iter().cloned().collect();
        let overview = Overview { objects, ..overview.clone() };
        Object::document("target-top", 1).with("overview", serde_json::to_value(overview).unwrap_or_default())
    }
}

fn object_row(object: &ObjectSample) -> Vec<String> {
    let ObjectSample { object, share, sample } = object;
    let latency = |us: Option<u32>| us.map_or_else(|| "-".to_owned(), |us| micros(us.into()));
    vec![
        format!("{:.0}", sample.read.commands_per_s),
        format!("{:.0}", sample.write.commands_per_s),
        si(bytes(sample.read.bytes_per_s)),
        si(bytes(sample.write.bytes_per_s)),
        latency(sample.all.p50_us),
        latency(sample.all.p99_us),
        latency(sample.all.p999_us),
        format!("{:.1}", sample.all.depth()),
        sample.waiting.to_string(),
        format!("{:.0}", sample.all.errors_per_s),
        share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
        if object.name.is_empty() { "all".to_owned() } else { safe(&object.name) },
    ]
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, for people")]
fn bytes(per_s: f32) -> u128 {
    per_s.max(0.0) as u128
}

/// `850 µs`, `12.3 ms`, `1.5 s`.
fn micros(us: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let of = |unit: f64| us as f64 / unit;
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{:.1} ms", of(1e3)),
        _ => format!("{:.1} s", of(1e6)),
    }
}

/// `2026-11-26T17:05:00.123Z`
fn time(unix_ms: u64) -> String {
    let (seconds, ms) = (unix_ms / 1000, unix_ms % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Year, month and day of a day since 1970-01-01. Years begin in March here, so that the day that
/// comes every four years is the last one.
fn date(days: u64) -> (u64, u64, u64) {
    const OF_400_YEARS: u64 = 146_097;
    // 0000-03-01 is 719468 days before.
    let day = days + 719_468;
    let (centuries, day) = (day / OF_400_YEARS, day % OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / (OF_400_YEARS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let year = centuries * 400 + year;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests;
