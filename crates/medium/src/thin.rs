//! A thin namespace as a block device. Requests to allocated extents go straight to the backing
//! device, on the caller's thread; the drive's thread does all others.
//!
//! The folder has what such a request needs: where the blocks are, which are locked and which are
//! marked bad, and what the drive's thread shares with all others, for it has all namespaces.

pub(crate) mod bad_blocks;
pub(crate) mod block_layout;
pub(crate) mod block_tags;
mod checked;
pub(crate) mod locks;
pub(crate) mod shared;

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ebof_backend::{
    Class, CompletionHook, Device, Error, Geometry, Io, Operation, Request, Segments, Submitted, format_size,
};
use ebof_drive::BlockFormat;
use ebof_drive::map::{ExtentMap, Mapping};

use crate::VolumeId;
use crate::keys::crypt::{Cipher, Decrypt};
use crate::thin::bad_blocks::BadBlocks;
use crate::thin::block_layout::BlockLayout;
use crate::thin::locks::BlockLocks;
use crate::thin::shared::{ChainedHooks, DeferredRequest, Shared};

/// A thin namespace.
pub struct Thin {
    pub(crate) shared: Arc<Shared>,
    pub(crate) volume: VolumeId,
    pub(crate) map: ExtentMap,
    /// How many extents may be allocated.
    pub(crate) quota: u32,
    /// How many are.
    pub(crate) used: AtomicU32,
    /// The namespace was deleted.
    pub(crate) removed: AtomicBool,
    pub(crate) block_format: BlockFormat,
    /// `None` if it is not encrypted.
    pub(crate) cipher: Option<Arc<Cipher>>,
    pub(crate) block_layout: BlockLayout,
    /// Its blocks have tags.
    pub(crate) is_tagged: bool,
    /// Its blocks have checksums and no metadata, so that they may be in flux, and requests be done
    /// on their caller's thread. Metadata exist nowhere but in tags: these are in the journal
    /// before the data are written.
    pub(crate) may_be_in_flux: bool,
    /// Which of its blocks are being read or written, if they may be in flux.
    pub(crate) locks: BlockLocks,
    /// How many writes have put tags into memory and nowhere else.
    unsettled: AtomicU64,
    /// How many of them were flushed, so that their tags are durable.
    settled: AtomicU64,
    /// How many flushes of it were asked for.
    flushes: AtomicU64,
    /// Position of the journal behind the last record about this namespace
    /// ([`Point::pack`](crate::journal::Point::pack)).
    last_record: AtomicU64,
    bad_blocks: RwLock<BadBlocks>,
    /// Whether any block is bad: without any, the lock is not taken.
    has_bad: AtomicBool,
    geometry: Geometry,
}

/// A part of a namespace that is allocated as a whole, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Bytes of the namespace.
    pub range: Range<u64>,
    /// Whether it is allocated; otherwise it reads as zeros.
    pub allocated: bool,
}

/// Extents of a namespace at most, mapped or not: its table takes 4 bytes for each, 256 MiB at
/// most.
pub(crate) const INDEX_MAX: u32 = 1 << 26;

/// Steps ([`ExtentMap::seek`]) of one search for what is allocated. There are fewer groups in the
/// largest namespace, so that an empty one is searched as a whole.
pub(crate) const STEPS_MAX: u32 = 1 << 17;

/// Where the bytes of a request are on the backing device.
enum Location {
    /// Nowhere: they are zeros.
    Unmapped,
    /// In one piece, from this byte on.
    Contiguous(u64),
    /// In several pieces, or some of them nowhere.
    Fragmented,
}

impl Thin {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        volume: VolumeId,
        blocks: u64,
        quota: u32,
        block_format: BlockFormat,
        cipher: Option<Arc<Cipher>>,
    ) -> Option<Self> {
        let base = shared.base.geometry();
        let logical_block_bytes = u32::try_from(block_format.block_bytes()).ok()?;
        let extents = block_format.extents(blocks, shared.layout.extent_bytes);
        let extents = u32::try_from(extents).ok().filter(|&extents| extents <= INDEX_MAX)?;
        let block_layout = BlockLayout::new(block_format, shared.layout.extent_bytes)?;
        let extent_bytes = u32::try_from(shared.layout.extent_bytes).unwrap_or(1 << 31);
        let unit = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX / logical_block_bytes * logical_block_bytes);
        let geometry = Geometry {
            capacity_bytes: blocks.checked_mul(block_format.block_bytes())?,
            // A block is encrypted, and has its tag, as a whole.
            block_bytes: if block_format.is_tagged() || block_format.encrypted {
                logical_block_bytes
            } else {
                base.block_bytes
            },
            logical_block_bytes,
            read_only: shared.read_only,
            deallocates: true,
            deallocate_granularity_bytes: if block_format.is_tagged() {
                unit(block_layout.span_bytes)
            } else {
                extent_bytes
            },
            writes_zeroes: true,
            volatile_cache: base.volatile_cache,
        };
        Some(Self {
            shared: Arc::clone(shared),
            volume,
            map: ExtentMap::new(extents)?,
            quota,
            used: AtomicU32::new(0),
            removed: AtomicBool::new(false),
            block_format,
            cipher,
            block_layout,
            is_tagged: block_format.is_tagged(),
            may_be_in_flux: block_format.may_be_in_flux(),
            locks: BlockLocks::default(),
            unsettled: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            last_record: AtomicU64::new(shared.journal.position()),
            bad_blocks: RwLock::default(),
            has_bad: AtomicBool::new(false),
            geometry,
        })
    }

    /// Its name.
    #[must_use]
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// What is allocated in a range of bytes, in order and without gaps: at most `runs_max` runs,
    /// and no more than a search of bounded length finds (about 131072 extents in turn mapped and
    /// unmapped). Bytes beyond the end of the namespace are left out.
    #[must_use]
    pub fn allocated(&self, range: Range<u64>, runs_max: usize) -> Vec<Run> {
        let span_bytes = self.block_layout.span_bytes;
        let end = range.end.min(self.geometry.capacity_bytes);
        let last = self.index(end.saturating_sub(1)).saturating_add(1);
        let mut steps = STEPS_MAX;
        let mut runs: Vec<Run> = Vec::new();
        let mut at = range.start;
        while at < end && runs.len() < runs_max && steps > 0 {
            let index = self.index(at);
            let allocated = self.map.lookup(index).is_some();
            let next =
                u64::from(self.map.seek(index, last, !allocated, &mut steps)).saturating_mul(span_bytes).min(end);
            // At least to the end of this extent: the map may have changed meanwhile, or the steps
            // have run out.
            let next = next.max((at / span_bytes + 1).saturating_mul(span_bytes).min(end));
            match runs.last_mut() {
                Some(last) if last.allocated == allocated => last.range.end = next,
                _ => runs.push(Run { range: at..next, allocated }),
            }
            at = next;
        }
        runs
    }

    /// Bytes of its blocks that are allocated, metadata aside (NUSE).
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        let blocks = u64::from(self.allocated_extents()) * self.block_layout.blocks;
        blocks.min(self.block_count()) * self.block_layout.data_bytes
    }

    /// How many extents of the medium are allocated to it.
    #[must_use]
    pub fn allocated_extents(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes of its blocks, metadata included, that one extent holds: less than the bytes of an
    /// extent if blocks have tags.
    #[must_use]
    pub fn span_bytes(&self) -> u64 {
        self.block_layout.span_bytes
    }

    /// Whether any of the blocks is marked bad, see [`Store::mark_bad`](crate::Store::mark_bad).
    #[must_use]
    pub fn is_bad(&self, blocks: Range<u64>) -> bool {
        self.has_bad.load(Ordering::Acquire) && self.bad_blocks().touches(&blocks)
    }

    /// The ranges of blocks that are marked bad and touch `blocks`, at most `max`.
    #[must_use]
    pub fn bad_ranges(&self, blocks: &Range<u64>, max: usize) -> Vec<Range<u64>> {
        self.bad_blocks().touching(blocks).take(max).collect()
    }

    /// So many extents fewer are allocated.
    pub(crate) fn uncount_used(&self, extents: u32) {
        let before = self.used.fetch_sub(extents, Ordering::Relaxed);
        assert!(before >= extents, "each extent was counted when it was allocated, or when the drive was opened");
    }

    /// Unmaps extents. Returns those that were mapped: index, and extent of the medium.
    pub(crate) fn unmap(&self, range: Range<u32>) -> Vec<(u32, u32)> {
        let mut unmapped = Vec::new();
        let mut index = self.map.next(range.start, range.end, true);
        while index < range.end {
            unmapped.extend(self.map.set(index, None).map(|extent| (index, extent)));
            index = self.map.next(index + 1, range.end, true);
        }
        unmapped
    }

    pub(crate) fn bad_blocks(&self) -> RwLockReadGuard<'_, BadBlocks> {
        self.bad_blocks.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the bad blocks.
    pub(crate) fn change_bad_blocks(&self, change: impl FnOnce(&mut BadBlocks)) {
        let mut bad: RwLockWriteGuard<'_, BadBlocks> = self.bad_blocks.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut bad);
        self.has_bad.store(!bad.is_empty(), Ordering::Release);
    }

    /// Whether any of these bytes is in a bad block.
    pub(crate) fn is_bad_at(&self, offset: u64, len: u64) -> bool {
        self.has_bad.load(Ordering::Acquire) && self.bad_blocks().touches(&self.blocks(offset, len))
    }

    /// The blocks that these bytes are in.
    pub(crate) fn blocks(&self, offset: u64, len: u64) -> Range<u64> {
        let block = u64::from(self.geometry.logical_block_bytes);
        offset / block..(offset + len).div_ceil(block)
    }

    pub(crate) fn block_count(&self) -> u64 {
        self.geometry.capacity_bytes / u64::from(self.geometry.logical_block_bytes)
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.geometry.capacity_bytes
    }

    /// Index of the extent that holds byte `offset`.
    pub(crate) fn index(&self, offset: u64) -> u32 {
        u32::try_from(offset / self.block_layout.span_bytes).unwrap_or(u32::MAX)
    }

    /// Cuts a range of bytes so that it has at most `extents` mapped extents and takes at most
    /// `steps` to search; both are counted down. Returns where it ends: at the end of an extent or
    /// of the range, and always behind its beginning.
    pub(crate) fn limit(&self, range: Range<u64>, extents: &mut u32, steps: &mut u32) -> u64 {
        let span_bytes = self.block_layout.span_bytes;
        let last = self.index(range.end.saturating_sub(1)).saturating_add(1);
        let end = self.limit_extents(self.index(range.start)..last, extents, steps);
        u64::from(end).saturating_mul(span_bytes).min(range.end)
    }

    /// The same for a range of indices of extents.
    pub(crate) fn limit_extents(&self, range: Range<u32>, extents: &mut u32, steps: &mut u32) -> u32 {
        let mut index = range.start;
        while index < range.end && *extents > 0 && *steps > 0 {
            index = self.map.seek(index, range.end, true, steps);
            if index < range.end && *steps > 0 {
                // This one is mapped.
                *extents -= 1;
                index += 1;
            }
        }
        // The steps may have run out before the first mapped extent.
        index.max(range.start.saturating_add(1))
    }

    /// Where these bytes are on the backing device. For namespaces without tags.
    fn translate(&self, offset: u64, len: u64) -> Location {
        if len == 0 {
            return Location::Unmapped;
        }
        let (first, last) = (self.index(offset), self.index(offset + len - 1));
        match self.map.translate(first, last - first + 1) {
            Mapping::Unmapped => Location::Unmapped,
            Mapping::Contiguous(extent) => {
                Location::Contiguous(self.shared.layout.extent(extent) + offset % self.shared.layout.extent_bytes)
            }
            Mapping::Fragmented => Location::Fragmented,
        }
    }

    /// Refuses an operation that the geometry does not allow.
    pub(crate) fn geometry_check(&self, operation: &Operation) -> Result<(), Error> {
        self.geometry.check(operation)
    }

    /// Refuses an operation that the geometry or the state of the namespace does not allow.
    pub(crate) fn check(&self, operation: &Operation) -> Result<(), Error> {
        self.geometry.check(operation)?;
        if self.removed.load(Ordering::Acquire) {
            return Err(refused(operation, Class::Gone, "the namespace was deleted"));
        }
        if let Operation::Read { offset, len, .. } = operation
            && self.is_bad_at(*offset, *len as u64)
        {
            let reason = "a host has marked blocks of it as uncorrectable; write them to use them again";
            return Err(refused(operation, Class::MediumRead, reason));
        }
        if self.shared.read_only && self.is_unknown(operation) {
            let reason = "the drive is damaged, and it is not known what is here: see the log";
            return Err(refused(operation, Class::MediumRead, reason));
        }
        Ok(())
    }

    /// Whether a read is of bytes that cannot be known, because a part of the journal is lost: that
    /// part may have mapped what is unmapped here, and unmapped what is mapped here.
    #[cold]
    fn is_unknown(&self, operation: &Operation) -> bool {
        let Operation::Read { offset, len, .. } = operation else { return false };
        let Some(last) = (*len as u64).checked_sub(1) else { return false };
        let mut indices = self.index(*offset)..=self.index(*offset + last);
        self.shared.hides_unchecked && !self.is_tagged || indices.any(|index| self.map.lookup(index).is_none())
    }

    /// The journal, which is at this position now, has a new record about this namespace.
    pub(crate) fn set_last_record(&self, position: u64) {
        self.last_record.store(position, Ordering::Release);
    }

    /// A write has put tags into memory and nowhere else.
    pub(crate) fn count_unsettled(&self) {
        self.unsettled.fetch_add(1, Ordering::Release);
    }

    /// How many writes have done so.
    pub(crate) fn unsettled(&self) -> u64 {
        self.unsettled.load(Ordering::Acquire)
    }

    /// The tags of so many of them are durable.
    pub(crate) fn set_settled(&self, count: u64) {
        self.settled.fetch_max(count, Ordering::Release);
    }

    /// Whether the tags of so many writes are durable.
    pub(crate) fn has_settled(&self, count: u64) -> bool {
        count <= self.settled.load(Ordering::Acquire)
    }

    /// Whether a flush has to make tags durable that are only in memory.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.settled.load(Ordering::Acquire) < self.unsettled()
    }

    /// How many flushes were asked for.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// Another one was.
    pub(crate) fn count_flush(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a flush of this namespace has to write a mark: the journal has records about it that
    /// are behind the last mark.
    fn is_unmarked(&self) -> bool {
        !self.shared.journal.is_marked(self.last_record.load(Ordering::Acquire))
    }

    /// Whether the drive's thread has to do a write although its extents are mapped.
    pub(crate) fn must_defer_write(&self, fua: bool) -> bool {
        // A failed record that may be on the medium has to be settled first. With FUA, the record
        // that mapped the extent has to be durable, too.
        self.shared.journal.is_suspect() || fua && self.shared.journal.has_unflushed()
    }

    /// Encrypts the data of a write, and has those of a read decrypted when it completes. The
    /// request is for the namespace's bytes from `offset` on, and its memory is one buffer: others
    /// went to the drive's thread.
    #[cold]
    fn encrypt(&self, cipher: &Arc<Cipher>, offset: u64, request: &mut Request) {
        let (first, block_bytes) = self.first_block(offset);
        match &mut request.operation {
            Operation::Write { len, data, .. } => {
                if let Some(buffer) = data.as_mut_buffer() {
                    cipher.encrypt(first, block_bytes, &mut buffer.as_mut_slice()[..*len]);
                }
            }
            Operation::Read { len, .. } => {
                let cipher = Arc::clone(cipher);
                let len = *len;
                let decrypt =
                    |above| Arc::new(Decrypt { cipher, first, block_bytes, len, above }) as Arc<dyn CompletionHook>;
                request.hook = request.hook.take().map(decrypt);
            }
            Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => {}
        }
    }

    /// Undoes [`encrypt`](Self::encrypt), for a request that the backing device did not accept.
    #[cold]
    pub(crate) fn undo_encrypt(&self, cipher: &Cipher, offset: u64, request: &mut Request) {
        let (first, block_bytes) = self.first_block(offset);
        if let Operation::Write { len, data, .. } = &mut request.operation
            && let Some(buffer) = data.as_mut_buffer()
        {
            cipher.decrypt(first, block_bytes, &mut buffer.as_mut_slice()[..*len]);
        }
    }

    /// The block that begins at byte `offset`, and the bytes of a block.
    pub(crate) fn first_block(&self, offset: u64) -> (u64, usize) {
        let block_bytes = self.geometry.logical_block_bytes;
        (offset / u64::from(block_bytes), block_bytes as usize)
    }

    /// Leaves a request to the drive's thread.
    pub(crate) fn defer(self: &Arc<Self>, io: &mut Io, request: Request) -> Submitted {
        let Some(remote) = io.remote() else { return Submitted::Busy(request) };
        self.shared.send(DeferredRequest::new(Arc::clone(self), request, remote));
        Submitted::Pending
    }

    /// Leaves a flush to the thread that writes a mark after it.
    #[cold]
    fn defer_flush(self: &Arc<Self>, io: &mut Io, request: Request) -> Submitted {
        let Some(remote) = io.remote() else { return Submitted::Busy(request) };
        self.shared.send_flush(DeferredRequest::new(Arc::clone(self), request, remote));
        Submitted::Pending
    }
}

/// A refusal of `operation`.
pub(crate) fn refused(operation: &Operation, class: Class, reason: &'static str) -> Error {
    let (offset, len) = match operation {
        Operation::Read { offset, len, .. } | Operation::Write { offset, len, .. } => (*offset, *len as u64),
        Operation::WriteZeroes { offset, len, .. } => (*offset, *len),
        Operation::Flush | Operation::Deallocate { .. } => (0, 0),
    };
    Error::Refused { action: operation.action(), offset, len, class, reason }
}

/// The error for an operation that comes when the drive's thread has ended.
pub(crate) fn stopped(operation: &Operation) -> Error {
    refused(operation, Class::Gone, "the drive is being closed")
}

/// Whether the memory of an operation is not one buffer: a block may lie in two of several
/// segments, and shared memory cannot be computed on.
#[cold]
fn is_scattered(operation: &Operation) -> bool {
    match operation {
        Operation::Read { data, .. } | Operation::Write { data, .. } => data.as_buffer().is_none(),
        Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => false,
    }
}

/// Makes the error for a request that is refused.
pub(crate) type Refusal = fn(&Operation) -> Error;

/// The device of a namespace: an [`Arc`] of its own, so that requests can be handed to another
/// thread.
#[derive(Debug)]
pub(crate) struct ThinDevice(pub(crate) Arc<Thin>);

impl Device for ThinDevice {
    fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    fn submit(&self, io: &mut Io, mut request: Request) -> Submitted {
        let thin = &self.0;
        if let Err(error) = thin.check(&request.operation) {
            return Submitted::Done(request.complete(Err(error)));
        }
        if matches!(request.operation, Operation::Flush) {
            thin.count_flush();
            if thin.is_unsettled() {
                return thin.defer(io, request);
            }
            if thin.is_unmarked() {
                return thin.defer_flush(io, request);
            }
        } else if thin.may_be_in_flux && !thin.shared.read_only {
            return checked::submit(thin, io, request);
        } else if thin.is_tagged || thin.cipher.is_some() && is_scattered(&request.operation) {
            return thin.defer(io, request);
        }
        // Held until the request completes, and taken before the map is read: extents that are
        // freed meanwhile are not allocated again while a request holds the epoch.
        let epoch = thin.shared.epoch();
        let logical = offset_of(&mut request.operation).map(|offset| *offset);
        match &mut request.operation {
            Operation::Read { offset, len, data } => match thin.translate(*offset, *len as u64) {
                Location::Unmapped => {
                    data.clear(0..*len);
                    return Submitted::Done(request.complete(Ok(())));
                }
                Location::Contiguous(at) => *offset = at,
                Location::Fragmented => return thin.defer(io, request),
            },
            Operation::Write { offset, len, fua, .. } => match thin.translate(*offset, *len as u64) {
                _ if *len == 0 => return Submitted::Done(request.complete(Ok(()))),
                Location::Contiguous(at) if !thin.is_bad_at(*offset, *len as u64) && !thin.must_defer_write(*fua) => {
                    *offset = at;
                }
                _ => return thin.defer(io, request),
            },
            Operation::Flush => {}
            Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => return thin.defer(io, request),
        }
        let above = request.hook.take();
        request.hook = Some(match above.clone() {
            None => epoch,
            Some(above) => Arc::new(ChainedHooks { epoch, above }),
        });
        if let (Some(cipher), Some(logical)) = (&thin.cipher, logical) {
            thin.encrypt(cipher, logical, &mut request);
        }
        match thin.shared.base.submit(io, request) {
            // The map may have changed when the caller tries again: it gets its request back as it
            // was.
            Submitted::Busy(mut request) => {
                request.hook = above;
                if let (Some(cipher), Some(logical)) = (&thin.cipher, logical) {
                    thin.undo_encrypt(cipher, logical, &mut request);
                }
                if let (Some(offset), Some(logical)) = (offset_of(&mut request.operation), logical) {
                    *offset = logical;
                }
                Submitted::Busy(request)
            }
            submitted => submitted,
        }
    }

    fn uses(&self, memory: &Segments) -> bool {
        // Ciphers and tags are computed on the bytes.
        let computes = self.0.is_tagged || self.0.cipher.is_some();
        memory.as_buffer().is_some() || !computes && self.0.shared.base.uses(memory)
    }

    fn describe(&self) -> String {
        let size = format_size(self.0.geometry.capacity_bytes);
        format!("instance {} of a drive, {size}, on {}", self.0.volume.0, self.0.shared.base.describe())
    }
}

impl fmt::Debug for Thin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thin").field("volume", &self.volume).field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

/// The offset of a read or write.
fn offset_of(operation: &mut Operation) -> Option<&mut u64> {
    match operation {
        Operation::Read { offset, .. } | Operation::Write { offset, .. } => Some(offset),
        Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => None,
    }
}
