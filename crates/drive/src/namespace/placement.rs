//! Where a function is, and who has a namespace: what the box changes in one step, and takes back
//! in one.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::function::{Function, FunctionId, PortNames};
use crate::namespace::Namespace;

/// A function's resources, state and ports: all of it but its share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// Flexible queue resources.
    pub queues: u16,
    /// Flexible interrupt resources.
    pub interrupts: u16,
    /// Whether its controller is online.
    pub online: bool,
    /// The ports that it is given to.
    pub ports: PortNames,
}

/// Who has a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attachments {
    /// Numbers of the functions that it is attached to.
    pub functions: BTreeSet<u16>,
    /// NQNs of the hosts of the drive's own subsystem that it is attached to.
    pub hosts: BTreeSet<String>,
    /// Whether it is attached to every host of that.
    pub for_everyone: bool,
}

impl From<&Function> for Placement {
    fn from(function: &Function) -> Self {
        let Function { queues, interrupts, online, ports, share: _ } = function.clone();
        Self { queues, interrupts, online, ports }
    }
}

impl From<&Namespace> for Attachments {
    fn from(namespace: &Namespace) -> Self {
        let Namespace { functions, hosts, for_everyone, .. } = namespace.clone();
        Self { functions, hosts, for_everyone }
    }
}

impl Attachments {
    /// Which functions, and (`None`) whether hosts, lose the namespace if others have it.
    pub(crate) fn lost_by(&self, to: &Self) -> Vec<Option<FunctionId>> {
        let functions = self.functions.difference(&to.functions).map(|&id| Some(FunctionId(id)));
        let hosts = !self.hosts.is_subset(&to.hosts) || self.for_everyone && !to.for_everyone;
        functions.chain(hosts.then_some(None)).collect()
    }

    /// What both have.
    #[must_use]
    pub fn common(&self, other: &Self) -> Self {
        Self {
            functions: self.functions.intersection(&other.functions).copied().collect(),
            hosts: self.hosts.intersection(&other.hosts).cloned().collect(),
            for_everyone: self.for_everyone && other.for_everyone,
        }
    }
}
