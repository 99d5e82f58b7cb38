//! Firmware Image Download, Firmware Commit, and what a reset activates.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::event::AsyncEvent;
use ebof_nvme::firmware::Commit;

use super::{Decision, Drive};
use crate::change::Change;
use crate::event_log::Event;
use crate::firmware::{Content, Download, Limits, PRODUCT, Personality};
use crate::request::{Answer, DecisionInput, Origin, Refusal};
use crate::self_test::Cause;

impl Drive {
    /// The firmware slots, and the built-in image.
    #[must_use]
    pub fn firmware_limits(&self) -> Limits {
        Limits {
            slots: self.settings.profile.firmware_slots,
            slot_1_read_only: false,
            product: PRODUCT.into(),
            builtin: Content { revision: self.settings.revision.clone(), personality: Personality::default() },
        }
    }

    pub(super) fn download(&mut self, offset: u64, piece: &[u8], origin: &Origin) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        let dword0 = self.download.take(origin.cntlid, offset, piece)?;
        Ok(Decision { answer: Answer::Done(dword0.into()), ..Decision::nothing() })
    }

    pub(super) fn commit(
        &mut self,
        commit: Commit,
        origin: &Origin,
        input: &DecisionInput,
    ) -> Result<Decision, Refusal> {
        self.may_manage(origin)?;
        if origin.is_box {
            // It downloads nothing, and what a host does is not touched.
            return Ok(self.committed(&Download::default(), commit, origin, input)?.0);
        }
        let download = core::mem::take(&mut self.download);
        let outcome = self.committed(&download, commit, origin, input);
        // Also after an error the next piece belongs to another image.
        self.download = download;
        self.download.finish();
        Ok(outcome?.0)
    }

    /// What a Firmware Commit of what was downloaded does, and the slot that it is about.
    pub(super) fn committed(
        &mut self,
        download: &Download,
        commit: Commit,
        origin: &Origin,
        input: &DecisionInput,
    ) -> Result<(Decision, u8), Refusal> {
        let limits = self.firmware_limits();
        self.telemetry.clear();
        let done = self.state.firmware.commit(download, &commit, &limits)?;
        let old = self.state.firmware.running(&limits).revision.clone();
        let action = (commit.action.encode(), done.slot);
        let event = Event::firmware_commit(origin, input, (&old, &done.revision), action, done.status);
        // Firmware Activation Requires Reset is a status of a command that was executed: the image
        // is in its slot.
        let answer = match done.status.ok() {
            Ok(()) => Answer::Done(done.dword0.into()),
            Err(status) => Answer::Warned(status, done.dword0.into()),
        };
        let decision = Decision {
            answer,
            changes: vec![Change::Firmware { firmware: Box::new(done.next) }, Change::Happened { event }],
            events: if done.activated { vec![AsyncEvent::FIRMWARE_ACTIVATION_STARTING] } else { Vec::new() },
            ..Decision::nothing()
        };
        Ok((decision, done.slot))
    }

    /// A controller was reset: its download is discarded, and firmware that waits for a reset is
    /// activated.
    pub(super) fn reset(&mut self, origin: &Origin, input: &DecisionInput) -> Decision {
        self.download.reset(origin.cntlid);
        self.contexts.release(origin.cntlid);
        let limits = self.firmware_limits();
        let mut decision = Decision::nothing();
        decision.changes.extend(self.interrupt_self_test(Cause::Reset(origin.cntlid)));
        self.telemetry.clear();
        if let Some(firmware) = self.state.firmware.at_reset(&limits) {
            let revision = firmware.running(&limits).revision.clone();
            decision.changes.push(Change::Firmware { firmware: Box::new(firmware) });
            let event = Event::power_on(origin, input, &revision, &[]);
            decision.changes.push(Change::Happened { event });
        }
        decision
    }
}
