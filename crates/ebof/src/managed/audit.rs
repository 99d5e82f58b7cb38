//! What is recorded in the audit log, and by whom: requests of management with what became of them,
//! logins, and what happens to the target without a request. The log itself is `ebof_audit`'s.
//!
//! No body of a request is recorded, and no query: of what was sent, only the names of properties,
//! and what changes of drives and the configuration are called.

mod happened;
mod requests;

use std::sync::Arc;

use ebof_audit::{Audit, AuditSettings, Destination, Sizes, Syslog};
use ebof_manage::events::{Events, Wake};
use ebof_server::Target;
use ebof_state::StateDirectory;

use happened::Happened;
pub(crate) use requests::{RecordedRequest, login, request, without_key};

/// The audit log of a target, which is told of its events.
pub(crate) struct Auditing {
    pub(crate) audit: Arc<Audit>,
    /// Alive as long as the log is to be told.
    _wake: Arc<Wake>,
}

impl Auditing {
    /// Begins to write the log of a state directory.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn start(
        directory: Arc<StateDirectory>,
        target: &Target,
        syslog: Option<Destination>,
        host: &str,
    ) -> Result<Self, ebof_audit::AuditError> {
        let events: Arc<dyn Events> = target.events();
        let mut happened = Happened::new(Arc::clone(&events));
        let settings = AuditSettings {
            sizes: Sizes::default(),
            syslog: syslog.map(|destination| Syslog::new(destination, host)),
            feed: Box::new(move || happened.since_last()),
            tell: Box::new(|message| tracing::error!("{message}")),
            warn: Box::new(|message| tracing::warn!("{message}")),
        };
        let audit = Arc::new(Audit::start(directory, settings)?);
        let told = Arc::clone(&audit);
        let wake: Arc<Wake> = Arc::new(move || told.wake());
        events.subscribe(Arc::downgrade(&wake));
        let head = audit.head();
        // Of a log that begins there is nothing to compare; whoever knows of an earlier one does.
        match head.n {
            0 => tracing::debug!("a new audit log begins in {}", audit.directory().path().display()),
            _ => tracing::info!("the audit log goes on behind record {head}"),
        }
        Ok(Self { audit, _wake: wake })
    }
}
