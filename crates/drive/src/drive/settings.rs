//! What the configuration says of a drive: limits, who may manage it, and what new namespaces are.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use ebof_nvme::Status;
use ebof_nvme::identify::field::fna;
use ebof_nvme::log::AnaState;

use crate::logs::health::Condition;
use crate::logs::telemetry::Reader;
use crate::maintenance::firmware::{Content, Limits, PRODUCT, Personality};
use crate::profile::Profile;
use crate::request::{Origin, Refusal};

/// What the configuration says about a drive, besides its profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Limits.
    pub profile: Profile,
    /// Namespaces together may have more capacity than the drive.
    pub overcommit: bool,
    /// A namespace has one host at a time, shared or not.
    pub exclusive: bool,
    /// New namespaces are attached to all hosts.
    pub attach_everyone: bool,
    /// New and formatted namespaces have a checksum for each block.
    pub checked: bool,
    /// New and formatted namespaces are encrypted.
    pub encrypted: bool,
    /// The hosts that may create, delete, attach and format.
    pub managers: Managers,
    /// The most that a host's own namespaces may hold together (NCAP), in bytes.
    pub quotas: BTreeMap<String, u64>,
    /// Bytes that may be written to the medium over the drive's life; `None`: as the profile says.
    pub endurance_bytes: Option<u64>,
    /// Entries of the Error Information log that are kept and shown.
    pub error_entries: usize,
    /// Revision of the built-in firmware.
    pub revision: String,
    /// NQN of the subsystem.
    pub subsystem: String,
    /// Functions, up to [`FunctionId::MAX`](crate::FunctionId::MAX).
    pub functions: u16,
    /// They are controllers of the drive's own subsystem, instead of each having one.
    pub one_subsystem: bool,
    /// The state of its ANA groups at all ports while it is degraded or read only; `None`: as
    /// without.
    pub ana_on_failure: Option<AnaState>,
}

impl Settings {
    /// The best state that its ANA groups have at any port, in this condition.
    #[must_use]
    pub fn best_ana_state(&self, condition: &Condition) -> AnaState {
        let fails = condition.degraded || condition.read_only;
        self.ana_on_failure.filter(|_| fails).unwrap_or(AnaState::OPTIMIZED)
    }
}

/// Which hosts may manage a drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Managers {
    /// Every host that may connect.
    #[default]
    Everyone,
    /// Hosts with these NQNs.
    Only(BTreeSet<String>),
}

/// Sizes of a medium, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// What can be allocated (TNVMCAP).
    pub total_bytes: u64,
    /// The unit of allocation: a power of two.
    pub extent_bytes: u64,
}

impl Settings {
    /// The box and the managers, except through functions: those are for I/O.
    pub(super) fn check_manager(&self, origin: &Origin) -> Result<(), Refusal> {
        let is_manager = origin.function.is_none() && self.managers.contains(origin.host.as_str());
        if origin.is_box || is_manager { Ok(()) } else { Err(Refusal::new(Status::OPERATION_DENIED)) }
    }

    /// FNA: Format NVM and its secure erase apply to the namespaces that the NSID names.
    pub(super) fn fna(&self) -> u8 {
        if self.encrypted { fna::CRYPTO_ERASE } else { 0 }
    }

    /// Who reads telemetry by a command of this origin.
    pub(super) fn reader(&self, origin: &Origin) -> Reader {
        if self.managers.contains(origin.host.as_str()) { Reader::Manager } else { Reader::Other }
    }

    /// The firmware slots, and the built-in image.
    pub(super) fn firmware_limits(&self) -> Limits {
        Limits {
            slots: self.profile.firmware_slots,
            slot_1_read_only: false,
            product: PRODUCT.into(),
            builtin: Content { revision: self.revision.clone(), personality: Personality::default() },
        }
    }
}

impl Managers {
    /// Whether the host with this NQN may manage the drive.
    #[must_use]
    pub fn contains(&self, host: &str) -> bool {
        match self {
            Self::Everyone => true,
            Self::Only(hosts) => hosts.contains(host),
        }
    }
}
