//! Memory of the ends of a connection, and copying between them: what adapters do.

use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use ebof_region::{Buffer, Region};

/// A range of a region, which lives as long as this.
#[derive(Debug)]
pub(crate) struct Span {
    region: Arc<Region>,
    offset: usize,
    length: usize,
}

impl Span {
    /// `None` if the region has no such range.
    pub(crate) fn new(region: Arc<Region>, offset: usize, length: usize) -> Option<Self> {
        (offset.checked_add(length)? <= region.capacity()).then_some(Self { region, offset, length })
    }

    /// Of a buffer that the caller does not access until this is dropped.
    pub(crate) fn from_buffer(buffer: &Buffer, offset: u32, length: u32) -> Option<Self> {
        let (offset, length) = (offset as usize, length as usize);
        if offset + length > buffer.capacity() {
            return None;
        }
        Self::new(Arc::clone(buffer.region()), buffer.offset() + offset, length)
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Where it is in its region.
    pub(crate) fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.length
    }

    /// Copies bytes of another range into this one: as many as both have.
    pub(crate) fn copy_from(&self, from: &Span) {
        let length = self.length.min(from.length);
        // SAFETY: both ranges are within their regions, which live; they may overlap. One belongs
        // to a buffer that its queue pair holds, which nobody accesses meanwhile. The other one
        // belongs to a region whose key was given to this peer: as with a real adapter, the owners
        // of its buffers keep off those that the peer uses (`QueuePair::remote_key`).
        // JUSTIFICATION: an adapter accesses memory that it does not own, of another thread; safe
        // code would have to move the buffers to the peer and back, which no adapter does.
        unsafe {
            let to = self.region.address().add(self.offset);
            ptr::copy(from.region.address().add(from.offset), to, length);
        }
    }
}
