//! What may be done with shared memory, and why a file is not mapped. Owns no memory.

use std::io;

use thiserror::Error;

/// What may be done with memory that another process shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingAccess {
    /// It may be read.
    pub readable: bool,
    /// It may be written.
    pub writable: bool,
}

impl MappingAccess {
    /// Both.
    pub const ALL: Self = Self { readable: true, writable: true };
}

/// Why a file is not mapped.
#[derive(Debug, Error)]
pub enum MapError {
    /// It is no memory: whoever has the file decides how long an access takes.
    #[error(
        "the file is not memory: share memory of memfd_create, sealed against shrinking \
         (F_SEAL_SHRINK; QEMU: -object memory-backend-memfd,share=on)"
    )]
    NotMemory,
    /// It may become shorter, and is to be accessed as if it could not.
    #[error(
        "the file may be shortened while it is used: share memory of memfd_create that is sealed against shrinking \
         (F_SEAL_SHRINK; QEMU: -object memory-backend-memfd,share=on)"
    )]
    NotSealed,
    /// It ends before the range does.
    #[error("a range of {length} bytes at {offset:#x} of a file of {size} bytes")]
    TooShort {
        /// Offset in the file.
        offset: u64,
        /// Bytes to be mapped.
        length: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// Offset or length is not a multiple of a page, or nothing is to be mapped.
    #[error("a range of {length} bytes at {offset:#x} of a file, which is not whole pages")]
    Misaligned {
        /// Offset in the file.
        offset: u64,
        /// Bytes to be mapped.
        length: u64,
    },
    /// The system refuses.
    #[error("memory cannot be shared: {0}")]
    System(#[from] io::Error),
}
