//! Reservations: the limits of the whole drive, and the changes for the journal.

use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::{Nsid, Status};

use super::{Decision, Drive};
use crate::budget::REGISTRANTS_MAX;
use crate::change::Change;
use crate::request::{Origin, Refusal};
use crate::reservation::{self, Access, Reservations};

/// The reservations of a namespace that never had any.
static NO_RESERVATIONS: Reservations = Reservations::none();

impl Drive {
    pub(super) fn reserve(
        &self,
        nsid: Nsid,
        command: &reservation::Command,
        origin: &Origin,
    ) -> Result<Decision, Refusal> {
        self.find_attached(nsid, origin)?;
        let reservations = self.reservations(nsid.0);
        let in_use = self.state.reservations.values().filter(|reservations| !reservations.is_empty()).count();
        let most = usize::try_from(self.settings.profile.reserved_namespaces).unwrap_or(usize::MAX);
        if reservations.is_empty() && in_use >= most {
            return Err(Refusal::new(Status::INSUFFICIENT_RESOURCES));
        }
        let done = reservations.execute(origin.host_id, command)?;
        let more = done.change.as_ref().map_or(0, |change| reservations.new_registrants(change));
        if more > 0 && self.state.registrants() + more > REGISTRANTS_MAX {
            return Err(Refusal::transient(Status::INSUFFICIENT_RESOURCES));
        }
        Ok(Decision {
            changes: done.change.into_iter().map(|change| Change::Reserved { nsid: nsid.0, change }).collect(),
            notices: done.notices.into_iter().map(|(host, event)| (nsid, host, event)).collect(),
            abort: done.abort.into_iter().map(|host| (nsid, host)).collect(),
            ..Decision::nothing()
        })
    }

    pub(super) fn persist(&self, nsid: Nsid, persistent: bool, origin: &Origin) -> Result<Decision, Refusal> {
        let chosen: Vec<u32> = match nsid {
            Nsid::ALL => {
                let namespaces = self.state.namespaces.iter();
                let attached = namespaces.filter(|(_, namespace)| namespace.is_attached_to(origin));
                attached.map(|(&nsid, _)| nsid).collect()
            }
            _ => {
                self.find_attached(nsid, origin)?;
                vec![nsid.0]
            }
        };
        let change =
            |nsid| Some(Change::Reserved { nsid, change: self.reservations(nsid).set_persistent(persistent)? });
        Ok(Decision { changes: chosen.into_iter().filter_map(change).collect(), ..Decision::nothing() })
    }

    /// Refuses to manage a namespace that another host has reserved, as a write to it would be. The
    /// box may: what it moves keeps its reservation.
    pub(super) fn check_reservation(&self, nsid: u32, origin: &Origin) -> Result<(), Refusal> {
        if !origin.is_box && self.reservations(nsid).conflicts(origin.host_id, Access::Write) {
            return Err(Refusal::new(Status::RESERVATION_CONFLICT));
        }
        Ok(())
    }

    pub(super) fn reservations(&self, nsid: u32) -> &Reservations {
        self.state.reservations.get(&nsid).map_or(&NO_RESERVATIONS, |reservations| reservations)
    }
}
