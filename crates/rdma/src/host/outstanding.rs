//! The commands that are outstanding on a host's connection, found by CID in a table made once per
//! queue.

use alloc::boxed::Box;
use alloc::vec;

use ebof_nvme::{Cid, Cqe};

/// One outstanding command.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostCommand {
    pub(super) cid: Cid,
    /// The key that is for this command only, while it is valid.
    pub(super) key: Option<u32>,
    /// Its message was sent.
    pub(super) is_sent: bool,
    pub(super) response: Option<Cqe>,
}

/// All outstanding commands, at the place that the low bits of their CID name.
#[derive(Debug)]
pub(super) struct OutstandingCommands {
    places: Box<[Option<HostCommand>]>,
}

impl OutstandingCommands {
    pub(super) fn new(entries: usize) -> Self {
        Self { places: vec![None; entries.clamp(1, 1 << u16::BITS).next_power_of_two()].into_boxed_slice() }
    }

    #[inline]
    pub(super) fn begin(&mut self, command: HostCommand) {
        let place = self.place(command.cid);
        assert!(place.is_none(), "CIDs of outstanding commands differ modulo the queue's entries");
        *place = Some(command);
    }

    #[inline]
    pub(super) fn find(&mut self, cid: Cid) -> Option<&mut HostCommand> {
        self.place(cid).as_mut().filter(|command| command.cid == cid)
    }

    #[inline]
    pub(super) fn finish(&mut self, cid: Cid) -> Option<HostCommand> {
        self.place(cid).take_if(|command| command.cid == cid)
    }

    pub(super) fn is_taken(&self, cid: Cid) -> bool {
        self.places[usize::from(cid.0) & (self.places.len() - 1)].is_some()
    }

    #[inline]
    fn place(&mut self, cid: Cid) -> &mut Option<HostCommand> {
        // The length is a power of two.
        let mask = self.places.len() - 1;
        &mut self.places[usize::from(cid.0) & mask]
    }
}
