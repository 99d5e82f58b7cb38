//! What the state of an ANA group leaves of the commands of an Admin Queue.

use ebof_nvme::feature::{Fid, SetFeature};
use ebof_nvme::log::AnaState;
use ebof_nvme::opcode::admin;
use ebof_nvme::{Nsid, Sqe};

use crate::model::{Namespace, Subsystem, refusal};
use crate::task::outcome::Fault;

/// What a state leaves of the commands of an Admin Queue that name a namespace.
///
/// | command | inaccessible, change | persistent loss |
/// |---|---|---|
/// | Identify, Get Log Page | yes; NUSE is 0, but for change | yes; NUSE is 0 |
/// | Get Features | but for 05h, 0Ah, 82h, 83h | the same |
/// | Set Features | but for 05h, 0Ah, 82h, 83h, 84h, and none of all namespaces | none |
/// | Namespace Management and Attachment, Format NVM, Device Self-test, Get LBA Status | no | no |
/// | what names no namespace | yes | yes |
///
/// The status is that of the state, without Do Not Retry. NVMe Base 2.1, "ANA effects on command
/// processing".
pub(super) fn check(subsystem: &Subsystem, sqe: &Sqe) -> Result<(), Fault> {
    if subsystem.states.is_uniform() || sqe.nsid() == Nsid::NONE {
        return Ok(());
    }
    let Some(state) = worst_state(subsystem, sqe.nsid()) else { return Ok(()) };
    let Some(status) = refusal(state) else { return Ok(()) };
    let passes = match sqe.opcode {
        admin::GET_FEATURES => !needs_namespace(SetFeature::decode(sqe.cdw10.get()).fid),
        admin::SET_FEATURES => {
            let fid = SetFeature::decode(sqe.cdw10.get()).fid;
            state != AnaState::PERSISTENT_LOSS
                && sqe.nsid() != Nsid::ALL
                && !needs_namespace(fid)
                && fid != Fid::WRITE_PROTECTION
        }
        admin::NAMESPACE_MANAGEMENT
        | admin::NAMESPACE_ATTACHMENT
        | admin::FORMAT_NVM
        | admin::DEVICE_SELF_TEST
        | admin::GET_LBA_STATUS => false,
        // What names no namespace, whatever stands in that field.
        _ => true,
    };
    if passes { Ok(()) } else { Err(Fault::transient(status)) }
}

/// Features that are of the namespace itself.
fn needs_namespace(fid: Fid) -> bool {
    matches!(
        fid,
        Fid::ERROR_RECOVERY | Fid::WRITE_ATOMICITY | Fid::RESERVATION_NOTIFICATION_MASK | Fid::RESERVATION_PERSISTENCE
    )
}

/// The state of a namespace, attached or not; of all of them, that which leaves least.
fn worst_state(subsystem: &Subsystem, nsid: Nsid) -> Option<AnaState> {
    let state = |namespace: &Namespace| subsystem.states.of(namespace.ana_group);
    if nsid != Nsid::ALL {
        return subsystem.allocated().find(nsid).map(state);
    }
    let least = [AnaState::PERSISTENT_LOSS, AnaState::INACCESSIBLE, AnaState::CHANGE];
    let has = |wanted: &AnaState| subsystem.allocated().iter().any(|namespace| state(namespace) == *wanted);
    least.into_iter().find(has)
}
