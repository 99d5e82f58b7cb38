//! Blocks in memory, shared by the threads of a front: the namespaces of the tests.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebof_attach::block_queue::{BlockQueue, Done, Io, Namespace, Op};
use rustix::event::{EventfdFlags, eventfd};

/// The state that all threads share.
#[derive(Debug, Default)]
pub(crate) struct Medium {
    pub(crate) bytes: Vec<u8>,
    pub(crate) flushes: u64,
    pub(crate) forced_writes: u64,
    pub(crate) zeroed_blocks: u64,
    pub(crate) deallocated_blocks: u64,
    pub(crate) largest_bytes: usize,
}

pub(crate) struct Memory {
    medium: Arc<Mutex<Medium>>,
    block_bytes: u64,
    waiting: VecDeque<Io>,
    capacity: usize,
    event: OwnedFd,
}

pub(crate) fn namespace(nsid: u32, block_bytes: u32, blocks: u64) -> Namespace {
    Namespace {
        nsid,
        block_bytes,
        blocks,
        read_only: false,
        transfer_max_bytes: 1 << 20,
        write_zeroes_max_blocks: 1024,
        zeroes_deallocate: true,
        protection: ebof_nvme::identify::ProtectionType::None,
        deallocate: true,
        head: None,
    }
}

impl Memory {
    pub(crate) fn new(medium: &Arc<Mutex<Medium>>, block_bytes: u32, capacity: usize) -> Self {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        let block_bytes = u64::from(block_bytes);
        Self { medium: Arc::clone(medium), block_bytes, waiting: VecDeque::new(), capacity, event }
    }

    fn execute(&self, io: &mut Io) {
        let mut medium = self.medium.lock().unwrap_or_else(PoisonError::into_inner);
        let from = usize::try_from(io.slba * self.block_bytes).expect("fits");
        let bytes = usize::try_from(u64::from(io.blocks) * self.block_bytes).expect("fits");
        medium.largest_bytes = medium.largest_bytes.max(io.data.len());
        match io.op {
            Op::Read => io.data.copy_from_slice(&medium.bytes[from..from + bytes]),
            Op::Write { fua } => {
                medium.forced_writes += u64::from(fua);
                medium.bytes[from..from + bytes].copy_from_slice(&io.data);
            }
            Op::Flush => medium.flushes += 1,
            Op::WriteZeroes { deallocate } => {
                medium.bytes[from..from + bytes].fill(0);
                medium.zeroed_blocks += u64::from(io.blocks);
                medium.deallocated_blocks += if deallocate { u64::from(io.blocks) } else { 0 };
            }
            Op::Deallocate => medium.deallocated_blocks += u64::from(io.blocks),
        }
    }
}

impl BlockQueue for Memory {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.waiting.len() >= self.capacity {
            return Err(io);
        }
        self.waiting.push_back(io);
        Ok(())
    }

    fn flush(&mut self) {}

    fn poll(&mut self, done: &mut Vec<Done>) -> Option<Duration> {
        while let Some(mut io) = self.waiting.pop_front() {
            self.execute(&mut io);
            done.push(Done { user: io.user, result: Ok(()), data: io.data });
        }
        None
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Blocks that accept one command and do not complete it until they are released: an unreachable
/// target.
pub(crate) struct Away {
    held: Option<Io>,
    gone: Arc<AtomicBool>,
    event: OwnedFd,
}

impl Away {
    pub(crate) fn new(gone: &Arc<AtomicBool>) -> Self {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        Self { held: None, gone: Arc::clone(gone), event }
    }
}

impl BlockQueue for Away {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.held.is_some() {
            return Err(io);
        }
        self.held = Some(io);
        Ok(())
    }

    fn flush(&mut self) {}

    fn poll(&mut self, done: &mut Vec<Done>) -> Option<Duration> {
        if let Some(io) = self.held.take_if(|_| self.gone.load(Ordering::Acquire)) {
            done.push(Done { user: io.user, result: Err(rustix::io::Errno::IO), data: io.data });
        }
        Some(Duration::from_millis(100))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
