//! What a task asks of drives. It goes on when it knows what became of that: a request that the
//! drive's thread has begun is waited for, however long its device takes, because what is stored
//! later than that would be stored behind everybody's back.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ebof_drive::{Answer, Origin, Refusal, Request};
use ebof_nvme::Status;

use super::carry::{Failed, Step};
use crate::drives::DriveActor;

/// How long a drive may take to begin: longer than it waits for commands to what it takes away.
const BEGIN: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });

/// How often it is looked whether the target is stopping.
const LOOK: Duration = Duration::from_secs(1);

/// How long a drive is asked again to store that a transaction is over, before that is left to the
/// drive itself, and how often.
const FORGET: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
const AGAIN: Duration = Duration::from_millis(200);

/// Has a drive do something for the box, and waits for that: for [`BEGIN`] until the drive begins,
/// and then as long as `goes_on`, which is told how long it took so far, returns nothing else.
///
/// # Errors
/// The drive has not done it; or that of `goes_on`, and the drive may still do it.
pub(super) fn ask(
    actor: &Arc<DriveActor>,
    request: Request,
    mut goes_on: impl FnMut(Duration) -> Result<(), Failed>,
) -> Result<Answer, Failed> {
    let what = request.name();
    let (reply, answer) = channel();
    let submitted = actor.submit(request, Origin::box_(), move |result| {
        // Nobody waits any more where the target is stopping.
        let _received = reply.send(result);
    });
    let began = Instant::now();
    let mut wait = BEGIN;
    loop {
        match answer.recv_timeout(wait) {
            Ok(Ok(reply)) => return Ok(reply.answer),
            Ok(Err(Refusal { status, .. })) => return Err(refused(what, status)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failed::new("the drive is being closed", "it is removed, or the target is stopping"));
            }
            Err(RecvTimeoutError::Timeout) if submitted.withdraw() => {
                let seconds = BEGIN.as_secs();
                let message = format!("the drive was asked to {what}, and did not begin for {seconds} s");
                return Err(Failed::new(message, "look at the device below the drive"));
            }
            Err(RecvTimeoutError::Timeout) => goes_on(began.elapsed())?,
        }
        wait = LOOK;
    }
}

impl Step<'_> {
    /// Has a drive do something for the box, and waits for that.
    ///
    /// # Errors
    /// The drive has not done it; or the target is stopping, and the step is undecided.
    pub(super) fn ask(&self, actor: &Arc<DriveActor>, request: Request) -> Result<Answer, Failed> {
        let what = request.name();
        let mut is_told = false;
        ask(actor, request, |_| {
            if !std::mem::replace(&mut is_told, true) {
                let name = actor.name();
                tracing::error!(task = self.id(), drive = name, "the drive does not come to an end with this: {what}");
                self.tell(format!("drive {name} was asked to {what}, and its device does not answer: look at that"));
            }
            self.check().inspect_err(|_| self.is_undecided.set(true))
        })
    }

    /// Has a drive store that a transaction is over. If it cannot for a while, it does so later.
    pub(super) fn forget(&self, actor: &Arc<DriveActor>, transaction: &str) {
        let began = Instant::now();
        while let Err(failed) = self.ask(actor, Request::End(transaction.to_owned())) {
            if self.check().is_err() {
                return;
            }
            if began.elapsed() >= FORGET {
                let (drive, why) = (actor.name(), failed.message());
                tracing::error!(drive, transaction, "it cannot be stored yet that the transaction is over: {why}");
                return actor.owe_end(transaction);
            }
            std::thread::sleep(AGAIN);
        }
    }
}

fn refused(what: &str, status: Status) -> Failed {
    let is = |other: Status| (status.code_type(), status.code()) == (other.code_type(), other.code());
    let advice = match () {
        () if is(Status::INVALID_RESOURCE_ID) => {
            "the drive's flexible resources are used up: take some from other functions (`ebof virt-mgmt`)"
        }
        () if is(Status::NAMESPACE_WRITE_PROTECTED) => {
            "the drive is damaged and open for reading only: see the target's log"
        }
        () if is(Status::INTERNAL_ERROR) => "the drive could not store the change: see the target's log",
        () if is(Status::COMMAND_INTERRUPTED) => {
            "the device below the drive does not end commands to it: look at that device, and try again"
        }
        () => "see the target's log, and `ebof target show`",
    };
    Failed::new(format!("the drive refused to {what}: {status}"), advice)
}

#[cfg(test)]
mod tests;
