//! Functions of a drive: its secondary controllers (virtual functions) with their resources, the
//! ports that each is given to, and its share of the drive.
//!
//! What is announced of them is here, too: Primary Controller Capabilities and the Secondary
//! Controller List. Decisions about them are in `drive/functions.rs`.
//!
//! NVMe Base 2.1, "Virtualization Enhancements".

mod port_names;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use core::fmt;

use ebof_nvme::ControllerId;
use ebof_nvme::virtualization::{
    INTERRUPT_RESOURCES, ONLINE, PrimaryCapabilities, QUEUE_RESOURCES, ResourceCapabilities, ResourceType,
    SecondaryController, SecondaryControllerList,
};
use serde::{Deserialize, Serialize};

pub use port_names::{PortNames, PortNamesError};

/// A function of a drive: the identifier of its secondary controller, 1 to 127, which is its
/// virtual function number, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FunctionId(pub u16);

/// A function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Function {
    /// Flexible queue resources assigned to it: queue pairs, that of the Admin Queue included.
    pub queues: u16,
    /// Flexible interrupt resources assigned to it.
    pub interrupts: u16,
    /// Whether its controller is online.
    pub online: bool,
    /// The ports that it is given to.
    #[serde(rename = "port", skip_serializing_if = "PortNames::is_empty")]
    pub ports: PortNames,
    /// Its share of the drive.
    pub share: Share,
}

/// What a function gets of its drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Share {
    /// Its part of the drive in relation to other functions, 1 to 1000.
    pub weight: u16,
    /// I/O commands per second at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes per second at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// I/O commands per second that it is to get, whatever others ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_iops: Option<u64>,
}

/// Flexible resources of the primary controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Primary {
    /// Queues that it has.
    pub queues: u16,
    /// Interrupts that it has.
    pub interrupts: u16,
    /// Queues that it will have after its next reset.
    pub next_queues: u16,
    /// Interrupts that it will have after its next reset.
    pub next_interrupts: u16,
}

/// A change of functions; what belongs together is in one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FunctionChange {
    /// Functions were attached to a namespace.
    Attached {
        /// The namespace's NSID.
        nsid: u32,
        /// Their numbers.
        functions: BTreeSet<u16>,
    },
    /// Functions were detached from a namespace.
    Detached {
        /// The namespace's NSID.
        nsid: u32,
        /// Their numbers.
        functions: BTreeSet<u16>,
    },
    /// A namespace was moved to other functions.
    Mapped {
        /// The namespace's NSID.
        nsid: u32,
        /// The functions that it is attached to now.
        functions: BTreeSet<u16>,
        /// All hosts were detached, too.
        without_hosts: bool,
    },
    /// A namespace was attached to these, and to nobody else.
    Exactly {
        /// The namespace's NSID.
        nsid: u32,
        /// Numbers of functions.
        functions: BTreeSet<u16>,
        /// Hosts' NQNs.
        hosts: BTreeSet<String>,
        /// Every host has it.
        for_everyone: bool,
    },
    /// A function has other resources, another state, share or other ports.
    Changed {
        /// Its number.
        id: u16,
        /// As it is now.
        function: Function,
    },
    /// The primary controller has, or will have, other flexible resources.
    Allocated {
        /// As it is now.
        primary: Primary,
    },
    /// The primary controller was reset: its allocation is in force, and all functions are offline.
    Reset {},
}

impl FunctionId {
    /// The largest one.
    pub const MAX: u16 = 127;

    /// The function whose controller is `cntlid`, if a drive with `functions` functions has it.
    #[must_use]
    pub fn of_controller(cntlid: ControllerId, functions: u16) -> Option<Self> {
        (1..=functions.min(Self::MAX)).contains(&cntlid.0).then_some(Self(cntlid.0))
    }

    /// The identifier of its controller.
    #[must_use]
    pub const fn controller(self) -> ControllerId {
        ControllerId(self.0)
    }
}

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vf{}", self.0)
    }
}

impl Default for Share {
    fn default() -> Self {
        Self { weight: 1, iops: None, bytes_per_second: None, minimum_iops: None }
    }
}

impl Share {
    /// Whether the values can be kept: no weight or limit of 0, no minimum above the limit.
    #[must_use]
    pub fn is_legal(&self) -> bool {
        let no_zero = |limit: Option<u64>| limit != Some(0);
        let minimum = self.minimum_iops.zip(self.iops).is_none_or(|(minimum, most)| minimum <= most);
        (1..=1000).contains(&self.weight) && no_zero(self.iops) && no_zero(self.bytes_per_second) && minimum
    }
}

impl Function {
    /// Flexible resources of a drive for each of its functions, of each type: an Admin Queue and 64
    /// I/O queues.
    pub const RESOURCES_EACH: u16 = 65;
    /// Flexible resources of each type that one function may be assigned (VQFRSM, VIFRSM).
    pub const RESOURCES_MAX: u16 = 129;
    /// Queues without which a controller does not work: an Admin Queue and one I/O queue.
    pub const QUEUES_MIN: u16 = 2;

    /// What it is assigned of a type.
    #[must_use]
    pub fn resources(&self, resource: ResourceType) -> u16 {
        of_type(resource, self.queues, self.interrupts)
    }

    /// Whether it has what a controller needs to go online.
    #[must_use]
    pub fn can_go_online(&self) -> bool {
        self.queues >= Self::QUEUES_MIN && self.interrupts > 0
    }

    /// Without resources, and therefore offline. Ports and share are kept.
    pub(crate) fn go_offline(&mut self) {
        (self.queues, self.interrupts, self.online) = (0, 0, false);
    }
}

const fn of_type(resource: ResourceType, queues: u16, interrupts: u16) -> u16 {
    match resource {
        ResourceType::Queues => queues,
        ResourceType::Interrupts => interrupts,
        ResourceType::Reserved(_) => 0,
    }
}

impl Primary {
    /// What it has of a type.
    #[must_use]
    pub fn resources(&self, resource: ResourceType) -> u16 {
        of_type(resource, self.queues, self.interrupts)
    }

    /// The same after a reset.
    pub(crate) fn after_reset(self) -> Self {
        Self { queues: self.next_queues, interrupts: self.next_interrupts, ..self }
    }
}

/// Flexible resources of a type that a drive with these functions has (VQFRT, VIFRT): no fewer than
/// are in use, because it may have had more functions when it was given them.
#[must_use]
pub fn flexible_total(primary: &Primary, functions: &BTreeMap<u16, Function>, resource: ResourceType) -> u32 {
    let functions_max = u16::try_from(functions.len()).unwrap_or(FunctionId::MAX).min(FunctionId::MAX);
    let in_use = assigned(functions, resource) + u32::from(primary.resources(resource));
    let after_reset = u32::from(primary.after_reset().resources(resource));
    (u32::from(functions_max) * u32::from(Function::RESOURCES_EACH)).max(in_use).max(after_reset)
}

/// Flexible resources of a type that are assigned to functions (VQRFA, VIRFA).
#[must_use]
pub fn assigned(functions: &BTreeMap<u16, Function>, resource: ResourceType) -> u32 {
    functions.values().map(|function| u32::from(function.resources(resource))).sum()
}

/// Primary Controller Capabilities of a drive with these functions. The primary controller is 0,
/// and has a queue and an interrupt of its own.
#[must_use]
pub fn primary_capabilities(
    cntlid: ControllerId,
    primary: &Primary,
    functions: &BTreeMap<u16, Function>,
) -> PrimaryCapabilities {
    let of = |resource| {
        let total = flexible_total(primary, functions, resource);
        ResourceCapabilities {
            frt: total.into(),
            rfa: assigned(functions, resource).into(),
            rfap: primary.resources(resource).into(),
            prt: 1.into(),
            frsm: Function::RESOURCES_MAX.min(u16::try_from(total).unwrap_or(u16::MAX)).into(),
            gran: 1.into(),
            reserved: [0; 16],
        }
    };
    PrimaryCapabilities {
        cntlid: cntlid.0.into(),
        crt: QUEUE_RESOURCES | INTERRUPT_RESOURCES,
        queues: of(ResourceType::Queues),
        interrupts: of(ResourceType::Interrupts),
        ..PrimaryCapabilities::zeroed()
    }
}

/// The Secondary Controller List from the controller `least` on, for the manager with the primary
/// controller `cntlid`.
#[must_use]
pub fn secondary_controllers(
    cntlid: ControllerId,
    functions: &BTreeMap<u16, Function>,
    least: ControllerId,
) -> SecondaryControllerList {
    let listed = functions.range(least.0..).map(|(&id, function)| SecondaryController {
        scid: id.into(),
        pcid: cntlid.0.into(),
        scs: if function.online { ONLINE } else { 0 },
        vfn: id.into(),
        nvq: function.queues.into(),
        nvi: function.interrupts.into(),
        ..SecondaryController::default()
    });
    SecondaryControllerList::new(listed)
}

#[cfg(test)]
mod tests;
