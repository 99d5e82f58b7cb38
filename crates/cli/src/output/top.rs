//! The view of what objects of a target or of a host do: one table for all kinds of them, and their
//! JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::ValueEnum;
use ebof_audit::date_time;
use ebof_manage::history::live::{LiveKind, LiveRow, LiveTable};
use ebof_manage::history::{Flow, ObjectSample, Overview, Sample, SeriesKind};

use super::View;
use super::json::Object;
use super::text::{safe, si, table};
use super::watch::micros;

/// What objects of a kind did in the latest second.
pub(crate) struct ShownTop {
    pub(crate) measured: Measurement,
    pub(crate) kind: Kind,
    pub(crate) sort: Sort,
    pub(crate) rows_max: usize,
    /// How wide it may be: columns are left out until the name can be read.
    pub(crate) columns_max: usize,
    /// What could not be measured, and why.
    pub(crate) remarks: Vec<String>,
}

/// What was measured.
pub(crate) enum Measurement {
    /// What a target remembers.
    Overview(Overview),
    /// The queues of a target.
    Queues(LiveTable),
    /// What a host has attached.
    Host(LiveTable),
}

/// Kinds of objects, as they are named on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Functions of drives
    Functions,
    /// Ports
    Ports,
    /// Drives
    Drives,
    /// Namespaces
    Namespaces,
    /// Hosts
    Hosts,
    /// Queues
    Queues,
    /// Controllers that this host is connected to
    Controllers,
    /// Devices of this host, each with the paths to it
    Paths,
    /// The target as a whole
    Target,
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
    /// Commands under way
    Depth,
    /// The name
    Name,
}

impl Kind {
    /// What a target calls it; `None` of what it does not remember.
    pub(crate) const fn series(self) -> Option<SeriesKind> {
        match self {
            Self::Functions => Some(SeriesKind::Function),
            Self::Ports => Some(SeriesKind::Port),
            Self::Drives => Some(SeriesKind::Drive),
            Self::Namespaces => Some(SeriesKind::Namespace),
            Self::Hosts => Some(SeriesKind::Host),
            Self::Target => Some(SeriesKind::Target),
            Self::Queues | Self::Controllers | Self::Paths => None,
        }
    }

    /// What a live table calls it.
    pub(crate) const fn live(self) -> Option<LiveKind> {
        match self {
            Self::Namespaces => Some(LiveKind::Namespace),
            Self::Queues => Some(LiveKind::Queue),
            Self::Controllers => Some(LiveKind::Controller),
            Self::Paths => Some(LiveKind::Path),
            Self::Functions | Self::Ports | Self::Drives | Self::Hosts | Self::Target => None,
        }
    }

    /// Its title in a table.
    const fn title(self) -> &'static str {
        match self {
            Self::Functions => "FUNCTION",
            Self::Ports => "PORT",
            Self::Drives => "DRIVE",
            Self::Namespaces => "NAMESPACE",
            Self::Hosts => "HOST",
            Self::Queues => "QUEUE",
            Self::Controllers => "CONTROLLER",
            Self::Paths => "PATH",
            Self::Target => "TARGET",
        }
    }
}

/// An object as a row.
struct Row<'a> {
    name: &'a str,
    sample: &'a Sample,
    share: Option<f32>,
    in_flight: Option<u64>,
    labels: Option<&'a BTreeMap<String, String>>,
    /// It belongs to the row above.
    is_part: bool,
}

impl Row<'_> {
    fn label(&self, name: &str) -> String {
        self.labels.and_then(|labels| labels.get(name)).map_or_else(|| "-".to_owned(), |value| safe(value))
    }

    /// Commands under way: those that are now, or the average.
    #[expect(clippy::cast_precision_loss, reason = "an order for people")]
    fn depth(&self) -> f32 {
        self.in_flight.map_or(0.0, |now| now as f32).max(self.sample.all.depth())
    }
}

/// A column: its title, its width, and what is in it.
type Column<'a> = (&'a str, usize, fn(&Row<'_>) -> String);

impl ShownTop {
    /// The objects of the kind, as they are sorted.
    fn sorted<'a>(&'a self) -> Vec<Row<'a>> {
        let mut rows: Vec<Row<'a>> = match &self.measured {
            Measurement::Overview(overview) => {
                let of_kind = overview.objects.iter().filter(|it| Some(it.object.kind) == self.kind.series());
                let row = |it: &'a ObjectSample| {
                    let ObjectSample { object, share, sample } = it;
                    Row { name: &object.name, sample, share: *share, in_flight: None, labels: None, is_part: false }
                };
                of_kind.map(row).collect()
            }
            Measurement::Queues(live) | Measurement::Host(live) => live_rows(live, self.kind),
        };
        let by = |value: fn(&Row<'_>) -> f32| move |one: &Row<'_>, other: &Row<'_>| value(other).total_cmp(&value(one));
        if let (Measurement::Host(live), Kind::Paths) = (&self.measured, self.kind) {
            rows.extend(live_rows(live, Kind::Controllers));
        }
        match self.sort {
            Sort::Iops => rows.sort_by(by(|it| it.sample.all.commands_per_s)),
            Sort::Bandwidth => rows.sort_by(by(|it| it.sample.all.bytes_per_s)),
            Sort::Latency => rows.sort_by(by(|it| slowness(&it.sample.all))),
            Sort::Depth => rows.sort_by(by(|it| it.depth())),
            // They come in that order.
            Sort::Name => {}
        }
        if self.kind == Kind::Paths { under_devices(rows) } else { rows }
    }

    /// What everything did together.
    fn total(&self) -> Flow {
        let sum = |rows: &[Row<'_>]| {
            // `sum` begins with -0.
            let total = |of: fn(&Flow) -> f32| rows.iter().fold(0.0, |sum, row| sum + of(&row.sample.all));
            let (commands_per_s, bytes_per_s) = (total(|it| it.commands_per_s), total(|it| it.bytes_per_s));
            Flow { commands_per_s, bytes_per_s, ..Flow::default() }
        };
        match &self.measured {
            Measurement::Overview(overview) => {
                let whole = overview.objects.iter().find(|it| it.object.kind == SeriesKind::Target);
                whole.map(|it| it.sample.all).unwrap_or_default()
            }
            Measurement::Queues(live) => sum(&live_rows(live, Kind::Queues)),
            Measurement::Host(live) => sum(&live_rows(live, Kind::Namespaces)),
        }
    }

    /// When it was measured, in milliseconds since 1970; 0 if nothing is measured yet.
    pub(crate) fn time_unix_ms(&self) -> u64 {
        match &self.measured {
            Measurement::Overview(overview) => overview.time_unix_ms,
            Measurement::Queues(live) | Measurement::Host(live) => live.time_unix_ms,
        }
    }

    fn columns(&self) -> Vec<Column<'static>> {
        let mut columns: Vec<Column<'static>> = vec![
            ("READ/s", 6, |row| format!("{:.0}", row.sample.read.commands_per_s)),
            ("WRITE/s", 7, |row| format!("{:.0}", row.sample.write.commands_per_s)),
            ("READ B/s", 8, |row| si(bytes(row.sample.read.bytes_per_s))),
            ("WRITE B/s", 9, |row| si(bytes(row.sample.write.bytes_per_s))),
        ];
        if matches!(self.measured, Measurement::Host(_)) {
            // All that is known of the kernel's devices.
            columns.push(("MEAN", 7, |row| latency(row.sample.all.mean_us.map(whole_us))));
        }
        columns.extend::<[Column<'static>; 4]>([
            ("P50", 7, |row| latency(row.sample.all.p50_us)),
            ("P99", 7, |row| latency(row.sample.all.p99_us)),
            ("P99.9", 7, |row| latency(row.sample.all.p999_us)),
            ("DEPTH", 5, |row| format!("{:.1}", row.sample.all.depth())),
        ]);
        match &self.measured {
            Measurement::Overview(_) => columns.push(("WAIT", 4, |row| row.sample.waiting.to_string())),
            Measurement::Host(_) => columns.push(("NOW", 4, |row| {
                row.in_flight.map_or_else(|| "-".to_owned(), |in_flight| in_flight.to_string())
            })),
            Measurement::Queues(_) => {}
        }
        columns.push(("ERR/s", 5, |row| format!("{:.0}", row.sample.all.errors_per_s)));
        columns.push(("SHARE", 5, |row| {
            row.share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0))
        }));
        if matches!(self.measured, Measurement::Host(_)) {
            columns.push(("STATE", 10, |row| row.label("state")));
        }
        // Last: names are long, and what does not fit on a terminal is cut.
        let name = |row: &Row<'_>| match row.name {
            "" => "all".to_owned(),
            name if row.is_part => format!("  {}", safe(name)),
            name => safe(name),
        };
        let title = self.kind.title();
        columns.push((title, title.len().max(8), name));
        match (&self.measured, self.kind) {
            (Measurement::Queues(_), _) => {
                columns.push(("PORT", 4, |row| row.label("port")));
                columns.push(("HOST", 4, |row| row.label("host")));
            }
            (Measurement::Host(_), Kind::Namespaces) => {
                columns.push(("PATH", 10, |row| row.label("path")));
                columns.push(("SUBSYSTEM", 9, |row| row.label("subsystem")));
            }
            (Measurement::Host(_), Kind::Paths) => {
                columns.push(("ACCESS", 9, |row| row.label("access")));
                columns.push(("FAILOVER", 8, |row| row.label("failovers")));
                columns.push(("RECONNECT", 9, |row| row.label("reconnects")));
                columns.push(("FENCED ms", 9, |row| row.label("fenced_ms")));
                columns.push(("ADDRESS", 7, |row| if row.is_part { row.label("address") } else { "-".to_owned() }));
            }
            (Measurement::Host(_), Kind::Controllers) => {
                columns.push(("ADDRESS", 7, |row| row.label("address")));
                columns.push(("SUBSYSTEM", 9, |row| row.label("subsystem")));
            }
            _ => {}
        }
        columns
    }
}

/// What is left out of a narrow table, the first of it first.
const DISPENSABLE: [&str; 8] = ["P99.9", "SHARE", "ERR/s", "MEAN", "WAIT", "P50", "DEPTH", "STATE"];

/// What a name needs.
const NAME_COLUMNS: usize = 16;

impl ShownTop {
    /// Leaves columns out until the name is within the width.
    fn narrow(&self, columns: &mut Vec<Column<'static>>) {
        let name = self.kind.title();
        let before_name = |columns: &[Column<'_>]| {
            let before = columns.iter().take_while(|(title, ..)| *title != name);
            before.map(|(_, width, _)| width + 1).sum::<usize>()
        };
        for dispensable in DISPENSABLE {
            if before_name(columns).saturating_add(NAME_COLUMNS) <= self.columns_max {
                return;
            }
            columns.retain(|(title, ..)| *title != dispensable);
        }
    }
}

fn live_rows<'a>(live: &'a LiveTable, kind: Kind) -> Vec<Row<'a>> {
    let of_kind = live.rows.iter().filter(|row| Some(row.object.kind) == kind.live());
    let row = |row: &'a LiveRow| {
        let LiveRow { object, share, in_flight, labels, sample } = row;
        Row { name: &object.name, sample, share: *share, in_flight: *in_flight, labels: Some(labels), is_part: false }
    };
    of_kind.map(row).collect()
}

/// Each device, and behind it its paths, as they are sorted.
fn under_devices(rows: Vec<Row<'_>>) -> Vec<Row<'_>> {
    let device = |row: &Row<'_>| row.labels.and_then(|labels| labels.get("controller")).cloned();
    let (mut devices, mut paths): (Vec<_>, Vec<_>) =
        rows.into_iter().partition(|row| device(row).is_some_and(|device| device == row.name));
    paths.iter_mut().for_each(|path| path.is_part = true);
    let mut sorted = Vec::with_capacity(devices.len() + paths.len());
    for one in devices.drain(..) {
        let (mine, others): (Vec<_>, Vec<_>) =
            paths.into_iter().partition(|path| device(path).is_some_and(|device| device == one.name));
        paths = others;
        sorted.push(one);
        sorted.extend(mine);
    }
    sorted.extend(paths);
    sorted
}

impl View for ShownTop {
    fn text(&self, _verbose: bool) -> String {
        let whole = self.total();
        let time = match self.time_unix_ms() {
            0 => "nothing measured yet".to_owned(),
            unix_ms => date_time(unix_ms),
        };
        let of = if matches!(self.measured, Measurement::Host(_)) { "  this host:" } else { "" };
        let bandwidth = si(bytes(whole.bytes_per_s));
        let mut text = format!("{time}{of}  {:.0} commands/s, {bandwidth}/s\n", whole.commands_per_s);
        let (left_out, room) = match &self.measured {
            Measurement::Overview(overview) => (overview.left_out, overview.series_max),
            Measurement::Queues(live) | Measurement::Host(live) => (live.left_out, live.rows_max),
        };
        if left_out > 0 {
            let _infallible = writeln!(text, "{left_out} objects are not shown: there is room for {room}");
        }
        for remark in &self.remarks {
            let _infallible = writeln!(text, "{}", safe(remark));
        }
        let mut columns = self.columns();
        self.narrow(&mut columns);
        let cells = |row: &Row<'_>| columns.iter().map(|(_, _, cell)| cell(row)).collect();
        let rows: Vec<_> = self.sorted().iter().take(self.rows_max).map(cells).collect();
        let titles: Vec<_> = columns.iter().map(|(title, width, _)| (*title, *width)).collect();
        text + &table(&titles, &rows)
    }

    fn json(&self, _verbose: bool) -> Object {
        let names: Vec<&str> = self.sorted().iter().map(|row| row.name).collect();
        let at = |name: &str| names.iter().position(|known| *known == name).unwrap_or(usize::MAX);
        match &self.measured {
            Measurement::Overview(overview) => {
                let mut overview = overview.clone();
                overview.objects.retain(|it| Some(it.object.kind) == self.kind.series());
                overview.objects.sort_by_cached_key(|it| at(&it.object.name));
                let overview = serde_json::to_value(overview).unwrap_or_default();
                Object::document("target-top", 1).with("overview", overview)
            }
            Measurement::Queues(live) | Measurement::Host(live) => {
                let mut live = live.clone();
                let with_paths = (self.kind == Kind::Paths).then_some(LiveKind::Controller);
                live.rows.retain(|row| [self.kind.live(), with_paths].contains(&Some(row.object.kind)));
                live.rows.sort_by_cached_key(|row| at(&row.object.name));
                let live = serde_json::to_value(live).unwrap_or_default();
                let (verb, is_host) = match &self.measured {
                    Measurement::Host(_) => ("host-top", true),
                    _ => ("target-queues", false),
                };
                let object = Object::document(verb, 1).with("live", live);
                if is_host { object.with("remarks", self.remarks.clone()) } else { object }
            }
        }
    }
}

/// How slow commands were: by the mean, where no percentiles are known.
#[expect(clippy::cast_precision_loss, reason = "an order for people")]
fn slowness(flow: &Flow) -> f32 {
    flow.p99_us.map(|us| us as f32).or(flow.mean_us).unwrap_or(-1.0)
}

fn latency(us: Option<u32>) -> String {
    us.map_or_else(|| "-".to_owned(), |us| micros(us.into()))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a latency, for people")]
fn whole_us(us: f32) -> u32 {
    us.max(0.0) as u32
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, for people")]
fn bytes(per_s: f32) -> u128 {
    per_s.max(0.0) as u128
}

#[cfg(test)]
mod tests;
