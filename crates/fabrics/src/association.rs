//! What the queues of one controller share: who the host is, a few flags, counters and the error log. Written by the
//! threads that own the queues and by the registry, with plain loads and stores; it decides nothing.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use ebof_nvme::{ControllerId, HostId, Nqn};

use crate::model::{Limits, Port};

/// A host's association with a controller.
#[derive(Debug)]
pub struct Association {
    /// The controller.
    pub cntlid: ControllerId,
    /// The subsystem; the discovery subsystem by its own name.
    pub subsystem: Nqn,
    /// The host.
    pub host: Nqn,
    /// The host's identifier.
    pub host_id: HostId,
    /// Whether it is a discovery controller.
    pub discovery: bool,
    /// The port at the time of the Connect.
    pub port: Port,
    /// The limits that were announced.
    pub limits: Limits,
    /// CSTS.RDY: I/O commands are executed.
    pub(crate) ready: AtomicBool,
    /// The association ends: no command is executed any more.
    pub(crate) closing: AtomicBool,
    /// Whether the host left the volatile write cache on.
    pub(crate) write_cache: AtomicBool,
    /// I/O queues that Number of Queues granted.
    pub(crate) granted_queues: AtomicU32,
    /// I/O queues that exist.
    pub(crate) io_queues: AtomicU32,
    /// Keep alive time-out in force, 0 for none.
    pub(crate) keep_alive_ms: AtomicU32,
}

/// Counters of one queue, written by its thread only.
#[derive(Debug, Default)]
pub struct Counters {
    /// When the last command came, on the clock of `now_ms`.
    pub(crate) last_command_ms: AtomicU64,
    read_commands: AtomicU64,
    read_bytes: AtomicU64,
    write_commands: AtomicU64,
    write_bytes: AtomicU64,
    other_commands: AtomicU64,
    errors: AtomicU64,
}

/// The values of [`Counters`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Read, Compare and Verify commands that completed.
    pub read_commands: u64,
    /// Bytes that Read sent to the host.
    pub read_bytes: u64,
    /// Write and Write Zeroes commands that completed.
    pub write_commands: u64,
    /// Bytes that Write took from the host.
    pub write_bytes: u64,
    /// All other commands that completed.
    pub other_commands: u64,
    /// Commands that completed with an error.
    pub errors: u64,
}

impl Association {
    /// Whether the controller executes I/O commands (CSTS.RDY).
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}
