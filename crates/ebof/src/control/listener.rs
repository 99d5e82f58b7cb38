//! The listener of the control socket: connections have limits ([`crate::doors::limits`]), by
//! process. Who may connect at all is decided by the permissions of the socket's file.

use std::io;
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use ebof_manage::api::Asker;
use tokio::net::unix::UCred;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, sleep};

use crate::doors::limits::{Connection, ConnectionLimits, ERROR_PAUSE, LOG_INTERVAL, is_of_one_connection};

/// The most connections.
pub(super) const CONNECTIONS: usize = 64;

/// The longest lifetime of a connection, with all its requests: longer than a request for a task
/// may wait.
pub(super) const LIFETIME: Duration = Duration::from_secs(60);

/// A listener with limits.
pub(super) struct Listener {
    inner: UnixListener,
    /// By process.
    limits: ConnectionLimits<Option<i32>>,
    logged_at: Option<Instant>,
}

impl Listener {
    pub(super) fn new(inner: UnixListener, lifetime: Duration) -> Self {
        Self { inner, limits: ConnectionLimits::new(CONNECTIONS / 2, CONNECTIONS, lifetime), logged_at: None }
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
    type Addr = LocalPeer;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            match self.inner.accept().await {
                Ok((stream, _)) => {
                    let peer = LocalPeer(stream.peer_cred().ok());
                    return (self.limits.admit(stream, peer.process()), peer);
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
        Ok(LocalPeer(None))
    }
}

/// The process at the other end of a connection, as the system told it when it connected
/// (`SO_PEERCRED`).
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalPeer(Option<UCred>);

impl LocalPeer {
    fn process(self) -> Option<i32> {
        self.0.and_then(|peer| peer.pid())
    }

    /// It as one who asks for changes.
    pub(super) fn asker(self) -> Asker {
        // Nobody is more trusted for what is not known of them: whoever may connect may do all.
        let uid = self.0.map_or(u32::MAX, |peer| peer.uid());
        let pid = self.process();
        let name = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
        let program = name.map(|name| name.trim_end().chars().filter(|c| !c.is_control()).collect());
        Asker::Local { uid, pid, program }
    }
}

impl Connected<IncomingStream<'_, Listener>> for LocalPeer {
    fn connect_info(stream: IncomingStream<'_, Listener>) -> Self {
        *stream.remote_addr()
    }
}
