//! What the backing device fails at: noticed wherever it happens, told once, and tried again until
//! it works.
//!
//! Nothing waits for it: requests are refused as long as they fail, and served when they do not. It
//! is for those who have to know that a drive is not well, and when it is again.

use std::time::{Duration, Instant};

use ebof_backend::{Action, Class, Error as DeviceError};

/// What the backing device fails at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BackingFault {
    /// It has no place for what is written: the file system that holds the drive is full.
    Space,
    /// Reading.
    Read,
    /// Writing, or bringing to the medium what was written.
    Write,
}

/// A failure: of what, and where.
pub(crate) type Failure = (BackingFault, u64);

/// What has failed, and was not seen to work again.
#[derive(Debug)]
struct ActiveFault {
    fault: BackingFault,
    /// Where reads failed, some of them.
    places: Vec<u64>,
    last: Instant,
    /// It has failed since it was tried last.
    again: bool,
}

/// Places that are read again.
const PLACES: usize = 16;
/// Without anything failing for so long, what cannot be tried is believed to work.
const QUIET: Duration = Duration::from_secs(30);
/// Failures that wait to be looked at.
pub(crate) const WAITING: usize = 32;

/// What an error says about the backing device; `None` for the mistakes of those who ask, and for
/// what passes by itself.
pub(crate) fn failure(error: &DeviceError) -> Option<Failure> {
    let (action, place) = match error {
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
    Some((fault, place))
}

/// What a backing device fails at, as its user sees it.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// What has failed since somebody looked.
    failures: Vec<Failure>,
    active: Vec<ActiveFault>,
}

impl Faults {
    /// These have failed.
    pub(crate) fn saw(&mut self, failures: impl Iterator<Item = Failure>) {
        self.failures.extend(failures.take(WAITING.saturating_sub(self.failures.len())));
    }

    /// Whether something has failed since somebody looked.
    pub(crate) fn has_failures(&self) -> bool {
        !self.failures.is_empty()
    }

    /// Whether something has failed and was not seen to work again.
    pub(crate) fn is_any(&self) -> bool {
        !self.active.is_empty()
    }

    /// Looks at what has failed here, and elsewhere; gives what is failing from now on.
    pub(crate) fn look(&mut self, elsewhere: Vec<Failure>, now: Instant) -> Vec<BackingFault> {
        let mut begun = Vec::new();
        for (fault, place) in elsewhere.into_iter().chain(std::mem::take(&mut self.failures)) {
            let at = self.active.iter().position(|active| active.fault == fault);
            let at = at.unwrap_or_else(|| {
                self.active.push(ActiveFault { fault, places: Vec::new(), last: now, again: true });
                begun.push(fault);
                self.active.len() - 1
            });
            let Some(active) = self.active.get_mut(at) else { continue };
            (active.last, active.again) = (now, true);
            if fault == BackingFault::Read && active.places.len() < PLACES && !active.places.contains(&place) {
                active.places.push(place);
            }
        }
        begun
    }

    /// What is to be tried: it has not failed since the last try.
    pub(crate) fn next_tries(&mut self) -> Vec<BackingFault> {
        let rests = |active: &mut ActiveFault| !std::mem::take(&mut active.again);
        self.active.iter_mut().filter_map(|active| rests(active).then_some(active.fault)).collect()
    }

    /// Where reads have failed, the next one to be tried.
    pub(crate) fn place(&self) -> Option<u64> {
        let read = self.active.iter().find(|active| active.fault == BackingFault::Read)?;
        read.places.last().copied()
    }

    /// That place can be read again.
    pub(crate) fn can_read(&mut self) {
        if let Some(read) = self.active.iter_mut().find(|active| active.fault == BackingFault::Read) {
            read.places.pop();
        }
    }

    /// Whether it has not failed for so long that it is believed to work.
    pub(crate) fn is_quiet(&self, fault: BackingFault, now: Instant) -> bool {
        let active = self.active.iter().find(|active| active.fault == fault);
        active.is_none_or(|active| now.saturating_duration_since(active.last) >= QUIET)
    }

    /// These work again. What failed while that was tried is known.
    pub(crate) fn tried(&mut self, works: &[BackingFault]) {
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
