//! `/redfish`: hands requests to `ebof_redfish`, and its answers on.
//!
//! Threads beside the one for connections answer them, because they take locks and may hash
//! passwords.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ebof_access::{Denied, Keep, KeepError, User};
use ebof_cli::Failure;
use ebof_manage::api::{
    Applied, Asker, Cause, Configuration, Desired, Generation, Planned, RefusedConfiguration, Revision,
};
use ebof_redfish::{
    Audited, AuditedRecord, Body, Certificates, Configurations, Parts, Service, ShownCertificate, Subscriptions,
};
use ebof_state::StateDirectory;
use hyper::body::Bytes;
use hyper::{Request, Response};
use tokio::runtime::Handle;
use uuid::Uuid;

use super::accounts::kept_error;
use super::program::Around;
use super::refusal::Refusal;
use super::{deliveries, stream};
use crate::control::configuration::{in_force, loaded, planned, refused};
use crate::identity::Identity;
use crate::managed::{Managed, Remote};

/// The file with the subscriptions to events. Some have passwords of their destinations.
const FILE: &str = "subscriptions.json";

/// Stores subscriptions in the state directory.
struct Stored(Arc<StateDirectory>);

impl Keep for Stored {
    fn keep(&self, text: &str) -> Result<(), KeepError> {
        self.0.replace(FILE, text.as_bytes()).map_err(kept_error)
    }
}

/// The subscriptions of a state directory.
fn subscriptions(state: &Arc<StateDirectory>) -> anyhow::Result<Subscriptions> {
    let damaged = |why: &dyn std::fmt::Display| {
        let path = state.path_of(FILE).display().to_string();
        let advice = format!(
            "mend it, or restore it from a backup; or move it away (`mv {path} {path}.damaged`): those who want events \
             subscribe again then"
        );
        Failure::new("state", format!("the subscriptions to events in {path}: {why}"), advice)
    };
    let text = state
        .read(FILE)
        .map_err(|error| Failure::new("state", format!("the subscriptions to events: {error}"), error.advice()))?;
    let text = text.map(String::from_utf8).transpose().map_err(|error| damaged(&error))?;
    let subscriptions = Subscriptions::new(text.as_deref(), Some(Box::new(Stored(Arc::clone(state)))));
    Ok(subscriptions.map_err(|error| damaged(&error))?)
}

/// The Redfish service of a target.
pub(super) struct Redfish(Arc<Service>);

impl Redfish {
    pub(super) fn new(managed: &Arc<Managed>, remote: &Remote, host_name: String) -> anyhow::Result<Self> {
        let machine = Uuid::from_bytes(ebof_initiator::host::identity().id.0);
        let parts = Parts {
            target: Arc::clone(&managed.target) as Arc<_>,
            enclosure: Arc::clone(&managed.enclosure),
            access: Arc::clone(&remote.access),
            events: managed.target.events(),
            subscriptions: Arc::new(subscriptions(&remote.state)?),
            measured: managed.target.measured(),
            certificates: Arc::clone(&remote.identity) as Arc<_>,
            configurations: Arc::new(Texts(Arc::clone(managed))),
            keys: Arc::clone(&managed.target) as Arc<_>,
            audit: Arc::new(Recorded(Arc::clone(managed))),
            program: Arc::new(Around(Arc::clone(managed))),
            uuid: Uuid::new_v5(&machine, remote.place.as_bytes()),
            host_name,
            only: None,
        };
        Ok(Self(Arc::new(Service::new(parts))))
    }

    /// Delivers events to subscriptions until the process ends, each within a time.
    pub(super) fn deliveries(&self, time: Duration) -> impl Future<Output = ()> + Send + 'static {
        deliveries::run(Arc::clone(&self.0), time)
    }

    /// Reports that somebody was not let in.
    pub(super) fn report_denied(&self, address: IpAddr, name: &str, denied: Denied) {
        ebof_redfish::report_denied(&*self.0.parts().events, address, name, denied);
    }

    /// The answer, and how much time of a processor it has taken. `refused`: there were
    /// credentials, and they are wrong.
    pub(super) async fn answer(
        &self,
        request: Request<Bytes>,
        user: Option<User>,
        peer: SocketAddr,
        refused: bool,
    ) -> Result<(Response<axum::body::Body>, Duration), Refusal> {
        let service = Arc::clone(&self.0);
        let caller = ebof_redfish::Caller { user, refused, peer };
        let answer = move || {
            let before = thread_time();
            let response = service.answer(&request, &caller);
            (response, thread_time().saturating_sub(before))
        };
        // A panic has ended the process.
        let (response, used) = tokio::task::spawn_blocking(answer).await.map_err(|_panicked| Refusal::BUSY)?;
        let response = response.map(|body| match body {
            Body::Text(text) => text.into(),
            Body::Stream(feed) => stream::of_feed(feed),
            _ => axum::body::Body::empty(),
        });
        Ok((response, used))
    }
}

/// What this thread has had of processors.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl Certificates for Identity {
    fn shown(&self) -> Option<ShownCertificate> {
        let (info, pem) = Self::shown(self);
        Some(ShownCertificate {
            subject: info.subject,
            issuer: info.issuer,
            serial_number: info.serial_number,
            valid_from: u64::try_from(info.valid_from).unwrap_or_default(),
            valid_to: u64::try_from(info.valid_to).unwrap_or_default(),
            fingerprint: info.fingerprint,
            pem,
        })
    }

    fn replace(&self, chain: &str, key: Option<&str>) -> Result<(), String> {
        let info = Self::replace(self, chain, key).map_err(|error| error.to_string())?;
        tracing::info!("HTTPS has another certificate: {}, SHA-256 {}", info.subject, info.fingerprint);
        Ok(())
    }

    fn request(&self, subject: &ebof_redfish::CertificateSubject) -> Result<String, String> {
        let subject = subject.clone();
        let subject = ebof_manage::api::RequestCertificate {
            common_name: subject.common_name,
            alternative_names: subject.alternative_names,
            organization: subject.organization,
            organizational_unit: subject.organizational_unit,
            city: subject.city,
            state: subject.state,
            country: subject.country,
        };
        Self::request(self, &subject).map_err(|error| error.to_string())
    }
}

/// The audit log, on threads that may wait.
struct Recorded(Arc<Managed>);

impl Audited for Recorded {
    fn records(&self, most: usize) -> Option<Vec<AuditedRecord>> {
        let audit = self.0.audit()?;
        let (records, _) = ebof_audit::records_since(&**audit.directory(), 0, most).ok()?;
        let shown = |record: ebof_audit::AuditRecord| AuditedRecord {
            n: record.n,
            time_unix_ms: record.time_unix_ms,
            kind: record.kind.name(),
            who: record.who,
            from: record.from,
            what: record.what,
            object: record.object,
            outcome: record.outcome.name(),
            detail: record.detail,
            count: record.count,
            hash: record.hash.to_string(),
        };
        Some(records.into_iter().map(shown).collect())
    }

    fn is_on(&self) -> bool {
        self.0.audit().is_some()
    }
}

/// The configuration, on threads that may wait.
struct Texts(Arc<Managed>);

impl Configurations for Texts {
    fn configuration(&self) -> Result<Configuration, RefusedConfiguration> {
        in_force(&self.0).map_err(|no| *no.1)
    }

    fn generations(&self) -> Vec<Generation> {
        self.0.reloads.generations().map(|generations| generations.history().generations).unwrap_or_default()
    }

    fn plan(&self, desired: Desired) -> Result<Planned, RefusedConfiguration> {
        loaded(&self.0, desired).and_then(|(loaded, _)| planned(&self.0, loaded)).map_err(|no| *no.1)
    }

    fn apply(
        &self,
        planned: &Revision,
        desired: Desired,
        by: &User,
        from: IpAddr,
    ) -> Result<Applied, RefusedConfiguration> {
        let (loaded, action) = loaded(&self.0, desired).map_err(|no| *no.1)?;
        let by_account = Asker::Account { name: by.name.clone(), address: from.to_canonical().to_string() };
        tracing::info!("{} ({}) at {from} puts another configuration in force", by.name, by.role);
        let applied =
            Handle::current().block_on(self.0.reloads.apply(loaded, planned.clone(), Cause::new(by_account, action)));
        applied.map_err(|refusal| *refused(&refusal).1)
    }
}
