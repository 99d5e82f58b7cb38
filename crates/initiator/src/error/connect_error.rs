//! Why a connection could not be made: what was tried, what the peer answered, what to do. The
//! texts are in `error/connect_error/text.rs`.

mod text;

use std::fmt;
use std::net::SocketAddr;

use ebof_authentication::Explanation;
use ebof_authentication::host::Refusal;
use ebof_nvme::uri::Transport;
use ebof_nvme::{Nqn, Status};
use ebof_rdma::private_data::RejectStatus;
use ebof_tcp::Termination;
use rustix::io::Errno;

pub(crate) use text::errno_text;

/// Why a connection could not be made. `Display` gives several lines: what failed, then `tried:`,
/// `answer:` and `to do:`.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectError(Box<Failure>);

#[derive(Clone, PartialEq, Eq)]
struct Failure {
    kind: ConnectErrorKind,
    tried: Tried,
}

/// What was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Address or host name as given.
    pub traddr: String,
    /// Port.
    pub trsvcid: u16,
    /// The protocol of the transport.
    pub transport: Transport,
    /// The address that the name meant, once known.
    pub address: Option<SocketAddr>,
    /// The subsystem.
    pub nqn: Nqn,
    /// The host.
    pub host_nqn: Nqn,
    /// The queue: 0 is the Admin Queue.
    pub queue: u16,
    /// The step that failed.
    pub step: Step,
}

/// The steps of a connection, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Reading this host's keys for TLS.
    Keys,
    /// Looking up the name.
    Resolve,
    /// The TCP handshake.
    Tcp,
    /// RDMA: finding the adapter for the address, and the route.
    Address,
    /// RDMA: making the queue pair and its memory.
    QueuePair,
    /// RDMA: the connection manager's handshake, which is NVMe/RDMA's, too.
    Rdma,
    /// The handshake of TLS.
    Tls,
    /// `ICReq` and `ICResp`, NVMe/TCP's own handshake.
    Init,
    /// The Connect command.
    Connect,
    /// Authentication (DH-HMAC-CHAP).
    Authenticate,
    /// Reading properties and enabling the controller.
    Enable,
    /// Identify and the other commands that follow.
    Identify,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// The host name means no address.
    NameNotResolved {
        /// What the resolver said.
        reason: String,
    },
    /// The local address or interface cannot be used.
    LocalAddress {
        /// `--host-traddr` or `--host-iface`, and its value.
        option: String,
        /// The operating system's answer.
        errno: Errno,
    },
    /// The system refused a socket option.
    SocketOption {
        /// The option and its value.
        option: String,
        /// The operating system's answer.
        errno: Errno,
    },
    /// Nobody listens there.
    Refused,
    /// No way there.
    Unreachable {
        /// The operating system's answer.
        errno: Errno,
    },
    /// No answer in time.
    TimedOut {
        /// The time waited.
        after_ms: u64,
    },
    /// The peer closed the connection before ICResp.
    ClosedDuringInit {
        /// Whether with a reset.
        reset: bool,
    },
    /// The peer does not speak NVMe/TCP.
    NotNvme {
        /// The first bytes that came, at most 64.
        first_bytes: Vec<u8>,
    },
    /// This machine has no RDMA: rdma-core is not installed.
    NoRdma {
        /// What is missing.
        reason: String,
    },
    /// No RDMA adapter of this machine reaches the address.
    NoRdmaDevice {
        /// What the connection manager said.
        reason: String,
    },
    /// The RDMA adapter is too small for the queue.
    RdmaLimit {
        /// Of what there is not enough.
        reason: String,
    },
    /// The target rejected the queue in the RDMA handshake.
    Rejected {
        /// What the target rejects it with.
        status: RejectStatus,
    },
    /// The other end's connection manager rejected the connection, or its program without a word of
    /// NVMe/RDMA.
    RejectedByManager {
        /// InfiniBand's reason, or a negative error number with iWARP.
        reason: i32,
    },
    /// The RDMA connection was made, and failed.
    RdmaFailed {
        /// What of it.
        reason: String,
    },
    /// The target does not grant a requested digest.
    DigestRefused {
        /// The header digest was refused.
        header: bool,
        /// The data digest was refused.
        data: bool,
    },
    /// The target knows no such subsystem (or hides it from this host).
    WrongNqn,
    /// The subsystem does not admit this host.
    HostNotAllowed,
    /// No controller is free, or the subsystem is busy.
    ControllerBusy {
        /// The status.
        status: Status,
    },
    /// Another parameter of Connect is refused.
    InvalidParameter {
        /// Whether the field is in Connect's data (else in the command).
        in_data: bool,
        /// Its byte offset.
        offset: u16,
        /// The status.
        status: Status,
    },
    /// The NQN is a discovery service's; an I/O subsystem was expected.
    IsDiscovery,
    /// The NQN is an I/O subsystem's; a discovery service was expected.
    NotDiscovery,
    /// The target requires authentication, and this host has no secret.
    AuthenticationRequired,
    /// The target requires authentication with secure channel concatenation.
    SecureChannelRequired,
    /// The target asks for no authentication, by which a key for TLS would have been generated.
    AuthenticationNotOffered,
    /// The target wants no authentication, in which it would have to prove itself.
    NotProven,
    /// A secret of this host cannot be used.
    Key(String),
    /// The host was not authenticated, or does not accept the target.
    Authentication(Refusal),
    /// TLS could not be agreed on.
    Tls {
        /// What ended the first handshake, in words.
        reason: String,
        /// How many names and derivations of the key were tried.
        tries: usize,
        /// The peer has closed all connections without a word.
        is_silent: bool,
    },
    /// The port demands TLS, and the connection began without.
    TlsRequired {
        /// The alert of TLS that says so, as far as it came.
        alert: Option<u8>,
        /// Whether it was to go on with TLS (`--concat`).
        concat: bool,
    },
    /// The target speaks NVMe/TCP without TLS at this port.
    NoTls,
    /// The discovery log has changed and has to be read again.
    RestartDiscovery,
    /// The discovery log changed before it was read completely, at every try.
    LogChanges,
    /// A command was refused with another status.
    Status {
        /// The command.
        command: &'static str,
        /// The status.
        status: Status,
    },
    /// The peer closed the connection after the NVMe/TCP handshake.
    Closed {
        /// The error, unless it was a graceful close.
        errno: Option<Errno>,
    },
    /// The target ended the connection and said why.
    Terminated(Termination),
    /// The target violated the protocol.
    Protocol {
        /// What.
        violation: String,
    },
    /// The controller never became ready.
    NotReady {
        /// The CSTS property, as last seen.
        csts: u32,
        /// The time waited.
        after_ms: u64,
    },
    /// The controller lacks what is needed.
    Unsupported {
        /// What.
        what: &'static str,
    },
    /// The operating system refused something.
    System {
        /// What was tried.
        action: &'static str,
        /// The answer.
        errno: Errno,
    },
    /// Disconnected while connecting.
    Cancelled,
}

impl ConnectError {
    pub(crate) fn new(kind: ConnectErrorKind, tried: Tried) -> Self {
        Self(Box::new(Failure { kind, tried }))
    }

    /// A system call that connecting needs has failed.
    pub(crate) fn system(tried: Tried, action: &'static str, errno: Errno) -> Self {
        Self::new(ConnectErrorKind::System { action, errno }, tried)
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> &ConnectErrorKind {
        &self.0.kind
    }

    /// What was tried.
    #[must_use]
    pub fn tried(&self) -> &Tried {
        &self.0.tried
    }

    /// The first line: what failed.
    #[must_use]
    pub fn summary(&self) -> String {
        text::summary(&self.0.kind, &self.0.tried)
    }

    /// What was tried, in words.
    #[must_use]
    pub fn tried_text(&self) -> String {
        text::tried(&self.0.tried)
    }

    /// What the peer, the network or the system answered, in words.
    #[must_use]
    pub fn answer(&self) -> String {
        text::answer(&self.0.kind, &self.0.tried)
    }

    /// What to do about it.
    #[must_use]
    pub fn to_do(&self) -> String {
        text::to_do(&self.0.kind, &self.0.tried)
    }

    /// Whether a retry may succeed: the peer may be starting or the network recovering.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        use ConnectErrorKind as K;
        match self.kind() {
            K::Refused
            | K::Unreachable { .. }
            | K::TimedOut { .. }
            | K::ClosedDuringInit { .. }
            | K::Closed { .. }
            | K::RdmaFailed { .. }
            | K::Terminated(_)
            | K::ControllerBusy { .. }
            | K::NotReady { .. }
            | K::NameNotResolved { .. }
            | K::RejectedByManager { .. }
            | K::Rejected { status: RejectStatus::NO_RESOURCES }
            // A device that comes back after it was reset.
            | K::NoRdmaDevice { .. }
            // One end has a new secret, and the other will.
            | K::Key(_)
            | K::Tls { .. }
            // Somebody changes the port.
            | K::TlsRequired { .. }
            | K::NoTls
            | K::Authentication(Refusal::ByController { explanation: Explanation::AuthenticationFailed })
            | K::System { .. } => true,
            K::Status { status, .. } => !status.is_dnr(),
            _ => false,
        }
    }
}

impl ConnectErrorKind {
    /// The kind in kebab-case, for output that programs read. Stable.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NameNotResolved { .. } => "name-not-resolved",
            Self::LocalAddress { .. } => "local-address",
            Self::SocketOption { .. } => "socket-option",
            Self::Refused => "refused",
            Self::Unreachable { .. } => "unreachable",
            Self::TimedOut { .. } => "timed-out",
            Self::ClosedDuringInit { .. } => "closed-during-init",
            Self::NotNvme { .. } => "not-nvme",
            Self::NoRdma { .. } => "no-rdma",
            Self::NoRdmaDevice { .. } => "no-rdma-device",
            Self::RdmaLimit { .. } => "rdma-limit",
            Self::Rejected { .. } => "rejected",
            Self::RejectedByManager { .. } => "rejected-by-manager",
            Self::RdmaFailed { .. } => "rdma-failed",
            Self::DigestRefused { .. } => "digest-refused",
            Self::WrongNqn => "wrong-nqn",
            Self::HostNotAllowed => "host-not-allowed",
            Self::ControllerBusy { .. } => "controller-busy",
            Self::InvalidParameter { .. } => "invalid-parameter",
            Self::IsDiscovery => "is-discovery",
            Self::NotDiscovery => "not-discovery",
            Self::AuthenticationRequired => "authentication-required",
            Self::SecureChannelRequired => "secure-channel-required",
            Self::AuthenticationNotOffered => "authentication-not-offered",
            Self::NotProven => "not-proven",
            Self::Key(_) => "key",
            Self::Authentication(_) => "authentication",
            Self::Tls { .. } => "tls",
            Self::TlsRequired { .. } => "tls-required",
            Self::NoTls => "no-tls",
            Self::RestartDiscovery => "restart-discovery",
            Self::LogChanges => "log-changes",
            Self::Status { .. } => "status",
            Self::Closed { .. } => "closed",
            Self::Terminated(_) => "terminated",
            Self::Protocol { .. } => "protocol-violation",
            Self::NotReady { .. } => "not-ready",
            Self::Unsupported { .. } => "unsupported",
            Self::System { .. } => "system",
            Self::Cancelled => "cancelled",
        }
    }
}

impl Step {
    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keys => "reading this host's keys, for TLS",
            Self::Resolve => "name lookup",
            Self::Tcp => "TCP connect",
            Self::Address => "RDMA address and route",
            Self::QueuePair => "making an RDMA queue pair",
            Self::Rdma => "RDMA connect",
            Self::Tls => "TLS handshake",
            Self::Init => "NVMe/TCP handshake (ICReq)",
            Self::Connect => "Connect command",
            Self::Authenticate => "authentication (DH-HMAC-CHAP)",
            Self::Enable => "enabling the controller",
            Self::Identify => "identifying the controller",
        }
    }
}

/// One line; with `{:#}` also what was tried, what came back and what to do, a line each.
impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return f.write_str(&self.summary());
        }
        writeln!(f, "{}", self.summary())?;
        writeln!(f, "  tried:  {}", self.tried_text())?;
        writeln!(f, "  answer: {}", self.answer())?;
        write!(f, "  to do:  {}", self.to_do())
    }
}

impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectError").field("kind", &self.0.kind).field("tried", &self.0.tried).finish()
    }
}

impl std::error::Error for ConnectError {}
