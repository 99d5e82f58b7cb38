//! What of a device outlives the process: which data it has, whatever they are called and wherever
//! they are, and how many.
//!
//! None of it is a path: a device is a file, a block device, or something that neither the system
//! nor this crate has a name for. How they tell it is their own matter.

use std::io;

use crate::OpenError;

/// Tells a backing from all others that can be open at the same time, however it is called and
/// however often it is opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BackingId {
    kind: &'static str,
    id: Box<str>,
    is_lasting: bool,
}

impl BackingId {
    /// The backing `id` among those of a kind, for as long as it exists.
    #[must_use]
    pub fn lasting(kind: &'static str, id: impl Into<Box<str>>) -> Self {
        Self { kind, id: id.into(), is_lasting: true }
    }

    /// The same for one that has another id when it was away and came back, as a disk that was
    /// unplugged.
    #[must_use]
    pub fn changing(kind: &'static str, id: impl Into<Box<str>>) -> Self {
        Self { kind, id: id.into(), is_lasting: false }
    }

    /// Whether one with another id is certainly another backing.
    #[must_use]
    pub const fn is_lasting(&self) -> bool {
        self.is_lasting
    }
}

/// What tells the data of a backing from all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataOrigin {
    /// An identity that was written beside the data.
    Recorded([u8; 16]),
    /// What no other data have, on any machine.
    Everywhere(String),
    /// What no other data of this machine have.
    Machine(String),
    /// What no other data of this machine have until it is started again.
    Boot(String),
    /// Nothing does.
    Unknown,
}

/// A device whose data outlive the process.
pub trait Persistent: Send + Sync {
    /// Which one it is; `None` if that cannot be told.
    fn id(&self) -> Option<BackingId>;

    /// What tells its data from all others.
    fn origin(&self) -> DataOrigin;

    /// Writes an identity beside the data, where it is found again by [`origin`](Self::origin).
    /// Whether it could be written.
    fn record(&self, identity: [u8; 16]) -> bool;

    /// Whether no request is in flight, on any thread. Only meaningful when no thread can submit
    /// new ones.
    fn is_idle(&self) -> bool;

    /// The size that it has now, for [`grow`](Self::grow). `asked_bytes` is the size that it must
    /// have, if any.
    ///
    /// # Errors
    /// It is smaller than the capacity, not a whole number of blocks, or not of the size asked for.
    fn current_bytes(&self, asked_bytes: Option<u64>) -> Result<u64, OpenError>;

    /// Makes it as large as `asked_bytes`, rounded up to whole blocks, if it is smaller and can be
    /// made larger; what is added reads as zeros. Gives the size that it had, if it is larger now.
    /// What is offered of it stays as it was.
    ///
    /// # Errors
    /// It cannot be made larger.
    fn extend(&self, asked_bytes: u64) -> Result<Option<u64>, OpenError>;

    /// Takes back [`extend`](Self::extend): it had `before_bytes`, and nothing beyond was offered.
    ///
    /// # Errors
    /// It stays as large as it is.
    fn take_back_extension(&self, before_bytes: u64) -> io::Result<()>;

    /// Raises the capacity to `capacity_bytes`, from [`current_bytes`](Self::current_bytes). It
    /// never shrinks.
    fn grow(&self, capacity_bytes: u64);
}
