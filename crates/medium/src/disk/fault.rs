//! Faults of the backing device: recorded wherever a request fails, reported once, and retried
//! until the device works again.
//!
//! No request depends on it: each fails or succeeds by itself. It is for the owner, who has to know
//! when a drive has a fault, and when that is over.

use std::time::{Duration, Instant};

use ebof_backend::{Action, Class, Error as DeviceError};

/// A kind of operation that the backing device fails at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackingFault {
    /// Allocating storage: the file system that holds the drive is full.
    Space,
    /// Reading.
    Read,
    /// Writing or flushing.
    Write,
}

/// A failed request: the fault, and the offset in bytes.
pub(crate) type Failure = (BackingFault, u64);

/// A fault that is not over.
#[derive(Debug)]
struct ActiveFault {
    fault: BackingFault,
    /// Offsets at which reads failed, at most [`OFFSETS_MAX`].
    offsets: Vec<u64>,
    last_failure: Instant,
    /// It has failed since the last retry.
    failed_again: bool,
}

/// Offsets at which reads are retried.
const OFFSETS_MAX: usize = 16;
/// A fault that cannot be retried is over if nothing failed for so long.
const QUIET: Duration = Duration::from_secs(30);
/// Failures that are kept until the drive's thread looks at them.
pub(crate) const FAILURES_MAX: usize = 32;

/// The fault of the backing device that an error is about; `None` for errors of the caller, and for
/// those that pass by themselves.
pub(crate) fn failure(error: &DeviceError) -> Option<Failure> {
    let (action, offset) = match error {
        DeviceError::Device { action, offset, .. } | DeviceError::Truncated { action, offset, .. } => {
            (*action, *offset)
        }
        DeviceError::Refused { action, offset, .. } => (*action, *offset),
        DeviceError::CacheLost { action, .. } | DeviceError::ReadOnly { action } => (*action, 0),
        _ => return None,
    };
    let fault = match error.class() {
        Class::OutOfSpace => BackingFault::Space,
        Class::MediumRead => BackingFault::Read,
        Class::MediumWrite | Class::ReadOnly => BackingFault::Write,
        Class::Gone if action == Action::Read => BackingFault::Read,
        Class::Gone => BackingFault::Write,
        Class::OutOfRange | Class::Busy | Class::Aborted | Class::Unsupported | Class::Invalid | Class::Internal => {
            return None;
        }
    };
    Some((fault, offset))
}

/// The faults of a backing device, as one of its users sees them.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Failures since the last [`check`](Self::check).
    failures: Vec<Failure>,
    active: Vec<ActiveFault>,
}

impl Faults {
    /// Records failures.
    pub(crate) fn record(&mut self, failures: impl Iterator<Item = Failure>) {
        let room = FAILURES_MAX.checked_sub(self.failures.len()).expect("no more are recorded, here and only here");
        self.failures.extend(failures.take(room));
    }

    /// Whether there were failures since the last [`check`](Self::check).
    pub(crate) fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Whether any fault is active.
    pub(crate) fn is_any(&self) -> bool {
        !self.active.is_empty()
    }

    /// Takes the failures that were recorded here, and those of others. Returns the faults that are
    /// new.
    pub(crate) fn check(&mut self, elsewhere: Vec<Failure>, now: Instant) -> Vec<BackingFault> {
        let mut begun = Vec::new();
        for (fault, offset) in elsewhere.into_iter().chain(std::mem::take(&mut self.failures)) {
            let at = self.active.iter().position(|active| active.fault == fault);
            let at = at.unwrap_or_else(|| {
                self.active.push(ActiveFault { fault, offsets: Vec::new(), last_failure: now, failed_again: true });
                begun.push(fault);
                self.active.len() - 1
            });
            let active = &mut self.active[at];
            active.last_failure = now;
            active.failed_again = true;
            if fault == BackingFault::Read && active.offsets.len() < OFFSETS_MAX && !active.offsets.contains(&offset) {
                active.offsets.push(offset);
            }
        }
        begun
    }

    /// The faults to be retried: those without a failure since this was asked last.
    pub(crate) fn due_for_retry(&mut self) -> Vec<BackingFault> {
        let rests = |active: &mut ActiveFault| !std::mem::take(&mut active.failed_again);
        self.active.iter_mut().filter_map(|active| rests(active).then_some(active.fault)).collect()
    }

    /// The next offset at which a read is retried.
    pub(crate) fn failed_read(&self) -> Option<u64> {
        let read = self.active.iter().find(|active| active.fault == BackingFault::Read)?;
        read.offsets.last().copied()
    }

    /// The read at that offset has succeeded.
    pub(crate) fn read_succeeded(&mut self) {
        if let Some(read) = self.active.iter_mut().find(|active| active.fault == BackingFault::Read) {
            read.offsets.pop();
        }
    }

    /// Whether there was no such failure for so long ([`QUIET`]) that the fault is taken to be
    /// over.
    pub(crate) fn is_quiet(&self, fault: BackingFault, now: Instant) -> bool {
        let active = self.active.iter().find(|active| active.fault == fault);
        active.is_none_or(|active| now.saturating_duration_since(active.last_failure) >= QUIET)
    }

    /// Removes faults that are over, and the failures of the retries.
    pub(crate) fn clear(&mut self, works: &[BackingFault]) {
        self.active.retain(|active| !works.contains(&active.fault));
        self.failures.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_device_cannot_do_is_a_failure() {
        let refused = |action, class| DeviceError::Refused { action, offset: 7, len: 1, class, reason: "" };
        for (action, class, fault) in [
            (Action::Write, Class::OutOfSpace, Some(BackingFault::Space)),
            (Action::Read, Class::MediumRead, Some(BackingFault::Read)),
            (Action::Flush, Class::MediumWrite, Some(BackingFault::Write)),
            (Action::Read, Class::Gone, Some(BackingFault::Read)),
            (Action::Deallocate, Class::Gone, Some(BackingFault::Write)),
            (Action::Write, Class::Busy, None),
            (Action::Write, Class::Aborted, None),
            (Action::Write, Class::Unsupported, None),
            (Action::Write, Class::OutOfRange, None),
        ] {
            assert_eq!(failure(&refused(action, class)), fault.map(|fault| (fault, 7)), "{class:?}");
        }
    }
}
