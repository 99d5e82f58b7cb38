//! The figures: ratios first, then each phase's figure by column with its spread, the documents'
//! own figures beside them, and shares.

use super::bars::{BARS_MAX, Bar, Bars};
use super::content::{Cell, Figure, Grid, Item, Section};
use super::text::{self, NOTHING, figure, maybe, micros, number, ratio};
use super::view::{Pane, ShownStep, View};
use crate::document::{ColumnResult, Procedure, Reference};

/// Pictures in a section, at most.
pub(super) const FIGURES_MAX: usize = 32;
/// Rows of a table, at most.
pub(super) const ROWS_MAX: usize = 2000;

/// Ratios to the base, ours and the documents'.
pub(super) fn ratios(view: &View<'_>) -> Option<Section> {
    let mut table = Grid::new(
        "Divided by the base, in the same phase. Rounds alternate between the columns, and each value is a median.",
        &["phase", "column", "base", "#ratio", "range of the rounds", "#latency ratio", "the document's ratio"],
    );
    let mut bars = Vec::new();
    for step in view.measured() {
        let references = references(step);
        let before = bars.len();
        for (look, side, of) in view.results(step) {
            let (Some(base), Some(value)) = (view.base(side), of.ratio) else { continue };
            let theirs = references.iter().filter_map(|reference| {
                Some(format!("{} ({}, {})", ratio(reference.ratio?), reference.document, reference.what))
            });
            let theirs = theirs.collect::<Vec<_>>().join("; ");
            table.rows.push(vec![
                step.title().into(),
                side.label.clone().into(),
                base.column.label.clone().into(),
                marked(&ratio(value), of, true),
                match (of.ratio_range, of.is_within_spread()) {
                    (Some((least, most)), Some(true)) => {
                        format!("{} to {}: no difference", ratio(least), ratio(most)).into()
                    }
                    (Some((least, most)), _) => format!("{} to {}", ratio(least), ratio(most)).into(),
                    (None, _) => NOTHING.into(),
                },
                maybe(of.latency_ratio, ratio).into(),
                if theirs.is_empty() { NOTHING.into() } else { theirs.into() },
            ]);
            let label = format!("{}: {}", step.title(), side.label);
            bars.push(Bar { label, shown: ratio(value), value, spread: of.ratio_range, look: Some(look) });
        }
        let has_ours = bars.len() > before;
        let theirs = references.iter().filter(|_| has_ours);
        bars.extend(theirs.filter_map(|reference| {
            let value = reference.ratio?;
            let label = format!("{} ({})", reference.what, reference.document);
            Some(Bar { label, shown: ratio(value), value, spread: None, look: None })
        }));
    }
    if table.rows.is_empty() {
        return None;
    }
    table.rows.truncate(ROWS_MAX);
    let blocks = vec![Item::Figures(ratio_figures(&bars)), Item::Grid(table)];
    Some(Section { id: "ratios", title: "Ratios", blocks })
}

/// Pictures with so many bars as fit.
fn ratio_figures(bars: &[Bar]) -> Vec<Figure> {
    let parts = bars.len().div_ceil(BARS_MAX / 2).clamp(1, 6);
    let each = bars.len().div_ceil(parts).clamp(1, BARS_MAX);
    let figures = bars.chunks(each).take(parts).map(|bars| {
        let mark = Some((1.0, "1 is the base".to_owned()));
        let drawn = Bars { name: "Ratios to the base".into(), bars: bars.to_vec(), mark, format: text::short };
        Figure { caption: "Ratio to the base".into(), legend: Vec::new(), narrow: drawn.draw(), wide: None }
    });
    figures.collect()
}

/// The documents' figures for a step, without repetition.
fn references<'a>(step: &ShownStep<'a>) -> Vec<&'a Reference> {
    let mut all: Vec<&Reference> = Vec::new();
    for reference in step.phases.iter().flatten().flat_map(|phase| &phase.references).take(64) {
        if !all.contains(&reference) {
            all.push(reference);
        }
    }
    all
}

/// A value, with the word "disturbed" if it rests on disturbed runs.
fn marked(text: &str, of: &ColumnResult, is_strong: bool) -> Cell {
    match (of.is_disturbed, is_strong) {
        (true, _) => Cell::bad(format!("{text} (disturbed)")),
        (false, true) => Cell::strong(text),
        (false, false) => text.into(),
    }
}

/// All figures.
pub(super) fn results(view: &View<'_>) -> Section {
    let mut blocks = Vec::new();
    // A curve has a picture of its own, with all of them.
    let with_bars = |step: &&ShownStep<'_>| {
        let all = step.phases.iter().enumerate().filter(|(_, phase)| phase.is_some());
        !all.into_iter().all(|(source, _)| view.sources[source].document.procedure == Procedure::Curve)
    };
    let figures: Vec<_> = view.measured().filter(with_bars).take(FIGURES_MAX).map(|step| bars(view, step)).collect();
    if !figures.is_empty() {
        blocks.push(Item::Text(
            "Each bar is a median over the rounds; the thin line across it reaches from the smallest to the largest \
             of them. Outlined bars are figures that the documents print, measured on other machines."
                .into(),
        ));
        blocks.push(Item::Figures(figures));
    }
    blocks.push(Item::Grid(values(view)));
    blocks.extend(beside(view).map(Item::Grid));
    blocks.extend(theirs(view).map(Item::Grid));
    let skipped = view
        .steps
        .iter()
        .flat_map(|step| step.phases.iter().flatten())
        .filter_map(|phase| Some(format!("{}: left out, {}", super::view::title(phase), phase.skipped.as_ref()?)));
    let skipped: Vec<_> = skipped.take(ROWS_MAX).collect();
    if !skipped.is_empty() {
        blocks.push(Item::List(skipped));
    }
    Section { id: "results", title: "Results", blocks }
}

fn bars(view: &View<'_>, step: &ShownStep<'_>) -> Figure {
    let ours = view.results(step).map(|(look, side, of)| Bar {
        label: side.label.clone(),
        shown: format!("{}{}", figure(of.value.median, step.unit()), if of.is_disturbed { ", disturbed" } else { "" }),
        value: of.value.median,
        spread: Some((of.value.min, of.value.max)),
        look: Some(look),
    });
    let ours: Vec<_> = ours.take(BARS_MAX - 4).collect();
    let theirs = references(step).into_iter().filter_map(|reference| {
        let value = reference.value?;
        let label = format!("{} ({})", reference.what, reference.document);
        Some(Bar { label, shown: figure(value, step.unit()), value, spread: None, look: None })
    });
    let bars = ours.into_iter().chain(theirs.take(4)).collect();
    let drawn = Bars { name: step.title(), bars, mark: None, format: text::short };
    let load = step.phase().jobs.first().map(text::load).map(|load| format!(" ({load})"));
    let caption = format!("{}{}", step.title(), load.unwrap_or_default());
    Figure { caption, legend: Vec::new(), narrow: drawn.draw(), wide: None }
}

fn values(view: &View<'_>) -> Grid {
    let head = ["phase", "column", "unit", "#median", "#smallest", "#largest", "#MAD", "#rounds", "#IOPS", "#MB/s"];
    let mut table = Grid::new("Medians over the rounds. MAD is the median absolute deviation.", &head);
    for step in view.measured() {
        for (_, side, of) in view.results(step) {
            table.rows.push(vec![
                step.title().into(),
                side.label.clone().into(),
                step.unit().name().into(),
                marked(&number(of.value.median), of, true),
                number(of.value.min).into(),
                number(of.value.max).into(),
                number(of.value.mad).into(),
                of.value.all.len().to_string().into(),
                number(of.iops).into(),
                maybe(megabytes(step, side, of), number).into(),
            ]);
        }
    }
    table.rows.truncate(ROWS_MAX);
    table
}

/// Bytes per second in millions, from the operations and the size of the first job's blocks.
fn megabytes(step: &ShownStep<'_>, side: &Pane<'_>, of: &ColumnResult) -> Option<f64> {
    let job = step.phases.get(side.source).copied().flatten()?.jobs.first()?;
    Some(of.iops * f64::from(job.block_bytes) / 1e6)
}

/// The second group of threads, if any phase has one.
fn beside(view: &View<'_>) -> Option<Grid> {
    let head = ["phase", "column", "load", "#IOPS", "#MB/s"];
    let mut table = Grid::new("The threads that ran beside those above.", &head);
    for step in view.measured() {
        for (_, side, of) in view.results(step) {
            let Some((iops, bytes)) = of.beside else { continue };
            let job = step.phases.get(side.source).copied().flatten().and_then(|phase| phase.jobs.get(1));
            let load = job.map_or_else(|| NOTHING.to_owned(), text::load);
            let numbers = [number(iops), number(bytes / 1e6)].map(Cell::from);
            table.rows.push(
                [step.title().into(), side.label.clone().into(), load.into()].into_iter().chain(numbers).collect(),
            );
        }
    }
    table.rows.truncate(ROWS_MAX);
    (!table.rows.is_empty()).then_some(table)
}

/// What the documents print for the same load.
fn theirs(view: &View<'_>) -> Option<Grid> {
    let head = ["phase", "document", "what", "#figure", "#ratio"];
    let mut table = Grid::new("What the documents print for the same load, measured on other machines.", &head);
    for step in view.measured() {
        for reference in references(step) {
            table.rows.push(vec![
                step.title().into(),
                reference.document.clone().into(),
                reference.what.clone().into(),
                maybe(reference.value, |value| figure(value, step.unit())).into(),
                maybe(reference.ratio, ratio).into(),
            ]);
        }
    }
    table.rows.truncate(ROWS_MAX);
    (!table.rows.is_empty()).then_some(table)
}

/// How equal the shares of hosts are that ran together.
pub(super) fn shares(view: &View<'_>) -> Option<Section> {
    let mut table = Grid::new(
        "Jain's index is 1 if all shares are equal, and 1/n if one of n has everything. The spread is the largest share \
         divided by the smallest.",
        &["phase", "column", "#share", "#figure", "#mean latency", "#Jain's index", "#spread"],
    );
    let mut figures = Vec::new();
    for step in view.measured() {
        let shares: Vec<_> =
            view.results(step).filter_map(|(look, side, of)| Some((look, side, of, of.share?))).collect();
        for (_, side, of, share) in &shares {
            let result = step.together.get(side.source).copied().flatten();
            table.rows.push(vec![
                step.title().into(),
                side.label.clone().into(),
                marked(&part(*share), of, true),
                figure(of.value.median, step.unit()).into(),
                micros(of.mean_us).into(),
                maybe(result.and_then(|result| result.jain), |jain| format!("{jain:.4}")).into(),
                maybe(result.and_then(|result| result.spread), ratio).into(),
            ]);
        }
        for source in 0..view.sources.len() {
            let of_source: Vec<_> = shares.iter().filter(|(_, side, ..)| side.source == source).copied().collect();
            if figures.len() < FIGURES_MAX && !of_source.is_empty() {
                figures.push(share_figure(view, step, source, &of_source));
            }
        }
    }
    if table.rows.is_empty() {
        return None;
    }
    table.rows.truncate(ROWS_MAX);
    Some(Section { id: "shares", title: "Fairness", blocks: vec![Item::Figures(figures), Item::Grid(table)] })
}

type Share<'s, 'a> = (usize, &'s Pane<'a>, &'a ColumnResult, f64);

fn share_figure(view: &View<'_>, step: &ShownStep<'_>, source: usize, shares: &[Share<'_, '_>]) -> Figure {
    let bars = shares.iter().map(|(look, side, _, share)| {
        let shown = part(*share);
        Bar { label: side.label.clone(), shown, value: *share, spread: None, look: Some(*look) }
    });
    let equal = 1.0 / super::svg::float(shares.len().max(1));
    let mark = Some((equal, format!("equal: {}", text::percent(equal))));
    let caption = view.named(source, &format!("{}: shares", step.title()));
    let drawn = Bars { name: caption.clone(), bars: bars.collect(), mark, format: text::percent };
    let jain = step.together.get(source).copied().flatten().and_then(|result| result.jain);
    let jain = jain.filter(|jain| jain.is_finite()).map(|jain| format!(" (Jain's index {jain:.4})"));
    Figure {
        caption: format!("{caption}{}", jain.unwrap_or_default()),
        legend: Vec::new(),
        narrow: drawn.draw(),
        wide: None,
    }
}

/// A share, with a digit more than other percentages: fair ones hardly differ.
fn part(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", share * 100.0) } else { NOTHING.to_owned() }
}
