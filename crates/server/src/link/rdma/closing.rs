//! The end of a connection: nothing of its buffers goes back to the pool before the adapter is done
//! with them.

use ebof_verbs::{QueuePair, WorkCompletion, WorkRequest};

/// How long the adapter may take to give everything back, milliseconds. After that the queue pair
/// is destroyed with what it holds.
const SETTLE_MS: u64 = 2_000;

/// How often that is looked at, milliseconds.
const LOOK_MS: u64 = 5;

/// A connection that was broken off.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// When to look next, milliseconds of the target's clock.
    pub(super) look_ms: u64,
    /// When it takes too long; `None` until it was looked at.
    until_ms: Option<u64>,
}

impl Closing {
    /// It is looked at now. Returns whether it takes too long.
    pub(super) fn check(&mut self, now_ms: u64) -> bool {
        self.look_ms = now_ms + LOOK_MS;
        now_ms >= *self.until_ms.get_or_insert(now_ms + SETTLE_MS)
    }
}

/// Collects what the adapter still reports: all of it is over. Receives that are shared are posted
/// again.
pub(super) fn collect_rest(pair: &mut QueuePair, shares_receives: bool) {
    // What it was does not matter any more.
    while let Ok(Some(completion)) = pair.poll() {
        if let Some(slot) = receive_of(completion).filter(|_| shares_receives) {
            pair.post_receive(slot);
        }
    }
    if shares_receives {
        // Whether it is taken: the queue pair gives back what it still has when it is destroyed.
        let _ = pair.flush();
    }
}

/// The receive that has come back.
fn receive_of(completion: WorkCompletion) -> Option<u32> {
    match completion {
        WorkCompletion::Received { slot, .. } | WorkCompletion::Failed { what: WorkRequest::Receive(slot), .. } => {
            Some(slot)
        }
        _ => None,
    }
}
