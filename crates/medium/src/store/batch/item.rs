//! A request of a batch: which extents it maps and unmaps, and its operations on the backing
//! device. Nothing is done here: `store/batch.rs` and `tagged.rs` decide what happens in which
//! order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ebof_backend::{Buffer, Class, Error as DeviceError, Operation, Request, Segments};
use ebof_drive::frame::Record;

use crate::Thin;
use crate::thin::refused;

/// A request of a batch, and what has become of it.
pub(crate) struct Item {
    /// Its position in the batch.
    pub(crate) number: usize,
    pub(crate) thin: Arc<Thin>,
    pub(crate) request: Request,
    pub(crate) result: Result<(), DeviceError>,
    /// Extents of the medium that were allocated for it, by index in the namespace.
    pub(crate) allocated: BTreeMap<u32, u32>,
    /// Indices that it unmaps, where they are mapped.
    pub(crate) unmapped: Vec<Range<u32>>,
    /// Its operations on the backing device.
    pub(crate) operations: Vec<DeviceOperation>,
    /// What it may wait for if there is no space.
    pub(crate) wait_for: WaitFor,
    /// It has written blocks whose tags the next flush is to record.
    pub(crate) is_unsettled: bool,
    /// It found no space and is to be tried again.
    pub(crate) is_waiting: bool,
    /// Its memory, if that is in several segments: `request` has a copy in one buffer meanwhile.
    pub(crate) segments: Option<Segments>,
}

/// What a request waits for if there is no space.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    Nothing,
    /// Extents that are being zeroed: the wait is bounded.
    Zeroing,
    /// The same, and freed extents that requests in flight may still access.
    Reclaiming,
}

/// A part of a request on the backing device.
pub(crate) struct DeviceOperation {
    pub(crate) operation: Operation,
    /// Which bytes of the request's buffer a read fills.
    pub(crate) into: Option<Range<usize>>,
}

impl DeviceOperation {
    fn zero(offset: u64, len: u64, deallocate: bool) -> Self {
        Self { operation: Operation::WriteZeroes { offset, len, deallocate, fua: false }, into: None }
    }
}

impl Item {
    pub(crate) fn refuse(&mut self, class: Class, reason: &'static str) {
        self.result = Err(refused(&self.request.operation, class, reason));
    }

    /// Indices of the extents that a write needs and that are not mapped.
    pub(crate) fn missing(&self) -> Vec<u32> {
        let Operation::Write { offset, len, .. } = &self.request.operation else { return Vec::new() };
        if *len == 0 {
            return Vec::new();
        }
        let (first, last) = (self.thin.index(*offset), self.thin.index(*offset + *len as u64 - 1));
        (first..=last).filter(|&index| self.thin.map.lookup(index).is_none()).collect()
    }

    /// Splits the request of a namespace without tags into operations on the backing device, each
    /// in one extent.
    pub(crate) fn split(&mut self) {
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
        let translate = |at: u64| Some(layout.extent(thin.map.lookup(thin.index(at))?) + at % extent_bytes);
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        match &mut self.request.operation {
            Operation::Read { offset, len, data } => {
                for (at, bytes) in parts(*offset, *len as u64) {
                    let into = size(at - *offset)..size(at - *offset + bytes);
                    match translate(at) {
                        None => buffer_of_mut(data).as_mut_slice()[into].fill(0),
                        Some(offset) => {
                            let len = into.len();
                            let operation = Operation::Read { offset, len, data: Buffer::zeroed(len).into() };
                            self.operations.push(DeviceOperation { operation, into: Some(into) });
                        }
                    }
                }
            }
            Operation::Write { offset, len, data, .. } => {
                for (at, bytes) in parts(*offset, *len as u64) {
                    // It was mapped above, unless another request of the batch has unmapped it
                    // since.
                    let Some(on_medium) = translate(at) else { continue };
                    let from = size(at - *offset)..size(at - *offset + bytes);
                    let mut part = Buffer::zeroed(from.len());
                    let len = from.len();
                    part.as_mut_slice()[..len].copy_from_slice(&buffer_of(data).as_slice()[from]);
                    if let Some(cipher) = &thin.cipher {
                        let (first, block_bytes) = thin.first_block(at);
                        cipher.encrypt(first, block_bytes, &mut part.as_mut_slice()[..len]);
                    }
                    let operation = Operation::Write { offset: on_medium, len, data: part.into(), fua: false };
                    self.operations.push(DeviceOperation { operation, into: None });
                }
            }
            Operation::WriteZeroes { offset, len, deallocate: false, .. } => {
                for (at, len) in parts(*offset, *len) {
                    self.operations.extend(translate(at).map(|offset| DeviceOperation::zero(offset, len, false)));
                }
            }
            Operation::WriteZeroes { deallocate: true, .. } | Operation::Deallocate { .. } => {
                for (offset, len) in deallocated_ranges(&self.request.operation) {
                    for (at, len) in edges(&thin, offset, len).into_iter().filter(|(_, len)| *len > 0) {
                        self.operations.extend(translate(at).map(|offset| DeviceOperation::zero(offset, len, true)));
                    }
                }
            }
            Operation::Flush => {}
        }
    }
}

/// Replaces several segments, or shared memory, by one buffer with a copy. Returns the segments.
pub(crate) fn gather(operation: &mut Operation) -> Option<Segments> {
    let (Operation::Read { len, data, .. } | Operation::Write { len, data, .. }) = operation else { return None };
    if data.as_buffer().is_some() {
        return None;
    }
    let one = data.gather(*len);
    Some(std::mem::replace(data, one.into()))
}

/// Undoes [`gather`]: copies what was read into the segments.
pub(crate) fn scatter(operation: &mut Operation, mut segments: Segments) {
    match operation {
        Operation::Read { len, data, .. } => {
            segments.scatter(&buffer_of(data).as_slice()[..*len]);
            *data = segments;
        }
        Operation::Write { data, .. } => *data = segments,
        Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => {}
    }
}

/// The memory of a request in a batch.
pub(crate) fn buffer_of(data: &Segments) -> &Buffer {
    data.as_buffer().expect("several segments were gathered when the batch began")
}

/// The same, to be written.
pub(crate) fn buffer_of_mut(data: &mut Segments) -> &mut Buffer {
    data.as_mut_buffer().expect("several segments were gathered when the batch began")
}

/// The ranges of bytes (offset, length) that an operation changes.
pub(crate) fn changed_ranges(operation: &Operation) -> Vec<(u64, u64)> {
    match operation {
        Operation::Write { offset, len, .. } => vec![(*offset, *len as u64)],
        Operation::WriteZeroes { offset, len, .. } => vec![(*offset, *len)],
        Operation::Deallocate { ranges } => {
            ranges.iter().map(|range| (range.start, range.end.saturating_sub(range.start))).collect()
        }
        Operation::Read { .. } | Operation::Flush => Vec::new(),
    }
}

/// The records of what is mapped and unmapped.
pub(crate) fn map_records(items: &[Item]) -> Vec<Record> {
    let mut records: Vec<Record> = Vec::new();
    for item in items.iter().filter(|item| item.result.is_ok()) {
        let volume = item.thin.volume;
        for (&index, &extent) in &item.allocated {
            match records.last_mut() {
                Some(Record::Map { volume: last, first, extents })
                    if *last == volume && u64::from(*first) + extents.len() as u64 == u64::from(index) =>
                {
                    extents.push(extent);
                }
                _ => records.push(Record::Map { volume, first: index, extents: vec![extent] }),
            }
        }
        let unmap = |range: &Range<u32>| Record::Unmap { volume, first: range.start, count: range.end - range.start };
        records.extend(item.unmapped.iter().map(unmap));
    }
    records
}

/// The ranges of bytes (offset, length) that an operation deallocates.
pub(crate) fn deallocated_ranges(operation: &Operation) -> Vec<(u64, u64)> {
    match operation {
        Operation::WriteZeroes { deallocate: true, .. } | Operation::Deallocate { .. } => changed_ranges(operation),
        _ => Vec::new(),
    }
}

/// The extents that an operation unmaps: the ranges that it covers, if any of their extents is
/// mapped.
pub(crate) fn unmapped_extents(thin: &Thin, operation: &Operation) -> Vec<Range<u32>> {
    let covered = deallocated_ranges(operation).into_iter().map(|(offset, len)| covered(thin, offset, len));
    covered.filter(|range| thin.map.next(range.start, range.end, true) < range.end).collect()
}

/// Indices of the extents that lie in a range of bytes as a whole. The last extent of a namespace
/// may be shorter than the others.
fn covered(thin: &Thin, offset: u64, len: u64) -> Range<u32> {
    let span_bytes = thin.block_layout.span_bytes;
    let end = offset + len;
    let first = thin.index(offset.next_multiple_of(span_bytes));
    let last = if end == thin.size_bytes() { thin.map.len() } else { thin.index(end) };
    first..last.max(first)
}

/// The parts of a range of bytes (offset, length) in extents that it covers only in part: they are
/// zeroed instead of unmapped.
pub(crate) fn edges(thin: &Thin, offset: u64, len: u64) -> [(u64, u64); 2] {
    let span_bytes = thin.block_layout.span_bytes;
    let end = offset + len;
    let whole = covered(thin, offset, len);
    if whole.is_empty() {
        // In one extent, or in two that lie side by side.
        let middle = offset.next_multiple_of(span_bytes).min(end);
        return [(offset, middle - offset), (middle, end - middle)];
    }
    let begin = u64::from(whole.start) * span_bytes;
    let after = (u64::from(whole.end) * span_bytes).min(end);
    [(offset, begin - offset), (after, end - after)]
}
