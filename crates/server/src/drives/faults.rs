//! The active faults of a drive's backing device: when one is logged that begins or ends, and what
//! they mean for the drive's health.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ebof_medium::BackingFault;

/// The least time between two warnings about the same fault.
const INTERVAL: Duration = Duration::from_secs(60);

/// The active faults of one backing device.
#[derive(Debug, Default)]
pub(crate) struct BackingFaults {
    /// Whether the log has a line about the beginning of each.
    active: BTreeMap<BackingFault, bool>,
    /// When each was last logged.
    logged_at: BTreeMap<BackingFault, Instant>,
}

impl BackingFaults {
    /// A fault begins (`fails`) or ends. Returns whether to log it.
    pub(super) fn update(&mut self, fault: BackingFault, fails: bool, now: Instant) -> bool {
        if !fails {
            return self.active.remove(&fault) == Some(true);
        }
        let logged = self.logged_at.get(&fault).is_none_or(|at| now.saturating_duration_since(*at) >= INTERVAL);
        if logged {
            self.logged_at.insert(fault, now);
        }
        self.active.insert(fault, logged);
        logged
    }

    /// There is no space for blocks that hosts write for the first time.
    pub(super) fn no_space(&self) -> bool {
        self.active.contains_key(&BackingFault::Space)
    }

    /// Reads or writes fail.
    pub(super) fn errors(&self) -> bool {
        self.active.contains_key(&BackingFault::Read) || self.active.contains_key(&BackingFault::Write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recurring_faults_are_logged_once_a_minute() {
        let mut faults = BackingFaults::default();
        let now = Instant::now();
        assert!(faults.update(BackingFault::Space, true, now) && faults.no_space() && !faults.errors());
        assert!(faults.update(BackingFault::Read, true, now) && faults.errors());
        assert!(faults.update(BackingFault::Space, false, now) && !faults.no_space());
        assert!(!faults.update(BackingFault::Space, true, now) && faults.no_space(), "it was logged a moment ago");
        assert!(!faults.update(BackingFault::Space, false, now), "and so its end is not");
        assert!(faults.update(BackingFault::Read, false, now) && !faults.errors());
        assert!(!faults.update(BackingFault::Write, false, now), "nothing was the matter");
    }
}
