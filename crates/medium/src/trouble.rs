//! What the backing device fails at: noticed wherever it happens, told once, and tried again until it works.
//!
//! Nothing waits for it: requests are refused as long as they fail, and served when they do not. It is for those who have to know
//! that a drive is not well, and when it is again.

use std::time::{Duration, Instant};

use ebof_backend::{Action, Class, Error as DeviceError};
use ebof_drive::frame::FRAME_BYTES;

use crate::shared::{Message, Shared};
use crate::{Job, Notice, Progress, Store};

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
pub(crate) struct Ongoing {
    trouble: Trouble,
    /// Where reads failed, some of them.
    places: Vec<u64>,
    last: Instant,
    /// It has failed since it was tried last.
    again: bool,
}

/// How soon it is tried whether something works again; later where that takes long, so that a medium that is dying slowly does not
/// keep the drive's thread from everything else: a twentieth of its time at most.
const TRY_MS: u64 = 500;
const TRY_MS_MAX: u64 = 60_000;
const SHARE: u64 = 20;
/// Places that are read again.
const PLACES: usize = 16;
/// Bytes that are written to see whether writing works.
const TRY_BYTES: u64 = 1 << 20;
/// Without anything failing for so long, what cannot be tried is believed to work.
const QUIET: Duration = Duration::from_secs(30);
/// Failures that wait to be looked at.
const WAITING: usize = 32;

/// What an error says about the backing device; `None` for the mistakes of those who ask, and for what passes by itself.
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

impl Shared {
    /// A request to the backing device has failed, on whatever thread.
    pub(crate) fn saw(&self, error: &DeviceError) {
        let Some(failure) = failure(error) else { return };
        let mut failures = self.failures();
        if failures.len() < WAITING {
            failures.push(failure);
        }
        if failures.len() == 1 {
            drop(failures);
            self.post(Message::Run(Box::new(Store::look)));
        }
    }
}

impl Store {
    /// Looks at what has failed on the drive's thread, if anything has.
    pub(crate) fn look_if_failed(&mut self) {
        if !self.disk.failures.is_empty() {
            self.look();
        }
    }

    /// Looks at what has failed since the last time.
    pub(crate) fn look(&mut self) {
        let mut failures = std::mem::take(&mut *self.shared.failures());
        failures.append(&mut self.disk.failures);
        let idle = self.troubles.is_empty();
        for (trouble, place) in failures {
            let at = self.troubles.iter().position(|ongoing| ongoing.trouble == trouble);
            let last = Instant::now();
            let at = at.unwrap_or_else(|| {
                self.troubles.push(Ongoing { trouble, places: Vec::new(), last, again: true });
                self.shared.tell(Notice::Fails(trouble));
                self.troubles.len() - 1
            });
            let Some(ongoing) = self.troubles.get_mut(at) else { continue };
            (ongoing.last, ongoing.again) = (last, true);
            if trouble == Trouble::Read && ongoing.places.len() < PLACES && !ongoing.places.contains(&place) {
                ongoing.places.push(place);
            }
        }
        if idle && !self.troubles.is_empty() {
            self.start(Box::new(Try));
        }
    }

    /// Whether the backing device fails, as far as it is known: then it has been told.
    pub(crate) fn is_troubled(&self) -> bool {
        !self.troubles.is_empty() || self.is_failing()
    }

    /// Whether what has failed works again.
    fn works(&mut self, ongoing: &mut Ongoing) -> bool {
        if std::mem::take(&mut ongoing.again) {
            return false;
        }
        match ongoing.trouble {
            Trouble::Read => {
                let frame = FRAME_BYTES as u64;
                while let Some(place) = ongoing.places.last() {
                    if self.disk.read(place - place % frame, FRAME_BYTES).is_err() {
                        return false;
                    }
                    ongoing.places.pop();
                }
                true
            }
            Trouble::Space | Trouble::Write => {
                let written = self.write_somewhere();
                written.unwrap_or_else(|| ongoing.last.elapsed() >= QUIET)
            }
        }
    }

    /// Writes to an extent that nobody has, and gives its storage back; `None` if there is none that may be used.
    fn write_somewhere(&mut self) -> Option<bool> {
        let clean = self.allocator.take();
        let extent = clean.or_else(|| self.allocator.stained(1).first().copied())?;
        let layout = self.shared.layout;
        let (at, len) = (layout.extent(extent), layout.extent_bytes.min(TRY_BYTES));
        let zeros = vec![0; usize::try_from(len).unwrap_or_default()];
        let written = self.disk.write(at, &zeros).and_then(|()| self.flush());
        // Nothing but zeros was written, whatever became of it; and it is free all the time for those on this thread.
        if clean.is_some() {
            self.allocator.give_back_clean(extent);
        }
        // A hole again, so that the next try tells as much as this one.
        let emptied = self.disk.zero(std::iter::once((at, len)), true);
        Some(written.is_ok() && emptied.is_ok())
    }
}

/// Tries what has failed, until all of it works.
struct Try;

impl Job for Try {
    fn step(&mut self, store: &mut Store) -> Progress {
        let began = Instant::now();
        store.look();
        let mut troubles = std::mem::take(&mut store.troubles);
        troubles.retain_mut(|ongoing| {
            let works = store.works(ongoing);
            if works {
                store.shared.tell(Notice::Works(ongoing.trouble));
            }
            !works
        });
        // What failed while trying is known.
        store.disk.failures.clear();
        store.troubles = troubles;
        if store.troubles.is_empty() {
            return Progress::Done;
        }
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Progress::Later(took_ms.saturating_mul(SHARE).clamp(TRY_MS, TRY_MS_MAX))
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
