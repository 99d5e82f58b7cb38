//! The memory of transfers: regions of pages, the buffers cut out of them, and what those who move
//! the bytes (a ring of the kernel, an RDMA adapter) know of a region.
//!
//! Owns the pages and the rule that makes them safe to share with hardware ([`Region`]). It does
//! not pool buffers, and registers nothing itself.

mod page;
#[expect(unsafe_code, reason = "several buffers have parts of one allocation; see the rule at the top of the file")]
mod region;
mod registration;
mod table;

pub use page::{PAGE_BYTES, Page, zeroed_pages};
pub use region::{Buffer, Region};
pub use registration::Registration;
pub use table::{EntryTable, TableEntry};
