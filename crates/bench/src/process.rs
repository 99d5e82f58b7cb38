//! The CPU time of this process, and its user and system parts.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A sample of the CPU time of this process and of the operations done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Processor time, all threads, to the nanosecond.
    cpu: Duration,
    /// User and system time in ticks of the kernel (10 ms): used for their ratio only.
    ticks: [u64; 2],
    operations: u64,
    at: Duration,
}

/// The cost of the time between two samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) cpu: Duration,
    /// Part of it that is user time, 0 to 1.
    pub(crate) user_part: f64,
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
}

impl Sample {
    pub(crate) fn new(operations: u64) -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self {
            cpu: read(ClockId::ProcessCPUTime),
            ticks: ticks(&stat).unwrap_or_default(),
            operations,
            at: read(ClockId::Monotonic),
        }
    }

    pub(crate) fn until(self, later: Self) -> Cost {
        let [user, system] = [0, 1].map(|index| later.ticks[index].saturating_sub(self.ticks[index]));
        let sum = float(user + system);
        Cost {
            cpu: later.cpu.saturating_sub(self.cpu),
            user_part: if sum > 0.0 { float(user) / sum } else { 1.0 },
            operations: later.operations.saturating_sub(self.operations),
            elapsed: later.at.saturating_sub(self.at),
        }
    }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// utime and stime of a line of /proc/PID/stat. The name before them is in parentheses and may hold
/// anything.
fn ticks(stat: &str) -> Option<[u64; 2]> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some([fields.next()?.parse().ok()?, fields.next()?.parse().ok()?])
}

/// A count as a figure of a report.
#[expect(clippy::cast_precision_loss, reason = "a report has fewer digits than an f64")]
pub(crate) const fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_after_any_process_name() {
        let stat = "12 (a) b (c)) S 1 12 12 0 -1 4194560 100 0 0 0 321 123 0 0 20 0 1 0 99 0 0";
        assert_eq!(ticks(stat), Some([321, 123]));
        assert_eq!(ticks("12 (a) S 1"), None);
    }

    #[test]
    fn a_busy_process_uses_processor_time() {
        let before = Sample::new(5);
        let until = std::time::Instant::now() + Duration::from_millis(50);
        while std::time::Instant::now() < until {
            std::hint::spin_loop();
        }
        let cost = before.until(Sample::new(15));
        assert!(cost.cpu > Duration::from_millis(1) && cost.elapsed >= Duration::from_millis(50));
        assert_eq!(cost.operations, 10);
        assert!((0.0..=1.0).contains(&cost.user_part));
    }
}
