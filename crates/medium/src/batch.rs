//! Requests that the drive's thread does itself, several at a time: first writes, whatever spans
//! extents that do not lie together, zeroes and deallocation.
//!
//! The order: extents are taken and are in the journal, and what is taken from namespaces is; then
//! the maps say so, in the order of the journal; then the data move; then requests are answered.
//! Requests that are done together were all under way at the same time: whatever order they seem to
//! have had is right.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ebof_backend::{Buffer, Class, Completion, Error as DeviceError, Operation, Request, Segments};
use ebof_drive::frame::Record;

use crate::bad_blocks::BadBlocks;
use crate::flows::{Flows, LongRequest};
use crate::shared::DeferredRequest;
use crate::thin::refused;
use crate::{Error, Notice, Store, Thin, VolumeId, tagged};

/// A request, and what has become of it.
pub(crate) struct Item {
    /// Where it stands among those that came with it.
    number: usize,
    pub(crate) thin: Arc<Thin>,
    pub(crate) request: Request,
    pub(crate) result: Result<(), DeviceError>,
    /// Extents that it needs, by number in the namespace.
    pub(crate) fresh: BTreeMap<u32, u32>,
    /// Extents that it takes from the namespace, where they have places.
    pub(crate) gone: Vec<Range<u32>>,
    /// What is done on the backing device.
    pieces: Vec<Piece>,
    /// Whether it may be tried again later.
    wait_for: WaitFor,
    /// It is.
    waits: bool,
    /// Its memory, where that is in several segments: it has a copy of its own meanwhile.
    segments: Option<Segments>,
}

/// Requests that are done together.
pub(crate) struct Batch<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) items: Vec<Item>,
}

/// What a request waits for that finds no space.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitFor {
    Nothing,
    /// Extents that are being zeroed: they will be there.
    Zeroes,
    /// The same, and extents that were given back and that somebody may still reach.
    All,
}

/// What becomes of a request in one turn.
enum Outcome {
    Done(Completion),
    /// Nothing of it has happened: it is to be tried again.
    Waits(Arc<Thin>, Request),
}

/// A part of a request on the backing device.
struct Piece {
    operation: Operation,
    /// Which bytes of the request's buffer a read is for.
    into: Option<Range<usize>>,
}

impl Piece {
    fn zero(offset: u64, len: u64, deallocate: bool) -> Self {
        Self { operation: Operation::WriteZeroes { offset, len, deallocate, fua: false }, into: None }
    }
}

/// How long a write waits for extents that were given back and that somebody may still reach.
/// Others do not wait with it.
const SPACE_WAIT: Duration = Duration::from_millis(500);

/// Why a request is refused that has to be in the journal.
pub(crate) const JOURNAL: &str = "the drive's journal cannot be written: see the log";

/// Does requests that were left with the drive's thread, and slices of long ones; answers those
/// that are over, and puts back those that are not. None is left waiting for space if `may_wait` is
/// false.
pub(crate) fn serve(
    store: &mut Store,
    deferred_requests: Vec<DeferredRequest>,
    mut long: Vec<LongRequest>,
    flows: &mut Flows,
    may_wait: bool,
) {
    let now = store.shared.clock.now();
    let mut replies = Vec::with_capacity(deferred_requests.len());
    let mut items = Vec::with_capacity(deferred_requests.len() + long.len());
    for DeferredRequest { thin, request, reply, waits_until } in deferred_requests {
        replies.push((reply, waits_until));
        let wait_for = match waits_until {
            _ if !may_wait => WaitFor::Nothing,
            Some(until) if until <= now => WaitFor::Zeroes,
            _ => WaitFor::All,
        };
        items.push((thin, request, wait_for));
    }
    let slice =
        |long: &mut LongRequest| (Arc::clone(&long.deferred.thin), Request::new(0, long.slice()), WaitFor::Nothing);
    items.extend(long.iter_mut().map(slice));
    if items.is_empty() {
        return;
    }
    let mut tagged = items.iter().filter(|(thin, ..)| thin.is_tagged).peekable();
    if tagged.peek().is_some() {
        flows.did_together(tagged.filter(|(_, request, _)| request.operation.action().modifies()).count());
    }
    let mut done = Batch::new(store, items).run();
    let slices = done.split_off(replies.len());
    for ((reply, waits_until), outcome) in replies.into_iter().zip(done) {
        match outcome {
            Outcome::Done(completion) => reply.send(completion),
            Outcome::Waits(thin, request) => {
                let waits_until = waits_until.or(Some(now + SPACE_WAIT));
                flows.wait_for_space(DeferredRequest { thin, request, reply, waits_until });
            }
        }
    }
    for (long, slice) in long.into_iter().zip(slices) {
        match slice {
            Outcome::Done(Completion { result: Ok(()), .. }) if !long.is_done() => flows.again(long),
            Outcome::Done(Completion { result, .. }) => long.finish(result),
            // A slice takes no extents.
            Outcome::Waits(..) => flows.again(long),
        }
    }
}

impl Store {
    /// Runs one operation on a namespace, and returns when it is over. Up to a few MiB: the drive
    /// waits meanwhile.
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

/// The same for one request of the drive's own.
fn execute(store: &mut Store, thin: &Arc<Thin>, request: Request) -> Completion {
    match Batch::new(store, vec![(Arc::clone(thin), request, WaitFor::Nothing)]).run().pop() {
        Some(Outcome::Done(completion)) => completion,
        Some(Outcome::Waits(..)) | None => unreachable!("one request that may not wait has one completion"),
    }
}

impl<'a> Batch<'a> {
    fn new(store: &'a mut Store, requests: Vec<(Arc<Thin>, Request, WaitFor)>) -> Self {
        let item = |(number, (thin, mut request, wait_for)): (usize, (Arc<Thin>, Request, WaitFor))| {
            let segments = gather(&mut request.operation);
            let result = thin.check(&request.operation);
            let (fresh, gone, pieces) = (BTreeMap::new(), Vec::new(), Vec::new());
            Item { number, thin, request, result, fresh, gone, pieces, wait_for, waits: false, segments }
        };
        Self { items: requests.into_iter().enumerate().map(item).collect(), store }
    }

    /// Does all of them; gives what has become of each, in their order.
    fn run(mut self) -> Vec<Outcome> {
        if self.store.shared.journal.is_suspect() && self.store.make_sure().is_err() {
            for item in self.items.iter_mut().filter(|item| item.request.operation.action().modifies()) {
                item.refuse(Class::MediumWrite, JOURNAL);
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
        let items = &self.items;
        self.store
            .publish(items.iter().filter(|item| item.request.operation.action().modifies()).map(|item| &item.thin));
        self.make_durable();
        self.store.extents.count();
        let outcome = |mut item: Item| {
            if let Some(segments) = item.segments.take() {
                scatter(&mut item.request.operation, segments);
            }
            if item.waits {
                Outcome::Waits(item.thin, item.request)
            } else {
                Outcome::Done(item.request.complete(item.result))
            }
        };
        self.items.into_iter().map(outcome).collect()
    }

    fn run_plain(&mut self) {
        self.empty();
        self.allocate();
        let records = records_of(&self.items);
        if !records.is_empty()
            && let Err(error) = self.store.append(&records, false)
        {
            self.take_back(&error);
        }
        self.place();
        for item in self.items.iter_mut().filter(|item| item.result.is_ok()) {
            item.cut();
        }
        self.move_data();
        self.clear_bad_blocks();
    }

    /// Finds the extents that are emptied.
    pub(crate) fn empty(&mut self) {
        for item in self.items.iter_mut().filter(|item| item.result.is_ok()) {
            item.gone = emptied(&item.thin, &item.request.operation);
        }
    }

    /// What is in the journal now, the maps say, too.
    pub(crate) fn place(&mut self) {
        for item in self.items.iter_mut().filter(|item| item.result.is_ok()) {
            for (&index, &place) in &item.fresh {
                item.thin.map.set(index, Some(place));
            }
            for range in std::mem::take(&mut item.gone) {
                self.store.release(&item.thin, range);
            }
        }
    }

    /// Takes the extents that first writes need.
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
        // What earlier requests of the same turn have taken is there for later ones.
        let mut taken: BTreeMap<(VolumeId, u32), u32> = BTreeMap::new();
        for item in self.items.iter_mut().filter(|item| item.result.is_ok()) {
            let thin = Arc::clone(&item.thin);
            for index in item.missing() {
                if taken.contains_key(&(thin.volume, index)) {
                    continue;
                }
                let allowed = thin.used.load(Ordering::Relaxed) < thin.quota;
                match allowed.then(|| self.store.extents.take()).flatten() {
                    Some(place) => {
                        item.fresh.insert(index, place);
                        taken.insert((thin.volume, index), place);
                        thin.used.fetch_add(1, Ordering::Relaxed);
                    }
                    None => {
                        item.waits = allowed
                            && match item.wait_for {
                                WaitFor::Nothing => false,
                                WaitFor::Zeroes => self.store.extents.is_zeroing(),
                                WaitFor::All => self.store.extents.is_reclaiming(),
                            };
                        item.result = Err(no_space(self.store, &thin, allowed, cause, &item.request.operation));
                        break;
                    }
                }
            }
            if item.result.is_err() {
                for (index, place) in std::mem::take(&mut item.fresh) {
                    taken.remove(&(thin.volume, index));
                    self.store.extents.put_back(place, true);
                    thin.used.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// The journal could not be written: nothing has happened.
    pub(crate) fn take_back(&mut self, error: &Error) {
        // Also those that count on extents which others of the turn were to have.
        let needs = |item: &Item| !item.gone.is_empty() || !item.missing().is_empty();
        for item in self.items.iter_mut().filter(|item| item.result.is_ok() && needs(item)) {
            for (_, place) in std::mem::take(&mut item.fresh) {
                // Otherwise pages of tags were made there.
                self.store.extents.put_back(place, !item.thin.is_tagged);
                item.thin.used.fetch_sub(1, Ordering::Relaxed);
            }
            item.gone.clear();
            let class = if error.class() == Class::OutOfSpace { Class::OutOfSpace } else { Class::MediumWrite };
            item.refuse(class, JOURNAL);
        }
    }

    /// Moves the bytes of all requests at the same time.
    fn move_data(&mut self) {
        let mut operations = Vec::new();
        let mut whose = Vec::new();
        for (at, item) in self.items.iter_mut().enumerate().filter(|(_, item)| item.result.is_ok()) {
            for Piece { operation, into } in item.pieces.drain(..) {
                operations.push(operation);
                whose.push((at, into));
            }
        }
        if operations.is_empty() {
            return;
        }
        for ((at, into), completion) in whose.into_iter().zip(self.store.disk.run(operations)) {
            let item = &mut self.items[at];
            match (completion.result, into, completion.data, &mut item.request.operation) {
                (Err(error), ..) => item.result = Err(error),
                (Ok(()), Some(into), Some(read), Operation::Read { offset, data, .. }) => {
                    let (len, at) = (into.len(), *offset + into.start as u64);
                    let bytes = &mut one_mut(data).as_mut_slice()[into];
                    read.for_each(0..len, |read| bytes.copy_from_slice(read));
                    if let Some(cipher) = &item.thin.cipher {
                        let (first, block_bytes) = item.thin.unit(at);
                        cipher.decrypt(first, block_bytes, bytes);
                    }
                }
                _ => {}
            }
        }
    }

    /// Blocks that were bad and have been written are not any more.
    pub(crate) fn clear_bad_blocks(&mut self) {
        let mut flushed = None;
        for item in self.items.iter_mut().filter(|item| item.result.is_ok()) {
            for (offset, len) in written(&item.request.operation) {
                if !item.thin.is_bad_at(offset, len) {
                    continue;
                }
                // A power loss that takes the new bytes must not leave the record: what was there
                // before the block was bad would be read.
                if !*flushed.get_or_insert_with(|| self.store.flush().is_ok()) {
                    item.refuse(Class::MediumWrite, "it cannot be brought to the medium: see the log");
                    continue;
                }
                let range = item.thin.blocks(offset, len);
                let (volume, start, blocks) = (item.thin.volume, range.start, range.end - range.start);
                if self.store.bad_ranges() >= 2 * BadBlocks::MAX {
                    let reason = "bad blocks lie in too many pieces: deallocate them, or write them in larger ones";
                    item.refuse(Class::OutOfSpace, reason);
                    continue;
                }
                match self.store.append(&[Record::Bad { volume, start, blocks, bad: false }], false) {
                    Ok(()) => item.thin.change_bad_blocks(|bad| bad.remove(&range)),
                    Err(_) => item.refuse(Class::MediumWrite, JOURNAL),
                }
            }
        }
    }

    /// Brings everything to the medium where a request asks for it.
    fn make_durable(&mut self) {
        let wants = |item: &Item| match &item.request.operation {
            Operation::Write { fua, .. } | Operation::WriteZeroes { fua, .. } => *fua,
            Operation::Flush => true,
            _ => false,
        };
        if self.items.iter().any(|item| item.result.is_ok() && wants(item))
            && let Err(error) = self.store.flush().map(|()| self.store.mark())
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

/// Why there is no extent: `cause` is what came of making some ready.
fn no_space(store: &mut Store, thin: &Thin, allowed: bool, cause: Option<Class>, operation: &Operation) -> DeviceError {
    if !allowed {
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
    store.extents.is_full(thin.volume);
    let reason = "the drive is full: its namespaces promise more than it has; deallocate blocks, or delete a namespace";
    refused(operation, Class::OutOfSpace, reason)
}

/// Puts what is in several segments into one buffer; gives the segments.
fn gather(operation: &mut Operation) -> Option<Segments> {
    let (Operation::Read { len, data, .. } | Operation::Write { len, data, .. }) = operation else { return None };
    if data.as_buffer().is_some() {
        return None;
    }
    let one = data.gather(*len);
    Some(std::mem::replace(data, one.into()))
}

/// Puts it back to where it was.
fn scatter(operation: &mut Operation, mut segments: Segments) {
    match operation {
        Operation::Read { len, data, .. } => {
            data.for_each(0..*len, |bytes| segments.scatter(bytes));
            *data = segments;
        }
        Operation::Write { data, .. } => *data = segments,
        Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => {}
    }
}

/// The memory of a request in a batch.
pub(crate) fn one(data: &Segments) -> &Buffer {
    data.as_buffer().expect("several segments were gathered when the batch began")
}

/// The same, to be written.
pub(crate) fn one_mut(data: &mut Segments) -> &mut Buffer {
    data.as_mut_buffer().expect("several segments were gathered when the batch began")
}

/// The ranges that an operation writes in some way.
pub(crate) fn written(operation: &Operation) -> Vec<(u64, u64)> {
    match operation {
        Operation::Write { offset, len, .. } => vec![(*offset, *len as u64)],
        Operation::WriteZeroes { offset, len, .. } => vec![(*offset, *len)],
        Operation::Deallocate { ranges } => {
            ranges.iter().map(|range| (range.start, range.end.saturating_sub(range.start))).collect()
        }
        Operation::Read { .. } | Operation::Flush => Vec::new(),
    }
}

/// What the journal has to know before the data move.
pub(crate) fn records_of(items: &[Item]) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    for item in items.iter().filter(|item| item.result.is_ok()) {
        let volume = item.thin.volume;
        for (&index, &place) in &item.fresh {
            match records.last_mut() {
                Some(Record::Map { volume: last, first, extents })
                    if *last == volume && u64::from(*first) + extents.len() as u64 == u64::from(index) =>
                {
                    extents.push(place);
                }
                _ => records.push(Record::Map { volume, first: index, extents: vec![place] }),
            }
        }
        let unmap = |range: &Range<u32>| Record::Unmap { volume, first: range.start, count: range.end - range.start };
        records.extend(item.gone.iter().map(unmap));
    }
    records
}

/// The ranges whose storage an operation gives back, in bytes.
pub(crate) fn given_back(operation: &Operation) -> Vec<(u64, u64)> {
    match operation {
        Operation::WriteZeroes { deallocate: true, .. } | Operation::Deallocate { .. } => written(operation),
        _ => Vec::new(),
    }
}

/// The extents that an operation empties: those that it covers, where any has a place.
pub(crate) fn emptied(thin: &Thin, operation: &Operation) -> Vec<Range<u32>> {
    let covered = given_back(operation).into_iter().map(|(offset, len)| covered(thin, offset, len));
    covered.filter(|range| thin.map.next(range.start, range.end, true) < range.end).collect()
}

/// Extents that lie in a range of bytes with all that the namespace has of them.
fn covered(thin: &Thin, offset: u64, len: u64) -> Range<u32> {
    let span_bytes = thin.block_layout.span_bytes;
    let end = offset + len;
    let first = thin.index(offset.next_multiple_of(span_bytes));
    let last = if end == thin.size_bytes() { thin.map.len() } else { thin.index(end) };
    first..last.max(first)
}

/// The parts of a range of bytes whose storage cannot be given back, because extents are only
/// covered in part.
pub(crate) fn edges(thin: &Thin, offset: u64, len: u64) -> [(u64, u64); 2] {
    let span_bytes = thin.block_layout.span_bytes;
    let (end, whole) = (offset + len, covered(thin, offset, len));
    if whole.is_empty() {
        // In one extent, or in two that lie side by side.
        let middle = offset.next_multiple_of(span_bytes).min(end);
        return [(offset, middle - offset), (middle, end - middle)];
    }
    let (begin, after) = (u64::from(whole.start) * span_bytes, (u64::from(whole.end) * span_bytes).min(end));
    [(offset, begin - offset), (after, end - after)]
}

impl Item {
    pub(crate) fn refuse(&mut self, class: Class, reason: &'static str) {
        self.result = Err(refused(&self.request.operation, class, reason));
    }

    /// Extents that a write needs and the namespace does not have.
    fn missing(&self) -> Vec<u32> {
        let Operation::Write { offset, len, .. } = &self.request.operation else { return Vec::new() };
        if *len == 0 {
            return Vec::new();
        }
        let (first, last) = (self.thin.index(*offset), self.thin.index(*offset + *len as u64 - 1));
        (first..=last).filter(|&index| self.thin.map.place(index).is_none()).collect()
    }

    /// Cuts the request of a namespace without tags into what lies in one extent each.
    fn cut(&mut self) {
        let layout = self.thin.shared.layout;
        let extent_bytes = layout.extent_bytes;
        let thin = Arc::clone(&self.thin);
        let parts = |offset: u64, len: u64| {
            let end = offset + len;
            let mut at = offset;
            std::iter::from_fn(move || {
                let begin = at;
                at = (begin / extent_bytes + 1).saturating_mul(extent_bytes).min(end);
                (begin < end).then_some((begin, at - begin))
            })
        };
        let place = |at: u64| Some(layout.extent(thin.map.place(thin.index(at))?) + at % extent_bytes);
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        match &mut self.request.operation {
            Operation::Read { offset, len, data } => {
                for (at, bytes) in parts(*offset, *len as u64) {
                    let into = size(at - *offset)..size(at - *offset + bytes);
                    match place(at) {
                        None => one_mut(data).as_mut_slice()[into].fill(0),
                        Some(place) => {
                            let len = into.len();
                            let operation = Operation::Read { offset: place, len, data: Buffer::zeroed(len).into() };
                            self.pieces.push(Piece { operation, into: Some(into) });
                        }
                    }
                }
            }
            Operation::Write { offset, len, data, .. } => {
                for (at, bytes) in parts(*offset, *len as u64) {
                    // It has been given its place, unless another request of the turn has
                    // deallocated it behind that.
                    let Some(place) = place(at) else { continue };
                    let from = size(at - *offset)..size(at - *offset + bytes);
                    let mut part = Buffer::zeroed(from.len());
                    let len = from.len();
                    part.as_mut_slice()[..len].copy_from_slice(&one(data).as_slice()[from]);
                    if let Some(cipher) = &thin.cipher {
                        let (first, block_bytes) = thin.unit(at);
                        cipher.encrypt(first, block_bytes, &mut part.as_mut_slice()[..len]);
                    }
                    let operation = Operation::Write { offset: place, len, data: part.into(), fua: false };
                    self.pieces.push(Piece { operation, into: None });
                }
            }
            Operation::WriteZeroes { offset, len, deallocate: false, .. } => {
                for (at, len) in parts(*offset, *len) {
                    self.pieces.extend(place(at).map(|place| Piece::zero(place, len, false)));
                }
            }
            Operation::WriteZeroes { deallocate: true, .. } | Operation::Deallocate { .. } => {
                for (offset, len) in given_back(&self.request.operation) {
                    for (at, len) in edges(&thin, offset, len).into_iter().filter(|(_, len)| *len > 0) {
                        self.pieces.extend(place(at).map(|place| Piece::zero(place, len, true)));
                    }
                }
            }
            Operation::Flush => {}
        }
    }
}
