//! What goes wrong with requests to the simulated disk.

use ebof_backend::{Action, Class, Error};

use crate::random::Random;

/// What goes wrong, until [`Disk::heal`](super::Disk::heal).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFault {
    /// So many requests of this kind go well.
    pub after: u32,
    /// Then so many do not.
    pub count: u32,
    /// Which ones.
    pub kind: FaultKind,
    /// They have been done all the same.
    pub done: bool,
    /// Of what comes meanwhile so many fail, in percent; the others are not counted.
    pub percent: u64,
}

/// Requests that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Writes and flushes.
    Write,
    /// Writes, for want of space.
    Space,
    /// Reads.
    Read,
}

impl DiskFault {
    /// What disks have: one failure, a few in a row, or some for a long time.
    #[must_use]
    pub fn draw(random: &mut Random) -> Self {
        let few = (1 + random.below(5), 100);
        let some = (4 + random.below(60), 10 + random.below(50));
        let (count, percent) = random.weighted(&[(2, (1, 100)), (2, few), (2, some)]);
        // At once, or in the middle of something that takes many requests.
        let most = 2 << random.below(6);
        let after = random.below(most);
        Self {
            after: u32::try_from(after).unwrap_or_default(),
            count: u32::try_from(count).unwrap_or_default(),
            kind: random.weighted(&[(7, FaultKind::Write), (2, FaultKind::Space), (2, FaultKind::Read)]),
            done: random.percent(50),
            percent,
        }
    }

    pub(super) fn error(&self, action: Action) -> Error {
        match self.kind {
            FaultKind::Space => refused(action, Class::OutOfSpace, "no space, as the simulation wants"),
            FaultKind::Write => refused(action, Class::MediumWrite, "failed, as the simulation wants"),
            FaultKind::Read => refused(action, Class::MediumRead, "failed, as the simulation wants"),
        }
    }
}

pub(super) fn refused(action: Action, class: Class, reason: &'static str) -> Error {
    Error::Refused { action, offset: 0, len: 0, class, reason }
}
