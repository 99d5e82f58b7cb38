//! The descriptors by which a client is told of interrupts.

use std::collections::VecDeque;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use ebof_vfio::Errno;
use ebof_vfio::interrupts::{VectorChange, Vectors};
use ebof_vfio::message::SetInterrupts;

/// A descriptor for each vector that has one.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    by_vector: Vec<Option<OwnedFd>>,
}

impl Signals {
    /// The client is told of an interrupt. It has the descriptor, too, and may have made writing to
    /// it wait for ever: nothing is written.
    pub(crate) fn signal(&self, vector: u16) {
        if let Some(Some(descriptor)) = self.by_vector.get(usize::from(vector))
            && let Err(error) = ebof_backend::signal(descriptor.as_fd())
        {
            debug_assert!(false, "an eventfd is signalled: {error}");
        }
    }

    /// `DEVICE_SET_IRQS`. Descriptors that are not used are left.
    ///
    /// # Errors
    /// There are no such interrupts, or a descriptor is no eventfd. The system has no way to signal
    /// one.
    pub(crate) fn set(
        &mut self,
        vectors: &mut Vectors,
        set: &SetInterrupts<'_>,
        descriptors: &mut VecDeque<OwnedFd>,
    ) -> Result<(), Errno> {
        if !descriptors.is_empty() {
            ebof_backend::prepare_signals().map_err(|error| {
                tracing::error!("interrupts cannot be signalled: {error}; see fs.aio-max-nr");
                Errno::NO_SPACE
            })?;
        }
        if !descriptors.iter().all(is_eventfd) {
            return Err(Errno::INVALID);
        }
        let mut changes = Vec::new();
        vectors.set(set, descriptors.len(), &mut changes)?;
        for change in changes {
            match change {
                VectorChange::Connect(vector) => self.put(vector, descriptors.pop_front()),
                VectorChange::Disconnect(vector) => self.put(vector, None),
                VectorChange::Signal(vector) => self.signal(vector),
            }
        }
        Ok(())
    }

    fn put(&mut self, vector: u16, descriptor: Option<OwnedFd>) {
        let at = usize::from(vector);
        if self.by_vector.len() <= at {
            self.by_vector.resize_with(at + 1, || None);
        }
        self.by_vector[at] = descriptor;
    }
}

/// What else it may be is not known before it is signalled, and closing it may take long.
fn is_eventfd(descriptor: &OwnedFd) -> bool {
    let target = fs::read_link(format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd()));
    target.is_ok_and(|target| target.as_os_str() == "anon_inode:[eventfd]")
}
