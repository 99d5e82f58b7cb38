//! How frames are made durable: by writing them with FUA, or by a flush of everything. Takes the
//! way that was faster lately.

use std::time::Duration;

/// What is durable when frames have been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Nothing.
    Nothing,
    /// These frames: enough if all frames before them are durable.
    Frames,
    /// Everything.
    All,
}

/// Measures both ways: devices differ widely, and so does how much there is to be flushed.
#[derive(Debug, Default)]
pub(crate) struct SyncPolicy {
    /// Average times of [`Sync::Frames`] and [`Sync::All`].
    averages: [Option<Duration>; 2],
    /// How often the faster way is taken before the slower one is tried again.
    until_probe: u32,
}

impl SyncPolicy {
    /// The faster way; now and then the other one, the less often the slower it is.
    pub(crate) fn choose(&mut self) -> Sync {
        let [Some(frames), Some(all)] = self.averages else {
            return if self.averages[0].is_none() { Sync::Frames } else { Sync::All };
        };
        let (faster, slower) = if frames <= all { (Sync::Frames, Sync::All) } else { (Sync::All, Sync::Frames) };
        if let Some(left) = self.until_probe.checked_sub(1) {
            self.until_probe = left;
            return faster;
        }
        let ratio = frames.max(all).as_micros() / frames.min(all).as_micros().max(1);
        self.until_probe = u32::try_from(ratio).unwrap_or(u32::MAX).clamp(1, 1000) * 64;
        slower
    }

    /// Takes note of how long a way took.
    pub(crate) fn record(&mut self, sync: Sync, time: Duration) {
        let which = match sync {
            Sync::Nothing => return,
            Sync::Frames => 0,
            Sync::All => 1,
        };
        let average = self.averages[which].map_or(time, |average| (average * 7 + time) / 8);
        self.averages[which] = Some(average);
        // The slower way was fast this time: it is tried again at once.
        if self.averages[1 - which].is_some_and(|other| average > other && time < other) {
            self.until_probe = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_kind_of_sync_is_used_and_the_other_one_retried() {
        let mut policy = SyncPolicy::default();
        let mut rounds = |frames: u64, all: u64| {
            let mut count = [0, 0];
            for _ in 0..1000 {
                let sync = policy.choose();
                count[usize::from(sync == Sync::All)] += 1;
                policy.record(sync, Duration::from_micros(if sync == Sync::All { all } else { frames }));
            }
            count
        };
        let [frames, all] = rounds(100, 1000);
        assert!((1..20).contains(&all) && frames > 980, "{frames} {all}");
        // What was slow has become fast.
        rounds(100, 10);
        let [frames, all] = rounds(100, 10);
        assert!((1..20).contains(&frames) && all > 980, "{frames} {all}");
    }
}
