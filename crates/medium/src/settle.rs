//! Tags between memory and medium: pages are read when they are needed and written some time later, and blocks of which it is not
//! known which tag is theirs are looked at.
//!
//! A page is written after the data of its blocks are durable, and is durable before a checkpoint says that the journal is not
//! needed any more. So a block's data always fit the tag on its page, or one behind that in the journal.

use std::collections::BTreeMap;
use std::sync::Arc;

use ebof_backend::{Action, Buffer, Class, Error as DeviceError, Operation};
use ebof_drive::frame::Record;
use ebof_drive::tag::{Tag, header};

use crate::tags::{BYTES, Owner};
use crate::{Error, Instance, Notice, Store, Thin};

/// Blocks that are looked at together.
const AT_ONCE: usize = 256;
/// Tags that a checkpoint carries for blocks of which it is not known which is theirs.
pub(crate) const CARRIED_MAX: usize = 16384;
/// Pages that could not be written, and whose tags a checkpoint carries.
pub(crate) const PAGES_MAX: usize = 64;

/// Where the pages for tags of blocks of one extent are; none if it has no place.
pub(crate) fn pages_of(thin: &Thin, blocks: &std::ops::Range<u64>) -> Vec<(u64, Owner)> {
    let (grid, index) = (&thin.grid, thin.grid.index(blocks.start));
    let Some(place) = thin.map.place(index).filter(|_| !blocks.is_empty()) else { return Vec::new() };
    let begin = thin.shared.layout.extent(place);
    let owner = |page| {
        let tagged = grid.tagged(index, page);
        let blocks = tagged.start..tagged.end.min(thin.blocks_of_it());
        (begin + grid.page_at(page), Owner { instance: thin.instance, blocks, place: (index, page) })
    };
    (grid.page(blocks.start)..=grid.page(blocks.end - 1)).map(owner).collect()
}

/// Where the data of a block are, and the page of its tag; `None` if its extent has no place.
pub(crate) fn spot(thin: &Thin, block: u64) -> Option<(u64, u64)> {
    let begin = thin.shared.layout.extent(thin.map.place(thin.grid.index(block))?);
    Some((begin + thin.grid.data(block), begin + thin.grid.page_at(thin.grid.page(block))))
}

/// A tag of a block, as it is on the medium, and what it says.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    kept: Tag,
    pub(crate) metadata: [u8; 8],
}

/// The first of these tags that is that of the block with these bytes. They become what was written.
fn judge(thin: &Thin, block: u64, data: &mut [u8], tags: impl Iterator<Item = Tag>) -> Option<Found> {
    let zeros = data.iter().all(|byte| *byte == 0);
    if let Some(cipher) = thin.cipher.as_ref().filter(|_| !zeros) {
        cipher.decrypt(block, data.len(), data);
    }
    let clear = |kept: Tag| {
        let mut tag = kept;
        if let Some(cipher) = &thin.cipher
            && tag != Tag::LOST
        {
            cipher.decrypt_tag(block, &mut tag.0);
        }
        tag
    };
    tags.into_iter().find_map(|kept| {
        // One that was never written is neither encrypted nor anything else.
        let (fits, tag) = match kept {
            Tag::UNWRITTEN => (zeros, kept),
            kept => (clear(kept).fits(thin.instance, block, data), clear(kept)),
        };
        fits.then(|| Found { kept, metadata: tag.metadata() })
    })
}

impl Store {
    /// Bytes of memory that tags of blocks take: what the medium holds of them is not counted.
    #[must_use]
    pub fn tag_cache_bytes(&self) -> usize {
        self.tags.bytes()
    }

    /// Has these pages in memory for the rest of the turn; gives those that cannot be, and why.
    pub(crate) fn load_tags(&mut self, wanted: impl Iterator<Item = (u64, Owner)>) -> BTreeMap<u64, Class> {
        let missing = wanted.filter(|(at, _)| !self.tags.touch(*at));
        let mut missing: BTreeMap<u64, Owner> = missing.collect();
        if missing.is_empty() {
            return BTreeMap::new();
        }
        if self.tags.is_dirty()
            && let Err(error) = self.write_back_tags()
        {
            tracing::error!("tags of blocks cannot be written: {error}");
        }
        self.tags.make_room(missing.len());
        if !self.tags.has_room(missing.len()) {
            return missing.into_keys().map(|at| (at, Class::MediumWrite)).collect();
        }
        // New extents have none yet.
        let blank: Vec<u64> = missing.keys().copied().filter(|at| self.tags.blank.remove(at)).collect();
        for at in blank {
            let Some(owner) = missing.remove(&at) else { continue };
            let bytes = page(&owner, 0);
            self.tags.insert(at, owner, bytes);
        }
        let read = |&offset: &u64| Operation::Read { offset, len: BYTES, buffer: Buffer::zeroed(BYTES) };
        let operations = missing.keys().map(read).collect();
        let mut failed = BTreeMap::new();
        for ((at, owner), completion) in missing.into_iter().zip(self.disk.run(operations)) {
            match (completion.result, completion.buffer) {
                (Ok(()), Some(bytes)) => {
                    let bytes = if bytes.as_slice()[..16] == header_of(&owner) {
                        bytes
                    } else {
                        let instance = owner.instance.0;
                        tracing::error!(instance, at, "the tags of blocks from {} on are lost", owner.blocks.start);
                        page(&owner, 0xFF)
                    };
                    self.tags.insert(at, owner, bytes);
                }
                (result, _) => {
                    let error = result.err();
                    let class = error.as_ref().map_or(Class::MediumRead, DeviceError::class);
                    if !self.is_troubled() {
                        tracing::error!(instance = owner.instance.0, ?error, "tags of blocks cannot be read");
                    }
                    failed.insert(at, class);
                }
            }
        }
        failed
    }

    /// Writes the pages that are not on the medium as they are in memory; gives those that could not be.
    pub(crate) fn write_back_tags(&mut self) -> Result<Vec<u64>, Error> {
        let (dirty, mut failed) = (self.tags.dirty(), Vec::new());
        if dirty.is_empty() || self.is_read_only() {
            return Ok(failed);
        }
        // What these tags fit may not be lost with the power when what was there before them is.
        self.flush()?;
        for some in dirty.chunks(AT_ONCE) {
            let write = |&offset: &u64| {
                let buffer = self.tags.copy(offset)?;
                Some(Operation::Write { offset, len: BYTES, buffer, fua: false })
            };
            let operations = some.iter().filter_map(write).collect();
            for (&at, completion) in some.iter().zip(self.disk.run(operations)) {
                match completion.result {
                    Ok(()) => self.tags.cleaned(at),
                    Err(error) => {
                        if !self.is_troubled() {
                            tracing::error!("tags of blocks cannot be written: {error}");
                        }
                        failed.push(at);
                    }
                }
            }
        }
        Ok(failed)
    }

    /// Brings all tags to the medium, for a checkpoint; gives what has to be in that because it is not there.
    pub(crate) fn bring_tags(&mut self) -> Result<Vec<Record>, Error> {
        if self.tags.pending() > CARRIED_MAX {
            let mut from = (Instance(0), 0);
            while let some = self.tags.unsettled(from, AT_ONCE)
                && let Some(&(instance, block)) = some.last()
            {
                from = (instance, block + 1);
                self.settle_blocks(&some);
            }
        }
        let failed = self.write_back_tags()?;
        if failed.len() > PAGES_MAX || self.tags.pending() > CARRIED_MAX {
            let reason = "too many tags of blocks cannot be read or written: see the log";
            let (action, class) = (Action::Write, Class::MediumWrite);
            return Err(Error::Device(DeviceError::Refused { action, offset: 0, len: 0, class, reason }));
        }
        Ok(self.tags.records(&failed))
    }

    /// Whether there are blocks that nobody has looked at since the start.
    pub(crate) fn has_unsettled(&self) -> bool {
        self.tags.cursor.is_some_and(|from| !self.tags.unsettled(from, 1).is_empty())
    }

    /// Looks at some of them.
    pub(crate) fn settle_some(&mut self) {
        let Some(from) = self.tags.cursor else { return };
        let some = self.tags.unsettled(from, AT_ONCE);
        self.settle_blocks(&some);
        // What cannot be read now is looked at when it is read.
        self.tags.cursor = some.last().map(|&(instance, block)| (instance, block + 1));
    }

    /// Finds out which tag is that of blocks that may have several; what cannot be read stays as it is.
    pub(crate) fn settle_blocks(&mut self, blocks: &[(Instance, u64)]) {
        self.tags.next_turn();
        let mut known: Vec<(Arc<Thin>, u64, u64, u64)> = Vec::new();
        for &(instance, block) in blocks {
            let thin = self.shared.thin(instance);
            match thin.and_then(|thin| spot(&thin, block).map(|(data, page)| (thin, block, data, page))) {
                Some(known_one) => known.push(known_one),
                None => self.tags.resolve(instance, block..block + 1),
            }
        }
        let pages = known.iter().flat_map(|(thin, block, ..)| pages_of(thin, &(*block..*block + 1)));
        let pages: Vec<_> = pages.collect();
        let failed = self.load_tags(pages.into_iter());
        known.retain(|(.., page)| !failed.contains_key(page));
        let read = |(thin, _, offset, _): &(Arc<Thin>, u64, u64, u64)| {
            let len = usize::try_from(thin.grid.data_bytes).unwrap_or_default();
            Operation::Read { offset: *offset, len, buffer: Buffer::zeroed(len) }
        };
        let operations = known.iter().map(read).collect();
        for ((thin, block, ..), completion) in known.iter().zip(self.disk.run(operations)) {
            if let (Ok(()), Some(mut data)) = (completion.result, completion.buffer) {
                let len = usize::try_from(thin.grid.data_bytes).unwrap_or_default();
                if self.fit(thin, *block, &mut data.as_mut_slice()[..len]).is_none() {
                    self.tell_corrupt(thin, *block);
                    self.give_up(thin, *block);
                }
            }
        }
    }

    /// Has the journal say which tags blocks have that do not have the newest in it.
    pub(crate) fn journal_reverted(&mut self) -> Result<(), Error> {
        while !self.tags.reverted.is_empty() {
            let some: Vec<_> = self.tags.reverted.iter().take(AT_ONCE).map(|(&key, &tag)| (key, tag)).collect();
            // A checkpoint says it, too.
            self.make_sure_of_room(some.len(), some.len())?;
            if self.tags.reverted.is_empty() {
                break;
            }
            let record = |&((instance, first), tag)| Record::Tags { instance, first, tags: vec![tag] };
            self.append(&some.iter().map(record).collect::<Vec<_>>(), false)?;
            for (key, _) in some {
                self.tags.reverted.remove(&key);
            }
        }
        Ok(())
    }

    /// The tag of a block with these bytes, which become what was written; `None` if none fits, or its page is not in memory.
    pub(crate) fn fit(&mut self, thin: &Thin, block: u64, data: &mut [u8]) -> Option<Found> {
        let (_, page) = spot(thin, block)?;
        let at = thin.grid.tag(block);
        let on_page = self.tags.tag(page, &at)?;
        let Some(supposed) = self.tags.supposed(thin.instance, block) else {
            return judge(thin, block, data, std::iter::once(on_page));
        };
        let newest = supposed.tags.last().copied();
        let newest_first = supposed.tags.iter().rev().copied().chain((!supposed.only).then_some(on_page));
        let found = judge(thin, block, data, newest_first)?;
        if self.is_read_only() {
            return Some(found);
        }
        if found.kept != on_page {
            self.tags.put(page, at, found.kept);
        }
        self.tags.resolve(thin.instance, block..block + 1);
        if newest != Some(found.kept) {
            self.tags.reverted.insert((thin.instance, block), found.kept);
        }
        Some(found)
    }

    /// None of its tags fits: it has the newest, and cannot be read before it is written.
    fn give_up(&mut self, thin: &Thin, block: u64) {
        let newest = self.tags.supposed(thin.instance, block).and_then(|supposed| supposed.tags.last().copied());
        if let (Some(newest), Some((_, page))) = (newest, spot(thin, block))
            && self.tags.put(page, thin.grid.tag(block), newest)
        {
            self.tags.resolve(thin.instance, block..block + 1);
        }
    }

    /// What is there of a block is not what was written.
    pub(crate) fn tell_corrupt(&mut self, thin: &Thin, block: u64) {
        if self.tags.may_tell() {
            tracing::error!(instance = thin.instance.0, block, "a block is damaged: its checksum does not fit");
            self.shared.tell(Notice::Corrupt { instance: thin.instance, block });
        }
    }

    /// Extents of a namespace (number, and place on the medium) are not its own any more.
    pub(crate) fn forget_tags(&mut self, thin: &Thin, extents: &[(u32, u32)]) {
        let layout = self.shared.layout;
        for &(index, place) in extents {
            let (blocks, begin) = (thin.grid.blocks_of(index..index + 1), layout.extent(place));
            self.tags.forget(thin.instance, blocks, begin..begin + layout.extent_bytes);
        }
    }
}

fn header_of(owner: &Owner) -> [u8; 16] {
    header(owner.instance, owner.place.0, owner.place.1)
}

/// A page with nothing but its header, and tags that are all the same byte.
pub(crate) fn page(owner: &Owner, fill: u8) -> Buffer {
    let mut page = Buffer::zeroed(BYTES);
    page.as_mut_slice().fill(fill);
    page.as_mut_slice()[..16].copy_from_slice(&header_of(owner));
    page
}
