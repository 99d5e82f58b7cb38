//! The handle of a drive's thread, for all other threads.

use std::sync::Arc;

use ebof_backend::Device;

use crate::{Instance, Store, Thin};

/// The handle of a drive's thread. When the last one goes, the thread stops as [`stop`](Medium::stop) has it.
#[derive(Clone, Debug)]
pub struct Medium {}

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
    /// Has the drive's thread do something, in order with everything else that is asked of it this way. Not done, and dropped, when the
    /// thread has ended.
    pub fn run(&self, work: Box<dyn FnOnce(&mut Store) + Send>) {
        drop(work);
        todo!("follows")
    }

    /// The namespace with this name.
    #[must_use]
    pub fn device(&self, instance: Instance) -> Option<Arc<dyn Device>> {
        let thin = self.thin(instance)?;
        Some(thin)
    }

    /// The same, with what is particular to it.
    #[must_use]
    pub fn thin(&self, instance: Instance) -> Option<Arc<Thin>> {
        let _ = instance;
        todo!("follows")
    }

    /// All namespaces on the medium.
    #[must_use]
    pub fn instances(&self) -> Vec<Instance> {
        todo!("follows")
    }

    /// How much there is, and how much of it is used. From counters: never waits.
    #[must_use]
    pub fn capacity(&self) -> Capacity {
        todo!("follows")
    }

    /// Does what was asked for, writes a checkpoint, marks the medium clean and ends the thread. Requests that come later
    /// end as [`Class::Gone`](ebof_backend::Class::Gone) where they need the thread.
    pub fn stop(&self) {
        todo!("follows")
    }
}
