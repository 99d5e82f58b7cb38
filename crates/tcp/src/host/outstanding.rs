//! The commands that are outstanding on a host's connection, found by CID in a table made once per
//! queue.

use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::Cid;

/// One outstanding command: what it may transfer, and how far that is.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostCommand {
    pub(super) cid: Cid,
    /// Bytes to the host that the command may bring.
    pub(super) read: u32,
    pub(super) received: u32,
    /// C2HData with LAST has come.
    pub(super) last_seen: bool,
    pub(super) digest_ok: bool,
    /// Bytes to the controller that it may ask for.
    pub(super) write: u32,
    /// End of what R2Ts asked for.
    pub(super) granted: u32,
    pub(super) sent: u32,
    /// R2Ts not yet answered in full.
    pub(super) r2ts: u32,
}

impl HostCommand {
    pub(super) fn new(cid: Cid, read: u32, write: u32) -> Self {
        Self { cid, read, received: 0, last_seen: false, digest_ok: true, write, granted: 0, sent: 0, r2ts: 0 }
    }
}

/// All outstanding commands, at the place that the low bits of their CID name.
#[derive(Debug)]
pub(super) struct OutstandingCommands {
    places: Vec<Option<HostCommand>>,
}

impl OutstandingCommands {
    pub(super) fn new(entries: usize) -> Self {
        Self { places: vec![None; entries.clamp(1, 1 << u16::BITS).next_power_of_two()] }
    }

    pub(super) fn resize(&mut self, entries: usize) {
        assert!(self.places.iter().all(Option::is_none), "the queue is sized while nothing is outstanding");
        *self = Self::new(entries);
    }

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
