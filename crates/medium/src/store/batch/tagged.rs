//! Requests of namespaces whose blocks have tags, as far as the drive's thread does them.
//!
//! The order: the new tag of a block is in the journal, durably; then its data are written; then
//! the tag is put into its page in memory. A crash at any point leaves a block with the data for
//! the tag on its page, or for a later one in the journal, as long as the medium writes a block as
//! a whole or not at all. Or, instead of the tag, the journal says that the block is in flux
//! (`tags/flux.rs`). Changes of the same blocks are done one after the other, in any order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ebof_backend::{Buffer, Class, Error as DeviceError, Operation, Segments};
use ebof_drive::frame::{Kind, Planned, Record};
use ebof_drive::tag::Tag;

use crate::disk::Disk;
use crate::pages::{BYTES, Mask, Owner, Places, WriteMode};
use crate::store::batch::item::{
    Item, buffer_of, buffer_of_mut, changed_ranges, deallocated_ranges, edges, map_records,
};
use crate::store::batch::{Batch, JOURNAL_FAILED};
use crate::store::order::WriteOrder;
use crate::store::settle;
use crate::tags::{Tags, page};
use crate::thin::bad_blocks::BadBlocks as Ranges;
use crate::thin::block_tags::{location, pages_of, places};
use crate::{Thin, VolumeId};

/// Limits of what is read or written together: bytes of data, parts of requests, and blocks.
const GROUP_BYTES: u64 = 8 << 20;
const GROUP_PARTS: usize = 256;
const GROUP_BLOCKS: u64 = 16384;
/// Bytes of data of one part.
const PART_BYTES: u64 = 1 << 20;
/// Bytes of tag pages of new extents that are written at a time.
const BLANK_BYTES: usize = 8 << 20;

/// A part of a request: blocks that lie in one extent.
struct Part {
    /// Index of the request.
    item: usize,
    blocks: Range<u64>,
    /// Offset of their data on the medium.
    offset: u64,
}

impl Part {
    fn count(&self) -> u64 {
        self.blocks.end - self.blocks.start
    }
}

/// Does requests of namespaces with tags. Returns them in any order.
pub(crate) fn run(order: &mut WriteOrder, items: Vec<Item>) -> Vec<Item> {
    let modifies = |item: &Item| item.request.operation.action().modifies();
    let (changes, reads): (Vec<Item>, Vec<Item>) = items.into_iter().partition(modifies);
    let mut reads = Tagged(Batch { order, items: reads });
    reads.read();
    let mut done = reads.0.items;
    for disjoint in disjoint_changes(changes) {
        let mut disjoint = Tagged(Batch { order, items: disjoint });
        disjoint.change();
        done.append(&mut disjoint.0.items);
    }
    done
}

/// Requests of namespaces with tags, of which no two change the same blocks.
struct Tagged<'a>(Batch<'a>);

impl Tagged<'_> {
    fn read(&mut self) {
        let parts = parts(&mut self.0.items);
        for group in groups(&self.0.items, &parts) {
            self.read_parts(group);
        }
    }

    fn change(&mut self) {
        self.0.find_unmapped();
        self.0.allocate();
        let records = map_records(&self.0.items);
        let mut mapped = self.write_blank_pages();
        if mapped.is_ok() && !records.is_empty() {
            // Durably: unmapped extents are zeroed soon, and a power loss must not bring their
            // mapping back.
            mapped = self.0.order.append(&records, true);
        }
        if let Err(error) = mapped {
            tracing::error!("extents cannot be given or taken: {error}");
            self.0.roll_back(&error);
        }
        self.0.update_maps();
        let parts = parts(&mut self.0.items);
        for group in groups(&self.0.items, &parts) {
            self.write_parts(group);
        }
        let WriteOrder { tags, disk, journal, .. } = &mut *self.0.order;
        tags.end_batch(disk, journal);
        self.0.clear_bad_blocks();
    }

    /// Writes the blank pages of tags of new extents, durably, before these are mapped.
    fn write_blank_pages(&mut self) -> Result<(), crate::Error> {
        let Batch { order, items } = &mut self.0;
        let layout = order.shared.layout;
        let items = items.iter().filter(|item| item.result.is_ok());
        let new = items.flat_map(|item| item.allocated.iter().map(|(&index, &extent)| (&item.thin, index, extent)));
        let mut operations = Vec::new();
        let mut any = false;
        for (thin, index, extent) in new {
            any = true;
            let begin = layout.extent(extent);
            let pages = thin.block_layout.tags_bytes / BYTES as u64;
            let blank = |page_no: u64| {
                let owner = Owner { volume: thin.volume, blocks: 0..0, index, page: page_no };
                page(&owner, 0)
            };
            for first in (0..pages).step_by(size(PART_BYTES) / BYTES) {
                let count = (pages - first).min(PART_BYTES / BYTES as u64);
                let mut buffer = Buffer::zeroed(usize::try_from(count).expect("pages of at most `PART_BYTES`") * BYTES);
                let len = buffer.capacity();
                for (into, page_no) in buffer.as_mut_slice().chunks_exact_mut(BYTES).zip(first..) {
                    into.copy_from_slice(blank(page_no).as_slice());
                    order.tags.add_blank(begin + thin.block_layout.page_at(page_no));
                }
                let offset = begin + thin.block_layout.page_at(first);
                operations.push(Operation::Write { offset, len, data: buffer.into(), fua: false });
                if operations.len() * size(PART_BYTES) >= BLANK_BYTES {
                    run_all(&mut order.disk, std::mem::take(&mut operations))?;
                }
            }
        }
        if any {
            run_all(&mut order.disk, operations)?;
            order.flush()?;
        }
        Ok(())
    }

    /// Loads the tags of parts; refuses the requests whose tags cannot be loaded.
    fn load_parts(&mut self, parts: &[Part]) {
        let Batch { order, items } = &mut self.0;
        order.tags.begin_use();
        let pages = |part: &Part| pages_of(&items[part.item].thin, &part.blocks);
        let pages: Vec<Vec<(u64, Owner)>> = parts.iter().map(pages).collect();
        let failed = order.tags.load(&mut order.disk, &mut order.journal, pages.iter().flatten().cloned());
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
        let Batch { order, items } = &mut self.0;
        let parts: Vec<&Part> = parts.iter().filter(|part| items[part.item].result.is_ok()).collect();
        let read = |part: &&Part| {
            let len = size(part.count() * items[part.item].thin.block_layout.data_bytes);
            Operation::Read { offset: part.offset, len, data: Buffer::zeroed(len).into() }
        };
        let operations = parts.iter().map(read).collect();
        for (part, completion) in parts.into_iter().zip(order.disk.run(operations)) {
            let item = &mut items[part.item];
            match (completion.result, completion.data.and_then(Segments::into_buffer)) {
                (Ok(()), Some(data)) if item.result.is_ok() => verify(&mut order.tags, item, part, data),
                // Another part of the request has failed.
                (Ok(()), Some(_)) => {}
                (Ok(()), None) => unreachable!("a read returns its buffer"),
                (Err(error), _) => item.result = Err(error),
            }
        }
    }

    fn write_parts(&mut self, parts: &[Part]) {
        let blocks: u64 = parts.iter().map(Part::count).sum();
        let pages = parts.iter().flat_map(|part| pages_of(&self.0.items[part.item].thin, &part.blocks)).count();
        let planned = [
            Planned { kind: Kind::Tags, records: parts.len(), entries: size(blocks) },
            Planned { kind: Kind::Flux, records: pages, entries: 0 },
        ];
        if self.0.order.reserve_flux(pages).is_err() || self.0.order.reserve_journal(&planned).is_err() {
            parts.iter().for_each(|part| self.0.items[part.item].refuse(Class::MediumWrite, JOURNAL_FAILED));
            return;
        }
        self.load_parts(parts);
        let Batch { order, items } = &mut self.0;
        let parts: Vec<&Part> = parts.iter().filter(|part| items[part.item].result.is_ok()).collect();
        let mut operations = Vec::new();
        let mut records = Vec::new();
        let mut changes = Vec::new();
        for part in &parts {
            let thin = &items[part.item].thin;
            let (operation, tags) = prepare_change(&items[part.item], part);
            operations.push(operation);
            let marks = marks(&order.tags, thin, &part.blocks);
            match &marks {
                None => {
                    let (volume, first) = (thin.volume, part.blocks.start);
                    records.push(Record::Tags { volume, first, tags: tags.clone() });
                }
                Some(marks) => {
                    records
                        .extend(marks.iter().filter_map(|(block, _, mask)| settle::flux_record(thin, *block, *mask)));
                }
            }
            changes.push((tags, marks));
        }
        if !records.is_empty() && order.append(&records, true).is_err() {
            parts.iter().for_each(|part| items[part.item].refuse(Class::MediumWrite, JOURNAL_FAILED));
            return;
        }
        let mut unresolved: Vec<(VolumeId, u64)> = Vec::new();
        let mut exact: Vec<&Part> = Vec::new();
        for (part, (_, marks)) in parts.iter().zip(&changes) {
            note_marks(order, &items[part.item].thin, &part.blocks, marks.as_deref());
        }
        for ((part, (tags, marks)), completion) in parts.into_iter().zip(changes).zip(order.disk.run(operations)) {
            let (item, in_flux) = (&mut items[part.item], marks.is_some());
            for (block, tag) in part.blocks.clone().zip(tags) {
                let is_ok = completion.result.is_ok();
                if !order.tags.block_written(&item.thin, block, tag, is_ok, in_flux) && !in_flux {
                    order.journal.add_unresolved_last();
                }
            }
            if in_flux {
                item.is_unsettled = true;
                item.thin.count_unsettled();
            }
            if !in_flux && completion.result.is_ok() {
                exact.push(part);
            }
            if let Err(error) = completion.result {
                unresolved.extend(part.blocks.clone().map(|block| (item.thin.volume, block)));
                item.result = Err(error);
            }
        }
        // Some of a failed write may have been written: that is found out at once, if possible.
        for blocks in unresolved.chunks(GROUP_PARTS) {
            order.tags.recover_blocks(&mut order.disk, &mut order.journal, blocks);
        }
        for part in exact {
            let item = &mut items[part.item];
            item.is_unsettled |= order.settle_if_unresolved(&item.thin, &part.blocks);
        }
    }
}

/// Which blocks are to be brought into flux before these are written: a block of a page, its offset
/// and the blocks. `None` if tags are to be in the journal first, and none of these is in flux.
/// Those that were when the drive ended are: until the next flush, power loss may bring back what
/// was there, which has no tag.
fn marks(tags: &Tags, thin: &Thin, blocks: &Range<u64>) -> Option<Vec<(u64, u64, Mask)>> {
    let extent = thin.map.lookup(thin.block_layout.index(blocks.start)).filter(|_| thin.may_be_in_flux)?;
    let pages = &thin.shared.pages;
    let all = || places(thin, extent, blocks);
    let modes: Vec<WriteMode> = all().map(|places| pages.write_mode(&places, thin.flushes())).collect();
    let is_ambiguous = blocks.clone().any(|block| tags.is_ambiguous(thin.volume, block));
    if !is_ambiguous && modes.iter().all(|mode| *mode == WriteMode::Exact) {
        return None;
    }
    let mut block = blocks.start;
    let mark = |(places, mode): (Places, WriteMode)| {
        let mask = match mode {
            WriteMode::Exact => pages.unmarked(&places),
            WriteMode::Flux(mask) => mask,
        };
        let first = block;
        block += places.places.len() as u64;
        (first, places.at, mask)
    };
    Some(all().zip(modes).map(mark).collect())
}

/// The records of a write are durable.
fn note_marks(order: &mut WriteOrder, thin: &Thin, blocks: &Range<u64>, marks: Option<&[(u64, u64, Mask)]>) {
    for &(_, page, mask) in marks.unwrap_or_default() {
        order.settling.marked(thin.volume, page, mask);
    }
    let extent = thin.map.lookup(thin.block_layout.index(blocks.start));
    if let (Some(extent), None, true) = (extent, marks, thin.may_be_in_flux) {
        places(thin, extent, blocks).for_each(|places| thin.shared.pages.touch_blocks(&places, thin.flushes()));
    }
}

/// Copies what was read to the request's memory, if it matches its tags.
fn verify(tags: &mut Tags, item: &mut Item, part: &Part, mut read: Buffer) {
    let thin = Arc::clone(&item.thin);
    let data_bytes = size(thin.block_layout.data_bytes);
    let block_bytes = size(thin.block_layout.block_bytes);
    let Operation::Read { offset, data, .. } = &mut item.request.operation else {
        unreachable!("changes and reads are apart, see `run`, and a flush has no part");
    };
    let mut into = size(part.blocks.start * thin.block_layout.block_bytes - *offset);
    for (block, bytes) in part.blocks.clone().zip(read.as_mut_slice().chunks_exact_mut(data_bytes)) {
        let Some(found) = tags.match_block(&thin, block, bytes) else {
            let action = item.request.operation.action();
            let of = format!("instance {}", thin.volume.0);
            item.result = Err(DeviceError::Corrupt { action, block, of });
            tags.report_corrupt(&thin, block);
            return;
        };
        let (data_part, metadata) =
            buffer_of_mut(data).as_mut_slice()[into..into + block_bytes].split_at_mut(data_bytes);
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

/// Why the metadata of a block fit into a tag.
const METADATA: &str = "a block has 8 bytes of metadata or none, see `BlockFormat::decode`";

/// The operation on the backing device for a part of a change, and the new tags of its blocks.
fn prepare_change(item: &Item, part: &Part) -> (Operation, Vec<Tag>) {
    let thin = &item.thin;
    let data_bytes = size(thin.block_layout.data_bytes);
    let block_bytes = size(thin.block_layout.block_bytes);
    let len = part.count() * thin.block_layout.data_bytes;
    let Operation::Write { offset, data, .. } = &item.request.operation else {
        let deallocate = !matches!(item.request.operation, Operation::WriteZeroes { deallocate: false, .. });
        let operation = Operation::WriteZeroes { offset: part.offset, len, deallocate, fua: false };
        return (operation, vec![Tag::UNWRITTEN; size(part.count())]);
    };
    let from = size(part.blocks.start * thin.block_layout.block_bytes - offset);
    let mut on_medium = Buffer::zeroed(size(len));
    let blocks = buffer_of(data).as_slice()[from..].chunks_exact(block_bytes);
    let into = on_medium.as_mut_slice()[..size(len)].chunks_exact_mut(data_bytes);
    let mut tags = Vec::with_capacity(size(part.count()));
    for ((number, block), into) in part.blocks.clone().zip(blocks).zip(into) {
        let (data, metadata) = block.split_at(data_bytes);
        let metadata = if metadata.is_empty() { [0; 8] } else { metadata.try_into().expect(METADATA) };
        let mut tag = Tag::new(thin.volume, number, data, metadata);
        into.copy_from_slice(data);
        if let Some(cipher) = &thin.cipher {
            cipher.encrypt_tag(number, &mut tag.0);
            cipher.encrypt(number, data_bytes, into);
        }
        tags.push(tag);
    }
    (Operation::Write { offset: part.offset, len: size(len), data: on_medium.into(), fua: false }, tags)
}

/// The blocks that a request reads, or changes other than by unmapping their extents.
fn block_ranges(item: &Item) -> Vec<Range<u64>> {
    let bytes = match &item.request.operation {
        Operation::Read { offset, len, .. } => vec![(*offset, *len as u64)],
        operation => match &deallocated_ranges(operation)[..] {
            [] => changed_ranges(operation),
            deallocated => deallocated.iter().flat_map(|&(offset, len)| edges(&item.thin, offset, len)).collect(),
        },
    };
    bytes.into_iter().filter(|(_, len)| *len > 0).map(|(offset, len)| item.thin.blocks(offset, len)).collect()
}

/// Splits requests into parts. Blocks of unmapped extents have no part: they are zeros, and stay
/// so.
fn parts(items: &mut [Item]) -> Vec<Part> {
    let mut parts = Vec::new();
    for (item, it) in items.iter_mut().enumerate().filter(|(_, it)| it.result.is_ok()) {
        let most = PART_BYTES / it.thin.block_layout.data_bytes;
        for blocks in block_ranges(it).into_iter().flat_map(|range| it.thin.block_layout.pieces(range, most)) {
            if let Some((offset, _)) = location(&it.thin, blocks.start) {
                parts.push(Part { item, blocks, offset });
            } else if let Operation::Read { offset, data, .. } = &mut it.request.operation {
                let block_bytes = it.thin.block_layout.block_bytes;
                let zeros = size(blocks.start * block_bytes - *offset)..size(blocks.end * block_bytes - *offset);
                buffer_of_mut(data).as_mut_slice()[zeros].fill(0);
            }
        }
    }
    parts
}

/// Groups parts that are done together.
fn groups<'a>(items: &[Item], parts: &'a [Part]) -> Vec<&'a [Part]> {
    let mut groups = Vec::new();
    let mut begin = 0;
    let mut bytes = 0;
    let mut blocks = 0;
    for (at, part) in parts.iter().enumerate() {
        bytes += part.count() * items[part.item].thin.block_layout.data_bytes;
        blocks += part.count();
        if at > begin && (bytes > GROUP_BYTES || blocks > GROUP_BLOCKS || at - begin >= GROUP_PARTS) {
            groups.push(&parts[begin..at]);
            begin = at;
            bytes = part.count() * items[part.item].thin.block_layout.data_bytes;
            blocks = part.count();
        }
    }
    if begin < parts.len() {
        groups.push(&parts[begin..]);
    }
    groups
}

/// Groups changes so that no two of a group are of the same blocks.
fn disjoint_changes(changes: Vec<Item>) -> Vec<Vec<Item>> {
    let mut groups: Vec<(BTreeMap<VolumeId, Ranges>, Vec<Item>)> = Vec::new();
    for item in changes {
        let ranges = match &item.result {
            Ok(()) => changed_ranges(&item.request.operation),
            Err(_) => Vec::new(),
        };
        let ranges: Vec<Range<u64>> = ranges.into_iter().map(|(offset, len)| item.thin.blocks(offset, len)).collect();
        let touches = |taken: &BTreeMap<VolumeId, Ranges>| {
            taken.get(&item.thin.volume).is_some_and(|taken| ranges.iter().any(|range| taken.touches(range)))
        };
        let at = groups.iter().position(|(taken, _)| !touches(taken)).unwrap_or(groups.len());
        if at == groups.len() {
            groups.push((BTreeMap::new(), Vec::new()));
        }
        let taken = groups[at].0.entry(item.thin.volume).or_default();
        ranges.into_iter().for_each(|range| taken.add(range));
        groups[at].1.push(item);
    }
    groups.into_iter().map(|(_, items)| items).collect()
}
