//! What everybody may know about a drive, at one moment: what Identify and the log pages announce,
//! and which host sees which namespace.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_nvme::{ControllerId, Nsid};

use crate::drive::{Capacity, Drive, Managers};
use crate::firmware::Personality;
use crate::health::Condition;
use crate::namespace::Namespace;
use crate::profile::Profile;
use crate::reservation::Reservations;
use crate::sanitize::Restriction;

/// A drive as hosts and the log pages see it; a change makes a new one.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Serial Number.
    pub serial: String,
    /// Model Number.
    pub model: String,
    /// The drive's own UUID.
    pub uuid: [u8; 16],
    /// Firmware Revision that runs.
    pub revision: String,
    /// What the firmware that runs makes of the drive.
    pub personality: Personality,
    /// FRMW.
    pub frmw: u8,
    /// Limits.
    pub profile: Profile,
    /// Sizes.
    pub capacity: Capacity,
    /// Capacity that no namespace has claimed, bytes.
    pub unallocated_bytes: u64,
    /// What the drive is like.
    pub condition: Condition,
    /// Entries of the Error Information log.
    pub error_entries: usize,
    /// Percentage Used.
    pub percentage_used: u8,
    /// Who may manage.
    pub managers: Managers,
    /// What commands have to wait for: the drive is being sanitized, or that has failed.
    pub restriction: Option<Restriction>,
    /// Namespaces whose old data are being erased, and how much of that is left, in percent:
    /// commands to them wait.
    pub erasing: BTreeMap<u32, u8>,
    /// FNA.
    pub fna: u8,
    /// SANICAP.
    pub sanicap: u32,
    /// Feature 17h, No-Deallocate Response Mode.
    pub no_deallocate_warns: bool,
    /// Namespaces by NSID.
    pub namespaces: Vec<(Nsid, Namespace)>,
    /// Registrants and reservations of those namespaces that have any.
    pub reservations: BTreeMap<u32, Arc<Reservations>>,
    /// The host that each controller identifier is kept for.
    pub assigned_cntlids: BTreeMap<u16, String>,
}

impl View {
    pub(crate) fn new(drive: &Drive) -> Self {
        let (state, settings) = (drive.state(), drive.settings());
        let limits = drive.firmware_limits();
        let running = state.firmware.running(&limits);
        let kept = state.reservations.iter().filter(|(_, kept)| !kept.is_untouched());
        Self {
            serial: state.identity.serial.clone(),
            model: state.identity.model.clone() + &running.personality.model_suffix,
            uuid: state.identity.uuid,
            revision: running.revision.clone(),
            personality: running.personality.clone(),
            frmw: limits.frmw(),
            profile: settings.profile.clone(),
            capacity: drive.capacity(),
            unallocated_bytes: drive.unallocated_bytes(),
            condition: drive.condition(),
            error_entries: settings.error_entries,
            percentage_used: state.health.percentage_used(&drive.endurance()),
            managers: settings.managers.clone(),
            restriction: drive.restriction(),
            erasing: drive.erasing(),
            fna: drive.fna(),
            sanicap: drive.abilities().sanicap(),
            no_deallocate_warns: drive.no_deallocate_warns(),
            namespaces: state.namespaces.iter().map(|(&nsid, namespace)| (Nsid(nsid), namespace.clone())).collect(),
            reservations: kept.map(|(&nsid, kept)| (nsid, Arc::clone(kept))).collect(),
            assigned_cntlids: state
                .assigned_cntlids
                .iter()
                .map(|(&cntlid, assignment)| (cntlid, assignment.host.clone()))
                .collect(),
        }
    }

    /// The controller identifier for a new controller of `host`, from `least` to `most`: one that
    /// the host had before and that is not in use, else one that nobody had, else any.
    #[must_use]
    pub fn cntlid_for(
        &self,
        host: &str,
        least: u16,
        most: u16,
        in_use: impl Fn(ControllerId) -> bool,
    ) -> Option<ControllerId> {
        let free = |cntlid: &u16| (least..=most).contains(cntlid) && !in_use(ControllerId(*cntlid));
        let own =
            self.assigned_cntlids.iter().filter(|(_, owner)| *owner == host).map(|(&cntlid, _)| cntlid).find(free);
        let new = || (least..=most).filter(free).find(|cntlid| !self.assigned_cntlids.contains_key(cntlid));
        own.or_else(new).or_else(|| (least..=most).find(free)).map(ControllerId)
    }
}
