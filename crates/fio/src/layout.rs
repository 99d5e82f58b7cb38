//! Layouts of fio's structures, in the versions of the engine interface of Debian 12 (fio 3.33) and
//! Debian 13 (fio 3.39), on 64-bit Linux. Only the fields that the engine needs have types. There
//! is no code here.
//!
//! The offsets are those of fio's `ioengines.h`, `io_u.h`, `file.h` and `parse.h`, as a C compiler
//! lays them out; assertions check them.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("fio's structures are known for 64-bit machines only");

/// fio's thread data of a job: opaque, with a different layout in every build.
#[repr(C)]
pub(crate) struct ThreadData {
    _opaque: [u8; 0],
}

/// A lower bound for the size of fio's thread data, which has more than 180 KiB in all supported
/// versions.
pub(crate) const THREAD_DATA_BYTES_MIN: usize = 64 << 10;

/// The part of fio's `io_u` that is the same in all supported versions.
#[repr(C)]
pub(crate) struct IoUnit {
    _times: [u64; 4],
    pub(crate) file: *mut File,
    _flags: c_uint,
    pub(crate) direction: c_int,
    _priorities: [u32; 4],
    _buffer_length: u64,
    /// Offset of the operation in the file, bytes.
    pub(crate) offset: u64,
    _verify_offset: u64,
    _buffer: *mut c_void,
    _seed: u64,
    pub(crate) transfer_buffer: *mut c_void,
    pub(crate) transfer_length: u64,
    _filled: u64,
    _piece: *mut c_void,
    /// Bytes that were not transferred.
    pub(crate) residual: u64,
    /// 0, or a positive errno.
    pub(crate) error: c_uint,
}

const _: () = {
    assert!(offset_of!(IoUnit, file) == 32);
    assert!(offset_of!(IoUnit, direction) == 44);
    assert!(offset_of!(IoUnit, offset) == 72);
    assert!(offset_of!(IoUnit, transfer_buffer) == 104);
    assert!(offset_of!(IoUnit, transfer_length) == 112);
    assert!(offset_of!(IoUnit, residual) == 136);
    assert!(offset_of!(IoUnit, error) == 144);
};

/// `io_u.direction`.
pub(crate) mod direction {
    use super::c_int;

    pub(crate) const READ: c_int = 0;
    pub(crate) const WRITE: c_int = 1;
    pub(crate) const TRIM: c_int = 2;
    /// fsync.
    pub(crate) const SYNC: c_int = 3;
    /// fdatasync.
    pub(crate) const DATA_SYNC: c_int = 4;
    /// `sync_file_range`.
    pub(crate) const RANGE_SYNC: c_int = 5;
}

/// The part of fio's `fio_file` that is the same in all supported versions.
#[repr(C)]
pub(crate) struct File {
    _hash: [*mut c_void; 2],
    pub(crate) kind: c_int,
    _descriptors: [c_int; 2],
    _numbers: [c_int; 3],
    pub(crate) name: *mut c_char,
    pub(crate) real_file_size: u64,
}

const _: () = {
    assert!(offset_of!(File, kind) == 16);
    assert!(offset_of!(File, name) == 40);
    assert!(offset_of!(File, real_file_size) == 48);
};

/// `fio_file.kind`: a block device. fio trims only those, and never extends or unlinks them.
pub(crate) const FILE_KIND_BLOCK: c_int = 2;

/// The result of `queue`.
pub(crate) mod queued {
    use super::c_int;

    /// It has completed.
    pub(crate) const COMPLETED: c_int = 0;
    /// It is in progress.
    pub(crate) const QUEUED: c_int = 1;
}

/// Flags of an engine.
pub(crate) mod flag {
    use super::c_int;

    /// Not cached.
    pub(crate) const RAW_IO: c_int = 1 << 1;
    /// No file system and no disk: fio does not open, stat or lay out files.
    pub(crate) const DISKLESS: c_int = 1 << 2;
    /// fio does not extend files.
    pub(crate) const NO_EXTEND: c_int = 1 << 3;
    /// There is no disk with a utilization to show.
    pub(crate) const NO_DISK_UTIL: c_int = 1 << 4;
    /// Buffers are aligned to pages.
    pub(crate) const ALIGNED_MEMORY: c_int = 1 << 9;
    /// All calls of a job come from its own thread.
    pub(crate) const NO_OFFLOAD: c_int = 1 << 15;
}

/// A function with the thread data as its only argument.
pub(crate) type OnThread = extern "C" fn(*mut ThreadData) -> c_int;
/// A function about a file.
pub(crate) type OnFile = extern "C" fn(*mut ThreadData, *mut File) -> c_int;
/// A function about an operation.
pub(crate) type OnUnit = extern "C" fn(*mut ThreadData, *mut IoUnit) -> c_int;
/// `getevents`: minimum, maximum, and time limit.
pub(crate) type OnEvents = extern "C" fn(*mut ThreadData, c_uint, c_uint, *const libc::timespec) -> c_int;
/// `event`: the operation for an index below the result of `getevents`.
pub(crate) type OnEvent = extern "C" fn(*mut ThreadData, c_int) -> *mut IoUnit;

/// fio's `ioengine_ops`. `ZONES` is the number of zone and placement functions that the version
/// adds before the options.
#[repr(C)]
pub(crate) struct Operations<const ZONES: usize> {
    pub(crate) list: [*mut c_void; 2],
    pub(crate) name: *const c_char,
    pub(crate) version: c_int,
    pub(crate) flags: c_int,
    pub(crate) library: *mut c_void,
    pub(crate) setup: Option<OnThread>,
    pub(crate) init: Option<OnThread>,
    pub(crate) post_init: Option<OnThread>,
    pub(crate) prepare: Option<OnUnit>,
    pub(crate) queue: Option<OnUnit>,
    pub(crate) commit: Option<OnThread>,
    pub(crate) get_events: Option<OnEvents>,
    pub(crate) event: Option<OnEvent>,
    /// Its arguments differ between the versions.
    pub(crate) error_details: *const c_void,
    pub(crate) cancel: Option<OnUnit>,
    pub(crate) cleanup: Option<extern "C" fn(*mut ThreadData)>,
    pub(crate) open_file: Option<OnFile>,
    pub(crate) close_file: Option<OnFile>,
    pub(crate) invalidate: Option<OnFile>,
    pub(crate) unlink_file: Option<OnFile>,
    pub(crate) get_file_size: Option<OnFile>,
    pub(crate) prepopulate_file: Option<OnFile>,
    pub(crate) terminate: Option<extern "C" fn(*mut ThreadData)>,
    pub(crate) memory: [*const c_void; 2],
    pub(crate) unit_init: Option<OnUnit>,
    pub(crate) unit_free: Option<extern "C" fn(*mut ThreadData, *mut IoUnit)>,
    pub(crate) zones: [*const c_void; 4],
    pub(crate) more_zones: [*const c_void; ZONES],
    pub(crate) option_bytes: c_int,
    pub(crate) options: *mut FioOption,
}

const _: () = {
    assert!(offset_of!(Operations<0>, name) == 16);
    assert!(offset_of!(Operations<0>, flags) == 28);
    assert!(offset_of!(Operations<0>, setup) == 40);
    assert!(offset_of!(Operations<0>, queue) == 72);
    assert!(offset_of!(Operations<0>, error_details) == 104);
    assert!(offset_of!(Operations<0>, get_file_size) == 160);
    assert!(offset_of!(Operations<0>, unit_init) == 200);
    assert!(offset_of!(Operations<0>, option_bytes) == 248);
    assert!(offset_of!(Operations<0>, options) == 256);
    assert!(size_of::<Operations<0>>() == 264);
    assert!(offset_of!(Operations<3>, option_bytes) == 272);
    assert!(offset_of!(Operations<3>, options) == 280);
    assert!(size_of::<Operations<3>>() == 288);
};

/// A named value of an option. The engine's options have none.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Value {
    _fields: [usize; 5],
}

/// fio's `fio_option`. All zeros ends a list.
#[repr(C)]
pub(crate) struct FioOption {
    pub(crate) name: *const c_char,
    pub(crate) long_name: *const c_char,
    pub(crate) alias: *const c_char,
    pub(crate) kind: c_int,
    /// Offset of the value in the option structure.
    pub(crate) offset: c_uint,
    pub(crate) more_offsets: [c_uint; 5],
    pub(crate) max: u64,
    pub(crate) min: c_int,
    pub(crate) float_range: [f64; 2],
    pub(crate) interval: c_uint,
    pub(crate) max_length: c_uint,
    pub(crate) negate: c_int,
    pub(crate) priority: c_int,
    pub(crate) callback: *const c_void,
    pub(crate) help: *const c_char,
    pub(crate) default: *const c_char,
    pub(crate) values: [Value; 32],
    pub(crate) parent: *const c_char,
    pub(crate) hide: [c_int; 2],
    pub(crate) inverse: [*const c_void; 2],
    pub(crate) verify: *const c_void,
    pub(crate) profile: [*const c_void; 2],
    pub(crate) category: u64,
    pub(crate) group: u64,
    pub(crate) gui: *const c_void,
    pub(crate) marks: [c_int; 5],
}

impl FioOption {
    pub(crate) const END: Self = Self {
        name: std::ptr::null(),
        long_name: std::ptr::null(),
        alias: std::ptr::null(),
        kind: 0,
        offset: 0,
        more_offsets: [0; 5],
        max: 0,
        min: 0,
        float_range: [0.0; 2],
        interval: 0,
        max_length: 0,
        negate: 0,
        priority: 0,
        callback: std::ptr::null(),
        help: std::ptr::null(),
        default: std::ptr::null(),
        values: [Value { _fields: [0; 5] }; 32],
        parent: std::ptr::null(),
        hide: [0; 2],
        inverse: [std::ptr::null(); 2],
        verify: std::ptr::null(),
        profile: [std::ptr::null(); 2],
        category: 0,
        group: 0,
        gui: std::ptr::null(),
        marks: [0; 5],
    };
}

const _: () = {
    assert!(size_of::<FioOption>() == 1512);
    assert!(offset_of!(FioOption, kind) == 24);
    assert!(offset_of!(FioOption, offset) == 28);
    assert!(offset_of!(FioOption, max) == 56);
    assert!(offset_of!(FioOption, min) == 64);
    assert!(offset_of!(FioOption, float_range) == 72);
    assert!(offset_of!(FioOption, interval) == 88);
    assert!(offset_of!(FioOption, max_length) == 92);
    assert!(offset_of!(FioOption, callback) == 104);
    assert!(offset_of!(FioOption, help) == 112);
    assert!(offset_of!(FioOption, default) == 120);
    assert!(offset_of!(FioOption, values) == 128);
    assert!(offset_of!(FioOption, parent) == 1408);
    assert!(offset_of!(FioOption, category) == 1464);
    assert!(offset_of!(FioOption, group) == 1472);
};

/// `FioOption.kind`.
pub(crate) mod kind {
    use super::c_int;

    /// A text, copied.
    pub(crate) const TEXT: c_int = 6;
    /// A number of 32 bits.
    pub(crate) const NUMBER: c_int = 8;
    /// A number of 64 bits.
    pub(crate) const LONG_NUMBER: c_int = 9;
    /// 0 or 1, in 32 bits.
    pub(crate) const SWITCH: c_int = 10;
}

/// `FioOption.category`: of an engine.
pub(crate) const CATEGORY_ENGINE: u64 = 1 << 6;

/// The structure that fio fills with the engine's options. The first word is for fio's use.
#[repr(C)]
pub(crate) struct RawSettings {
    pub(crate) _fio: *mut c_void,
    /// [`MARK`] by default, which identifies the structure.
    pub(crate) mark: u64,
    pub(crate) uri: *const c_char,
    pub(crate) host_nqn: *const c_char,
    pub(crate) host_id: *const c_char,
    pub(crate) host_traddr: *const c_char,
    pub(crate) host_iface: *const c_char,
    pub(crate) hdr_digest: c_uint,
    pub(crate) data_digest: c_uint,
    pub(crate) queue_size: c_uint,
    pub(crate) tos: c_uint,
    pub(crate) keep_alive_s: c_uint,
    pub(crate) poll: c_uint,
    pub(crate) spin_us: c_uint,
    pub(crate) batch: c_uint,
}

/// The value of `RawSettings::mark`; as text it is the default of an option.
pub(crate) const MARK: u64 = 7_305_508_134_211_907_347;
pub(crate) const MARK_TEXT: &std::ffi::CStr = c"7305508134211907347";
