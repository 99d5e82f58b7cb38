//! Installs a filter of system calls for all threads of the process. All unsafe code of the crate.
#![allow(unsafe_code, reason = "a system call that no safe crate makes in this way; the block says why")]

use std::io;

use seccompiler::{BpfProgram, sock_filter};

/// Installs the filter for every thread that there is, and by that for those that they make. What
/// it refuses is told to the kernel's audit.
///
/// # Errors
/// Of seccomp(2); a thread that already has another filter is told by its number.
pub(crate) fn for_all_threads(filter: &BpfProgram) -> io::Result<()> {
    let len = u16::try_from(filter.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let program = libc::sock_fprog { len, filter: filter.as_ptr().cast_mut().cast() };
    let flags = libc::SECCOMP_FILTER_FLAG_TSYNC | libc::SECCOMP_FILTER_FLAG_LOG;
    // SAFETY: the kernel copies `len` instructions from `filter`, which outlives the call and has
    // that many; both types are the kernel's `struct sock_filter`, by the assertion below.
    // JUSTIFICATION: seccompiler's own function cannot have refused calls logged, without which
    // nobody learns what was refused.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, std::ptr::from_ref(&program)) };
    match result {
        0 => Ok(()),
        thread if thread > 0 => Err(io::Error::other(format!("thread {thread} has another filter"))),
        _ => Err(io::Error::last_os_error()),
    }
}

const _: () = assert!(
    size_of::<sock_filter>() == size_of::<libc::sock_filter>()
        && align_of::<sock_filter>() == align_of::<libc::sock_filter>()
);
