//! What the backing device fails at: noticed wherever it happens, told once, and tried again until
//! it works.
//!
//! Nothing waits for it: requests are refused as long as they fail, and served when they do not. It
//! is for those who have to know that a drive is not well, and when it is again.

use std::time::{Duration, Instant};

use ebof_backend::{Action, Class, Error as DeviceError};

/// What the backing device fails at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    /// It has no place for what is written: the file system that holds the drive is full.
    Space,
    /// Reading.
    Read,
    /// Writing, or bringing to the medium what was written.
    Write,
}

/// A failure: of what, and where.
pub(crate) type Failure = (Trouble, u64);

/// What has failed, and was not seen to work again.
#[derive(Debug)]
struct Ongoing {
    trouble: Trouble,
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
    let trouble = match error.class() {
        Class::OutOfSpace => Trouble::Space,
        Class::MediumRead => Trouble::Read,
        Class::MediumWrite | Class::ReadOnly => Trouble::Write,
        Class::Gone if action == Action::Read => Trouble::Read,
        Class::Gone => Trouble::Write,
        Class::OutOfRange | Class::Busy | Class::Aborted | Class::Unsupported | Class::Invalid | Class::Internal => {
            return None;
        }
    };
    Some((trouble, place))
}

/// What a backing device fails at, as its user sees it.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    /// What has failed since somebody looked.
    failures: Vec<Failure>,
    ongoing: Vec<Ongoing>,
}

impl Troubles {
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
        !self.ongoing.is_empty()
    }

    /// Looks at what has failed here, and elsewhere; gives what is failing from now on.
    pub(crate) fn look(&mut self, elsewhere: Vec<Failure>, now: Instant) -> Vec<Trouble> {
        let mut begun = Vec::new();
        for (trouble, place) in elsewhere.into_iter().chain(std::mem::take(&mut self.failures)) {
            let at = self.ongoing.iter().position(|ongoing| ongoing.trouble == trouble);
            let at = at.unwrap_or_else(|| {
                self.ongoing.push(Ongoing { trouble, places: Vec::new(), last: now, again: true });
                begun.push(trouble);
                self.ongoing.len() - 1
            });
            let Some(ongoing) = self.ongoing.get_mut(at) else { continue };
            (ongoing.last, ongoing.again) = (now, true);
            if trouble == Trouble::Read && ongoing.places.len() < PLACES && !ongoing.places.contains(&place) {
                ongoing.places.push(place);
            }
        }
        begun
    }

    /// What is to be tried: it has not failed since the last try.
    pub(crate) fn next_tries(&mut self) -> Vec<Trouble> {
        let rests = |ongoing: &mut Ongoing| !std::mem::take(&mut ongoing.again);
        self.ongoing.iter_mut().filter_map(|ongoing| rests(ongoing).then_some(ongoing.trouble)).collect()
    }

    /// Where reads have failed, the next one to be tried.
    pub(crate) fn place(&self) -> Option<u64> {
        let read = self.ongoing.iter().find(|ongoing| ongoing.trouble == Trouble::Read)?;
        read.places.last().copied()
    }

    /// That place can be read again.
    pub(crate) fn can_read(&mut self) {
        if let Some(read) = self.ongoing.iter_mut().find(|ongoing| ongoing.trouble == Trouble::Read) {
            read.places.pop();
        }
    }

    /// Whether it has not failed for so long that it is believed to work.
    pub(crate) fn is_quiet(&self, trouble: Trouble, now: Instant) -> bool {
        let ongoing = self.ongoing.iter().find(|ongoing| ongoing.trouble == trouble);
        ongoing.is_none_or(|ongoing| now.saturating_duration_since(ongoing.last) >= QUIET)
    }

    /// These work again. What failed while that was tried is known.
    pub(crate) fn tried(&mut self, works: &[Trouble]) {
        self.ongoing.retain(|ongoing| !works.contains(&ongoing.trouble));
        self.failures.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_device_cannot_do_is_a_failure() {
        let refused = |action, class| DeviceError::Refused { action, offset: 7, len: 1, class, reason: "" };
        for (action, class, trouble) in [
            (Action::Write, Class::OutOfSpace, Some(Trouble::Space)),
            (Action::Read, Class::MediumRead, Some(Trouble::Read)),
            (Action::Flush, Class::MediumWrite, Some(Trouble::Write)),
            (Action::Read, Class::Gone, Some(Trouble::Read)),
            (Action::Deallocate, Class::Gone, Some(Trouble::Write)),
            (Action::Write, Class::Busy, None),
            (Action::Write, Class::Aborted, None),
            (Action::Write, Class::Unsupported, None),
            (Action::Write, Class::OutOfRange, None),
        ] {
            assert_eq!(failure(&refused(action, class)), trouble.map(|trouble| (trouble, 7)), "{class:?}");
        }
    }
}
