//! Authentication Send and Authentication Receive, as far as others are concerned: the gate of a
//! queue opens, or the queue ends.

use ebof_authentication::Psk;
use ebof_authentication::controller::TransactionOutcome;
use ebof_nvme::Status;
use ebof_nvme::opcode::fabrics;

use super::Registry;
use crate::connect::RefusalReason;
use crate::notice::{CloseReason, Notice, Notices};
use crate::queue::Queue;
use crate::task::Task;
use crate::task::executing::Executing;
use crate::task::outcome::{Decision, Fault, Outcome};

/// What becomes of a queue by its host's proof, or for want of one.
pub(super) struct Proving<'r> {
    pub(super) registry: &'r mut Registry,
    pub(super) now_ms: u64,
    /// What queues are to be told.
    pub(super) notices: &'r mut Notices,
}

impl Proving<'_> {
    /// What becomes of the command.
    pub(super) fn decide(&mut self, queue: &mut Queue, executing: &Executing) -> Outcome {
        let authenticator = queue.authenticator_mut().ok_or(Fault::transient(Status::ABORTED_SQ_DELETION))?;
        let (message, outcome) = authenticator.conclude(executing)?;
        match outcome {
            Some(TransactionOutcome::Authenticated(proof)) => self.proven(queue, proof.psk.as_ref()),
            Some(TransactionOutcome::Refused(explanation)) => {
                self.end(queue, CloseReason::NotAuthenticated(explanation));
            }
            Some(TransactionOutcome::GaveUp(explanation)) => self.end(queue, CloseReason::HostGaveUp(explanation)),
            None => {}
        }
        let is_send = executing.fctype() == fabrics::AUTHENTICATION_SEND;
        Ok(if is_send { Decision::Done(0) } else { Decision::Go(Task::Reply(message), executing.length()) })
    }

    /// The host of a queue has proven who it is: the gate opens, if this was the first time, and as
    /// far as what it wants is still to be had. If the proof generated a PSK for TLS, the gate
    /// stays shut: the host comes again with it.
    fn proven(&mut self, queue: &mut Queue, psk: Option<&Psk>) {
        // Its last secret may have gone while it proved that it has one.
        let secrets = &self.registry.model.secrets;
        if queue.association().is_some_and(|it| it.is_closing() || !secrets.contains_key(&it.host)) {
            return self.end(queue, CloseReason::ProofDemanded);
        }
        if let (Some(psk), Some(association)) = (psk, queue.association()) {
            self.registry.keep_psk(association, psk, self.now_ms);
            if let Some(authenticator) = queue.authenticator_mut() {
                authenticator.note_generated();
            }
            return;
        }
        // One that is open stays so: its host has proven it once more.
        let Some(handle) = queue.live().map(|live| live.handle).filter(|_| !queue.is_open()) else { return };
        let Registry { controllers, effective, limits, proven_host_ids, .. } = &mut *self.registry;
        // Without a controller the association has ended.
        let Some(key) = controllers.of_handle(handle) else { return };
        let association = &controllers.entry(key).association;
        if proven_host_ids.is_of_another(association.host_id(), &association.host) {
            return self.end(queue, CloseReason::NotAdmitted(RefusalReason::HostIdInUse));
        }
        let subsystem = queue.association().and_then(|association| effective.get(&association.subsystem));
        match controllers.check_opening(key, handle, subsystem.map(|of| &**of), limits) {
            Ok(()) => {
                controllers.entry_mut(key).come(handle);
                self.registry.open(queue, self.now_ms);
            }
            Err(reason) => self.end(queue, CloseReason::NotAdmitted(reason)),
        }
    }

    /// The host of a queue has not proven who it is, the first time or again: as with Linux'
    /// target, that is the end of the controller, if it is the Admin Queue; otherwise that of the
    /// queue.
    fn end(&mut self, queue: &Queue, reason: CloseReason) {
        let handle = queue.live().expect("a host proves itself after Connect").handle;
        let controllers = &mut self.registry.controllers;
        let entry = controllers.of_handle(handle).and_then(|key| controllers.entries.get_mut(&key));
        match entry {
            Some(entry) if queue.is_admin() && !entry.association.is_closing() => entry.close(reason, self.notices),
            _ => self.notices.push((handle, Notice::Close(reason))),
        }
    }
}
