//! The functions that fio calls, which `get_ioengine` returns. One of the two files with unsafe
//! code; each function converts fio's pointers into values (`memory`), calls safe code, and
//! converts the result back.
//!
//! fio runs a job in a thread or a process of its own, and makes all calls for its operations
//! there. So the job is a thread-local variable, and fio's thread data need not be known. Only
//! `get_file_size` is called in other threads. No panic reaches fio: Rust aborts the process, with
//! the message, if one leaves an `extern "C"` function. A load generator with a bug must not
//! continue.
#![allow(unsafe_code, reason = "it is called through pointers; each block says why")]

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::offset_of;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use crate::geometry;
use crate::job::Job;
use crate::layout::{
    CATEGORY_ENGINE, File, FioOption, IoUnit, MARK_TEXT, Operations, RawSettings, ThreadData, flag, kind, queued,
};
use crate::memory::{self, FAILED, OK, log_error};
use crate::version::{Interface, SUPPORTED, interface};

thread_local! {
    /// The job of this thread.
    static JOB: RefCell<Option<Job>> = const { RefCell::new(None) };
}

/// Files whose size fio has queried: thread data, file, name. A job connects them before its clock
/// starts.
static FILES: Mutex<Vec<(usize, usize, String)>> = Mutex::new(Vec::new());

/// fio's entry point: returns the engine's functions, or null if this version of fio is not
/// supported.
// SAFETY: no other symbol of this name is in the process: each engine is a library of its own,
// looked up through its handle.
// JUSTIFICATION: fio looks for this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn get_ioengine(engine: *mut *mut c_void) {
    static ENGINE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let mut made = ENGINE.load(Ordering::Acquire);
    if made.is_null() {
        made = make_engine();
        ENGINE.store(made, Ordering::Release);
    }
    // SAFETY: fio passes a pointer to a pointer that it owns.
    // JUSTIFICATION: this is fio's interface.
    unsafe { *engine = made };
}

fn make_engine() -> *mut c_void {
    let found = memory::fio_version();
    match found.as_deref().and_then(interface) {
        Some(Interface::V31) => Box::into_raw(Box::new(operations::<0>(31, details_31 as *const c_void))).cast(),
        Some(Interface::V36) => Box::into_raw(Box::new(operations::<3>(36, details_36 as *const c_void))).cast(),
        None => {
            let found = found.as_deref().unwrap_or("a program that does not say its version");
            log_error(&format!("ebof: this engine is for fio {SUPPORTED}; it was loaded by {found}"));
            null_mut()
        }
    }
}

fn operations<const ZONES: usize>(version: c_int, error_details: *const c_void) -> Operations<ZONES> {
    Operations {
        list: [null_mut(); 2],
        name: c"ebof".as_ptr(),
        version,
        flags: flag::RAW_IO
            | flag::DISKLESS
            | flag::NO_EXTEND
            | flag::NO_DISK_UTIL
            | flag::ALIGNED_MEMORY
            | flag::NO_OFFLOAD,
        library: null_mut(),
        setup: None,
        init: Some(init),
        post_init: Some(post_init),
        prepare: None,
        queue: Some(queue),
        commit: Some(commit),
        get_events: Some(get_events),
        event: Some(event),
        error_details,
        cancel: None,
        cleanup: Some(cleanup),
        open_file: Some(nothing_to_do),
        close_file: Some(nothing_to_do),
        invalidate: Some(nothing_to_do),
        unlink_file: Some(nothing_to_do),
        get_file_size: Some(get_file_size),
        prepopulate_file: None,
        terminate: None,
        memory: [null(); 2],
        unit_init: Some(unit_init),
        unit_free: Some(unit_free),
        zones: [null(); 4],
        more_zones: [null(); ZONES],
        option_bytes: OPTION_BYTES,
        options: Box::leak(Box::new(options())).as_mut_ptr(),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "a structure of about a hundred bytes")]
const OPTION_BYTES: c_int = size_of::<RawSettings>() as c_int;

/// The engine's options; `fio --enghelp` shows the help.
fn options() -> [FioOption; 15] {
    let text = |name: &'static std::ffi::CStr, offset, help: &'static std::ffi::CStr| FioOption {
        max_length: 4096,
        ..option(name, kind::TEXT, offset, help)
    };
    let number = |name: &'static std::ffi::CStr,
                  offset,
                  default: &'static std::ffi::CStr,
                  max,
                  help: &'static std::ffi::CStr| {
        FioOption { default: default.as_ptr(), max, ..option(name, kind::NUMBER, offset, help) }
    };
    let switch = |name: &'static std::ffi::CStr, offset, help: &'static std::ffi::CStr| FioOption {
        default: c"0".as_ptr(),
        ..option(name, kind::SWITCH, offset, help)
    };
    let mark = FioOption {
        default: MARK_TEXT.as_ptr(),
        ..option(
            c"ebof_mark",
            kind::LONG_NUMBER,
            offset_of!(RawSettings, mark),
            c"Not for users: how the engine finds its options",
        )
    };
    [
        mark,
        text(
            c"uri",
            offset_of!(RawSettings, uri),
            c"The namespace, nvme+tcp://HOST:PORT/NQN/NSID; file names are labels then",
        ),
        text(c"hostnqn", offset_of!(RawSettings, host_nqn), c"Who we say we are"),
        text(c"hostid", offset_of!(RawSettings, host_id), c"Our host identifier, a UUID"),
        text(c"host_traddr", offset_of!(RawSettings, host_traddr), c"Local address to connect from"),
        text(c"host_iface", offset_of!(RawSettings, host_iface), c"Network interface to connect through"),
        switch(c"hdr_digest", offset_of!(RawSettings, hdr_digest), c"1: ask for header digests (CRC32C)"),
        switch(c"data_digest", offset_of!(RawSettings, data_digest), c"1: ask for data digests (CRC32C)"),
        number(
            c"queue_size",
            offset_of!(RawSettings, queue_size),
            c"0",
            1024,
            c"Entries of the queue; 0 follows iodepth",
        ),
        number(c"tos", offset_of!(RawSettings, tos), c"256", 256, c"IP type of service; 256 leaves the system's"),
        number(
            c"keep_alive_tmo",
            offset_of!(RawSettings, keep_alive_s),
            c"5",
            86_400,
            c"Keep Alive Timeout in seconds; 0 is none",
        ),
        switch(c"poll", offset_of!(RawSettings, poll), c"1: never sleep while waiting for completions"),
        number(
            c"spin_us",
            offset_of!(RawSettings, spin_us),
            c"50",
            1_000_000,
            c"How long to spin before sleeping, in microseconds",
        ),
        number(
            c"batch",
            offset_of!(RawSettings, batch),
            c"0",
            1024,
            c"Send when so many operations are queued; 0 sends when fio waits",
        ),
        FioOption::END,
    ]
}

fn option(name: &'static std::ffi::CStr, kind: c_int, offset: usize, help: &'static std::ffi::CStr) -> FioOption {
    FioOption {
        name: name.as_ptr(),
        long_name: name.as_ptr(),
        kind,
        offset: c_uint::try_from(offset).unwrap_or(0),
        help: help.as_ptr(),
        category: CATEGORY_ENGINE,
        ..FioOption::END
    }
}

/// Calls `work` with the job of this thread; `None` if there is none.
fn with_job<T>(work: impl FnOnce(&mut Job) -> T) -> Option<T> {
    JOB.with_borrow_mut(|job| job.as_mut().map(work))
}

/// The list of files. In a process that was forked while another thread held the lock it is not
/// available: files are then connected when they are first used.
fn files() -> Option<MutexGuard<'static, Vec<(usize, usize, String)>>> {
    for _ in 0..100 {
        match FILES.try_lock() {
            Ok(files) => return Some(files),
            Err(TryLockError::Poisoned(files)) => return Some(files.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    None
}

/// Called before the job, in any thread: sets the size of `file`.
extern "C" fn get_file_size(thread: *mut ThreadData, file: *mut File) -> c_int {
    // SAFETY: fio calls this with a job that has loaded the engine, and one of its files.
    // JUSTIFICATION: fio's interface has raw pointers.
    let (settings, name) = unsafe { (memory::settings(thread), memory::file_name(file)) };
    let Some(settings) = settings else {
        log_error("ebof: the options are not where this fio should have them; is it a build with other structures?");
        return FAILED;
    };
    match geometry::size_bytes(&name, &settings) {
        Ok(bytes) => {
            // SAFETY: as above.
            // JUSTIFICATION: fio reads the size from there.
            unsafe { memory::set_size(file, bytes) };
            if let Some(mut files) = files() {
                files.retain(|one| (one.0, one.1) != (thread.addr(), file.addr()));
                files.push((thread.addr(), file.addr(), name));
            }
            OK
        }
        Err(failure) => {
            log_error(&failure.text);
            FAILED
        }
    }
}

/// Called in the job's thread, before its operations are created.
extern "C" fn init(thread: *mut ThreadData) -> c_int {
    // SAFETY: fio calls this with a job that has loaded the engine.
    // JUSTIFICATION: fio's interface has raw pointers.
    let Some(settings) = (unsafe { memory::settings(thread) }) else { return FAILED };
    JOB.set(Some(Job::new(settings)));
    OK
}

/// Called for each operation that fio creates: `iodepth` of them.
extern "C" fn unit_init(_: *mut ThreadData, _: *mut IoUnit) -> c_int {
    with_job(Job::add_operation);
    OK
}

/// Called in the job's thread, before its clock starts: connects.
extern "C" fn post_init(thread: *mut ThreadData) -> c_int {
    let mine: Vec<(usize, String)> = files()
        .map(|files| files.iter().filter(|one| one.0 == thread.addr()).map(|one| (one.1, one.2.clone())).collect())
        .unwrap_or_default();
    for (file, name) in mine {
        // A failure is reported with the first operation: fio would ignore it here.
        if let Some(remark) = with_job(|job| job.open(file, &name)).flatten() {
            log_error(&remark);
        }
    }
    OK
}

extern "C" fn queue(_: *mut ThreadData, unit: *mut IoUnit) -> c_int {
    // SAFETY: fio queues an operation, which belongs to the engine until it is returned.
    // JUSTIFICATION: fio's interface has raw pointers.
    let (request, file) = unsafe { (memory::request(unit), memory::file_of(unit)) };
    let Some(request) = request else { return refused(unit, libc::EINVAL) };
    let started = with_job(|job| {
        if !job.knows(file.addr()) {
            // SAFETY: an operation that fio queues has a file.
            // JUSTIFICATION: fio's interface has raw pointers.
            let name = unsafe { memory::file_name(file) };
            if let Some(remark) = job.open(file.addr(), &name) {
                log_error(&remark);
            }
        }
        job.queue(file.addr(), request);
    });
    if started.is_some() { queued::QUEUED } else { refused(unit, libc::ENOTCONN) }
}

/// Completes `unit`, which was not started, with an errno.
fn refused(unit: *mut IoUnit, errno: i32) -> c_int {
    // SAFETY: it was not started, so the engine does not use it.
    // JUSTIFICATION: fio reads the result from there.
    unsafe { memory::set_result(unit, errno) };
    queued::COMPLETED
}

extern "C" fn commit(thread: *mut ThreadData) -> c_int {
    let sent = with_job(Job::commit).unwrap_or(0);
    if sent > 0 {
        memory::mark_submitted(thread, sent);
    }
    OK
}

extern "C" fn get_events(thread: *mut ThreadData, min: c_uint, max: c_uint, limit: *const libc::timespec) -> c_int {
    // SAFETY: fio passes null or a timespec.
    // JUSTIFICATION: fio's interface has raw pointers.
    let limit = unsafe { memory::time_limit(limit) };
    let size = |number| usize::try_from(number).unwrap_or(usize::MAX);
    let (found, sent) = with_job(|job| job.collect(size(min), size(max.max(min)), limit)).unwrap_or((0, 0));
    if sent > 0 {
        memory::mark_submitted(thread, sent);
    }
    c_int::try_from(found).unwrap_or(c_int::MAX)
}

extern "C" fn event(_: *mut ThreadData, index: c_int) -> *mut IoUnit {
    let finished = usize::try_from(index).ok().and_then(|index| with_job(|job| job.event(index)).flatten());
    let Some(finished) = finished else { return null_mut() };
    let unit = std::ptr::with_exposed_provenance_mut::<IoUnit>(finished.token);
    // SAFETY: the token is the address of an operation that fio queued, that has completed, and
    // that is returned now, once.
    // JUSTIFICATION: fio reads the result from there.
    unsafe { memory::set_result(unit, finished.errno) };
    unit
}

/// The message that fio prints for a failed operation, in interface 31.
extern "C" fn details_31(unit: *mut IoUnit) -> *mut c_char {
    let text = with_job(|job| job.explanation(unit.addr())).flatten();
    memory::c_string(text.as_deref().unwrap_or("ebof: no more is known"))
}

/// The same in interface 36.
extern "C" fn details_36(_: *mut ThreadData, unit: *mut IoUnit) -> *mut c_char {
    details_31(unit)
}

/// Called before fio frees its operations and their buffers: ends the connections.
extern "C" fn unit_free(_: *mut ThreadData, _: *mut IoUnit) {
    JOB.take();
}

extern "C" fn cleanup(thread: *mut ThreadData) {
    JOB.take();
    if let Some(mut files) = files() {
        files.retain(|one| one.0 != thread.addr());
    }
}

/// Files are neither opened nor closed, cached nor unlinked.
extern "C" fn nothing_to_do(_: *mut ThreadData, _: *mut File) -> c_int {
    OK
}
