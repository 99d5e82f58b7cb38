//! A snapshot of a drive for controllers: what Identify and log pages announce, and which host is
//! attached to which namespace.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_nvme::log::AnaState;
use ebof_nvme::{ControllerId, Nsid};

use crate::drive::{Capacity, Drive, Managers};
use crate::function::{Function, Primary};
use crate::logs::health::Condition;
use crate::maintenance::firmware::Personality;
use crate::maintenance::sanitize::Restriction;
use crate::namespace::Namespace;
use crate::profile::Profile;
use crate::reservation::Reservations;

/// A snapshot of a drive. Each change of the drive makes a new one.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Serial Number.
    pub serial: String,
    /// Model Number.
    pub model: String,
    /// The drive's own UUID.
    pub uuid: [u8; 16],
    /// Revision of the running firmware.
    pub revision: String,
    /// What the running firmware changes about the drive.
    pub personality: Personality,
    /// FRMW.
    pub frmw: u8,
    /// Limits.
    pub profile: Profile,
    /// Sizes.
    pub capacity: Capacity,
    /// Capacity that no namespace has claimed, bytes.
    pub unallocated_bytes: u64,
    /// Temperature, spare capacity and faults.
    pub condition: Condition,
    /// The best state that its ANA groups have at any port: not optimized if the configuration says
    /// so of a drive in this condition.
    pub best_ana_state: AnaState,
    /// Entries of the Error Information log.
    pub error_entries: usize,
    /// Percentage Used.
    pub percentage_used: u8,
    /// The hosts that may manage the drive.
    pub managers: Managers,
    /// The restriction of commands while the drive is being sanitized, or after that has failed.
    pub restriction: Option<Restriction>,
    /// Namespaces whose old data are being erased, with the percentage that is left. Commands to
    /// them wait.
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
    /// The hosts that controller identifiers are assigned to.
    pub assigned_cntlids: BTreeMap<u16, String>,
    /// Functions by number: all that the configuration says.
    pub functions: BTreeMap<u16, Function>,
    /// Whether they are controllers of the drive's own subsystem, instead of each having one.
    pub one_subsystem: bool,
    /// Flexible resources of the primary controller.
    pub primary: Primary,
}

impl View {
    pub(crate) fn new(drive: &Drive) -> Self {
        let state = drive.state();
        let settings = drive.settings();
        let limits = drive.firmware_limits();
        let running = state.firmware.running(&limits);
        let reservations = state.reservations.iter().filter(|(_, reservations)| !reservations.is_untouched());
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
            best_ana_state: settings.best_ana_state(&drive.condition()),
            condition: drive.condition(),
            error_entries: settings.error_entries,
            percentage_used: state.health.percentage_used(&drive.endurance()),
            managers: settings.managers.clone(),
            restriction: drive.restriction(),
            erasing: drive.erasing(),
            fna: drive.fna(),
            sanicap: drive.capabilities().sanicap(),
            no_deallocate_warns: drive.no_deallocate_warns(),
            namespaces: state.namespaces.iter().map(|(&nsid, namespace)| (Nsid(nsid), namespace.clone())).collect(),
            reservations: reservations.map(|(&nsid, reservations)| (nsid, Arc::clone(reservations))).collect(),
            assigned_cntlids: state
                .assigned_cntlids
                .iter()
                .map(|(&cntlid, assignment)| (cntlid, assignment.host.clone()))
                .collect(),
            functions: drive.functions(),
            one_subsystem: settings.one_subsystem,
            primary: state.primary,
        }
    }

    /// The controller identifier for a new controller of `host`, from `least` to `most`: a free one
    /// that is assigned to the host, else one that is not assigned, else any free one. `None` if
    /// none is free.
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
