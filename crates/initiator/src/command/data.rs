//! The data of a command and its completion, or why it was not queued.

use std::fmt;
use std::sync::Arc;

use ebof_nvme::Cqe;
use ebof_region::Region;

use crate::error::Error;

/// A buffer that a queue pair owns while a command is outstanding. `as_ref` and `as_mut` must
/// return the same memory at every call.
///
/// Memory that an RDMA adapter moves has to be registered with it. A [`Region`] is registered once,
/// when the first command uses it; data of a buffer that lies in one are moved directly. Those of
/// other buffers are copied, through memory of the queue pair.
pub trait IoBuffer: AsRef<[u8]> + AsMut<[u8]> + Send {
    /// The region that all bytes of `as_ref` lie in; `None` for other memory. The target can read
    /// and write a region that was registered, as a whole, until it is freed.
    fn region(&self) -> Option<&Arc<Region>> {
        None
    }
}

impl IoBuffer for Vec<u8> {}
impl IoBuffer for Box<[u8]> {}

impl IoBuffer for ebof_region::Buffer {
    fn region(&self) -> Option<&Arc<Region>> {
        Some(ebof_region::Buffer::region(self))
    }
}

/// The data of a command. The queue pair owns the buffer until the command completes.
#[derive(Debug, Default)]
pub enum Data<B = Vec<u8>> {
    /// The command has no data.
    #[default]
    None,
    /// The controller fills the buffer (Read, Identify ...). Its length is the length of the
    /// transfer.
    ToHost(B),
    /// The controller reads the buffer (Write, Compare ...).
    FromHost(B),
}

impl<B> Data<B> {
    /// The buffer, if there is one.
    pub fn into_buffer(self) -> Option<B> {
        match self {
            Self::None => None,
            Self::ToHost(buffer) | Self::FromHost(buffer) => Some(buffer),
        }
    }
}

/// A command that was not queued, and its data.
pub struct SubmitError<B> {
    /// Why.
    pub reason: Error,
    /// The data, given back.
    pub data: Data<B>,
}

impl<B> fmt::Debug for SubmitError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitError").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<B> fmt::Display for SubmitError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<B> std::error::Error for SubmitError<B> {}

impl<B> From<SubmitError<B>> for Error {
    fn from(error: SubmitError<B>) -> Self {
        error.reason
    }
}

/// A completed command.
#[derive(Debug)]
pub struct Completion<B = Vec<u8>> {
    /// The value that was passed to [`crate::QueuePair::submit`].
    pub user: u64,
    /// The completion queue entry, whatever its status; or why there is none ([`Error::Lost`]: the
    /// command may or may not have been executed).
    pub result: Result<Cqe, Error>,
    /// The buffer, given back. `Data::None` if a network card did not release it after the
    /// connection was lost (zero-copy send): then its memory is leaked.
    pub data: Data<B>,
}

/// Borrowed data of a command, for calls that wait for its completion.
#[derive(Debug)]
pub enum AdminData<'a> {
    /// The command has no data.
    None,
    /// The controller fills the buffer.
    ToHost(&'a mut [u8]),
    /// The controller reads the bytes.
    FromHost(&'a [u8]),
}
