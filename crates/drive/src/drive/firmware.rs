//! Firmware Image Download and Firmware Commit: the image that is being downloaded, and what
//! becomes of the slots.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use ebof_nvme::ControllerId;
use ebof_nvme::event::AsyncEvent;
use ebof_nvme::firmware::{Commit, CommitAction};

use super::decision::Decision;
use crate::change::Change;
use crate::logs::event_log::Event;
use crate::maintenance::firmware::{Download, Firmware, GRANULARITY_BYTES, Limits};
use crate::request::{Answer, DecisionInput, Origin, Refusal};

/// The firmware image that is being downloaded.
#[derive(Debug, Default)]
pub(super) struct FirmwareUpdate {
    download: Download,
}

impl FirmwareUpdate {
    pub(super) fn download(&mut self, offset: u64, piece: &[u8], origin: &Origin) -> Result<Decision, Refusal> {
        let dword0 = self.download.take(origin.cntlid, offset, piece)?;
        Ok(Decision { answer: Answer::Done(dword0.into()), ..Decision::nothing() })
    }

    pub(super) fn commit(
        &mut self,
        slots: (&Firmware, &Limits),
        commit: Commit,
        origin: &Origin,
        input: &DecisionInput,
    ) -> Result<Decision, Refusal> {
        if origin.is_box {
            // It downloads nothing, and what a host does is not touched.
            return Ok(committed(slots, &Download::default(), commit, origin, input)?.0);
        }
        let outcome = committed(slots, &self.download, commit, origin, input);
        // Also after an error the next piece belongs to another image.
        self.download.finish();
        Ok(outcome?.0)
    }

    /// A controller was reset: its download is discarded.
    pub(super) fn reset(&mut self, controller: ControllerId) {
        self.download.reset(controller);
    }
}

/// A whole image, as if it had been downloaded.
pub(super) fn downloaded(image: &[u8], origin: &Origin) -> Result<Download, Refusal> {
    let mut padded = image.to_vec();
    padded.resize(image.len().next_multiple_of(GRANULARITY_BYTES), 0);
    let mut download = Download::default();
    download.take(origin.cntlid, 0, &padded)?;
    Ok(download)
}

/// Puts an image into a slot, which is answered with the slot; 0: the drive chooses. What hosts
/// download meanwhile stays.
pub(super) fn stage(
    slots: (&Firmware, &Limits),
    slot: u8,
    image: &Download,
    origin: &Origin,
    input: &DecisionInput,
) -> Result<Decision, Refusal> {
    let commit = Commit { action: CommitAction::Replace, slot, boot_partition: 0 };
    let (decision, slot) = committed(slots, image, commit, origin, input)?;
    Ok(Decision { answer: Answer::Done(slot.into()), ..decision })
}

/// What a reset of a controller activates, if an image waits for one.
pub(super) fn activated(firmware: &Firmware, limits: &Limits, origin: &Origin, input: &DecisionInput) -> Vec<Change> {
    let Some(next) = firmware.at_reset(limits) else { return Vec::new() };
    let event = Event::power_on(origin, input, &next.running(limits).revision, &[]);
    vec![Change::Firmware { firmware: Box::new(next) }, Change::Happened { event }]
}

/// What a Firmware Commit of what was downloaded does, and the slot that it is about.
fn committed(
    (firmware, limits): (&Firmware, &Limits),
    download: &Download,
    commit: Commit,
    origin: &Origin,
    input: &DecisionInput,
) -> Result<(Decision, u8), Refusal> {
    let done = firmware.commit(download, &commit, limits)?;
    let old = firmware.running(limits).revision.clone();
    let action = (commit.action.encode(), done.slot);
    let event = Event::firmware_commit(origin, input, (&old, &done.revision), action, done.status);
    // Firmware Activation Requires Reset is a status of a command that was executed: the image is
    // in its slot.
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
