//! How many blocks are reported at most.

use std::time::{Duration, Instant};

/// Damaged blocks that are reported in one [`REPORT_PERIOD`] at most.
const REPORTS_MAX: u32 = 16;
const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// Limits how many damaged blocks are reported.
#[derive(Debug, Default)]
pub(super) struct ReportLimit {
    since: Option<Instant>,
    count: u32,
}

impl ReportLimit {
    /// Whether another damaged block may be reported now.
    pub(super) fn may_report(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.duration_since(since) >= REPORT_PERIOD) {
            self.since = Some(now);
            self.count = 0;
        }
        self.count += 1;
        self.count <= REPORTS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_damaged_blocks_are_limited() {
        let (mut reports, now) = (ReportLimit::default(), Instant::now());
        assert_eq!((0..1000).filter(|_| reports.may_report(now)).count(), 16);
        assert!(!reports.may_report(now + REPORT_PERIOD / 2) && reports.may_report(now + REPORT_PERIOD));
    }
}
