//! The cache of pages of tags, which all threads use: a lock for each of some groups of pages. No
//! I/O.
//!
//! A page also has what is known of its blocks: which are in flux (the journal says so, durably),
//! which have a tag that is only here, and which are being written. A block in flux may be written
//! by any thread, without the drive's.

mod mask;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ebof_backend::Buffer;
use ebof_drive::block_format::TAG_PAGE_BYTES;
use ebof_drive::tag::Tag;

use crate::VolumeId;
pub(crate) use mask::Mask;

/// Bytes of the cache by default.
const CACHE_BYTES: usize = 16 << 20;
/// Pages of the cache at least: one batch needs no more.
const PAGES_MIN: usize = 1024;
/// Pages with blocks in flux at most: a checkpoint has room for their marks.
pub(crate) const FLUX_PAGES_MAX: usize = 4096;
/// Locks of the cache.
const SHARDS: usize = 64;
/// Bytes of a page.
pub(crate) const BYTES: usize = 4096;
const _: () = assert!(BYTES as u64 == TAG_PAGE_BYTES);

/// What a page of tags belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) volume: VolumeId,
    /// The blocks whose tags it has.
    pub(crate) blocks: Range<u64>,
    /// Index of the extent in the namespace.
    pub(crate) index: u32,
    /// Number of the page in the extent.
    pub(crate) page: u64,
}

/// The cached pages, by their offset on the medium.
pub(crate) struct Pages {
    shards: Vec<Mutex<Shard>>,
    pages_max: usize,
    count: AtomicUsize,
    dirty: AtomicUsize,
    /// Counts the uses: pages of the current one are not evicted.
    current_use: AtomicU64,
    /// The drive is closed, or is being closed: no other thread writes any more.
    closed: AtomicBool,
}

/// Pages by offset. In memory that is rarely in a processor's cache, each look-up in a tree would
/// take several times as long.
type Shard = HashMap<u64, Page, BuildHasherDefault<OffsetHasher>>;

/// Mixes an offset, the same way in each run.
#[derive(Default)]
struct OffsetHasher(u64);

impl Hasher for OffsetHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

struct Page {
    owner: Owner,
    bytes: Buffer,
    /// It is not on the medium as it is here.
    dirty: bool,
    last_use: u64,
    /// Each of its blocks has the tag that is here: threads other than the drive's may use it.
    open: bool,
    /// Blocks that the journal says are in flux. It may say so of more.
    marked: Mask,
    /// Blocks whose tag the next flush is to record: it is only here, because they were written
    /// while they were in flux, or the journal does not rule out older ones.
    unsettled: Mask,
    /// The same, as of the beginning of the flush that is under way, and unchanged since.
    settling: Mask,
    /// Blocks in flux that other threads are writing.
    writing: Mask,
    /// Blocks that were written, with their tags in the journal, since the flush with the number
    /// `touched_since`.
    touched: Mask,
    touched_since: u64,
}

/// Which blocks of a page a write concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Offset of the page.
    pub(crate) at: u64,
    pub(crate) places: Range<usize>,
}

/// How the drive's thread writes blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// Their tags are in the journal first: a crash leaves nothing unknown.
    Exact,
    /// They are in flux. Those of this mask are not marked yet.
    Flux(Mask),
}

/// What the end of a flush leaves of a page.
pub(crate) struct Settled {
    pub(crate) first: u64,
    /// Tags that are durable with the records of the flush, by place.
    pub(crate) tags: Vec<(usize, Tag)>,
    /// Blocks that stay in flux.
    pub(crate) stays: Mask,
}

impl Pages {
    /// Caches `cache_bytes` of pages; 0 for the default.
    pub(crate) fn new(cache_bytes: usize) -> Self {
        let cache_bytes = if cache_bytes == 0 { CACHE_BYTES } else { cache_bytes };
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            pages_max: (cache_bytes / BYTES).max(PAGES_MIN),
            count: AtomicUsize::new(0),
            dirty: AtomicUsize::new(0),
            current_use: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    fn shard(&self, at: u64) -> MutexGuard<'_, Shard> {
        // Pages of neighbouring extents have locks of their own.
        let mixed = (at / TAG_PAGE_BYTES).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        let shard = usize::try_from(mixed).expect("six bits") % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn each<T>(&self, mut each: impl FnMut(u64, &mut Page) -> Option<T>) -> Vec<T> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(shard.iter_mut().filter_map(|(&at, page)| each(at, page)));
        }
        all
    }

    fn with<T>(&self, at: u64, change: impl FnOnce(&mut Page) -> T) -> Option<T> {
        self.shard(at).get_mut(&at).map(change)
    }

    /// The same for a page of a namespace: another one may have the extent by now.
    fn with_own<T>(&self, volume: VolumeId, at: u64, change: impl FnOnce(&mut Page) -> T) -> Option<T> {
        self.shard(at).get_mut(&at).filter(|page| page.owner.volume == volume).map(change)
    }

    // ---- for all threads

    /// Takes the tags of blocks, if all of them are known to be right.
    pub(crate) fn read(&self, places: &Places, into: impl FnMut(Tag)) -> bool {
        let current_use = self.current_use.load(Ordering::Relaxed);
        let read = self.with(places.at, |page| {
            if page.open {
                page.use_now(current_use);
                places.places.clone().map(|place| page.tag(place)).for_each(into);
            }
            page.open
        });
        read == Some(true)
    }

    /// Begins a write by another thread than the drive's, if the blocks are in flux.
    pub(crate) fn begin_write(&self, places: &Places) -> bool {
        let current_use = self.current_use.load(Ordering::Relaxed);
        let mask = Mask::from_places(places.places.clone());
        let begun = self.with(places.at, |page| {
            // Under the lock: when the drive is closed, writes that have begun are known.
            let may = page.open && page.marked.has_all(mask) && !self.closed.load(Ordering::Relaxed);
            if may {
                page.use_now(current_use);
                page.writing = page.writing.with(mask);
            }
            may
        });
        begun == Some(true)
    }

    /// Takes back the beginning of a write.
    pub(crate) fn cancel_write(&self, places: &Places) {
        let mask = Mask::from_places(places.places.clone());
        self.with(places.at, |page| page.writing = page.writing.without(mask));
    }

    /// A write of blocks in flux has succeeded, on whichever thread. A page that is not there any
    /// more was of an extent that was taken from its namespace.
    pub(crate) fn end_write(&self, places: &Places, tags: impl Iterator<Item = Tag>) -> bool {
        let mask = Mask::from_places(places.places.clone());
        let done = self.with(places.at, |page| {
            for (place, tag) in places.places.clone().zip(tags) {
                page.put(place, tag);
            }
            page.writing = page.writing.without(mask);
            page.unsettled = page.unsettled.with(mask);
            page.settling = page.settling.without(mask);
            !std::mem::replace(&mut page.dirty, true)
        });
        self.dirty.fetch_add(usize::from(done == Some(true)), Ordering::Relaxed);
        done.is_some()
    }

    // ---- for the drive's thread

    /// From now on no other thread begins a write.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        // Whoever has not seen it has finished what it does under the lock.
        self.each::<()>(|_, _| None);
    }

    /// Begins the next use: pages that are touched or inserted from now on are not evicted before
    /// the next call.
    pub(crate) fn begin_use(&self) {
        self.current_use.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes of the cached pages.
    pub(crate) fn bytes(&self) -> usize {
        self.count.load(Ordering::Relaxed) * BYTES
    }

    /// Whether a page is cached; then it is part of the current use, and open if `is_open` says so
    /// of the namespace's blocks.
    pub(crate) fn touch(&self, at: u64, is_open: impl FnOnce(&Owner) -> bool) -> bool {
        let current_use = self.current_use.load(Ordering::Relaxed);
        let touched = self.with(at, |page| {
            page.last_use = current_use;
            page.open = page.open || is_open(&page.owner);
        });
        touched.is_some()
    }

    pub(crate) fn insert(&self, at: u64, owner: Owner, bytes: Buffer, open: bool) {
        let last_use = self.current_use.load(Ordering::Relaxed);
        let page = Page {
            owner,
            bytes,
            dirty: false,
            last_use,
            open,
            marked: Mask::default(),
            unsettled: Mask::default(),
            settling: Mask::default(),
            writing: Mask::default(),
            touched: Mask::default(),
            touched_since: 0,
        };
        if self.shard(at).insert(at, page).is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Only the drive's thread uses a page from now on, until it is touched the next time.
    pub(crate) fn withhold(&self, at: u64) {
        self.with(at, |page| page.open = false);
    }

    /// The tag at a place of a page; `None` if that is not cached.
    pub(crate) fn tag(&self, at: u64, place: usize) -> Option<Tag> {
        self.with(at, |page| page.tag(place))
    }

    /// Puts a tag into a page that is durable otherwise; `false` if that is not cached.
    pub(crate) fn put(&self, at: u64, place: usize, tag: Tag) -> bool {
        let put = self.with(at, |page| {
            page.put(place, tag);
            !std::mem::replace(&mut page.dirty, true)
        });
        self.dirty.fetch_add(usize::from(put == Some(true)), Ordering::Relaxed);
        put.is_some()
    }

    /// Whether more than half of the cache is dirty.
    pub(crate) fn has_many_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > self.pages_max / 2
    }

    /// Offsets of the dirty pages, in order.
    pub(crate) fn dirty(&self) -> Vec<u64> {
        let mut dirty = self.each(|at, page| page.dirty.then_some(at));
        dirty.sort_unstable();
        dirty
    }

    /// A copy of a page, to be written: from now on it is clean.
    pub(crate) fn clean_copy(&self, at: u64) -> Option<Buffer> {
        let mut copy = Buffer::zeroed(BYTES);
        let was_dirty = self.with(at, |page| {
            copy.as_mut_slice().copy_from_slice(page.bytes.as_slice());
            std::mem::take(&mut page.dirty)
        })?;
        self.dirty.fetch_sub(usize::from(was_dirty), Ordering::Relaxed);
        Some(copy)
    }

    /// A page could not be written.
    pub(crate) fn set_dirty(&self, at: u64) {
        let changed = self.with(at, |page| !std::mem::replace(&mut page.dirty, true));
        self.dirty.fetch_add(usize::from(changed == Some(true)), Ordering::Relaxed);
    }

    /// Makes room for `count` pages: evicts the least recently used that are clean and not in use.
    pub(crate) fn make_room(&self, count: usize) {
        let cached = self.count.load(Ordering::Relaxed);
        if cached + count <= self.pages_max {
            return;
        }
        let evicted = cached + count - self.pages_max + self.pages_max / 8;
        let current_use = self.current_use.load(Ordering::Relaxed);
        let mut idle = self.each(|at, page| page.is_idle(current_use).then_some((page.last_use, at)));
        idle.sort_unstable();
        idle.truncate(evicted);
        for (_, at) in idle {
            let mut shard = self.shard(at);
            if shard.get(&at).is_some_and(|page| page.is_idle(current_use)) && shard.remove(&at).is_some() {
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Whether there is room for `count` more pages. Pages that cannot be written may take as much
    /// again as the cache should have.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.count.load(Ordering::Relaxed) + count <= 2 * self.pages_max
    }

    /// Drops a page, whose extent was taken from its namespace.
    pub(crate) fn forget(&self, at: u64) {
        if let Some(page) = self.shard(at).remove(&at) {
            self.count.fetch_sub(1, Ordering::Relaxed);
            self.dirty.fetch_sub(usize::from(page.dirty), Ordering::Relaxed);
        }
    }

    /// Drops the pages of a namespace.
    pub(crate) fn forget_namespace(&self, volume: VolumeId) {
        for at in self.each(|at, page| (page.owner.volume == volume).then_some(at)) {
            self.forget(at);
        }
    }

    /// The owner of a page, and its tags.
    pub(crate) fn tags(&self, at: u64) -> Option<(Owner, Vec<Tag>)> {
        self.with(at, |page| {
            let blocks = page.owner.blocks.end - page.owner.blocks.start;
            let count = usize::try_from(blocks).expect("the blocks of a page at most");
            (page.owner.clone(), (0..count).map(|place| page.tag(place)).collect())
        })
    }

    // ---- blocks in flux; for the drive's thread

    /// How many pages may have blocks in flux: the others can always be evicted.
    pub(crate) fn flux_max(&self) -> usize {
        (self.pages_max / 2).min(FLUX_PAGES_MAX)
    }

    /// How blocks are to be written; the number of the last flush is `flushes`. Their page is
    /// cached.
    pub(crate) fn write_mode(&self, places: &Places, flushes: u64) -> WriteMode {
        let mode = self.with(places.at, |page| page.write_mode(&places.places, flushes));
        mode.unwrap_or(WriteMode::Exact)
    }

    /// Those of these blocks that are not in flux yet. Their page is cached.
    pub(crate) fn unmarked(&self, places: &Places) -> Mask {
        let mask = Mask::from_places(places.places.clone());
        let unmarked = self.with(places.at, |page| mask.without(page.marked));
        unmarked.expect("the tags of what is written were loaded, and stay until the next use")
    }

    /// Blocks are written with their tags in the journal: whoever writes them again before the next
    /// flush brings them into flux.
    pub(crate) fn touch_blocks(&self, places: &Places, flushes: u64) {
        let mask = Mask::from_places(places.places.clone());
        self.with(places.at, |page| {
            let earlier = if page.touched_since == flushes { page.touched } else { Mask::default() };
            page.touched = earlier.with(mask);
            page.touched_since = flushes;
        });
    }

    /// The journal says, durably, that these blocks are in flux.
    pub(crate) fn mark(&self, at: u64, mask: Mask) {
        self.with(at, |page| page.marked = page.marked.with(mask));
    }

    /// Whether a page is cached and has blocks in flux, or with tags that are only here.
    pub(crate) fn is_marked(&self, volume: VolumeId, at: u64) -> bool {
        self.with_own(volume, at, |page| !page.marked.with(page.unsettled).is_empty()) == Some(true)
    }

    /// A flush begins that is to make tags durable.
    pub(crate) fn begin_settling(&self, volume: VolumeId, at: u64) {
        self.with_own(volume, at, |page| {
            page.settling = page.settling.with(page.unsettled);
            page.unsettled = Mask::default();
        });
    }

    /// How many tags that flush has in a page.
    pub(crate) fn settling(&self, volume: VolumeId, at: u64) -> usize {
        self.with_own(volume, at, |page| page.settling.count()).unwrap_or_default()
    }

    /// That flush has succeeded: what is to be recorded. Blocks that are written meanwhile, and
    /// those for which `is_unknown` holds, stay in flux; with `keeps_written`, all that were
    /// written do.
    pub(crate) fn finish_flush(
        &self,
        (volume, at): (VolumeId, u64),
        keeps_written: bool,
        is_unknown: impl Fn(u64) -> bool,
    ) -> Option<Settled> {
        self.with_own(volume, at, |page| {
            let first = page.owner.blocks.start;
            let unknown = page.settling.with(page.unsettled).places().filter(|&place| is_unknown(first + place as u64));
            let unknown = unknown.fold(Mask::default(), |all, place| all.with(Mask::from_places(place..place + 1)));
            page.unsettled = page.unsettled.with(unknown);
            page.settling = page.settling.without(unknown);
            // The others have their tags in the journal.
            let mut stays = page.unsettled.both(page.marked).with(page.writing);
            if keeps_written {
                stays = stays.with(page.settling.both(page.marked));
            }
            page.marked = stays;
            let tags = page.settling.places().map(|place| (place, page.tag(place))).collect();
            Settled { first, tags, stays }
        })
    }

    /// The records of that flush are durable, or could not be written.
    pub(crate) fn end_settling(&self, volume: VolumeId, at: u64, is_durable: bool) {
        self.with_own(volume, at, |page| {
            if !is_durable {
                page.unsettled = page.unsettled.with(page.settling);
            }
            page.settling = Mask::default();
        });
    }

    /// Blocks have other tags than the journal or the page on the medium says, or may have others
    /// by what these say, or it is not known which ones they have: the next flush is to record
    /// them.
    pub(crate) fn set_unsettled(&self, places: &Places) {
        let mask = Mask::from_places(places.places.clone());
        self.with(places.at, |page| {
            page.writing = page.writing.without(mask);
            page.settling = page.settling.without(mask);
            page.unsettled = page.unsettled.with(mask);
        });
    }
}

impl Page {
    fn tag(&self, place: usize) -> Tag {
        let at = 16 * (place + 1);
        Tag(self.bytes.as_slice()[at..at + 16].try_into().expect("16 bytes"))
    }

    fn put(&mut self, place: usize, tag: Tag) {
        let at = 16 * (place + 1);
        self.bytes.as_mut_slice()[at..at + 16].copy_from_slice(&tag.0);
    }

    /// Not written if it is as it should be: other processors may have it. Never set back: a caller
    /// may be late.
    fn use_now(&mut self, current_use: u64) {
        if self.last_use < current_use {
            self.last_use = current_use;
        }
    }

    fn is_idle(&self, current_use: u64) -> bool {
        let is_pinned = !self.unsettled.with(self.settling).with(self.writing).is_empty();
        !self.dirty && !is_pinned && self.last_use < current_use
    }

    fn write_mode(&self, places: &Range<usize>, flushes: u64) -> WriteMode {
        let mask = Mask::from_places(places.clone());
        let known = self.marked.with(self.unsettled).with(self.settling);
        let is_touched = self.touched_since == flushes && self.touched.touches(mask);
        if is_touched || known.touches(mask) {
            // These blocks and no others: a mark on a block that was flushed, and is not written
            // now, would make its tag worthless.
            WriteMode::Flux(mask.without(self.marked))
        } else {
            WriteMode::Exact
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(at: u64) -> Owner {
        Owner { volume: VolumeId(at), blocks: 0..255, index: 0, page: 0 }
    }

    fn at(places: Range<usize>) -> Places {
        Places { at: 0, places }
    }

    #[test]
    fn unused_pages_are_evicted_first_and_dirty_ones_are_kept() {
        let pages = Pages::new(1);
        for at in 0..1024 {
            pages.begin_use();
            pages.insert(at * 4096, owner(at), Buffer::zeroed(BYTES), true);
        }
        assert!(pages.put(3 * 4096, 0, Tag::LOST) && !pages.put(2000 * 4096, 0, Tag::LOST));
        pages.begin_use();
        let touch = |at: u64| pages.touch(at * 4096, |_| true);
        assert!(touch(5) && !touch(2000));
        pages.make_room(1);
        assert_eq!(pages.bytes(), (1024 - 129) * BYTES);
        let left: Vec<u64> = (0..1024).filter(|&at| touch(at)).collect();
        assert_eq!(left, [3, 5].into_iter().chain(131..1024).collect::<Vec<_>>());
        assert_eq!((pages.dirty(), pages.tag(3 * 4096, 0)), (vec![3 * 4096], Some(Tag::LOST)));
        pages.forget(3 * 4096);
        assert_eq!((pages.dirty(), pages.dirty.load(Ordering::Relaxed)), (vec![], 0));
    }

    #[test]
    fn the_cache_is_written_back_when_more_than_half_of_it_is_dirty() {
        let pages = Pages::new(1);
        for at in 0..pages.pages_max as u64 {
            pages.insert(at * 4096, owner(at), Buffer::zeroed(BYTES), true);
        }
        let half = pages.pages_max as u64 / 2;
        (0..half).for_each(|at| assert!(pages.put(at * 4096, 0, Tag::LOST)));
        assert!(!pages.has_many_dirty());
        for at in [half, half + 1] {
            assert!(pages.put(at * 4096, 0, Tag::LOST));
            assert!(pages.has_many_dirty());
        }
    }

    /// The last page of an extent has fewer than there is room for.
    #[test]
    fn a_page_has_the_tags_of_its_blocks() {
        let pages = Pages::new(1);
        let owner = Owner { volume: VolumeId(1), blocks: 63..126, index: 1, page: 0 };
        pages.insert(0, owner, Buffer::zeroed(BYTES), true);
        assert!(pages.put(0, 62, Tag::LOST));
        let (owner, tags) = pages.tags(0).unwrap();
        assert_eq!((owner.blocks, tags.len(), tags[61] == Tag::LOST, tags[62]), (63..126, 63, false, Tag::LOST));
    }

    #[test]
    fn pages_with_tags_that_are_only_in_memory_stay_there() {
        let pages = Pages::new(1);
        pages.insert(0, owner(1), Buffer::zeroed(BYTES), true);
        pages.mark(0, Mask::from_places(0..16));
        assert!(pages.begin_write(&at(3..5)) && !pages.begin_write(&at(15..17)), "one of them is not in flux");
        pages.begin_use();
        let has = || pages.tag(0, 3).is_some();
        pages.make_room(2000);
        assert!(has(), "it is being written");
        assert!(pages.end_write(&at(3..5), [Tag::LOST; 2].into_iter()));
        assert!(pages.clean_copy(0).is_some());
        pages.make_room(2000);
        assert!(has(), "its tags are only here");
        pages.begin_settling(VolumeId(1), 0);
        assert_eq!(
            pages.finish_flush((VolumeId(1), 0), false, |_| false).unwrap().tags,
            [(3, Tag::LOST), (4, Tag::LOST)]
        );
        pages.end_settling(VolumeId(1), 0, true);
        pages.make_room(2000);
        assert!(!has());
    }

    #[test]
    fn what_is_written_behind_the_beginning_of_a_flush_stays_in_flux() {
        let pages = Pages::new(1);
        pages.insert(0, owner(1), Buffer::zeroed(BYTES), true);
        pages.mark(0, Mask::from_places(0..32));
        let write = |places: Range<usize>| {
            assert!(pages.begin_write(&at(places.clone())));
            pages.end_write(&at(places.clone()), places.map(|_| Tag::LOST));
        };
        write(1..4);
        assert!(pages.begin_write(&at(20..21)));
        pages.begin_settling(VolumeId(1), 0);
        write(2..3);
        assert!(pages.begin_write(&at(5..6)));
        assert_eq!(pages.settling(VolumeId(1), 0), 2);
        let settled = pages.finish_flush((VolumeId(1), 0), false, |block| block == 3).unwrap();
        assert_eq!(settled.tags, [(1, Tag::LOST)]);
        assert_eq!(settled.stays.places().collect::<Vec<_>>(), [2, 3, 5, 20]);
        assert!(!pages.begin_write(&at(1..2)) && pages.begin_write(&at(2..3)), "a mark is needed again");
        // It could not be recorded: the next flush does it.
        pages.end_settling(VolumeId(1), 0, false);
        pages.begin_settling(VolumeId(1), 0);
        let settled = pages.finish_flush((VolumeId(1), 0), true, |_| false).unwrap();
        assert_eq!(settled.tags.len(), 3, "blocks 1 to 3");
        assert!(settled.stays.has_all(Mask::from_places(2..3)) && !settled.stays.has(6));
    }

    #[test]
    fn the_first_write_of_a_block_behind_a_flush_is_exact() {
        let pages = Pages::new(1);
        pages.insert(0, owner(1), Buffer::zeroed(BYTES), true);
        let mode = |places: Range<usize>, flushes| pages.write_mode(&at(places), flushes);
        assert_eq!(mode(3..5, 0), WriteMode::Exact);
        pages.touch_blocks(&at(3..5), 0);
        pages.touch_blocks(&at(9..10), 0);
        // What it writes is in flux, and nothing beside it.
        assert_eq!(mode(3..4, 0), WriteMode::Flux(Mask::from_places(3..4)));
        assert_eq!(mode(4..7, 0), WriteMode::Flux(Mask::from_places(4..7)));
        assert_eq!((mode(2..3, 0), mode(5..9, 0)), (WriteMode::Exact, WriteMode::Exact));
        assert_eq!(mode(3..4, 1), WriteMode::Exact, "it was flushed");
        pages.mark(0, Mask::from_places(3..4));
        assert_eq!(mode(3..4, 1), WriteMode::Flux(Mask::default()), "it is in flux still");
        assert_eq!(mode(2..5, 1), WriteMode::Flux(Mask::from_places(2..5).without(Mask::from_places(3..4))));
        pages.touch_blocks(&at(254..255), 1);
        assert_eq!(mode(9..10, 1), WriteMode::Exact, "an earlier flush was of this one");
        assert_eq!(pages.unmarked(&at(3..6)), Mask::from_places(4..6));
    }

    /// Whoever does not flush keeps in flux what he writes, and nothing that he only wrote once.
    #[test]
    fn what_is_settled_without_a_flush_of_the_host_stays_in_flux_where_it_was_written() {
        let pages = Pages::new(1);
        pages.insert(0, owner(1), Buffer::zeroed(BYTES), true);
        pages.mark(0, Mask::from_places(0..8));
        assert!(pages.begin_write(&at(2..4)));
        pages.end_write(&at(2..4), [Tag::LOST; 2].into_iter());
        pages.begin_settling(VolumeId(1), 0);
        let settled = pages.finish_flush((VolumeId(1), 0), true, |_| false).unwrap();
        assert_eq!((settled.tags.len(), settled.stays), (2, Mask::from_places(2..4)));
        pages.end_settling(VolumeId(1), 0, true);
        pages.begin_settling(VolumeId(1), 0);
        let settled = pages.finish_flush((VolumeId(1), 0), true, |_| false).unwrap();
        assert_eq!((settled.tags.len(), settled.stays), (0, Mask::default()));
    }
}
