//! Pages: what memory for transfers is made of.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment and granularity of a [`Buffer`](crate::Buffer), in bytes.
pub const PAGE_BYTES: usize = 4096;

/// One page of memory; its alignment is what makes a slice of them usable for direct I/O.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub struct Page([u8; PAGE_BYTES]);

impl Page {
    /// Zeros.
    pub const ZERO: Page = Page([0; PAGE_BYTES]);
}

/// `count` zeroed pages on the heap. Aborts the process when memory is exhausted.
#[must_use]
pub(crate) fn zeroed_pages(count: usize) -> Box<[Page]> {
    match <[Page]>::new_box_zeroed_with_elems(count) {
        Ok(pages) => pages,
        Err(_exhausted) => std::alloc::handle_alloc_error(
            std::alloc::Layout::array::<Page>(count).unwrap_or(std::alloc::Layout::new::<Page>()),
        ),
    }
}
