//! The listener of the metrics endpoint, which limits the number and lifetime of connections, so
//! that silent peers do not keep others out.
//!
//! A new connection is always accepted. If there are too many, the oldest one is closed: first of
//! those from the same address, then of all.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// The most connections from one address.
pub(super) const PER_ADDRESS: usize = 32;

/// The most connections.
pub(super) const CONNECTIONS: usize = 128;

/// The longest lifetime of a connection, with all its requests.
pub(super) const LIFETIME: Duration = Duration::from_secs(10);

/// Pause of accepting after an error, such as no free descriptor.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Interval between log lines about that.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A listener with limits.
pub(super) struct Listener {
    inner: TcpListener,
    open: Arc<Open>,
    lifetime: Duration,
    logged_at: Option<Instant>,
}

/// The connections, the oldest first.
#[derive(Default)]
struct Open(Mutex<VecDeque<Arc<Gate>>>);

/// Closes a connection from outside of its task.
struct Gate {
    address: IpAddr,
    state: Mutex<GateState>,
}

#[derive(Default)]
struct GateState {
    cut: bool,
    /// The waker of the connection's task.
    waker: Option<Waker>,
}

impl Listener {
    pub(super) fn new(inner: TcpListener, lifetime: Duration) -> Self {
        Self { inner, open: Arc::default(), lifetime, logged_at: None }
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
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.inner.accept().await {
                Ok((stream, peer)) => {
                    let gate = self.open.register(peer.ip().to_canonical());
                    let end = Box::pin(sleep_until(Instant::now() + self.lifetime));
                    return (Connection { stream, gate, end, open: Arc::clone(&self.open) }, peer);
                }
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

/// Whether the error concerns one connection only, such as a reset before it was accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

impl Open {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Gate>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, and closes the oldest ones if there are too many.
    fn register(&self, address: IpAddr) -> Arc<Gate> {
        let mut open = self.lock();
        let same = |gate: &&Arc<Gate>| gate.address == address;
        if open.iter().filter(same).count() >= PER_ADDRESS {
            let oldest = open.iter().position(|gate| gate.address == address);
            if let Some(gate) = oldest.and_then(|at| open.remove(at)) {
                gate.cut();
            }
        }
        while open.len() >= CONNECTIONS {
            if let Some(gate) = open.pop_front() {
                gate.cut();
            }
        }
        let gate = Arc::new(Gate { address, state: Mutex::default() });
        open.push_back(Arc::clone(&gate));
        gate
    }

    fn unregister(&self, gate: &Arc<Gate>) {
        self.lock().retain(|open| !Arc::ptr_eq(open, gate));
    }
}

impl Gate {
    fn cut(&self) {
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.cut = true;
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// A connection with a limited lifetime.
pub(super) struct Connection {
    stream: TcpStream,
    gate: Arc<Gate>,
    end: Pin<Box<Sleep>>,
    open: Arc<Open>,
}

impl Connection {
    /// An error if the lifetime is over or the connection was closed; otherwise the task is woken
    /// when that happens.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        {
            let mut state = self.gate.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.cut {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            state.waker = Some(context.waker().clone());
        }
        match self.end.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.unregister(&self.gate);
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
