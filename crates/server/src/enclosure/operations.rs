//! How a task sanitizes a drive, has it test itself, and gives it firmware.

use std::sync::Arc;
use std::time::Duration;

use ebof_drive::{Answer, Request};
use ebof_manage::enclosure::{Activation, Phase, SanitizeAction, SanitizeDrive, SelfTestKind};
use ebof_nvme::firmware::{Commit, CommitAction};
use ebof_nvme::log::{SanitizeState, SelfTestCode, SelfTestResult};
use ebof_nvme::{Nsid, media};

use super::step::{Failed, Step};
use crate::drives::DriveActor;

/// How often it is looked how far a drive is.
const LOOK: Duration = Duration::from_millis(100);

/// Sanitizes a drive, to the end.
pub(super) fn sanitize(step: &Step<'_>, wanted: &SanitizeDrive) -> Result<(), Failed> {
    let (_, actor) = step.drive(&wanted.drive)?;
    let action = match wanted.action {
        SanitizeAction::BlockErase => media::SanitizeAction::BlockErase,
        SanitizeAction::Overwrite => media::SanitizeAction::Overwrite,
        SanitizeAction::CryptoErase => media::SanitizeAction::CryptoErase,
        SanitizeAction::ExitFailure => media::SanitizeAction::ExitFailure,
    };
    let command = media::Sanitize {
        allow_unrestricted_exit: wanted.allow_exit_after_failure,
        overwrite_passes: wanted.passes.unwrap_or(1),
        invert_pattern: wanted.invert,
        pattern: wanted.pattern.unwrap_or(0),
        ..media::Sanitize::new(action)
    };
    step.at(Phase::Storing, 0, None);
    step.ask(&actor, Request::Sanitize(command))?;
    if wanted.action == SanitizeAction::ExitFailure {
        return Ok(());
    }
    let goes_on = "the drive goes on with being sanitized as soon as it is served again";
    follow(step, &wanted.drive, &actor, goes_on, |actor| actor.sanitize_percent())?;
    match actor.with_drive(|drive| drive.sanitize_page().state()) {
        SanitizeState::Failed => Err(Failed::new(
            "the drive could not be sanitized to the end, and refuses most commands now",
            "see the target's log; leave that state, if it was allowed (`ebof target sanitize DRIVE --action \
             exit-failure`); or sanitize it again, when the reason is gone: all data are lost",
        )),
        _ => Ok(()),
    }
}

/// Has a drive test itself, to the end.
pub(super) fn self_test(step: &Step<'_>, name: &str, kind: SelfTestKind) -> Result<(), Failed> {
    let (_, actor) = step.drive(name)?;
    let code = match kind {
        SelfTestKind::Short => SelfTestCode::SHORT,
        SelfTestKind::Extended => SelfTestCode::EXTENDED,
        SelfTestKind::Abort => SelfTestCode::ABORT,
    };
    step.at(Phase::Storing, 0, None);
    step.ask(&actor, Request::SelfTest(code, Nsid::ALL))?;
    if kind == SelfTestKind::Abort {
        return Ok(());
    }
    let goes_on = "an extended self-test goes on as soon as the drive is served again";
    follow(step, name, &actor, goes_on, |actor| actor.self_test_percent())?;
    let result = actor.with_drive(|drive| drive.state().self_test.page().results().next().map(|entry| entry.result()));
    match result {
        Some(SelfTestResult::PASSED) => Ok(()),
        result => {
            let words = result.and_then(SelfTestResult::name).unwrap_or("it has no result");
            let advice = format!("`ebof target show {name}` shows where, and the target's log more");
            Err(Failed::new(format!("the self-test did not pass: {words}"), advice))
        }
    }
}

/// Waits until a drive has done what it is at: `percent` is nothing then.
fn follow(
    step: &Step<'_>,
    name: &str,
    actor: &Arc<DriveActor>,
    goes_on: &str,
    percent: impl Fn(&DriveActor) -> Option<u8>,
) -> Result<(), Failed> {
    let mut shown = None;
    while let Some(percent) = percent(actor) {
        if shown.replace(percent) != Some(percent) {
            step.at(Phase::Working, percent, None);
        }
        let is_there = || step.drive(name).is_ok_and(|(_, now)| Arc::ptr_eq(&now, actor));
        let gone = step
            .check()
            .err()
            .or_else(|| (!is_there()).then(|| Failed::new("the drive is gone", "it was removed meanwhile")));
        if let Some(mut failed) = gone {
            failed.remains.push(goes_on.to_owned());
            return Err(failed);
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Puts a firmware image into a slot.
pub(super) fn stage(step: &Step<'_>, name: &str, slot: Option<u8>, image: &str) -> Result<(), Failed> {
    let (_, actor) = step.drive(name)?;
    let bytes = step.image(image).ok_or_else(|| {
        Failed::new("there is no such firmware image any more", "hand it over again: others have taken its place")
    })?;
    step.at(Phase::Storing, 50, None);
    let answer = step.ask(&actor, Request::Stage(slot.unwrap_or(0), bytes))?;
    if let (Answer::Done(slot), None) = (answer, slot) {
        step.add_made(format!("{name}/slot{slot}"));
    }
    Ok(())
}

/// Has the image of a firmware slot run.
pub(super) fn activate(step: &Step<'_>, name: &str, slot: u8, when: Activation) -> Result<(), Failed> {
    let (_, actor) = step.drive(name)?;
    let action = match when {
        Activation::Now => CommitAction::ActivateNow,
        Activation::AtReset => CommitAction::Activate,
    };
    step.at(Phase::Storing, 50, None);
    step.ask(&actor, Request::Commit(Commit { action, slot, boot_partition: 0 }))?;
    let next = actor.with_drive(|drive| drive.state().firmware.pending_slot());
    if next == Some(slot) {
        step.remark(&format!("firmware slot {slot} of drive {name} runs after the next reset of a controller"));
    }
    Ok(())
}
