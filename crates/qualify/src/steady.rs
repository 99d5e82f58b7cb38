//! Whether a run was in a steady state, as the SNIA's Solid State Storage Performance Test
//! Specification decides it: over a window of five parts, the largest and the smallest value differ
//! by at most 20 % of the mean, and the line of best fit by at most 10 % of it.

use crate::document::{Point, Steady};

/// Parts of a window.
const WINDOW: usize = 5;
/// Parts of a run, at most.
const PARTS_MAX: usize = 25;
/// Parts of a run, at least: with less there is nothing to decide.
const PARTS_MIN: usize = 2 * WINDOW;
const EXCURSION_PERCENT_MAX: f64 = 20.0;
const SLOPE_PERCENT_MAX: f64 = 10.0;

/// Decides by the operations per second over time; `None` if the run was too short to tell.
#[must_use]
pub fn steady(series: &[Point]) -> Option<Steady> {
    let parts = parts(series);
    if parts.len() < PARTS_MIN {
        return None;
    }
    let mut reached_s = None;
    let mut last = (0.0, 0.0);
    for window in parts.windows(WINDOW) {
        last = deviation(window);
        let is_steady = last.0 <= EXCURSION_PERCENT_MAX && last.1.abs() <= SLOPE_PERCENT_MAX;
        // It has to remain so until the end.
        reached_s = if is_steady { reached_s.or_else(|| Some(window.first()?.0)) } else { None };
    }
    Some(Steady { reached_s, excursion_percent: last.0, slope_percent: last.1 })
}

/// Parts of about equal length: begin in seconds, and operations per second.
fn parts(series: &[Point]) -> Vec<(f64, f64)> {
    let each = series.len().div_ceil(PARTS_MAX).max(1);
    let mut begin = 0.0;
    let mut parts = Vec::new();
    for points in series.chunks_exact(each) {
        let mut before = begin;
        let (mut sum, mut seconds) = (0.0, 0.0);
        for point in points {
            sum += point.iops * (point.at_s - before);
            seconds += point.at_s - before;
            before = point.at_s;
        }
        if seconds > 0.0 {
            parts.push((begin, sum / seconds));
        }
        begin = before;
    }
    parts
}

/// Excursion and slope of a window, in percent of its mean.
fn deviation(window: &[(f64, f64)]) -> (f64, f64) {
    let count = crate::document::results::float(window.len() as u64);
    let mean = window.iter().map(|(_, value)| value).sum::<f64>() / count;
    if mean <= 0.0 {
        return (f64::from(u8::MAX), 0.0);
    }
    let least = window.iter().map(|part| part.1).fold(f64::INFINITY, f64::min);
    let most = window.iter().map(|part| part.1).fold(f64::NEG_INFINITY, f64::max);
    let middle = (count - 1.0) / 2.0;
    let mut products = 0.0;
    let mut squares = 0.0;
    for (index, (_, value)) in (0u32..).zip(window) {
        let x = f64::from(index) - middle;
        products += x * (value - mean);
        squares += x * x;
    }
    let slope = if squares > 0.0 { products / squares } else { 0.0 };
    ((most - least) * 100.0 / mean, slope * (count - 1.0) * 100.0 / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: impl Iterator<Item = f64>) -> Vec<Point> {
        let point = |(at, iops): (u32, f64)| Point { at_s: f64::from(at), iops, bytes_per_s: 0.0, mean_us: None };
        (1..).zip(values).map(point).collect()
    }

    #[test]
    fn a_drive_that_slows_down_is_steady_once_it_no_longer_does() {
        let falling = (0..20u32).map(|second| 1000.0 - 40.0 * f64::from(second));
        let level = (0..30u32).map(|second| 200.0 + f64::from(second % 3));
        let found = steady(&series(falling.clone().chain(level))).unwrap();
        let reached = found.reached_s.unwrap();
        assert!((18.0..=24.0).contains(&reached) && found.excursion_percent < 2.0, "{found:?}");
        let still = steady(&series(falling)).unwrap();
        assert!(still.reached_s.is_none() && still.slope_percent < -10.0, "{still:?}");
    }

    #[test]
    fn noise_and_short_runs_are_not_steady() {
        let noise = (0..50u32).map(|second| if second % 2 == 0 { 100.0 } else { 300.0 });
        // Parts of two seconds are the mean of both.
        assert!(steady(&series(noise)).unwrap().reached_s.is_some());
        let bursts = (0..50u32).map(|second| if second / 4 % 2 == 0 { 100.0 } else { 300.0 });
        assert_eq!(steady(&series(bursts)).unwrap().reached_s, None);
        assert_eq!(steady(&series((0..9).map(|_| 5.0))), None);
        assert_eq!(steady(&series((0..20).map(|_| 0.0))).unwrap().reached_s, None);
    }
}
