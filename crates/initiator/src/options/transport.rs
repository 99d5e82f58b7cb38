//! The transport of a connection.

use std::fmt;
use std::io;
use std::sync::Arc;

use ebof_loopback::Port;
use ebof_nvme::uri;
use ebof_sockets::Stream;
use ebof_verbs::Network;

/// How a target is reached.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Transport {
    /// NVMe/TCP, over a socket to [`crate::Options::traddr`].
    #[default]
    Tcp,
    /// NVMe/RDMA, over the adapters of this machine, to [`crate::Options::traddr`]. Options of TCP
    /// ([`crate::Overrides::tcp_option`]) have no effect. Connecting fails with
    /// [`crate::ConnectErrorKind::NoRdma`] where rdma-core's libraries are not installed.
    Rdma,
    /// A target in the same process, without sockets. Options of TCP (digests, zero-copy send and
    /// so on) have no effect.
    Loopback(Port),
    /// NVMe/TCP over byte streams that the caller provides, such as those of a simulation.
    Streams(Dialer),
    /// NVMe/RDMA over a network that the caller provides, such as a simulated one.
    QueuePairs(Network),
}

impl Transport {
    /// The protocol, as URIs and texts name it; in-memory and stepped connections have that of TCP.
    #[must_use]
    pub const fn protocol(&self) -> uri::Transport {
        match self {
            Self::Rdma | Self::QueuePairs(_) => uri::Transport::Rdma,
            Self::Tcp | Self::Loopback(_) | Self::Streams(_) => uri::Transport::Tcp,
        }
    }
}

impl From<uri::Transport> for Transport {
    fn from(transport: uri::Transport) -> Self {
        match transport {
            uri::Transport::Tcp => Self::Tcp,
            uri::Transport::Rdma => Self::Rdma,
        }
    }
}

/// Opens the byte streams of connections.
#[derive(Clone)]
pub struct Dialer(Arc<Dial>);

type Dial = dyn Fn() -> io::Result<Stream> + Send + Sync;

impl Dialer {
    /// `dial` is called for every connection: for the Admin Queue, for each I/O queue, and again
    /// after a loss. It must not block; a stream may be returned before its handshake is complete.
    /// Its [`io::Error`]s are those of connect(2): refused, unreachable and so on.
    pub fn new(dial: impl Fn() -> io::Result<Stream> + Send + Sync + 'static) -> Self {
        Self(Arc::new(dial))
    }

    pub(crate) fn dial(&self) -> io::Result<Stream> {
        (self.0)()
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}
