//! A discovery service that is held.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ebof_initiator::DiscoveryLog;

use super::HeldService;
use crate::output::say;
use crate::verbs::everything::Path;
use crate::verbs::fabric::FabricArgs;

/// A service, and what its last log has.
pub(super) struct FollowedService {
    pub(super) held: HeldService,
    /// Whether somebody has named it, and no other service.
    pub(super) is_named: bool,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) log: Option<DiscoveryLog>,
    /// Whether it has no connection now.
    pub(super) is_away: bool,
    /// The paths to subsystems in it.
    pub(super) listed: HashSet<Path>,
    /// The services that it refers to.
    pub(super) refers: Vec<FabricArgs>,
    /// What was said of those that are not asked.
    pub(super) unasked: Vec<String>,
}

impl FollowedService {
    pub(super) fn new(held: HeldService, is_named: bool, stop: Arc<AtomicBool>) -> Self {
        Self {
            held,
            is_named,
            stop,
            log: None,
            is_away: true,
            listed: HashSet::new(),
            refers: Vec::new(),
            unasked: Vec::new(),
        }
    }

    /// Whether no record of its log was left out.
    pub(super) fn is_whole(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.left_out == 0)
    }

    /// Says why services that it refers to are not asked, where it is news.
    pub(super) fn tell_unasked(&mut self, unasked: Vec<String>) {
        unasked.iter().filter(|reason| !self.unasked.contains(reason)).for_each(|reason| say(reason));
        self.unasked = unasked;
    }
}

impl Drop for FollowedService {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}
