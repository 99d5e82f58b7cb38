//! What a running target tells of what happens to it: for those who show it.

use std::sync::Arc;

use ebof_manage::events::Events;
use ebof_manage::history::live::LiveTable;
use ebof_manage::history::{Measured, NoSamples, Overview, Query, Samples};
use ebof_manage::slow::SlowCommands;

use crate::life::serve::Target;
use crate::report::sampling::{self, Owners};
use crate::shared::Shared;

impl Target {
    /// What has happened since the target was started.
    #[must_use]
    pub fn events(&self) -> Arc<dyn Events> {
        Arc::clone(&self.shared.events) as Arc<dyn Events>
    }

    /// The slow commands: the latest, and how many there were.
    #[must_use]
    pub fn slow(&self) -> SlowCommands {
        slow(&self.shared)
    }

    /// What each queue with I/O commands did in the latest second: those that did most. The first
    /// who asks for a while gets no rates yet.
    #[must_use]
    pub fn queues(&self) -> LiveTable {
        let shared = &self.shared;
        shared.queues.table(shared.clock.now_ms(), shared.clock.unix_ms(), || sampling::queues(shared))
    }

    /// What each object did, second by second.
    #[must_use]
    pub fn measured(&self) -> Arc<dyn Measured> {
        Arc::new(Remembered(Arc::clone(&self.shared)))
    }
}

/// The history of a target.
struct Remembered(Arc<Shared>);

impl Measured for Remembered {
    fn overview(&self) -> Overview {
        self.0.sampler.history().overview()
    }

    fn samples(&self, query: &Query) -> Result<Samples, NoSamples> {
        self.0.sampler.history().samples(query)
    }

    fn slow(&self) -> SlowCommands {
        slow(&self.0)
    }

    fn forget_slow(&self) -> usize {
        self.0.slow.forget()
    }
}

fn slow(shared: &Shared) -> SlowCommands {
    let owners = Owners::of(shared);
    shared.slow.commands(|subsystem| owners.object(subsystem))
}
