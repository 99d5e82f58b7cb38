//! A FUSE file system with one regular file per namespace, for a loop device to sit on: mount,
//! threads, unmount.
//!
//! With asynchronous direct I/O and no page cache, every request of the loop device is one message
//! here and one NVMe command. This file owns the mount and the threads; `worker` serves the
//! messages. It makes no loop device. Files can be looked up by name but not listed: only the loop
//! device uses them.

mod inbox;
mod wire;
mod worker;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::block_queue::{BlockQueue, Table};
use crate::error::Error;
use worker::Worker;

/// The largest READ and WRITE that FUSE supports, bytes.
pub const TRANSFER_MAX_BYTES: u32 = 1 << 20;

/// The file system type in the mount table, which identifies `ebof`'s mounts.
pub const FILE_SYSTEM: &str = "fuse.ebof";

/// A mounted file system with the threads that serve it. Dropping it unmounts, even if files are
/// still open: their users get errors.
#[derive(Debug)]
pub struct Server {
    directory: PathBuf,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// The state that all threads share.
#[derive(Debug)]
struct Shared {
    device: OwnedFd,
    /// Readable from when the threads are to end.
    stop_event: OwnedFd,
    stop: AtomicBool,
    transfer_max_bytes: u32,
    /// How long a thread spins before it sleeps.
    spin: std::time::Duration,
}

/// Options of the server.
#[derive(Clone, Copy, Debug)]
pub struct FuseOptions {
    /// The largest READ or WRITE, bytes: whole pages, at most [`TRANSFER_MAX_BYTES`], and no more
    /// than the smallest limit of the namespaces.
    pub transfer_max_bytes: u32,
    /// How long a thread spins before it sleeps.
    pub spin: std::time::Duration,
}

impl Default for FuseOptions {
    fn default() -> Self {
        Self { transfer_max_bytes: TRANSFER_MAX_BYTES, spin: std::time::Duration::from_micros(50) }
    }
}

impl Server {
    /// Mounts at the existing `directory` and serves the namespaces of `table`, with one thread for
    /// each of `blocks`.
    ///
    /// # Errors
    /// /dev/fuse cannot be opened, mounting is not permitted, or no thread can be started.
    pub fn mount<B: BlockQueue + Send + 'static>(
        directory: &Path,
        table: &Arc<Table>,
        blocks: Vec<B>,
        options: FuseOptions,
    ) -> Result<Self, Error> {
        let device = open_device()?;
        let transfer_max_bytes = options.transfer_max_bytes.clamp(4096, TRANSFER_MAX_BYTES) & !4095;
        let stop_event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| Error::io("making an eventfd", error.into()))?;
        mount(directory, &device)?;
        let shared = Arc::new(Shared {
            device,
            stop_event,
            stop: AtomicBool::new(false),
            transfer_max_bytes,
            spin: options.spin,
        });
        let mut server = Self { directory: directory.to_owned(), shared, threads: Vec::new() };
        for (index, blocks) in blocks.into_iter().enumerate() {
            // On an error `server` is dropped, which ends its threads and unmounts.
            server.start_thread(index, table, blocks)?;
        }
        Ok(server)
    }

    fn start_thread<B: BlockQueue + Send + 'static>(
        &mut self,
        index: usize,
        table: &Arc<Table>,
        blocks: B,
    ) -> Result<(), Error> {
        let mut worker = Worker::new(Arc::clone(&self.shared), Arc::clone(table), blocks)
            .map_err(|error| Error::io("preparing a FUSE thread", error))?;
        let thread = std::thread::Builder::new().name(format!("fuse-{index}")).spawn(move || {
            if let Err(error) = worker.run() {
                tracing::error!(%error, "a FUSE thread cannot go on, and requests would wait for it: the process ends");
                std::process::exit(1);
            }
        });
        self.threads.push(thread.map_err(|error| Error::io("starting a FUSE thread", error))?);
        Ok(())
    }

    /// The path of the file of namespace `name`.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Unmounts and ends the threads.
    fn stop(&mut self) {
        if let Err(error) = unmount(&self.directory) {
            tracing::warn!(%error, directory = %self.directory.display(), "cannot unmount");
        }
        self.shared.stop.store(true, Ordering::Release);
        // Wakes all threads: it is never read, so it stays readable.
        let woken = rustix::io::write(&self.shared.stop_event, &1_u64.to_ne_bytes());
        debug_assert!(woken.is_ok(), "an eventfd takes a one");
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a FUSE thread panicked");
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether /dev/fuse can be opened; mounting may still be refused.
///
/// # Errors
/// What is missing and what to do about it.
pub fn check() -> Result<(), Error> {
    open_device().map(|_device| ())
}

fn open_device() -> Result<OwnedFd, Error> {
    let path = Path::new("/dev/fuse");
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|error| Error::NoFuse(error.into()))
}

fn mount(directory: &Path, device: &OwnedFd) -> Result<(), Error> {
    // The kernel takes the descriptor by its number, in this process's table.
    let data = CString::new(format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd()))
        .expect("digits and letters have no NUL");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("ebof", directory, FILE_SYSTEM, flags, data.as_c_str())
        .map_err(|error| Error::Mount { directory: directory.to_owned(), error: error.into() })
}

/// Unmounts `directory` lazily: open files stay usable until their server ends. It is no error if
/// nothing is mounted there.
///
/// # Errors
/// Of umount2(2).
pub fn unmount(directory: &Path) -> io::Result<()> {
    match rustix::mount::unmount(directory, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
