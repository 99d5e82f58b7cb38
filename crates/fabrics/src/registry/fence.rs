//! Fences: a host that has lost a controller, and has waited for as long as CQT says, repeats its
//! commands through another one. Behind a device that hangs, an old command may be executed even
//! then, so that what would overtake it is not let in:
//!
//! ```text
//! the controller is lost -> 2 s later a queue of it still drains -> commands of the same host to
//!   the namespaces on its devices are refused (Asymmetric Access Transition) -> it has drained
//!   -> they are executed
//! ```
//! The other threads take what the registry tells them before what hosts send, so that a thread
//! that is late is not too late. CQT ([`QUIESCE_MS`](crate::association::QUIESCE_MS)) leaves the
//! control thread three seconds more.
//!
//! What hosts do that do not wait, nobody can hold up; for these there is Cross-Controller Reset.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_drive::reservation::Right;
use ebof_nvme::{Nqn, Status};

use super::controllers::{ControllerEntry, Controllers, Draining, same_host};
use crate::association::Association;
use crate::model::{DeviceId, Subsystem};
use crate::notice::Notices;

/// After how long a queue that drains is fenced off, milliseconds.
pub const FENCE_MS: u64 = 2_000;

/// What a host may not use for now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fence {
    /// Everything: it is not known which devices have something.
    all: bool,
    devices: BTreeSet<DeviceId>,
}

impl Fence {
    fn add(&mut self, draining: &Draining) {
        match &draining.devices {
            Some(devices) => self.devices.extend(devices),
            None => self.all = true,
        }
    }

    /// The subsystem, of which commands to some namespaces are refused.
    pub(super) fn bar(&self, subsystem: Arc<Subsystem>) -> Arc<Subsystem> {
        if *self == Self::default() {
            return subsystem;
        }
        let mut barred = Subsystem::clone(&subsystem);
        barred.namespaces = barred.namespaces.changing(|namespace| {
            if self.all || self.devices.contains(&namespace.device) {
                namespace.right = Right::Barred(Status::ANA_TRANSITION);
            }
        });
        Arc::new(barred)
    }
}

/// What a controller that is lost still has, as far as it is fenced off.
fn left_behind(entry: &ControllerEntry) -> Option<(Arc<Association>, Fence)> {
    let is_lost = entry.is_open && entry.association.is_closing() && !entry.association.discovery;
    let mut fenced = entry.queues.iter().filter(|queue| is_lost && queue.draining.is_fenced).peekable();
    fenced.peek()?;
    let mut fence = Fence::default();
    fenced.for_each(|queue| fence.add(&queue.draining));
    Some((Arc::clone(&entry.association), fence))
}

impl Draining {
    /// When a queue that drains is to be fenced off.
    pub(super) fn fence_at_ms(&self) -> Option<u64> {
        self.since_ms.filter(|_| !self.is_fenced).map(|since| since.saturating_add(FENCE_MS))
    }
}

/// The controllers, and what their hosts are shown, to fence off what some have left behind.
pub(super) struct Fences<'r> {
    pub(super) controllers: &'r mut Controllers,
    pub(super) effective: &'r BTreeMap<Nqn, Arc<Subsystem>>,
    /// What hosts are to be told.
    pub(super) notices: &'r mut Notices,
}

impl Fences<'_> {
    /// Fences off the queues of lost controllers that have been draining for too long.
    pub(super) fn raise(&mut self, now_ms: u64) {
        let mut lost = Vec::new();
        for entry in self.controllers.entries.values_mut().filter(|entry| entry.association.is_closing()) {
            let mut is_fenced = false;
            for queue in entry.queues.iter_mut().filter(|queue| !queue.id.is_admin()) {
                if queue.draining.fence_at_ms().is_some_and(|at| at <= now_ms) {
                    queue.draining.is_fenced = true;
                    is_fenced = true;
                }
            }
            lost.extend(is_fenced.then(|| Arc::clone(&entry.association)));
        }
        for association in lost {
            self.follow(&association);
        }
    }

    /// Shows the host of a controller that is lost what it may use now, where that has changed.
    pub(super) fn follow(&mut self, lost: &Association) {
        let all = self.controllers.entries.values();
        let of_host = all.filter(|entry| same_host(&entry.association, lost));
        let left: Vec<_> = of_host.filter_map(left_behind).collect();
        let live = self.controllers.entries.values_mut().filter(|entry| !entry.association.is_closing());
        for entry in live.filter(|entry| same_host(&entry.association, lost)) {
            let mut fence = Fence::default();
            for (_, of_lost) in left.iter().filter(|(other, _)| same_host(&entry.association, other)) {
                fence.all |= of_lost.all;
                fence.devices.extend(&of_lost.devices);
            }
            if entry.fence == fence {
                continue;
            }
            entry.fence = fence;
            if let Some(subsystem) = self.effective.get(&entry.association.subsystem) {
                entry.notify(subsystem, self.notices);
            }
        }
    }
}
