//! The management of the box: who has what of its drives, the changes of that while it runs, and
//! the tasks that carry them out.
//!
//! Owns the names of objects ([`FunctionName`], [`NamespaceName`]), what there is ([`Inventory`]),
//! changes ([`Change`], [`Transaction`]) with their checks ([`check()`]), and tasks ([`Task`]).
//! Makes no change itself: whoever runs a target implements [`Enclosure`]. The JSON form is stable
//! (see `docs/json.md`), guarded by snapshots.

mod attachee;
mod change;
mod check;
mod details;
mod disturbed;
mod drive_change;
mod drives;
mod given_ports;
mod image;
mod inventory;
mod name;
mod refusal;
mod task;

use std::time::Duration;

use crate::api::Asker;

pub use attachee::{Attachee, AttacheeError};
pub use change::{CHANGES_MAX, Change, Rate, Transaction};
pub use check::check;
pub use details::{
    ControllerDetails, DETAILS_SCHEMA, DriveDetails, ERRORS_MAX, EVENTS_MAX, EnduranceObject, ErrorObject, EventObject,
    EventsObject, FirmwareObject, FirmwareSlotObject, FormatObject, NamespaceDetails, RunningSelfTest,
    SanitizeEstimates, SanitizeObject, SanitizeStateObject, SelfTestObject, SelfTestOutcome, TemperatureObject,
};
pub use disturbed::{CHANGE_PLAN_SCHEMA, ChangePlan, DISTURBED_MAX, DisturbedHost};
pub use drive_change::{
    ATTACHEES_MAX, Activation, BLOCK_BYTES_DEFAULT, CreateNamespace, Erase, FormatNamespace, ProtectionObject,
    SanitizeAction, SanitizeDrive, SelfTestKind,
};
pub use drives::{NewDrive, without_drive};
pub use given_ports::named as named_ports;
pub use image::{IMAGE_BYTES_MAX, IMAGES_MAX, StoredImage};
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
    fn begin(&self, transaction: Transaction) -> Result<Task, Refused> {
        self.begin_for(transaction, &Asker::Library)
    }

    /// The same, for somebody.
    ///
    /// # Errors
    /// As there.
    fn begin_for(&self, transaction: Transaction, by: &Asker) -> Result<Task, Refused>;

    /// The tasks that are remembered, the latest last.
    fn tasks(&self) -> Vec<Task>;

    /// A task, once it has ended or its revision is not `known` any more, and after `wait` at the
    /// latest; `None` if no such task is remembered.
    fn task(&self, id: u64, known: Option<u64>, wait: Duration) -> Option<Task>;

    /// What a drive says of itself; `None` if there is none of this name.
    fn drive_details(&self, drive: &str) -> Option<DriveDetails>;

    /// Keeps a firmware image, [`IMAGES_MAX`] at a time, so that changes can name it.
    ///
    /// # Errors
    /// It is no image for drives, or larger than [`IMAGE_BYTES_MAX`].
    fn store_image(&self, bytes: &[u8]) -> Result<StoredImage, Refused>;
}

#[cfg(test)]
mod tests;
