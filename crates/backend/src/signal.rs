//! Signals to other processes by their eventfds, without ever waiting for them.
//!
//! A write to an eventfd waits while its counter is at its maximum, unless O_NONBLOCK is set; and
//! whoever has the descriptor, too, can clear that flag and fill the counter at any time. The
//! kernel's own signals do not wait. Linux AIO gives one for every operation that completes
//! (IOCB_FLAG_RESFD), so a signal is an empty read of an empty file of our own.
//!
//! Soundness: the kernel is given the address of one control block, which it reads before the call
//! returns. The operation has no buffer, and is complete by then.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::fs::MemfdFlags;

/// Signals an eventfd. A counter that is at its maximum stays there.
///
/// # Errors
/// The descriptor is no eventfd, or those of [`prepare_signals`].
pub fn signal(eventfd: BorrowedFd<'_>) -> io::Result<()> {
    with_signaller(|signaller| signaller.signal(eventfd))
}

/// Makes sure that this thread can signal.
///
/// # Errors
/// The system has no asynchronous I/O (AIO), or no room for more of it (`fs.aio-max-nr`).
pub fn prepare_signals() -> io::Result<()> {
    with_signaller(|_| Ok(()))
}

fn with_signaller<R>(work: impl FnOnce(&mut Signaller) -> io::Result<R>) -> io::Result<R> {
    thread_local! {
        static SIGNALLER: RefCell<Option<Signaller>> = const { RefCell::new(None) };
    }
    SIGNALLER.with_borrow_mut(|place| {
        let signaller = match place {
            Some(signaller) => signaller,
            None => place.insert(Signaller::new()?),
        };
        work(signaller)
    })
}

/// A thread's context of asynchronous I/O.
#[derive(Debug)]
struct Signaller {
    context: libc::c_ulong,
    /// An empty file.
    empty: OwnedFd,
    /// Completions that have room before they have to be taken.
    room: usize,
}

/// Completions that the context has room for.
const ROOM: usize = 64;

/// A control block, as in `linux/aio_abi.h`.
#[repr(C)]
#[derive(Default)]
struct ControlBlock {
    data: u64,
    /// The kernel's, in the one or the other order.
    key: [u32; 2],
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

const _: () = assert!(size_of::<ControlBlock>() == 64);

/// `IOCB_CMD_PREAD`.
const READ: u16 = 0;
/// `IOCB_FLAG_RESFD`.
const SIGNALS: u32 = 1;

/// A completion, of which nothing is looked at.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Completed([u64; 4]);

impl Signaller {
    fn new() -> io::Result<Self> {
        let empty = rustix::fs::memfd_create(c"ebof-signal", MemfdFlags::CLOEXEC)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one number there.
        // JUSTIFICATION: no safe interface has these calls.
        checked(unsafe { libc::syscall(libc::SYS_io_setup, ROOM, &raw mut context) })?;
        Ok(Self { context, empty, room: ROOM })
    }

    fn signal(&mut self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        if self.room == 0 {
            self.take_completed()?;
        }
        let mut block = ControlBlock {
            opcode: READ,
            descriptor: raw(self.empty.as_raw_fd()),
            flags: SIGNALS,
            eventfd: raw(eventfd.as_raw_fd()),
            ..ControlBlock::default()
        };
        let blocks = [&raw mut block];
        // SAFETY: one block, which is there until the call returns; a read of no bytes uses no
        // memory.
        // JUSTIFICATION: as above; a write is the only other way, and can wait.
        checked(unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1_usize, blocks.as_ptr()) })?;
        self.room -= 1;
        Ok(())
    }

    /// Makes room for completions.
    fn take_completed(&mut self) -> io::Result<()> {
        let mut completed = [Completed::default(); ROOM];
        let (count, to) = (completed.len(), completed.as_mut_ptr());
        let no_limit = ptr::null_mut::<libc::timespec>();
        // SAFETY: the kernel writes at most as many as there is room for, and waits for none.
        // JUSTIFICATION: as above.
        let taken = unsafe { libc::syscall(libc::SYS_io_getevents, self.context, 0_usize, count, to, no_limit) };
        self.room += checked(taken)?;
        Ok(())
    }
}

impl Drop for Signaller {
    fn drop(&mut self) {
        // SAFETY: the context is ours, and nobody uses it any more.
        // JUSTIFICATION: as above.
        let destroyed = unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
        debug_assert!(destroyed == 0, "a context can be destroyed");
    }
}

fn checked(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_negative| io::Error::last_os_error())
}

/// A descriptor as a control block has it: it is not negative.
fn raw(descriptor: i32) -> u32 {
    descriptor.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    fn count(eventfd: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(eventfd, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn each_signal_counts() {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        for signals in [1, 3, ROOM, 10 * ROOM + 1] {
            for _ in 0..signals {
                signal(descriptor.as_fd()).unwrap();
            }
            assert_eq!(count(&descriptor), signals as u64);
        }
    }

    #[test]
    fn a_full_counter_delays_nobody() {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        rustix::io::write(&descriptor, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        fcntl_setfl(&descriptor, OFlags::empty()).unwrap();
        // A write would wait for ever.
        let other = descriptor.try_clone().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for _ in 0..1000 {
                signal(other.as_fd()).unwrap();
            }
            sender.send(Instant::now()).unwrap();
        });
        receiver.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(count(&descriptor), u64::MAX);
    }

    #[test]
    fn other_descriptors_are_refused() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let socket = std::os::unix::net::UnixStream::pair().unwrap().0;
        let file = tempfile::tempfile().unwrap();
        for descriptor in [reader.as_fd(), writer.as_fd(), socket.as_fd(), file.as_fd()] {
            assert_eq!(signal(descriptor).unwrap_err().raw_os_error(), Some(22));
        }
    }
}
