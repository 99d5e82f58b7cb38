//! A drive's medium, as the drive's thread uses it: calls return when they are done.
//!
//! Puts the parts together: the order of writes among them, the replay of the journal into them,
//! and the jobs that the drive's thread does with all of them in the background.

pub(crate) mod batch;
pub(crate) mod jobs;
pub(crate) mod order;
pub(crate) mod owner;
pub(crate) mod purge;
pub(crate) mod replay;
pub(crate) mod retry;
#[cfg(test)]
mod room;
mod settle;

use std::ops::Range;
use std::sync::Arc;

use ebof_backend::{Buffer, Class, Completion, Device, Operation, Request};
use ebof_drive::BlockFormat;
use ebof_drive::frame::{CHANGE_BYTES_MAX, Record};
use ebof_drive::layout::{Layout, SUPERBLOCK_BYTES, Superblock};

use crate::disk::Disk;
use crate::journal::found::Found;
use crate::journal::recovery;
use crate::keys::Keys;
use crate::store::batch::item::WaitFor;
use crate::store::batch::locks::BatchLocks;
use crate::store::batch::{Batch, Outcome};
use crate::store::jobs::Jobs;
use crate::store::order::WriteOrder;
use crate::store::owner::OwnerState;
use crate::store::purge::Purge;
use crate::store::replay::Replay;
use crate::store::retry::RetryFaults;
use crate::store::settle::Settling;
use crate::tags::Tags;
use crate::thin::bad_blocks::BadBlocks;
use crate::thin::shared::{AwaitedBlocks, Shared};
use crate::thin::{INDEX_MAX, ThinDevice, refused};
use crate::{Error, Job, OpenError, Options, Thin, VolumeId};

/// Namespaces on a medium at most.
pub(crate) const NAMESPACES_MAX: usize = 4096;
/// Bytes of changes that are committed together at most.
const COMMIT_BYTES_MAX: usize = 4 << 20;
/// Bytes of one write of [`Store::fill_free`].
const FILL_BYTES: u64 = 1 << 20;

/// A drive's medium. Used by the drive's thread only.
pub struct Store {
    pub(crate) order: WriteOrder,
    keys: Keys,
    pub(crate) jobs: Jobs,
    /// Blocks for which [`execute`](Self::execute) has failed last, until it is called again: of
    /// the job whose step is being done.
    pub(crate) awaited: Option<AwaitedBlocks>,
}

impl Store {
    /// Builds the store of a medium that was found.
    pub(crate) fn restore(mut disk: Disk, found: Found, options: &Options) -> Result<Self, OpenError> {
        let keys = Keys::open(&mut disk, found.layout, options.key.clone())?;
        let shared = Shared::new(Arc::clone(disk.base()), found.layout, found.lost.as_ref(), options);
        let name = disk.base().describe();
        let damaged = |what: String| OpenError::Damaged { device: name.clone(), what };
        let mut journal = found.journal;
        let mut tags = Tags::new(&shared);
        let mut replay = Replay::new(&shared, &keys, &mut journal, &mut tags);
        for (frame, record) in &found.records {
            replay.apply(*frame, record).map_err(damaged)?;
        }
        for record in found.lost.iter().flat_map(|lost| &lost.later) {
            replay.apply_behind_damage(record);
        }
        let extents = replay.finish().map_err(damaged)?;
        let settling = Settling::new(&shared);
        let owner = OwnerState::new(found.state, found.changes);
        let mut order = WriteOrder { shared, disk, journal, extents, tags, settling, owner };
        // It is not known what was flushed: the first flush of each namespace writes a mark.
        let thins = order.shared.thins();
        order.publish(thins.iter());
        order.settling.found_in_flux(&order.tags);
        Ok(Self { order, keys, jobs: Jobs::default(), awaited: None })
    }

    /// Begins a new incarnation of the drive. Errors are logged: what failed is tried again later.
    pub(crate) fn begin(&mut self) {
        if let Err(error) = self.forget_keys() {
            tracing::error!("the keys of the drive cannot be written: {error}");
        }
        if let Err(error) = self.order.settle_journal() {
            tracing::error!("the journal of the drive cannot be written: {error}");
        }
        if self.order.journal.needs_checkpoint()
            && let Err(error) = self.order.checkpoint(false)
        {
            tracing::error!("the damaged checkpoint of the drive cannot be replaced: {error}");
        }
        self.order.publish(self.order.shared.thins().iter());
    }

    /// Makes changes durable: all of them or, after an error, none. They come back from
    /// [`open`](crate::open) until a snapshot has taken their place. At most 1 MiB each, and 4 MiB
    /// together.
    ///
    /// # Errors
    /// `TooLarge`, or `Device`: nothing of it has happened, and nothing has to be restarted when
    /// the cause is gone.
    pub fn commit(&mut self, changes: &[&[u8]]) -> Result<(), Error> {
        let each = changes.iter().map(|change| (change.len(), CHANGE_BYTES_MAX));
        let all = changes.iter().map(|change| change.len()).sum();
        for (bytes, bytes_max) in each.chain([(all, COMMIT_BYTES_MAX)]) {
            if bytes > bytes_max {
                return Err(Error::TooLarge { bytes, bytes_max });
            }
        }
        let records: Vec<Record> = changes.iter().map(|change| Record::Change(change.to_vec())).collect();
        self.order.append(&records, true)?;
        self.order.owner.committed(changes);
        Ok(())
    }

    /// Makes a namespace of `blocks`, which may allocate what `capacity_blocks` take (rounded up to
    /// extents). Durable when it returns. Blocks have a multiple of the bytes of the backing
    /// device's.
    ///
    /// # Errors
    /// `Exists`, `TooBig`, `TooMany`, `BlockSize` or `Device`.
    pub fn create(
        &mut self,
        volume: VolumeId,
        blocks: u64,
        capacity_blocks: u64,
        block_format: BlockFormat,
    ) -> Result<Arc<dyn Device>, Error> {
        if self.order.shared.thin(volume).is_some() {
            return Err(Error::Exists(volume));
        }
        if self.order.shared.volumes().len() >= NAMESPACES_MAX {
            return Err(Error::TooMany { what: "namespaces", max: NAMESPACES_MAX });
        }
        let bytes_min = self.order.shared.base.geometry().block_bytes;
        if !block_format.is_legal() || block_format.data_bytes() < u64::from(bytes_min) {
            let bytes = u32::try_from(block_format.data_bytes()).unwrap_or(u32::MAX);
            return Err(Error::BlockSize { bytes, bytes_min });
        }
        let extent_bytes = self.order.shared.layout.extent_bytes;
        let quota = u32::try_from(block_format.extents(capacity_blocks, extent_bytes)).unwrap_or(u32::MAX);
        let cipher = if block_format.encrypted { Some(self.keys.make(&mut self.order.disk, volume)?) } else { None };
        let thin = Thin::new(&self.order.shared, volume, blocks, quota, block_format, cipher);
        let size_bytes = blocks.saturating_mul(block_format.data_bytes());
        let bytes_max = extent_bytes.saturating_mul(u64::from(INDEX_MAX));
        let record = Record::Create { volume, blocks, quota, block_format };
        let made = thin.ok_or(Error::TooBig { size_bytes, bytes_max }).and_then(|thin| {
            self.order.append(&[record], true)?;
            Ok(Arc::new(thin))
        });
        match made {
            Ok(thin) => {
                self.order.shared.insert(Arc::clone(&thin));
                self.order.publish(std::iter::once(&thin));
                Ok(Arc::new(ThinDevice(thin)))
            }
            Err(error) => {
                if block_format.encrypted {
                    // Its key is destroyed by the next maintenance.
                    self.keys.mark_stale();
                }
                Err(error)
            }
        }
    }

    /// Removes a namespace, durably. Requests that are under way end; later ones find it gone. Its
    /// extents are given back in the background, some thousands at a time, and zeroed before they
    /// are used again; if it was encrypted, its key is destroyed before this returns, or as soon as
    /// that is possible ([`owes_keys`](Self::owes_keys)).
    ///
    /// # Errors
    /// `Unknown` or `Device`.
    pub fn remove(&mut self, volume: VolumeId) -> Result<(), Error> {
        let thin = self.order.shared.thin(volume).ok_or(Error::Unknown(volume))?;
        self.order.append(&[Record::Remove(volume)], true)?;
        self.order.shared.remove(volume);
        self.order.tags.forget_namespace(volume);
        self.order.extents.release_all(Arc::clone(&thin));
        if thin.block_format.encrypted
            && let Err(error) = self.forget_keys()
        {
            tracing::error!(
                "the key of a namespace that was removed is still on the medium, until the next try: {error}"
            );
        }
        Ok(())
    }

    /// Whether keys of removed namespaces may still be on the medium: destroying them has failed,
    /// and is tried again.
    #[must_use]
    pub fn owes_keys(&self) -> bool {
        self.keys.is_stale()
    }

    /// Destroys the keys of namespaces that are not on the medium any more.
    ///
    /// # Errors
    /// `Device`: they may still be there; the next call tries again.
    pub fn forget_keys(&mut self) -> Result<(), Error> {
        let shared = Arc::clone(&self.order.shared);
        Ok(self.keys.retain(&mut self.order.disk, |volume| shared.thin(volume).is_some())?)
    }

    /// Unmaps all extents of a namespace, durably: it reads as zeros, and has no bad blocks. Takes
    /// about 20 ns for each extent, in one step.
    ///
    /// # Errors
    /// `Unknown` or `Device`.
    pub fn clear(&mut self, volume: VolumeId) -> Result<(), Error> {
        let thin = self.order.shared.thin(volume).ok_or(Error::Unknown(volume))?;
        self.order.append(&[Record::Clear(volume)], true)?;
        thin.change_bad_blocks(BadBlocks::clear);
        self.order.release(&thin, 0..thin.map.len());
        self.order.tags.forget_namespace(volume);
        Ok(())
    }

    /// Marks blocks bad, durably: reading them fails as
    /// [`Class::MediumRead`](ebof_backend::Class::MediumRead) until they are written, zeroed or
    /// deallocated.
    ///
    /// # Errors
    /// `Unknown`, `TooMany` or `Device` (out of range).
    pub fn mark_bad(&mut self, volume: VolumeId, blocks: Range<u64>) -> Result<(), Error> {
        let thin = self.order.shared.thin(volume).ok_or(Error::Unknown(volume))?;
        if self.order.bad_ranges() >= BadBlocks::MAX {
            return Err(Error::TooMany { what: "ranges of bad blocks", max: BadBlocks::MAX });
        }
        let count = blocks.end.saturating_sub(blocks.start);
        let geometry = ThinDevice(Arc::clone(&thin)).geometry();
        let block = u64::from(geometry.logical_block_bytes);
        let offset = blocks.start.saturating_mul(block);
        let len = count.saturating_mul(block);
        geometry.check_transfer(ebof_backend::Action::Write, offset, len)?;
        let record = Record::Bad { volume, start: blocks.start, blocks: count, bad: true };
        self.order.append(&[record], true)?;
        thin.change_bad_blocks(|bad| bad.add(blocks));
        Ok(())
    }

    /// Bytes of memory that the cached tags of blocks take.
    #[must_use]
    pub fn tag_cache_bytes(&self) -> usize {
        self.order.tags.bytes()
    }

    /// The namespace with this name.
    #[must_use]
    pub fn thin(&self, volume: VolumeId) -> Option<Arc<Thin>> {
        self.order.shared.thin(volume)
    }

    /// Starts a background job. Jobs take turns, a step at a time.
    pub fn start(&mut self, job: Box<dyn Job>) {
        self.jobs.start(job, self.order.shared.clock.now());
    }

    /// Sets the callback that returns the owner's state for a checkpoint. The state must include
    /// every change that is committed, and no others; there is room for at least
    /// [`STATE_BYTES_MAX`](ebof_drive::budget::STATE_BYTES_MAX) bytes. Called on the drive's
    /// thread.
    pub fn set_snapshot(&mut self, snapshot: Box<dyn Fn() -> Vec<u8>>) {
        self.order.owner.set_snapshot(snapshot);
    }

    /// Extents of the medium, free or not.
    #[must_use]
    pub fn extents(&self) -> u32 {
        self.order.shared.layout.extents()
    }

    /// Whether no request can access freed extents any more, and none of them is being zeroed.
    pub fn is_reclaimed(&mut self) -> bool {
        self.order.extents.reclaim().is_none() && !self.order.extents.is_zeroing()
    }

    /// Has some freed extents zeroed in the background. `true` when all of them are zeroed, and no
    /// request can access them.
    ///
    /// # Errors
    /// `Device`.
    pub fn clean(&mut self) -> Result<bool, Error> {
        // In this order: extents that have just become free are to be zeroed, too.
        let reclaimed = self.is_reclaimed();
        Ok(!self.order.start_zeroing()? && reclaimed)
    }

    /// How many freed extents may still hold their old bytes.
    #[must_use]
    pub fn unclean(&self) -> u32 {
        self.order.extents.unclean()
    }

    /// Freed extents keep their storage (`true`) until [`fill_free`](Self::fill_free) has
    /// overwritten them, instead of being zeroed in the background: a file system or a disk may
    /// keep the old bytes of storage that was given back to it, where they cannot be overwritten.
    pub fn hold_unclean(&mut self, held: bool) {
        self.order.extents.set_keeps_dirty(held);
    }

    /// Bytes of extents, at most, that were used and whose storage was given back to the backing
    /// device: their old bytes may still exist where [`fill_free`](Self::fill_free) cannot
    /// overwrite them. 0 if the backing device cannot deallocate.
    #[must_use]
    pub fn given_back_bytes(&self) -> u64 {
        self.order.extents.given_back_bytes()
    }

    /// Zeroes the free ones of `count` extents from `first` on. Those above the high-water mark are
    /// zeros already.
    ///
    /// # Errors
    /// `Device`: some of them may be zeroed.
    pub fn zero_free(&mut self, first: u32, count: u32) -> Result<(), Error> {
        // A failed record that is on the medium all the same may map one of them.
        self.order.settle_journal()?;
        let end = first.saturating_add(count).min(self.order.extents.high_water());
        let taken = self.order.extents.take_free(first..end);
        let layout = self.order.shared.layout;
        let ranges = taken.iter().map(|&extent| (layout.extent(extent), layout.extent_bytes));
        // Before an extent can be allocated: a power loss must not bring back its old bytes.
        let zeroed = self.order.disk.zero(ranges, true).and_then(|()| self.order.flush());
        for extent in taken {
            self.order.extents.put_back(extent, zeroed.is_ok());
        }
        Ok(zeroed?)
    }

    /// Writes `pattern`, least significant byte first, over the free ones of `count` extents from
    /// `first` on; they are zeroed before they are used.
    ///
    /// # Errors
    /// `Device`: some of them may have been overwritten.
    pub fn fill_free(&mut self, first: u32, count: u32, pattern: u32) -> Result<(), Error> {
        self.order.settle_journal()?;
        let end = first.saturating_add(count).min(self.extents());
        if end > self.order.extents.high_water() {
            // After a power loss they count as dirty.
            self.order.append(&[Record::HighWater(end)], true)?;
            self.order.extents.raise(end);
        }
        let layout = self.order.shared.layout;
        let taken = self.order.extents.take_free(first..end);
        let piece = layout.extent_bytes.min(FILL_BYTES);
        let writes = taken.iter().flat_map(|&extent| (0..layout.extent_bytes / piece).map(move |at| (extent, at)));
        let mut operations = Vec::new();
        for (extent, at) in writes {
            let len = usize::try_from(piece).expect("at most 1 MiB");
            let mut buffer = Buffer::zeroed(len);
            buffer.as_mut_slice()[..len].chunks_exact_mut(4).for_each(|to| to.copy_from_slice(&pattern.to_le_bytes()));
            operations.push(Operation::Write {
                offset: layout.extent(extent) + at * piece,
                len,
                data: buffer.into(),
                fua: false,
            });
        }
        let written = self.order.disk.run(operations).into_iter().try_for_each(|completion| completion.result);
        taken.into_iter().for_each(|extent| self.order.extents.put_back(extent, false));
        Ok(written?)
    }

    /// Makes everything that was written so far durable, and writes back tags that are only in
    /// memory and in the journal.
    ///
    /// # Errors
    /// `Device`.
    pub fn sync(&mut self) -> Result<(), Error> {
        self.order.settle_all()?;
        self.order.tags.write_back(&mut self.order.disk, &mut self.order.journal)?;
        self.order.flush()?;
        self.order.mark();
        Ok(())
    }

    /// Reads superblocks, checkpoint and journal as recovery would, and checks that they are whole.
    ///
    /// # Errors
    /// What is damaged.
    pub fn check(&mut self) -> Result<(), OpenError> {
        let layout = self.order.shared.layout;
        let device = self.order.disk.base().describe();
        let both = self.order.disk.read(0, 2 * SUPERBLOCK_BYTES);
        let both = both.map_err(|source| OpenError::Device { device: device.clone(), source })?;
        let mut copies = both.as_slice()[..2 * SUPERBLOCK_BYTES].chunks_exact(SUPERBLOCK_BYTES);
        if !copies.any(|block| Layout::decode(block) == Superblock::Drive(layout)) {
            return Err(OpenError::Damaged { device, what: "neither superblock can be read".to_owned() });
        }
        recovery::check(&mut self.order.disk, layout, &self.order.journal)
    }

    /// Overwrites what journals and checkpoints have kept of namespaces that were removed or
    /// cleared before the first step: checksums and metadata of their blocks. Does about 8 MiB of
    /// it; `true` when all of it is done, durably. Requests may be served between two steps.
    ///
    /// # Errors
    /// `Device`: the next call goes on where this one failed.
    pub fn purge(&mut self, purge: &mut Purge) -> Result<bool, Error> {
        purge.step(&mut self.order)
    }

    /// Runs one operation on a namespace to its end. At most a few MiB: the drive's thread does
    /// nothing else meanwhile. Fails with [`Class::Busy`] while another thread reads or writes
    /// blocks of it that have checksums. A job that calls it again then is not overtaken for ever:
    /// other threads do not begin anything with these blocks before.
    pub fn execute(&mut self, volume: VolumeId, operation: Operation) -> Completion {
        let request = Request::new(0, operation);
        match self.order.shared.thin(volume) {
            Some(thin) => execute(self, &thin, request),
            None => {
                let error = refused(&request.operation, Class::Gone, "the namespace was deleted");
                request.complete(Err(error))
            }
        }
    }

    /// Takes the new failures of the backing device, notifies the owner of new faults, and starts a
    /// job that retries them.
    pub(crate) fn check_faults(&mut self) {
        if self.order.check_faults() {
            self.start(Box::new(RetryFaults));
        }
    }

    /// Whether [`maintain`](Self::maintain) has something to do.
    pub(crate) fn needs_maintenance(&self) -> bool {
        (self.order.needs_maintenance() || self.owes_keys()) && !self.is_read_only()
    }

    /// Does a part of the maintenance: settles the journal, destroys keys, recovers tags, zeroes
    /// freed extents.
    pub(crate) fn maintain(&mut self) -> Result<(), Error> {
        self.order.settle_journal()?;
        if self.owes_keys() {
            self.forget_keys()?;
        }
        self.order.maintain()
    }

    /// Whether the drive is damaged, and therefore never written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.order.shared.read_only
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("layout", &self.order.shared.layout)
            .field("journal", &self.order.journal)
            .finish_non_exhaustive()
    }
}

/// Runs a batch of one request.
fn execute(store: &mut Store, thin: &Arc<Thin>, request: Request) -> Completion {
    let mut locks = BatchLocks::default();
    if !locks.try_lock(thin, &request.operation, &mut store.awaited) {
        let error = refused(&request.operation, Class::Busy, "another thread reads or writes some of its blocks");
        return request.complete(Err(error));
    }
    match Batch::new(&mut store.order, vec![(Arc::clone(thin), request, WaitFor::Nothing)]).run().pop() {
        Some(Outcome::Done(completion)) => completion,
        Some(Outcome::Waiting(..)) | None => unreachable!("one request that may not wait has one completion"),
    }
}
