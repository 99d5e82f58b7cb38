//! Synchronous I/O on the backing device: operations have completed when the call returns. And its
//! faults, whoever notices them.

pub(crate) mod fault;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ebof_backend::{Buffer, Completion, Device, Engine, Error, Io, IoFactory, Operation, Request, Segments, Submitted};
use ebof_clock::Clock;
use ebof_drive::frame::FRAME_BYTES;

use crate::disk::fault::{BackingFault, Faults, failure};

/// Operations in flight at most.
const ENTRIES: u32 = 256;

/// The backing device, used synchronously by one thread.
pub(crate) struct Disk {
    base: Arc<dyn Device>,
    /// For several operations at a time.
    io: Io,
    /// For one, and for what would be done one after the other anyway: this thread does it, which
    /// waits for it. `None` where there is no system to do it.
    caller: Option<Io>,
    pub(crate) clock: Clock,
    /// Writes are refused.
    read_only: bool,
    pub(crate) faults: Faults,
}

impl Disk {
    /// To be made on the thread that uses it.
    pub(crate) fn new(base: Arc<dyn Device>, io: &IoFactory, clock: &Clock) -> Result<Self, Error> {
        let io = io.make(ENTRIES)?;
        let caller = io.engine().map(|_| Io::with_engine(1, Engine::Caller)).transpose()?;
        Ok(Self { base, io, caller, clock: clock.clone(), read_only: false, faults: Faults::default() })
    }

    /// Refuses writes from now on.
    pub(crate) fn set_read_only(&mut self) {
        self.read_only = true;
    }

    pub(crate) fn base(&self) -> &Arc<dyn Device> {
        &self.base
    }

    /// Runs all operations at the same time. Returns their completions, in the order of the
    /// operations.
    pub(crate) fn run(&mut self, operations: Vec<Operation>) -> Vec<Completion> {
        let mut done: Vec<Option<Completion>> = operations.iter().map(|_| None).collect();
        let in_turns = done.len() == 1 || self.only_copies(&operations);
        let mut waiting: VecDeque<Request> =
            (0..).zip(operations).map(|(tag, operation)| Request::new(tag, operation)).collect();
        let mut left = done.len();
        let mut finish = |completion: Completion, left: &mut usize| {
            let at = usize::try_from(completion.tag).expect("a tag is the index of its operation");
            let before = done.get_mut(at).expect("all that was in flight before has completed").replace(completion);
            assert!(before.is_none(), "operation {at} has completed twice");
            *left -= 1;
        };
        while left > 0 {
            while let Some(request) = waiting.pop_front() {
                let action = request.operation.action();
                if self.read_only && action.modifies() {
                    finish(request.complete(Err(Error::ReadOnly { action })), &mut left);
                    continue;
                }
                let request = match self.caller.as_mut().filter(|_| in_turns) {
                    Some(io) => match run_here(&*self.base, io, request) {
                        Ok(completion) => {
                            finish(completion, &mut left);
                            continue;
                        }
                        Err(request) => request,
                    },
                    None => request,
                };
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
                // Nothing is in flight any more: there is room for those that were refused as busy.
                Ok(None) => {}
                Err(error) => {
                    // The engine keeps its requests, and the next call tries again.
                    tracing::error!("the I/O of a drive's thread: {error}");
                    self.clock.sleep(RETRY_PAUSE);
                }
            }
        }
        let done = done.into_iter().map(|completion| completion.expect("no operation is left"));
        let done: Vec<Completion> = done.collect();
        let failed = done.iter().filter_map(|completion| failure(completion.result.as_ref().err()?));
        let failed = failed.filter(|(fault, _)| !self.read_only || *fault == BackingFault::Read);
        self.faults.record(failed);
        done
    }

    /// Whether these are writes into the page cache of a file: io_uring copies them one after the
    /// other, too, most file systems in a thread of the kernel.
    fn only_copies(&self, operations: &[Operation]) -> bool {
        self.base.file().is_some_and(|file| !file.bypasses_cache() && !file.is_block_device())
            && operations.iter().all(|operation| matches!(operation, Operation::Write { fua: false, .. }))
    }

    /// Retries the reads that failed. Whether all of them succeed.
    pub(crate) fn can_read_again(&mut self) -> bool {
        let frame = FRAME_BYTES as u64;
        while let Some(offset) = self.faults.failed_read() {
            if self.read(offset - offset % frame, FRAME_BYTES).is_err() {
                return false;
            }
            self.faults.read_succeeded();
        }
        true
    }

    /// Runs one operation.
    pub(crate) fn run_one(&mut self, operation: Operation) -> Completion {
        let mut done = self.run(vec![operation]);
        done.pop().expect("one operation has one completion")
    }

    /// Reads `len` bytes at `offset`.
    pub(crate) fn read(&mut self, offset: u64, len: usize) -> Result<Buffer, Error> {
        let completion = self.run_one(Operation::Read { offset, len, data: Buffer::zeroed(len).into() });
        let Completion { result, data, .. } = completion;
        result?;
        Ok(data.and_then(Segments::into_buffer).expect("a read returns its buffer"))
    }

    /// Writes `bytes`, a multiple of 4 KiB, at `offset`.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.write_with(offset, bytes, false)
    }

    /// The same; with `fua` they are durable when it returns.
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

    /// Makes ranges of bytes (offset, length) read as zeros. With `deallocate` their storage is
    /// given back, without it they have storage afterwards.
    pub(crate) fn zero(&mut self, ranges: impl Iterator<Item = (u64, u64)>, deallocate: bool) -> Result<(), Error> {
        let zeroes = |(offset, len)| Operation::WriteZeroes { offset, len, deallocate, fua: false };
        self.run(ranges.map(zeroes).collect()).into_iter().try_for_each(|completion| completion.result)
    }

    /// Makes everything that was written so far durable.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.run_one(Operation::Flush).result
    }
}

/// Runs a single request, or returns it if other threads would have to complete it.
fn run_here(base: &dyn Device, io: &mut Io, request: Request) -> Result<Completion, Request> {
    match base.submit(io, request) {
        Submitted::Done(completion) => Ok(completion),
        Submitted::Pending => Ok(io.poll().expect("an accepted request is done")),
        Submitted::Busy(request) => Err(request),
    }
}

/// Larger writes are split into parts of so many bytes.
const PART_BYTES: usize = 1 << 20;
/// Pause after an error of the I/O engine.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use ebof_backend::Spec;

    use super::*;

    /// Only several operations that take time take the way through io_uring, or other threads.
    #[test]
    fn what_is_done_one_after_the_other_is_done_by_the_thread_that_waits_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let spec: Spec = format!("{}/disk.img:1Mi", directory.path().display()).parse().unwrap();
        let base = ebof_backend::open(&spec).unwrap();
        let mut disk = Disk::new(base, &IoFactory::default(), &Clock::system()).unwrap();
        disk.write_with(4096, &[7; 4096], true).unwrap();
        disk.flush().unwrap();
        disk.zero(std::iter::once((8192, 4096)), true).unwrap();
        assert_eq!(disk.read(4096, 4096).unwrap().as_slice()[..4096], [7; 4096]);
        let write = |offset: u64, byte: u8, fua| {
            let mut data = Buffer::zeroed(4096);
            data.as_mut_slice().fill(byte);
            Operation::Write { offset, len: 4096, data: data.into(), fua }
        };
        let done = disk.run(vec![write(12288, 1, false), write(16384, 2, false), write(20480, 3, false)]);
        assert!(done.len() == 3 && done.iter().zip(0..).all(|(one, tag)| one.result.is_ok() && one.tag == tag));
        assert_eq!(disk.read(16384, 4096).unwrap().as_slice()[..4096], [2; 4096]);
        assert_eq!(disk.io.stats().accepted, 0);
        assert!(disk.run(vec![write(0, 4, true), write(4096, 5, true)]).iter().all(|one| one.result.is_ok()));
        assert_eq!(disk.io.stats().accepted, 2, "durable writes take their time together");
        disk.zero([(0, 4096), (4096, 4096)].into_iter(), false).unwrap();
        assert_eq!(disk.io.stats().accepted, 4);
        assert_eq!(disk.read(4096, 4096).unwrap().as_slice()[..4096], [0; 4096]);
    }
}
