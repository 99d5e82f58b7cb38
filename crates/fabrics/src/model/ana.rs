//! Asymmetric Namespace Access: the states of ANA groups at a port, and what they leave of commands
//! (NVMe Base 2.1, "Asymmetric Namespace Access Reporting").
//!
//! A controller has the states of its port. I/O commands are refused by the right that the
//! namespace has for the controller's queues ([`Right::Barred`]), so that a command for data is not
//! checked once more; commands of the Admin Queue by a check of their own.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use ebof_drive::reservation::Right;
use ebof_nvme::Status;
use ebof_nvme::log::AnaState;

use super::Namespace;

/// The highest ANA group identifier, and so the number of groups (ANAGRPMAX, NANAGRPID).
pub const GROUPS_MAX: u32 = ebof_drive::ANA_GROUPS_MAX;

/// The states of ANA groups at a port. A group that is not named is as good as it can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStates {
    by_group: Arc<BTreeMap<u32, AnaState>>,
    /// No group is better than this.
    best: AnaState,
}

impl Default for GroupStates {
    fn default() -> Self {
        Self { by_group: Arc::default(), best: AnaState::OPTIMIZED }
    }
}

impl GroupStates {
    /// These states; groups that are optimized need not be among them.
    #[must_use]
    pub fn new(states: impl IntoIterator<Item = (u32, AnaState)>) -> Self {
        let by_group = states.into_iter().filter(|(_, state)| *state != AnaState::OPTIMIZED).collect();
        Self { by_group: Arc::new(by_group), ..Self::default() }
    }

    /// No group better than `best`, such as that of a drive that fails.
    #[must_use]
    pub fn at_best(best: AnaState) -> Self {
        Self { best, ..Self::default() }
    }

    /// These states, and no group better than `limit` allows at its best.
    #[must_use]
    pub fn limited_by(&self, limit: &Self) -> Self {
        Self { by_group: Arc::clone(&self.by_group), best: worse(self.best, limit.best) }
    }

    /// The state of a group: the worse one of what its port says, and of the best that it can be.
    #[must_use]
    pub fn of(&self, group: u32) -> AnaState {
        worse(self.by_group.get(&group).copied().unwrap_or(AnaState::OPTIMIZED), self.best)
    }

    /// Whether every group is optimized.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        self.by_group.is_empty() && self.best == AnaState::OPTIMIZED
    }
}

/// The state of both that leaves hosts less.
fn worse(one: AnaState, other: AnaState) -> AnaState {
    let rank = |state| match state {
        AnaState::OPTIMIZED => 0,
        AnaState::NON_OPTIMIZED => 1,
        AnaState::CHANGE => 2,
        AnaState::INACCESSIBLE => 3,
        _ => 4,
    };
    if rank(other) > rank(one) { other } else { one }
}

/// The status that commands to a namespace in this state are refused with, for the host to take
/// another path; `None` where they are executed.
#[must_use]
pub fn refusal(state: AnaState) -> Option<Status> {
    match state {
        AnaState::OPTIMIZED | AnaState::NON_OPTIMIZED => None,
        AnaState::PERSISTENT_LOSS => Some(Status::ANA_PERSISTENT_LOSS),
        AnaState::CHANGE => Some(Status::ANA_TRANSITION),
        _ => Some(Status::ANA_INACCESSIBLE),
    }
}

/// What the state of its group leaves to I/O commands of a namespace.
pub(super) fn right(states: &GroupStates, namespace: &Namespace, right: Right) -> Right {
    refusal(states.of(namespace.ana_group)).map_or(right, Right::Barred)
}
