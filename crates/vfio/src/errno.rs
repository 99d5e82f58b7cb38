//! The errors of vfio-user: numbers of UNIX in the error field of a reply's header.

use core::fmt;

/// Why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u32);

impl Errno {
    /// There is no such thing (ENOENT).
    pub const NO_ENTRY: Self = Self(2);
    /// Access to memory or a device failed (EIO).
    pub const IO: Self = Self(5);
    /// The file is not to be used like that (EACCES).
    pub const ACCESS: Self = Self(13);
    /// It is there already (EEXIST).
    pub const EXISTS: Self = Self(17);
    /// The command's fields contradict the protocol or the device (EINVAL).
    pub const INVALID: Self = Self(22);
    /// As many as allowed are there (ENOSPC).
    pub const NO_SPACE: Self = Self(28);
    /// This server has no such command (ENOTSUP).
    pub const NOT_SUPPORTED: Self = Self(95);
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NO_ENTRY => f.write_str("no such entry"),
            Self::IO => f.write_str("input/output error"),
            Self::ACCESS => f.write_str("access refused"),
            Self::EXISTS => f.write_str("exists already"),
            Self::INVALID => f.write_str("invalid argument"),
            Self::NO_SPACE => f.write_str("too many"),
            Self::NOT_SUPPORTED => f.write_str("not supported"),
            Self(number) => write!(f, "error {number}"),
        }
    }
}
