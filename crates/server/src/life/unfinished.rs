//! Transactions of the box that the end of the target has interrupted
//! ([0062](../../../../docs/adr/0062-management-of-the-box.md)).

use std::collections::BTreeSet;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use ebof_drive::{Origin, Refusal, Request};

use crate::life::startup::OpenDrive;

/// How long the drives may take together: a start, a reload or a task waits for them.
const LIMIT: Duration = Duration::from_secs(30);

/// Ends the transactions that `opened` drives remember from before, before hosts are shown them:
/// those that were made are forgotten, the others taken back. `others` are open already.
pub(crate) fn finish(opened: &[OpenDrive], others: &[OpenDrive]) {
    let all = || opened.iter().chain(others);
    let (mut deciding, mut following) = (Vec::new(), Vec::new());
    for drive in opened {
        let own = drive.actor.view().uuid;
        for (id, unfinished) in drive.actor.unfinished() {
            if unfinished.decider == own {
                deciding.push((drive, id, false));
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
            following.push((drive, id, is_made));
        }
    }
    let left = end(&following);
    // A drive that has forgotten one says that it was made: not before the others have ended it.
    deciding.retain(|(_, id, _)| !left.contains(id));
    end(&deciding);
}

/// Ends these transactions of drives, each of which was made or not. Gives those that stay.
fn end(transactions: &[(&OpenDrive, String, bool)]) -> BTreeSet<String> {
    let (reply, answers) = channel();
    for (at, (drive, id, is_made)) in transactions.iter().enumerate() {
        let outcome = if *is_made { "it was made" } else { "it is taken back" };
        let name = &drive.config.name;
        tracing::warn!(
            drive = name,
            transaction = id,
            "a transaction was interrupted by the end of the target: {outcome}"
        );
        let request = if *is_made { Request::End(id.clone()) } else { Request::Undo(id.clone()) };
        let reply = reply.clone();
        let _submitted = drive.actor.submit(request, Origin::box_(), move |result| {
            // Nobody waits any more if it took too long.
            let _received = reply.send((at, result.map(drop)));
        });
    }
    drop(reply);
    let mut left: BTreeSet<usize> = (0..transactions.len()).collect();
    let until = std::time::Instant::now() + LIMIT;
    loop {
        match answers.recv_timeout(until.saturating_duration_since(std::time::Instant::now())) {
            Ok((at, Ok(()))) => {
                left.remove(&at);
            }
            Ok((at, Err(Refusal { status, .. }))) => {
                let (drive, id, is_made) = &transactions[at];
                if *is_made {
                    drive.actor.store_end_later(id);
                }
                let name = &drive.config.name;
                tracing::error!(drive = name, transaction = id, "the interrupted transaction stays for now: {status}");
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                tracing::error!(
                    "drives do not come to an end with interrupted transactions: look at the devices below"
                );
                break;
            }
        }
    }
    left.into_iter().map(|at| transactions[at].1.clone()).collect()
}
