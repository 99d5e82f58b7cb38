//! What a change has for itself while it is made.
//!
//! A name stands for everything below it: `d3` for `d3/vf2`, too. A direct port has one function,
//! so whoever is given one, or leaves it, has it as well: `port direct1`. Names of drives have no
//! space.
//!
//! What takes long has nothing of the drive for itself, because the drive refuses itself what must
//! not be done meanwhile, whoever asks: `sanitize d3` only keeps others from the same.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use ebof_manage::enclosure::{Attachee, Change, FormatNamespace, FunctionName, Inventory, SelfTestKind};

/// The objects of these changes.
pub(super) fn collect(inventory: &Inventory, changes: &[Change]) -> Vec<String> {
    changes.iter().flat_map(|change| of_one(inventory, change)).collect()
}

fn of_one(inventory: &Inventory, change: &Change) -> Vec<String> {
    match change {
        Change::Assign { function, ports } => of_relocation(inventory, function, ports),
        Change::Move { function, to } => of_relocation(inventory, function, to),
        Change::Weight { function, .. } | Change::Limit { function, .. } => vec![function.to_string()],
        Change::Map { namespace, function } => {
            let function = function.as_ref().map(ToString::to_string);
            std::iter::once(namespace.to_string()).chain(function).collect()
        }
        Change::ResetDrive { drive } | Change::RemoveDrive { drive, .. } => vec![drive.clone()],
        Change::AddDrive(new) => {
            let ports = new.ports.iter().flatten().filter_map(|port| of_port(inventory, port));
            std::iter::once(new.name().to_owned()).chain(ports).collect()
        }
        Change::CreateNamespace(new) => {
            let name = new.nsid.map_or_else(|| unnamed(&new.drive), |nsid| format!("{}/ns{nsid}", new.drive));
            std::iter::once(name).chain(new.attach_to.iter().filter_map(of_attachee)).collect()
        }
        Change::AttachNamespace { namespace, to: who } | Change::DetachNamespace { namespace, from: who } => {
            std::iter::once(namespace.to_string()).chain(of_attachee(who)).collect()
        }
        Change::DeleteNamespace { namespace }
        | Change::WriteProtect { namespace, .. }
        | Change::SetAnaGroup { namespace, .. }
        | Change::FormatNamespace(FormatNamespace { namespace, .. }) => vec![namespace.to_string()],
        Change::SanitizeDrive(sanitize) => vec![format!("sanitize {}", sanitize.drive)],
        Change::SelfTest { kind: SelfTestKind::Abort, .. } => Vec::new(),
        Change::SelfTest { drive, .. } => vec![format!("self-test {drive}")],
        Change::StageFirmware { drive, .. } | Change::ActivateFirmware { drive, .. } => {
            vec![format!("firmware {drive}")]
        }
    }
}

/// A namespace whose NSID the drive chooses: several can be created at a time, and the drive stays.
fn unnamed(drive: &str) -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    format!("{drive}/new{}", LAST.fetch_add(1, Ordering::Relaxed))
}

fn of_attachee(who: &Attachee) -> Option<String> {
    match who {
        Attachee::Function(function) => Some(function.to_string()),
        Attachee::Host(_) | Attachee::Everyone => None,
    }
}

fn of_relocation(inventory: &Inventory, name: &FunctionName, to: &BTreeSet<String>) -> Vec<String> {
    let from = inventory.function(name).into_iter().flat_map(|function| &function.ports);
    let ports = from.chain(to).filter_map(|port| of_port(inventory, port));
    std::iter::once(name.to_string()).chain(ports).collect()
}

fn of_port(inventory: &Inventory, port: &str) -> Option<String> {
    inventory.is_direct(port).then(|| format!("port {port}"))
}
