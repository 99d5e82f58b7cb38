//! Block devices by ublk: the kernel hands every request of the device to this process over
//! io_uring, without a file system or a loop device in between.
//!
//! This file owns the three places where memory is shared with the kernel, and thereby all unsafe
//! code of the crate: the control ring, the rings of the queues and the descriptors that the kernel
//! writes requests to. `server` makes devices, `worker` serves their queues, both in safe code.
//! Data are moved by pread and pwrite on the character device (`UBLK_F_USER_COPY`), so that no
//! address of a buffer is ever given to the kernel.
#![allow(unsafe_code, reason = "memory shared with the kernel; each block says why")]

mod server;
mod wire;
mod worker;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::time::Duration;

use io_uring::squeue::{Entry, Entry128};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use zerocopy::IntoBytes;

pub use server::check;
pub(crate) use server::{Server, delete, is_ours};
use wire::{ControlCommand, Descriptor, IoCommand};

/// The largest payload of a control command, bytes.
const CONTROL_BYTES_MAX: usize = 64;

/// The ring for commands to /dev/ublk-control, which are run one at a time.
struct ControlRing {
    ring: IoUring<Entry128, cqueue::Entry>,
    device: File,
}

impl ControlRing {
    fn open() -> io::Result<Self> {
        let device = File::options().read(true).write(true).open("/dev/ublk-control")?;
        Ok(Self { ring: IoUring::<Entry128, cqueue::Entry>::builder().build(4)?, device })
    }

    /// Runs a command with `payload` (at most [`CONTROL_BYTES_MAX`] bytes), which the kernel may
    /// change.
    fn run(&mut self, operation: u32, command: ControlCommand, payload: &mut [u8]) -> io::Result<()> {
        let bytes = payload.len();
        if bytes > CONTROL_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut shared = Box::new([0_u8; CONTROL_BYTES_MAX]);
        shared[..bytes].copy_from_slice(payload);
        let address = if bytes == 0 { 0 } else { shared.as_mut_ptr().expose_provenance() as u64 };
        let len = u16::try_from(bytes).expect("at most CONTROL_BYTES_MAX");
        let mut inline = [0; 80];
        inline[..size_of::<ControlCommand>()]
            .copy_from_slice(ControlCommand { addr: address, len, ..command }.as_bytes());
        let entry = opcode::UringCmd80::new(Fd(self.device.as_raw_fd()), operation).cmd(inline).build();
        // SAFETY: the entry points to `shared`, which lives until the command's completion was
        // seen; on the one path on which that is not seen it is leaked.
        // JUSTIFICATION: the driver takes its commands from a ring only; there is no system call
        // for them.
        if unsafe { self.ring.submission().push(&entry) }.is_err() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let result = loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    Box::leak(shared);
                    return Err(error);
                }
                _ => {}
            }
            if let Some(completion) = self.ring.completion().next() {
                break completion.result();
            }
        };
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        // The kernel wrote behind the compiler's back; the exposed address tells the compiler that
        // this may have happened.
        payload.copy_from_slice(&std::hint::black_box(shared)[..bytes]);
        Ok(())
    }
}

/// The ring of one queue thread: fetches requests and waits for all events of the thread.
struct QueueRing {
    ring: IoUring<Entry, cqueue::Entry>,
}

impl QueueRing {
    /// A ring for about `entries` outstanding commands.
    fn new(entries: u32) -> io::Result<Self> {
        // The kernel keeps completions that do not fit, so the size only affects speed.
        let ring = IoUring::builder().setup_coop_taskrun().setup_cqsize(entries * 2).build(entries)?;
        Ok(Self { ring })
    }

    /// Queues a command to a queue of the character device.
    fn command(&mut self, device: &File, operation: u32, command: IoCommand, user: u64) -> io::Result<()> {
        let mut inline = [0; 16];
        inline.copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd16::new(Fd(device.as_raw_fd()), operation).cmd(inline).build();
        self.push(&entry.user_data(user))
    }

    /// Queues a one-shot poll for `fd` to become readable.
    fn watch(&mut self, fd: BorrowedFd<'_>, user: u64) -> io::Result<()> {
        let readable = u32::from(rustix::event::PollFlags::IN.bits());
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), readable).build();
        self.push(&entry.user_data(user))
    }

    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: the entries of the two callers hold no address: ublk moves data by pread and
            // pwrite, a poll has none. Descriptors that were closed meanwhile are answered with an
            // error.
            // JUSTIFICATION: the driver hands out requests over a ring only; there is no system
            // call for it.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.submit()?;
        }
    }

    /// Submits queued commands to the kernel.
    fn submit(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        match self.ring.submit() {
            Err(error) if !is_transient(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Submits queued commands and sleeps until something completes, at most `timeout`.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(Timespec::from);
        let arguments = match &timeout {
            Some(timeout) => SubmitArgs::new().timespec(timeout),
            None => SubmitArgs::new(),
        };
        match self.ring.submitter().submit_with_args(1, &arguments) {
            Err(error) if !is_transient(&error) => Err(error),
            _ => Ok(!self.ring.completion().is_empty()),
        }
    }

    /// Takes completions: the command's `user` and its result.
    fn completions(&mut self, into: &mut Vec<(u64, i32)>) {
        into.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
    }
}

/// Whether the error is transient: interrupted, timed out, or completions have to be taken first.
fn is_transient(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let transient = [Errno::INTR, Errno::TIME, Errno::BUSY, Errno::AGAIN];
    error.raw_os_error().is_some_and(|number| transient.iter().any(|errno| errno.raw_os_error() == number))
}

/// The I/O descriptors of one queue, which the kernel writes and this process reads.
struct Descriptors {
    memory: NonNull<Descriptor>,
    count: u16,
    bytes: usize,
}

impl Descriptors {
    /// Maps the descriptors of `queue`, which has `count` tags.
    fn map(device: &File, queue: u16, count: u16) -> io::Result<Self> {
        let bytes = (usize::from(count) * size_of::<Descriptor>()).next_multiple_of(rustix::param::page_size());
        let position = wire::descriptors_position(queue);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        // JUSTIFICATION: requests are described in this memory and nowhere else.
        let memory =
            unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, device.as_fd(), position)? };
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { memory, count, bytes })
    }

    /// The request of a tag, `None` beyond the queue. Meaningful between a fetch's completion and
    /// its commit.
    fn get(&self, tag: u16) -> Option<Descriptor> {
        if tag >= self.count {
            return None;
        }
        // SAFETY: the mapping holds `count` descriptors, aligned as the page is; every bit pattern
        // is one. The kernel writes it before the fetch completes and not again before the commit;
        // volatile, because the compiler cannot see that.
        // JUSTIFICATION: see `map`.
        Some(unsafe { self.memory.add(usize::from(tag)).as_ptr().read_volatile() })
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; nobody has a reference into it, for `get`
        // copies.
        // JUSTIFICATION: see `map`.
        if let Err(error) = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) } {
            tracing::debug!(%error, "unmapping descriptors");
        }
    }
}

// SAFETY: the mapping belongs to the value, and the kernel does not care which thread reads it.
// JUSTIFICATION: it is made by the thread that makes the device, which can tell about errors, and
// read by the queue's.
unsafe impl Send for Descriptors {}
