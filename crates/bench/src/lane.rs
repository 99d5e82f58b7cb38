//! One thread's access to the medium: a queue pair, shared queues (`lane/shared.rs`) or a local
//! device behind the same calls.

mod shared;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_backend::{Buffer, Device, Engine, Io, Operation, Request, Segments, Submitted};
use ebof_initiator::{Completion, Data, PathQueue, QueuePair, SubmitError};
use ebof_nvme::identify::ProtectionType;
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::protection::left_to_controller;
use ebof_nvme::{Nsid, Sqe};

use crate::block::Block;
use crate::job::plan::Next;
use crate::job::{Ioengine, Job};
use crate::source::{OpenedSource, SourceError};

use shared::SharedLane;

/// Operations that are handed to a local device together, at most. More of them cost less CPU time,
/// but the device idles meanwhile: at depth 32, 16 were 6 to 10 % slower on a disk than one at a
/// time, which is what fio does.
const HANDED_OVER: usize = 2;

/// A completed operation.
pub(crate) struct LaneCompletion {
    pub(crate) slot: u64,
    pub(crate) result: Result<(), String>,
    pub(crate) block: Block,
}

/// The access of one thread.
#[expect(clippy::large_enum_variant, reason = "there is one per thread, and it is on the way of every operation")]
pub(crate) enum Lane {
    Fabric { queue: QueuePair<Block>, encoder: Encoder },
    Shared { lane: SharedLane, encoder: Encoder },
    Paths { queue: PathQueue<Block>, encoder: Encoder },
    Local { device: Arc<dyn Device>, io: Io, ready: Vec<LaneCompletion>, pending: usize, length: usize },
}

impl Lane {
    /// Must be called in the thread that will use it.
    pub(crate) fn open(source: &OpenedSource, job: &Job, length: usize) -> Result<Self, SourceError> {
        let depth = job.depth;
        Ok(match source {
            OpenedSource::Fabric { namespace, queues: Some(queues), .. } => Self::Shared {
                lane: SharedLane::new(if job.hipri { queues.polled() } else { queues.clone() }, depth),
                encoder: Encoder::new(namespace.nsid(), namespace.block_bytes(), namespace.protection()),
            },
            OpenedSource::Fabric { controller, namespace, queues: None } => {
                let encoder = Encoder::new(namespace.nsid(), namespace.block_bytes(), namespace.protection());
                Self::Fabric { queue: controller.queue_pair()?, encoder }
            }
            OpenedSource::Paths { namespace, .. } => {
                let encoder = Encoder::new(namespace.nsid(), namespace.block_bytes(), namespace.protection());
                Self::Paths { queue: PathQueue::new(namespace)?, encoder }
            }
            OpenedSource::Local(device) => Self::Local {
                device: Arc::clone(device),
                io: Io::with_engine(u32::from(depth), engine(job.ioengine))?,
                ready: Vec::with_capacity(usize::from(depth)),
                pending: 0,
                length,
            },
        })
    }

    /// The maximum number of outstanding operations.
    pub(crate) fn capacity(&self) -> usize {
        match self {
            Self::Fabric { queue, .. } => queue.capacity(),
            Self::Paths { queue, .. } => queue.capacity(),
            Self::Shared { .. } | Self::Local { .. } => usize::MAX,
        }
    }

    /// `count` buffers of `length` bytes.
    pub(crate) fn blocks(&self, length: usize, count: usize) -> Vec<Block> {
        match self {
            Self::Fabric { .. } | Self::Shared { .. } | Self::Paths { .. } => Block::together(length, count),
            // A memory drive takes the pages of a buffer that is a whole region in place of its
            // own. What is compared does the work: with one block more, none is a whole region, and
            // data are copied.
            Self::Local { device, .. } if device.resident().is_some() => {
                let mut blocks = Block::together(length, count + 1);
                blocks.truncate(count);
                blocks
            }
            Self::Local { .. } => (0..count).map(|_| Block::new(length)).collect(),
        }
    }

    /// Starts an operation. It may be sent only by [`Lane::wait`]. On failure nothing was started.
    pub(crate) fn submit(&mut self, next: Next, slot: u64, block: Block) -> Result<(), (String, Block)> {
        match self {
            Self::Fabric { queue, encoder } => {
                let length = block.length;
                let (sqe, data) = encoder.command(next, block);
                queue.submit(sqe, data, slot).map_err(|refused| not_submitted(refused, length))
            }
            Self::Paths { queue, encoder } => {
                let length = block.length;
                let (sqe, data) = encoder.command(next, block);
                queue.submit(sqe, data, slot).map_err(|refused| not_submitted(refused, length))
            }
            Self::Shared { lane, encoder } => {
                let (sqe, data) = encoder.command(next, block);
                lane.submit(slot, next.write, sqe, data);
                Ok(())
            }
            Self::Local { device, io, ready, pending, length } => {
                let offset = next.offset;
                let len = block.length;
                let buffer = block.buffer;
                let operation = if next.write {
                    Operation::Write { offset, len, data: buffer.into(), fua: false }
                } else {
                    Operation::Read { offset, len, data: buffer.into() }
                };
                match device.submit(io, Request::new(slot, operation)) {
                    Submitted::Done(done) => ready.push(local_done(done, *length)),
                    Submitted::Pending => {
                        *pending += 1;
                        if *pending == HANDED_OVER {
                            *pending = 0;
                            // After an error they stay queued for the next call, which reports it.
                            let _queued = io.kick();
                        }
                    }
                    Submitted::Busy(request) => {
                        let data = request.operation.into_data();
                        let buffer = data.and_then(Segments::into_buffer).unwrap_or_else(|| Buffer::zeroed(*length));
                        return Err(("more in flight than allowed".to_owned(), Block { buffer, length: *length }));
                    }
                }
                Ok(())
            }
        }
    }

    /// Sends submitted operations and waits for the next completed one.
    pub(crate) fn wait(&mut self, deadline: Instant) -> Result<Option<LaneCompletion>, String> {
        match self {
            Self::Fabric { queue, .. } => {
                queue.wait(Some(deadline)).map(|done| done.map(fabric_done)).map_err(|error| error.to_string())
            }
            Self::Paths { queue, .. } => {
                queue.wait(Some(deadline)).map(|done| done.map(fabric_done)).map_err(|error| error.to_string())
            }
            Self::Shared { lane, .. } => Ok(lane.wait(deadline).map(shared_done)),
            Self::Local { io, ready, pending, length, .. } => {
                *pending = 0;
                io.kick().map_err(|error| error.to_string())?;
                if let Some(done) = ready.pop() {
                    return Ok(Some(done));
                }
                let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_micros(1));
                let done = io.wait(Some(left)).map_err(|error| error.to_string())?;
                Ok(done.map(|done| local_done(done, *length)))
            }
        }
    }

    /// The next completed operation, without waiting.
    pub(crate) fn next_ready(&mut self) -> Option<LaneCompletion> {
        match self {
            Self::Fabric { queue, .. } => queue.next_ready().map(fabric_done),
            Self::Paths { queue, .. } => queue.next_ready().map(fabric_done),
            Self::Shared { lane, .. } => lane.next_ready().map(shared_done),
            Self::Local { io, ready, length, .. } => {
                ready.pop().or_else(|| io.poll().map(|done| local_done(done, *length)))
            }
        }
    }
}

/// Encodes commands to a namespace.
pub(crate) struct Encoder {
    nsid: Nsid,
    block_bytes: u64,
    protection: ProtectionType,
}

impl Encoder {
    fn new(nsid: Nsid, block_bytes: u32, protection: ProtectionType) -> Self {
        Self { nsid, block_bytes: u64::from(block_bytes), protection }
    }

    /// The command for an operation.
    fn command(&self, next: Next, block: Block) -> (Sqe, Data<Block>) {
        let blocks = u32::try_from(block.length as u64 / self.block_bytes).unwrap_or(u32::MAX);
        let range = BlockRange::new(next.offset / self.block_bytes, blocks);
        let command = |opcode| left_to_controller(self.protection, range.encode(opcode, self.nsid));
        if next.write {
            (command(nvm::WRITE), Data::FromHost(block))
        } else {
            (command(nvm::READ), Data::ToHost(block))
        }
    }
}

const fn engine(ioengine: Ioengine) -> Engine {
    match ioengine {
        Ioengine::Auto => Engine::Auto,
        Ioengine::IoUring => Engine::Uring,
        Ioengine::Threads => Engine::Threads,
    }
}

fn not_submitted(refused: SubmitError<Block>, length: usize) -> (String, Block) {
    (refused.reason.to_string(), refused.data.into_buffer().unwrap_or_else(|| Block::new(length)))
}

/// Completions of shared queues do not contain the slot.
fn shared_done((slot, done): (u64, Completion<Block>)) -> LaneCompletion {
    LaneCompletion { slot, ..fabric_done(done) }
}

fn fabric_done(done: Completion<Block>) -> LaneCompletion {
    let result = match done.result {
        Ok(cqe) => cqe.status().ok().map_err(|status| status.to_string()),
        Err(error) => Err(error.to_string()),
    };
    LaneCompletion { slot: done.user, result, block: done.data.into_buffer().unwrap_or_else(|| Block::new(0)) }
}

fn local_done(done: ebof_backend::Completion, length: usize) -> LaneCompletion {
    let buffer = done.data.and_then(Segments::into_buffer).unwrap_or_else(|| Buffer::zeroed(length));
    LaneCompletion {
        slot: done.tag,
        result: done.result.map_err(|error| error.to_string()),
        block: Block { buffer, length },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Mix;
    use crate::source::{QueueUse, Source};

    #[test]
    fn writes_to_memory_are_copied() {
        let length = 128 << 10;
        let job = Job { block_bytes: 128 << 10, ..Job::new(Mix::Write) };
        let opened =
            Source::Local("mem:1Mi".parse().unwrap()).open(std::slice::from_ref(&job), QueueUse::default()).unwrap();
        let mut lane = Lane::open(&opened, &job, length).unwrap();
        for depth in [1, 4] {
            let mut blocks = lane.blocks(length, depth);
            assert_eq!(blocks.len(), depth);
            // The second time there is a chunk that pages could be exchanged with.
            for _ in 0..2 {
                let mut block = blocks.pop().unwrap();
                block.as_mut().fill(7);
                let place = block.as_ref().as_ptr();
                lane.submit(Next { write: true, offset: 0 }, 0, block).map_err(|(why, _)| why).unwrap();
                let done = lane.wait(Instant::now() + Duration::from_secs(10)).unwrap().unwrap();
                assert_eq!(done.block.as_ref().as_ptr(), place, "the drive has taken the buffer instead of its bytes");
                blocks.push(done.block);
            }
        }
    }
}
