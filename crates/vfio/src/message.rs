//! The messages of vfio-user, version 0.x: commands of a client out of a stream of bytes, and the
//! replies to them.
//!
//! ```text
//! header   message id u16, command u16, size u32 (with the header), flags u32, error u32
//! flags    bits 3:0 type (0 command, 1 reply), bit 4 no reply wanted, bit 5 error
//! ```
//!
//! Descriptors travel beside the bytes. They stay with the owner of the socket, in the order in
//! which they came: each message says how many of them are its own.

mod command;
mod decoder;
mod reply;
mod version;

pub use command::{Command, Direction, DmaMap, DmaUnmap, InterruptAction, InterruptData, SetInterrupts};
pub use decoder::{Broken, Decoder, Message};
pub use reply::{Area, Call, RegionInfo};
pub use version::Proposal;

/// Bytes of the header of every message.
pub const HEADER_BYTES: usize = 16;
/// Bytes that one access to a region can read or write (`max_data_xfer_size`).
pub const DATA_BYTES_MAX: u32 = 4096;
/// Bytes of a message at most: a write to a region, or a version with a long text.
pub const MESSAGE_BYTES_MAX: u32 = 32 + DATA_BYTES_MAX;
/// Descriptors with one message at most (`max_msg_fds`). QEMU takes no server with more.
pub const DESCRIPTORS_MAX: usize = 16;
/// Ranges of memory that are mapped at a time at most (`max_dma_maps`).
pub const DMA_MAPS_MAX: usize = 8192;
/// Granularity of those ranges (`pgsizes`).
pub const DMA_PAGE_BYTES: u64 = 4096;
