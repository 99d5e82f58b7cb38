//! Connections that nothing tells of: they are looked at in every turn, until the reactor is about
//! to sleep.

use std::time::Duration;

use rustix::event::epoll;

use super::Reactor;
use crate::link::State;

/// A reactor that is to poll, and sleeps since others use its processor, looks again after so long
/// whether they still do.
pub(super) const SHARED_POLL_AGAIN: Duration = Duration::from_millis(20);

/// How long the ports of a reactor's connections have it look for work before it sleeps.
#[derive(Debug, Default)]
pub(super) struct BusyPoll {
    /// The longest, microseconds; [`u64::MAX`]: it never sleeps.
    us: u64,
    /// A connection has come or gone since.
    pub(super) is_outdated: bool,
}

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

    /// Whether a port has the reactor go on looking, after the last work that it had. When it does
    /// sleep, all connections are armed, whatever their ports say.
    pub(super) fn polls_on(&mut self, now_us: u64) -> bool {
        if std::mem::take(&mut self.busy_poll.is_outdated) {
            let open = self.connections.iter().flatten().filter(|connection| connection.link.state != State::Gone);
            self.busy_poll.us = open.map(|connection| connection.link.peer().port.polls_us()).max().unwrap_or(0);
        }
        match self.busy_poll.us {
            0 => false,
            u64::MAX => {
                self.shrink_after_a_while(now_us);
                true
            }
            us => self.last_work_us.is_some_and(|last| now_us.saturating_sub(last) < us),
        }
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
