//! Management over the network: HTTPS with accounts, and HTTP for this machine
//! ([0072](../../../docs/adr/0072-management-over-the-network.md)).
//!
//! The addresses are in `doors.rs`, the thread in `https/serving.rs`, connections in
//! `https/listener.rs`, requests in `https/service.rs`, the certificate in `identity.rs`; accounts
//! are `ebof_access`'s, stored in the state directory (`https/accounts.rs`).

pub(crate) mod accounts;
mod control;
mod credentials;
mod deliveries;
mod listener;
mod machine;
mod page;
mod program;
mod rates;
mod redfish;
mod refusal;
mod service;
mod serving;
mod stream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ebof_cli::Failure;
use ebof_clock::Clock;
use ebof_state::StateDirectory;
use tokio::time::interval;

use crate::doors::Addresses;
use crate::identity::{self, CertificateError, Identity};

pub(crate) use serving::serve;

/// Threads for what takes locks, waits, or hashes passwords.
const THREADS_MAX: usize = 16;

/// How often it is looked whether a self-made certificate is about to end.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(12 * 3600);

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
        CertificateError::Store(error) => {
            Failure::new("state", format!("the certificate of HTTPS: {error}"), error.advice()).into()
        }
        error => anyhow::Error::from(error).context("the certificate of HTTPS"),
    })
}

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
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
