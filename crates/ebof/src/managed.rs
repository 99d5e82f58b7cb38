//! What is managed while it is served: the target, its box, its configuration. One for all that
//! clients reach it by: the control socket, HTTPS.

pub(crate) mod audit;
mod news;

use std::sync::{Arc, OnceLock};

use ebof_access::Access;
use ebof_audit::Audit;
use ebof_manage::enclosure::Enclosure;
use ebof_server::{RunningEnclosure, Target};
use tokio::sync::{Semaphore, watch};

use crate::identity::Identity;
use crate::reload::Reloads;
use audit::Auditing;
use news::News;

/// The most requests at a time that read a file or the text of a configuration: neither a file
/// system that hangs nor large texts take all threads.
const READERS_MAX: usize = 4;

/// What a target has that is managed over the network.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) access: Arc<Access>,
    pub(crate) identity: Arc<Identity>,
    /// The state directory, which tells targets of a machine apart.
    pub(crate) place: String,
    /// Where subscriptions to events are stored.
    pub(crate) state: Arc<ebof_state::StateDirectory>,
}

/// A target, and how it is changed.
pub(crate) struct Managed {
    pub(crate) target: Arc<Target>,
    pub(crate) enclosure: Arc<dyn Enclosure>,
    pub(crate) reloads: Arc<Reloads>,
    /// What it has if it is managed over the network; set once that is there.
    pub(crate) remote: OnceLock<Remote>,
    /// Who has changed what; set once it is there, where the target has a state directory.
    pub(crate) auditing: OnceLock<Auditing>,
    /// Of requests that read a file or a configuration's text.
    pub(crate) readers: Arc<Semaphore>,
    /// What happens.
    pub(crate) news: News,
    /// Is told of every step of every task.
    pub(crate) steps: watch::Sender<()>,
}

impl Managed {
    /// Manages a target that is served.
    pub(crate) fn new(target: &Arc<Target>, reloads: &Arc<Reloads>, remote: Option<Remote>) -> Arc<Self> {
        let steps = watch::Sender::new(());
        let observer = steps.clone();
        let enclosure =
            RunningEnclosure::observed(Arc::clone(target), Box::new(move |_| observer.send_modify(|()| ())));
        Self::with(target, Arc::new(enclosure), reloads, remote, steps)
    }

    /// The same with another box, whose steps `steps` is told of.
    pub(crate) fn with(
        target: &Arc<Target>,
        enclosure: Arc<dyn Enclosure>,
        reloads: &Arc<Reloads>,
        remote: Option<Remote>,
        steps: watch::Sender<()>,
    ) -> Arc<Self> {
        let readers = Arc::new(Semaphore::new(READERS_MAX));
        let remote = remote.map_or_else(OnceLock::new, OnceLock::from);
        let news = News::from_target(target);
        let (target, reloads) = (Arc::clone(target), Arc::clone(reloads));
        let auditing = OnceLock::new();
        Arc::new(Self { target, enclosure, reloads, remote, auditing, readers, news, steps })
    }

    /// The audit log, if there is one.
    pub(crate) fn audit(&self) -> Option<&Arc<Audit>> {
        self.auditing.get().map(|auditing| &auditing.audit)
    }
}
