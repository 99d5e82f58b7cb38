//! What a task asks of drives. It goes on when it knows what became of that: a request that the
//! drive's thread has begun is waited for, however long its device takes, because what is stored
//! later than that would be stored behind everybody's back.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ebof_drive::{Answer, Origin, Refusal, Request};
use ebof_nvme::Status;

use super::step::Failed;
use crate::drives::DriveActor;

/// How long a drive may take to begin: longer than it waits for commands to what it takes away.
pub(super) const BEGIN: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });

/// How often it is looked whether the target is stopping.
const LOOK: Duration = Duration::from_secs(1);

/// How long a drive is asked again to store that a transaction is over, before that is left to the
/// drive itself, and how often.
pub(super) const FORGET: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
pub(super) const AGAIN: Duration = Duration::from_millis(200);

/// Has a drive do something for the box, and waits for that: for [`BEGIN`] until the drive begins,
/// and then as long as `goes_on`, which is told how long it took so far, returns nothing else.
///
/// # Errors
/// The drive has not done it; or that of `goes_on`, and the drive may still do it.
pub(super) fn ask(
    actor: &Arc<DriveActor>,
    request: Request,
    goes_on: impl FnMut(Duration) -> Result<(), Failed>,
) -> Result<Answer, Failed> {
    ask_looking(actor, request, BEGIN, LOOK, goes_on)
}

/// The same; `goes_on` is asked after `first`, and then again and again, with `look` in between.
pub(super) fn ask_looking(
    actor: &Arc<DriveActor>,
    request: Request,
    first: Duration,
    look: Duration,
    mut goes_on: impl FnMut(Duration) -> Result<(), Failed>,
) -> Result<Answer, Failed> {
    let what = request.name();
    let (reply, answer) = channel();
    let submitted = actor.submit(request, Origin::box_(), move |result| {
        // Nobody waits any more where the target is stopping.
        let _received = reply.send(result);
    });
    let began = Instant::now();
    let mut wait = first;
    loop {
        match answer.recv_timeout(wait) {
            Ok(Ok(reply)) => return Ok(reply.answer),
            Ok(Err(refusal)) => return Err(refused(actor, what, &refusal)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failed::new("the drive is being closed", "it is removed, or the target is stopping"));
            }
            Err(RecvTimeoutError::Timeout) if began.elapsed() >= BEGIN && submitted.withdraw() => {
                let seconds = BEGIN.as_secs();
                let message = format!("the drive was asked to {what}, and did not begin for {seconds} s");
                return Err(Failed::new(message, "look at the device below the drive"));
            }
            Err(RecvTimeoutError::Timeout) => goes_on(began.elapsed())?,
        }
        wait = look;
    }
}

fn refused(actor: &DriveActor, what: &str, refusal: &Refusal) -> Failed {
    let status = refusal.status;
    let is = |other: Status| (status.code_type(), status.code()) == (other.code_type(), other.code());
    let mut message = format!("the drive refused to {what}: {status}");
    if is(Status::NAMESPACE_INSUFFICIENT_CAPACITY) && refusal.information > 0 {
        let free = actor.view().unallocated_bytes;
        message += &format!("; it needs {} bytes, and {free} are not allocated", refusal.information);
    }
    if is(Status::NAMESPACE_WRITE_PROTECTED) && actor.medium().is_read_only() {
        return Failed::new(message, "the drive is damaged and open for reading only: see the target's log");
    }
    let advice = ADVICE.iter().find(|(of, _)| is(*of)).map(|(_, advice)| *advice);
    Failed::new(message, advice.unwrap_or("see the target's log, and `ebof target show`"))
}

/// What to do about a drive's refusal.
const ADVICE: [(Status, &str); 17] = [
    (
        Status::INVALID_RESOURCE_ID,
        "the drive's flexible resources are used up: take some from other functions (`ebof virt-mgmt`)",
    ),
    (Status::NAMESPACE_WRITE_PROTECTED, "remove the write protection (`ebof target set NAMESPACE write-protect=off`)"),
    (Status::INTERNAL_ERROR, "the drive could not store the change: see the target's log"),
    (
        Status::COMMAND_INTERRUPTED,
        "the device below the drive does not end commands to it: look at that device, and try again",
    ),
    (
        Status::NAMESPACE_INSUFFICIENT_CAPACITY,
        "choose a smaller size; `overcommit` of the drive in the configuration allows more than there is; or delete a \
         namespace whose data may be lost",
    ),
    (Status::NAMESPACE_ID_UNAVAILABLE, "choose another NSID, or delete a namespace whose data may be lost"),
    (
        Status::NAMESPACE_IS_PRIVATE,
        "detach it from the one that has it, or map it (`ebof target map NAMESPACE --vf FUNCTION`)",
    ),
    (Status::NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED, "attach it to `*`, or detach it from hosts that do not need it"),
    (Status::SANITIZE_IN_PROGRESS, "wait until the drive is sanitized; `ebof target show` says how far it is"),
    (
        Status::SANITIZE_FAILED,
        "the drive refuses most commands until its data are gone: leave that state (`ebof target sanitize DRIVE --action \
         exit-failure`) if the sanitize operation that failed allowed that; or sanitize it again, without allowing \
         that (--allow-exit-after-failure): all data are lost",
    ),
    (Status::FORMAT_IN_PROGRESS, "wait until the namespace is formatted; `ebof target show` says how far it is"),
    (
        Status::SELF_TEST_IN_PROGRESS,
        "wait for the end of the running self-test, or end it (`ebof target self-test DRIVE --abort`)",
    ),
    (Status::COMMAND_SEQUENCE_ERROR, "the slot has the image that runs: choose another one"),
    (
        Status::FIRMWARE_NEEDS_RESET,
        "a firmware image waits for a reset of a controller: `ebof reset` on a host, then again",
    ),
    (Status::INVALID_FIRMWARE_SLOT, "`ebof target show DRIVE` lists the drive's firmware slots"),
    (Status::INVALID_FIRMWARE_IMAGE, "put an image into the slot first, one for this kind of drive"),
    (Status::INVALID_OPCODE, "the firmware that the drive runs does not have this command: activate another slot"),
];

#[cfg(test)]
mod tests;
