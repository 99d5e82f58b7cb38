//! What devices have done, what they had no room for, and whose turn it is next at those that
//! functions share.

use ebof_backend::{Completion, Submitted};

use super::Reactor;
use crate::shared::reactor_context::ReactorContext;

impl Reactor {
    /// A device has done its part of a command.
    pub(super) fn on_device(&mut self, completion: Completion, now_us: u64) {
        self.with(ReactorContext::index_of(completion.tag), now_us, |connection, context| {
            connection.commands.on_device(completion, &mut connection.link, context);
            Ok(())
        });
    }

    /// Submits again what the devices had no room for. Returns whether something ended at once.
    pub(super) fn retry_busy(&mut self, now_us: u64) -> bool {
        let mut worked = false;
        for _ in 0..self.retry.len() {
            let Some((device, request)) = self.retry.pop_front() else { break };
            match device.submit(&mut self.io, request) {
                Submitted::Pending => {}
                Submitted::Busy(request) => {
                    self.retry.push_front((device, request));
                    break;
                }
                Submitted::Done(completion) => {
                    worked = true;
                    self.on_device(completion, now_us);
                }
            }
        }
        worked
    }

    /// Settles what functions of drives have done, and starts what may go then. Returns whether
    /// there was anything.
    pub(super) fn settle_shares(&mut self, now_us: u64) -> bool {
        let mut worked = self.local_shares.settle(now_us);
        // What is done at once settles in the next turn.
        for _ in 0..self.local_shares.admitted() {
            let Some((ticket, reply)) = self.local_shares.next_admitted() else { break };
            worked = true;
            self.admitted(reply, ticket, now_us);
        }
        worked
    }
}
