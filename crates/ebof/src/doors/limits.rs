//! Limits of an endpoint's connections: how many there are and how long they live, so that silent
//! peers do not keep others out.
//!
//! A new connection is always accepted. If there are too many, the oldest one is closed: first of
//! those from the same peer, then of all. One whose user is known ([`Connection::known_flag`]) is
//! closed only if there are no others, so that strangers do not end what users have open.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Pause of accepting after an error, such as no free descriptor.
pub(crate) const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Interval between log lines about that.
pub(crate) const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The nice value of threads that serve management: those that serve hosts go first.
const NICE: i32 = 10;

/// Has the calling thread stand back behind those that serve hosts.
pub(crate) fn stand_back() {
    // setpriority(2), "C library/kernel differences": 0 is the calling thread.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "management has the priority of what serves hosts");
    }
}

/// The connections of an endpoint, by peer.
pub(crate) struct ConnectionLimits<K> {
    open: Arc<Open<K>>,
    per_peer: usize,
    connections: usize,
    lifetime: Duration,
}

/// The connections, the oldest first.
struct Open<K>(Mutex<VecDeque<Arc<Gate<K>>>>);

/// Closes a connection from outside of its task.
struct Gate<K> {
    peer: K,
    known: Arc<AtomicBool>,
    state: Mutex<GateState>,
}

#[derive(Default)]
struct GateState {
    cut: bool,
    /// The waker of the connection's task.
    waker: Option<Waker>,
}

/// A connection with a limited lifetime.
pub(crate) struct Connection<S, K: PartialEq> {
    stream: S,
    gate: Arc<Gate<K>>,
    end: Pin<Box<Sleep>>,
    open: Arc<Open<K>>,
}

impl<K: PartialEq> ConnectionLimits<K> {
    /// At most so many connections, and so many of one peer, each for so long, with all its
    /// requests.
    pub(crate) fn new(per_peer: usize, connections: usize, lifetime: Duration) -> Self {
        Self { open: Arc::new(Open(Mutex::default())), per_peer, connections, lifetime }
    }

    /// Adds a connection, and closes the oldest ones if there are too many.
    pub(crate) fn admit<S>(&self, stream: S, peer: K) -> Connection<S, K> {
        let mut open = self.open.lock();
        let same = |gate: &Gate<K>| gate.peer == peer;
        if open.iter().filter(|gate| same(gate)).count() >= self.per_peer {
            cut_oldest(&mut open, same);
        }
        while open.len() >= self.connections {
            cut_oldest(&mut open, |_| true);
        }
        let gate = Arc::new(Gate { peer, known: Arc::default(), state: Mutex::default() });
        open.push_back(Arc::clone(&gate));
        let end = Box::pin(sleep_until(Instant::now() + self.lifetime));
        Connection { stream, gate, end, open: Arc::clone(&self.open) }
    }
}

/// Closes the oldest one of those that `applies` to, whose user is not known if there is such a
/// one.
fn cut_oldest<K>(open: &mut VecDeque<Arc<Gate<K>>>, applies: impl Fn(&Gate<K>) -> bool) {
    let unknown = open.iter().position(|gate| applies(gate) && !gate.known.load(Ordering::Relaxed));
    let oldest = unknown.or_else(|| open.iter().position(|gate| applies(gate)));
    if let Some(gate) = oldest.and_then(|at| open.remove(at)) {
        gate.cut();
    }
}

/// Whether the error concerns one connection only, such as a reset before it was accepted.
pub(crate) fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

impl<K> Open<K> {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Gate<K>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unregister(&self, gate: &Arc<Gate<K>>) {
        self.lock().retain(|open| !Arc::ptr_eq(open, gate));
    }
}

impl<K> Gate<K> {
    fn cut(&self) {
        let waker = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.cut = true;
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<S, K: PartialEq> Connection<S, K> {
    /// To be set once the user is known.
    pub(crate) fn known_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.gate.known)
    }

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

impl<S, K: PartialEq> Drop for Connection<S, K> {
    fn drop(&mut self) {
        self.open.unregister(&self.gate);
    }
}

impl<S: AsyncRead + Unpin, K: PartialEq> AsyncRead for Connection<S, K> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin, K: PartialEq> AsyncWrite for Connection<S, K> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn strangers_do_not_end_the_connections_of_users() {
        let limits = ConnectionLimits::new(2, 4, Duration::from_secs(3600));
        let mut user = limits.admit(tokio::io::empty(), 1);
        user.known_flag().store(true, Ordering::Relaxed);
        let mut others: Vec<_> = (1..20).map(|peer| limits.admit(tokio::io::empty(), peer)).collect();
        let is_open =
            |connection: &mut Connection<_, _>| connection.check(&mut Context::from_waker(Waker::noop())).is_ok();
        assert!(is_open(&mut user));
        assert_eq!(others.iter_mut().filter_map(|it| is_open(it).then_some(())).count(), 3);
        // Users among themselves: the oldest.
        others.iter().for_each(|it| it.known_flag().store(true, Ordering::Relaxed));
        let _another = limits.admit(tokio::io::empty(), 99);
        assert!(!is_open(&mut user));
    }
}
