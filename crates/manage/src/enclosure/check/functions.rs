//! The checks of changes of functions: their ports and their shares.

use std::collections::{BTreeMap, BTreeSet};

use super::drives::CheckedDrives;
use super::mistakes::Mistakes;
use crate::enclosure::change::Rate;
use crate::enclosure::drives::NewDrive;
use crate::enclosure::given_ports::{PORTS_MAX, named};
use crate::enclosure::inventory::{DriveObject, FunctionObject, Inventory, PortKind, ShareObject};
use crate::enclosure::name::FunctionName;
use crate::enclosure::refusal::MistakeKind;

/// The weights that a function may have.
const WEIGHTS: std::ops::RangeInclusive<u16> = 1..=1000;

/// The functions, and what is at direct ports, after the changes so far.
pub(super) struct CheckedFunctions<'i> {
    inventory: &'i Inventory,
    /// The ports of functions.
    ports: BTreeMap<FunctionName, BTreeSet<String>>,
    /// The direct ports that something else than a function has.
    subsystems: BTreeMap<String, String>,
    /// The shares of functions.
    shares: BTreeMap<FunctionName, ShareObject>,
}

fn given(function: &FunctionObject) -> (FunctionName, BTreeSet<String>) {
    (function.name.clone(), function.ports.clone())
}

fn share(function: &FunctionObject) -> (FunctionName, ShareObject) {
    (function.name.clone(), function.share)
}

/// What else than a function is at each direct port: `subsystem NQN`, or `drive d3`.
fn direct_subsystems(inventory: &Inventory) -> BTreeMap<String, String> {
    let of_drives = inventory.drives.iter().map(|drive| (format!("drive {}", drive.name), &drive.ports));
    let others =
        inventory.subsystems.iter().map(|subsystem| (format!("subsystem {}", subsystem.nqn), &subsystem.ports));
    let at = |(name, ports): (String, &Vec<String>)| {
        let direct = ports.iter().filter(|port| inventory.is_direct(port)).cloned();
        direct.map(move |port| (port, name.clone())).collect::<Vec<_>>()
    };
    of_drives.chain(others).flat_map(at).collect()
}

impl<'i> CheckedFunctions<'i> {
    pub(super) fn new(inventory: &'i Inventory) -> Self {
        Self {
            inventory,
            ports: inventory.drives.iter().flat_map(|drive| &drive.functions).map(given).collect(),
            subsystems: direct_subsystems(inventory),
            shares: inventory.drives.iter().flat_map(|drive| &drive.functions).map(share).collect(),
        }
    }

    /// Whether a function can be given to a port.
    fn port(&self, function: &FunctionName, name: &str, out: &mut Mistakes) {
        let Some(port) = self.inventory.port(name) else {
            let names: Vec<&str> = self.inventory.ports.iter().map(|port| port.name.as_str()).collect();
            return out.missing(name, "port", &names);
        };
        if port.discovery_only {
            let advice = "choose a port without `discovery_only`";
            out.note(MistakeKind::Conflict, function, format!("port {name} serves discovery only"), advice);
        }
        self.one_subsystem(function, name, out);
        let of_functions = self.ports.iter().find(|(other, given)| *other != function && given.contains(name));
        if port.kind != PortKind::Direct {
            return;
        }
        if let Some((other, _)) = of_functions {
            let message = format!("port {name} has {other} already, and a direct port is one function");
            let advice = format!("take that from it (`ebof target assign {other} --none`), or choose another port");
            out.note(MistakeKind::Conflict, function, message, advice);
        }
        if let Some(other) = self.subsystems.get(name) {
            let message = format!("port {name} has {other} already, and a direct port is one function");
            let advice = "take it out of that one's `ports` in the configuration, or choose another port";
            out.note(MistakeKind::Conflict, function, message, advice);
        }
    }

    /// A fabric port has one controller of a drive's subsystem that its functions are controllers
    /// of: hosts name the subsystem only.
    fn one_subsystem(&self, function: &FunctionName, port: &str, out: &mut Mistakes) {
        let drive = self.inventory.drive(&function.drive);
        let is_one = |drive: &DriveObject| drive.functions.iter().any(|function| function.known_as.is_some());
        let Some(drive) = drive.filter(|drive| is_one(drive) && !self.inventory.is_direct(port)) else { return };
        let advice = "choose a port that no other controller of the drive is at";
        if drive.ports.iter().any(|own| own == port) {
            let message = format!("port {port} has the primary controller of {}, in the same subsystem", drive.name);
            out.note(MistakeKind::Conflict, function, message, advice);
        }
        let is_other = |other: &FunctionName| other.drive == function.drive && other != function;
        if let Some((other, _)) = self.ports.iter().find(|(other, given)| is_other(other) && given.contains(port)) {
            let message = format!("port {port} has {other} already, in the same subsystem");
            out.note(MistakeKind::Conflict, function, message, advice);
        }
    }

    /// Whether a function can be given to these ports.
    fn to_ports(&self, function: &FunctionName, ports: &BTreeSet<String>, out: &mut Mistakes) {
        if ports.len() > PORTS_MAX {
            let message = format!("it would be given to {} ports", ports.len());
            out.note(MistakeKind::Value, function, message, format!("accepted: at most {PORTS_MAX}"));
        }
        let direct: BTreeSet<String> = ports.iter().filter(|port| self.inventory.is_direct(port)).cloned().collect();
        if direct.len() > 1 {
            let message = format!("{} are direct ones", named(&direct));
            let advice = "accepted: one direct port, where the controller has the number of the function";
            out.note(MistakeKind::Conflict, function, message, advice);
        }
        ports.iter().for_each(|port| self.port(function, port, out));
    }

    pub(super) fn assign(
        &mut self,
        function: &FunctionName,
        after: &BTreeSet<String>,
        drives: &CheckedDrives<'_>,
        out: &mut Mistakes,
    ) {
        let exists = drives.function(function, out);
        self.to_ports(function, after, out);
        if !exists {
            return;
        }
        let before = self.ports.get(function).cloned().unwrap_or_default();
        if !after.is_empty() && !before.is_subset(after) {
            let advice =
                format!("`ebof target move {function} --to {}` moves it", Vec::from_iter(after.clone()).join(","));
            out.note(MistakeKind::Conflict, function, format!("it is given to {}", named(&before)), advice);
        }
        self.ports.insert(function.clone(), after.clone());
    }

    pub(super) fn moved(
        &mut self,
        function: &FunctionName,
        after: &BTreeSet<String>,
        drives: &CheckedDrives<'_>,
        out: &mut Mistakes,
    ) {
        let exists = drives.function(function, out);
        self.to_ports(function, after, out);
        if after.is_empty() {
            let advice = format!("`ebof target assign {function} --none` takes it from its ports");
            out.note(MistakeKind::Value, function, "no port is named", advice);
        }
        if !exists {
            return;
        }
        let before = self.ports.insert(function.clone(), after.clone()).unwrap_or_default();
        if before.is_empty() {
            let to = Vec::from_iter(after.clone()).join(",");
            let advice = format!("`ebof target assign {function} --port {to}` gives it to one");
            out.note(MistakeKind::Conflict, function, "it is given to no port", advice);
        } else if before == *after {
            let advice = "`ebof target show` shows who has what";
            out.note(MistakeKind::Conflict, function, format!("it is given to {} already", named(after)), advice);
        }
    }

    pub(super) fn weight(&self, function: &FunctionName, weight: u16, drives: &CheckedDrives<'_>, out: &mut Mistakes) {
        drives.function(function, out);
        if !WEIGHTS.contains(&weight) {
            let advice = format!("accepted: {} to {}", WEIGHTS.start(), WEIGHTS.end());
            out.note(MistakeKind::Value, function, format!("a weight of {weight}"), advice);
        }
    }

    pub(super) fn limit(
        &mut self,
        function: &FunctionName,
        rates: [Option<Rate>; 3],
        drives: &CheckedDrives<'_>,
        out: &mut Mistakes,
    ) {
        let exists = drives.function(function, out);
        if rates.iter().all(Option::is_none) {
            out.note(MistakeKind::Value, function, "no limit is named", "name iops, bytes_per_second or minimum_iops");
        }
        let names = ["iops", "bytes_per_second", "minimum_iops"];
        for (name, rate) in names.into_iter().zip(rates) {
            if rate == Some(Rate(Some(0))) {
                let advice = "accepted: 1 or more, or none for no limit";
                out.note(MistakeKind::Value, function, format!("{name} is 0"), advice);
            }
        }
        if !exists {
            return;
        }
        // A drive takes changes one after the other, and refuses what contradicts in between.
        let after = self.shares.get(function).copied().unwrap_or(ShareObject::NEW).with(rates);
        if let (Some(least), Some(most)) = (after.minimum_iops, after.iops)
            && least > most
        {
            let message = format!("its minimum of {least} IOPS is above its limit of {most}");
            return out.note(MistakeKind::Conflict, function, message, "lower the one or raise the other");
        }
        self.shares.insert(function.clone(), after);
    }

    /// Gives the direct ports that a new drive names to it.
    pub(super) fn give_ports(&mut self, new: &NewDrive, drives: &CheckedDrives<'_>, out: &mut Mistakes) {
        let name = new.name();
        for port in new.ports.iter().flatten().filter(|port| self.inventory.is_direct(port)) {
            let function = self.ports.iter().find(|(_, given)| given.contains(port));
            let drive = drives.added().find(|added| self.subsystems.get(port) == Some(&format!("drive {added}")));
            if let Some(other) = function.map(|(function, _)| function.to_string()).or(drive.cloned()) {
                let message = format!("port {port} has {other} already, and a direct port is one subsystem");
                out.note(MistakeKind::Conflict, &name, message, "choose another port");
            }
            self.subsystems.insert(port.clone(), format!("drive {name}"));
        }
    }
}
