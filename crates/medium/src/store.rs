//! A drive's medium as its own thread has it: everything here is done when it returns.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use ebof_backend::{Class, Completion, Device, Error as DeviceError, Operation, Request};
use ebof_drive::Coding;
use ebof_drive::allocator::Allocator;
use ebof_drive::frame::{CHANGE_BYTES_MAX, Checkpoint, FRAME_BYTES, Record};
use ebof_drive::layout::{JOURNAL_BYTES, SLOT_BYTES};

use crate::bad::Bad;
use crate::disk::Disk;
use crate::jobs::Jobs;
use crate::journal::Journal;
use crate::keys::Keys;
use crate::open::Found;
use crate::owner::OwnerState;
use crate::shared::{Epoch, Shared};
use crate::tags::Tags;
use crate::thin::{INDEX_MAX, ThinDevice};
use crate::trouble::Try;
use crate::washer::Load;
use crate::{Error, Instance, Job, Notice, OpenError, Opened, Options, Thin, worker};

/// Namespaces on a medium at most.
pub(crate) const INSTANCES_MAX: usize = 4096;
/// Bytes of changes that are committed together.
const COMMIT_BYTES_MAX: usize = 4 << 20;
/// Tags in the journal, so that the next life is soon done with them.
const TAGS_MAX: usize = 65536;
/// Bytes that are written to see whether writing works.
const TRY_BYTES: u64 = 1 << 20;

/// A drive's medium, in the hands of the drive's thread.
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    pub(crate) disk: Disk,
    pub(crate) journal: Journal,
    pub(crate) allocator: Allocator,
    pub(crate) keys: Keys,
    /// Extents that were given back, behind the epoch in which they were still looked up. The oldest first: an epoch is over
    /// when those before it are.
    pub(crate) quarantine: VecDeque<(Arc<Epoch>, Vec<u32>)>,
    /// Namespaces that were removed and have extents from there on, by number.
    pub(crate) leaving: VecDeque<(Arc<Thin>, u32)>,
    /// How many extents are being zeroed in the background; nobody else has them.
    pub(crate) washing: usize,
    /// Who does that, while the drive is served.
    pub(crate) washer: Option<Sender<Load>>,
    /// Why the last of it failed.
    pub(crate) wash_failed: Option<DeviceError>,
    /// Extents became free since somebody looked.
    pub(crate) gave_back: bool,
    pub(crate) jobs: Jobs,
    pub(crate) tags: Tags,
    owner: OwnerState,
    pub(crate) full: bool,
    /// What was given back keeps its storage until it is overwritten.
    pub(crate) is_held: bool,
}

impl Store {
    /// Opens the drive on `backing`, or makes it, and starts its thread.
    ///
    /// # Errors
    /// Says what is wrong with the medium and what to do.
    pub fn open(backing: Arc<dyn Device>, options: Options) -> Result<Opened, OpenError> {
        worker::start(backing, options)
    }

    /// Puts together what was found.
    pub(crate) fn restore(mut disk: Disk, found: Found, options: &Options) -> Result<Self, OpenError> {
        let keys = Keys::open(&mut disk, found.layout, options.key.clone())?;
        let shared = Shared::new(Arc::clone(disk.base()), found.layout, found.lost.as_ref(), options.notify.clone());
        let extents = found.layout.extents();
        let mut store = Self {
            shared,
            disk,
            journal: found.journal,
            allocator: Allocator::new(extents, 0),
            keys,
            quarantine: VecDeque::new(),
            leaving: VecDeque::new(),
            washing: 0,
            washer: None,
            wash_failed: None,
            gave_back: false,
            jobs: Jobs::default(),
            tags: Tags::new(options.tag_cache_bytes),
            owner: OwnerState::new(found.state, found.changes),
            full: false,
            is_held: false,
        };
        let name = store.disk.base().describe();
        let damaged = |what: String| OpenError::Damaged { device: name.clone(), what };
        let mut water = 0;
        for (frame, record) in &found.records {
            if let Record::Water(extent) = record {
                water = water.max(*extent);
            }
            store.replay(*frame, record).map_err(damaged)?;
        }
        if let Some(lost) = &found.lost {
            lost.later.iter().for_each(|record| store.replay_behind(record));
        }
        // Only now it is known what is in use; the rest below the mark may hold anything.
        store.allocator = Allocator::new(extents, water);
        for thin in store.shared.thins() {
            let mut used = 0;
            for place in thin.map.runs().flat_map(|(_, places)| places) {
                if !store.allocator.claim(place) && found.lost.is_none() {
                    return Err(damaged(format!("extent {place} is used twice, or does not exist")));
                }
                used += 1;
            }
            thin.used.store(used, Ordering::Relaxed);
        }
        let keyless = |thin: &Arc<Thin>| thin.coding.encrypted && thin.cipher.is_none();
        if found.lost.is_some() {
            // Their keys were destroyed, and what says so is lost.
            store
                .shared
                .thins()
                .iter()
                .filter(|thin| keyless(thin))
                .for_each(|thin| store.shared.remove(thin.instance));
        } else if let Some(thin) = store.shared.thins().into_iter().find(keyless) {
            return Err(damaged(format!("the key of namespace {} is not there", thin.instance.0)));
        }
        store.count();
        store.tags.cursor = Some((Instance(0), 0));
        // Of what was there before nothing is known to be flushed: the first flush of each namespace says so.
        let thins = store.shared.thins();
        store.publish(thins.iter());
        Ok(store)
    }

    /// Makes of what was found what this life goes on from.
    pub(crate) fn begin(&mut self) {
        if let Err(error) = self.forget_keys() {
            tracing::error!("the keys of the drive cannot be written: {error}");
        }
        // From here on the drive is not as the checkpoint left it.
        if let Err(error) = self.make_sure() {
            tracing::error!("the journal of the drive cannot be written: {error}");
        }
        if self.journal.needs_checkpoint()
            && let Err(error) = self.checkpoint(false)
        {
            tracing::error!("the damaged checkpoint of the drive cannot be replaced: {error}");
        }
        self.publish(self.shared.thins().iter());
    }

    /// Makes changes durable: all of them or, after an error, none. They come back from [`Store::open`] until a snapshot
    /// has taken their place. At most 1 MiB each, and 4 MiB together.
    ///
    /// # Errors
    /// `TooLarge`, or `Device`: nothing of it has happened, and nothing has to be restarted when the cause is gone.
    pub fn commit(&mut self, changes: &[&[u8]]) -> Result<(), Error> {
        let each = changes.iter().map(|change| (change.len(), CHANGE_BYTES_MAX));
        let all = changes.iter().map(|change| change.len()).sum();
        for (bytes, bytes_max) in each.chain([(all, COMMIT_BYTES_MAX)]) {
            if bytes > bytes_max {
                return Err(Error::TooLarge { bytes, bytes_max });
            }
        }
        let records: Vec<Record> = changes.iter().map(|change| Record::Change(change.to_vec())).collect();
        self.append(&records, true)?;
        self.owner.committed(changes);
        Ok(())
    }

    /// Makes a namespace of `blocks`, which may allocate what `capacity_blocks` take (rounded up to extents). Durable when it
    /// returns. Blocks have a multiple of the bytes of the backing device's.
    ///
    /// # Errors
    /// `Exists`, `TooBig`, `TooMany`, `BlockSize` or `Device`.
    pub fn create(
        &mut self,
        instance: Instance,
        blocks: u64,
        capacity_blocks: u64,
        coding: Coding,
    ) -> Result<Arc<dyn Device>, Error> {
        if self.shared.thin(instance).is_some() {
            return Err(Error::Exists(instance));
        }
        if self.shared.instances().len() >= INSTANCES_MAX {
            return Err(Error::TooMany { what: "namespaces", max: INSTANCES_MAX });
        }
        let bytes_min = self.shared.base.geometry().block_bytes;
        if !coding.is_legal() || coding.data_bytes() < u64::from(bytes_min) {
            let bytes = u32::try_from(coding.data_bytes()).unwrap_or(u32::MAX);
            return Err(Error::BlockSize { bytes, bytes_min });
        }
        let extent_bytes = self.shared.layout.extent_bytes;
        let quota = u32::try_from(coding.extents(capacity_blocks, extent_bytes)).unwrap_or(u32::MAX);
        let cipher = if coding.encrypted { Some(self.keys.make(&mut self.disk, instance)?) } else { None };
        let thin = Thin::new(&self.shared, instance, blocks, quota, coding, cipher);
        let size_bytes = blocks.saturating_mul(coding.data_bytes());
        let bytes_max = extent_bytes.saturating_mul(u64::from(INDEX_MAX));
        let record = Record::Create { instance, blocks, quota, coding };
        let made = thin.ok_or(Error::TooBig { size_bytes, bytes_max }).and_then(|thin| {
            self.append(&[record], true)?;
            Ok(Arc::new(thin))
        });
        match made {
            Ok(thin) => {
                self.shared.insert(Arc::clone(&thin));
                self.publish(std::iter::once(&thin));
                Ok(Arc::new(ThinDevice(thin)))
            }
            Err(error) => {
                if coding.encrypted {
                    // Its key is destroyed as soon as there is nothing else to do.
                    self.keys.doubt();
                }
                Err(error)
            }
        }
    }

    /// Removes a namespace, durably. Requests that are under way end; later ones find it gone. Its extents are given back
    /// in the background, some thousands at a time, and zeroed before they are used again; if it was encrypted, its key is destroyed before this returns, or
    /// as soon as that is possible ([`owes_keys`](Self::owes_keys)).
    ///
    /// # Errors
    /// `Unknown` or `Device`.
    pub fn remove(&mut self, instance: Instance) -> Result<(), Error> {
        let thin = self.shared.thin(instance).ok_or(Error::Unknown(instance))?;
        self.append(&[Record::Remove(instance)], true)?;
        self.shared.remove(instance);
        self.tags.forget_all(instance);
        if thin.allocated_extents() > 0 {
            self.leaving.push_back((Arc::clone(&thin), 0));
        }
        if thin.coding.encrypted
            && let Err(error) = self.forget_keys()
        {
            tracing::error!(
                "the key of a namespace that was removed is still on the medium, until the next try: {error}"
            );
        }
        Ok(())
    }

    /// Whether keys may be on the medium of what is not: destroying them has failed, and is tried again.
    #[must_use]
    pub fn owes_keys(&self) -> bool {
        self.keys.is_stale()
    }

    /// Destroys the keys of what is not on the medium any more.
    ///
    /// # Errors
    /// `Device`: they may still be there; the next call tries again.
    pub fn forget_keys(&mut self) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        Ok(self.keys.keep(&mut self.disk, |instance| shared.thin(instance).is_some())?)
    }

    /// Takes everything out of a namespace, durably: it reads as zeros, and has no bad blocks. In one step: some 20 ns for each of
    /// its extents.
    ///
    /// # Errors
    /// `Unknown` or `Device`.
    pub fn clear(&mut self, instance: Instance) -> Result<(), Error> {
        let thin = self.shared.thin(instance).ok_or(Error::Unknown(instance))?;
        self.append(&[Record::Clear(instance)], true)?;
        thin.change_bad(Bad::clear);
        self.release(&thin, 0..thin.map.len());
        self.tags.forget_all(instance);
        Ok(())
    }

    /// Marks blocks bad, durably: reading them fails as [`Class::MediumRead`](ebof_backend::Class::MediumRead) until they
    /// are written, zeroed or deallocated.
    ///
    /// # Errors
    /// `Unknown`, `TooMany` or `Device` (out of range).
    pub fn mark_bad(&mut self, instance: Instance, blocks: Range<u64>) -> Result<(), Error> {
        let thin = self.shared.thin(instance).ok_or(Error::Unknown(instance))?;
        if self.bad_ranges() >= Bad::MAX {
            return Err(Error::TooMany { what: "ranges of bad blocks", max: Bad::MAX });
        }
        let count = blocks.end.saturating_sub(blocks.start);
        let geometry = ThinDevice(Arc::clone(&thin)).geometry();
        let block = u64::from(geometry.logical_block_bytes);
        let (offset, len) = (blocks.start.saturating_mul(block), count.saturating_mul(block));
        geometry.check_transfer(ebof_backend::Action::Write, offset, len)?;
        let record = Record::Bad { instance, start: blocks.start, blocks: count, bad: true };
        self.append(&[record], true)?;
        thin.change_bad(|bad| bad.add(blocks));
        Ok(())
    }

    /// Ranges of bad blocks on the medium.
    pub(crate) fn bad_ranges(&self) -> usize {
        self.shared.thins().iter().map(|thin| thin.bad().len()).sum()
    }

    /// Runs one operation on a namespace, and returns when it is over. Up to a few MiB: the drive waits meanwhile.
    pub fn execute(&mut self, instance: Instance, operation: Operation) -> Completion {
        let request = Request::new(0, operation);
        match self.shared.thin(instance) {
            Some(thin) => self.execute_on(&thin, request),
            None => {
                let error = crate::thin::refused(&request.operation, Class::Gone, "the namespace was deleted");
                request.complete(Err(error))
            }
        }
    }

    /// The namespace with this name.
    #[must_use]
    pub fn thin(&self, instance: Instance) -> Option<Arc<Thin>> {
        self.shared.thin(instance)
    }

    /// Starts background work; the works take turns, a step at a time.
    pub fn start(&mut self, job: Box<dyn Job>) {
        self.jobs.start(job);
    }

    /// Who is asked for the owner's state when a checkpoint is written. It must contain every change committed so far, and
    /// none that is not. There is room for [`STATE_BYTES_MAX`](ebof_drive::budget::STATE_BYTES_MAX) bytes at least; asked on the
    /// drive's thread.
    pub fn set_snapshot(&mut self, snapshot: Box<dyn Fn() -> Vec<u8>>) {
        self.owner.set_snapshot(snapshot);
    }

    /// Reads a firmware slot (1 to 7) from `offset`, as much as the buffer takes.
    ///
    /// # Errors
    /// `Device`, also when it is out of range.
    pub fn read_slot(&mut self, slot: u8, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let at = self.slot(slot, offset, into.len())?;
        let begin = at - at % FRAME_BYTES as u64;
        let skip = usize::try_from(at - begin).unwrap_or_default();
        let read = self.disk.read(begin, (skip + into.len()).next_multiple_of(FRAME_BYTES))?;
        into.copy_from_slice(&read.as_slice()[skip..skip + into.len()]);
        Ok(())
    }

    /// Writes a firmware slot (1 to 7; 1 MiB each) from its beginning, durably. Not atomic: a slot's contents have a
    /// checksum of their own.
    ///
    /// # Errors
    /// `Device`, also when it is out of range.
    pub fn write_slot(&mut self, slot: u8, bytes: &[u8]) -> Result<(), Error> {
        let at = self.slot(slot, 0, bytes.len())?;
        let mut whole = bytes.to_vec();
        whole.resize(bytes.len().next_multiple_of(FRAME_BYTES), 0);
        self.disk.write(at, &whole)?;
        self.disk.flush()?;
        Ok(())
    }

    fn slot(&self, slot: u8, offset: u64, len: usize) -> Result<u64, Error> {
        let fits = offset.checked_add(len as u64).is_some_and(|end| end <= SLOT_BYTES);
        let at = self.shared.layout.slot(slot).filter(|_| fits);
        let (len, capacity) = (len as u64, SLOT_BYTES);
        let out = DeviceError::OutOfRange { action: ebof_backend::Action::Read, offset, len, capacity };
        at.map(|at| at + offset).ok_or(Error::Device(out))
    }

    /// Puts records into the journal, all of them or none; durably if asked for. After an error nothing of it has happened.
    pub(crate) fn append(&mut self, records: &[Record], durable: bool) -> Result<(), Error> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        let outcome = self.try_append(records, durable);
        self.note(records, &outcome);
        outcome
    }

    fn try_append(&mut self, records: &[Record], durable: bool) -> Result<(), Error> {
        self.release_tags();
        let mut frames = self.journal.encode(records);
        if !self.is_sure() || !self.journal.has_room(frames.len()) {
            self.try_make_sure(frames.len())?;
            frames = self.journal.encode(records);
        }
        if !self.journal.has_room(frames.len()) {
            let bytes_max = usize::try_from(JOURNAL_BYTES).unwrap_or(usize::MAX);
            return Err(Error::TooLarge { bytes: frames.len(), bytes_max });
        }
        self.journal.write(&mut self.disk, &self.shared.journal, (records, &frames), durable)?;
        let tags = records.iter().map(|record| if let Record::Tags { tags, .. } = record { tags.len() } else { 0 });
        let tags: usize = tags.sum();
        self.tags.journaled += tags;
        if tags == 0 {
            // Nothing else belongs to these records: what tags are about is still to be written.
            self.publish(std::iter::empty());
            if durable && records.iter().any(is_management) {
                self.mark();
            }
        }
        Ok(())
    }

    /// Whether the end of the journal on the medium is where it is believed to be.
    pub(crate) fn is_sure(&self) -> bool {
        self.journal.is_sure()
    }

    /// Sees to it that it is.
    pub(crate) fn make_sure(&mut self) -> Result<(), Error> {
        let outcome = self.try_make_sure(0);
        self.note(&[], &outcome);
        outcome
    }

    /// The same, with room for so many tags in so many records behind it.
    pub(crate) fn make_sure_of_room(&mut self, tags: usize, records: usize) -> Result<(), Error> {
        let outcome = if self.tags.journaled + tags > TAGS_MAX { self.checkpoint(false) } else { Ok(()) };
        // Records are not cut: of two frames, one is half full at least.
        let frames = (tags * 16 + (records + tags / 250) * 24) / (FRAME_BYTES / 2 - 64) + 2;
        let outcome = outcome.and_then(|()| self.try_make_sure(frames * FRAME_BYTES));
        self.note(&[], &outcome);
        outcome
    }

    /// The same, with room for `bytes` of frames behind it.
    fn try_make_sure(&mut self, bytes: usize) -> Result<(), Error> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        if !self.journal.has_room(bytes) {
            self.checkpoint(false)?;
        }
        if !self.is_sure() {
            let marker = Record::Water(self.allocator.water());
            self.journal.begin(&mut self.disk, &self.shared.journal, &marker)?;
        }
        self.journal.clear_suspect(&self.shared.journal);
        Ok(())
    }

    /// Tells whether the journal can be written, when that has changed.
    fn note(&mut self, records: &[Record], outcome: &Result<(), Error>) {
        if let Some(notice) = self.journal.note(&self.shared.journal, records, outcome) {
            self.shared.tell(notice);
        }
    }

    /// Looks at what the backing device has failed at since the last time.
    pub(crate) fn look(&mut self) {
        let elsewhere = std::mem::take(&mut *self.shared.failures());
        let was_troubled = self.disk.troubles.is_any();
        for trouble in self.disk.troubles.look(elsewhere) {
            self.shared.tell(Notice::Fails(trouble));
        }
        if !was_troubled && self.disk.troubles.is_any() {
            self.start(Box::new(Try));
        }
    }

    /// Whether the backing device fails, as far as it is known: then it has been told.
    pub(crate) fn is_troubled(&self) -> bool {
        self.disk.troubles.is_any() || self.journal.is_failing()
    }

    /// Writes to an extent that nobody has, and gives its storage back; `None` if there is none that may be used.
    pub(crate) fn write_somewhere(&mut self) -> Option<bool> {
        let clean = self.allocator.take();
        let extent = clean.or_else(|| self.allocator.stained(1).first().copied())?;
        let layout = self.shared.layout;
        let (at, len) = (layout.extent(extent), layout.extent_bytes.min(TRY_BYTES));
        let zeros = vec![0; usize::try_from(len).unwrap_or_default()];
        let written = self.disk.write(at, &zeros).and_then(|()| self.flush());
        // Nothing but zeros was written, whatever became of it; and it is free all the time for those on this thread.
        if clean.is_some() {
            self.allocator.give_back_clean(extent);
        }
        // A hole again, so that the next try tells as much as this one.
        let emptied = self.disk.zero(std::iter::once((at, len)), true);
        Some(written.is_ok() && emptied.is_ok())
    }

    /// The same as [`checkpoint`](Self::checkpoint), and told if it fails.
    pub(crate) fn checkpoint_now(&mut self) -> Result<(), Error> {
        let outcome = self.checkpoint(false);
        self.note(&[], &outcome);
        outcome
    }

    /// Writes everything down at once, and begins a new journal.
    pub(crate) fn checkpoint(&mut self, clean: bool) -> Result<(), Error> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        // What a page of tags says is believed from here on: it is on the medium before the checkpoint is.
        let tags = self.bring_tags()?;
        let mut records = vec![Record::Water(self.allocator.water())];
        for thin in self.shared.thins() {
            let (instance, quota, coding) = (thin.instance, thin.quota, thin.coding);
            records.push(Record::Create { instance, blocks: thin.blocks_of_it(), quota, coding });
            records.extend(thin.map.runs().map(|(first, extents)| Record::Map { instance, first, extents }));
            let bad = |range: Range<u64>| Record::Bad {
                instance,
                start: range.start,
                blocks: range.end - range.start,
                bad: true,
            };
            records.extend(thin.bad().iter().map(bad));
        }
        let carried = tags.iter().map(|record| match record {
            Record::Tags { tags, .. } | Record::OnlyTags { tags, .. } => tags.len(),
            _ => 0,
        });
        let carried = carried.sum();
        records.extend(tags);
        let (state, changes) = self.owner.now();
        records.extend(changes);
        self.journal.checkpoint(&mut self.disk, &Checkpoint { state, records, clean })?;
        self.tags.journaled = carried;
        // The pages of tags say it now.
        self.tags.reverted.clear();
        self.publish(std::iter::empty());
        Ok(())
    }
}

/// Whether a record is of what somebody was told to be done, once and for all: the medium says at once that it was flushed.
fn is_management(record: &Record) -> bool {
    match record {
        Record::Create { .. } | Record::Remove(_) | Record::Clear(_) | Record::Bad { .. } | Record::Change(_) => true,
        Record::Map { .. } | Record::Unmap { .. } | Record::Tags { .. } | Record::OnlyTags { .. } => false,
        Record::Water(_) => false,
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("layout", &self.shared.layout)
            .field("journal", &self.journal)
            .finish_non_exhaustive()
    }
}
