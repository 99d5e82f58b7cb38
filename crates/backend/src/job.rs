//! The steps of a request to a file or block device: short transfers are continued, unsupported
//! operations are emulated, and the result of the last step is that of the request.
//!
//! Engines (`io/uring.rs`, `io/threads.rs`) execute a [`JobStep`] and report its result; they
//! decide nothing. The open file that all steps are done to is in `job/open_file.rs`.
//!
//! ```text
//! Read, Write   Transfer ──┐ short: again from where it stopped
//! WriteZeroes   Zero(Punch) -> Zero(Range) -> Zero(Write)   to the right: EOPNOTSUPP; then Sync if FUA
//! Deallocate    Punch, one range after the other; EOPNOTSUPP ends it, successfully
//! Flush         Sync
//! ```

pub(crate) mod open_file;

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::request::segments::{Segments, SharedRange};
use crate::resident::ZEROS;
use crate::{Action, Completion, Error, Operation, Region, Request};

use open_file::{OpenFile, ZeroMethod};

/// Requests and completions are handed on in batches of at most so many, where turns are long: a
/// disk that has completed all that it had gets the first new requests while others are still being
/// taken, and hosts the first data while the rest is sent. Callers take as many completions in a
/// turn; one without the other gains nothing.
pub const BATCH_MAX: usize = 16;

/// One system call's worth of a request.
#[derive(Debug)]
pub(crate) enum JobStep<'a> {
    Read {
        offset: u64,
        into: &'a mut [u8],
    },
    Write {
        offset: u64,
        from: &'a [u8],
        sync: bool,
    },
    ReadSegments {
        offset: u64,
        into: Vec<IoSliceMut<'a>>,
    },
    WriteSegments {
        offset: u64,
        from: Vec<IoSlice<'a>>,
        sync: bool,
    },
    /// At most [`SEGMENTS_MAX`] of its pieces.
    ReadShared {
        offset: u64,
        into: SharedRange<'a>,
    },
    /// The same.
    WriteShared {
        offset: u64,
        from: SharedRange<'a>,
        sync: bool,
    },
    Allocate {
        mode: FallocateFlags,
        offset: u64,
        len: u64,
    },
    Sync,
}

impl<'a> JobStep<'a> {
    /// A read into memory that is not one buffer.
    fn read_several(offset: u64, data: &'a mut Segments, range: Range<usize>) -> JobStep<'a> {
        if data.as_shared().is_some() {
            return match data.shared(range) {
                Some(into) => JobStep::ReadShared { offset, into },
                None => JobStep::ReadSegments { offset, into: Vec::new() },
            };
        }
        let into = data.slices_mut(range).take(SEGMENTS_MAX).map(IoSliceMut::new).collect();
        JobStep::ReadSegments { offset, into }
    }
}

/// What follows a step.
#[derive(Debug)]
#[must_use]
pub(crate) enum Progress {
    /// There is another step.
    Again,
    /// That was the last one.
    Finished(Result<(), Error>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobPhase {
    Transfer,
    Zero(ZeroMethod),
    Punch,
    Sync,
}

/// A request in flight on a file or block device.
#[derive(Debug)]
pub(crate) struct Job {
    file: Arc<OpenFile>,
    request: Request,
    phase: JobPhase,
    /// Bytes transferred or zeroed; for a deallocation, ranges done.
    done: u64,
    /// Consecutive steps that failed with EAGAIN, EINTR or ECANCELED.
    retries: u32,
    cancelled: bool,
}

/// The longest single transfer: the kernel cuts longer ones a little below 2 GiB anyway.
const STEP_BYTES_MAX: usize = 1 << 30;
/// Segments of one step: what the system takes (UIO_MAXIOV). Those behind them are another step's.
pub(crate) const SEGMENTS_MAX: usize = 1024;
/// How often a step is retried before its error becomes that of the request.
const RETRIES_MAX: u32 = 64;

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
const ZERO: FallocateFlags = FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE);

impl Job {
    /// The request must have passed `Geometry::check` and need a system call (`FileDevice::submit`
    /// checks both).
    pub(crate) fn new(file: Arc<OpenFile>, request: Request) -> Job {
        let phase = match &request.operation {
            Operation::Read { .. } | Operation::Write { .. } => JobPhase::Transfer,
            Operation::Flush => JobPhase::Sync,
            Operation::WriteZeroes { deallocate, .. } => JobPhase::Zero(file.zero_method(*deallocate)),
            Operation::Deallocate { .. } => JobPhase::Punch,
        };
        Job { file, request, phase, done: 0, retries: 0, cancelled: false }
    }

    pub(crate) fn tag(&self) -> u64 {
        self.request.tag
    }

    pub(crate) fn action(&self) -> Action {
        self.request.operation.action()
    }

    /// The open file.
    pub(crate) fn file(&self) -> &Arc<OpenFile> {
        &self.file
    }

    /// The region of its memory, where it may be worth registering: with direct I/O the kernel
    /// looks up and pins the pages of every request, otherwise it copies.
    #[inline]
    pub(crate) fn region(&self) -> Option<&Region> {
        match &self.request.operation {
            Operation::Read { data, .. } | Operation::Write { data, .. } if self.file.bypasses_cache() => {
                data.as_buffer().map(|buffer| &**buffer.region())
            }
            _ => None,
        }
    }

    /// Aborts the request after its current step, unless that is the last one.
    pub(crate) fn cancel(&mut self) {
        self.cancelled = true;
    }

    /// Back to the request, for one that was never started.
    pub(crate) fn into_request(self) -> Request {
        self.request
    }

    pub(crate) fn complete(self, result: Result<(), Error>) -> Completion {
        self.request.complete(result)
    }

    pub(crate) fn aborted(self) -> Completion {
        let action = self.request.operation.action();
        self.complete(Err(Error::Aborted { action }))
    }

    /// The current step. The same until `advance` is called.
    pub(crate) fn step(&mut self) -> JobStep<'_> {
        let done = self.done;
        match (&mut self.request.operation, self.phase) {
            (_, JobPhase::Sync) | (Operation::Flush, _) => JobStep::Sync,
            (Operation::Read { offset, len, data }, _) => {
                let start = position(done);
                let end = (*len).min(start.saturating_add(STEP_BYTES_MAX));
                let offset = *offset + done;
                if data.as_buffer().is_none() {
                    return JobStep::read_several(offset, data, start..end);
                }
                let buffer = data.as_mut_buffer().expect("it has a buffer, as was looked at above");
                JobStep::Read { offset, into: &mut buffer.as_mut_slice()[start..end] }
            }
            (Operation::Write { offset, len, data, fua }, _) => {
                let start = position(done);
                let end = (*len).min(start.saturating_add(STEP_BYTES_MAX));
                let offset = *offset + done;
                let sync = *fua;
                match data.as_buffer() {
                    Some(buffer) => JobStep::Write { offset, from: &buffer.as_slice()[start..end], sync },
                    None => match data.shared(start..end) {
                        Some(from) => JobStep::WriteShared { offset, from, sync },
                        None => {
                            let from = data.slices(start..end).take(SEGMENTS_MAX).map(IoSlice::new).collect();
                            JobStep::WriteSegments { offset, from, sync }
                        }
                    },
                }
            }
            (Operation::WriteZeroes { offset, len, .. }, JobPhase::Zero(ZeroMethod::Punch)) => {
                JobStep::Allocate { mode: PUNCH, offset: *offset, len: *len }
            }
            (Operation::WriteZeroes { offset, len, .. }, JobPhase::Zero(ZeroMethod::Write)) => {
                let zeros = ZEROS.as_slice().as_bytes();
                let left = usize::try_from(*len - done).unwrap_or(usize::MAX);
                JobStep::Write { offset: *offset + done, from: &zeros[..left.min(zeros.len())], sync: false }
            }
            (Operation::WriteZeroes { offset, len, .. }, _) => {
                JobStep::Allocate { mode: ZERO, offset: *offset, len: *len }
            }
            (Operation::Deallocate { ranges }, _) => {
                let range = &ranges[position(done)];
                JobStep::Allocate { mode: PUNCH, offset: range.start, len: range.end - range.start }
            }
        }
    }

    /// Takes the result of the step: the bytes transferred (0 for steps that transfer none), or the
    /// error.
    pub(crate) fn advance(&mut self, outcome: Result<usize, Errno>) -> Progress {
        match outcome {
            Ok(bytes) => {
                self.retries = 0;
                match self.progressed(bytes) {
                    Progress::Again if self.cancelled => self.abort(),
                    progress => progress,
                }
            }
            Err(Errno::CANCELED | Errno::INTR | Errno::AGAIN) if self.cancelled => self.abort(),
            Err(Errno::CANCELED | Errno::INTR | Errno::AGAIN) if self.retries < RETRIES_MAX => {
                self.retries += 1;
                Progress::Again
            }
            Err(errno) => self.failed(errno),
        }
    }

    fn abort(&self) -> Progress {
        Progress::Finished(Err(Error::Aborted { action: self.request.operation.action() }))
    }

    fn progressed(&mut self, bytes: usize) -> Progress {
        let (_, len) = self.extent();
        match self.phase {
            JobPhase::Transfer | JobPhase::Zero(ZeroMethod::Write) => self.transferred(bytes, len),
            JobPhase::Zero(ZeroMethod::Punch | ZeroMethod::Range) => self.zeroed(),
            JobPhase::Punch => {
                self.done += 1;
                match &self.request.operation {
                    Operation::Deallocate { ranges } if position(self.done) < ranges.len() => Progress::Again,
                    _ => Progress::Finished(Ok(())),
                }
            }
            // The kernel may have reported the failure of these data to another flush.
            JobPhase::Sync => Progress::Finished(self.file.check_cache(self.request.operation.action())),
        }
    }

    fn transferred(&mut self, bytes: usize, len: u64) -> Progress {
        let bytes = u64::try_from(bytes).expect("an address space has at most 64 bits");
        // A step asks for no more than what is left, and neither the kernel nor a file system does
        // more than it was asked for: bytes behind the memory would have been overwritten.
        assert!(bytes <= len - self.done, "{bytes} bytes were transferred, and {} were left", len - self.done);
        let end = self.done + bytes;
        if end == len {
            self.done = end;
            return if self.phase == JobPhase::Transfer { Progress::Finished(Ok(())) } else { self.zeroed() };
        }
        // Direct I/O cannot go on in the middle of a block.
        let end = end - end % u64::from(self.file.block_bytes());
        if end > self.done {
            self.done = end;
            return Progress::Again;
        }
        let action = self.request.operation.action();
        if action != Action::Read {
            return Progress::Finished(Err(self.error(io::ErrorKind::WriteZero.into())));
        }
        let (offset, _) = self.extent();
        let device = self.file.name();
        let capacity = self.file.capacity_bytes();
        Progress::Finished(Err(Error::Truncated { device, action, offset: offset + self.done, capacity }))
    }

    fn zeroed(&mut self) -> Progress {
        if matches!(self.request.operation, Operation::WriteZeroes { fua: true, .. }) {
            self.phase = JobPhase::Sync;
            return Progress::Again;
        }
        Progress::Finished(Ok(()))
    }

    fn failed(&mut self, errno: Errno) -> Progress {
        let unsupported = matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS);
        match self.phase {
            JobPhase::Zero(ZeroMethod::Punch) if unsupported => {
                self.file.cannot_punch();
                self.phase = JobPhase::Zero(ZeroMethod::Range);
                return Progress::Again;
            }
            JobPhase::Zero(ZeroMethod::Range) if unsupported => {
                self.file.cannot_zero();
                self.phase = JobPhase::Zero(ZeroMethod::Write);
                return Progress::Again;
            }
            JobPhase::Punch if unsupported => {
                self.file.cannot_punch();
                return Progress::Finished(Ok(()));
            }
            JobPhase::Sync => self.file.lose_cache(),
            // With the page cache, a FUA write includes a flush, which may be the one that reports
            // lost data.
            JobPhase::Transfer if errno == Errno::IO && self.is_fua_write() && !self.file.bypasses_cache() => {
                self.file.lose_cache();
            }
            _ => {}
        }
        Progress::Finished(Err(self.error(errno.into())))
    }

    fn is_fua_write(&self) -> bool {
        matches!(self.request.operation, Operation::Write { fua: true, .. })
    }

    fn error(&self, source: io::Error) -> Error {
        let (offset, len) = self.extent();
        let device = self.file.name();
        let action = self.request.operation.action();
        let done = if action == Action::Deallocate { 0 } else { self.done };
        Error::Device { device, action, offset: offset + done, len: len - done, source }
    }

    /// Offset and length on the device of the request, or of the range that a deallocation has
    /// reached.
    fn extent(&self) -> (u64, u64) {
        match &self.request.operation {
            Operation::Read { offset, len, .. } | Operation::Write { offset, len, .. } => {
                (*offset, u64::try_from(*len).unwrap_or(u64::MAX))
            }
            Operation::WriteZeroes { offset, len, .. } => (*offset, *len),
            Operation::Deallocate { ranges } => {
                ranges.get(position(self.done)).map_or((0, 0), |range| (range.start, range.end - range.start))
            }
            Operation::Flush => (0, 0),
        }
    }
}

/// Progress as an index into memory.
fn position(done: u64) -> usize {
    usize::try_from(done).expect("progress is bounded by a length in memory")
}

#[cfg(test)]
mod tests;
