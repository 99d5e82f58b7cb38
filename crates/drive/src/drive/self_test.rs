//! Device Self-test: what of the drive a test can be about, and the changes of its state.

use alloc::boxed::Box;

use ebof_nvme::Nsid;

use super::capture::MediumStatus;
use crate::change::{Change, State};
use crate::maintenance::self_test::{Inventory, SelfTest};
use crate::request::Origin;

/// The namespaces that a test by this origin reads, and those that it must not.
pub(super) fn inventory(state: &State, medium: &MediumStatus, extent_bytes: u64, origin: &Origin) -> Inventory {
    let mut inventory = Inventory { extent_bytes, ..Inventory::default() };
    for (&nsid, namespace) in &state.namespaces {
        if origin.is_box || namespace.is_attached_to(origin) {
            // Without an entry nothing was written to it yet.
            let extents = medium.allocated.get(&namespace.volume).copied().unwrap_or_default();
            inventory.active.push((Nsid(nsid), extents));
        } else {
            inventory.inactive.push(Nsid(nsid));
        }
    }
    inventory
}

/// The self-test begins, goes on or ends.
pub(super) fn tested(next: SelfTest) -> Change {
    Change::SelfTested { self_test: Box::new(next) }
}
