//! Requests that the drive's thread does itself, several at a time: first writes, whatever spans
//! extents that do not lie together, zeroes and deallocation.
//!
//! The order: extents are allocated; then records say in the journal which are mapped and unmapped;
//! then the maps are changed, in the order of the journal; then the data move; then requests are
//! completed. Requests of a batch were all in flight at the same time, so any order among them is
//! right.

pub(crate) mod item;
pub(crate) mod locks;
mod tagged;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ebof_backend::{Class, Completion, Error as DeviceError, Operation, Request};
use ebof_drive::frame::Record;

use crate::store::batch::item::{
    DeviceOperation, Item, WaitFor, buffer_of_mut, changed_ranges, gather, map_records, scatter, unmapped_extents,
};
use crate::store::order::WriteOrder;
use crate::thin::bad_blocks::BadBlocks;
use crate::thin::refused;
use crate::{Error, Notice, Thin, VolumeId};

/// Requests that are done together.
pub(crate) struct Batch<'a> {
    pub(crate) order: &'a mut WriteOrder,
    pub(crate) items: Vec<Item>,
}

/// What becomes of a request in a batch.
pub(crate) enum Outcome {
    Done(Completion),
    /// Nothing of it has been done: it is to be tried again.
    Waiting(Arc<Thin>, Request),
}

/// Why a request is refused whose records cannot be written.
pub(crate) const JOURNAL_FAILED: &str = "the drive's journal cannot be written: see the log";

impl<'a> Batch<'a> {
    pub(crate) fn new(order: &'a mut WriteOrder, requests: Vec<(Arc<Thin>, Request, WaitFor)>) -> Self {
        let item = |(number, (thin, mut request, wait_for)): (usize, (Arc<Thin>, Request, WaitFor))| {
            let segments = gather(&mut request.operation);
            let result = thin.check(&request.operation);
            Item {
                number,
                thin,
                request,
                result,
                allocated: BTreeMap::new(),
                unmapped: Vec::new(),
                operations: Vec::new(),
                wait_for,
                is_unsettled: false,
                is_waiting: false,
                segments,
            }
        };
        Self { items: requests.into_iter().enumerate().map(item).collect(), order }
    }

    /// Does all requests. Returns what has become of each, in their order.
    pub(crate) fn run(mut self) -> Vec<Outcome> {
        if self.order.shared.journal.is_suspect() && self.order.settle_journal().is_err() {
            for item in self.items.iter_mut().filter(|item| item.request.operation.action().modifies()) {
                item.refuse(Class::MediumWrite, JOURNAL_FAILED);
            }
        }
        if self.items.iter().any(|item| item.thin.is_tagged) {
            let (tagged, plain): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.items).into_iter().partition(|item| item.thin.is_tagged);
            let tagged = tagged::run(self.order, tagged);
            self.items = plain;
            self.run_plain();
            self.items.extend(tagged);
            self.items.sort_unstable_by_key(|item| item.number);
        } else {
            self.run_plain();
        }
        // Tags are in the journal before their data are written, which is over now.
        let tagged = self.items.iter().filter(|item| item.thin.is_tagged);
        let tagged = tagged.filter(|item| item.request.operation.action().modifies());
        self.order.publish(tagged.map(|item| &item.thin));
        self.make_durable();
        self.order.extents.publish_used();
        let outcome = |mut item: Item| {
            if let Some(segments) = item.segments.take() {
                scatter(&mut item.request.operation, segments);
            }
            if item.is_waiting {
                Outcome::Waiting(item.thin, item.request)
            } else {
                Outcome::Done(item.request.complete(item.result))
            }
        };
        self.items.into_iter().map(outcome).collect()
    }

    fn run_plain(&mut self) {
        self.find_unmapped();
        self.allocate();
        let records = map_records(&self.items);
        if !records.is_empty()
            && let Err(error) = self.order.append(&records, false)
        {
            self.roll_back(&error);
        }
        self.update_maps();
        for item in self.items.iter_mut().filter(|item| item.result.is_ok()) {
            item.split();
        }
        self.move_data();
        self.clear_bad_blocks();
    }

    /// Finds the extents that requests unmap.
    pub(crate) fn find_unmapped(&mut self) {
        for item in self.items.iter_mut().filter(|item| item.result.is_ok()) {
            item.unmapped = unmapped_extents(&item.thin, &item.request.operation);
        }
    }

    /// Changes the maps, when the records are in the journal.
    pub(crate) fn update_maps(&mut self) {
        for item in self.items.iter_mut().filter(|item| item.result.is_ok()) {
            for (&index, &extent) in &item.allocated {
                let before = item.thin.map.set(index, Some(extent));
                assert!(before.is_none(), "extent {index} was missing, and one request of a batch allocates it");
            }
            for range in std::mem::take(&mut item.unmapped) {
                self.order.release(&item.thin, range);
            }
        }
    }

    /// Allocates the extents that first writes need.
    pub(crate) fn allocate(&mut self) {
        let wanted: usize = self.items.iter().filter(|item| item.result.is_ok()).map(|item| item.missing().len()).sum();
        let waits = |item: &Item| item.wait_for != WaitFor::Nothing || item.missing().is_empty();
        let may_wait = self.items.iter().filter(|item| item.result.is_ok()).all(waits);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let prepared = if wanted > 0 { self.order.prepare(wanted, may_wait) } else { Ok(()) };
        let cause = prepared.as_ref().err().map(Error::class);
        if let Err(error) = prepared
            && !self.order.has_faults()
        {
            tracing::error!("no extents can be made ready: {error}");
        }
        // Extents that an earlier request of the batch has allocated are there for later ones.
        let mut taken: BTreeMap<(VolumeId, u32), u32> = BTreeMap::new();
        for item in self.items.iter_mut().filter(|item| item.result.is_ok()) {
            let thin = Arc::clone(&item.thin);
            for index in item.missing() {
                if taken.contains_key(&(thin.volume, index)) {
                    continue;
                }
                let allowed = thin.used.load(Ordering::Relaxed) < thin.quota;
                match allowed.then(|| self.order.extents.take()).flatten() {
                    Some(extent) => {
                        item.allocated.insert(index, extent);
                        taken.insert((thin.volume, index), extent);
                        thin.used.fetch_add(1, Ordering::Relaxed);
                    }
                    None => {
                        item.is_waiting = allowed
                            && match item.wait_for {
                                WaitFor::Nothing => false,
                                WaitFor::Zeroing => self.order.extents.is_zeroing(),
                                WaitFor::Reclaiming => self.order.extents.is_reclaiming(),
                            };
                        item.result = Err(no_space(self.order, &thin, allowed, cause, &item.request.operation));
                        break;
                    }
                }
            }
            if item.result.is_err() {
                for (index, extent) in std::mem::take(&mut item.allocated) {
                    taken.remove(&(thin.volume, index));
                    self.order.extents.put_back(extent, true);
                    thin.uncount_used(1);
                }
            }
        }
    }

    /// Undoes allocations and refuses the requests that needed records, because the journal could
    /// not be written.
    pub(crate) fn roll_back(&mut self, error: &Error) {
        // Also those that rely on extents that another request of the batch has allocated.
        let needs = |item: &Item| !item.unmapped.is_empty() || !item.missing().is_empty();
        for item in self.items.iter_mut().filter(|item| item.result.is_ok() && needs(item)) {
            for (_, extent) in std::mem::take(&mut item.allocated) {
                // Extents with tags have had their pages written.
                self.order.extents.put_back(extent, !item.thin.is_tagged);
                item.thin.uncount_used(1);
            }
            item.unmapped.clear();
            let class = if error.class() == Class::OutOfSpace { Class::OutOfSpace } else { Class::MediumWrite };
            item.refuse(class, JOURNAL_FAILED);
        }
    }

    /// Reads and writes the data of all requests at the same time.
    fn move_data(&mut self) {
        let mut operations = Vec::new();
        let mut targets = Vec::new();
        for (at, item) in self.items.iter_mut().enumerate().filter(|(_, item)| item.result.is_ok()) {
            for DeviceOperation { operation, into } in item.operations.drain(..) {
                operations.push(operation);
                targets.push((at, into));
            }
        }
        if operations.is_empty() {
            return;
        }
        for ((at, into), completion) in targets.into_iter().zip(self.order.disk.run(operations)) {
            let item = &mut self.items[at];
            match (completion.result, into, completion.data, &mut item.request.operation) {
                (Err(error), ..) => item.result = Err(error),
                (Ok(()), Some(into), Some(read), Operation::Read { offset, data, .. }) => {
                    let len = into.len();
                    let at = *offset + into.start as u64;
                    let bytes = &mut buffer_of_mut(data).as_mut_slice()[into];
                    read.read(0, &mut bytes[..len]);
                    if let Some(cipher) = &item.thin.cipher {
                        let (first, block_bytes) = item.thin.first_block(at);
                        cipher.decrypt(first, block_bytes, bytes);
                    }
                }
                (Ok(()), None, ..) => {}
                (Ok(()), Some(_), ..) => unreachable!("only reads are copied, and a read returns its buffer"),
            }
        }
    }

    /// Records that bad blocks are good again, where they were written.
    pub(crate) fn clear_bad_blocks(&mut self) {
        let mut flushed = None;
        for item in self.items.iter_mut().filter(|item| item.result.is_ok()) {
            for (offset, len) in changed_ranges(&item.request.operation) {
                if !item.thin.is_bad_at(offset, len) {
                    continue;
                }
                // The new bytes are durable before the record: after a power loss that kept only
                // the record, the bytes from before the mark could be read.
                if !*flushed.get_or_insert_with(|| self.order.flush().is_ok()) {
                    item.refuse(Class::MediumWrite, "it cannot be brought to the medium: see the log");
                    continue;
                }
                let range = item.thin.blocks(offset, len);
                let volume = item.thin.volume;
                let blocks = range.end - range.start;
                if self.order.bad_ranges() >= 2 * BadBlocks::MAX {
                    let reason = "bad blocks lie in too many pieces: deallocate them, or write them in larger ones";
                    item.refuse(Class::OutOfSpace, reason);
                    continue;
                }
                match self.order.append(&[Record::Bad { volume, start: range.start, blocks, bad: false }], false) {
                    Ok(()) => item.thin.change_bad_blocks(|bad| bad.remove(&range)),
                    Err(_) => item.refuse(Class::MediumWrite, JOURNAL_FAILED),
                }
            }
        }
    }

    /// Flushes, if a request of the batch asks for it.
    fn make_durable(&mut self) {
        let wants = |item: &Item| match &item.request.operation {
            Operation::Write { fua, .. } | Operation::WriteZeroes { fua, .. } => *fua,
            Operation::Flush => true,
            _ => false,
        };
        let wanting = || self.items.iter().filter(|item| item.result.is_ok() && wants(item));
        let unsettled = wanting().filter(|item| match item.request.operation {
            Operation::Write { .. } => item.is_unsettled,
            _ => item.thin.is_unsettled(),
        });
        let unsettled: BTreeSet<VolumeId> = unsettled.map(|item| item.thin.volume).collect();
        wanting().for_each(|item| item.thin.count_flush());
        if wanting().next().is_some()
            && let Err(error) = self.order.make_durable(&unsettled)
        {
            if !self.order.has_faults() {
                tracing::error!("what was written cannot be brought to the medium: {error}");
            }
            for item in self.items.iter_mut().filter(|item| item.result.is_ok() && wants(item)) {
                item.refuse(Class::MediumWrite, "it cannot be brought to the medium: see the log");
            }
        }
    }
}

/// The error for a write without an extent. `within_quota`: the namespace may have more; `cause`:
/// why no extents could be made ready.
fn no_space(
    order: &mut WriteOrder,
    thin: &Thin,
    within_quota: bool,
    cause: Option<Class>,
    operation: &Operation,
) -> DeviceError {
    if !within_quota {
        order.shared.notify(Notice::QuotaReached(thin.volume));
        let reason = "the namespace has all the capacity that it was made with; deallocate blocks of it";
        return refused(operation, Class::OutOfSpace, reason);
    }
    if order.extents.is_reclaiming() {
        let reason = "space that was just given back is still being read or written: try again";
        return refused(operation, Class::Busy, reason);
    }
    if order.extents.has_free() {
        let reason = "no space can be made ready: see the log";
        let class = cause.filter(|class| *class == Class::OutOfSpace).unwrap_or(Class::MediumWrite);
        return refused(operation, class, reason);
    }
    order.extents.report_full(thin.volume);
    let reason = "the drive is full: its namespaces promise more than it has; deallocate blocks";
    refused(operation, Class::OutOfSpace, reason)
}
