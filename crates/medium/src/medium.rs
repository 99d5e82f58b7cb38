//! The handle of a drive's thread, for all other threads.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use ebof_backend::Device;

use crate::shared::Shared;
use crate::thin::ThinDevice;
use crate::work::{OwnerWork, WorkQueue};
use crate::{Store, Thin, VolumeId};

/// The handle of a drive's thread. When the last one goes, the thread stops as
/// [`stop`](Medium::stop) has it.
#[derive(Clone, Debug)]
pub struct Medium {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    work: Arc<WorkQueue>,
    /// `None` where it has ended, and where there is none.
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Sizes of a medium, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// What can be allocated.
    pub total_bytes: u64,
    /// What is allocated, or was and is not free yet.
    pub used_bytes: u64,
    /// The unit of allocation, a power of two.
    pub extent_bytes: u64,
}

impl Medium {
    pub(crate) fn with_thread(shared: Arc<Shared>, work: Arc<WorkQueue>, thread: JoinHandle<()>) -> Self {
        Self { handle: Arc::new(Handle { shared, work, thread: Mutex::new(Some(thread)) }) }
    }

    /// Of a drive that somebody steps.
    pub(crate) fn without_thread(shared: Arc<Shared>, work: Arc<WorkQueue>) -> Self {
        Self { handle: Arc::new(Handle { shared, work, thread: Mutex::default() }) }
    }

    /// Has the drive's thread do something, in order with everything else that is asked of it this
    /// way. Not done, and dropped, when the thread has ended.
    pub fn run(&self, work: Box<dyn FnOnce(&mut Store) + Send>) {
        self.handle.work.post(OwnerWork::Run(work));
    }

    /// The namespace with this name.
    #[must_use]
    pub fn device(&self, volume: VolumeId) -> Option<Arc<dyn Device>> {
        let thin = self.thin(volume)?;
        Some(Arc::new(ThinDevice(thin)))
    }

    /// The same, with what is particular to it.
    #[must_use]
    pub fn thin(&self, volume: VolumeId) -> Option<Arc<Thin>> {
        self.handle.shared.thin(volume)
    }

    /// All namespaces on the medium.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeId> {
        self.handle.shared.volumes()
    }

    /// Whether a part of what it says of itself is lost: nothing is written, and what is not known
    /// is not read.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.handle.shared.read_only
    }

    /// How much there is, and how much of it is used. From counters: never waits.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        let Shared { layout, used, .. } = &*self.handle.shared;
        Capacity {
            total_bytes: layout.capacity_bytes,
            used_bytes: u64::from(used.load(Ordering::Relaxed)) * layout.extent_bytes,
            extent_bytes: layout.extent_bytes,
        }
    }

    /// Does what was asked for, writes a checkpoint, marks the medium clean and ends the thread.
    /// Requests that come later end as [`Class::Gone`](ebof_backend::Class::Gone) where they need
    /// the thread. Without threads all of that is done by [`Stepper::turn`](crate::Stepper::turn),
    /// later.
    pub fn stop(&self) {
        self.handle.stop();
    }
}

impl Handle {
    fn stop(&self) {
        // Not taken where it has been told before, and has ended.
        self.work.post(OwnerWork::Stop);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        // The last handle may have been with work on that thread: it ends when that work does.
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
