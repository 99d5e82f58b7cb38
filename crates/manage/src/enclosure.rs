//! The management of the box: who has what of its drives, the changes of that while it runs, and
//! the tasks that carry them out.
//!
//! Owns the names of objects ([`FunctionName`], [`NamespaceName`]), what there is ([`Inventory`]),
//! changes ([`Change`], [`Transaction`]) with their checks ([`check()`]), and tasks ([`Task`]).
//! Makes no change itself: whoever runs a target implements [`Enclosure`]. The JSON form is stable
//! (see `docs/json.md`), guarded by snapshots.

mod change;
mod check;
mod drives;
mod inventory;
mod name;
mod refusal;
mod task;

use std::time::Duration;

pub use change::{CHANGES_MAX, Change, Rate, Transaction};
pub use check::check;
pub use drives::{NewDrive, without_drive};
pub use inventory::{
    DriveObject, Fan, FunctionObject, HostObject, INVENTORY_SCHEMA, Inventory, NamespaceObject, PortKind, PortObject,
    Resources, Sensors, ShareObject, SubsystemObject, Temperature,
};
pub use name::{FUNCTIONS_MAX, FunctionName, NameError, NamespaceName};
pub use refusal::{Mistake, MistakeKind, Refused};
pub use task::{Phase, TASK_SCHEMA, Task, TaskError, TaskState};

/// A running target whose functions, namespaces and drives can be given to others.
pub trait Enclosure: Send + Sync {
    /// What there is, and who has it.
    fn inventory(&self) -> Inventory;

    /// Begins to make changes, all or none. The answer is the task that makes them, which may have
    /// ended already.
    ///
    /// # Errors
    /// Everything that is wrong with the changes; nothing is changed then.
    fn begin(&self, transaction: Transaction) -> Result<Task, Refused>;

    /// The tasks that are remembered, the latest last.
    fn tasks(&self) -> Vec<Task>;

    /// A task, once it has ended or its revision is not `known` any more, and after `wait` at the
    /// latest; `None` if no such task is remembered.
    fn task(&self, id: u64, known: Option<u64>, wait: Duration) -> Option<Task>;
}

#[cfg(test)]
mod tests;
