//! How frames are brought to the medium: alone, or with everything else that is to be flushed.
//! Whichever was quicker lately is taken.

use std::time::Duration;

/// What is durable when frames were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Nothing.
    Nothing,
    /// These frames: enough where all before them are.
    Frames,
    /// Everything.
    All,
}

/// How long it takes, one way or the other, until frames are durable: devices differ widely, and so
/// does what there is to be flushed beside them.
#[derive(Debug, Default)]
pub(crate) struct SyncPolicy {
    /// Of frames alone, and of everything: averages.
    took: [Option<Duration>; 2],
    /// Turns before the slower way is tried again.
    until_probe: u32,
}

impl SyncPolicy {
    /// The quicker way; now and then the other one, the less often the slower it is.
    pub(crate) fn choose(&mut self) -> Sync {
        let [Some(frames), Some(all)] = self.took else {
            return if self.took[0].is_none() { Sync::Frames } else { Sync::All };
        };
        let (quicker, slower) = if frames <= all { (Sync::Frames, Sync::All) } else { (Sync::All, Sync::Frames) };
        if let Some(left) = self.until_probe.checked_sub(1) {
            self.until_probe = left;
            return quicker;
        }
        let ratio = frames.max(all).as_micros() / frames.min(all).as_micros().max(1);
        self.until_probe = u32::try_from(ratio).unwrap_or(u32::MAX).clamp(1, 1000) * 64;
        slower
    }

    pub(crate) fn took(&mut self, sync: Sync, time: Duration) {
        let which = match sync {
            Sync::Nothing => return,
            Sync::Frames => 0,
            Sync::All => 1,
        };
        let average = self.took[which].map_or(time, |average| (average * 7 + time) / 8);
        self.took[which] = Some(average);
        // The slower way was quick this time: that is looked into.
        if self.took[1 - which].is_some_and(|other| average > other && time < other) {
            self.until_probe = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quicker_way_is_taken_and_the_other_one_is_not_forgotten() {
        let mut policy = SyncPolicy::default();
        let mut turns = |frames: u64, all: u64| {
            let mut count = [0, 0];
            for _ in 0..1000 {
                let sync = policy.choose();
                count[usize::from(sync == Sync::All)] += 1;
                policy.took(sync, Duration::from_micros(if sync == Sync::All { all } else { frames }));
            }
            count
        };
        let [frames, all] = turns(100, 1000);
        assert!((1..20).contains(&all) && frames > 980, "{frames} {all}");
        // What was slow has become quick.
        turns(100, 10);
        let [frames, all] = turns(100, 10);
        assert!((1..20).contains(&frames) && all > 980, "{frames} {all}");
    }
}
