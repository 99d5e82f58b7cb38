//! The ioctls of loop(4) that losetup does not offer: whether a device that is detached has other
//! users, and taking back that it goes when they are gone. All unsafe code of loop devices.
#![allow(unsafe_code, reason = "ioctls; each block says why")]

use std::fs::File;
use std::io;

use rustix::io::Errno;
use rustix::ioctl::{Getter, NoArg, Opcode, Setter, ioctl};

const LOOP_CLR_FD: Opcode = 0x4c01;
const LOOP_SET_STATUS64: Opcode = 0x4c04;
const LOOP_GET_STATUS64: Opcode = 0x4c05;

/// Flag: the device goes when its last user closes it.
const AUTOCLEAR: u32 = 4;

/// `struct loop_info64` of `linux/loop.h`.
#[derive(Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
pub(super) struct Status {
    before: [u64; 5],
    numbers: [u32; 3],
    flags: u32,
    names: [[u8; 64]; 2],
    rest: [u64; 6],
}

const _: () = assert!(size_of::<Status>() == 232);

impl Status {
    /// As it was before [`clear`].
    pub(super) fn kept(self) -> Self {
        Self { flags: self.flags & !AUTOCLEAR, ..self }
    }
}

/// Detaches the device when its last user closes it, who may be `device` itself.
pub(super) fn clear(device: &File) -> io::Result<()> {
    // SAFETY: the command takes no argument.
    // JUSTIFICATION: there is no other call for it; losetup does not tell whether there are users.
    Ok(unsafe { ioctl(device, NoArg::<LOOP_CLR_FD>::new()) }?)
}

/// The status of the device; `None` if it has no file, or only `device` holds it after [`clear`].
pub(super) fn status(device: &File) -> io::Result<Option<Status>> {
    // SAFETY: the kernel fills in exactly one `struct loop_info64`, of which any bytes are legal.
    // JUSTIFICATION: see `clear`.
    match unsafe { ioctl(device, Getter::<LOOP_GET_STATUS64, Status>::new()) } {
        Ok(status) => Ok(Some(status)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sets the status. Waits for outstanding requests.
pub(super) fn set_status(device: &File, status: Status) -> io::Result<()> {
    // SAFETY: the kernel reads one `struct loop_info64`, which `status` is.
    // JUSTIFICATION: losetup cannot take AUTOCLEAR back.
    Ok(unsafe { ioctl(device, Setter::<LOOP_SET_STATUS64, Status>::new(status)) }?)
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros as _;

    use super::*;

    #[test]
    fn only_the_flag_is_taken_back() {
        let mut status = Status::new_zeroed();
        status.flags = 1 | AUTOCLEAR | 8 | 16;
        status.names[0][0] = b'x';
        let kept = status.kept();
        assert_eq!((kept.flags, kept.names[0][0]), (1 | 8 | 16, b'x'));
    }
}
