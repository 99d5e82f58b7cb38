//! The words of a measurement: what is done, who does it to whom. Owns no process and no figure.

/// What the host does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) rw: Rw,
    pub(crate) block_bytes: u32,
    /// Operations outstanding on each connection.
    pub(crate) depth: u16,
    /// Connections, each with a thread of the host.
    pub(crate) connections: u16,
    /// Header and data digests.
    pub(crate) digests: bool,
}

impl Load {
    pub(crate) const fn new(rw: Rw, block_bytes: u32, depth: u16) -> Self {
        Self { rw, block_bytes, depth, connections: 1, digests: false }
    }
}

/// In fio's words, which all tools understand.
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

    pub(crate) const fn is_random(self) -> bool {
        matches!(self, Self::RandRead | Self::RandWrite)
    }
}

/// What a target serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drive {
    /// [`super::MEMORY_MIB`] of memory.
    Memory,
    /// Nothing, of the same size.
    Null,
    /// The file of the run, without the page cache.
    File,
}

/// How SPDK talks to sockets.
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

/// Who serves. A target that is pinned is pinned to processor 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The host needs none.
    None,
    /// `ebof serve`; without a number of threads as it comes.
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

/// Who asks. A host that is pinned is pinned to processor 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// Both ends of raw TCP, connection by connection on these processors.
    Raw(&'static [usize]),
    /// `ebof bench`.
    Ebof,
    /// `spdk_nvme_perf`.
    Spdk(Sock),
    /// fio's NBD engine.
    FioNbd,
    /// fio on the file itself, with this engine.
    FioFile(&'static str),
    /// `iscsi-perf`.
    Iscsi,
    /// `ebof bench --hold`: this many controllers, nothing else.
    Hold(u16),
}

/// How the processes of a measurement are scheduled. All subjects of a scenario alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// Target on processor 0, host on processor 1, both before anything else that runs there
    /// (`SCHED_FIFO` where allowed).
    Pinned,
    /// Pinned likewise, with a high share but not before the kernel's own threads, which disks
    /// need.
    PinnedShare,
    /// Where the system puts them, with a high share.
    Free,
    /// As anything else.
    Plain,
}

/// One of those that are compared.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) target: Target,
    pub(crate) host: Host,
    /// Differs from that of the scenario where connections are what is compared.
    pub(crate) load: Load,
}

/// A figure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    /// Operations per second.
    Iops,
    /// Mean latency in microseconds.
    MeanUs,
    /// Processor time of both ends for one operation, in microseconds.
    CpuUsPerIo,
    /// Processor time of the target, in percent of one processor.
    TargetCpuPercent,
    /// The same of the host.
    HostCpuPercent,
}

impl Metric {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Iops => "iops",
            Self::MeanUs => "mean_us",
            Self::CpuUsPerIo => "cpu_us_per_io",
            Self::TargetCpuPercent => "target_cpu_percent",
            Self::HostCpuPercent => "host_cpu_percent",
        }
    }

    /// Whether more is better.
    pub(crate) const fn more_is_better(self) -> bool {
        matches!(self, Self::Iops)
    }
}

/// What a ratio, or a figure by itself, is to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// Shown, not judged.
    Shown,
}

impl Goal {
    /// `None` where nothing is promised.
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
    /// A subject's name; of several the best.
    pub(crate) of: Vec<String>,
    /// The best of these counts; none of them: the figure by itself.
    pub(crate) against: Vec<String>,
    pub(crate) goal: Goal,
}

/// Subjects that are measured in turns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) schedule: Schedule,
    pub(crate) subjects: Vec<Subject>,
    pub(crate) comparisons: Vec<Comparison>,
}
