//! The listener of the metrics endpoint, which limits the number and lifetime of connections
//! ([`crate::doors::limits`]).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::doors::limits::{Connection, ConnectionLimits, ERROR_PAUSE, LOG_INTERVAL, is_of_one_connection};

/// The most connections from one address.
pub(super) const PER_ADDRESS: usize = 32;

/// The most connections.
const CONNECTIONS: usize = 128;

/// The longest lifetime of a connection, with all its requests.
pub(super) const LIFETIME: Duration = Duration::from_secs(10);

/// A listener with limits.
pub(super) struct Listener {
    inner: TcpListener,
    limits: ConnectionLimits<IpAddr>,
    logged_at: Option<Instant>,
}

impl Listener {
    pub(super) fn new(inner: TcpListener, lifetime: Duration) -> Self {
        Self { inner, limits: ConnectionLimits::new(PER_ADDRESS, CONNECTIONS, lifetime), logged_at: None }
    }

    fn log_limited(&mut self, error: &io::Error) {
        let now = Instant::now();
        if self.logged_at.is_none_or(|logged_at| now.duration_since(logged_at) >= LOG_INTERVAL) {
            self.logged_at = Some(now);
            tracing::error!("accepting connections for metrics rests for {ERROR_PAUSE:?}: {error}");
        }
    }
}

impl axum::serve::Listener for Listener {
    type Io = Connection<TcpStream, IpAddr>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.inner.accept().await {
                Ok((stream, peer)) => return (self.limits.admit(stream, peer.ip().to_canonical()), peer),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    self.log_limited(&error);
                    sleep(ERROR_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.inner.local_addr()
    }
}
