//! Commands that have come: capsules in their receives, the one that begins to execute, and where
//! those that are under way have their data.

use std::collections::VecDeque;
use std::ops::Range;

use ebof_nvme::{Cid, Status};
use ebof_rdma::controller::{Command, Location};
use ebof_rdma::{FatalError, Segments};

use super::super::{End, Event};
use super::FLUSH_AT;
use super::endpoint::{CONNECTED, Endpoint};
use super::pointers::Pointers;
use crate::ports::rdma_connection::Registered;

/// In-capsule data that no controller limits.
pub(super) const UNLIMITED: u32 = u32::MAX;

/// Those of a connection.
pub(super) struct ReceivedCommands {
    /// Its receives are those of others, too: they are posted again whatever becomes of it.
    pub(super) shares_receives: bool,
    /// The most data that a capsule may carry, where the controller has a limit of its own.
    pub(super) in_capsule_bytes_max: u32,
    /// Capsules that have come and are not taken yet; at most as many as the queue has entries.
    capsules: VecDeque<Capsule>,
    /// The last command that was taken, until it is dealt with.
    current: Option<Current>,
    /// Where commands that are under way have their data in the host's memory.
    pointers: Pointers,
}

/// A command capsule, by its receive slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capsule {
    pub(super) slot: u32,
    pub(super) length: u32,
}

/// A command whose receive is not posted again yet.
#[derive(Debug)]
struct Current {
    slot: u32,
    /// Its data in the capsule.
    data: Range<usize>,
    cid: Cid,
    /// Its data in the host's memory, while they are not among the [`Pointers`].
    segments: Option<Segments>,
}

impl ReceivedCommands {
    pub(super) fn new(entries: usize, shares_receives: bool) -> Self {
        Self {
            shares_receives,
            in_capsule_bytes_max: UNLIMITED,
            capsules: VecDeque::with_capacity(entries),
            current: None,
            pointers: Pointers::new(entries),
        }
    }

    /// Capsules that are not taken yet.
    pub(super) fn waiting(&self) -> usize {
        self.capsules.len()
    }

    #[inline]
    pub(super) fn push(&mut self, capsule: Capsule) {
        self.capsules.push_back(capsule);
    }

    /// An error if there are more than a queue of `entries` has: with receives of its own, a host
    /// cannot send them.
    pub(super) fn check(&self, entries: u32) -> Result<(), End> {
        if self.capsules.len() > entries as usize {
            return Err(FatalError::TooManyCommands { entries }.into());
        }
        Ok(())
    }

    /// Takes the next capsule. `None`: there is none.
    #[inline]
    pub(super) fn take(&mut self, endpoint: &mut Endpoint, draining: bool) -> Result<Option<Event>, End> {
        endpoint.flush_if(FLUSH_AT)?;
        let Some(Capsule { slot, length }) = self.capsules.pop_front() else {
            if self.shares_receives {
                // Others wait for the receives of commands that have begun: not until those are
                // complete.
                endpoint.flush_if(1)?;
            }
            return Ok(None);
        };
        let Endpoint { registered, core, .. } = &mut *endpoint;
        let Registered { pair, .. } = registered.as_ref().expect(CONNECTED);
        // No adapter puts more into a receive than that has room for.
        let capsule = pair.received(slot).get(..length as usize).unwrap_or_default();
        let Command { sqe, data, .. } = core.receive(capsule)?;
        let (segments, range) = match data {
            Ok(Location::Remote(segments)) => (Some(segments), 0..0),
            Ok(Location::InCapsule { offset, length }) => (None, offset as usize..(offset + length) as usize),
            Ok(Location::None) | Err(_) => (None, 0..0),
        };
        if draining {
            core.withdraw(segments);
            endpoint.post_receive(slot);
            return Ok(Some(Event::Progress { answered: true }));
        }
        let in_capsule = u32::try_from(range.len()).unwrap_or(u32::MAX);
        let status = match data {
            Err(status) => Some(status),
            Ok(_) if in_capsule > self.in_capsule_bytes_max => Some(Status::SGL_OFFSET_INVALID.dnr()),
            Ok(_) => None,
        };
        if let Some(status) = status {
            endpoint.post_receive(slot);
            return Ok(Some(Event::Refused { sqe, status }));
        }
        self.current = Some(Current { slot, data: range, cid: sqe.cid(), segments });
        Ok(Some(Event::Command { sqe, in_capsule }))
    }

    /// Whether the receive of the last command is not posted again yet.
    #[inline]
    pub(super) fn has_current(&self) -> bool {
        self.current.is_some()
    }

    /// The data in the capsule of the last command.
    pub(super) fn inline<'e>(&self, endpoint: &'e Endpoint) -> Option<&'e [u8]> {
        let Current { slot, data, .. } = self.current.as_ref()?;
        endpoint.registered.as_ref()?.pair.received(*slot).get(data.clone())
    }

    /// The last command is dealt with: it is complete or under way.
    #[inline]
    pub(super) fn finish_current(&mut self, endpoint: &mut Endpoint) {
        if let Some(Current { slot, cid, segments, .. }) = self.current.take() {
            if let Some(segments) = segments {
                self.pointers.insert(cid, segments);
            }
            endpoint.post_receive(slot);
        }
    }

    /// Where a command that is over has its data in the host's memory.
    #[inline]
    pub(super) fn take_segments(&mut self, cid: Cid) -> Option<Segments> {
        match &mut self.current {
            Some(current) if current.cid == cid => current.segments.take(),
            _ => self.pointers.take(cid),
        }
    }

    /// Nobody takes the capsules any more. Receives for which others wait are posted.
    pub(super) fn drop_capsules(&mut self, endpoint: &mut Endpoint) {
        let current = self.current.take().map(|current| current.slot);
        let slots = self.capsules.drain(..).map(|capsule| capsule.slot).chain(current);
        if self.shares_receives {
            slots.for_each(|slot| endpoint.post_receive(slot));
        }
    }

    /// No command is under way any more.
    pub(super) fn forget_pointers(&mut self) {
        self.pointers.clear();
    }
}
