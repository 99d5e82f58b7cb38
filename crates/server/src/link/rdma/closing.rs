//! The end of a connection: nothing of its buffers goes back to the pool before the adapter is done
//! with them.

use ebof_verbs::{WorkCompletion, WorkRequest};

use super::held::Origin;
use super::sending::GIVEN;
use super::{CONNECTED, Rdma};
use crate::ports::rdma_connection::Registered;
use crate::shared::buffer::Pool;
use crate::shared::reactor_context::ReactorContext;

/// How long the adapter may take to give everything back, milliseconds. After that the queue pair
/// is destroyed with what it holds.
const SETTLE_MS: u64 = 2_000;

/// How often that is looked at, milliseconds.
const LOOK_MS: u64 = 5;

/// A connection that was broken off.
#[derive(Debug)]
pub(super) struct Closing {
    /// When to look next, milliseconds of the target's clock.
    pub(super) look_ms: u64,
    /// When it takes too long; `None` until it was looked at.
    until_ms: Option<u64>,
}

impl Rdma {
    /// Ends the connection: what is under way comes back.
    pub(super) fn disconnect(&mut self) {
        if let Some(pair) = self.pair() {
            pair.disconnect();
            // What this turn has posted comes back, too: it fails as all work does from now on.
            let _ = pair.flush();
            self.closing.get_or_insert(Closing { look_ms: 0, until_ms: None });
        }
        self.unsent_bytes = 0;
        self.standstill = None;
        self.pointers.clear();
        self.peer_is_gone = true;
    }

    /// Gives the pool what the adapter is done with. Returns whether that is everything.
    pub(super) fn take_back(&mut self, pool: &mut Pool) -> bool {
        let Registered { pair, .. } = self.pair.as_mut().expect(CONNECTED);
        // What it was does not matter any more: all of it is over.
        while let Ok(Some(completion)) = pair.poll() {
            if let Some(slot) = receive_of(completion).filter(|_| self.shares_receives) {
                pair.post_receive(slot);
            }
        }
        if self.shares_receives {
            // Whether it is taken: the queue pair gives back what it still has when it is
            // destroyed.
            let _ = pair.flush();
        }
        for fetching in &mut self.fetching {
            if let Some(buffer) = fetching.as_ref().and_then(|fetching| pair.release(fetching.held)) {
                pool.put(buffer);
                *fetching = None;
            }
        }
        let mut is_all = self.fetching.iter().all(Option::is_none);
        // Those of which it is not done yet are left in `returned`.
        self.returned.extend(self.outgoing.drain());
        self.returned.extend(self.sending.iter_mut().filter_map(|sending| sending.held.take()));
        self.returned.retain(|outgoing| {
            let Some(buffer) = pair.release(outgoing.held) else {
                is_all = false;
                return true;
            };
            match outgoing.origin {
                Origin::Pool => pool.put(buffer),
                Origin::Kept => pool.put_kept(buffer),
                Origin::Own => {}
            }
            false
        });
        while let Some(buffer) = pair.take_written() {
            self.given_bytes = self.given_bytes.checked_sub(buffer.capacity()).expect(GIVEN);
            pool.put(buffer);
        }
        self.give_kept(pool);
        is_all && self.given_bytes == 0
    }

    /// Posts the receives of capsules that nobody will take: others wait for them.
    pub(super) fn return_receives(&mut self) {
        let current = self.current.take().map(|current| current.slot);
        let Registered { pair, .. } = self.pair.as_mut().expect(CONNECTED);
        let slots = self.received.drain(..).map(|capsule| capsule.slot).chain(current);
        slots.for_each(|slot| pair.post_receive(slot));
    }

    /// Looks again at what the adapter has. When that is nothing, or it takes too long, the control
    /// thread destroys the queue pair.
    pub(super) fn settle_held(&mut self, context: &mut ReactorContext<'_>) {
        let now_ms = context.now_ms;
        // Nothing is left, and only commands at a device keep the connection.
        let Some(Closing { until_ms, .. }) = &mut self.closing else { return };
        let until_ms = *until_ms.get_or_insert(now_ms + SETTLE_MS);
        if !self.take_back(context.pool) {
            if now_ms < until_ms {
                self.closing = Some(Closing { look_ms: now_ms + LOOK_MS, until_ms: Some(until_ms) });
                return;
            }
            self.abandon_held(context.pool);
        }
        self.closing = None;
        if let Some(pair) = self.pair.take() {
            context.shared.leave_to_control(pair);
        }
    }

    /// What is still held goes with the queue pair.
    fn abandon_held(&mut self, pool: &mut Pool) {
        let fetching = self.fetching.drain(..).flatten().map(|fetching| fetching.buffer_bytes);
        pool.forget(fetching.sum());
        pool.forget(std::mem::take(&mut self.given_bytes));
        for outgoing in self.returned.drain(..) {
            match outgoing.origin {
                Origin::Pool => pool.forget(outgoing.buffer_bytes as usize),
                Origin::Kept => pool.forget_kept(outgoing.buffer_bytes as usize),
                Origin::Own => {}
            }
        }
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
