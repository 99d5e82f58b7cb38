//! Access to fio's memory: buffers, names, operations, the values of the engine's options. One of
//! the two files with unsafe code; it does no I/O.
//!
//! All of it relies on one rule: fio calls the engine with pointers that are valid during the call,
//! and a buffer belongs to the engine from `queue` until the operation is returned by `event`.
#![allow(unsafe_code, reason = "memory that belongs to fio; each block says why")]

use std::ffi::{CStr, c_char, c_int};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use ebof_initiator::IoBuffer;

use crate::job::{Kind, Request};
use crate::layout::{FILE_KIND_BLOCK, File, IoUnit, MARK, RawSettings, THREAD_DATA_BYTES_MIN, ThreadData, direction};
use crate::settings::JobSettings;

/// Memory of fio that a command transfers: a buffer, or a part of one.
#[derive(Debug)]
pub(crate) struct Lent {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a Lent is the only access to its bytes while it exists (see the module), and bytes
// can be accessed from any thread.
// JUSTIFICATION: a queue pair may move between threads, and its buffers with it.
unsafe impl Send for Lent {}

impl Lent {
    /// No bytes.
    pub(crate) const fn empty() -> Self {
        Self { start: NonNull::dangling(), length: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Splits the first `length` bytes off (all, if there are fewer).
    pub(crate) fn split_front(&mut self, length: usize) -> Self {
        let length = length.min(self.length);
        let front = Self { start: self.start, length };
        // SAFETY: `length` is at most the buffer's length: the result is in it, or just after it.
        // JUSTIFICATION: two commands use the two parts concurrently; a slice cannot be stored.
        self.start = unsafe { self.start.add(length) };
        self.length -= length;
        front
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: fio has allocated and initialized `length` bytes there and does not access them
        // until the operation is returned; parts do not overlap.
        // JUSTIFICATION: data go from fio's buffer to the socket without a copy.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `as_ref`; `self` is borrowed mutably, and no other Lent has these bytes.
        // JUSTIFICATION: data go from the socket to fio's buffer without a copy.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

/// The data of a command.
#[derive(Debug)]
pub(crate) enum Payload {
    Lent(Lent),
    Range([u8; 16]),
}

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Lent(lent) => lent.as_ref(),
            Self::Range(range) => range,
        }
    }
}

impl AsMut<[u8]> for Payload {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Lent(lent) => lent.as_mut(),
            Self::Range(range) => range,
        }
    }
}

impl IoBuffer for Payload {}

/// The request of `unit`; `None` if the engine does not know its direction.
///
/// # Safety
/// `unit` is an operation that fio queues.
// SAFETY: the caller guarantees it.
// JUSTIFICATION: it reads fio's structure.
pub(crate) unsafe fn request(unit: *mut IoUnit) -> Option<Request> {
    // SAFETY: the caller guarantees it; the layout is that of the version that loaded the library.
    // Fields are read separately, without a reference to the structure: fio may use other fields.
    // JUSTIFICATION: fio's interface has raw pointers.
    let (direction, offset, buffer, length) =
        unsafe { ((*unit).direction, (*unit).offset, (*unit).transfer_buffer, (*unit).transfer_length) };
    let kind = match direction {
        direction::READ => Kind::Read,
        direction::WRITE => Kind::Write,
        direction::TRIM => Kind::Deallocate,
        direction::SYNC | direction::DATA_SYNC | direction::RANGE_SYNC => Kind::Flush,
        _ => return None,
    };
    let memory = match (kind, NonNull::new(buffer.cast::<u8>())) {
        (Kind::Read | Kind::Write, Some(start)) => Lent { start, length: usize::try_from(length).ok()? },
        (Kind::Read | Kind::Write, None) => return None,
        (Kind::Deallocate | Kind::Flush, _) => Lent::empty(),
    };
    Some(Request { token: unit.expose_provenance(), kind, offset, length, memory })
}

/// The file of `unit`.
///
/// # Safety
/// `unit` is an operation that fio queues.
// SAFETY: the caller guarantees it.
// JUSTIFICATION: it reads fio's structure.
pub(crate) unsafe fn file_of(unit: *mut IoUnit) -> *mut File {
    // SAFETY: the caller guarantees it.
    // JUSTIFICATION: fio's interface has raw pointers.
    unsafe { (*unit).file }
}

/// Stores the result of `unit`: an errno, or 0.
///
/// # Safety
/// `unit` is an operation that fio queued, and that has completed.
// SAFETY: the caller guarantees it.
// JUSTIFICATION: it writes into fio's structure.
pub(crate) unsafe fn set_result(unit: *mut IoUnit, errno: i32) {
    // SAFETY: the caller guarantees it; fio does not use the operation while the engine has it.
    // JUSTIFICATION: fio reads the result from there.
    unsafe {
        (*unit).error = errno.unsigned_abs();
        (*unit).residual = if errno == 0 { 0 } else { (*unit).transfer_length };
    }
}

/// A file's name.
///
/// # Safety
/// `file` is a file of fio.
// SAFETY: the caller guarantees it.
// JUSTIFICATION: it reads fio's structure.
pub(crate) unsafe fn file_name(file: *mut File) -> String {
    // SAFETY: the caller guarantees it.
    // JUSTIFICATION: fio's interface has raw pointers.
    let name = unsafe { (*file).name };
    // SAFETY: fio names every file with a C string that lives as long as the file.
    // JUSTIFICATION: as above.
    unsafe { text(name) }.unwrap_or_default()
}

/// Sets the size of a file of fio, and its kind: a device.
///
/// # Safety
/// `file` is a file of fio.
// SAFETY: the caller guarantees it.
// JUSTIFICATION: it writes into fio's structure.
pub(crate) unsafe fn set_size(file: *mut File, bytes: u64) {
    // SAFETY: the caller guarantees it; fio has called the engine for this, and waits.
    // JUSTIFICATION: fio reads the size from there.
    unsafe {
        (*file).real_file_size = bytes;
        (*file).kind = FILE_KIND_BLOCK;
    }
}

/// The offset in fio's thread data of the pointer to the engine's options; 0 if it is not known
/// yet. The same for all jobs of a process.
static SETTINGS_AT: AtomicUsize = AtomicUsize::new(0);

/// The options of a job; `None` when they are not found.
///
/// # Safety
/// `thread` is the thread data of a job that has loaded this engine.
// SAFETY: the caller guarantees it.
// JUSTIFICATION: it reads fio's structure.
pub(crate) unsafe fn settings(thread: *mut ThreadData) -> Option<JobSettings> {
    let mut at = SETTINGS_AT.load(Ordering::Relaxed);
    if at == 0 {
        // SAFETY: the caller guarantees it.
        // JUSTIFICATION: see `find_settings`.
        at = unsafe { find_settings(thread) }?;
        SETTINGS_AT.store(at, Ordering::Relaxed);
    }
    // SAFETY: `at` was found within the thread data, and is the same for all jobs; the pointer
    // there is to a structure that fio has created from our list of options, and that lives as long
    // as the job.
    // JUSTIFICATION: fio has no function that returns it.
    let raw = unsafe { &*thread.byte_add(at).cast::<*const RawSettings>().read() };
    // SAFETY: fio stores a C string of its own, or null, for each text option.
    // JUSTIFICATION: fio's interface has raw pointers.
    let text = |pointer| unsafe { text(pointer) };
    Some(JobSettings {
        uri: text(raw.uri),
        host_nqn: text(raw.host_nqn),
        host_id: text(raw.host_id),
        host_traddr: text(raw.host_traddr),
        host_iface: text(raw.host_iface),
        hdr_digest: raw.hdr_digest != 0,
        data_digest: raw.data_digest != 0,
        queue_size: raw.queue_size,
        tos: raw.tos,
        keep_alive_s: raw.keep_alive_s,
        poll: raw.poll != 0,
        spin_us: raw.spin_us,
        batch: raw.batch,
    })
}

/// Searches for a pointer to something that begins like our options: a first word for fio's use,
/// then our mark. The offset of the pointer depends on the features that fio was built with, which
/// cannot be queried.
///
/// # Safety
/// As for `settings`.
// SAFETY: the caller guarantees it.
// JUSTIFICATION: it reads fio's structure.
unsafe fn find_settings(thread: *mut ThreadData) -> Option<usize> {
    let probe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK | rustix::pipe::PipeFlags::CLOEXEC).ok()?;
    let word = size_of::<usize>();
    (word..THREAD_DATA_BYTES_MIN).step_by(word).find(|&at| {
        // SAFETY: the thread data are larger than this, and aligned; all bytes are initialized
        // (zeroed shared memory).
        // JUSTIFICATION: see above.
        let pointer = unsafe { thread.byte_add(at).cast::<usize>().read() };
        let plausible = pointer > 1 << 16 && pointer < 1 << 56 && pointer.is_multiple_of(align_of::<RawSettings>());
        plausible && begins_with_mark(pointer, &probe)
    })
}

/// Whether there are 16 readable bytes at `address`, the last 8 of which are our mark.
fn begins_with_mark(address: usize, probe: &(std::os::fd::OwnedFd, std::os::fd::OwnedFd)) -> bool {
    use std::os::fd::AsRawFd as _;
    let mut bytes = [0; 16];
    // SAFETY: the kernel reads the bytes, or returns EFAULT if the address is invalid: the pointer
    // is not dereferenced here.
    // JUSTIFICATION: there is no other way to probe an address that may be invalid; no slice may be
    // created of it.
    let copied = unsafe {
        libc::write(probe.1.as_raw_fd(), std::ptr::with_exposed_provenance::<libc::c_void>(address), bytes.len())
    };
    let read = usize::try_from(copied).ok().and_then(|_| rustix::io::read(&probe.0, &mut bytes).ok());
    read == Some(bytes.len()) && bytes[8..] == MARK.to_ne_bytes()
}

/// A copy of a C string; `None` for null.
///
/// # Safety
/// `pointer` is null or a C string.
// SAFETY: the caller guarantees it.
// JUSTIFICATION: it dereferences a pointer of fio.
unsafe fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees it.
    // JUSTIFICATION: it is fio's memory.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// A time limit of fio; `None` for null.
///
/// # Safety
/// `limit` is null or a timespec.
// SAFETY: the caller guarantees it.
// JUSTIFICATION: it dereferences a pointer of fio.
pub(crate) unsafe fn time_limit(limit: *const libc::timespec) -> Option<std::time::Duration> {
    // SAFETY: the caller guarantees it.
    // JUSTIFICATION: it is fio's memory.
    let limit = unsafe { limit.as_ref() }?;
    let seconds = u64::try_from(limit.tv_sec).unwrap_or(0);
    Some(std::time::Duration::new(seconds, u32::try_from(limit.tv_nsec).unwrap_or(0)))
}

/// Looks up a symbol of the program that loaded the library.
pub(crate) fn symbol(name: &CStr) -> *mut libc::c_void {
    // SAFETY: `name` is a C string; RTLD_DEFAULT needs no handle.
    // JUSTIFICATION: fio's functions can be resolved only when it has loaded the library.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// fio's version string; `None` if the program that loaded the library is not fio.
pub(crate) fn fio_version() -> Option<String> {
    let version = symbol(c"fio_version_string").cast::<c_char>();
    // SAFETY: in every fio this is an array of characters that ends with a zero.
    // JUSTIFICATION: there is no other way to find the layout.
    unsafe { text(version) }
}

/// Logs an error through fio's log.
pub(crate) fn log_error(message: &str) {
    let function = symbol(c"log_err");
    let Ok(message) = std::ffi::CString::new(message) else { return };
    if function.is_null() {
        let _ = rustix::io::write(rustix::stdio::stderr(), message.to_bytes());
        return;
    }
    // SAFETY: callers pass the arguments that the format requires.
    // JUSTIFICATION: it is a C function.
    type LogError = unsafe extern "C" fn(*const c_char, ...) -> libc::ssize_t;
    // SAFETY: in every supported fio, log_err takes a format of printf and its arguments.
    // JUSTIFICATION: fio's log goes to its own outputs, which may be a client.
    let log_error = unsafe { std::mem::transmute::<*mut libc::c_void, LogError>(function) };
    // SAFETY: the format takes one string.
    // JUSTIFICATION: as above.
    unsafe { log_error(c"%s\n".as_ptr(), message.as_ptr()) };
}

/// Counts a batch of `count` operations for fio's statistics.
pub(crate) fn mark_submitted(thread: *mut ThreadData, count: u32) {
    static FUNCTION: AtomicUsize = AtomicUsize::new(0);
    let mut function = FUNCTION.load(Ordering::Relaxed);
    if function == 0 {
        // 1 means that there is none.
        function = symbol(c"io_u_mark_submit").expose_provenance().max(1);
        FUNCTION.store(function, Ordering::Relaxed);
    }
    if function == 1 {
        return;
    }
    // SAFETY: callers pass the thread data of a job.
    // JUSTIFICATION: it is a C function.
    type Mark = unsafe extern "C" fn(*mut ThreadData, u32);
    let function = std::ptr::with_exposed_provenance::<libc::c_void>(function);
    // SAFETY: in every supported fio, this function has these arguments and changes counters of the
    // job only.
    // JUSTIFICATION: there is no other access to fio's statistics.
    unsafe { std::mem::transmute::<*const libc::c_void, Mark>(function)(thread, count) };
}

/// A copy of `text`, to be freed by C code.
pub(crate) fn c_string(text: &str) -> *mut c_char {
    let text = std::ffi::CString::new(text.replace('\0', "?")).unwrap_or_default();
    // SAFETY: it is a C string; the result may be null, which fio accepts as no text.
    // JUSTIFICATION: fio frees it with free().
    unsafe { libc::strdup(text.as_ptr()) }
}

/// fio's values for a boolean.
pub(crate) const OK: c_int = 0;
/// See [`OK`].
pub(crate) const FAILED: c_int = 1;
