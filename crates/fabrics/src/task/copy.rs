//! Copy: source by source, piece by piece. What is copied, and how far that has got.

use alloc::vec::Vec;
use core::ops::Range;

use ebof_nvme::Nsid;
use ebof_nvme::protection::Rules;

use crate::model::DeviceId;

/// Bytes of a namespace that are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// The device.
    pub device: DeviceId,
    /// The namespace.
    pub nsid: Nsid,
    /// First byte on the device.
    pub offset_bytes: u64,
    /// Bytes, at least one block.
    pub length_bytes: u64,
}

impl CopyRange {
    /// Whether both have bytes in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        // Namespaces end below 2^64 bytes.
        self.device == other.device
            && self.offset_bytes < other.offset_bytes + other.length_bytes
            && other.offset_bytes < self.offset_bytes + self.length_bytes
    }
}

/// What Copy does about protection information: it is checked as it is read from each source, and
/// inserted, or checked again, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyChecks {
    /// For each source.
    pub read: Vec<Rules>,
    /// For the target.
    pub write: Rules,
}

/// What Copy copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyPlan {
    /// Where to.
    pub target: CopyRange,
    /// Bytes of a block's data.
    pub data_bytes: u32,
    /// Bytes of its metadata.
    pub metadata_bytes: u16,
    /// Where blocks have protection information: what is done about it.
    pub checks: Option<CopyChecks>,
    /// Where from, one behind the other: as many bytes together as the target has, and none of
    /// those.
    pub sources: Vec<CopyRange>,
    /// What is written is on the medium before the command completes.
    pub fua: bool,
}

/// Bytes of a piece at most.
const PIECE_BYTES: usize = 128 << 10;

/// A Copy under way: through one buffer, a piece is read and then written.
#[derive(Debug, PartialEq, Eq)]
pub struct Copy {
    plan: CopyPlan,
    /// The source that is being copied, and how many bytes of it have been.
    source: usize,
    within: u64,
    /// Bytes that have been copied of all sources.
    copied: u64,
    /// The piece has been read, and is being written.
    writing: bool,
}

impl Copy {
    /// Nothing is copied yet.
    pub(crate) fn new(plan: CopyPlan) -> Self {
        Self { plan, source: 0, within: 0, copied: 0, writing: false }
    }

    /// What is copied.
    #[must_use]
    pub fn plan(&self) -> &CopyPlan {
        &self.plan
    }

    /// The number of the first source that is not copied whole; none is if there are so many.
    #[must_use]
    pub fn source(&self) -> u64 {
        self.source as u64
    }

    /// The device that is written.
    #[must_use]
    pub fn target_device(&self) -> DeviceId {
        self.plan.target.device
    }

    /// The bytes that the piece at hand changes.
    #[must_use]
    pub fn changed(&self) -> Option<Range<u64>> {
        let (_, length) = self.piece().filter(|_| self.writing)?;
        let start = self.plan.target.offset_bytes + self.copied;
        Some(start..start + length as u64)
    }

    /// Whether the piece at hand has been read, and is being written.
    #[must_use]
    pub fn is_writing(&self) -> bool {
        self.writing
    }

    /// The piece at hand has been read.
    pub fn begin_write(&mut self) {
        self.writing = true;
    }

    /// Whether what is written is to be durable when the copy completes (FUA).
    #[must_use]
    pub fn fua(&self) -> bool {
        self.plan.fua
    }

    /// Where the next piece is read, and its length.
    #[must_use]
    pub fn piece(&self) -> Option<(CopyRange, usize)> {
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
    #[must_use]
    pub fn buffer_bytes(&self) -> usize {
        usize::try_from(self.plan.target.length_bytes).unwrap_or(usize::MAX).min(self.piece_bytes())
    }

    /// What is done about the protection information of the piece at hand, as it is read and as it
    /// is written; with the bytes of a block's data.
    #[must_use]
    pub fn rules(&self) -> Option<(Rules, Rules, usize)> {
        let checks = self.plan.checks.as_ref()?;
        let block = u64::from(self.plan.data_bytes) + u64::from(self.plan.metadata_bytes);
        let read = checks.read.get(self.source)?.after(self.within / block);
        Some((read, checks.write.after(self.copied / block), self.plan.data_bytes as usize))
    }

    /// A piece has been written. Returns whether it was the last.
    ///
    /// # Panics
    /// There was none: a fault of the caller.
    #[must_use]
    pub fn advance(&mut self) -> bool {
        let (_, length) = self.piece().expect("a piece that was written was at hand");
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
    #[must_use]
    pub fn reads(&self, nsid: Nsid) -> bool {
        self.plan.sources.iter().any(|source| source.nsid == nsid)
    }

    /// What was read of which namespace.
    #[must_use]
    pub fn read_bytes(&self) -> Vec<(Nsid, u64)> {
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

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn range(nsid: u32, offset_bytes: u64, length_bytes: u64) -> CopyRange {
        CopyRange { device: DeviceId(nsid), nsid: Nsid(nsid), offset_bytes, length_bytes }
    }

    #[test]
    fn a_copy_goes_piece_by_piece_and_source_by_source() {
        let sources = vec![range(1, 0, 512), range(2, 4096, 200 << 10)];
        let target = range(3, 1 << 20, 512 + (200 << 10));
        let plan = CopyPlan { target, data_bytes: 512, metadata_bytes: 0, checks: None, sources, fua: false };
        let mut copy = Copy::new(plan);
        assert_eq!(copy.buffer_bytes(), PIECE_BYTES);
        assert_eq!(copy.read_bytes(), [(Nsid(1), 512), (Nsid(2), 200 << 10)]);
        let mut pieces = Vec::new();
        loop {
            assert_eq!(copy.changed(), None, "nothing changes while a piece is read");
            let (from, length) = copy.piece().unwrap();
            copy.begin_write();
            pieces.push((copy.source(), from.nsid.0, from.offset_bytes, length, copy.changed().unwrap()));
            if copy.advance() {
                break;
            }
        }
        let at = |offset: u64, length: u64| (1 << 20) + offset..(1 << 20) + offset + length;
        let rest = (200 << 10) - (128 << 10);
        assert_eq!(
            pieces,
            [
                (0, 1, 0, 512, at(0, 512)),
                (1, 2, 4096, 128 << 10, at(512, 128 << 10)),
                (1, 2, 4096 + (128 << 10), 72 << 10, at(512 + (128 << 10), rest)),
            ]
        );
        assert_eq!(copy.source(), 2, "none is left");
    }
}
