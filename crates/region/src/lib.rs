//! The memory of transfers: regions of pages, the buffers cut out of them, and what those who move
//! the bytes (a ring of the kernel, an RDMA adapter) know of a region.
//!
//! Owns the pages and the rule that makes them safe to share with hardware ([`Region`]), and the
//! memory that another process shares and changes ([`SharedMapping`], [`GuestMemory`]). It does not
//! pool buffers, and registers nothing itself.

#[expect(unsafe_code, reason = "parts of a mapping have several owners; see the rule at the top of the file")]
mod arena;
mod chunk;
mod guest;
mod page;
#[expect(unsafe_code, reason = "several buffers have parts of one allocation; see the rule at the top of the file")]
mod region;
mod registration;
#[expect(unsafe_code, reason = "memory of another process has no slices; see the rule at the top of the file")]
mod shared;
mod table;

pub use arena::{Arena, ArenaFile, ChunkPlace, Pages};
pub use chunk::{CHUNK_BYTES, Chunks};
pub use guest::{GuestFault, GuestMemory, GuestMemoryError, Way};
pub use page::{PAGE_BYTES, Page};
pub use region::{Buffer, Region};
pub use registration::Registration;
pub use shared::{MapError, MappingAccess, SharedIoSlice, SharedMapping, SharedPiece, read_at, write_at};
pub use table::{EntryTable, TableEntry};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
