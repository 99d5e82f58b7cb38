//! The messages of /dev/fuse, protocol 7.31: layouts, opcodes and flags, in native byte order. Only
//! messages that are served have a layout here.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol spoken: 7.31 came with Linux 5.7; a kernel that is older is refused.
pub(super) const MAJOR: u32 = 7;
/// The minor version. The kernel speaks the lower of its own and ours.
pub(super) const MINOR: u32 = 31;

/// Opcodes.
pub(super) mod opcode {
    pub(in crate::fuse) const LOOKUP: u32 = 1;
    pub(in crate::fuse) const FORGET: u32 = 2;
    pub(in crate::fuse) const GETATTR: u32 = 3;
    pub(in crate::fuse) const OPEN: u32 = 14;
    pub(in crate::fuse) const READ: u32 = 15;
    pub(in crate::fuse) const WRITE: u32 = 16;
    pub(in crate::fuse) const STATFS: u32 = 17;
    pub(in crate::fuse) const RELEASE: u32 = 18;
    pub(in crate::fuse) const FSYNC: u32 = 20;
    pub(in crate::fuse) const FLUSH: u32 = 25;
    pub(in crate::fuse) const INIT: u32 = 26;
    pub(in crate::fuse) const INTERRUPT: u32 = 36;
    pub(in crate::fuse) const DESTROY: u32 = 38;
    pub(in crate::fuse) const BATCH_FORGET: u32 = 42;
    pub(in crate::fuse) const FALLOCATE: u32 = 43;
}

/// INIT flags.
pub(super) mod init {
    /// Reads may be sent at the same time.
    pub(in crate::fuse) const ASYNC_READ: u32 = 1 << 0;
    /// Writes larger than a page.
    pub(in crate::fuse) const BIG_WRITES: u32 = 1 << 5;
    /// Asynchronous direct I/O, as of a loop device, is sent without waiting.
    pub(in crate::fuse) const ASYNC_DIO: u32 = 1 << 15;
    /// `max_pages` in the reply counts.
    pub(in crate::fuse) const MAX_PAGES: u32 = 1 << 22;
}

/// OPEN reply flags.
pub(super) mod open {
    /// No page cache in between.
    pub(in crate::fuse) const DIRECT_IO: u32 = 1 << 0;
    /// No FLUSH at close.
    pub(in crate::fuse) const NOFLUSH: u32 = 1 << 5;
    /// Writes need no lock on the file.
    pub(in crate::fuse) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// fallocate(2) modes.
pub(super) mod fallocate {
    pub(in crate::fuse) const KEEP_SIZE: u32 = 1;
    pub(in crate::fuse) const PUNCH_HOLE: u32 = 2;
    pub(in crate::fuse) const ZERO_RANGE: u32 = 0x10;
}

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident($size:literal) { $($field:ident: $type:ty,)* })*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);)*
    };
}

layouts! {
    /// Before every request.
    InHeader(40) {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, extlen: u16, padding: u16,
    }
    /// Before every reply; `error` is zero or a negative errno.
    OutHeader(16) { len: u32, error: i32, unique: u64, }
    /// INIT, the part that every version has.
    InitIn(16) { major: u32, minor: u32, max_readahead: u32, flags: u32, }
    /// The reply to INIT.
    InitOut(64) {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, unused: [u32; 7],
    }
    /// What stat(2) shows.
    Attr(88) {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// The reply to LOOKUP.
    EntryOut(128) {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32,
        attr: Attr,
    }
    /// The reply to GETATTR.
    AttrOut(104) { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr, }
    /// The reply to OPEN.
    OpenOut(16) { fh: u64, open_flags: u32, padding: u32, }
    /// READ and WRITE share it; `size` bytes follow a WRITE.
    TransferIn(40) { fh: u64, offset: u64, size: u32, op_flags: u32, lock_owner: u64, flags: u32, padding: u32, }
    /// The reply to WRITE.
    WriteOut(8) { size: u32, padding: u32, }
    /// FALLOCATE.
    FallocateIn(32) { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    /// The reply to STATFS.
    StatfsOut(80) {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
}
