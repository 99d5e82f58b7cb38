//! What Reservation Report returns.
//!
//! NVMe Base 2.1, "Reservation Report command".

use alloc::vec::Vec;

use ebof_nvme::reservation::{ReportedRegistrant, report};
use ebof_nvme::{ControllerId, HostId, Status};

use super::Reservations;
use crate::request::Refusal;

/// Dword 11.
const EDS_BYTE: u8 = 44;

impl Reservations {
    /// The Reservation Status Extended data structure: one Registrant Extended data structure for
    /// each registrant, in the order of their identifiers, with the controller that `controller_of`
    /// names for the host now, or FFFFh.
    ///
    /// # Errors
    /// Host Identifier Inconsistent Format unless `extended`: host identifiers have 128 bits on
    /// every fabric, and the other structure has room for 64.
    pub fn report(
        &self,
        extended: bool,
        controller_of: impl Fn(HostId) -> Option<ControllerId>,
    ) -> Result<Vec<u8>, Refusal> {
        if !extended {
            return Err(Refusal::at(Status::HOST_ID_INCONSISTENT, EDS_BYTE));
        }
        let registrants: Vec<_> = self
            .registrants
            .iter()
            .map(|(&host, &key)| ReportedRegistrant {
                controller: controller_of(HostId(host.0)).unwrap_or(ControllerId::DYNAMIC),
                holder: self.holds(host),
                key,
                host_id: host.0,
            })
            .collect();
        Ok(report(self.generation, self.kind(), self.persistent, &registrants, extended))
    }
}
