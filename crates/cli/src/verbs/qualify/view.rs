//! The results of a procedure as a table, and as JSON.

use std::fmt::Write as _;
use std::path::Path;

use ebof_bench::corner::Unit;
use ebof_qualify::document::{ColumnResult, Document, Phase, PhaseResult, Purpose, Reference, State};

use crate::output::View;
use crate::output::json::Object;
use crate::output::text::{safe, table};

/// A procedure that has ended.
pub(super) struct Finished<'a> {
    pub(super) document: &'a Document,
    /// Where its report is.
    pub(super) directory: &'a Path,
}

impl View for Finished<'_> {
    fn text(&self, verbose: bool) -> String {
        let Self { document, directory } = self;
        let mut text = format!("{}\n", document.title);
        text += &warnings(document);
        for column in &document.columns {
            let _infallible = writeln!(text, "  {}  {}: {}", column.id, safe(&column.label), safe(&column.device.name));
        }
        let shown = |phase: &&Phase| verbose || phase.purpose == Purpose::Measure;
        let phases: Vec<&Phase> = document.phases.iter().filter(shown).collect();
        text += &results(document, &phases);
        for phase in &document.phases {
            if let Some(why) = &phase.skipped {
                let _infallible = writeln!(text, "left out: {}: {}", phase.title, safe(why));
            }
        }
        let state = match document.state {
            State::Complete | State::Running => "the report is",
            State::Interrupted => "interrupted: a partial report is",
            State::Failed => "it could not go on: a partial report is",
        };
        if let Some(trouble) = &document.trouble {
            for line in trouble.lines() {
                let _infallible = writeln!(text, "{}", safe(line));
            }
        }
        let _infallible = writeln!(text, "{state} {}", directory.join("report.html").display());
        if document.state != State::Complete {
            let _infallible = writeln!(text, "the same command with --resume goes on from here");
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let Self { document, directory } = self;
        Object::document("qualify", 1)
            .with("directory", directory.display().to_string())
            .with("document", serde_json::to_value(document).unwrap_or_default())
    }
}

/// What is to be known before the figures are read.
fn warnings(document: &Document) -> String {
    let mut text = String::new();
    if let Some(factor) = document.quick {
        let _infallible = writeln!(text, "QUICK: 1/{factor} of the time and of the preconditioning: a preview");
    }
    let runs = || document.phases.iter().flat_map(|phase| &phase.runs);
    let disturbed = runs().filter(|run| run.disturbed.is_some()).count();
    if disturbed > 0 {
        let _infallible = writeln!(
            text,
            "DISTURBED: {disturbed} of {} runs; results that rest on such runs only are marked",
            runs().count()
        );
    }
    if document.rounds < 2 {
        text.push_str("ONE ROUND: the spread is not known, and a ratio may be chance\n");
    }
    text
}

fn results(document: &Document, phases: &[&Phase]) -> String {
    let columns = [
        ("MEASUREMENT", 11),
        ("", 1),
        ("VALUE", 8),
        ("UNIT", 4),
        ("SPREAD", 6),
        ("MEAN us", 7),
        ("P99 us", 6),
        ("P99.99 us", 9),
        ("RATIO", 5),
        ("RANGE", 5),
        ("IN THE DOCUMENT", 15),
    ];
    let mut rows = Vec::new();
    for phase in phases {
        let Some(result) = document.results.iter().find(|result| result.phase == phase.id) else { continue };
        for (index, column) in result.columns.iter().enumerate() {
            let title = if index == 0 { phase.title.clone() } else { String::new() };
            rows.push(row(document, phase, (title, index), column));
        }
        rows.extend(fairness(result));
    }
    if rows.is_empty() { "nothing was measured\n".to_owned() } else { table(&columns, &rows) }
}

fn row(document: &Document, phase: &Phase, (title, index): (String, usize), result: &ColumnResult) -> Vec<String> {
    let of = |at: f64| result.percentiles.iter().find(|(percentile, _)| (percentile - at).abs() < 1e-9);
    let micros = |at: f64| of(at).map_or_else(|| "-".to_owned(), |(_, us)| format!("{us:.0}"));
    let id = document.columns.get(result.column).map(|column| column.id.clone()).unwrap_or_default();
    let mark = if result.is_disturbed { " (disturbed)" } else { "" };
    let value = match phase.unit {
        Unit::MegabytesPerSecond => format!("{:.1}", result.value.median),
        Unit::Iops => format!("{:.0}", result.value.median),
    };
    let spread = result.spread().map_or_else(|| "-".to_owned(), |spread| format!("{:.0} %", spread * 100.0));
    let range = match (result.ratio_range, result.is_within_spread()) {
        (Some((least, most)), Some(true)) => format!("{least:.3} to {most:.3}: no difference"),
        (Some((least, most)), _) => format!("{least:.3} to {most:.3}"),
        (None, _) => "-".to_owned(),
    };
    let ratio = result.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}"));
    let share = result.share.map(|share| format!("{:.1} % of all", share * 100.0));
    let column = document.columns.get(result.column);
    let kind = column.map_or("", |column| column.device.kind.as_str());
    // Of ways of one connection, the first one is what the document began with.
    let is_first_way = column.is_some_and(|column| column.variant.is_some() && column.base.is_none());
    let reference = match phase.references.as_slice() {
        // A document's figure of the local drive belongs to the local device.
        [local, ..] if matches!(kind, "block" | "file") && phase.references.len() > 1 => Some(local),
        [before, _, ..] if is_first_way => Some(before),
        [_, after, ..] if kind.starts_with("nvme+") => Some(after),
        [only] if index == 0 => Some(only),
        _ => None,
    };
    vec![
        title,
        id,
        value,
        phase.unit.name().to_owned() + mark,
        spread,
        format!("{:.1}", result.mean_us),
        micros(99.0),
        micros(99.99),
        ratio,
        range,
        share.or_else(|| reference.map(cited)).unwrap_or_default(),
    ]
}

fn cited(reference: &Reference) -> String {
    let value = reference.value.map(|value| format!("{value:.0} ({})", reference.what)).unwrap_or_default();
    let ratio = reference.ratio.map(|ratio| format!(", {ratio:.3}")).unwrap_or_default();
    value + &ratio
}

fn fairness(result: &PhaseResult) -> Option<Vec<String>> {
    let (jain, spread) = (result.jain?, result.spread?);
    let mut row = vec![String::new(); 11];
    row[2] = format!("{jain:.4}");
    row[3] = format!("Jain's index; the largest share is {spread:.2} times the smallest");
    Some(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_qualify::document::{Procedure, SCHEMA};

    #[test]
    fn a_partial_report_says_so_and_how_to_go_on() {
        let document = Document {
            schema: SCHEMA.to_owned(),
            procedure: Procedure::Odcc,
            title: "A title".to_owned(),
            state: State::Failed,
            trouble: Some("the drive is gone\u{1b}[0m".to_owned()),
            quick: None,
            command: Vec::new(),
            program: String::new(),
            started_unix_ms: 0,
            ended_unix_ms: 0,
            resumed: 0,
            machine: ebof_qualify::machine::Machine::default(),
            rounds: 1,
            columns: Vec::new(),
            phases: Vec::new(),
            notes: Vec::new(),
            results: Vec::new(),
        };
        let text = Finished { document: &document, directory: Path::new("out") }.text(false);
        assert!(text.contains("the drive is gone") && !text.contains('\u{1b}'), "{text}");
        assert!(text.contains("a partial report is out/report.html") && text.contains("--resume"), "{text}");
        assert!(text.contains("nothing was measured"), "{text}");
        assert!(text.contains("ONE ROUND") && !text.contains("QUICK"), "{text}");
        let quick = Document { quick: Some(60), rounds: 5, ..document };
        let text = Finished { document: &quick, directory: Path::new("out") }.text(false);
        assert!(text.contains("QUICK: 1/60") && !text.contains("ONE ROUND"), "{text}");
    }
}
