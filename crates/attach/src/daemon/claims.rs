//! Finds namespaces that are block devices of another daemon of the same host already, over another
//! port or another name of the same address. Reads state files only.
//!
//! A daemon claims a namespace by writing it into its state file under the state directory's lock,
//! before it makes the device. So of two that connect at the same time, one sees the other.

use crate::error::{Error, Existing};
use crate::request::Device;
use crate::state::{Guard, Record, State, StateDir};

/// The device of another daemon that is the same namespace as `device` of the controller that `own`
/// describes.
pub(crate) fn find(states: &StateDir, _guard: &Guard, own: &State, device: &Device) -> Result<Option<Existing>, Error> {
    let others = states.records_but(&own.name)?.into_iter().filter(|record| record.live);
    Ok(others.into_iter().find_map(|record| claimed_by(&record, own, device)))
}

fn claimed_by(record: &Record, own: &State, device: &Device) -> Option<Existing> {
    let other = record.state.as_ref()?;
    // As in the kernel, another host NQN is another host.
    if other.subnqn != own.subnqn || other.hostnqn != own.hostnqn {
        return None;
    }
    let same = |theirs: &&Device| {
        theirs.problem.is_none()
            && if device.identifiers.is_empty() {
                // Without identifiers: the same NSID of a controller with the same serial number.
                theirs.identifiers.is_empty() && theirs.nsid == device.nsid && other.serial == own.serial
            } else {
                theirs.identifiers == device.identifiers
            }
    };
    let theirs = other.devices.iter().find(same)?;
    let path = theirs.path.as_ref().map(|path| format!(" ({})", path.display())).unwrap_or_default();
    Some(Existing {
        name: record.name.clone(),
        nqn: other.subnqn.clone(),
        address: other.request.address(),
        device: Some(format!("{}{path}", theirs.name)),
    })
}
