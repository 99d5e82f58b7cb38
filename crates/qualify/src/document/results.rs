//! The results of a document: medians of its runs, ratios, shares. Computed whenever it is saved.

use ebof_bench::Report;
use ebof_bench::corner::Unit;
use ebof_statistics::{jain, median};

use crate::document::{ColumnResult, Document, Phase, PhaseResult, Run, Summary};

impl Document {
    /// Computes the results from the runs.
    pub fn compute_results(&mut self) {
        let results = self.phases.iter().filter(|phase| phase.runs.iter().any(Run::has_result));
        self.results = results.map(|phase| self.result(phase)).collect();
    }

    fn result(&self, phase: &Phase) -> PhaseResult {
        let columns = phase.columns.iter().filter_map(|&column| phase.column(column));
        let mut columns: Vec<ColumnResult> = columns.collect();
        let values: Vec<(usize, f64, f64)> =
            columns.iter().map(|result| (result.column, result.value.median, result.mean_us)).collect();
        let rounds: Vec<(usize, Summary)> =
            columns.iter().map(|result| (result.column, result.value.clone())).collect();
        let sum: f64 = values.iter().map(|(_, value, _)| value).sum();
        for result in &mut columns {
            let base = self.columns.get(result.column).and_then(|column| column.base);
            let base = base.and_then(|base| values.iter().find(|(column, ..)| *column == base));
            if let Some((_, value, mean_us)) = base {
                result.ratio = quotient(result.value.median, *value);
                result.latency_ratio = quotient(result.mean_us, *mean_us);
            }
            let base = base.and_then(|(base, ..)| rounds.iter().find(|(column, _)| column == base));
            result.ratio_range = base.and_then(|(_, base)| range_of(&result.value, base));
            if phase.together {
                result.share = quotient(result.value.median, sum);
            }
        }
        let all: Vec<f64> = values.iter().map(|(_, value, _)| *value).collect();
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        PhaseResult {
            phase: phase.id.clone(),
            columns,
            jain: phase.together.then(|| jain(&all)).flatten(),
            spread: phase.together.then(|| quotient(most, least)).flatten(),
        }
    }
}

impl Run {
    /// Whether it measured something.
    #[must_use]
    pub fn has_result(&self) -> bool {
        self.failed.is_none() && !self.reports.is_empty()
    }
}

impl Phase {
    /// The figure of a report, in the phase's unit.
    #[must_use]
    pub fn figure(&self, report: &Report) -> f64 {
        match self.unit {
            Unit::MegabytesPerSecond => report.total.bytes_per_s / 1e6,
            Unit::Iops => report.total.iops,
        }
    }

    /// The runs of a column that count: those that were not disturbed, or all of them if all were.
    #[must_use]
    pub fn counting(&self, column: usize) -> Vec<&Run> {
        let all: Vec<&Run> = self.runs.iter().filter(|run| run.column == column && run.has_result()).collect();
        let quiet: Vec<&Run> = all.iter().copied().filter(|run| run.disturbed.is_none()).collect();
        if quiet.is_empty() { all } else { quiet }
    }

    fn column(&self, column: usize) -> Option<ColumnResult> {
        let runs = self.counting(column);
        let reports: Vec<&Report> = runs.iter().filter_map(|run| run.reports.first()).collect();
        let of = |pick: &dyn Fn(&Report) -> f64| median(&reports.iter().map(|report| pick(report)).collect::<Vec<_>>());
        let first = reports.first()?;
        let percentiles = first.total.latency.percentiles.iter().filter_map(|&(at, _)| {
            let all: Vec<f64> = reports.iter().filter_map(|report| report.total.latency.percentile_us(at)).collect();
            Some((at, median(&all)?))
        });
        let known =
            |pick: &dyn Fn(&Run) -> Option<f64>| median(&runs.iter().filter_map(|run| pick(run)).collect::<Vec<_>>());
        let beside: Vec<&Report> = runs.iter().filter_map(|run| run.reports.get(1)).collect();
        let beside_of =
            |pick: fn(&Report) -> f64| median(&beside.iter().map(|report| pick(report)).collect::<Vec<_>>());
        Some(ColumnResult {
            column,
            value: Summary::new(reports.iter().map(|report| self.figure(report)).collect())?,
            iops: of(&|report| report.total.iops)?,
            mean_us: of(&|report| report.total.latency.mean_us)?,
            percentiles: percentiles.collect(),
            ratio: None,
            ratio_range: None,
            latency_ratio: None,
            share: None,
            host_us_per_io: known(&|run| run.conditions.host_us_per_io),
            target_us_per_io: known(&|run| run.conditions.target_us_per_io),
            is_disturbed: runs.iter().all(|run| run.disturbed.is_some()),
            beside: beside_of(|report| report.total.iops).zip(beside_of(|report| report.total.bytes_per_s)),
        })
    }
}

/// Between which ratios the rounds are, where there are several of both.
fn range_of(value: &Summary, base: &Summary) -> Option<(f64, f64)> {
    if value.all.len() < 2 || base.all.len() < 2 {
        return None;
    }
    Some((quotient(value.min, base.max)?, quotient(value.max, base.min)?))
}

impl ColumnResult {
    /// Whether the ratio may be chance: the ranges of both columns overlap. `None`: nobody knows,
    /// after a single round.
    #[must_use]
    pub fn is_within_spread(&self) -> Option<bool> {
        self.ratio_range.map(|(least, most)| least <= 1.0 && most >= 1.0)
    }

    /// How far the rounds are apart, as a part of the median; `None` with a single one.
    #[must_use]
    pub fn spread(&self) -> Option<f64> {
        let Summary { median, min, max, all, .. } = &self.value;
        if all.len() > 1 { quotient(max - min, *median) } else { None }
    }
}

fn quotient(value: f64, base: f64) -> Option<f64> {
    (base > 0.0 && base.is_finite() && value.is_finite()).then(|| value / base)
}

#[expect(clippy::cast_precision_loss, reason = "a report has fewer digits than an f64")]
pub(crate) const fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_within_the_spread_is_no_difference() {
        let of = |values: &[f64]| Summary::new(values.to_vec()).unwrap();
        let base = of(&[98.0, 100.0, 103.0]);
        let (least, most) = range_of(&of(&[99.0, 104.0, 106.0]), &base).unwrap();
        assert!(least < 1.0 && most > 1.0, "{least} to {most}: ranges that overlap");
        let (least, most) = range_of(&of(&[80.0, 81.0, 82.0]), &base).unwrap();
        assert!(most < 1.0 && least < most, "{least} to {most}");
        assert_eq!(range_of(&of(&[104.0]), &base), None, "of a single round nobody knows the spread");
        assert_eq!(range_of(&base, &of(&[100.0])), None);
    }
}
