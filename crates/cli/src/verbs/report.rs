//! `report`: the reports of several runs of `qualify` beside each other.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ebof_qualify::document::{Document, State};
use ebof_qualify::{report, store};

use super::Outcome;
use crate::failure::Failure;
use crate::global::Global;
use crate::output::json::Object;
use crate::output::text::{safe, table};
use crate::output::{View, say, show};

/// Runs beside each other, at most.
const RUNS_MAX: usize = 64;

/// `report`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Report {
    /// The directories of the runs
    #[arg(value_name = "DIR", required = true)]
    directories: Vec<PathBuf>,
    /// Also write them to this file, as HTML [default: comparison.html]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "comparison.html")]
    html: Option<PathBuf>,
    /// Also write them to this file, as Markdown [default: comparison.md]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "comparison.md")]
    markdown: Option<PathBuf>,
}

impl Report {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        if self.directories.len() > RUNS_MAX {
            let hint = format!("name up to {RUNS_MAX} directories");
            return Err(Failure::usage("too many runs to be beside each other", hint).into());
        }
        // All of them are read before anything is written.
        let runs = self.directories.iter().map(|directory| Ok((name(directory), store::load(directory)?)));
        let runs = runs.collect::<Result<Vec<_>, store::StoreError>>()?;
        if let Some(path) = &self.html {
            write(path, &report::html_of(&runs))?;
        }
        if let Some(path) = &self.markdown {
            write(path, &report::markdown_of(&runs))?;
        }
        show(global, &Beside(&runs))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The last part of its path.
fn name(directory: &Path) -> String {
    let whole = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    whole.file_name().map_or_else(|| whole.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| {
        let message = format!("writing {}: {error}", path.display());
        Failure::new("not-written", message, "name another file, as in --html=/tmp/comparison.html")
    })?;
    say(&format!("wrote {}", path.display()));
    Ok(())
}

/// Runs, by name.
struct Beside<'a>(&'a [(String, Document)]);

impl View for Beside<'_> {
    fn text(&self, _verbose: bool) -> String {
        let columns = [
            ("MEASUREMENT", 11),
            ("RUN", 3),
            ("", 1),
            ("VALUE", 5),
            ("UNIT", 4),
            ("MEAN us", 7),
            ("RATIO", 5),
            ("RANGE", 5),
        ];
        let mut titles: Vec<&str> = Vec::new();
        for phase in self.0.iter().flat_map(|(_, document)| &document.phases) {
            if !titles.contains(&phase.title.as_str()) {
                titles.push(&phase.title);
            }
        }
        let rows: Vec<Vec<String>> = titles
            .iter()
            .flat_map(|title| self.0.iter().flat_map(|(name, document)| rows(title, name, document)))
            .collect();
        let partial = self.0.iter().filter(|(_, document)| document.state != State::Complete);
        let partial: String = partial.map(|(name, _)| format!("{}: a partial report\n", safe(name))).collect();
        let quick = self.0.iter().filter_map(|(name, document)| {
            Some(format!("{}: QUICK, 1/{} of the time: a preview\n", safe(name), document.quick?))
        });
        table(&columns, &rows) + &partial + &quick.collect::<String>()
    }

    fn json(&self, _verbose: bool) -> Object {
        let runs: Vec<serde_json::Value> = self.0.iter().map(|(name, document)| run(name, document)).collect();
        Object::document("report", 1).with("runs", runs)
    }
}

fn rows(title: &str, name: &str, document: &Document) -> Vec<Vec<String>> {
    let Some(phase) = document.phases.iter().find(|phase| phase.title == title) else { return Vec::new() };
    let Some(result) = document.results.iter().find(|result| result.phase == phase.id) else { return Vec::new() };
    let row = |column: &ebof_qualify::document::ColumnResult| {
        let label = document.columns.get(column.column).map(|column| safe(&column.label)).unwrap_or_default();
        vec![
            safe(title),
            safe(name),
            label,
            format!("{:.1}", column.value.median),
            phase.unit.name().to_owned() + if column.is_disturbed { " (disturbed)" } else { "" },
            format!("{:.1}", column.mean_us),
            column.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}")),
            match (column.ratio_range, column.is_within_spread()) {
                (Some((least, most)), Some(true)) => format!("{least:.3} to {most:.3}: no difference"),
                (Some((least, most)), _) => format!("{least:.3} to {most:.3}"),
                (None, _) => "-".to_owned(),
            },
        ]
    };
    result.columns.iter().map(row).collect()
}

/// A document without its runs: what programs compare.
fn run(name: &str, document: &Document) -> serde_json::Value {
    serde_json::json!({
        "name": name,
        "procedure": document.procedure,
        "title": document.title,
        "state": document.state,
        "trouble": document.trouble,
        "quick": document.quick,
        "started_unix_ms": document.started_unix_ms,
        "columns": document.columns,
        "results": document.results,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        global: Global,
    }

    #[test]
    fn a_directory_without_a_report_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let of = |directories: Vec<PathBuf>| Report { directories, html: None, markdown: None };
        let global = Line::parse_from(["report"]).global;
        let missing = of(vec![directory.path().join("none")]).run(&global).unwrap_err().to_string();
        assert!(missing.contains("none/report.json"), "{missing}");
        std::fs::write(directory.path().join("report.json"), "{}").unwrap();
        let other = of(vec![directory.path().to_owned()]).run(&global).unwrap_err().to_string();
        assert!(other.contains("it has no schema"), "{other}");
        assert!(of(vec![PathBuf::new(); RUNS_MAX + 1]).run(&global).is_err());
    }
}
