//! Statistics of several runs: median and spread; how equal shares are.

use serde::{Deserialize, Serialize};

/// Several runs of the same thing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The median absolute deviation, which is robust against outliers.
    pub mad: f64,
    /// In the order in which they ran.
    pub all: Vec<f64>,
}

impl Summary {
    /// `None` without a run.
    #[must_use]
    pub fn new(all: Vec<f64>) -> Option<Self> {
        let middle = median(&all)?;
        let distances: Vec<f64> = all.iter().map(|value| (value - middle).abs()).collect();
        let mad = median(&distances)?;
        let min = all.iter().copied().fold(f64::INFINITY, f64::min);
        let max = all.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { median: middle, min, max, mad, all })
    }
}

/// The middle of some values, or the mean of both middle ones; `None` without a value.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len().is_multiple_of(2) { f64::midpoint(sorted[middle - 1], upper) } else { upper })
}

/// Jain's index of fairness: 1 if all values are equal, 1/n if one has everything. `None` without a
/// value, or if all are 0.
#[must_use]
pub fn jain(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    let count = f64::from(u32::try_from(values.len()).ok()?);
    (squares > 0.0).then(|| sum * sum / (count * squares))
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

    #[test]
    fn jains_index_is_one_for_equal_shares() {
        assert_eq!(jain(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[]), None);
        assert_eq!(jain(&[0.0]), None);
    }
}
