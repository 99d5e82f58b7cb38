//! Transactions of the box that the end of the target has interrupted
//! ([0062](../../../docs/adr/0062-management-of-the-box.md)).

use std::sync::mpsc::channel;

use ebof_drive::{Origin, Refusal, Request};

use crate::startup::OpenDrive;

/// Ends the transactions that `opened` drives remember from before, before hosts are shown them:
/// those that were made are forgotten, the others taken back. `others` are open already.
pub(crate) fn finish(opened: &[OpenDrive], others: &[OpenDrive]) {
    let all = || opened.iter().chain(others);
    let mut deciding = Vec::new();
    for drive in opened {
        let own = drive.actor.view().uuid;
        for (id, unfinished) in drive.actor.unfinished() {
            if unfinished.decider == own {
                deciding.push((drive, id));
                continue;
            }
            let decider = all().find(|other| other.actor.view().uuid == unfinished.decider);
            let is_made = decider.is_some_and(|decider| !decider.actor.unfinished().contains_key(&id));
            if decider.is_none() {
                tracing::error!(
                    drive = drive.config.name,
                    transaction = id,
                    "a transaction was interrupted, and the drive that knows whether it was made is not here: it is taken back"
                );
            }
            over(drive, id, is_made);
        }
    }
    // The others have to see them.
    deciding.into_iter().for_each(|(drive, id)| over(drive, id, false));
}

fn over(drive: &OpenDrive, id: String, is_made: bool) {
    let name = &drive.config.name;
    let outcome = if is_made { "it was made" } else { "it is taken back" };
    tracing::warn!(drive = name, transaction = id, "a transaction was interrupted by the end of the target: {outcome}");
    let request = if is_made { Request::End(id) } else { Request::Undo(id) };
    let (reply, answer) = channel();
    let _submitted = drive.actor.submit(request, Origin::box_(), move |result| {
        // The receiver waits, and does not go away.
        let _received = reply.send(result.map(drop));
    });
    if let Ok(Err(Refusal { status, .. })) = answer.recv() {
        tracing::error!(drive = name, "the interrupted transaction stays until the next start: {status}");
    }
}
