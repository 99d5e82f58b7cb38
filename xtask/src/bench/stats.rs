//! Statistics of several runs: median and spread.

use serde::Serialize;

/// Several runs of the same thing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The median absolute deviation, which is robust against outliers.
    pub(crate) mad: f64,
    /// In the order in which they ran.
    pub(crate) all: Vec<f64>,
}

impl Summary {
    /// `None` without a run.
    pub(crate) fn new(all: Vec<f64>) -> Option<Self> {
        let middle = median(&all)?;
        let distances: Vec<f64> = all.iter().map(|value| (value - middle).abs()).collect();
        let mad = median(&distances)?;
        let min = all.iter().copied().fold(f64::INFINITY, f64::min);
        let max = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { median: middle, min, max, mad, all })
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], upper) } else { upper })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_outlier_changes_only_the_maximum() {
        let summary = Summary::new(vec![10.0, 900.0, 12.0, 11.0, 9.0]).unwrap();
        assert_eq!((summary.median, summary.min, summary.max, summary.mad), (11.0, 9.0, 900.0, 1.0));
        assert_eq!(Summary::new(vec![1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Summary::new(Vec::new()), None);
    }
}
