//! What an [`Io`](crate::Io) counts.

/// What an [`Io`](crate::Io) has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoStats {
    /// Requests accepted as `Pending`.
    pub accepted: u64,
    /// Completions returned by `poll` or `wait`.
    pub completed: u64,
    /// Times the batch was handed over: `io_uring_enter` calls, or wake-ups of the threads.
    pub handovers: u64,
    /// Transfers with memory that the kernel had registered (fixed buffers of io_uring).
    pub registered: u64,
}
