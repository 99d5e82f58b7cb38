//! The kinds of settings: their names, why each is recommended, and who says so.

/// A kind of setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tunable {
    /// Whether irqbalance moves interrupts about.
    Irqbalance,
    /// The cores that serve a network card's interrupts.
    Interrupts,
    /// The frequency governor of a core.
    Governor,
    /// Adaptive coalescing of received packets.
    AdaptiveRx,
    /// Queues of a network card.
    NicQueues,
    /// Receive packet steering: cores that process a receive queue's packets.
    Rps,
    /// Transmit packet steering: cores that send through a queue.
    Xps,
    /// The largest packet.
    Mtu,
    /// Busy polling of sockets by `poll` and `select`, and by reads.
    BusyPoll,
    /// The largest buffers of sockets.
    SocketBuffers,
    /// Pause frames on a link with RoCE.
    Pause,
    /// Priority flow control on a link with RoCE.
    Pfc,
    /// Congestion control of RoCE by ECN.
    RoceEcn,
    /// Frames that RoCE has lost.
    RoceLoss,
    /// How the kernel's host registers memory for RDMA.
    RegisterAlways,
    /// I/O queues of a controller of the kernel's host.
    NvmeQueues,
    /// The I/O scheduler of a drive.
    Scheduler,
}

/// ODCC-2021-05008, the white paper on Ethernet SSDs.
const WHITE_PAPER: &str = "white paper ODCC-2021-05008, 6.3";
/// The talk of NVMe/TCP's co-author.
const TALK: &str = "S. Grimberg, talk on accelerating NVMe/TCP";

impl Tunable {
    /// Its name, for programs and for people. Stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Irqbalance => "irqbalance",
            Self::Interrupts => "interrupts",
            Self::Governor => "governor",
            Self::AdaptiveRx => "adaptive-rx",
            Self::NicQueues => "nic-queues",
            Self::Rps => "rps",
            Self::Xps => "xps",
            Self::Mtu => "mtu",
            Self::BusyPoll => "busy-poll",
            Self::SocketBuffers => "socket-buffers",
            Self::Pause => "pause",
            Self::Pfc => "pfc",
            Self::RoceEcn => "roce-ecn",
            Self::RoceLoss => "roce-loss",
            Self::RegisterAlways => "register-always",
            Self::NvmeQueues => "nvme-queues",
            Self::Scheduler => "scheduler",
        }
    }

    /// Why there is a recommendation.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            Self::Irqbalance => "it moves interrupts away from the cores that they are given here",
            Self::Interrupts => {
                "with RDMA all interrupts on one core, which the load shares, give more bandwidth and IOPS; with TCP each \
                 queue's interrupt belongs on the core whose connections it serves"
            }
            Self::Governor => "a core that is clocked down between two commands takes longer for the next",
            Self::AdaptiveRx => {
                "interrupts that adapt to the load are fewer under load, which is faster; without them latency is more even"
            }
            Self::NicQueues => "a queue for each core lets each core serve its own packets",
            Self::Rps => {
                "packets of a card with fewer queues than cores are spread over the cores by the kernel; with enough queues \
                 that only costs"
            }
            Self::Xps => "each core sends through the queue whose interrupt it serves",
            Self::Mtu => {
                "larger packets cost less per byte, and RoCE's largest transfer unit (4096) does not fit into 1500 bytes"
            }
            Self::BusyPoll => {
                "a reader that polls the card's queue does not wait for an interrupt, and takes a core meanwhile"
            }
            Self::SocketBuffers => {
                "100 Gbit/s for one millisecond are 12.5 MB, which a connection's buffer has to hold"
            }
            Self::Pause => "RoCE without flow control loses frames when a queue is full",
            Self::Pfc => "flow control of RoCE's priority alone does not stop the rest of the link",
            Self::RoceEcn => "senders that are told of congestion slow down before frames are paused or lost",
            Self::RoceLoss => "RoCE repeats everything behind a lost frame: a loss costs milliseconds",
            Self::RegisterAlways => {
                "registering each command's memory costs a work request; without it the target may access all of this \
                 machine's memory"
            }
            Self::NvmeQueues => "a queue for each core: no two cores wait for one connection",
            Self::Scheduler => "a drive that serves many commands at once orders them itself",
        }
    }

    /// Who recommends it.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            Self::Irqbalance | Self::Governor => WHITE_PAPER,
            Self::Interrupts => {
                "white paper ODCC-2021-05008, 6.3 (one core); S. Grimberg, talk on accelerating NVMe/TCP (core by core)"
            }
            Self::AdaptiveRx => {
                "white paper ODCC-2021-05008, 6.3 (off was tried, on is recommended); S. Grimberg, talk on accelerating \
                 NVMe/TCP (latency)"
            }
            Self::NicQueues | Self::NvmeQueues => TALK,
            Self::Rps => "Linux, Documentation/networking/scaling.rst",
            Self::Xps => "S. Grimberg, talk on accelerating NVMe/TCP; Linux, Documentation/networking/scaling.rst",
            Self::Mtu => "RoCE's MTUs; practice for NVMe/TCP",
            Self::BusyPoll => {
                "S. Grimberg, talk on accelerating NVMe/TCP; Linux, Documentation/admin-guide/sysctl/net.rst"
            }
            Self::SocketBuffers => "bandwidth times delay; Linux, Documentation/networking/ip-sysctl.rst",
            Self::Pause => "IEEE 802.3x, practice for RoCE v2",
            Self::Pfc => "IEEE 802.1Qbb, practice for RoCE v2",
            Self::RoceEcn => "DCQCN, RoCE v2",
            Self::RoceLoss => "practice for RoCE v2",
            Self::RegisterAlways => "white paper ODCC-2021-05008, 6.1",
            Self::Scheduler => "Linux, the default for NVMe drives",
        }
    }
}
