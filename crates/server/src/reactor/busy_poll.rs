//! How long the ports of a reactor's connections have it look for work before it sleeps.

/// The longest time of them.
#[derive(Debug, Default)]
pub(super) struct BusyPoll {
    /// Microseconds; [`u64::MAX`]: it never sleeps.
    us: u64,
    is_outdated: bool,
}

impl BusyPoll {
    /// A connection has come or gone.
    pub(super) fn invalidate(&mut self) {
        self.is_outdated = true;
    }

    /// The longest of the `times` of all connections, microseconds, which are only looked at if
    /// they may have changed.
    pub(super) fn longest_us(&mut self, times: impl Iterator<Item = u64>) -> u64 {
        if std::mem::take(&mut self.is_outdated) {
            self.us = times.max().unwrap_or(0);
        }
        self.us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_time_is_looked_up_after_changes_only() {
        let mut poll = BusyPoll::default();
        assert_eq!(poll.longest_us([7].into_iter()), 0);
        poll.invalidate();
        assert_eq!(poll.longest_us([7, 9, 8].into_iter()), 9);
        assert_eq!(poll.longest_us([u64::MAX].into_iter()), 9);
        poll.invalidate();
        assert_eq!(poll.longest_us([].into_iter()), 0);
    }
}
