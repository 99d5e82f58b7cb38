//! The handle of a drive's thread, for all other threads.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ebof_backend::Device;

use crate::event_loop::work::{OwnerWork, WorkQueue};
use crate::thin::ThinDevice;
use crate::thin::shared::Shared;
use crate::{Store, Thin, VolumeId};

/// The handle of a drive's thread. When the last one is dropped, the drive is closed as by
/// [`stop`](Medium::stop).
#[derive(Clone, Debug)]
pub struct Medium {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    work: Arc<WorkQueue>,
    /// `None` if it has ended, or the drive has no threads.
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Sizes of a medium, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// What can be allocated.
    pub total_bytes: u64,
    /// What is allocated, or was freed and cannot be allocated yet.
    pub used_bytes: u64,
    /// The unit of allocation, a power of two.
    pub extent_bytes: u64,
}

impl Medium {
    pub(crate) fn with_thread(shared: Arc<Shared>, work: Arc<WorkQueue>, thread: JoinHandle<()>) -> Self {
        Self { handle: Arc::new(Handle { shared, work, thread: Mutex::new(Some(thread)) }) }
    }

    /// For a drive with a [`Stepper`](crate::Stepper).
    pub(crate) fn without_thread(shared: Arc<Shared>, work: Arc<WorkQueue>) -> Self {
        Self { handle: Arc::new(Handle { shared, work, thread: Mutex::default() }) }
    }

    /// Runs `work` on the drive's thread, in the order of the calls. Dropped without being run if
    /// the thread has ended.
    pub fn run(&self, work: Box<dyn FnOnce(&mut Store) + Send>) {
        self.handle.work.post(OwnerWork::Run(work));
    }

    /// The namespace with this name.
    #[must_use]
    pub fn device(&self, volume: VolumeId) -> Option<Arc<dyn Device>> {
        let thin = self.thin(volume)?;
        Some(Arc::new(ThinDevice(thin)))
    }

    /// The same, with what only thin namespaces have.
    #[must_use]
    pub fn thin(&self, volume: VolumeId) -> Option<Arc<Thin>> {
        self.handle.shared.thin(volume)
    }

    /// All namespaces on the medium.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeId> {
        self.handle.shared.volumes()
    }

    /// Whether the drive is damaged: nothing is written, and blocks that may be wrong are not read.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.handle.shared.read_only
    }

    /// Sizes of the medium. From counters: never waits.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        let Shared { layout, used, .. } = &*self.handle.shared;
        Capacity {
            total_bytes: layout.capacity_bytes,
            used_bytes: u64::from(used.load(Ordering::Relaxed)) * layout.extent_bytes,
            extent_bytes: layout.extent_bytes,
        }
    }

    /// Does pending requests, writes a checkpoint that is marked clean, and ends the thread. Later
    /// requests that need the thread fail with [`Class::Gone`](ebof_backend::Class::Gone). Without
    /// threads all of that is done by the next [`Stepper::turn`](crate::Stepper::turn).
    pub fn stop(&self) {
        self.handle.stop();
    }
}

impl Handle {
    fn stop(&self) {
        // Dropped if the thread has ended.
        self.work.post(OwnerWork::Stop);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        // Work on that thread may have held the last handle: it cannot wait for itself.
        if thread.thread().id() != std::thread::current().id() {
            // It cannot have panicked: that ends the process.
            let _ended = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("layout", &self.shared.layout).finish_non_exhaustive()
    }
}
