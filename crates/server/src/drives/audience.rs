//! To whom drives show what they have become. Owns the list of what that takes, and nothing else: a
//! target does it (`shared/audience.rs`).

use std::io;
use std::sync::{Arc, MutexGuard};

use ebof_fabrics::{Model, Notices, Objects, Registry};

use super::device::DeviceTable;

/// Those who learn what drives have become: hosts by the registry, and the threads that serve them.
pub(crate) trait Audience {
    /// The registry, with the model that hosts are shown.
    fn registry(&self) -> MutexGuard<'_, Registry>;

    /// Passes on what the registry has for queues.
    fn deliver(&self, notices: Notices);

    /// Shows all threads the devices.
    fn show_devices(&self, table: &Arc<DeviceTable>);

    /// Makes the shares of drives those of a model.
    fn follow(&self, model: &Model);

    /// Stores which objects NSIDs have named.
    ///
    /// # Errors
    /// They could not be stored.
    fn store(&self, objects: &Objects) -> io::Result<()>;
}
