//! What the service shows and changes.

mod audited;
mod certificates;
mod configurations;
mod keys;
mod program;

use std::sync::Arc;

use ebof_access::{Access, AccountId};
use ebof_manage::Target;
use ebof_manage::api::KeyKeeper;
use ebof_manage::enclosure::Enclosure;
use ebof_manage::events::Events;
use ebof_manage::history::Measured;
use uuid::Uuid;

pub use audited::{Audited, AuditedRecord, NoAudit};
pub use certificates::{CertificateSubject, Certificates, NoCertificates, ShownCertificate};
pub use configurations::Configurations;
pub use keys::NoKeys;
pub use program::{Door, Doors, MachineSize, NetworkInterface, NoProgram, Program};

use crate::managed::subscriptions::Subscriptions;

/// What the service shows and changes.
#[derive(Clone)]
pub struct Parts {
    /// The target.
    pub target: Arc<dyn Target>,
    /// Its drives, and who has what of them.
    pub enclosure: Arc<dyn Enclosure>,
    /// Who may do what.
    pub access: Arc<Access>,
    /// What happens to it.
    pub events: Arc<dyn Events>,
    /// Who follows that.
    pub subscriptions: Arc<Subscriptions>,
    /// What its objects did.
    pub measured: Arc<dyn Measured>,
    /// The certificate of HTTPS.
    pub certificates: Arc<dyn Certificates>,
    /// The keys of hosts.
    pub keys: Arc<dyn KeyKeeper>,
    /// Its configuration.
    pub configurations: Arc<dyn Configurations>,
    /// Who has changed what.
    pub audit: Arc<dyn Audited>,
    /// The program that serves, and its machine.
    pub program: Arc<dyn Program>,
    /// The identity of the service, the same for ever.
    pub uuid: Uuid,
    /// What the machine is called.
    pub host_name: String,
    /// Whose parts these are, if they are those of an account that sees a part of the target only:
    /// of accounts, sessions and streams it sees its own. `None` for everybody else.
    pub only: Option<AccountId>,
}
