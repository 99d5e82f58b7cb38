//! What goes with a command, and what comes back of it: data that the queue owns meanwhile, data
//! that a caller lends.

use ebof_nvme::Cqe;

use crate::error::Error;

/// What a command's data may live in while the command is outstanding. `as_ref` and `as_mut` must
/// give the same bytes at every call.
pub trait Buffer: AsRef<[u8]> + AsMut<[u8]> + Send {}
impl<T: AsRef<[u8]> + AsMut<[u8]> + Send> Buffer for T {}

/// The data that goes with a command. The queue pair owns the buffer until the command completes.
#[derive(Debug, Default)]
pub enum Data<B = Vec<u8>> {
    /// The command has no data.
    #[default]
    None,
    /// The controller fills the buffer (Read, Identify ...): exactly its length is asked for.
    ToHost(B),
    /// The controller takes the buffer's bytes (Write, Compare ...).
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

/// A command that is over.
#[derive(Debug)]
pub struct Completion<B = Vec<u8>> {
    /// What [`crate::QueuePair::submit`] was given to find the command again.
    pub user: u64,
    /// The completion queue entry, whatever its status is; or why there will be none
    /// ([`Error::Lost`]: the command may or may not have been executed).
    pub result: Result<Cqe, Error>,
    /// The buffer, given back. None where a network card did not let go of it after the connection
    /// was lost (zero-copy send): then its memory is never used again.
    pub data: Data<B>,
}

/// Borrowed data of a command that is waited for.
#[derive(Debug)]
pub enum AdminData<'a> {
    /// The command has no data.
    None,
    /// The controller fills the buffer.
    ToHost(&'a mut [u8]),
    /// The controller takes the bytes.
    FromHost(&'a [u8]),
}
