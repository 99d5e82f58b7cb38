//! The checks of a transaction against what there is: all mistakes at once. Each change is checked
//! against what the ones before it would leave.

mod drives;
mod namespaces;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use namespaces::Known;

use super::change::{CHANGES_MAX, Change, Rate, Transaction};
use super::details::FormatObject;
use super::drives::NewDrive;
use super::inventory::{DriveObject, Inventory, PortKind, ShareObject};
use super::name::{FunctionName, NamespaceName};
use super::refusal::{Mistake, MistakeKind, Refused};
use crate::nearest::nearest;

/// The longest that commands may be waited for.
const DRAIN_MS_MAX: u64 = 600_000;

/// The weights that a function may have.
const WEIGHTS: std::ops::RangeInclusive<u16> = 1..=1000;

/// Checks a transaction against what there is.
///
/// # Errors
/// All mistakes.
pub fn check(inventory: &Inventory, transaction: &Transaction) -> Result<(), Refused> {
    let mut checks = Checks {
        inventory,
        ports: inventory.drives.iter().flat_map(|drive| &drive.functions).map(given).collect(),
        subsystems: direct_subsystems(inventory),
        namespaces: namespaces::known(inventory),
        shares: inventory.drives.iter().flat_map(|drive| &drive.functions).map(share).collect(),
        added: BTreeMap::new(),
        at: None,
        mistakes: Vec::new(),
    };
    checks.whole(transaction);
    for (at, change) in transaction.changes.iter().take(CHANGES_MAX).enumerate() {
        checks.at = Some(at);
        checks.change(change);
    }
    if checks.mistakes.is_empty() { Ok(()) } else { Err(Refused { mistakes: checks.mistakes }) }
}

fn given(function: &super::FunctionObject) -> (FunctionName, Option<String>) {
    (function.name.clone(), function.port.clone())
}

fn share(function: &super::FunctionObject) -> (FunctionName, ShareObject) {
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

struct Checks<'i> {
    inventory: &'i Inventory,
    /// The ports of functions after the changes so far.
    ports: BTreeMap<FunctionName, Option<String>>,
    /// The direct ports that something else than a function has after the changes so far.
    subsystems: BTreeMap<String, String>,
    /// Namespaces after the changes so far. Those that are created without an NSID are not in it.
    namespaces: BTreeMap<NamespaceName, Known>,
    /// The shares of functions after the changes so far.
    shares: BTreeMap<FunctionName, ShareObject>,
    /// The drives that are added by the changes so far, by name.
    added: BTreeMap<String, Added>,
    at: Option<usize>,
    mistakes: Vec<Mistake>,
}

/// What is known of a drive before it is there.
struct Added {
    functions: u16,
    /// Whether there is nothing on it. What is in a file or on a block device is found out when it
    /// is opened.
    is_empty: bool,
}

impl From<&NewDrive> for Added {
    fn from(new: &NewDrive) -> Self {
        let functions = new.drive.get("functions").and_then(Value::as_u64).unwrap_or_default();
        let backing = new.drive.get("backing").and_then(Value::as_str).unwrap_or_default();
        let is_empty = backing.starts_with("mem:");
        Self { functions: u16::try_from(functions).unwrap_or(u16::MAX), is_empty }
    }
}

impl<'i> Checks<'i> {
    fn mistake(
        &mut self,
        kind: MistakeKind,
        object: &dyn fmt::Display,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.mistakes.push(Mistake { change: self.at, ..Mistake::new(kind, object, message, advice) });
    }

    fn whole(&mut self, transaction: &Transaction) {
        let count = transaction.changes.len();
        if count == 0 {
            self.mistake(MistakeKind::Value, &"", "there is no change", "name at least one");
        }
        if count > CHANGES_MAX {
            let advice = format!("accepted: at most {CHANGES_MAX} in one transaction");
            self.mistake(MistakeKind::Value, &"", format!("there are {count} changes"), advice);
        }
        if transaction.drain_ms.is_some_and(|ms| ms > DRAIN_MS_MAX) {
            let advice = format!("accepted: up to {DRAIN_MS_MAX} ms");
            self.mistake(MistakeKind::Value, &"", "commands would be waited for too long", advice);
        }
        // An image is stored and activated by one request.
        if count > 1
            && !transaction.changes.iter().all(Change::is_of_firmware)
            && let Some(change) = transaction.changes.iter().find(|change| !change.is_reversible())
        {
            let message = format!("`{change}` cannot be taken back if another change fails");
            self.mistake(MistakeKind::Conflict, &"", message, "make it in a transaction of its own");
        }
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Assign { function, port } => self.assign(function, port.as_deref()),
            Change::Move { function, to } => self.moved(function, to),
            Change::Map { namespace, function } => self.map(namespace, function.as_ref()),
            Change::Weight { function, weight } => {
                self.function(function);
                if !WEIGHTS.contains(weight) {
                    let advice = format!("accepted: {} to {}", WEIGHTS.start(), WEIGHTS.end());
                    self.mistake(MistakeKind::Value, function, format!("a weight of {weight}"), advice);
                }
            }
            Change::Limit { function, iops, bytes_per_second, minimum_iops } => {
                self.limit(function, [*iops, *bytes_per_second, *minimum_iops]);
            }
            Change::ResetDrive { drive } => {
                if let Some(found) = self.drive(drive)
                    && found.functions.is_empty()
                {
                    let advice = "`functions` of the drive in the configuration makes some";
                    self.mistake(
                        MistakeKind::Conflict,
                        drive,
                        "the drive has no functions, and so no primary controller to reset",
                        advice,
                    );
                }
            }
            Change::AddDrive(new) => self.add(new),
            Change::RemoveDrive { drive, .. } => drop(self.drive(drive)),
            Change::CreateNamespace(new) => self.create(new),
            Change::DeleteNamespace { namespace } => self.delete(namespace),
            Change::AttachNamespace { namespace, to } => self.attach(namespace, to),
            Change::DetachNamespace { namespace, from } => self.detach(namespace, from),
            Change::WriteProtect { namespace, on } => self.protect(namespace, *on),
            Change::FormatNamespace(format) => self.format(format),
            Change::SanitizeDrive(sanitize) => self.sanitize(sanitize),
            Change::SelfTest { drive, kind } => self.self_test(drive, *kind),
            Change::StageFirmware { drive, slot, .. } => self.firmware(drive, *slot),
            Change::ActivateFirmware { drive, slot, .. } => self.firmware(drive, Some(*slot)),
        }
    }

    /// The drive of this name, as it was before the changes. What is wrong with it is noted: there
    /// is nothing wrong with one that an earlier change adds.
    fn drive(&mut self, name: &str) -> Option<&'i DriveObject> {
        let found = self.inventory.drive(name);
        match found {
            None if self.added.contains_key(name) => {}
            None => {
                let names: Vec<&str> = self.inventory.drives.iter().map(|drive| drive.name.as_str()).collect();
                self.missing(name, "drive", &names);
            }
            Some(DriveObject { task: Some(task), .. }) => self.busy(&name, *task),
            Some(_) => {}
        }
        found
    }

    fn missing(&mut self, name: &str, kind: &str, names: &[&str]) {
        let advice = match nearest(name, names) {
            Some(near) => format!("did you mean {near}?"),
            None if names.is_empty() => format!("the target has no {kind}"),
            None => format!("there are {}", names.join(", ")),
        };
        self.mistake(MistakeKind::NotFound, &name, format!("there is no such {kind}"), advice);
    }

    fn busy(&mut self, object: &dyn fmt::Display, task: u64) {
        let advice = format!("`ebof target tasks {task} --wait` waits for its end");
        self.mistake(MistakeKind::Busy, object, format!("task {task} is changing it"), advice);
    }

    /// Whether there is such a function; what is wrong otherwise is noted.
    fn function(&mut self, name: &FunctionName) -> bool {
        let before = self.mistakes.len();
        let Some(drive) = self.drive(&name.drive) else { return self.new_function(name) };
        let Some(function) = drive.functions.iter().find(|function| function.name == *name) else {
            let advice = match drive.functions.len() {
                0 => "the drive has no functions: `functions = N` in the configuration makes some".to_owned(),
                count => format!("drive {} has vf1 to vf{count}", drive.name),
            };
            self.mistake(MistakeKind::NotFound, name, "there is no such function", advice);
            return false;
        };
        if let (Some(task), None) = (function.task, drive.task) {
            self.busy(name, task);
        }
        self.mistakes.len() == before
    }

    /// The same of a drive that an earlier change adds.
    fn new_function(&mut self, name: &FunctionName) -> bool {
        let Some(added) = self.added.get(&name.drive) else { return false };
        if (1..=added.functions).contains(&name.number) {
            return true;
        }
        let advice = match added.functions {
            0 => "`functions` of the drive that is added makes some".to_owned(),
            count => format!("drive {} will have vf1 to vf{count}", name.drive),
        };
        self.mistake(MistakeKind::NotFound, name, "there will be no such function", advice);
        false
    }

    /// Whether a function can be given to a port.
    fn port(&mut self, function: &FunctionName, name: &str) {
        let Some(port) = self.inventory.port(name) else {
            let names: Vec<&str> = self.inventory.ports.iter().map(|port| port.name.as_str()).collect();
            return self.missing(name, "port", &names);
        };
        if port.discovery_only {
            let advice = "choose a port without `discovery_only`";
            self.mistake(MistakeKind::Conflict, function, format!("port {name} serves discovery only"), advice);
        }
        let of_functions =
            self.ports.iter().find(|(other, given)| *other != function && given.as_deref() == Some(name));
        if port.kind != PortKind::Direct {
            return;
        }
        if let Some((other, _)) = of_functions {
            let message = format!("port {name} has {other} already, and a direct port is one function");
            let advice = format!("take that from it (`ebof target assign {other} --none`), or choose another port");
            self.mistake(MistakeKind::Conflict, function, message, advice);
        }
        if let Some(other) = self.subsystems.get(name) {
            let message = format!("port {name} has {other} already, and a direct port is one function");
            let advice = "take it out of that one's `ports` in the configuration, or choose another port";
            self.mistake(MistakeKind::Conflict, function, message, advice);
        }
    }

    fn assign(&mut self, function: &FunctionName, port: Option<&str>) {
        let exists = self.function(function);
        if let Some(port) = port {
            self.port(function, port);
        }
        if !exists {
            return;
        }
        let before = self.ports.get(function).cloned().flatten();
        if let (Some(port), Some(before)) = (port, before.filter(|before| Some(before.as_str()) != port)) {
            let advice = format!("`ebof target move {function} --to {port}` moves it");
            self.mistake(MistakeKind::Conflict, function, format!("it is given to port {before}"), advice);
        }
        self.ports.insert(function.clone(), port.map(str::to_owned));
    }

    fn moved(&mut self, function: &FunctionName, to: &str) {
        let exists = self.function(function);
        self.port(function, to);
        if !exists {
            return;
        }
        match self.ports.get(function).cloned().flatten() {
            None => {
                let advice = format!("`ebof target assign {function} --port {to}` gives it to one");
                self.mistake(MistakeKind::Conflict, function, "it is given to no port", advice);
            }
            Some(port) if port == to => {
                let advice = "`ebof target show` shows who has what";
                self.mistake(MistakeKind::Conflict, function, format!("it is given to port {to} already"), advice);
            }
            Some(_) => {}
        }
        self.ports.insert(function.clone(), Some(to.to_owned()));
    }

    fn limit(&mut self, function: &FunctionName, rates: [Option<Rate>; 3]) {
        let exists = self.function(function);
        if rates.iter().all(Option::is_none) {
            self.mistake(
                MistakeKind::Value,
                function,
                "no limit is named",
                "name iops, bytes_per_second or minimum_iops",
            );
        }
        let names = ["iops", "bytes_per_second", "minimum_iops"];
        for (name, rate) in names.into_iter().zip(rates) {
            if rate == Some(Rate(Some(0))) {
                let advice = "accepted: 1 or more, or none for no limit";
                self.mistake(MistakeKind::Value, function, format!("{name} is 0"), advice);
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
            return self.mistake(MistakeKind::Conflict, function, message, "lower the one or raise the other");
        }
        self.shares.insert(function.clone(), after);
    }

    /// What else is wrong with a new drive is found out with the configuration
    /// ([`NewDrive::add_to`](super::NewDrive::add_to)).
    fn add(&mut self, new: &NewDrive) {
        let name = new.name();
        if self.added.contains_key(name) {
            self.mistake(MistakeKind::Conflict, &name, "the drive is added twice", "add it once");
        }
        for port in new.ports.iter().flatten().filter(|port| self.inventory.is_direct(port)) {
            let function = self.ports.iter().find(|(_, given)| given.as_ref() == Some(port));
            let drive = self.added.keys().find(|added| self.subsystems.get(port) == Some(&format!("drive {added}")));
            if let Some(other) = function.map(|(function, _)| function.to_string()).or(drive.cloned()) {
                let message = format!("port {port} has {other} already, and a direct port is one subsystem");
                self.mistake(MistakeKind::Conflict, &name, message, "choose another port");
            }
            self.subsystems.insert(port.clone(), format!("drive {name}"));
        }
        self.added.insert(name.to_owned(), Added::from(new));
    }
}

impl ShareObject {
    /// That of a function nobody has changed.
    const NEW: Self = Self { weight: 1, iops: None, bytes_per_second: None, minimum_iops: None };

    /// The share after a change of its limits: IOPS, bytes in a second, minimum.
    #[must_use]
    pub fn with(self, [iops, bytes_per_second, minimum_iops]: [Option<Rate>; 3]) -> Self {
        let or = |new: Option<Rate>, old| new.map_or(old, |Rate(new)| new);
        Self {
            weight: self.weight,
            iops: or(iops, self.iops),
            bytes_per_second: or(bytes_per_second, self.bytes_per_second),
            minimum_iops: or(minimum_iops, self.minimum_iops),
        }
    }
}
