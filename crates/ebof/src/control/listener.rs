//! The listener of the control socket: connections have limits ([`crate::limits`]), by process. Who
//! may connect at all is decided by the permissions of the socket's file.

use std::io;
use std::time::Duration;

use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, sleep};

use crate::limits::{Connection, ERROR_PAUSE, LOG_INTERVAL, Limits, is_of_one_connection};

/// The most connections.
pub(super) const CONNECTIONS: usize = 64;

/// The longest lifetime of a connection, with all its requests: longer than a request for a task
/// may wait.
pub(super) const LIFETIME: Duration = Duration::from_secs(60);

/// A listener with limits.
pub(super) struct Listener {
    inner: UnixListener,
    /// By process.
    limits: Limits<Option<i32>>,
    logged_at: Option<Instant>,
}

impl Listener {
    pub(super) fn new(inner: UnixListener, lifetime: Duration) -> Self {
        Self { inner, limits: Limits::new(CONNECTIONS / 2, CONNECTIONS, lifetime), logged_at: None }
    }

    fn log_limited(&mut self, message: &str) {
        let now = Instant::now();
        if self.logged_at.is_none_or(|logged_at| now.duration_since(logged_at) >= LOG_INTERVAL) {
            self.logged_at = Some(now);
            tracing::error!("{message}");
        }
    }
}

impl axum::serve::Listener for Listener {
    type Io = Connection<UnixStream, Option<i32>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.inner.accept().await {
                Ok((stream, address)) => {
                    let process = stream.peer_cred().ok().and_then(|peer| peer.pid());
                    return (self.limits.admit(stream, process), address);
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    self.log_limited(&format!("accepting at the control socket rests for {ERROR_PAUSE:?}: {error}"));
                    sleep(ERROR_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.inner.local_addr()
    }
}
