//! Requests of namespaces whose blocks have tags: all of them are done by the drive's thread.
//!
//! The order: what a block's tag will be is in the journal, durably; then its data are written;
//! then the tag is put into its page in memory. Wherever that ends, a block has the data for the
//! tag on its page or for one in the journal behind that, as long as each block is written as a
//! whole or not at all. Requests that touch the same blocks do not run at the same time: those that
//! were together are done one after the other, in any order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ebof_backend::{Buffer, Class, Error as DeviceError, Operation, Segments};
use ebof_drive::frame::Record;
use ebof_drive::tag::Tag;

use crate::bad_blocks::BadBlocks as Ranges;
use crate::batch::{Batch, Item, JOURNAL, edges, given_back, one, one_mut, records_of, written};
use crate::disk::Disk;
use crate::tags::{BYTES, Owner, Tags, location, page, pages_of};
use crate::{Store, VolumeId};

/// Bytes of data that are moved together, parts of requests, and blocks.
const TURN_BYTES: u64 = 8 << 20;
const TURN_PARTS: usize = 256;
const TURN_BLOCKS: u64 = 16384;
/// Bytes of data of one part.
const PART_BYTES: u64 = 1 << 20;
/// Bytes of tag pages of new extents that are written together.
const BLANK_BYTES: usize = 8 << 20;

/// A part of a request: blocks that lie in one extent.
struct Part {
    /// Whose it is.
    item: usize,
    blocks: Range<u64>,
    /// Where their data begin on the medium.
    at: u64,
}

impl Part {
    fn count(&self) -> u64 {
        self.blocks.end - self.blocks.start
    }
}

/// Does requests of namespaces with tags; gives them back, in any order.
pub(crate) fn run(store: &mut Store, items: Vec<Item>) -> Vec<Item> {
    let modifies = |item: &Item| item.request.operation.action().modifies();
    let (changes, reads): (Vec<Item>, Vec<Item>) = items.into_iter().partition(modifies);
    let mut reads = Tagged(Batch { store, items: reads });
    reads.read();
    let mut done = reads.0.items;
    for round in rounds(changes) {
        let mut round = Tagged(Batch { store, items: round });
        round.change();
        done.append(&mut round.0.items);
    }
    done
}

/// Requests of namespaces with tags, of which no two change the same blocks.
struct Tagged<'a>(Batch<'a>);

impl Tagged<'_> {
    fn read(&mut self) {
        let parts = parts(&mut self.0.items);
        for turn in turns(&self.0.items, &parts) {
            self.read_parts(turn);
        }
    }

    fn change(&mut self) {
        self.0.empty();
        self.0.allocate();
        let records = records_of(&self.0.items);
        let mut placed = self.make_blank();
        if placed.is_ok() && !records.is_empty() {
            // Durably: what is taken from a namespace is zeroed, and that must not be found in its
            // place.
            placed = self.0.store.append(&records, true);
        }
        if let Err(error) = placed {
            tracing::error!("extents cannot be given or taken: {error}");
            self.0.take_back(&error);
        }
        self.0.place();
        let parts = parts(&mut self.0.items);
        for turn in turns(&self.0.items, &parts) {
            self.write_parts(turn);
        }
        let Store { tags, disk, journal, .. } = &mut *self.0.store;
        tags.end_batch(disk, journal);
        self.0.clear_bad_blocks();
    }

    /// Gives new extents their pages of tags, durably, before they are given to anybody.
    fn make_blank(&mut self) -> Result<(), crate::Error> {
        let Batch { store, items } = &mut self.0;
        let layout = store.shared.layout;
        let fresh = items.iter().filter(|item| item.result.is_ok());
        let fresh = fresh.flat_map(|item| item.fresh.iter().map(|(&index, &place)| (&item.thin, index, place)));
        let (mut operations, mut some) = (Vec::new(), false);
        for (thin, index, place) in fresh {
            some = true;
            let begin = layout.extent(place);
            let pages = thin.block_layout.tags.1 / BYTES as u64;
            let blank = |page_no: u64| {
                let owner = Owner { volume: thin.volume, blocks: 0..0, place: (index, page_no) };
                page(&owner, 0)
            };
            for first in (0..pages).step_by(size(PART_BYTES) / BYTES) {
                let count = (pages - first).min(PART_BYTES / BYTES as u64);
                let mut buffer = Buffer::zeroed(usize::try_from(count).unwrap_or_default() * BYTES);
                let len = buffer.capacity();
                for (into, page_no) in buffer.as_mut_slice().chunks_exact_mut(BYTES).zip(first..) {
                    into.copy_from_slice(blank(page_no).as_slice());
                    store.tags.made_blank(begin + thin.block_layout.page_at(page_no));
                }
                let offset = begin + thin.block_layout.page_at(first);
                operations.push(Operation::Write { offset, len, data: buffer.into(), fua: false });
                if operations.len() * size(PART_BYTES) >= BLANK_BYTES {
                    run_all(&mut store.disk, std::mem::take(&mut operations))?;
                }
            }
        }
        if some {
            run_all(&mut store.disk, operations)?;
            store.flush()?;
        }
        Ok(())
    }

    /// Has the tags of parts in memory; refuses requests of which some cannot be.
    fn load_parts(&mut self, parts: &[Part]) {
        let Batch { store, items } = &mut self.0;
        store.tags.next_turn();
        let pages = |part: &Part| pages_of(&items[part.item].thin, &part.blocks);
        let pages: Vec<Vec<(u64, Owner)>> = parts.iter().map(pages).collect();
        let failed = store.tags.load(&mut store.disk, &mut store.journal, pages.iter().flatten().cloned());
        if failed.is_empty() {
            return;
        }
        for (part, pages) in parts.iter().zip(&pages) {
            if let Some(class) = pages.iter().find_map(|(at, _)| failed.get(at)) {
                let item = &mut items[part.item];
                let class = match class {
                    Class::MediumRead if item.request.operation.action().modifies() => Class::MediumWrite,
                    class => *class,
                };
                item.refuse(class, "the tags of its blocks cannot be read: see the log");
            }
        }
    }

    fn read_parts(&mut self, parts: &[Part]) {
        self.load_parts(parts);
        let Batch { store, items } = &mut self.0;
        let parts: Vec<&Part> = parts.iter().filter(|part| items[part.item].result.is_ok()).collect();
        let read = |part: &&Part| {
            let len = size(part.count() * items[part.item].thin.block_layout.data_bytes);
            Operation::Read { offset: part.at, len, data: Buffer::zeroed(len).into() }
        };
        let operations = parts.iter().map(read).collect();
        for (part, completion) in parts.into_iter().zip(store.disk.run(operations)) {
            let item = &mut items[part.item];
            match (completion.result, completion.data.and_then(Segments::into_buffer)) {
                (Ok(()), Some(data)) if item.result.is_ok() => verify(&mut store.tags, item, part, data),
                (Err(error), _) => item.result = Err(error),
                _ => {}
            }
        }
    }

    fn write_parts(&mut self, parts: &[Part]) {
        let blocks: u64 = parts.iter().map(Part::count).sum();
        if self.0.store.make_sure_of_room(size(blocks), parts.len()).is_err() {
            parts.iter().for_each(|part| self.0.items[part.item].refuse(Class::MediumWrite, JOURNAL));
            return;
        }
        self.load_parts(parts);
        let Batch { store, items } = &mut self.0;
        let parts: Vec<&Part> = parts.iter().filter(|part| items[part.item].result.is_ok()).collect();
        let (mut operations, mut records) = (Vec::new(), Vec::new());
        for part in &parts {
            let (operation, tags) = sealed(&items[part.item], part);
            operations.push(operation);
            records.push(Record::Tags { volume: items[part.item].thin.volume, first: part.blocks.start, tags });
        }
        if records.is_empty() {
            return;
        }
        if store.append(&records, true).is_err() {
            parts.iter().for_each(|part| items[part.item].refuse(Class::MediumWrite, JOURNAL));
            return;
        }
        let mut unsure: Vec<(VolumeId, u64)> = Vec::new();
        for ((part, record), completion) in parts.into_iter().zip(records).zip(store.disk.run(operations)) {
            let (item, Record::Tags { tags, .. }) = (&mut items[part.item], record) else { continue };
            for (block, tag) in part.blocks.clone().zip(tags) {
                if !store.tags.was_written(&item.thin, block, tag, completion.result.is_ok()) {
                    store.journal.hold_last();
                }
            }
            if let Err(error) = completion.result {
                unsure.extend(part.blocks.clone().map(|block| (item.thin.volume, block)));
                item.result = Err(error);
            }
        }
        // Whether it was written all the same is seen at once, if it can be.
        unsure
            .chunks(TURN_PARTS)
            .for_each(|blocks| store.tags.recover_blocks(&mut store.disk, &mut store.journal, blocks));
    }
}

/// Hands out what was read, if it is what was written.
fn verify(tags: &mut Tags, item: &mut Item, part: &Part, mut read: Buffer) {
    let thin = Arc::clone(&item.thin);
    let (data_bytes, block_bytes) = (size(thin.block_layout.data_bytes), size(thin.block_layout.block_bytes));
    let Operation::Read { offset, data, .. } = &mut item.request.operation else { return };
    let mut into = size(part.blocks.start * thin.block_layout.block_bytes - *offset);
    for (block, bytes) in part.blocks.clone().zip(read.as_mut_slice().chunks_exact_mut(data_bytes)) {
        let Some(found) = tags.fit(&thin, block, bytes) else {
            let (action, of) = (item.request.operation.action(), format!("namespace {}", thin.volume.0));
            item.result = Err(DeviceError::Corrupt { action, block, of });
            tags.report_corrupt(&thin, block);
            return;
        };
        let (data_part, metadata) = one_mut(data).as_mut_slice()[into..into + block_bytes].split_at_mut(data_bytes);
        data_part.copy_from_slice(bytes);
        let len = metadata.len();
        metadata.copy_from_slice(&found.metadata[..len]);
        into += block_bytes;
    }
}

fn run_all(disk: &mut Disk, operations: Vec<Operation>) -> Result<(), DeviceError> {
    disk.run(operations).into_iter().try_for_each(|completion| completion.result)
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// What a part of a change does on the backing device, and the tags of its blocks.
fn sealed(item: &Item, part: &Part) -> (Operation, Vec<Tag>) {
    let thin = &item.thin;
    let (data_bytes, block_bytes) = (size(thin.block_layout.data_bytes), size(thin.block_layout.block_bytes));
    let len = part.count() * thin.block_layout.data_bytes;
    let Operation::Write { offset, data, .. } = &item.request.operation else {
        let deallocate = !matches!(item.request.operation, Operation::WriteZeroes { deallocate: false, .. });
        let operation = Operation::WriteZeroes { offset: part.at, len, deallocate, fua: false };
        return (operation, vec![Tag::UNWRITTEN; size(part.count())]);
    };
    let from = size(part.blocks.start * thin.block_layout.block_bytes - offset);
    let mut sealed = Buffer::zeroed(size(len));
    let blocks = one(data).as_slice()[from..].chunks_exact(block_bytes);
    let into = sealed.as_mut_slice()[..size(len)].chunks_exact_mut(data_bytes);
    let mut tags = Vec::with_capacity(size(part.count()));
    for ((number, block), into) in part.blocks.clone().zip(blocks).zip(into) {
        let (data, metadata) = block.split_at(data_bytes);
        let mut tag = Tag::new(thin.volume, number, data, metadata.try_into().unwrap_or_default());
        into.copy_from_slice(data);
        if let Some(cipher) = &thin.cipher {
            cipher.encrypt_tag(number, &mut tag.0);
            cipher.encrypt(number, data_bytes, into);
        }
        tags.push(tag);
    }
    (Operation::Write { offset: part.at, len: size(len), data: sealed.into(), fua: false }, tags)
}

/// The blocks that a request reads, or changes other than by giving their extents back.
fn ranges(item: &Item) -> Vec<Range<u64>> {
    let bytes = match &item.request.operation {
        Operation::Read { offset, len, .. } => vec![(*offset, *len as u64)],
        operation => match &given_back(operation)[..] {
            [] => written(operation),
            given => given.iter().flat_map(|&(offset, len)| edges(&item.thin, offset, len)).collect(),
        },
    };
    bytes.into_iter().filter(|(_, len)| *len > 0).map(|(offset, len)| item.thin.blocks(offset, len)).collect()
}

/// Cuts requests into parts. What has no place is zeros, and stays so.
fn parts(items: &mut [Item]) -> Vec<Part> {
    let mut parts = Vec::new();
    for (item, it) in items.iter_mut().enumerate().filter(|(_, it)| it.result.is_ok()) {
        let most = PART_BYTES / it.thin.block_layout.data_bytes;
        for blocks in ranges(it).into_iter().flat_map(|range| it.thin.block_layout.pieces(range, most)) {
            if let Some((at, _)) = location(&it.thin, blocks.start) {
                parts.push(Part { item, blocks, at });
            } else if let Operation::Read { offset, data, .. } = &mut it.request.operation {
                let block_bytes = it.thin.block_layout.block_bytes;
                let zeros = size(blocks.start * block_bytes - *offset)..size(blocks.end * block_bytes - *offset);
                one_mut(data).as_mut_slice()[zeros].fill(0);
            }
        }
    }
    parts
}

/// Parts that are done together.
fn turns<'a>(items: &[Item], parts: &'a [Part]) -> Vec<&'a [Part]> {
    let (mut turns, mut begin) = (Vec::new(), 0);
    let (mut bytes, mut blocks) = (0, 0);
    for (at, part) in parts.iter().enumerate() {
        bytes += part.count() * items[part.item].thin.block_layout.data_bytes;
        blocks += part.count();
        if at > begin && (bytes > TURN_BYTES || blocks > TURN_BLOCKS || at - begin >= TURN_PARTS) {
            turns.push(&parts[begin..at]);
            begin = at;
            (bytes, blocks) = (part.count() * items[part.item].thin.block_layout.data_bytes, part.count());
        }
    }
    if begin < parts.len() {
        turns.push(&parts[begin..]);
    }
    turns
}

/// Changes that touch the same blocks are done one after the other.
fn rounds(changes: Vec<Item>) -> Vec<Vec<Item>> {
    let mut rounds: Vec<(BTreeMap<VolumeId, Ranges>, Vec<Item>)> = Vec::new();
    for item in changes {
        let ranges = match &item.result {
            Ok(()) => written(&item.request.operation),
            Err(_) => Vec::new(),
        };
        let ranges: Vec<Range<u64>> = ranges.into_iter().map(|(offset, len)| item.thin.blocks(offset, len)).collect();
        let touches = |taken: &BTreeMap<VolumeId, Ranges>| {
            taken.get(&item.thin.volume).is_some_and(|taken| ranges.iter().any(|range| taken.touches(range)))
        };
        let at = rounds.iter().position(|(taken, _)| !touches(taken)).unwrap_or(rounds.len());
        if at == rounds.len() {
            rounds.push((BTreeMap::new(), Vec::new()));
        }
        let taken = rounds[at].0.entry(item.thin.volume).or_default();
        ranges.into_iter().for_each(|range| taken.add(range));
        rounds[at].1.push(item);
    }
    rounds.into_iter().map(|(_, items)| items).collect()
}
