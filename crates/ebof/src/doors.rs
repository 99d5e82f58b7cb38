//! Where management listens: each address is opened and closed while the target is served, and
//! comes up without the other.
//!
//! Owns the addresses and the listening sockets; what serves connections is [`Serves`]. A
//! connection goes on when its address is closed, within the limits of `doors/limits.rs`.

pub(crate) mod limits;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::Context as _;
use ebof_cli::Failure;
use ebof_manage::config::TargetOptions;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// Where to serve.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) https: Option<SocketAddr>,
    /// Without TLS, for this machine only.
    pub(crate) http: Option<SocketAddr>,
}

impl Addresses {
    /// Whether anything is to be served.
    ///
    /// # Errors
    /// What is not encrypted would leave the machine.
    pub(crate) fn check(&self) -> Result<bool, Failure> {
        match self.http {
            Some(address) if !address.ip().to_canonical().is_loopback() => Err(Failure::new(
                "value",
                format!("http://{address} could be reached by others, and passwords would be readable on the way"),
                "use --https ADDRESS:PORT there, and --http with a loopback address such as 127.0.0.1:8080",
            )),
            http => Ok(self.https.or(http).is_some()),
        }
    }
}

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

    fn address_in(self, options: &TargetOptions) -> Option<SocketAddr> {
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
    serving: OnceLock<Box<dyn Serves>>,
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
pub(crate) trait Serves: Send + Sync {
    /// Listens, without accepting anything.
    ///
    /// # Errors
    /// The address is not there, or somebody else listens.
    fn listen(&self, address: SocketAddr) -> io::Result<TcpListener>;

    /// Accepts connections from now on. The answer ends that.
    fn accept(&self, scheme: Scheme, listener: TcpListener) -> AbortHandle;
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

    /// Whether there is something that serves connections.
    pub(crate) fn is_served(&self) -> bool {
        self.serving.get().is_some()
    }

    /// Sets what serves connections; the first counts.
    pub(crate) fn serve(&self, serving: impl Serves + 'static) {
        let _set = self.serving.set(Box::new(serving));
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
        let listener = serving.listen(address).map_err(|error| refused(&format!("{scheme}://{address}"), &error))?;
        let open = accept(serving.as_ref(), scheme, listener)?;
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
            let address = scheme.address_in(then);
            if address == scheme.address_in(now) {
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
                serving.listen(address).map_err(|error| refused(&format!("{scheme}://{address}"), &error).to_string())
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
            let opened = listener.map(|listener| accept(serving.as_ref(), scheme, listener)).transpose();
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
    pub(crate) fn shown(&self) -> ebof_redfish::Doors {
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

fn accept(serving: &dyn Serves, scheme: Scheme, listener: TcpListener) -> io::Result<Open> {
    let local = listener.local_addr()?;
    Ok(Open { local, accepting: serving.accept(scheme, listener) })
}

impl fmt::Debug for Doors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doors").finish_non_exhaustive()
    }
}

/// The error of an address where the program cannot listen, with what to do.
pub(crate) fn refused(address: &str, error: &io::Error) -> anyhow::Error {
    let advice = match error.kind() {
        io::ErrorKind::AddrInUse => "; another program listens there: stop it, or choose another port",
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address: see `ip addr`",
        io::ErrorKind::PermissionDenied => "; ports below 1024 need root, or CAP_NET_BIND_SERVICE",
        _ => "",
    };
    anyhow::anyhow!("listening on {address}: {error}{advice}")
}
