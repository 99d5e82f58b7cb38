//! Waiting for events of a target without a thread.

use std::sync::Arc;

use ebof_manage::events::{Events, Wake};
use ebof_server::Target;
use tokio::sync::watch;

/// The events of a target, and who waits for them.
pub(crate) struct News {
    pub(crate) events: Arc<dyn Events>,
    told: watch::Sender<()>,
    /// Alive as long as somebody is to be told.
    _wake: Arc<Wake>,
}

impl News {
    pub(crate) fn from_target(target: &Target) -> Self {
        let events = target.events();
        let told = watch::Sender::new(());
        let teller = told.clone();
        let wake: Arc<Wake> = Arc::new(move || teller.send_modify(|()| ()));
        events.subscribe(Arc::downgrade(&wake));
        Self { events, told, _wake: wake }
    }

    /// Is told of every event from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.told.subscribe()
    }
}
