//! What serves connections of management, at whichever address they were accepted: the thread, its
//! limits and the service.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::listener::{self, Acceptor, Times};
use super::rates::Rates;
use super::redfish::Redfish;
use super::service::Service;
use super::{THREADS_MAX, host_name, renew};
use crate::doors::limits::{self, ConnectionLimits};
use crate::doors::{Doors, Scheme, Serves};
use crate::managed::{Managed, Remote};

/// The backlog of connections that are not accepted yet; the system may limit it further.
const BACKLOG: u32 = 1024;

struct Serving {
    runtime: Handle,
    tls: Arc<rustls::ServerConfig>,
    service: Arc<Service>,
    limits: Arc<ConnectionLimits<IpAddr>>,
    new: Arc<Rates<IpAddr>>,
    times: Times,
}

/// Starts what serves connections at these addresses, unless that runs.
///
/// # Errors
/// It cannot be started.
pub(crate) fn serve(doors: &Doors, remote: Remote, managed: &Arc<Managed>) -> anyhow::Result<()> {
    serve_with(doors, remote, managed, Times::default())
}

pub(super) fn serve_with(doors: &Doors, remote: Remote, managed: &Arc<Managed>, times: Times) -> anyhow::Result<()> {
    if doors.is_served() {
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
    let service = Service::new(access, managed, redfish, times.body);
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
    doors.serve(serving);
    Ok(())
}

impl Serves for Serving {
    fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        // The socket belongs to the runtime.
        let _inside = self.runtime.enter();
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    }

    fn accept(&self, scheme: Scheme, listener: TcpListener) -> AbortHandle {
        let acceptor = Acceptor {
            listener,
            tls: (scheme == Scheme::Https).then(|| Arc::clone(&self.tls)),
            service: Arc::clone(&self.service),
            limits: Arc::clone(&self.limits),
            new: Arc::clone(&self.new),
            times: self.times,
        };
        self.runtime.spawn(acceptor.run()).abort_handle()
    }
}
