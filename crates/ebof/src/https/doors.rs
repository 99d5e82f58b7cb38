//! Where management listens: each address is opened and closed while the target is served, and comes
//! up without the other.
//!
//! Owns the listening sockets and the thread. A connection goes on when its address is closed.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::Context as _;
use ebof_manage::config::TargetOptions;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::control::Control;
use super::listener::{self, Acceptor, Times};
use super::rates::Rates;
use super::redfish::Redfish;
use super::service::Service;
use super::{Addresses, THREADS_MAX, host_name, renew};
use crate::limits::{self, Limits};
use crate::managed::{Managed, Remote};

/// The backlog of connections that are not accepted yet; the system may limit it further.
const BACKLOG: u32 = 1024;

/// How management is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Https,
    /// Without TLS, for this machine only.
    Http,
}

impl Scheme {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Https, Self::Http];

    fn of(self, options: &TargetOptions) -> Option<SocketAddr> {
        match self {
            Self::Https => options.https,
            Self::Http => options.http,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Https => "https",
            Self::Http => "http",
        })
    }
}

/// The addresses of a target's management.
#[derive(Default)]
pub(crate) struct Doors {
    serving: OnceLock<Serving>,
    doors: Mutex<[Door; 2]>,
}

/// One address.
#[derive(Default)]
struct Door {
    /// Where it is to listen.
    wanted: Option<SocketAddr>,
    /// Whether the command line says so.
    by_command_line: bool,
    open: Option<Open>,
}

/// An address where connections are accepted.
struct Open {
    local: SocketAddr,
    accepting: AbortHandle,
}

/// What serves connections, from the first address on.
struct Serving {
    runtime: Handle,
    tls: Arc<rustls::ServerConfig>,
    service: Arc<Service>,
    limits: Arc<Limits<IpAddr>>,
    new: Arc<Rates<IpAddr>>,
    times: Times,
}

/// Addresses that are listened at, and not served yet: of a configuration that is not in force.
pub(crate) struct Moves(Vec<(Scheme, Option<SocketAddr>, Option<TcpListener>)>);

impl Doors {
    /// Has it listen there, once that is asked for ([`Doors::open`]). `by_command_line` are those
    /// that the configuration cannot change.
    pub(crate) fn want(&self, wanted: Addresses, by_command_line: Addresses) {
        let mut doors = self.doors();
        for (door, (address, named)) in
            doors.iter_mut().zip([(wanted.https, by_command_line.https), (wanted.http, by_command_line.http)])
        {
            (door.wanted, door.by_command_line) = (address, named.is_some());
        }
    }

    /// Starts what serves connections, unless that runs.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn serve(&self, remote: Remote, managed: &Arc<Managed>) -> anyhow::Result<()> {
        self.serve_with(remote, managed, Times::default())
    }

    pub(super) fn serve_with(&self, remote: Remote, managed: &Arc<Managed>, times: Times) -> anyhow::Result<()> {
        if self.serving.get().is_some() {
            return Ok(());
        }
        let tls = remote.identity.server().context("TLS")?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(THREADS_MAX)
            .thread_name("ebof-https-wait")
            .on_thread_start(limits::stand_back)
            .build()?;
        let redfish = Redfish::new(managed, &remote, host_name())?;
        let deliveries = redfish.deliveries(times.delivery);
        let Remote { access, identity, .. } = remote;
        let service = Service::new(access, redfish, Control::new(Arc::clone(managed)), times.body);
        let (limits, new) = listener::limits();
        let serving = Serving { runtime: runtime.handle().clone(), tls, service, limits, new, times };
        let run = move || {
            limits::stand_back();
            runtime.block_on(async move {
                tokio::spawn(deliveries);
                renew(identity).await;
            });
        };
        std::thread::Builder::new().name("ebof-https".to_owned()).spawn(run)?;
        // The only one: starts are one after the other.
        let _set = self.serving.set(serving);
        Ok(())
    }

    /// Listens where it is wanted, unless it does. The answer is where; `None`: nowhere.
    ///
    /// # Errors
    /// The address is not there, or somebody else listens.
    pub(crate) fn open(&self, scheme: Scheme) -> anyhow::Result<Option<SocketAddr>> {
        let serving = self.serving.get().context("management is not served")?;
        let mut doors = self.doors();
        let door = &mut doors[scheme as usize];
        if let Some(open) = &door.open {
            return Ok(Some(open.local));
        }
        let Some(address) = door.wanted else { return Ok(None) };
        let listener = serving.listen(address).with_context(|| format!("listening on {scheme}://{address}"))?;
        let open = serving.accept(scheme, listener)?;
        let local = open.local;
        door.open = Some(open);
        Ok(Some(local))
    }

    /// Listens where another configuration says, for [`Doors::make`].
    ///
    /// # Errors
    /// Why management cannot be moved there, as a sentence.
    pub(crate) fn prepare(&self, now: &TargetOptions, then: &TargetOptions) -> Result<Moves, String> {
        let mut moves = Vec::new();
        for scheme in Scheme::ALL {
            let address = scheme.of(then);
            if address == scheme.of(now) {
                continue;
            }
            if self.doors()[scheme as usize].by_command_line {
                return Err(format!(
                    "the command line names the address of {scheme} (--{scheme}), and would do so at the next start: the \
                     configuration does not change it"
                ));
            }
            let Some(serving) = self.serving.get() else {
                return Err(format!("only a new start can serve {scheme}: the target is not managed over the network"));
            };
            let listen = |address| {
                serving.listen(address).map_err(|error| format!("listening on {scheme}://{address}: {error}"))
            };
            moves.push((scheme, address, address.map(listen).transpose()?));
        }
        Ok(Moves(moves))
    }

    /// Serves where the configuration that is in force now says, and nowhere else.
    pub(crate) fn make(&self, moves: Moves) {
        let Some(serving) = self.serving.get() else { return };
        let mut doors = self.doors();
        for (scheme, address, listener) in moves.0 {
            let door = &mut doors[scheme as usize];
            door.wanted = address;
            let opened = listener.map(|listener| serving.accept(scheme, listener)).transpose();
            let opened = opened.unwrap_or_else(|error| {
                tracing::error!("{scheme} is not served: {error}");
                None
            });
            match &opened {
                Some(open) => tracing::info!("managed at {scheme}://{}", open.local),
                None => tracing::info!("not managed over {scheme} any more"),
            }
            if let Some(before) = std::mem::replace(&mut door.open, opened) {
                before.accepting.abort();
            }
        }
    }

    /// Where it listens, as clients see it.
    pub(super) fn shown(&self) -> ebof_redfish::Doors {
        let doors = self.doors();
        let shown = |door: &Door| ebof_redfish::Door {
            port: door.open.as_ref().map(|open| open.local.port()),
            by_command_line: door.by_command_line,
        };
        ebof_redfish::Doors { https: shown(&doors[0]), http: shown(&doors[1]) }
    }

    fn doors(&self) -> MutexGuard<'_, [Door; 2]> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Serving {
    fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        // The socket belongs to the runtime.
        let _inside = self.runtime.enter();
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    }

    fn accept(&self, scheme: Scheme, listener: TcpListener) -> io::Result<Open> {
        let local = listener.local_addr()?;
        let acceptor = Acceptor {
            listener,
            tls: (scheme == Scheme::Https).then(|| Arc::clone(&self.tls)),
            service: Arc::clone(&self.service),
            limits: Arc::clone(&self.limits),
            new: Arc::clone(&self.new),
            times: self.times,
        };
        Ok(Open { local, accepting: self.runtime.spawn(acceptor.run()).abort_handle() })
    }
}

impl fmt::Debug for Doors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doors").finish_non_exhaustive()
    }
}
