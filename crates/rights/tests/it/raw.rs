//! System calls that the tests make and no safe crate offers.
#![allow(unsafe_code, reason = "any system call with arguments that mean nothing; the block says why")]

use std::io;

/// Makes a system call whose arguments are no memory: what reads or writes memory fails.
pub(crate) fn call(number: i64, arguments: [i64; 3]) -> io::Result<()> {
    let [first, second, third] = arguments;
    // SAFETY: the arguments are small numbers or -1, at which no memory of this process is, so that
    // the kernel can neither read nor write any.
    // JUSTIFICATION: the calls that are to be refused are those for which nobody has a wrapper.
    match unsafe { libc::syscall(number, first, second, third, -1_i64, 0_i64, 0_i64) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
