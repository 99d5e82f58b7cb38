//! Reservations of all namespaces: the limits of the whole drive, and the changes for the journal.
//!
//! What a command does to one namespace's is decided in `reservation.rs`.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use ebof_nvme::{Nsid, Status};

use super::decision::Decision;
use crate::change::Change;
use crate::change::budget::{REGISTRANTS_MAX, registrants};
use crate::request::{Origin, Refusal};
use crate::reservation::{self, Access, Reservations};

/// The reservations of a namespace that never had any.
static NO_RESERVATIONS: Reservations = Reservations::none();

/// The reservations of a drive's namespaces.
pub(super) struct ReservationTable<'a> {
    pub(super) by_nsid: &'a BTreeMap<u32, Arc<Reservations>>,
    /// How many namespaces may have registrants.
    pub(super) reserved_max: u32,
}

impl ReservationTable<'_> {
    /// Executes a command of a host to a namespace that it is attached to.
    pub(super) fn reserve(
        &self,
        nsid: Nsid,
        command: &reservation::Command,
        origin: &Origin,
    ) -> Result<Decision, Refusal> {
        let reservations = self.of_namespace(nsid.0);
        let in_use = self.by_nsid.values().filter(|reservations| !reservations.is_empty()).count();
        let most = usize::try_from(self.reserved_max).unwrap_or(usize::MAX);
        if reservations.is_empty() && in_use >= most {
            return Err(Refusal::new(Status::INSUFFICIENT_RESOURCES));
        }
        let done = reservations.execute(origin.host_id, command)?;
        let more = done.change.as_ref().map_or(0, |change| reservations.new_registrants(change));
        if more > 0 && registrants(self.by_nsid) + more > REGISTRANTS_MAX {
            return Err(Refusal::transient(Status::INSUFFICIENT_RESOURCES));
        }
        Ok(Decision {
            changes: done.change.into_iter().map(|change| Change::Reserved { nsid: nsid.0, change }).collect(),
            notices: done.notices.into_iter().map(|(host, event)| (nsid, host, event)).collect(),
            abort: done.abort.into_iter().map(|host| (nsid, host)).collect(),
            ..Decision::nothing()
        })
    }

    /// Sets whether these namespaces' reservations persist.
    pub(super) fn persist(&self, nsids: &[u32], persistent: bool) -> Decision {
        let change = |&nsid: &u32| {
            let change = self.of_namespace(nsid).set_persistent(persistent)?;
            Some(Change::Reserved { nsid, change })
        };
        Decision { changes: nsids.iter().filter_map(change).collect(), ..Decision::nothing() }
    }

    /// Refuses to manage a namespace that another host has reserved, as a write to it would be. The
    /// box may: what it moves keeps its reservation.
    pub(super) fn check(&self, nsid: u32, origin: &Origin) -> Result<(), Refusal> {
        if !origin.is_box && self.of_namespace(nsid).conflicts(origin.host_id, Access::Write) {
            return Err(Refusal::new(Status::RESERVATION_CONFLICT));
        }
        Ok(())
    }

    fn of_namespace(&self, nsid: u32) -> &Reservations {
        self.by_nsid.get(&nsid).map_or(&NO_RESERVATIONS, |reservations| reservations)
    }
}
