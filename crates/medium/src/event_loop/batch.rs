//! What the drive's thread does in one turn: deferred requests and slices of long ones become a
//! batch (`store/batch.rs`), and what has become of each is told.

use std::sync::Arc;
use std::time::Duration;

use ebof_backend::{Completion, Request};

use crate::Store;
use crate::event_loop::queues::{LongRequest, RequestQueues};
use crate::store::batch::item::WaitFor;
use crate::store::batch::locks::BatchLocks;
use crate::store::batch::{Batch, Outcome};
use crate::thin::shared::{DeferredRequest, Settles};
use crate::thin::stopped;

/// How long a write waits for freed extents that requests in flight may still access. Other
/// requests do not wait with it.
const SPACE_WAIT: Duration = Duration::from_millis(500);

/// Does deferred requests, and slices of long ones. Completes those that are done, and puts the
/// others back into `queues`. If `may_wait` is false, none is left waiting for space.
pub(crate) fn serve(
    store: &mut Store,
    deferred_requests: Vec<DeferredRequest>,
    long: Vec<LongRequest>,
    queues: &mut RequestQueues,
    may_wait: bool,
) {
    let now = store.order.shared.clock.now();
    let mut replies = Vec::with_capacity(deferred_requests.len());
    let mut items = Vec::with_capacity(deferred_requests.len() + long.len());
    let mut locks = BatchLocks::default();
    for mut deferred in deferred_requests {
        if !locks.try_lock(&deferred.thin, &deferred.request.operation, &mut deferred.awaited) {
            match may_wait {
                true => queues.wait_for_unlock(deferred),
                false => deferred.refuse(stopped),
            }
            continue;
        }
        let DeferredRequest { thin, request, reply, waits_until, .. } = deferred;
        replies.push((reply, waits_until));
        let wait_for = match waits_until {
            _ if !may_wait => WaitFor::Nothing,
            Some(until) if until <= now => WaitFor::Zeroing,
            _ => WaitFor::Reclaiming,
        };
        items.push((thin, request, wait_for));
    }
    let mut sliced = Vec::with_capacity(long.len());
    for mut long in long {
        let left = long.left();
        let slice = long.slice();
        if locks.try_lock(&long.deferred.thin, &slice, &mut long.deferred.awaited) {
            items.push((Arc::clone(&long.deferred.thin), Request::new(0, slice), WaitFor::Nothing));
            sliced.push(long);
        } else if may_wait {
            long.restore(left);
            queues.wait_for_unlock_long(long);
        } else {
            long.deferred.refuse(stopped);
        }
    }
    if items.is_empty() {
        return;
    }
    let mut tagged = items.iter().filter(|(thin, ..)| thin.is_tagged).peekable();
    if tagged.peek().is_some() {
        queues.set_tagged_changes(tagged.filter(|(_, request, _)| request.operation.action().modifies()).count());
    }
    let mut done = Batch::new(&mut store.order, items).run();
    // Before anybody is told: the next request for these blocks need not come here.
    drop(locks);
    let slices = done.split_off(replies.len());
    for ((reply, waits_until), outcome) in replies.into_iter().zip(done) {
        match outcome {
            Outcome::Done(completion) => reply.send(completion),
            Outcome::Waiting(thin, request) => {
                let waits_until = waits_until.or(Some(now + SPACE_WAIT));
                queues.wait_for_space(DeferredRequest {
                    thin,
                    request,
                    reply,
                    waits_until,
                    settles: Settles::default(),
                    awaited: None,
                });
            }
        }
    }
    for (long, slice) in sliced.into_iter().zip(slices) {
        match slice {
            Outcome::Done(Completion { result: Ok(()), .. }) if !long.is_done() => queues.put_back(long),
            Outcome::Done(Completion { result, .. }) => long.finish(result),
            // A slice takes no extents.
            Outcome::Waiting(..) => queues.put_back(long),
        }
    }
}
