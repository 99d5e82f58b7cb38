//! Output of reports: as text, as JSON (`ebof-bench`'s types), and as a comparison of several
//! sources.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use ebof_bench::{Report, Side};

use crate::output::View;
use crate::output::json::Object;

/// The reports of one run: for each source, one of each group.
pub(super) struct Reports<'a> {
    pub(super) all: &'a [Report],
    /// Groups that ran at the same time.
    pub(super) groups: usize,
}

/// A source compared with the first one, for one group.
struct Row<'a> {
    report: &'a Report,
    /// Operations per second, relative to the first source.
    ratio: f64,
}

impl Reports<'_> {
    /// Empty if there is only one source.
    fn comparison(&self) -> Vec<Row<'_>> {
        let groups = self.groups.max(1);
        if self.all.len() <= groups {
            return Vec::new();
        }
        let row = |(index, report): (usize, &'_ Report)| {
            let first = self.all[index % groups].total.iops;
            (index, report.total.iops / first.max(1e-9))
        };
        self.all.iter().enumerate().map(row).map(|(index, ratio)| Row { report: &self.all[index], ratio }).collect()
    }
}

impl View for Reports<'_> {
    fn text(&self, verbose: bool) -> String {
        let mut text =
            self.all.iter().map(|report| one(report, self.groups > 1, verbose)).collect::<Vec<_>>().join("\n");
        let rows = self.comparison();
        if !rows.is_empty() {
            let _infallible = writeln!(text, "\n{}", table(&rows, self.groups > 1));
        }
        text
    }

    fn json(&self, _verbose: bool) -> Object {
        let reports: Vec<_> = self.all.iter().map(|report| serde_json::to_value(report).unwrap_or_default()).collect();
        let comparison: Vec<_> = self.comparison().iter().map(Row::json).collect();
        Object::document("bench", 1).with("reports", reports).with("comparison", comparison)
    }
}

impl Row<'_> {
    fn json(&self) -> serde_json::Value {
        let Report { source, job, total, process, .. } = self.report;
        serde_json::json!({
            "source": source,
            "job": job.name,
            "iops": total.iops,
            "bytes_per_s": total.bytes_per_s,
            "mean_us": total.latency.mean_us,
            "p99_us": total.latency.percentile_us(99.0),
            "cpu_us_per_operation": process.map(|process| process.cpu_us_per_operation),
            "ratio": self.ratio,
        })
    }
}

fn table(rows: &[Row<'_>], groups: bool) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["source", "IOPS", "MB/s", "mean us", "99 % us", "CPU us", "ratio"]);
    for Row { report, ratio } in rows {
        let Report { source, job, total, process, .. } = report;
        let name = if groups { format!("{source}, {}", job.name) } else { source.clone() };
        let p99 = total.latency.percentile_us(99.0).unwrap_or_default();
        table.add_row([
            name,
            format!("{:.0}", total.iops),
            format!("{:.1}", total.bytes_per_s / 1e6),
            format!("{:.1}", total.latency.mean_us),
            format!("{p99:.1}"),
            process.map_or_else(String::new, |process| format!("{:.2}", process.cpu_us_per_operation)),
            format!("{ratio:.3}"),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn one(report: &Report, group: bool, verbose: bool) -> String {
    let job = &report.job;
    let rw = job.rw;
    let block = job.block_bytes;
    let depth = report.depth;
    let threads = job.threads;
    let plural = if threads == 1 { "" } else { "s" };
    let name = if group { format!(", {}", job.name) } else { String::new() };
    let mut text = format!(
        "{}{name}\n  {rw}, {block} B, depth {depth}, {threads} thread{plural}, {:.1} s\n",
        report.source, report.elapsed_s
    );
    if depth < job.depth {
        let _infallible =
            writeln!(text, "  NOTE       a depth of {} was asked for: the target's queue takes {depth}", job.depth);
    }
    for (name, side) in [("read", &report.read), ("write", &report.write)] {
        if let Some(side) = side {
            text += &direction(name, side, verbose);
        }
    }
    let _infallible = writeln!(
        text,
        "  processor  {:.0} % of one, {:.2} us per operation (threads of this load)",
        report.cpu_percent, report.cpu_us_per_operation
    );
    if let Some(process) = &report.process {
        let all = if group { ", all groups" } else { "" };
        let _infallible = writeln!(
            text,
            "  {:<10} {:.0} % of one, {:.2} us per operation: user {:.2}, system {:.2} (this process{all})",
            "",
            process.cpu_percent,
            process.cpu_us_per_operation,
            process.user_us_per_operation,
            process.system_us_per_operation
        );
    }
    if report.verified_bytes > 0 {
        let _infallible = writeln!(text, "  verified   {} bytes", report.verified_bytes);
    }
    if report.errors > 0 {
        let first = report.first_error.as_deref().unwrap_or_default();
        let _infallible = writeln!(text, "  ERRORS     {}, the first: {first}", report.errors);
    }
    text
}

fn direction(name: &str, side: &Side, verbose: bool) -> String {
    let latency = &side.latency;
    let at = |percentile| latency.percentile_us(percentile).unwrap_or_default();
    let mut text = format!("  {name:<10} {:.0} IOPS, {:.1} MB/s\n", side.iops, side.bytes_per_s / 1e6);
    let _infallible = writeln!(
        text,
        "  {:<10} mean {:.1} us, 50 % {:.1}, 99 % {:.1}, 99.9 % {:.1}, 99.99 % {:.1}, 99.999 % {:.1}, max {:.1}",
        "",
        latency.mean_us,
        at(50.0),
        at(99.0),
        at(99.9),
        at(99.99),
        at(99.999),
        latency.max_us
    );
    if verbose {
        let all = latency.percentiles.iter().map(|(percentile, us)| format!("{percentile} % {us:.1}"));
        let _infallible = writeln!(text, "  {:<10} {}", "", all.collect::<Vec<_>>().join(", "));
    }
    text
}
