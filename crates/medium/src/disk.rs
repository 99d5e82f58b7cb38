//! The backing device in the hands of the drive's thread: operations that are over when the call
//! returns.

use std::collections::VecDeque;
use std::sync::Arc;

use ebof_backend::{Buffer, Completion, Device, Error, Io, IoFactory, Operation, Request, Segments, Submitted};
use ebof_clock::Clock;
use ebof_drive::frame::FRAME_BYTES;

use crate::fault::{BackingFault, Faults, failure};

/// Operations in flight at a time.
const ENTRIES: u32 = 256;

/// The backing device, used synchronously by one thread.
pub(crate) struct Disk {
    base: Arc<dyn Device>,
    io: Io,
    /// Of those who measure how long something takes, and who need keys.
    pub(crate) clock: Clock,
    /// Nothing is written.
    read_only: bool,
    /// What it fails at.
    pub(crate) faults: Faults,
}

impl Disk {
    /// To be made on the thread that uses it.
    pub(crate) fn new(base: Arc<dyn Device>, io: &IoFactory, clock: &Clock) -> Result<Self, Error> {
        let (io, clock) = (io.make(ENTRIES)?, clock.clone());
        Ok(Self { base, io, clock, read_only: false, faults: Faults::default() })
    }

    /// From now on nothing is written.
    pub(crate) fn set_read_only(&mut self) {
        self.read_only = true;
    }

    pub(crate) fn base(&self) -> &Arc<dyn Device> {
        &self.base
    }

    /// Runs all of them at the same time; the completions come in the order of the operations.
    pub(crate) fn run(&mut self, operations: Vec<Operation>) -> Vec<Completion> {
        let mut done: Vec<Option<Completion>> = operations.iter().map(|_| None).collect();
        let mut waiting: VecDeque<Request> =
            (0..).zip(operations).map(|(tag, operation)| Request::new(tag, operation)).collect();
        let mut left = done.len();
        let mut finish = |completion: Completion, left: &mut usize| {
            let at = usize::try_from(completion.tag).unwrap_or(usize::MAX);
            if let Some(place) = done.get_mut(at) {
                *place = Some(completion);
                *left -= 1;
            }
        };
        while left > 0 {
            while let Some(request) = waiting.pop_front() {
                let action = request.operation.action();
                if self.read_only && action.modifies() {
                    finish(request.complete(Err(Error::ReadOnly { action })), &mut left);
                    continue;
                }
                match self.base.submit(&mut self.io, request) {
                    Submitted::Done(completion) => finish(completion, &mut left),
                    Submitted::Pending => {}
                    Submitted::Busy(request) => {
                        waiting.push_front(request);
                        break;
                    }
                }
            }
            if left == 0 {
                break;
            }
            match self.io.wait(None) {
                Ok(Some(completion)) => finish(completion, &mut left),
                // Everything in flight is over, and what is left found no place: it does now.
                Ok(None) => {}
                Err(error) => {
                    // It keeps what it has: the next call tries again.
                    tracing::error!("the I/O of a drive's thread: {error}");
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
            }
        }
        let done: Vec<Completion> = done.into_iter().flatten().collect();
        let failed = done.iter().filter_map(|completion| failure(completion.result.as_ref().err()?));
        let failed = failed.filter(|(fault, _)| !self.read_only || *fault == BackingFault::Read);
        self.faults.saw(failed);
        done
    }

    /// Whether everything that could not be read can be read again.
    pub(crate) fn reads_again(&mut self) -> bool {
        let frame = FRAME_BYTES as u64;
        while let Some(place) = self.faults.place() {
            if self.read(place - place % frame, FRAME_BYTES).is_err() {
                return false;
            }
            self.faults.can_read();
        }
        true
    }

    /// Runs one operation.
    pub(crate) fn one(&mut self, operation: Operation) -> Completion {
        let mut done = self.run(vec![operation]);
        done.pop().expect("one operation has one completion")
    }

    /// `len` bytes from `offset`.
    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Result<Buffer, Error> {
        let completion = self.one(Operation::Read { offset, len, data: Buffer::zeroed(len).into() });
        let Completion { result, data, .. } = completion;
        result?;
        Ok(data.and_then(Segments::into_buffer).unwrap_or_else(|| Buffer::zeroed(len)))
    }

    /// Writes a whole number of 4 KiB.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.write_with(offset, bytes, false)
    }

    /// The same; if asked for, they are on the medium when it returns.
    pub(crate) fn write_with(&mut self, offset: u64, bytes: &[u8], fua: bool) -> Result<(), Error> {
        let mut operations = Vec::new();
        for (at, part) in (0_u64..).zip(bytes.chunks(PART_BYTES)) {
            let mut buffer = Buffer::zeroed(part.len());
            buffer.as_mut_slice()[..part.len()].copy_from_slice(part);
            let offset = offset + at * PART_BYTES as u64;
            operations.push(Operation::Write { offset, len: part.len(), data: buffer.into(), fua });
        }
        self.run(operations).into_iter().try_for_each(|completion| completion.result)
    }

    /// Makes ranges (offset and length) read as zeros; gives their storage back if asked for, else
    /// has it.
    pub(crate) fn zero(&mut self, ranges: impl Iterator<Item = (u64, u64)>, deallocate: bool) -> Result<(), Error> {
        let zeroes = |(offset, len)| Operation::WriteZeroes { offset, len, deallocate, fua: false };
        self.run(ranges.map(zeroes).collect()).into_iter().try_for_each(|completion| completion.result)
    }

    /// Brings everything so far to the medium.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.one(Operation::Flush).result
    }
}

/// Bytes of one write of something larger.
const PART_BYTES: usize = 1 << 20;
