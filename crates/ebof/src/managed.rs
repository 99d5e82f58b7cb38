//! What is managed while it is served: the target, its box, its configuration. One for all that
//! clients reach it by: the control socket, HTTPS.

use std::sync::Arc;

use ebof_manage::enclosure::Enclosure;
use ebof_server::{RunningEnclosure, Target};
use tokio::sync::{Semaphore, watch};

use crate::news::News;
use crate::reload::Reloads;

/// The most requests at a time that read a file or the text of a configuration: neither a file
/// system that hangs nor large texts take all threads.
const READERS_MAX: usize = 4;

/// A target, and how it is changed.
pub(crate) struct Managed {
    pub(crate) target: Arc<Target>,
    pub(crate) enclosure: Arc<dyn Enclosure>,
    pub(crate) reloads: Arc<Reloads>,
    /// Of requests that read a file or a configuration's text.
    pub(crate) readers: Arc<Semaphore>,
    /// What happens.
    pub(crate) news: News,
    /// Is told of every step of every task.
    pub(crate) steps: watch::Sender<()>,
}

impl Managed {
    /// Manages a target that is served.
    pub(crate) fn new(target: &Arc<Target>, reloads: &Arc<Reloads>) -> Arc<Self> {
        let steps = watch::Sender::new(());
        let observer = steps.clone();
        let enclosure =
            RunningEnclosure::observed(Arc::clone(target), Box::new(move |_| observer.send_modify(|()| ())));
        Self::with(target, Arc::new(enclosure), reloads, steps)
    }

    /// The same with another box, whose steps `steps` is told of.
    pub(crate) fn with(
        target: &Arc<Target>,
        enclosure: Arc<dyn Enclosure>,
        reloads: &Arc<Reloads>,
        steps: watch::Sender<()>,
    ) -> Arc<Self> {
        let readers = Arc::new(Semaphore::new(READERS_MAX));
        let news = News::of(target);
        Arc::new(Self { target: Arc::clone(target), enclosure, reloads: Arc::clone(reloads), readers, news, steps })
    }
}
