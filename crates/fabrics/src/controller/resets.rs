//! The Cross-Controller Resets that a controller was asked for, for its log page.

use alloc::vec::Vec;

use ebof_nvme::Status;
use ebof_nvme::command::ControllerInstance;
use ebof_nvme::log::{CrossControllerResetEntry, CrossControllerResetState, ccrf, cross_controller_reset_log};

use crate::task::outcome::Fault;

/// Resets that a controller has in progress at a time (CCRL): as many paths as a host may lose at
/// once, and have others to reset them by.
pub(crate) const RESETS_MAX: u8 = 16;

/// Entries of the log page, completed ones included. The layout has room for 511; so many of all
/// controllers would be memory that a host could take for nothing.
const ENTRIES_MAX: usize = 64;

/// Bytes of the page, whatever it has: hosts read it as a whole.
const BYTES: usize = 4096;

/// Resets that did not complete at once, in the order of the commands.
#[derive(Debug, Default)]
pub(crate) struct Resets(Vec<(ControllerInstance, CrossControllerResetState)>);

impl Resets {
    /// Whether this controller may be asked to reset another one.
    ///
    /// # Errors
    /// It is at it already, or there are too many resets, or entries of them. All are transient.
    pub(crate) fn check(&self, instance: ControllerInstance) -> Result<(), Fault> {
        let in_progress = || self.0.iter().filter(|(_, state)| *state == CrossControllerResetState::InProgress);
        if in_progress().any(|(other, _)| *other == instance) {
            return Err(Fault::transient(Status::CROSS_CONTROLLER_RESET_IN_PROGRESS));
        }
        if in_progress().count() >= usize::from(RESETS_MAX) {
            return Err(Fault::transient(Status::CROSS_CONTROLLER_RESET_LIMIT_EXCEEDED));
        }
        if self.0.len() >= ENTRIES_MAX {
            return Err(Fault::transient(Status::CROSS_CONTROLLER_RESET_LOG_FULL));
        }
        Ok(())
    }

    /// A reset begins that [`check`](Self::check) has let through.
    pub(crate) fn begin(&mut self, instance: ControllerInstance) {
        self.0.push((instance, CrossControllerResetState::InProgress));
    }

    /// The controller is gone. Whether there is such a reset.
    pub(crate) fn complete(&mut self, instance: ControllerInstance) -> bool {
        let mut found = false;
        for (other, state) in &mut self.0 {
            if *other == instance && *state == CrossControllerResetState::InProgress {
                *state = CrossControllerResetState::Successful;
                found = true;
            }
        }
        found
    }

    /// The log page.
    pub(crate) fn page(&self) -> Vec<u8> {
        let mut page = cross_controller_reset_log(self.0.iter().map(|(instance, state)| CrossControllerResetEntry {
            icid: instance.id.0.into(),
            ciu: instance.uniquifier,
            // Whoever could do it is asked already.
            acid: CrossControllerResetEntry::NO_ALTERNATE.0.into(),
            ccrs: state.encode(),
            ccrf: ccrf::VALIDATED | ccrf::INITIATED,
            ..CrossControllerResetEntry::default()
        }));
        page.resize(BYTES, 0);
        page
    }

    /// Removes the entries of resets that are over, as far as they are at these places.
    pub(crate) fn remove_completed(&mut self, is_meant: impl Fn(usize) -> bool) {
        let mut at = 0;
        self.0.retain(|(_, state)| {
            let stays = *state == CrossControllerResetState::InProgress || !is_meant(at);
            at += 1;
            stays
        });
    }
}
