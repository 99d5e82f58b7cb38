//! Latency by percentile, curves over depth, and what happened over time.

use std::collections::BTreeMap;

use ebof_bench::corner::Unit;

use super::content::{Cell, Figure, Grid, Item, Section};
use super::figures::{FIGURES_MAX, ROWS_MAX};
use super::plot::{Dot, LINES_MAX, Line, Plot, Scaled, thinned};
use super::svg::Scale;
use super::text::{self, figure, maybe, micros, micros_short, number, short};
use super::view::{ShownStep, View};
use crate::document::{ColumnResult, Procedure, Run};

/// Sizes of pictures: narrow and wide.
const NARROW: (f64, f64) = (400.0, 260.0);
const WIDE: (f64, f64) = (820.0, 340.0);
/// Points of a line over time, at most.
const POINTS_MAX: usize = 200;

fn scaled(label: &str, scale: Scale, format: fn(f64) -> String) -> Scaled {
    Scaled { label: label.to_owned(), scale, format }
}

/// The percentiles that the table has.
const SHOWN: [f64; 5] = [50.0, 99.0, 99.9, 99.99, 99.999];

/// Latencies of every phase.
pub(super) fn latency(view: &View<'_>) -> Section {
    let mut head = vec!["phase", "column", "#mean"];
    head.extend(["#50 %", "#99 %", "#99.9 %", "#99.99 %", "#99.999 %", "#mean by base"]);
    let mut table = Grid::new("From submission to completion; each value is the median over the rounds.", &head);
    for step in view.measured() {
        for (_, side, of) in view.results(step) {
            let mut row: Vec<Cell> = vec![step.title().into(), side.label.clone().into()];
            let mean = micros(of.mean_us);
            row.push(if of.is_disturbed { Cell::bad(format!("{mean} (disturbed)")) } else { Cell::strong(mean) });
            row.extend(SHOWN.map(|percentile| Cell::from(maybe(at(of, percentile), micros))));
            row.push(maybe(of.latency_ratio, text::ratio).into());
            table.rows.push(row);
        }
    }
    table.rows.truncate(ROWS_MAX);
    let figures = chosen(view).into_iter().filter_map(|step| percentiles(view, step));
    let figures: Vec<_> = figures.take(FIGURES_MAX).collect();
    let mut blocks = vec![Item::Grid(table)];
    if !figures.is_empty() {
        let text = "How long the slowest operations took: each nine of the percentile takes the same room.";
        blocks.insert(0, Item::Text(text.into()));
        blocks.insert(1, Item::Figures(figures));
    }
    Section { id: "latency", title: "Latency", blocks }
}

fn at(of: &ColumnResult, percentile: f64) -> Option<f64> {
    of.percentiles.iter().find(|(at, _)| (at - percentile).abs() < 1e-9).map(|(_, us)| *us)
}

/// The steps that get pictures of their own: of a curve, both ends and the middle.
fn chosen<'s, 'a>(view: &'s View<'a>) -> Vec<&'s ShownStep<'a>> {
    let measured: Vec<_> = view.measured().collect();
    let is_curve = view.documents().all(|document| document.procedure == Procedure::Curve);
    if !is_curve || measured.len() <= 6 {
        return measured;
    }
    let mut depths: Vec<u32> = measured.iter().map(|step| step.phase().depth_total).collect();
    depths.sort_unstable();
    depths.dedup();
    let wanted = [depths.first(), depths.get(depths.len() / 2), depths.last()];
    measured.into_iter().filter(|step| wanted.contains(&Some(&step.phase().depth_total))).take(6).collect()
}

fn percentiles(view: &View<'_>, step: &ShownStep<'_>) -> Option<Figure> {
    let lines: Vec<_> = view.results(step).filter(|(.., of)| !of.percentiles.is_empty()).take(LINES_MAX).collect();
    let lines = lines.into_iter().map(|(look, side, of)| {
        let mut points: Vec<_> = of.percentiles.iter().filter(|(at, _)| *at >= 50.0).copied().collect();
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let dots = points.into_iter().map(|(x, y)| Dot { x, y, label: String::new() });
        Line { name: side.label.clone(), look, is_faint: of.is_disturbed, points: dots.collect() }
    });
    let plot = Plot {
        name: format!("{}: latency by percentile", step.title()),
        x: scaled("percentile", Scale::Nines, |value| format!("{value}")),
        y: scaled("latency", Scale::Log, micros_short),
        lines: lines.collect(),
        marks: Vec::new(),
        has_points: true,
    };
    (!plot.lines.is_empty()).then(|| narrow(step.title(), &plot))
}

fn legend(plot: &Plot) -> Vec<(usize, String)> {
    let mut names: Vec<(usize, String)> = Vec::new();
    for line in plot.lines.iter().take(LINES_MAX) {
        let name = (line.look, line.name.clone());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn narrow(caption: String, plot: &Plot) -> Figure {
    Figure { caption, legend: legend(plot), narrow: plot.draw(NARROW.0, NARROW.1, "lines"), wide: None }
}

fn wide(caption: &str, plot: &Plot) -> Figure {
    let wide = plot.draw(WIDE.0, WIDE.1, "lines wide");
    let narrow = plot.draw(NARROW.0, NARROW.1 + 40.0, "lines narrow");
    Figure { caption: caption.to_owned(), legend: legend(plot), narrow, wide: Some(wide) }
}

/// Operations per second against latency, of all phases of procedures that vary the depth.
pub(super) fn curve(view: &View<'_>) -> Option<Section> {
    let points = curve_points(view);
    if points.is_empty() {
        return None;
    }
    let lines = |x: fn(&OnCurve<'_>) -> f64, y: fn(&OnCurve<'_>) -> f64, is_labelled: bool| -> Vec<Line> {
        let lines = points.values().enumerate().map(|(look, (name, points))| {
            let dot = |point: &OnCurve<'_>| {
                let label = if is_labelled { point.depth.to_string() } else { String::new() };
                Dot { x: x(point), y: y(point), label }
            };
            Line { name: name.clone(), look, is_faint: false, points: points.iter().map(dot).collect() }
        });
        lines.take(LINES_MAX).collect()
    };
    let plot = |name: &str, x: Scaled, y: Scaled, lines| Plot {
        name: name.into(),
        x,
        y,
        lines,
        marks: Vec::new(),
        has_points: true,
    };
    let iops = || scaled("IOPS", Scale::Linear, short);
    let mean = lines(|point| point.of.iops, |point| point.of.mean_us, true);
    let tail = lines(|point| point.of.iops, |point| at(point.of, 99.0).unwrap_or(f64::NAN), true);
    let depth = lines(|point| f64::from(point.depth), |point| point.of.iops, false);
    let latency = |label: &str| scaled(label, Scale::Log, micros_short);
    let mean = plot("Mean latency over IOPS", iops(), latency("mean latency"), mean);
    let tail = plot("99th percentile over IOPS", iops(), latency("99th percentile"), tail);
    let outstanding = scaled("outstanding operations, all threads", Scale::Log, short);
    let depth = plot("IOPS over depth", outstanding, iops(), depth);
    let figures = vec![
        wide("Mean latency over IOPS; the numbers are outstanding operations", &mean),
        narrow("99th percentile of latency over IOPS".into(), &tail),
        narrow("IOPS over depth".into(), &depth),
    ];
    let text = "Further right is more, further down is faster. Where a line turns upwards, more outstanding operations \
                only wait.";
    Some(Section { id: "curve", title: "Curve", blocks: vec![Item::Text(text.into()), Item::Figures(figures)] })
}

struct OnCurve<'a> {
    depth: u32,
    of: &'a ColumnResult,
}

/// Points in order of depth, by side and number of threads, with the name of the line.
fn curve_points<'a>(view: &View<'a>) -> BTreeMap<(usize, u16), (String, Vec<OnCurve<'a>>)> {
    let mut lines: BTreeMap<(usize, u16), (String, Vec<OnCurve<'a>>)> = BTreeMap::new();
    for step in view.measured() {
        for (index, side, of) in view.results(step) {
            let of_curve = view.sources[side.source].document.procedure == Procedure::Curve;
            let Some(phase) = step.phases[side.source].filter(|phase| of_curve && phase.unit == Unit::Iops) else {
                continue;
            };
            let threads = phase.jobs.first().map_or(1, |job| job.threads);
            let name = format!("{}, {threads} {}", side.label, if threads == 1 { "thread" } else { "threads" });
            let line = lines.entry((index, threads)).or_insert_with(|| (name, Vec::new()));
            line.1.push(OnCurve { depth: phase.depth_total, of });
        }
    }
    for (_, points) in lines.values_mut() {
        points.sort_by_key(|point| point.depth);
    }
    lines
}

/// What happened during the runs, and whether it was steady.
pub(super) fn time(view: &View<'_>) -> Option<Section> {
    let is_curve = |step: &&ShownStep<'_>| {
        let mut sources = step.phases.iter().enumerate().filter(|(_, phase)| phase.is_some());
        sources.all(|(source, _)| view.sources[source].document.procedure == Procedure::Curve)
    };
    let few = view.measured().filter(is_curve).count() <= 6;
    let steps = view.steps.iter().filter(|step| few || !is_curve(step));
    let figures: Vec<_> = steps.filter_map(|step| over_time(view, step)).take(FIGURES_MAX).collect();
    let table = steady(view);
    if figures.is_empty() && table.is_none() {
        return None;
    }
    let text = "One line for each run; pale lines are disturbed runs. Where a run reached a steady state, an upright \
                line tells it: over five parts of the run, the largest and the smallest value are at most 20 % apart, \
                and the line of best fit changes by at most 10 %.";
    let mut blocks = vec![Item::Text(text.into())];
    if !figures.is_empty() {
        blocks.push(Item::Figures(figures));
    }
    blocks.extend(table.map(Item::Grid));
    Some(Section { id: "time", title: "Over time", blocks })
}

fn over_time(view: &View<'_>, step: &ShownStep<'_>) -> Option<Figure> {
    let unit = step.unit();
    let runs: Vec<_> = step.runs().filter(|(_, run)| !run.series.is_empty()).take(LINES_MAX).collect();
    let lines = runs.iter().filter_map(|(source, run)| {
        let (look, side) = view.side(*source, run)?;
        let points: Vec<_> =
            run.series.iter().map(|point| (point.at_s, value(unit, point.iops, point.bytes_per_s))).collect();
        let dots = thinned(&points, POINTS_MAX).into_iter().map(|(x, y)| Dot { x, y, label: String::new() });
        Some(Line { name: side.label.clone(), look, is_faint: run.disturbed.is_some(), points: dots.collect() })
    });
    let reached = runs.iter().find_map(|(_, run)| run.steady?.reached_s);
    let marks = reached.map(|at| (at, format!("steady at {} s", number(at))));
    let plot = Plot {
        name: format!("{}: {} over time", step.title(), unit.name()),
        x: scaled("seconds", Scale::Linear, short),
        y: scaled(unit.name(), Scale::Linear, short),
        lines: lines.collect(),
        marks: marks.into_iter().collect(),
        has_points: false,
    };
    (!plot.lines.is_empty()).then(|| narrow(step.title(), &plot))
}

fn value(unit: Unit, iops: f64, bytes_per_s: f64) -> f64 {
    match unit {
        Unit::Iops => iops,
        Unit::MegabytesPerSecond => bytes_per_s / 1e6,
    }
}

/// The runs that were long enough to tell.
fn steady(view: &View<'_>) -> Option<Grid> {
    let head = ["phase", "column", "#round", "steady", "#excursion", "#slope", "#last value"];
    let mut table = Grid::new("Steady state of each run that was long enough to tell.", &head);
    for step in &view.steps {
        for (source, run) in step.runs() {
            let Some(steady) = run.steady else { continue };
            let reached = steady
                .reached_s
                .map_or_else(|| Cell::bad("not reached"), |at| format!("after {} s", number(at)).into());
            let last = run.series.last().map(|point| value(step.unit(), point.iops, point.bytes_per_s));
            table.rows.push(vec![
                step.title().into(),
                label(view, source, run).into(),
                run.round.to_string().into(),
                reached,
                text::percent(steady.excursion_percent / 100.0).into(),
                text::percent(steady.slope_percent / 100.0).into(),
                maybe(last, |last| figure(last, step.unit())).into(),
            ]);
        }
    }
    table.rows.truncate(ROWS_MAX);
    (!table.rows.is_empty()).then_some(table)
}

/// The name of a run's side.
pub(super) fn label(view: &View<'_>, source: usize, run: &Run) -> String {
    view.side(source, run)
        .map_or_else(|| view.named(source, &format!("column {}", run.column)), |(_, side)| side.label.clone())
}
