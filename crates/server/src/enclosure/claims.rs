//! What a change has for itself while it is made.
//!
//! A name stands for everything below it: `d3` for `d3/vf2`, too. A direct port has one function,
//! so whoever is given one, or leaves it, has it as well: `port direct1`. Names of drives have no
//! space.

use ebof_manage::enclosure::{Change, FunctionName, Inventory};

/// The objects of these changes.
pub(super) fn of(inventory: &Inventory, changes: &[Change]) -> Vec<String> {
    changes.iter().flat_map(|change| of_one(inventory, change)).collect()
}

fn of_one(inventory: &Inventory, change: &Change) -> Vec<String> {
    match change {
        Change::Assign { function, port } => of_relocation(inventory, function, port.as_ref()),
        Change::Move { function, to } => of_relocation(inventory, function, Some(to)),
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
    }
}

fn of_relocation(inventory: &Inventory, name: &FunctionName, to: Option<&String>) -> Vec<String> {
    let from = inventory.function(name).and_then(|function| function.port.as_ref());
    let ports = [from, to].into_iter().flatten().filter_map(|port| of_port(inventory, port));
    std::iter::once(name.to_string()).chain(ports).collect()
}

fn of_port(inventory: &Inventory, port: &str) -> Option<String> {
    inventory.is_direct(port).then(|| format!("port {port}"))
}
