//! What is told when the device below a drive fails, and when it works again: a line each in the
//! log, and what the drive is like.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ebof_medium::BackingFault;

use super::actor::DriveActor;

/// Between two warnings of the same thing.
const EVERY: Duration = Duration::from_secs(60);

/// What fails below a drive now.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    /// With whether it was logged this time.
    now: BTreeMap<BackingFault, bool>,
    /// When it was logged last.
    told: BTreeMap<BackingFault, Instant>,
}

impl Troubles {
    /// Something fails, or works again; whether that is to be logged.
    fn turn(&mut self, trouble: BackingFault, fails: bool, now: Instant) -> bool {
        if !fails {
            return self.now.remove(&trouble) == Some(true);
        }
        let logged = self.told.get(&trouble).is_none_or(|told| now.saturating_duration_since(*told) >= EVERY);
        if logged {
            self.told.insert(trouble, now);
        }
        self.now.insert(trouble, logged);
        logged
    }

    /// There is no place for what hosts write for the first time.
    pub(super) fn no_space(&self) -> bool {
        self.now.contains_key(&BackingFault::Space)
    }

    /// The medium reports errors.
    pub(super) fn errors(&self) -> bool {
        self.now.contains_key(&BackingFault::Read) || self.now.contains_key(&BackingFault::Write)
    }
}

impl DriveActor {
    /// Something fails below the drive, or works again. On the drive's thread.
    pub(super) fn on_trouble(&self, trouble: BackingFault, fails: bool) {
        if !self.round().troubles.turn(trouble, fails, self.clock.now()) {
            return;
        }
        let (drive, device) = (self.name(), self.backing());
        match (trouble, fails) {
            (BackingFault::Space, true) => tracing::warn!(
                drive,
                device,
                "there is no space below the drive: writes that need some are refused; free space on the file system that holds it"
            ),
            (BackingFault::Read, true) => tracing::warn!(
                drive,
                device,
                "reading fails below the drive: see the kernel's log, and whether the file has become shorter"
            ),
            (BackingFault::Write, true) => {
                tracing::warn!(drive, device, "writing fails below the drive: see the kernel's log");
            }
            (BackingFault::Space, false) => tracing::info!(drive, device, "there is space below the drive again"),
            (BackingFault::Read, false) => {
                tracing::info!(drive, device, "what could not be read below the drive can be read again");
            }
            (BackingFault::Write, false) => tracing::info!(drive, device, "writing below the drive works again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_and_goes_is_logged_once_a_minute() {
        let (mut troubles, now) = (Troubles::default(), Instant::now());
        assert!(troubles.turn(BackingFault::Space, true, now) && troubles.no_space() && !troubles.errors());
        assert!(troubles.turn(BackingFault::Read, true, now) && troubles.errors());
        assert!(troubles.turn(BackingFault::Space, false, now) && !troubles.no_space());
        assert!(!troubles.turn(BackingFault::Space, true, now) && troubles.no_space(), "it was told a moment ago");
        assert!(!troubles.turn(BackingFault::Space, false, now), "and so its end is not");
        assert!(troubles.turn(BackingFault::Read, false, now) && !troubles.errors());
        assert!(!troubles.turn(BackingFault::Write, false, now), "nothing was the matter");
    }
}
