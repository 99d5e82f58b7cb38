//! Whoever puts configurations in force.

use std::net::IpAddr;

use ebof_access::User;
use ebof_manage::api::{Applied, Configuration, Desired, Generation, Planned, RefusedConfiguration, Revision};

/// A target whose configuration is read, planned and applied as text. It may wait for files, and
/// for a change that is being made.
pub trait Configurations: Send + Sync {
    /// The one in force.
    ///
    /// # Errors
    /// It cannot be written as text.
    fn configuration(&self) -> Result<Configuration, RefusedConfiguration>;

    /// Those that are kept, the oldest first; the last one is in force. Empty where none is stored.
    fn generations(&self) -> Vec<Generation>;

    /// What another one would change.
    ///
    /// # Errors
    /// It is not accepted.
    fn plan(&self, desired: Desired) -> Result<Planned, RefusedConfiguration>;

    /// Puts another one in force, if that of `planned` still is.
    ///
    /// # Errors
    /// It is not accepted, or another one was put in force meanwhile.
    fn apply(
        &self,
        planned: &Revision,
        desired: Desired,
        by: &User,
        from: IpAddr,
    ) -> Result<Applied, RefusedConfiguration>;
}
