//! The description of a measurement: load, target, host, schedule. Owns no process and no results.

/// The load of a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) rw: Rw,
    pub(crate) block_bytes: u32,
    /// Operations outstanding on each connection.
    pub(crate) depth: u16,
    /// Connections, each with a thread of the host, unless it says otherwise.
    pub(crate) connections: u16,
    /// Header and data digests.
    pub(crate) digests: bool,
    /// Size of the target's drive, unless it is a file, and of the memory of the raw program's
    /// payloads.
    pub(crate) drive_mib: u64,
}

/// Size of drives in MiB where nothing else is said.
pub(crate) const DRIVE_MIB: u64 = 64;

impl Load {
    pub(crate) const fn new(rw: Rw, block_bytes: u32, depth: u16) -> Self {
        Self { rw, block_bytes, depth, connections: 1, digests: false, drive_mib: DRIVE_MIB }
    }
}

/// The operations, with fio's names, which all tools understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rw {
    Read,
    Write,
    RandRead,
    RandWrite,
}

impl Rw {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
        }
    }

    pub(crate) const fn writes(self) -> bool {
        matches!(self, Self::Write | Self::RandWrite)
    }

    pub(crate) const fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite)
    }
}

/// The drive of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drive {
    /// Memory.
    Memory,
    /// A null drive of the same size.
    Null,
    /// The file of the run, without the page cache.
    File,
}

/// SPDK's socket implementations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sock {
    Posix,
    Uring,
}

impl Sock {
    pub(crate) const BOTH: [Self; 2] = [Self::Posix, Self::Uring];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Posix => "posix",
            Self::Uring => "uring",
        }
    }
}

/// The target. If pinned, it is pinned to processor 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The host needs none.
    None,
    /// `ebof serve`; `None` is its default number of threads.
    Ebof { drive: Drive, threads: Option<u16> },
    /// `nvmf_tgt`.
    Spdk { sock: Sock, drive: Drive },
    /// NBD from memory.
    Nbdkit,
    /// NBD from a file in memory.
    QemuNbd,
    /// iSCSI from a file in memory.
    Tgt,
}

/// The host. If pinned, it is pinned to processor 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// Both ends of raw TCP, on these processors for each connection.
    Raw(&'static [usize]),
    /// The same with the payloads in as much memory as the drive has.
    RawMemory(&'static [usize]),
    /// `ebof bench`.
    Ebof,
    /// The same with a thread on the second processor of each pair; the target is on the first
    /// ones.
    EbofOn(&'static [[usize; 2]]),
    /// One thread that uses all connections: the example `techniques`.
    EbofOneThread,
    /// `spdk_nvme_perf`.
    Spdk(Sock),
    /// fio's NBD engine.
    FioNbd,
    /// fio on the file itself, with this engine.
    FioFile(&'static str),
    /// fio on the namespace as a local block device.
    FioDevice,
    /// `iscsi-perf`.
    Iscsi,
    /// `ebof bench --hold`: this many controllers, nothing else.
    Hold(u16),
}

/// The scheduling of a scenario's processes, the same for all subjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// Target on processor 0, host on processor 1, both with priority over everything else there
    /// (`SCHED_RR` if permitted).
    Pinned,
    /// Pinned likewise, with a high share, but without priority over the kernel's own threads,
    /// which disks need.
    PinnedShare,
    /// Not pinned, with a high share.
    Free,
    /// Not pinned, with normal priority.
    Plain,
    /// With normal priority, beside programs that compute.
    Shared(Shared),
}

/// Processors that programs use which compute without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared {
    /// The processors of target and host, which the programs share in turns; `None`: nothing is
    /// pinned.
    pub(crate) ends: Option<[usize; 2]>,
    pub(crate) programs: usize,
    /// The programs' nice value.
    pub(crate) nice: u8,
}

/// One of the programs that are compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) target: Target,
    pub(crate) host: Host,
    /// Differs between the subjects of a scenario that compares numbers of connections.
    pub(crate) load: Load,
}

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    /// Operations per second.
    Iops,
    /// Mean latency in microseconds.
    MeanUs,
    /// CPU time of both ends per operation, in microseconds.
    CpuUsPerIo,
    /// CPU time of the target, in percent of one processor.
    TargetCpuPercent,
    /// The same of the host.
    HostCpuPercent,
    /// Time that the hypervisor took from all processors during the run, in percent of all their
    /// time.
    StealPercent,
}

impl Metric {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Iops => "iops",
            Self::MeanUs => "mean_us",
            Self::CpuUsPerIo => "cpu_us_per_io",
            Self::TargetCpuPercent => "target_cpu_percent",
            Self::HostCpuPercent => "host_cpu_percent",
            Self::StealPercent => "steal_percent",
        }
    }

    /// Whether more is better.
    pub(crate) const fn more_is_better(self) -> bool {
        matches!(self, Self::Iops)
    }
}

/// The goal for a ratio, or for a single metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// Only shown.
    Shown,
}

impl Goal {
    /// `None` without a goal.
    pub(crate) fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtLeast(least) => Some(value >= least),
            Self::AtMost(most) => Some(value <= most),
            Self::Shown => None,
        }
    }
}

/// A line of the table of ratios.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) metric: Metric,
    /// Names of subjects, of which the best one counts.
    pub(crate) of: Vec<String>,
    /// Names of subjects, of which the best one counts; empty for a single metric.
    pub(crate) against: Vec<String>,
    pub(crate) goal: Goal,
}

/// Subjects that are measured alternately.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) schedule: Schedule,
    pub(crate) subjects: Vec<Subject>,
    pub(crate) comparisons: Vec<Comparison>,
}
