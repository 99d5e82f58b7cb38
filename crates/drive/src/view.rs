//! What everybody may know about a drive, at one moment: what Identify and the log pages announce, and which host sees which
//! namespace.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_nvme::{ControllerId, Nsid};

use crate::change::State;
use crate::drive::{Capacity, Managers, Settings};
use crate::namespace::Namespace;
use crate::profile::Profile;
use crate::reservation::Reservations;

/// See the module's description.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Serial Number.
    pub serial: String,
    /// Model Number.
    pub model: String,
    /// The drive's own UUID.
    pub uuid: [u8; 16],
    /// Limits.
    pub profile: Profile,
    /// Sizes.
    pub capacity: Capacity,
    /// Capacity that no namespace has claimed, bytes.
    pub unallocated_bytes: u64,
    /// Who may manage.
    pub managers: Managers,
    /// Namespaces by NSID.
    pub namespaces: Vec<(Nsid, Namespace)>,
    /// Registrants and reservations of those namespaces that have any.
    pub reservations: BTreeMap<u32, Arc<Reservations>>,
    /// The host that each controller identifier is kept for.
    pub seats: BTreeMap<u16, String>,
}

impl View {
    pub(crate) fn new(state: &State, settings: &Settings, capacity: Capacity, unallocated_bytes: u64) -> Self {
        Self {
            serial: state.identity.serial.clone(),
            model: state.identity.model.clone(),
            uuid: state.identity.uuid,
            profile: settings.profile.clone(),
            capacity,
            unallocated_bytes,
            managers: settings.managers.clone(),
            namespaces: state.namespaces.iter().map(|(&nsid, namespace)| (Nsid(nsid), namespace.clone())).collect(),
            reservations: state
                .reservations
                .iter()
                .filter(|(_, kept)| !kept.is_untouched())
                .map(|(&nsid, kept)| (nsid, Arc::new(kept.clone())))
                .collect(),
            seats: state.seats.iter().map(|(&cntlid, seat)| (cntlid, seat.host.clone())).collect(),
        }
    }

    /// The controller identifier for a new controller of `host`, from `least` to `most`: one that the host had before and
    /// that is not in use, else one that nobody had, else any.
    #[must_use]
    pub fn seat_for(
        &self,
        host: &str,
        least: u16,
        most: u16,
        in_use: impl Fn(ControllerId) -> bool,
    ) -> Option<ControllerId> {
        let free = |cntlid: &u16| (least..=most).contains(cntlid) && !in_use(ControllerId(*cntlid));
        let own = self.seats.iter().filter(|(_, owner)| *owner == host).map(|(&cntlid, _)| cntlid).find(free);
        let new = || (least..=most).filter(free).find(|cntlid| !self.seats.contains_key(cntlid));
        own.or_else(new).or_else(|| (least..=most).find(free)).map(ControllerId)
    }
}
