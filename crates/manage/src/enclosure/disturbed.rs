//! Whom changes of the box disturb: what is told before they are made, and what they are bound to.
//!
//! Owns the answer and its revision. Whoever has seen an answer sends its revision with the
//! changes; a target refuses them if the answer is another one by then.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::attachee::Attachee;
use super::change::Change;
use super::given_ports::named;
use super::inventory::{HostObject, Inventory};
use super::name::{FunctionName, NamespaceName};
use crate::api::Revision;

/// The version of the JSON shape of [`ChangePlan`].
pub const CHANGE_PLAN_SCHEMA: u32 = 1;

/// The most hosts of an answer.
pub const DISTURBED_MAX: usize = 1000;

/// What changes do, and whom they disturb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangePlan {
    /// [`CHANGE_PLAN_SCHEMA`].
    pub schema: u32,
    /// Another one as soon as anything of the answer is another one.
    pub revision: Revision,
    /// The changes, for people.
    pub changes: Vec<String>,
    /// The connected hosts that notice, each controller once: at most [`DISTURBED_MAX`].
    pub disturbed: Vec<DisturbedHost>,
    /// How many more there are.
    pub disturbed_left_out: usize,
    /// Whether data are lost.
    pub destroys_data: bool,
}

/// A connected host that notices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisturbedHost {
    /// Its NQN.
    pub host_nqn: String,
    /// The subsystem that it is connected to.
    pub subsystem_nqn: String,
    /// Its controller.
    pub cntlid: u16,
    /// The port that it uses.
    pub port: String,
    /// What it notices.
    pub why: String,
}

impl ChangePlan {
    /// What these changes do to what there is.
    #[must_use]
    pub fn new(inventory: &Inventory, changes: &[Change]) -> Self {
        let mut found = Found::default();
        changes.iter().for_each(|change| found.note(inventory, change));
        let mut lost: Vec<String> = Vec::new();
        for change in changes.iter().filter(|change| change.destroys_data()) {
            let drive = change.drive().and_then(|drive| inventory.drive(drive));
            lost.extend(drive.iter().flat_map(|drive| &drive.namespaces).map(|namespace| namespace.name.to_string()));
        }
        let changes_told: Vec<String> = changes.iter().map(ToString::to_string).collect();
        let answer = serde_json::json!([changes, found.all, lost]);
        let left_out = found.all.len().saturating_sub(DISTURBED_MAX);
        found.all.truncate(DISTURBED_MAX);
        Self {
            schema: CHANGE_PLAN_SCHEMA,
            revision: Revision::named(crate::config::digest(&answer.to_string()).to_string()),
            changes: changes_told,
            disturbed: found.all,
            disturbed_left_out: left_out,
            destroys_data: changes.iter().any(Change::destroys_data),
        }
    }
}

/// Whom changes disturb, each controller once.
#[derive(Default)]
struct Found {
    all: Vec<DisturbedHost>,
    known: BTreeSet<(String, u16)>,
}

impl Found {
    fn add(&mut self, subsystem: &str, host: &HostObject, why: &str) {
        if self.known.insert((subsystem.to_owned(), host.cntlid)) {
            self.all.push(DisturbedHost {
                host_nqn: host.nqn.clone(),
                subsystem_nqn: subsystem.to_owned(),
                cntlid: host.cntlid,
                port: host.port.clone(),
                why: why.to_owned(),
            });
        }
    }

    fn function(&mut self, inventory: &Inventory, name: &FunctionName, why: &str) {
        if let Some(function) = inventory.function(name) {
            function.hosts.iter().for_each(|host| self.add(&function.nqn, host, why));
        }
    }

    /// The hosts of a function, but for those at ports that it keeps.
    fn function_but_at(&mut self, inventory: &Inventory, name: &FunctionName, kept: &BTreeSet<String>, why: &str) {
        let Some(function) = inventory.function(name) else { return };
        let leaving = function.hosts.iter().filter(|host| !kept.contains(&host.port));
        leaving.for_each(|host| self.add(&function.nqn, host, why));
    }

    /// All hosts of a drive, or only those of its functions.
    fn drive(&mut self, inventory: &Inventory, name: &str, why: &str, functions_only: bool) {
        let Some(drive) = inventory.drive(name) else { return };
        if !functions_only {
            drive.hosts.iter().for_each(|host| self.add(&drive.nqn, host, why));
        }
        drive.functions.iter().for_each(|function| self.function(inventory, &function.name, why));
    }

    fn note(&mut self, inventory: &Inventory, change: &Change) {
        match change {
            Change::Assign { function, ports } if ports.is_empty() => {
                self.function(inventory, function, "its connection ends: the function is at no port any more");
            }
            Change::Assign { .. } => {}
            Change::Move { function, to } => {
                let why =
                    format!("its connection ends: the function goes to {}, where it can connect again", named(to));
                self.function_but_at(inventory, function, to, &why);
            }
            Change::ResetDrive { drive } => {
                self.drive(inventory, drive, "its connection ends: the function goes offline", true);
            }
            Change::RemoveDrive { drive, .. } => {
                self.drive(inventory, drive, "its connection ends: the drive is removed", false);
            }
            Change::SanitizeDrive(sanitize) => {
                self.drive(inventory, &sanitize.drive, "all data of the drive are lost", false);
            }
            Change::DetachNamespace { namespace, from } => {
                let why = format!("it loses {namespace}");
                match from {
                    Attachee::Function(function) => self.function(inventory, function, &why),
                    Attachee::Host(nqn) => self.hosts(inventory, &namespace.drive, Some(nqn.as_str()), &why),
                    Attachee::Everyone => self.hosts(inventory, &namespace.drive, None, &why),
                }
            }
            Change::Map { namespace, function } => {
                let kept = function.as_ref();
                self.holders(inventory, namespace, kept, &format!("it loses {namespace}"));
            }
            Change::DeleteNamespace { namespace } => {
                self.holders(inventory, namespace, None, &format!("{namespace} and its data are gone"));
            }
            Change::FormatNamespace(format) => {
                let why = format!("the data of {} are lost", format.namespace);
                self.holders(inventory, &format.namespace, None, &why);
            }
            Change::WriteProtect { namespace, on: true } => {
                self.holders(inventory, namespace, None, &format!("it cannot write to {namespace} any more"));
            }
            _ => {}
        }
    }

    /// Hosts of a drive's own subsystem.
    fn hosts(&mut self, inventory: &Inventory, drive: &str, nqn: Option<&str>, why: &str) {
        let Some(drive) = inventory.drive(drive) else { return };
        let hosts = drive.hosts.iter().filter(|host| nqn.is_none_or(|nqn| host.nqn == nqn));
        hosts.for_each(|host| self.add(&drive.nqn, host, why));
    }

    /// Everybody who has a namespace, except for one function.
    fn holders(&mut self, inventory: &Inventory, namespace: &NamespaceName, kept: Option<&FunctionName>, why: &str) {
        let Some(drive) = inventory.drive(&namespace.drive) else { return };
        let Some(own) = drive.namespaces.iter().find(|one| one.name == *namespace) else { return };
        let functions = own.functions.iter().filter(|function| Some(*function) != kept);
        functions.for_each(|function| self.function(inventory, function, why));
        let all = own.hosts.iter().any(|host| host == "*");
        let has = |host: &&HostObject| all || own.hosts.contains(&host.nqn);
        drive.hosts.iter().filter(has).for_each(|host| self.add(&drive.nqn, host, why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enclosure::tests::inventory;

    // @test redfish.bound-changes
    #[test]
    fn a_host_that_comes_changes_the_answer() {
        let changes = [Change::Assign { function: "d3/vf2".parse().unwrap(), ports: BTreeSet::new() }];
        let alone = inventory();
        let mut seen = alone.clone();
        let host = seen.drives[0].hosts[0].clone();
        let function = seen.drives[0].functions.iter_mut().find(|function| function.name.number == 2).unwrap();
        function.hosts.push(host);
        let (before, after) = (ChangePlan::new(&alone, &changes), ChangePlan::new(&seen, &changes));
        assert_eq!((before.disturbed.len(), after.disturbed.len()), (0, 1));
        assert_ne!(before.revision, after.revision);
        assert_eq!(after, ChangePlan::new(&seen, &changes));
        assert!(after.disturbed[0].why.contains("at no port any more"), "{after:?}");
    }
}
