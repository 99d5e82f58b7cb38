//! Requests that the drive's thread does itself, several at a time: first writes, whatever spans
//! extents that do not lie together, zeroes and deallocation.
//!
//! The order: extents are allocated; then records say in the journal which are mapped and unmapped;
//! then the maps are changed, in the order of the journal; then the data move; then requests are
//! completed. Requests of a batch were all in flight at the same time, so any order among them is
//! right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebof_backend::{Class, Completion, Error as DeviceError, Operation, Request};
use ebof_drive::frame::Record;

use crate::event_loop::batch_locks::BatchLocks;
use crate::event_loop::item::{
    DeviceOperation, Item, WaitFor, buffer_of_mut, changed_ranges, gather, map_records, scatter, unmapped_extents,
};
use crate::event_loop::queues::{LongRequest, RequestQueues};
use crate::event_loop::tagged;
use crate::thin::bad_blocks::BadBlocks;
use crate::thin::shared::{DeferredRequest, Settles};
use crate::thin::{refused, stopped};
use crate::{Error, Notice, Store, Thin, VolumeId};

/// Requests that are done together.
pub(crate) struct Batch<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) items: Vec<Item>,
}

/// What becomes of a request in a batch.
enum Outcome {
    Done(Completion),
    /// Nothing of it has been done: it is to be tried again.
    Waiting(Arc<Thin>, Request),
}

/// How long a write waits for freed extents that requests in flight may still access. Other
/// requests do not wait with it.
const SPACE_WAIT: Duration = Duration::from_millis(500);

/// Why a request is refused whose records cannot be written.
pub(crate) const JOURNAL_FAILED: &str = "the drive's journal cannot be written: see the log";

/// Does deferred requests, and slices of long ones. Completes those that are done, and puts the
/// others back into `queues`. If `may_wait` is false, none is left waiting for space.
pub(crate) fn serve(
    store: &mut Store,
    deferred_requests: Vec<DeferredRequest>,
    long: Vec<LongRequest>,
    queues: &mut RequestQueues,
    may_wait: bool,
) {
    let now = store.shared.clock.now();
    let mut replies = Vec::with_capacity(deferred_requests.len());
    let mut items = Vec::with_capacity(deferred_requests.len() + long.len());
    let mut locks = BatchLocks::default();
    for mut deferred in deferred_requests {
        if !locks.try_lock(&deferred.thin, &deferred.request.operation, &mut deferred.awaited) {
            match may_wait {
                true => queues.wait_for_unlock(deferred),
                false => deferred.refuse(stopped),
            }
            continue;
        }
        let DeferredRequest { thin, request, reply, waits_until, .. } = deferred;
        replies.push((reply, waits_until));
        let wait_for = match waits_until {
            _ if !may_wait => WaitFor::Nothing,
            Some(until) if until <= now => WaitFor::Zeroing,
            _ => WaitFor::Reclaiming,
        };
        items.push((thin, request, wait_for));
    }
    let mut sliced = Vec::with_capacity(long.len());
    for mut long in long {
        let left = long.left();
        let slice = long.slice();
        if locks.try_lock(&long.deferred.thin, &slice, &mut long.deferred.awaited) {
            items.push((Arc::clone(&long.deferred.thin), Request::new(0, slice), WaitFor::Nothing));
            sliced.push(long);
        } else if may_wait {
            long.restore(left);
            queues.wait_for_unlock_long(long);
        } else {
            long.deferred.refuse(stopped);
        }
    }
    if items.is_empty() {
        return;
    }
    let mut tagged = items.iter().filter(|(thin, ..)| thin.is_tagged).peekable();
    if tagged.peek().is_some() {
        queues.set_tagged_changes(tagged.filter(|(_, request, _)| request.operation.action().modifies()).count());
    }
    let mut done = Batch::new(store, items).run();
    // Before anybody is told: the next request for these blocks need not come here.
    drop(locks);
    let slices = done.split_off(replies.len());
    for ((reply, waits_until), outcome) in replies.into_iter().zip(done) {
        match outcome {
            Outcome::Done(completion) => reply.send(completion),
            Outcome::Waiting(thin, request) => {
                let waits_until = waits_until.or(Some(now + SPACE_WAIT));
                queues.wait_for_space(DeferredRequest {
                    thin,
                    request,
                    reply,
                    waits_until,
                    settles: Settles::default(),
                    awaited: None,
                });
            }
        }
    }
    for (long, slice) in sliced.into_iter().zip(slices) {
        match slice {
            Outcome::Done(Completion { result: Ok(()), .. }) if !long.is_done() => queues.put_back(long),
            Outcome::Done(Completion { result, .. }) => long.finish(result),
            // A slice takes no extents.
            Outcome::Waiting(..) => queues.put_back(long),
        }
    }
}

impl Store {
    /// Runs one operation on a namespace to its end. At most a few MiB: the drive's thread does
    /// nothing else meanwhile. Fails with [`Class::Busy`] while another thread reads or writes
    /// blocks of it that have checksums. A job that calls it again then is not overtaken for ever:
    /// other threads do not begin anything with these blocks before.
    pub fn execute(&mut self, volume: VolumeId, operation: Operation) -> Completion {
        let request = Request::new(0, operation);
        match self.shared.thin(volume) {
            Some(thin) => execute(self, &thin, request),
            None => {
                let error = refused(&request.operation, Class::Gone, "the namespace was deleted");
                request.complete(Err(error))
            }
        }
    }
}

/// Runs a batch of one request.
fn execute(store: &mut Store, thin: &Arc<Thin>, request: Request) -> Completion {
    let mut locks = BatchLocks::default();
    if !locks.try_lock(thin, &request.operation, &mut store.awaited) {
        let error = refused(&request.operation, Class::Busy, "another thread reads or writes some of its blocks");
        return request.complete(Err(error));
    }
    match Batch::new(store, vec![(Arc::clone(thin), request, WaitFor::Nothing)]).run().pop() {
        Some(Outcome::Done(completion)) => completion,
        Some(Outcome::Waiting(..)) | None => unreachable!("one request that may not wait has one completion"),
    }
}

impl<'a> Batch<'a> {
    fn new(store: &'a mut Store, requests: Vec<(Arc<Thin>, Request, WaitFor)>) -> Self {
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
        Self { items: requests.into_iter().enumerate().map(item).collect(), store }
    }

    /// Does all requests. Returns what has become of each, in their order.
    fn run(mut self) -> Vec<Outcome> {
        if self.store.shared.journal.is_suspect() && self.store.settle_journal().is_err() {
            for item in self.items.iter_mut().filter(|item| item.request.operation.action().modifies()) {
                item.refuse(Class::MediumWrite, JOURNAL_FAILED);
            }
        }
        if self.items.iter().any(|item| item.thin.is_tagged) {
            let (tagged, plain): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.items).into_iter().partition(|item| item.thin.is_tagged);
            let tagged = tagged::run(self.store, tagged);
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
        self.store.publish(tagged.map(|item| &item.thin));
        self.make_durable();
        self.store.extents.publish_used();
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
            && let Err(error) = self.store.append(&records, false)
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
                item.thin.map.set(index, Some(extent));
            }
            for range in std::mem::take(&mut item.unmapped) {
                self.store.release(&item.thin, range);
            }
        }
    }

    /// Allocates the extents that first writes need.
    pub(crate) fn allocate(&mut self) {
        let wanted: usize = self.items.iter().filter(|item| item.result.is_ok()).map(|item| item.missing().len()).sum();
        let waits = |item: &Item| item.wait_for != WaitFor::Nothing || item.missing().is_empty();
        let may_wait = self.items.iter().filter(|item| item.result.is_ok()).all(waits);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let prepared = if wanted > 0 { self.store.prepare(wanted, may_wait) } else { Ok(()) };
        let cause = prepared.as_ref().err().map(Error::class);
        if let Err(error) = prepared
            && !self.store.has_faults()
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
                match allowed.then(|| self.store.extents.take()).flatten() {
                    Some(extent) => {
                        item.allocated.insert(index, extent);
                        taken.insert((thin.volume, index), extent);
                        thin.used.fetch_add(1, Ordering::Relaxed);
                    }
                    None => {
                        item.is_waiting = allowed
                            && match item.wait_for {
                                WaitFor::Nothing => false,
                                WaitFor::Zeroing => self.store.extents.is_zeroing(),
                                WaitFor::Reclaiming => self.store.extents.is_reclaiming(),
                            };
                        item.result = Err(no_space(self.store, &thin, allowed, cause, &item.request.operation));
                        break;
                    }
                }
            }
            if item.result.is_err() {
                for (index, extent) in std::mem::take(&mut item.allocated) {
                    taken.remove(&(thin.volume, index));
                    self.store.extents.put_back(extent, true);
                    thin.used.fetch_sub(1, Ordering::Relaxed);
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
                self.store.extents.put_back(extent, !item.thin.is_tagged);
                item.thin.used.fetch_sub(1, Ordering::Relaxed);
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
        for ((at, into), completion) in targets.into_iter().zip(self.store.disk.run(operations)) {
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
                _ => {}
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
                if !*flushed.get_or_insert_with(|| self.store.flush().is_ok()) {
                    item.refuse(Class::MediumWrite, "it cannot be brought to the medium: see the log");
                    continue;
                }
                let range = item.thin.blocks(offset, len);
                let volume = item.thin.volume;
                let blocks = range.end - range.start;
                if self.store.bad_ranges() >= 2 * BadBlocks::MAX {
                    let reason = "bad blocks lie in too many pieces: deallocate them, or write them in larger ones";
                    item.refuse(Class::OutOfSpace, reason);
                    continue;
                }
                match self.store.append(&[Record::Bad { volume, start: range.start, blocks, bad: false }], false) {
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
            && let Err(error) = self.store.make_durable(&unsettled)
        {
            if !self.store.has_faults() {
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
    store: &mut Store,
    thin: &Thin,
    within_quota: bool,
    cause: Option<Class>,
    operation: &Operation,
) -> DeviceError {
    if !within_quota {
        store.shared.notify(Notice::QuotaReached(thin.volume));
        let reason = "the namespace has all the capacity that it was made with; deallocate blocks of it";
        return refused(operation, Class::OutOfSpace, reason);
    }
    if store.extents.is_reclaiming() {
        let reason = "space that was just given back is still being read or written: try again";
        return refused(operation, Class::Busy, reason);
    }
    if store.extents.has_free() {
        let reason = "no space can be made ready: see the log";
        let class = cause.filter(|class| *class == Class::OutOfSpace).unwrap_or(Class::MediumWrite);
        return refused(operation, class, reason);
    }
    store.extents.report_full(thin.volume);
    let reason = "the drive is full: its namespaces promise more than it has; deallocate blocks";
    refused(operation, Class::OutOfSpace, reason)
}
