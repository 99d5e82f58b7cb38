//! What a connection to the target is made over.

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
    /// A target in the same process, without sockets. Digests, zero-copy send and what else is
    /// TCP's among the options mean nothing.
    Loopback(Port),
    /// NVMe/TCP, over byte streams that somebody else makes: those of a simulation.
    Streams(Dialer),
}

/// Makes the byte stream of a new connection. Clones make the same.
#[derive(Clone)]
pub struct Dialer(Arc<Dial>);

type Dial = dyn Fn() -> io::Result<Stream> + Send + Sync;

impl Dialer {
    /// `dial` is called for every connection: one for the Admin Queue, one for each I/O queue,
    /// again after a loss. It does not wait: a stream whose handshake takes time has nothing to
    /// receive until then. Refused, unreachable and the like are its [`io::Error`]s.
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
