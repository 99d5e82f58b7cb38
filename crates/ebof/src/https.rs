//! Management over the network: HTTPS with accounts, and HTTP for this machine
//! ([0072](../../../docs/adr/0072-management-over-the-network.md)).
//!
//! Owns the listening sockets and the thread. Connections are in `https/listener.rs`, requests in
//! `https/service.rs`, the certificate in `identity.rs`; accounts are `ebof_access`'s, stored
//! in the state directory (`https/accounts.rs`).

pub(crate) mod accounts;
mod control;
mod credentials;
mod deliveries;
mod listener;
mod rates;
mod redfish;
mod refusal;
mod service;
mod stream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use ebof_cli::Failure;
use ebof_clock::Clock;
use ebof_state::StateDirectory;
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::interval;

use crate::identity::{self, CertificateError, Identity};
use crate::limits;
use crate::managed::{Managed, Remote};
use control::Control;
use listener::{Acceptor, Times};
use redfish::Redfish;
use service::Service;

/// Threads for what takes locks, waits, or hashes passwords.
const THREADS_MAX: usize = 16;

/// The backlog of connections that are not accepted yet; the system may limit it further.
const BACKLOG: u32 = 1024;

/// How often it is looked whether a self-made certificate is about to end.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(12 * 3600);

/// Where to serve.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) https: Option<SocketAddr>,
    /// Without TLS, for this machine only.
    pub(crate) http: Option<SocketAddr>,
}

/// Where it is served, with ports and the certificate's fingerprint.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    pub(crate) https: Option<SocketAddr>,
    pub(crate) http: Option<SocketAddr>,
    /// SHA-256 of the certificate.
    pub(crate) fingerprint: String,
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

/// Opens the certificate, which is made if there is none.
///
/// # Errors
/// It is damaged, or cannot be made or stored.
pub(crate) fn identity(addresses: &Addresses, state: Arc<StateDirectory>) -> anyhow::Result<Arc<Identity>> {
    let shown: Vec<_> = addresses.https.iter().map(SocketAddr::ip).collect();
    let opened = Identity::open(state, identity::names(&host_name(), &shown), Clock::system());
    opened.map_err(|error| match error {
        CertificateError::State(error) => {
            Failure::new("state", format!("the certificate of HTTPS: {error}"), error.advice()).into()
        }
        error => anyhow::Error::from(error).context("the certificate of HTTPS"),
    })
}

/// Serves until the process ends.
///
/// # Errors
/// Listening failed.
pub(crate) fn serve(addresses: Addresses, remote: Remote, managed: Arc<Managed>) -> anyhow::Result<Endpoints> {
    serve_with(addresses, remote, managed, Times::default())
}

fn serve_with(addresses: Addresses, remote: Remote, managed: Arc<Managed>, times: Times) -> anyhow::Result<Endpoints> {
    let tls = remote.identity.server().context("TLS")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(THREADS_MAX)
        .thread_name("ebof-https-wait")
        .on_thread_start(limits::stand_back)
        .build()?;
    // The sockets belong to the runtime.
    let inside = runtime.enter();
    let mut listening = Vec::new();
    let mut listen = |address: SocketAddr, tls: Option<Arc<rustls::ServerConfig>>| {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let listener = listen(address).with_context(|| format!("listening on {scheme}://{address}"))?;
        let address = listener.local_addr()?;
        listening.push((listener, tls));
        anyhow::Ok(address)
    };
    let endpoints = Endpoints {
        https: addresses.https.map(|address| listen(address, Some(tls))).transpose()?,
        http: addresses.http.map(|address| listen(address, None)).transpose()?,
        fingerprint: remote.identity.info().fingerprint,
    };
    drop(inside);
    let redfish = Redfish::new(&managed, &remote, &endpoints, host_name())?;
    let deliveries = redfish.deliveries(times.delivery);
    let Remote { access, identity, .. } = remote;
    let service = Service::new(access, redfish, Control::new(managed), times.body);
    let (limits, new) = listener::limits();
    let acceptors = listening.into_iter().map(move |(listener, tls)| {
        let (service, limits, new) = (Arc::clone(&service), Arc::clone(&limits), Arc::clone(&new));
        Acceptor { listener, tls, service, limits, new, times }
    });
    let acceptors: Vec<_> = acceptors.collect();
    let run = move || {
        limits::stand_back();
        runtime.block_on(async move {
            for acceptor in acceptors {
                tokio::spawn(acceptor.run());
            }
            tokio::spawn(deliveries);
            renew(identity).await;
        });
    };
    std::thread::Builder::new().name("ebof-https".to_owned()).spawn(run)?;
    Ok(endpoints)
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Renews a self-made certificate, for ever.
async fn renew(identity: Arc<Identity>) {
    let mut ticks = interval(RENEWAL_INTERVAL);
    loop {
        ticks.tick().await;
        let renewing = Arc::clone(&identity);
        match tokio::task::spawn_blocking(move || renewing.renew()).await {
            Ok(Ok(true)) => {
                let fingerprint = identity.info().fingerprint;
                tracing::info!(
                    "the certificate of HTTPS was about to end: another one is in force, SHA-256 {fingerprint}"
                );
            }
            Ok(Err(error)) => {
                tracing::error!("the certificate of HTTPS is about to end, and making another one failed: {error}");
            }
            Ok(Ok(false)) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
