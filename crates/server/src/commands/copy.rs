//! Copy: source by source, piece by piece, through one buffer of the connection's budget. A piece
//! is read in one turn of the reactor and counts against the connection's share of it, so that
//! others are not kept waiting.

use std::ops::Range;

use ebof_fabrics::{CopyPlan, CopyRange, DeviceId};
use ebof_nvme::Nsid;
use ebof_nvme::protection::Rules;

/// Bytes of a piece at most.
pub(crate) const PIECE_BYTES: usize = 128 << 10;

/// A Copy under way.
#[derive(Debug)]
pub(crate) struct Copy {
    plan: Box<CopyPlan>,
    /// The source that is being copied, and how many bytes of it have been.
    source: usize,
    within: u64,
    /// Bytes that have been copied of all sources.
    copied: u64,
    /// The piece has been read, and is being written.
    writing: bool,
}

impl Copy {
    pub(crate) fn new(plan: Box<CopyPlan>) -> Self {
        Self { plan, source: 0, within: 0, copied: 0, writing: false }
    }

    /// The number of the first source that is not copied whole; none is if there are so many.
    pub(crate) fn source(&self) -> u64 {
        self.source as u64
    }

    pub(crate) fn target_device(&self) -> DeviceId {
        self.plan.target.device
    }

    /// The bytes that the piece at hand changes.
    pub(crate) fn changed(&self) -> Option<Range<u64>> {
        let (_, length) = self.piece().filter(|_| self.writing)?;
        let start = self.plan.target.offset_bytes + self.copied;
        Some(start..start + length as u64)
    }

    /// Whether the piece at hand has been read, and is being written.
    pub(crate) fn is_writing(&self) -> bool {
        self.writing
    }

    /// The piece at hand has been read.
    pub(crate) fn begin_write(&mut self) {
        self.writing = true;
    }

    /// Whether what is written is to be durable when the copy completes (FUA).
    pub(crate) fn fua(&self) -> bool {
        self.plan.fua
    }

    /// Where the next piece is read, and its length.
    pub(crate) fn piece(&self) -> Option<(CopyRange, usize)> {
        let source = *self.plan.sources.get(self.source)?;
        let left = source.length_bytes - self.within;
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(self.piece_bytes());
        Some((CopyRange { offset_bytes: source.offset_bytes + self.within, ..source }, length))
    }

    /// Bytes of a piece at most: whole blocks.
    fn piece_bytes(&self) -> usize {
        let block = self.plan.data_bytes as usize + usize::from(self.plan.metadata_bytes);
        PIECE_BYTES / block * block
    }

    /// Bytes of buffer that it needs.
    pub(crate) fn buffer_bytes(&self) -> usize {
        usize::try_from(self.plan.target.length_bytes).unwrap_or(usize::MAX).min(self.piece_bytes())
    }

    /// What is done about the protection information of the piece at hand, as it is read and as it
    /// is written; with the bytes of a block's data.
    pub(crate) fn rules(&self) -> Option<(Rules, Rules, usize)> {
        let checks = self.plan.checks.as_ref()?;
        let block = u64::from(self.plan.data_bytes) + u64::from(self.plan.metadata_bytes);
        let read = checks.read.get(self.source)?.after(self.within / block);
        Some((read, checks.write.after(self.copied / block), self.plan.data_bytes as usize))
    }

    /// A piece has been written. Returns whether it was the last.
    pub(crate) fn advance(&mut self) -> bool {
        let Some((_, length)) = self.piece() else { return true };
        self.writing = false;
        self.copied += length as u64;
        self.within += length as u64;
        if self.plan.sources.get(self.source).is_some_and(|source| source.length_bytes == self.within) {
            self.source += 1;
            self.within = 0;
        }
        self.source == self.plan.sources.len()
    }

    /// Whether something of this namespace is copied.
    pub(crate) fn reads(&self, nsid: Nsid) -> bool {
        self.plan.sources.iter().any(|source| source.nsid == nsid)
    }

    /// What was read of which namespace.
    pub(crate) fn read_bytes(&self) -> Vec<(Nsid, u64)> {
        let mut all: Vec<(Nsid, u64)> = Vec::new();
        for source in &self.plan.sources {
            match all.iter_mut().find(|(nsid, _)| *nsid == source.nsid) {
                Some((_, bytes)) => *bytes += source.length_bytes,
                None => all.push((source.nsid, source.length_bytes)),
            }
        }
        all
    }
}
