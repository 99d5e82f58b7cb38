//! What Identify says of Asymmetric Namespace Access.

use ebof_nvme::identify::field::anacap;
use ebof_nvme::identify::{IdentifyController, IdentifyNamespace};
use ebof_nvme::log::AnaState;

use crate::model::{GROUPS_MAX, GroupStates, Namespace};

/// ANATT, seconds: how long a group may be in the ANA Change state until hosts give up waiting. A
/// state of the configuration changes at once; who writes `change` is to write another one before
/// that.
const TRANSITION_SECONDS: u8 = 10;

/// What Identify Controller says of it; hosts choose the groups of namespaces that they create.
pub(super) fn announce_controller(data: &mut IdentifyController, is_managed: bool) {
    data.anatt = TRANSITION_SECONDS;
    data.anacap =
        anacap::OPTIMIZED | anacap::NON_OPTIMIZED | anacap::INACCESSIBLE | anacap::PERSISTENT_LOSS | anacap::CHANGE;
    if is_managed {
        data.anacap |= anacap::GROUP_MANAGED;
    }
    data.anagrpmax.set(GROUPS_MAX);
    data.nanagrpid.set(GROUPS_MAX);
}

/// What Identify Namespace says of a namespace: its group, and no use where it cannot be reached.
pub(super) fn announce_namespace(data: &mut IdentifyNamespace, namespace: &Namespace, states: &GroupStates) {
    data.anagrpid.set(namespace.ana_group);
    if matches!(states.of(namespace.ana_group), AnaState::INACCESSIBLE | AnaState::PERSISTENT_LOSS) {
        data.nuse.set(0);
    }
}
