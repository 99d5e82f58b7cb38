//! What the queues of one controller share: who the host is, a few flags, counters and the error
//! log. Written by the threads that own the queues and by the registry; on the I/O path with plain
//! loads and stores only. It decides nothing.

pub(crate) mod error_log;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

use ebof_drive::{FunctionId, Origin};
use ebof_nvme::command::ControllerInstance;
use ebof_nvme::feature::NumberOfQueues;
use ebof_nvme::log::TrType;
use ebof_nvme::{ControllerId, HostId, Nqn};

use crate::model::secrets::PskSource;
use crate::model::{Limits, Port, Subsystem};
use crate::task::outcome::{MemoryRules, SglRules};

use error_log::ErrorLog;

/// A host's association with a controller.
#[derive(Debug)]
pub struct Association {
    /// The controller.
    pub cntlid: ControllerId,
    /// Controller Instance Uniquifier (CIU).
    pub uniquifier: u8,
    /// Controller Instance Random Number (CIRN); 0 where there was no randomness.
    pub random: u64,
    /// The subsystem; the discovery subsystem by its own name.
    pub subsystem: Nqn,
    /// The subsystem by the NQN that the host knows: that of the drive, if `subsystem` is that of a
    /// function which is a controller of the drive's own. All controllers of one are paths to it.
    pub known_as: Nqn,
    /// The host.
    pub host: Nqn,
    /// The host's identifier: a host that is attached directly says it later.
    host_id: [AtomicU64; 2],
    /// The function whose subsystem it is.
    pub function: Option<FunctionId>,
    /// The drive's own subsystem, where `subsystem` is that of a function; otherwise the same.
    pub drive: Nqn,
    /// The host said no name; `host` is one made of its identifier.
    pub nameless: bool,
    /// Whether it is a discovery controller.
    pub discovery: bool,
    /// Whether the host has to prove who it is, on each of its queues.
    pub proves: bool,
    /// Where the PSK comes from with which its queues come over TLS; `None` without TLS.
    pub psk: Option<PskSource>,
    /// The port at the time of the Connect.
    pub port: Port,
    /// The limits that were announced.
    pub limits: Limits,
    /// CSTS.RDY, and no shutdown or end of the association under way: I/O commands are executed.
    pub(crate) ready: AtomicBool,
    /// The association ends: no command is executed any more.
    pub(crate) closing: AtomicBool,
    /// Whether the host left the volatile write cache on.
    pub(crate) write_cache: AtomicBool,
    /// Formats of Copy that name namespaces and that the host has enabled (CDFE).
    pub(crate) copy_formats: AtomicU16,
    /// The host waits before it repeats a command, where its status says so (ACRE).
    pub(crate) retry_delays: AtomicBool,
    /// An I/O command was refused because its namespace is not ready for this controller.
    pub(crate) has_refused: AtomicBool,
    /// The host has listed its namespaces.
    pub(crate) has_listed: AtomicBool,
    /// The host waited for events of namespaces when it first listed these, and had no I/O queue,
    /// as with SPDK, whose block devices do not compare what is behind an NSID.
    pub(crate) lists_first: AtomicBool,
    /// I/O queues that Number of Queues granted: Submission Queues, where they are counted apart.
    pub(crate) granted_queues: AtomicU32,
    /// Completion Queues that it granted.
    pub(crate) granted_completion_queues: AtomicU32,
    /// I/O queues that exist.
    pub(crate) io_queues: AtomicU32,
    /// Keep alive time-out in force, 0 for none.
    pub(crate) keep_alive_ms: AtomicU32,
    /// Its own, or that of all controllers of a drive.
    pub(crate) errors: Arc<ErrorLog>,
}

/// What the host of a new association said, and where.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) instance: ControllerInstance,
    pub(crate) subsystem: Nqn,
    pub(crate) known_as: Nqn,
    pub(crate) function: Option<FunctionId>,
    pub(crate) drive: Nqn,
    pub(crate) host: Nqn,
    pub(crate) host_id: HostId,
    pub(crate) nameless: bool,
    pub(crate) discovery: bool,
    pub(crate) proves: bool,
    pub(crate) psk: Option<PskSource>,
}

fn halves(host_id: HostId) -> [u64; 2] {
    let [a, b] = [&host_id.0[..8], &host_id.0[8..]];
    [a, b].map(|half| half.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
}

/// Command Quiesce Time (CQT), milliseconds: so long after the loss of a controller was noticed,
/// none of its commands is executed behind a later one of its host.
pub const QUIESCE_MS: u16 = 5_000;

/// In-capsule data that every Admin Queue takes over TCP (NVMe/TCP, I/O Controller and Discovery
/// Controller requirements: 8 KiB).
const ADMIN_CAPSULE_BYTES: u32 = 8192;

impl Association {
    pub(crate) fn new(identity: Identity, port: Port, limits: Limits, errors: Arc<ErrorLog>) -> Self {
        let Identity { instance, subsystem, known_as, function, drive, host, host_id, nameless, .. } = identity;
        let Identity { discovery, proves, psk, .. } = identity;
        let ControllerInstance { id: cntlid, uniquifier, random } = instance;
        let association = Self {
            cntlid,
            uniquifier,
            random,
            subsystem,
            known_as,
            function,
            drive,
            host,
            host_id: halves(host_id).map(AtomicU64::new),
            nameless,
            discovery,
            proves,
            psk,
            port,
            limits,
            ready: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            write_cache: AtomicBool::new(true),
            copy_formats: AtomicU16::new(0),
            retry_delays: AtomicBool::new(false),
            has_refused: AtomicBool::new(false),
            has_listed: AtomicBool::new(false),
            lists_first: AtomicBool::new(false),
            granted_queues: AtomicU32::new(0),
            granted_completion_queues: AtomicU32::new(0),
            io_queues: AtomicU32::new(0),
            keep_alive_ms: AtomicU32::new(0),
            errors,
        };
        association.grant_all_queues();
        association
    }

    /// Whether its host has proven who it is, once its queues are open.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.proves || self.is_secured()
    }

    /// Whether its queues come over TLS.
    #[must_use]
    pub fn is_secured(&self) -> bool {
        self.psk.is_some()
    }

    /// Number of Queues: so many I/O queues may be created.
    pub(crate) fn grant_queues(&self, queues: NumberOfQueues) {
        self.granted_queues.store(queues.submission.into(), Ordering::Relaxed);
        self.granted_completion_queues.store(queues.completion.into(), Ordering::Relaxed);
    }

    /// As many as there can be, until the host says how many it wants.
    pub(crate) fn grant_all_queues(&self) {
        let most = self.max_io_queues();
        self.grant_queues(NumberOfQueues { submission: most, completion: most });
    }

    /// The host's identifier; zeros for none.
    #[must_use]
    pub fn host_id(&self) -> HostId {
        let [first, second] =
            [&self.host_id[0], &self.host_id[1]].map(|half| half.load(Ordering::Relaxed).to_le_bytes());
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&first);
        bytes[8..].copy_from_slice(&second);
        HostId(bytes)
    }

    /// The host of a controller without Connect has said who it is. Both halves are read together
    /// only under the registry's lock, where this is called, and by the thread of its Admin Queue.
    pub(crate) fn set_host_id(&self, host_id: HostId) {
        for (half, value) in self.host_id.iter().zip(halves(host_id)) {
            half.store(value, Ordering::Relaxed);
        }
    }

    /// Whether the controller executes I/O commands.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Whether the controller is the secondary controller of its function, whose number is fixed.
    #[must_use]
    pub fn is_secondary(&self) -> bool {
        self.function.is_some_and(|function| function.0 == self.cntlid.0)
    }

    /// Entries of a queue at most (CAP.MQES): what the port and the limits allow.
    #[must_use]
    pub fn max_queue_entries(&self) -> u16 {
        self.port.max_queue_entries.min(self.limits.queue_entries).max(2)
    }

    /// I/O queues at most: what the port and the limits allow; none for discovery.
    #[must_use]
    pub fn max_io_queues(&self) -> u16 {
        if self.discovery { 0 } else { self.port.max_io_queues.min(self.limits.io_queues).max(1) }
    }

    /// Which of the controllers that have had its identifier it is.
    #[must_use]
    pub fn instance(&self) -> ControllerInstance {
        ControllerInstance { id: self.cntlid, uniquifier: self.uniquifier, random: self.random }
    }

    /// The host by its own name.
    pub(crate) fn named_host(&self) -> Option<&Nqn> {
        (!self.nameless).then_some(&self.host)
    }

    /// Whether the host may use a subsystem.
    pub(crate) fn may_use(&self, subsystem: &Subsystem) -> bool {
        self.is_memory_based() && subsystem.function.is_some()
            || self.named_host().map_or(subsystem.allow_any_host, |host| subsystem.allows(host))
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    pub(crate) fn is_rdma(&self) -> bool {
        self.port.trtype == TrType::RDMA
    }

    /// Whether the host's queues are in its memory: it is attached directly.
    pub(crate) fn is_memory_based(&self) -> bool {
        self.port.is_memory_based()
    }

    pub(crate) fn admin_sgl(&self) -> SglRules {
        if self.is_memory_based() {
            // Base, Common Command Format, PSDT: over PCIe, Admin commands use no SGLs.
            return SglRules { memory: Some(MemoryRules::Prp), ..self.io_sgl() };
        }
        if self.is_rdma() {
            // The capsules of all queues have the same size.
            return self.io_sgl();
        }
        SglRules { capsule_bytes: ADMIN_CAPSULE_BYTES, keyed: false, memory: None }
    }

    pub(crate) fn io_sgl(&self) -> SglRules {
        let memory = self.is_memory_based().then_some(MemoryRules::PrpOrSgl);
        SglRules { capsule_bytes: self.port.in_capsule_bytes, keyed: self.is_rdma(), memory }
    }

    /// Whose commands these are, for the drive.
    #[must_use]
    pub fn origin(&self) -> Origin {
        let function = self.function;
        Origin { function, ..Origin::host(self.cntlid, self.host.clone(), self.host_id()) }
    }
}

/// Counters of one queue, written by its thread only. On lines of their own, so that queues do not
/// slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    /// When the last command came, on the clock of `now_ms`.
    pub(crate) last_command_ms: AtomicU64,
    read_commands: AtomicU64,
    read_bytes: AtomicU64,
    write_commands: AtomicU64,
    write_bytes: AtomicU64,
    other_commands: AtomicU64,
    errors: AtomicU64,
    media_errors: AtomicU64,
    busy_ms: AtomicU64,
}

/// The values of [`Counters`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Read, Compare, Verify and Copy commands that completed.
    pub read_commands: u64,
    /// Bytes that those concerned.
    pub read_bytes: u64,
    /// Write, Write Zeroes and Copy commands that completed.
    pub write_commands: u64,
    /// Bytes that Write took from the host, and that Copy copied.
    pub write_bytes: u64,
    /// All other commands that completed.
    pub other_commands: u64,
    /// Commands that completed with an error, refused ones included.
    pub errors: u64,
    /// Those among them that say the medium failed (status code type 2h, Compare Failure aside).
    pub media_errors: u64,
    /// Milliseconds in which commands were outstanding, as far as can be seen when the next one
    /// comes. Those of several queues at the same time count several times.
    pub busy_ms: u64,
}

impl Counters {
    /// The values at this moment, from any thread.
    #[must_use]
    pub fn read(&self) -> Counts {
        Counts {
            read_commands: self.read_commands.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            write_commands: self.write_commands.load(Ordering::Relaxed),
            write_bytes: self.write_bytes.load(Ordering::Relaxed),
            other_commands: self.other_commands.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            media_errors: self.media_errors.load(Ordering::Relaxed),
            busy_ms: self.busy_ms.load(Ordering::Relaxed),
        }
    }

    // The thread that owns the queue is the only writer, so a load and a store need not be one
    // operation.
    fn add(counter: &AtomicU64, by: u64) {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    /// A command comes `since_ms` after the last one; `busy` if others were outstanding all the
    /// while.
    pub(crate) fn count_time(&self, since_ms: u64, busy: bool) {
        Self::add(&self.busy_ms, if busy { since_ms } else { 1 });
    }

    pub(crate) fn count_read(&self, bytes: u32) {
        Self::add(&self.read_commands, 1);
        Self::add(&self.read_bytes, bytes.into());
    }

    pub(crate) fn count_write(&self, bytes: u32) {
        Self::add(&self.write_commands, 1);
        Self::add(&self.write_bytes, bytes.into());
    }

    pub(crate) fn count_other(&self) {
        Self::add(&self.other_commands, 1);
    }

    pub(crate) fn count_error(&self, media: bool) {
        Self::add(&self.errors, 1);
        Self::add(&self.media_errors, media.into());
    }
}

impl Counts {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            read_commands: self.read_commands.wrapping_add(other.read_commands),
            read_bytes: self.read_bytes.wrapping_add(other.read_bytes),
            write_commands: self.write_commands.wrapping_add(other.write_commands),
            write_bytes: self.write_bytes.wrapping_add(other.write_bytes),
            other_commands: self.other_commands.wrapping_add(other.other_commands),
            errors: self.errors.wrapping_add(other.errors),
            media_errors: self.media_errors.wrapping_add(other.media_errors),
            busy_ms: self.busy_ms.wrapping_add(other.busy_ms),
        }
    }
}
