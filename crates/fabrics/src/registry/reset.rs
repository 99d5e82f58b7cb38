//! Cross-Controller Reset: a host that has lost a path has the controller behind it reset by
//! another one of its own (Base 2.3, section of that name).
//!
//! ```text
//! checks -> the controller ends: its queues execute nothing more, its connections are closed
//!   -> each queue is `closed`: nothing of it is at a device -> the controller is gone
//!   -> Notice::ControllerReset -> entry of the log page, event
//! ```
//! The command itself is answered at once. It is done at once only where the controller has gone
//! before; if it is not known whether it has, because it may be another target's, the command is
//! refused.

use alloc::vec::Vec;

use ebof_nvme::command::{ControllerInstance, IMMEDIATE_RESET};
use ebof_nvme::{ControllerId, Status};

use super::Registry;
use super::controllers::ControllerKey;
use super::instances::Instances;
use crate::association::Association;
use crate::controller::Controller;
use crate::notice::{CloseReason, Notice, Notices};
use crate::task::executing::Executing;
use crate::task::handle::Handle;
use crate::task::outcome::{Decision, Fault, Outcome, byte};

/// A Cross-Controller Reset command on which is decided.
pub(super) struct OtherReset<'r> {
    pub(super) registry: &'r mut Registry,
    /// Whose command it is.
    pub(super) key: ControllerKey,
    pub(super) executing: &'r Executing,
    /// What others are to be told.
    pub(super) notices: &'r mut Notices,
}

impl OtherReset<'_> {
    /// What becomes of it.
    pub(super) fn decide(&mut self, controller: &mut Controller) -> Outcome {
        let instance = ControllerInstance::decode(&self.executing.sqe());
        let own = &controller.association;
        // Controllers without a random number are not told to their hosts as instances: those of
        // virtual machines, above all.
        if own.instance() == instance || instance.random == 0 {
            return Err(Fault::field(byte::CDW10));
        }
        let controllers = &mut self.registry.controllers;
        let Some(key) = controllers.of_instance(&own.known_as, instance) else {
            let has_ended = controllers.instances.has_ended(own, instance) || self.is_of_predecessor(own, instance);
            return if has_ended { Ok(Decision::Done(IMMEDIATE_RESET.into())) } else { Err(Fault::field(byte::CDW10)) };
        };
        if !may_reset(own, &controllers.entry(key).association) {
            return Err(Fault::new(Status::OPERATION_DENIED));
        }
        controller.resets.check(instance)?;
        // The command came by one of its queues.
        let admin = controllers.entry(self.key).queues.first().map(|queue| queue.handle);
        let admin = admin.ok_or(Fault::transient(Status::INTERNAL_ERROR))?;
        controller.resets.begin(instance);
        let entry = controllers.entry_mut(key);
        if !entry.association.is_closing() {
            entry.close(CloseReason::ResetByHost, self.notices);
        }
        entry.reset_by.push(admin);
        Ok(Decision::Done(0))
    }
}

impl OtherReset<'_> {
    /// Whether an instance that is not here was one of this target, or of an earlier process in its
    /// place: its identifier is one that only this target gives, because the subsystem has a range
    /// of its own here; all identifiers may be another target's, too. What that process had at
    /// devices has ended, because its locks of them are this one's now. Whoever knows all of a
    /// controller that is here but its random number is mistaken.
    fn is_of_predecessor(&self, own: &Association, instance: ControllerInstance) -> bool {
        let is_mistaken = self.registry.controllers.has_like(&own.known_as, instance);
        let subsystem = self.registry.effective.get(&own.subsystem).filter(|_| !is_mistaken);
        subsystem.is_some_and(|subsystem| {
            let range = subsystem.cntlid_min..=subsystem.cntlid_max;
            let is_own = range != (ControllerId(1)..=ControllerId::MAX);
            subsystem.drive.is_none() && is_own && range.contains(&instance.id)
        })
    }
}

/// The last queue of a controller is gone: those that wait for it are told.
pub(super) fn on_end(instances: &mut Instances, association: &Association, reset_by: Vec<Handle>) -> Notices {
    instances.note_end(association);
    let instance = association.instance();
    reset_by.into_iter().map(|admin| (admin, Notice::ControllerReset(instance))).collect()
}

/// Whether the host of one controller may have the other one reset: it is the same host, by name
/// and identifier, and has proven that if it had to for the other one. Whoever could reset the
/// controllers of others could take their disks away.
fn may_reset(own: &Association, other: &Association) -> bool {
    own.nameless == other.nameless
        && own.host == other.host
        && own.host_id() == other.host_id()
        && (own.is_proven() || !other.is_proven())
}
