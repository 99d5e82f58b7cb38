//! What stands on top: title, warnings, the outcome in words, and who measured what and when.

use ebof_bench::corner::Unit;

use super::content::{Banner, Body};
use super::text::{self, figure, micros, moment, percent};
use super::view::{Pane, ShownStep, View};
use crate::document::{ColumnResult, Document, Procedure, Purpose, State};

/// Figures in a sentence, at most.
const WORDS_MAX: usize = 8;
/// Sentences of the outcome, at most.
const SENTENCES_MAX: usize = 12;

/// The head of a report, without sections.
pub(super) fn head(view: &View<'_>) -> Body {
    let mut content = Body { title: title(view), facts: facts(view), ..Body::default() };
    for (source, of) in view.sources.iter().enumerate() {
        banners(view, source, of.document, &mut content);
    }
    content.tags.dedup();
    content.verdict = verdict(view);
    content
}

fn title(view: &View<'_>) -> String {
    let [source] = view.sources.as_slice() else {
        return format!("{} runs beside each other", view.sources.len());
    };
    let document = source.document;
    match state(document.state) {
        Some(state) => format!("PARTIAL ({state}): {}", document.title),
        None => document.title.clone(),
    }
}

/// In a word, unless it is complete.
pub(super) const fn state(state: State) -> Option<&'static str> {
    match state {
        State::Complete => None,
        State::Running => Some("not ended"),
        State::Interrupted => Some("interrupted"),
        State::Failed => Some("failed"),
    }
}

fn banners(view: &View<'_>, source: usize, document: &Document, content: &mut Body) {
    if let Some(state) = state(document.state) {
        let why = match document.state {
            State::Running => "The procedure was still running, or was killed, when this was written.",
            State::Interrupted => "The procedure was ended by the user.",
            State::Failed | State::Complete => "The procedure could not go on.",
        };
        let trouble = document.trouble.as_ref().map(|trouble| format!(" Reason: {trouble}.")).unwrap_or_default();
        let done = document.phases.iter().filter(|phase| !phase.runs.is_empty()).count();
        let all = document.phases.len();
        let text = format!("{why}{trouble} {done} of {all} phases were begun; what is here was measured before.");
        content.banners.push(Banner { heading: view.named(source, &format!("Partial report ({state}).")), text });
        content.tags.push(view.named(source, &format!("PARTIAL: {state}")));
    }
    if let Some(factor) = document.quick {
        let text = format!(
            "Every time and every preconditioned size is 1/{factor} of what the procedure demands: the figures are a \
             preview, not a qualification."
        );
        content.banners.push(Banner { heading: view.named(source, "Quick run."), text });
        content.tags.push(view.named(source, &format!("QUICK: 1/{factor} of the time")));
    }
    let runs = || document.phases.iter().flat_map(|phase| &phase.runs);
    let (all, disturbed) = (runs().count(), runs().filter(|run| run.disturbed.is_some()).count());
    let failed = runs().filter(|run| run.failed.is_some()).count();
    let counted = document.results.iter().flat_map(|result| &result.columns).filter(|of| of.is_disturbed).count();
    if counted > 0 {
        let text = format!(
            "{disturbed} of {all} runs were disturbed, and results that rest on disturbed runs only ({counted}) are \
             marked \"disturbed\"."
        );
        content.banners.push(Banner { heading: view.named(source, "Disturbed."), text });
    }
    if failed > 0 {
        let text =
            format!("{failed} of {all} runs have no result, or an incomplete one: see the conditions of every run.");
        content.banners.push(Banner { heading: view.named(source, "Failures."), text });
    }
}

fn facts(view: &View<'_>) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    for (source, of) in view.sources.iter().enumerate() {
        let document = of.document;
        if !view.is_single() {
            let done = state(document.state).unwrap_or("complete");
            let text = format!("{}, {}, {done}", document.title, moment(document.started_unix_ms));
            facts.push((view.named(source, document.procedure.name()), text));
            continue;
        }
        let resumed =
            if document.resumed == 0 { String::new() } else { format!(", resumptions: {}", document.resumed) };
        let times = format!("{} to {}{resumed}", moment(document.started_unix_ms), moment(document.ended_unix_ms));
        facts.push(("Measured".into(), times));
        for side in &view.sides {
            facts.push((format!("Column {}", side.column.id), described(side)));
        }
        facts.push(("Machine".into(), machine(document)));
        facts.push(("Program".into(), format!("{}, {} rounds of each measurement", document.program, document.rounds)));
        facts.push(("Command".into(), text::command(&document.command)));
    }
    facts
}

/// A side in a line: its device, by which engine.
fn described(side: &Pane<'_>) -> String {
    let column = side.column;
    let device = &column.device;
    let capacity =
        if device.capacity_bytes == 0 { String::new() } else { format!(", {}", text::bytes(device.capacity_bytes)) };
    let variant = column.variant.as_ref().map(|variant| format!(", {variant}")).unwrap_or_default();
    format!("{}: {} ({}{capacity}), by {}{variant}", side.label, device.name, device.kind, column.engine.name())
}

fn machine(document: &Document) -> String {
    let machine = &document.machine;
    let processors = format!("{} × {}", machine.processors, machine.processor);
    let memory = text::bytes(machine.memory_bytes);
    let mut parts = vec![processors, memory, machine.distribution.clone(), format!("kernel {}", machine.kernel)];
    parts.extend(machine.hypervisor.as_ref().map(|name| format!("in a virtual machine ({name})")));
    parts.join(", ")
}

/// The outcome in sentences: ratios first, otherwise figures.
fn verdict(view: &View<'_>) -> Vec<String> {
    let mut sentences: Vec<String> = view.sides.iter().filter_map(|side| against_base(view, side)).collect();
    for step in view.measured() {
        let shares = step.together.iter().enumerate().filter_map(|(source, result)| Some((source, (*result)?)));
        sentences.extend(shares.filter_map(|(source, result)| {
            let jain = result.jain.filter(|jain| jain.is_finite())?;
            let word = if jain >= 0.99 {
                "fair"
            } else if jain >= 0.9 {
                "nearly fair"
            } else {
                "unfair"
            };
            let spread = result.spread.filter(|spread| spread.is_finite());
            let spread =
                spread.map(|spread| format!("; the largest share is {} times the smallest", text::ratio(spread)));
            let text = format!("{}: {word}, Jain's index {jain:.4}{}.", step.title(), spread.unwrap_or_default());
            Some(view.named(source, &text))
        }));
    }
    let is_curve = |side: &&Pane<'_>| view.sources[side.source].document.procedure == Procedure::Curve;
    sentences.extend(view.sides.iter().filter(is_curve).filter_map(|side| summit(view, side)));
    if sentences.is_empty() {
        sentences.extend(view.sides.iter().filter_map(|side| alone(view, side)));
    }
    if sentences.is_empty() {
        sentences.push("Nothing was measured.".to_owned());
    }
    sentences.truncate(SENTENCES_MAX);
    sentences
}

/// "NVMe/TCP: 99.8 % of the local drive in 128K sequential write, 85.6 % in ...; mean latency 1.02
/// to 1.17 times".
fn against_base(view: &View<'_>, side: &Pane<'_>) -> Option<String> {
    let base = view.base(side)?;
    let results = || view.measured().filter_map(|step| Some((step, step.result(side)?)));
    let mut ratios: Vec<_> = results()
        .filter_map(|(step, of)| Some((step, of, of.ratio.filter(|ratio| ratio.is_finite())?)))
        .map(|(step, of, ratio)| (format!("{}{}", text::percent(ratio), doubt(of)), step.title()))
        .collect();
    if ratios.is_empty() {
        return None;
    }
    if ratios.len() > WORDS_MAX {
        let doubtful = results().filter(|(_, of)| of.is_disturbed || of.is_within_spread() != Some(false)).count();
        return Some(wide(side, base, results().filter_map(|(_, of)| of.ratio).collect(), doubtful));
    }
    let (first, title) = ratios.remove(0);
    let rest: String = ratios.iter().map(|(percent, title)| format!(", {percent} in {title}")).collect();
    let latencies = results().filter_map(|(_, of)| of.latency_ratio).filter(|ratio| ratio.is_finite());
    let (least, most) = ends(latencies);
    let latency = if most < least {
        String::new()
    } else if most - least < 0.005 {
        format!("; mean latency {most:.2} times")
    } else {
        format!("; mean latency {least:.2} to {most:.2} times")
    };
    Some(format!("{}: {first} of {} in {title}{rest}{latency}.", side.label, base.column.label))
}

/// What keeps a ratio from being a difference.
fn doubt(of: &ColumnResult) -> &'static str {
    match of.is_within_spread() {
        _ if of.is_disturbed => " (disturbed)",
        Some(true) => " (no difference: within the spread)",
        Some(false) => "",
        None => " (one round)",
    }
}

fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)))
}

fn wide(side: &Pane<'_>, base: &Pane<'_>, ratios: Vec<f64>, doubtful: usize) -> String {
    let all = ratios.len();
    let (least, most) = ends(ratios.into_iter().filter(|ratio| ratio.is_finite()));
    let doubt = match doubtful {
        0 => String::new(),
        some => format!(" ({some} of {all} ratios are disturbed, of one round, or within the spread)"),
    };
    format!("{}: {} to {} of {}{doubt}.", side.label, percent(least), percent(most), base.column.label)
}

/// The most operations per second on a curve.
fn summit(view: &View<'_>, side: &Pane<'_>) -> Option<String> {
    let of_side = view.measured().filter_map(|step| Some((step, step.result(side)?)));
    let points = of_side.filter(|(_, of)| of.iops.is_finite());
    let (step, most) = points.max_by(|(_, one), (_, other)| one.iops.total_cmp(&other.iops))?;
    let (iops, latency) = (figure(most.iops, Unit::Iops), micros(most.mean_us));
    let depth = step.phase().depth_total;
    Some(format!(
        "{}: at most {iops}, at {depth} outstanding operations, with a mean latency of {latency}.",
        side.label
    ))
}

fn alone(view: &View<'_>, side: &Pane<'_>) -> Option<String> {
    let shown = |step: &ShownStep<'_>| {
        let of = step.result(side)?;
        Some(format!("{} {}", figure(of.value.median, step.unit()), step.title()))
    };
    let figures: Vec<_> = view.measured().filter_map(shown).take(WORDS_MAX).collect();
    let prepared = || view.steps.iter().filter(|step| step.phase().purpose == Purpose::Precondition).filter_map(shown);
    let figures = if figures.is_empty() { prepared().take(WORDS_MAX).collect() } else { figures };
    (!figures.is_empty()).then(|| format!("{}: {}.", side.label, figures.join(", ")))
}
