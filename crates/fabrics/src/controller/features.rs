//! Values of a controller's features.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};

use ebof_drive::health::Thresholds;
use ebof_drive::reservation::NotificationMask;
use ebof_nvme::feature::{Arbitration, AsyncEventConfig, HostBehaviorSupport, PowerManagement, WriteAtomicity};
use ebof_nvme::{HostId, Nsid};

use super::Kind;

/// Current values of the features that are not kept elsewhere.
#[derive(Debug)]
pub(crate) struct Features {
    pub(crate) arbitration: Arbitration,
    pub(crate) power: PowerManagement,
    pub(crate) over_kelvin: u16,
    pub(crate) under_kelvin: u16,
    /// Time limits that differ from the default; of existing namespaces only, so bounded by their
    /// number.
    pub(crate) recovery: BTreeMap<Nsid, u16>,
    /// The one that was last set for all of them.
    pub(crate) recovery_of_all: u16,
    pub(crate) atomicity: WriteAtomicity,
    pub(crate) events: AsyncEventConfig,
    pub(crate) behavior: Box<HostBehaviorSupport>,
    /// Critical warnings of the endurance group that are events.
    pub(crate) group_warnings: u8,
    /// Reservation notices that the host does not want, where it said so; of existing namespaces
    /// only.
    pub(crate) masks: BTreeMap<Nsid, NotificationMask>,
    /// Interrupt Coalescing: kept and not followed.
    pub(crate) coalescing: u32,
    /// Vectors whose interrupts are not to be coalesced.
    pub(crate) uncoalesced: BTreeSet<u16>,
    /// The host identifier that a host has sent, on its way to the registry.
    pub(crate) new_host_id: Option<HostId>,
}

impl Features {
    /// The defaults.
    pub(crate) fn new(kind: &Kind) -> Self {
        Self {
            arbitration: Arbitration::decode(0),
            power: PowerManagement::decode(0),
            over_kelvin: match kind {
                // The threshold is the drive's WCTEMP until the host says otherwise.
                Kind::Io(subsystem) if subsystem.drive.is_some() => Thresholds::DEFAULT.over,
                _ => u16::MAX,
            },
            under_kelvin: 0,
            recovery: BTreeMap::new(),
            recovery_of_all: 0,
            atomicity: WriteAtomicity::default(),
            events: match kind {
                Kind::Io(_) => AsyncEventConfig::NAMESPACE_ATTRIBUTE.with(AsyncEventConfig::ANA_CHANGE),
                Kind::Discovery(_) => AsyncEventConfig::DISCOVERY_LOG,
            },
            behavior: Box::default(),
            group_warnings: 0,
            masks: BTreeMap::new(),
            coalescing: 0,
            uncoalesced: BTreeSet::new(),
            new_host_id: None,
        }
    }

    /// Temperature thresholds.
    pub(crate) fn thresholds(&self) -> Thresholds {
        Thresholds { over: self.over_kelvin, under: self.under_kelvin }
    }

    /// Which reservation notices about `nsid` the host does not want.
    pub(crate) fn reservation_mask(&self, nsid: Nsid) -> NotificationMask {
        self.masks.get(&nsid).copied().unwrap_or_default()
    }
}
