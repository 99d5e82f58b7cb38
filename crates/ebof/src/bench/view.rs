//! How reports are printed: for people in a few lines each, for programs as `ebof-bench` lays them down.

use std::fmt::Write as _;

use ebof_bench::{Report, Side};

use crate::output::View;
use crate::output::json::Object;

/// The reports of one run.
pub(super) struct Reports<'a>(pub(super) &'a [Report]);

impl View for Reports<'_> {
    fn text(&self, verbose: bool) -> String {
        self.0.iter().map(|report| one(report, verbose)).collect::<Vec<_>>().join("\n")
    }

    fn json(&self, _verbose: bool) -> Object {
        let reports: Vec<_> = self.0.iter().map(|report| serde_json::to_value(report).unwrap_or_default()).collect();
        Object::document("bench", 1).with("reports", reports)
    }
}

fn one(report: &Report, verbose: bool) -> String {
    let job = &report.job;
    let (rw, block, depth, threads) = (job.rw, job.block_bytes, job.depth, job.threads);
    let plural = if threads == 1 { "" } else { "s" };
    let mut text = format!(
        "{}\n  {rw}, {block} B, depth {depth}, {threads} thread{plural}, {:.1} s\n",
        report.source, report.elapsed_s
    );
    for (name, side) in [("read", &report.read), ("write", &report.write)] {
        if let Some(side) = side {
            text += &direction(name, side, verbose);
        }
    }
    let _infallible = writeln!(
        text,
        "  processor  {:.0} % of one, {:.2} us per operation (this program's part)",
        report.cpu_percent, report.cpu_us_per_operation
    );
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
        "  {:<10} mean {:.1} us, 50 % {:.1}, 99 % {:.1}, 99.9 % {:.1}, 99.99 % {:.1}, max {:.1}",
        "",
        latency.mean_us,
        at(50.0),
        at(99.0),
        at(99.9),
        at(99.99),
        latency.max_us
    );
    if verbose {
        let all = latency.percentiles.iter().map(|(percentile, us)| format!("{percentile} % {us:.1}"));
        let _infallible = writeln!(text, "  {:<10} {}", "", all.collect::<Vec<_>>().join(", "));
    }
    text
}
