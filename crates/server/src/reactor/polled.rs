//! Connections that nothing tells of: they are looked at in every turn, until the reactor is about
//! to sleep.

use rustix::event::epoll;

use super::Reactor;

impl Reactor {
    /// Looks at the connections that are polled. Returns whether one of them had something.
    pub(super) fn look_at_polled(&mut self, now_us: u64) -> bool {
        let mut worked = false;
        let mut polling = std::mem::replace(&mut self.polled, std::mem::take(&mut self.polling));
        for index in polling.drain(..) {
            self.unlist(index);
            worked |= self.on_socket(index, epoll::EventFlags::IN, now_us);
        }
        self.polling = polling;
        worked
    }

    /// Has the connections that are polled tell when they have something. Returns whether none has
    /// anything now.
    pub(super) fn arm_polled(&mut self, now_us: u64) -> bool {
        let mut all = true;
        let mut polling = std::mem::replace(&mut self.polled, std::mem::take(&mut self.polling));
        for index in polling.drain(..) {
            self.unlist(index);
            self.with(index, now_us, |connection, _| {
                all &= connection.link.arm()?;
                Ok(())
            });
        }
        self.polling = polling;
        all
    }

    /// The connection is on the list of those that are polled no more; [`Reactor::with`] puts it
    /// there again.
    fn unlist(&mut self, index: u32) {
        if let Some(connection) = self.connections.get_mut(index as usize).and_then(Option::as_mut) {
            connection.link.listed = false;
        }
    }
}
