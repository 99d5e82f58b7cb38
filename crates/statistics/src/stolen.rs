//! The time that a hypervisor took from this machine.

/// A run during which the hypervisor took more than this part of the time does not count.
pub const STEAL_PERCENT_MAX: f64 = 2.0;

/// The time of all processors, and what of it the hypervisor took, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stolen {
    all: u64,
    stolen: u64,
}

impl Stolen {
    /// Until now; `None` if /proc does not tell.
    #[must_use]
    pub fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?)
    }

    /// The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; guests'
    /// times, which follow, are in the others.
    fn parse(text: &str) -> Option<Self> {
        let fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
        let times = fields.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
        let all = times.iter().fold(0, |sum: u64, time| sum.saturating_add(*time));
        Some(Self { all, stolen: *times.get(7)? })
    }

    /// What the hypervisor took since then, in percent of all processors' time.
    #[must_use]
    pub fn percent(self) -> Option<f64> {
        let now = Self::now()?;
        let all = now.all.checked_sub(self.all).filter(|&all| all > 0)?;
        Some(float(now.stolen.saturating_sub(self.stolen)) * 100.0 / float(all))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a percentage has fewer digits than an f64")]
const fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_field() {
        let text = "cpu  10 20 30 40 50 60 70 80 5 5\ncpu0 1 2 3 4 5 6 7 8 0 0\n";
        assert_eq!(Stolen::parse(text), Some(Stolen { all: 360, stolen: 80 }));
        assert_eq!(Stolen::parse("cpu  1 2 3\n"), None);
        assert!(Stolen::now().is_some());
    }
}
