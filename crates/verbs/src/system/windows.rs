//! The memory windows (of type 2) of a queue pair, as the device knows them.

use std::ptr::NonNull;
use std::sync::Arc;

use super::device::Device;
use super::{ffi, last_error};
use crate::Error;

/// Windows by index. Regions that they are bound to have to live longer.
pub(super) struct MemoryWindows {
    device: Arc<Device>,
    /// `None`: taken away.
    pointers: Vec<Option<NonNull<ffi::Mw>>>,
}

// SAFETY: the library's objects belong to no thread.
// JUSTIFICATION: a handle of a library is a pointer.
unsafe impl Send for MemoryWindows {}

impl MemoryWindows {
    /// `count` windows that are not bound.
    pub(super) fn new(device: &Arc<Device>, count: u32) -> Result<MemoryWindows, Error> {
        let max = device.attributes().memory_windows;
        let refused = || Error::Limit { what: "memory windows", wanted: count.into(), max: max.into() };
        if count > max {
            return Err(refused());
        }
        let mut windows = MemoryWindows { device: Arc::clone(device), pointers: Vec::with_capacity(count as usize) };
        for _ in 0..count {
            // SAFETY: the domain is alive, and stays so longer than the window.
            // JUSTIFICATION: the header of the library does the same, and sets the members.
            let pointer = unsafe {
                let alloc = device.context().as_ref().ops.alloc_mw.ok_or_else(refused)?;
                let pointer = NonNull::new(alloc(device.domain().as_ptr(), ffi::MW_TYPE_2));
                let pointer = pointer.ok_or_else(|| last_error("ibv_alloc_mw"))?;
                (*pointer.as_ptr()).context = device.context().as_ptr();
                (*pointer.as_ptr()).pd = device.domain().as_ptr();
                (*pointer.as_ptr()).kind = ffi::MW_TYPE_2;
                pointer
            };
            windows.pointers.push(Some(pointer));
        }
        Ok(windows)
    }

    /// The keys that they have.
    pub(super) fn keys(&self) -> Vec<u32> {
        // SAFETY: the windows are alive.
        // JUSTIFICATION: the library is in C.
        self.pointers.iter().flatten().map(|pointer| unsafe { pointer.as_ref().rkey }).collect()
    }

    /// A window that is about to be bound again, and had `key` last.
    #[inline]
    pub(super) fn prepare(&mut self, index: u32, key: u32) -> *mut ffi::Mw {
        let pointer = self.pointers[index as usize].expect("one that was taken away is not bound again");
        // SAFETY: the window is alive, and borrowed exclusively.
        // JUSTIFICATION: who posts a binding keeps the key, as the library demands.
        unsafe { (*pointer.as_ptr()).rkey = key };
        pointer.as_ptr()
    }

    /// Takes a window away, whether it is bound or not.
    #[cold]
    pub(super) fn take_away(&mut self, index: u32) {
        if let Some(pointer) = self.pointers[index as usize].take() {
            free(&self.device, pointer);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pointers.is_empty()
    }

    /// Takes all of them away.
    pub(super) fn clear(&mut self) {
        for pointer in self.pointers.drain(..).flatten() {
            free(&self.device, pointer);
        }
    }
}

impl Drop for MemoryWindows {
    fn drop(&mut self) {
        self.clear();
    }
}

fn free(device: &Device, pointer: NonNull<ffi::Mw>) {
    // SAFETY: the window is alive, and nobody has its pointer any more. If it fails, the
    // registration that it is bound to stays as well, with its pages.
    // JUSTIFICATION: the header of the library does the same.
    unsafe {
        if let Some(free) = device.context().as_ref().ops.dealloc_mw {
            free(pointer.as_ptr());
        }
    }
}
