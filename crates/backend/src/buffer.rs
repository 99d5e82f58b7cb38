//! The byte buffer that travels with a request: owned, page-aligned, zeroed when it is made.
//!
//! Alignment makes it fit for O_DIRECT on every block size up to a page. It does not pool: whoever
//! owns the queue does.

use std::fmt;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment and granularity of a [`Buffer`], in bytes.
pub const PAGE_BYTES: usize = 4096;

/// One page of memory; its alignment is what makes a slice of them usable for direct I/O.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub(crate) struct Page([u8; PAGE_BYTES]);

impl Page {
    pub(crate) const ZERO: Page = Page([0; PAGE_BYTES]);
}

/// An owned, page-aligned run of bytes. Moving the `Buffer` never moves the bytes.
pub struct Buffer {
    pages: Box<[Page]>,
}

impl Buffer {
    /// A buffer of at least `len` bytes, all zero. The capacity is `len` rounded up to whole pages.
    ///
    /// Aborts the process when memory is exhausted, as every allocation of the standard library
    /// does: `len` has to be bounded by the caller.
    #[must_use]
    pub fn zeroed(len: usize) -> Buffer {
        Buffer { pages: zeroed_pages(len.div_ceil(PAGE_BYTES)) }
    }

    /// How many bytes fit: a multiple of [`PAGE_BYTES`].
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.pages.len() * PAGE_BYTES
    }

    /// All bytes, up to the capacity.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.pages.as_bytes()
    }

    /// Takes `pages` for its own, of which there must be as many, and leaves its own there.
    pub(crate) fn exchange(&mut self, pages: &mut Box<[Page]>) {
        debug_assert_eq!(self.pages.len(), pages.len(), "a buffer keeps its capacity");
        std::mem::swap(&mut self.pages, pages);
    }

    /// All bytes, up to the capacity, to be written.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.pages.as_mut_bytes()
    }
}

impl fmt::Debug for Buffer {
    /// The size only: the bytes are a host's data and belong in no log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

/// `count` zeroed pages on the heap.
pub(crate) fn zeroed_pages(count: usize) -> Box<[Page]> {
    match <[Page]>::new_box_zeroed_with_elems(count) {
        Ok(pages) => pages,
        Err(_exhausted) => std::alloc::handle_alloc_error(
            std::alloc::Layout::array::<Page>(count).unwrap_or(std::alloc::Layout::new::<Page>()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_whole_pages_and_the_bytes_are_aligned_and_zero() {
        for (len, capacity) in [(0, 0), (1, 4096), (4096, 4096), (4097, 8192), (1 << 20, 1 << 20)] {
            let buffer = Buffer::zeroed(len);
            assert_eq!(buffer.capacity(), capacity);
            assert_eq!(buffer.as_slice().len(), capacity);
            assert_eq!(buffer.as_slice().as_ptr().align_offset(PAGE_BYTES), 0);
            assert!(buffer.as_slice().iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn moving_a_buffer_leaves_its_bytes_where_they_are() {
        let mut buffer = Buffer::zeroed(4096);
        buffer.as_mut_slice()[17] = 3;
        let before = buffer.as_slice().as_ptr();
        let moved = Box::new(buffer);
        assert_eq!(moved.as_slice().as_ptr(), before);
        assert_eq!(moved.as_slice()[17], 3);
    }
}
