//! What concerns the whole medium rather than a namespace: whether what was given back is out of reach and empty, filling
//! everything that is free, and reading back what the medium says of itself.

use ebof_backend::{Buffer, Operation};
use ebof_drive::frame::Record;
use ebof_drive::layout::{Layout, SUPERBLOCK_BYTES, Superblock};

use crate::{Error, OpenError, Store, recovery};

/// Bytes of one write.
const WRITE_BYTES: u64 = 1 << 20;

impl Store {
    /// Extents of the medium, free or not.
    #[must_use]
    pub fn extents(&self) -> u32 {
        self.shared.layout.extents()
    }

    /// Whether no request can reach anything any more that was given back, and none of it is being zeroed.
    pub fn is_settled(&mut self) -> bool {
        self.settle().is_none() && self.washing == 0
    }

    /// Has some of what was given back zeroed in the background; `true` when there is nothing left to be zeroed, and none of it can be reached.
    ///
    /// # Errors
    /// `Device`.
    pub fn clean(&mut self) -> Result<bool, Error> {
        // In this order: what has just come out of reach is to be zeroed, too.
        let settled = self.is_settled();
        Ok(!self.start_wash()? && settled)
    }

    /// Extents that were given back and may still hold what was in them.
    #[must_use]
    pub fn unclean(&self) -> u32 {
        let settled = self.allocator.free().saturating_sub(self.allocator.clean());
        let waiting: usize = self.quarantine.iter().map(|(_, extents)| extents.len()).sum();
        let leaving: u32 = self.leaving.iter().map(|(thin, _)| thin.allocated_extents()).fold(0, u32::saturating_add);
        let waiting = u32::try_from(waiting + self.washing).unwrap_or(u32::MAX);
        settled.saturating_add(waiting).saturating_add(leaving)
    }

    /// What was given back keeps its storage (`true`) until [`fill_free`](Self::fill_free) has overwritten it, instead of being
    /// zeroed in the background: a file system, or a disk, that takes storage back keeps the old bytes where nobody can
    /// overwrite them.
    pub fn hold_unclean(&mut self, held: bool) {
        self.is_held = held;
    }

    /// Bytes of extents, at most, that were used and whose storage was given back to what is below: what they held may still be
    /// there, and is beyond the reach of [`fill_free`](Self::fill_free). 0 where the backing device does not take storage back.
    #[must_use]
    pub fn given_back_bytes(&self) -> u64 {
        let never_used = self.shared.layout.extents().saturating_sub(self.allocator.water());
        let clean = self.allocator.clean().saturating_sub(never_used);
        if self.zeroes_quickly() { u64::from(clean) * self.shared.layout.extent_bytes } else { 0 }
    }

    /// Makes the free ones of `count` extents from `first` on read as zeros. Those that were never used do.
    ///
    /// # Errors
    /// `Device`: which of them do is not known.
    pub fn zero_free(&mut self, first: u32, count: u32) -> Result<(), Error> {
        // A record that failed may be in the journal all the same, and give one of them to somebody.
        self.make_sure()?;
        let end = first.saturating_add(count).min(self.allocator.water());
        let taken: Vec<u32> = (first..end).filter(|&extent| self.allocator.claim(extent)).collect();
        let layout = self.shared.layout;
        let ranges = taken.iter().map(|&extent| (layout.extent(extent), layout.extent_bytes));
        // Before one of them can be in the journal, it must not come back with its old bytes after a power loss.
        let zeroed = self.disk.zero(ranges, true).and_then(|()| self.flush());
        for extent in taken {
            match zeroed {
                Ok(()) => self.allocator.give_back_clean(extent),
                Err(_) => self.allocator.give_back(extent),
            }
        }
        Ok(zeroed?)
    }

    /// Writes `pattern`, least significant byte first, over the free ones of `count` extents from `first` on; they are zeroed
    /// before they are used.
    ///
    /// # Errors
    /// `Device`: which of them have it is not known.
    pub fn fill_free(&mut self, first: u32, count: u32, pattern: u32) -> Result<(), Error> {
        self.make_sure()?;
        let end = first.saturating_add(count).min(self.extents());
        if end > self.allocator.water() {
            // After a sudden end they are known to hold something.
            self.append(&[Record::Water(end)], true)?;
            self.allocator.raise(end);
        }
        let layout = self.shared.layout;
        let taken: Vec<u32> = (first..end).filter(|&extent| self.allocator.claim(extent)).collect();
        let piece = layout.extent_bytes.min(WRITE_BYTES);
        let writes = taken.iter().flat_map(|&extent| (0..layout.extent_bytes / piece).map(move |at| (extent, at)));
        let mut operations = Vec::new();
        for (extent, at) in writes {
            let len = usize::try_from(piece).expect("at most 1 MiB");
            let mut buffer = Buffer::zeroed(len);
            buffer.as_mut_slice()[..len].chunks_exact_mut(4).for_each(|to| to.copy_from_slice(&pattern.to_le_bytes()));
            operations.push(Operation::Write { offset: layout.extent(extent) + at * piece, len, buffer, fua: false });
        }
        let written = self.disk.run(operations).into_iter().try_for_each(|completion| completion.result);
        taken.into_iter().for_each(|extent| self.allocator.give_back(extent));
        Ok(written?)
    }

    /// Brings everything so far to the medium, also tags that are only in memory and in the journal.
    ///
    /// # Errors
    /// `Device`.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.write_back_tags()?;
        self.flush()?;
        self.mark();
        Ok(())
    }

    /// Reads superblock, checkpoint and journal, as after a sudden end: whether all of it is there and whole.
    ///
    /// # Errors
    /// What is not.
    pub fn check(&mut self) -> Result<(), OpenError> {
        let layout = self.shared.layout;
        let device = self.disk.base().describe();
        let both = self.disk.read(0, 2 * SUPERBLOCK_BYTES);
        let both = both.map_err(|source| OpenError::Device { device: device.clone(), source })?;
        let mut copies = both.as_slice()[..2 * SUPERBLOCK_BYTES].chunks_exact(SUPERBLOCK_BYTES);
        if !copies.any(|block| Layout::decode(block) == Superblock::Drive(layout)) {
            return Err(OpenError::Damaged { device, what: "neither superblock can be read".to_owned() });
        }
        recovery::check(&mut self.disk, layout, &self.journal)
    }
}
