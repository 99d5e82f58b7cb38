//! A thin namespace as a block device: the quick way for what is allocated, the drive's thread for
//! everything else.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ebof_backend::{Class, CompletionHook, Device, Error, Geometry, Io, Operation, Request, Submitted, format_size};
use ebof_drive::BlockFormat;
use ebof_drive::map::{ExtentMap, Run as Places};

use crate::VolumeId;
use crate::bad_blocks::BadBlocks;
use crate::block_layout::BlockLayout;
use crate::crypt::{Cipher, Decrypt};
use crate::shared::{ChainedHooks, DeferredRequest, Shared};

/// A thin namespace.
pub struct Thin {
    pub(crate) shared: Arc<Shared>,
    pub(crate) volume: VolumeId,
    pub(crate) map: ExtentMap,
    /// Extents that it may have.
    pub(crate) quota: u32,
    /// Extents that it has.
    pub(crate) used: AtomicU32,
    /// It is not on the medium any more.
    pub(crate) removed: AtomicBool,
    /// How its blocks are kept, and where.
    pub(crate) block_format: BlockFormat,
    /// What encrypts them, if anything does.
    pub(crate) cipher: Option<Arc<Cipher>>,
    pub(crate) block_layout: BlockLayout,
    /// Its blocks have tags: the drive's thread does everything.
    pub(crate) is_tagged: bool,
    /// Where the journal was when it last said something of this namespace
    /// ([`Point::pack`](crate::journal::Point::pack)).
    touched: AtomicU64,
    bad_blocks: RwLock<BadBlocks>,
    /// Whether any block is bad, so that the others need no lock.
    has_bad: AtomicBool,
    geometry: Geometry,
}

/// A part of a namespace of which all or nothing is allocated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where, in bytes.
    pub range: Range<u64>,
    /// Whether the medium holds something for it; otherwise it reads as zeros.
    pub allocated: bool,
}

/// Extents that a namespace has at most, with or without places: its table takes 4 bytes for each,
/// 256 MiB at most.
pub(crate) const INDEX_MAX: u32 = 1 << 26;

/// Extents, or groups of them, that are looked at for one answer about what is allocated. More than
/// there are groups in the largest namespace: an empty one is looked through whole.
pub(crate) const LOOKS_MAX: u32 = 1 << 17;

/// Where the bytes of a request are.
enum Place {
    /// Nowhere: they are zeros.
    Nowhere,
    /// In one piece from there on.
    At(u64),
    /// In several, or not yet.
    Elsewhere,
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
            touched: AtomicU64::new(shared.journal.position()),
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

    /// What is allocated in a range of bytes, in order and without gaps; at most `runs_max` runs,
    /// from the beginning, and no more than a look of bounded length finds ([`LOOKS_MAX`]). What
    /// lies beyond the end is not in them.
    #[must_use]
    pub fn allocated(&self, range: Range<u64>, runs_max: usize) -> Vec<Run> {
        let span_bytes = self.block_layout.span_bytes;
        let end = range.end.min(self.geometry.capacity_bytes);
        let last = self.index(end.saturating_sub(1)).saturating_add(1);
        let mut looks = LOOKS_MAX;
        let mut runs: Vec<Run> = Vec::new();
        let mut at = range.start;
        while at < end && runs.len() < runs_max && looks > 0 {
            let index = self.index(at);
            let allocated = self.map.place(index).is_some();
            let next =
                u64::from(self.map.seek(index, last, !allocated, &mut looks)).saturating_mul(span_bytes).min(end);
            // Where the map has changed meanwhile, or the last look was the last that is allowed.
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
        blocks.min(self.blocks_of_it()) * self.block_layout.data_bytes
    }

    /// Extents of the medium that it has.
    #[must_use]
    pub fn allocated_extents(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes of its blocks, with their metadata, that one extent holds. Less than an extent has
    /// where blocks have tags.
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

    /// Takes the places of extents; gives them: extent, and its place.
    pub(crate) fn unmap(&self, range: Range<u32>) -> Vec<(u32, u32)> {
        let mut taken = Vec::new();
        let mut at = self.map.next(range.start, range.end, true);
        while at < range.end {
            taken.extend(self.map.set(at, None).map(|place| (at, place)));
            at = self.map.next(at + 1, range.end, true);
        }
        taken
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

    /// Whether the bytes touch bad blocks.
    pub(crate) fn is_bad_at(&self, offset: u64, len: u64) -> bool {
        self.has_bad.load(Ordering::Acquire) && self.bad_blocks().touches(&self.blocks(offset, len))
    }

    pub(crate) fn blocks(&self, offset: u64, len: u64) -> Range<u64> {
        let block = u64::from(self.geometry.logical_block_bytes);
        offset / block..(offset + len).div_ceil(block)
    }

    /// How many blocks it has.
    pub(crate) fn blocks_of_it(&self) -> u64 {
        self.geometry.capacity_bytes / u64::from(self.geometry.logical_block_bytes)
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.geometry.capacity_bytes
    }

    /// Number of the extent that holds byte `offset`.
    pub(crate) fn index(&self, offset: u64) -> u32 {
        u32::try_from(offset / self.block_layout.span_bytes).unwrap_or(u32::MAX)
    }

    /// How far from the beginning of a range of bytes so many extents with places reach, and so
    /// many looks, which are both counted down: to the end of an extent, or of the range. Never
    /// nowhere.
    pub(crate) fn reach(&self, range: Range<u64>, extents: &mut u32, looks: &mut u32) -> u64 {
        let span_bytes = self.block_layout.span_bytes;
        let last = self.index(range.end.saturating_sub(1)).saturating_add(1);
        let at = self.reach_extents(self.index(range.start)..last, extents, looks);
        u64::from(at).saturating_mul(span_bytes).min(range.end)
    }

    /// The same for a range of extents.
    pub(crate) fn reach_extents(&self, range: Range<u32>, extents: &mut u32, looks: &mut u32) -> u32 {
        let mut at = range.start;
        while at < range.end && *extents > 0 && *looks > 0 {
            at = self.map.seek(at, range.end, true, looks);
            if at < range.end && *looks > 0 {
                // This one has a place.
                *extents -= 1;
                at += 1;
            }
        }
        // Where looks ended before an extent was found.
        at.max(range.start.saturating_add(1))
    }

    fn place(&self, offset: u64, len: u64) -> Place {
        if len == 0 {
            return Place::Nowhere;
        }
        let (first, last) = (self.index(offset), self.index(offset + len - 1));
        match self.map.run(first, last - first + 1) {
            Places::Empty => Place::Nowhere,
            Places::Together(extent) => {
                Place::At(self.shared.layout.extent(extent) + offset % self.shared.layout.extent_bytes)
            }
            Places::Mixed => Place::Elsewhere,
        }
    }

    /// What is wrong with it, as its geometry and the medium's state say.
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

    /// Whether a read is of what nobody knows, because a part of the journal is lost: what was
    /// given a place may have had one in that part, and what has one may have lost it.
    #[cold]
    fn is_unknown(&self, operation: &Operation) -> bool {
        let Operation::Read { offset, len, .. } = operation else { return false };
        let Some(last) = (*len as u64).checked_sub(1) else { return false };
        let mut indices = self.index(*offset)..=self.index(*offset + last);
        self.shared.hides_unchecked && !self.is_tagged || indices.any(|index| self.map.place(index).is_none())
    }

    /// The journal has said something of this namespace, and is at this position now.
    pub(crate) fn touch(&self, position: u64) {
        self.touched.store(position, Ordering::Release);
    }

    /// Whether the medium has to say what a flush makes durable: the journal has said something of
    /// this namespace since it did.
    fn is_unmarked(&self) -> bool {
        !self.shared.journal.is_marked(self.touched.load(Ordering::Acquire))
    }

    /// Whether a write to an extent that has its place is the drive's thread's all the same.
    fn is_delicate(&self, fua: bool) -> bool {
        // What has become of a record that failed has to be settled first; and bytes are not
        // durable before the record of their extent is.
        self.shared.journal.is_suspect() || fua && self.shared.journal.has_unflushed()
    }

    /// Makes of a request from byte `asked` on what the backing device may see.
    #[cold]
    fn encrypt(&self, cipher: &Arc<Cipher>, asked: u64, request: &mut Request) {
        let (first, block_bytes) = self.unit(asked);
        match &mut request.operation {
            Operation::Write { len, data, .. } => {
                data.for_each_mut(0..*len, |bytes| cipher.encrypt(first, block_bytes, bytes));
            }
            Operation::Read { len, .. } => {
                let (cipher, len) = (Arc::clone(cipher), *len);
                let decrypt =
                    |above| Arc::new(Decrypt { cipher, first, block_bytes, len, above }) as Arc<dyn CompletionHook>;
                request.hook = request.hook.take().map(decrypt);
            }
            Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => {}
        }
    }

    /// Undoes that, for a request that was not taken.
    #[cold]
    fn take_back(&self, cipher: &Cipher, asked: u64, request: &mut Request) {
        let (first, block_bytes) = self.unit(asked);
        if let Operation::Write { len, data, .. } = &mut request.operation {
            data.for_each_mut(0..*len, |bytes| cipher.decrypt(first, block_bytes, bytes));
        }
    }

    /// The block that begins at a byte, and the bytes of a block.
    pub(crate) fn unit(&self, offset: u64) -> (u64, usize) {
        let block_bytes = self.geometry.logical_block_bytes;
        (offset / u64::from(block_bytes), block_bytes as usize)
    }

    /// Has the drive's thread do it.
    fn hand_over(self: &Arc<Self>, io: &mut Io, request: Request) -> Submitted {
        let Some(remote) = io.remote() else { return Submitted::Busy(request) };
        let deferred = DeferredRequest::new(Arc::clone(self), request, remote);
        if let Err(deferred) = self.shared.send(deferred) {
            deferred.finish(Err(stopped));
        }
        Submitted::Pending
    }

    /// Has it done where the medium is told of it.
    #[cold]
    fn hand_over_flush(self: &Arc<Self>, io: &mut Io, request: Request) -> Submitted {
        let Some(remote) = io.remote() else { return Submitted::Busy(request) };
        let deferred = DeferredRequest::new(Arc::clone(self), request, remote);
        if let Err(deferred) = self.shared.send_flush(deferred) {
            deferred.finish(Err(stopped));
        }
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

/// What the end of the drive's thread means to an operation.
pub(crate) fn stopped(operation: &Operation) -> Error {
    refused(operation, Class::Gone, "the drive is being closed")
}

/// Whether the memory of an operation is in several segments: a block may be in two of them.
#[cold]
fn is_scattered(operation: &Operation) -> bool {
    match operation {
        Operation::Read { data, .. } | Operation::Write { data, .. } => data.as_buffer().is_none(),
        Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => false,
    }
}

/// What makes errors of requests where they are handed back.
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
            if thin.is_unmarked() {
                return thin.hand_over_flush(io, request);
            }
        } else if thin.is_tagged || thin.cipher.is_some() && is_scattered(&request.operation) {
            return thin.hand_over(io, request);
        }
        // Held until the request is over. It has to be had before the map is looked at: extents
        // that are given back are not used again while anybody has it.
        let epoch = thin.shared.epoch();
        let asked = offset_of(&mut request.operation).map(|offset| *offset);
        match &mut request.operation {
            Operation::Read { offset, len, data } => match thin.place(*offset, *len as u64) {
                Place::Nowhere => {
                    data.for_each_mut(0..*len, |part| part.fill(0));
                    return Submitted::Done(request.complete(Ok(())));
                }
                Place::At(at) => *offset = at,
                Place::Elsewhere => return thin.hand_over(io, request),
            },
            Operation::Write { offset, len, fua, .. } => match thin.place(*offset, *len as u64) {
                _ if *len == 0 => return Submitted::Done(request.complete(Ok(()))),
                Place::At(at) if !thin.is_bad_at(*offset, *len as u64) && !thin.is_delicate(*fua) => *offset = at,
                _ => return thin.hand_over(io, request),
            },
            Operation::Flush => {}
            Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => return thin.hand_over(io, request),
        }
        let above = request.hook.take();
        request.hook = Some(match above.clone() {
            None => epoch,
            Some(above) => Arc::new(ChainedHooks { epoch, above }),
        });
        if let (Some(cipher), Some(asked)) = (&thin.cipher, asked) {
            thin.encrypt(cipher, asked, &mut request);
        }
        match thin.shared.base.submit(io, request) {
            // The caller may come back when the map is another one: it gets back what it gave.
            Submitted::Busy(mut request) => {
                request.hook = above;
                if let (Some(cipher), Some(asked)) = (&thin.cipher, asked) {
                    thin.take_back(cipher, asked, &mut request);
                }
                if let (Some(offset), Some(asked)) = (offset_of(&mut request.operation), asked) {
                    *offset = asked;
                }
                Submitted::Busy(request)
            }
            submitted => submitted,
        }
    }

    fn describe(&self) -> String {
        let size = format_size(self.0.geometry.capacity_bytes);
        format!("namespace {} of a drive, {size}, on {}", self.0.volume.0, self.0.shared.base.describe())
    }
}

impl fmt::Debug for Thin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thin").field("volume", &self.volume).field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

/// Where a transfer begins.
fn offset_of(operation: &mut Operation) -> Option<&mut u64> {
    match operation {
        Operation::Read { offset, .. } | Operation::Write { offset, .. } => Some(offset),
        Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => None,
    }
}
