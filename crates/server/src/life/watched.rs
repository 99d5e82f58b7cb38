//! What a running target tells of what happens to it: for those who show it.

use std::sync::Arc;

use ebof_manage::history::live::LiveTable;
use ebof_manage::history::{Measured, NoSamples, Overview, Query, Samples};
use ebof_manage::slow::SlowCommands;

use crate::report::sampling;
use crate::shared::Shared;
use crate::shared::owners::Owners;

/// What each queue with I/O commands did in the latest second.
pub(crate) fn queues(shared: &Shared) -> LiveTable {
    shared.queues.table(shared.clock.now_ms(), shared.clock.unix_ms(), || sampling::queues(shared))
}

/// The history of a target.
pub(crate) struct Remembered(pub(crate) Arc<Shared>);

impl Measured for Remembered {
    fn overview(&self) -> Overview {
        self.0.sampler.history().overview()
    }

    fn samples(&self, query: &Query) -> Result<Samples, NoSamples> {
        self.0.sampler.history().samples(query)
    }

    fn queues(&self) -> LiveTable {
        queues(&self.0)
    }

    fn slow(&self) -> SlowCommands {
        slow(&self.0)
    }

    fn forget_slow(&self) -> usize {
        self.0.slow.forget()
    }
}

/// The slow commands.
pub(crate) fn slow(shared: &Shared) -> SlowCommands {
    let owners = Owners::from_shared(shared);
    shared.slow.commands(|subsystem| owners.object(subsystem))
}
