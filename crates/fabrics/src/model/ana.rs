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

/// The highest ANA group identifier, and so the number of groups (ANAGRPMAX, NANAGRPID): as many as
/// Linux' target has.
pub const GROUPS_MAX: u32 = 128;

/// The states of ANA groups at a port. A group that is not named is optimized.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupStates(Arc<BTreeMap<u32, AnaState>>);

impl GroupStates {
    /// These states; groups that are optimized need not be among them.
    #[must_use]
    pub fn new(states: impl IntoIterator<Item = (u32, AnaState)>) -> Self {
        Self(Arc::new(states.into_iter().filter(|(_, state)| *state != AnaState::OPTIMIZED).collect()))
    }

    /// Every group in this state.
    #[must_use]
    pub fn all(state: AnaState) -> Self {
        Self::new((1..=GROUPS_MAX).map(|group| (group, state)))
    }

    /// The state of a group.
    #[must_use]
    pub fn of(&self, group: u32) -> AnaState {
        self.0.get(&group).copied().unwrap_or(AnaState::OPTIMIZED)
    }

    /// Whether every group is optimized.
    #[must_use]
    pub fn is_uniform(&self) -> bool {
        self.0.is_empty()
    }
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
