//! The transport of a connection.

use std::fmt;
use std::io;
use std::sync::Arc;

use ebof_loopback::Port;
use ebof_sockets::Stream;

/// How a target is reached.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Transport {
    /// NVMe/TCP, over a socket to [`crate::Options::traddr`].
    #[default]
    Tcp,
    /// A target in the same process, without sockets. Options of TCP (digests, zero-copy send and
    /// so on) have no effect.
    Loopback(Port),
    /// NVMe/TCP over byte streams that the caller provides, such as those of a simulation.
    Streams(Dialer),
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
