//! What soft-iWARP overlooks when it accepts a connection.
//!
//! It answers the host, and only then has the socket tell it of data (`siw_accept`, Linux 6.12). A
//! message that comes in between stays in the socket until more comes, which is never: the host
//! waits for an answer to its first message. Of connections on one machine, that is one in a
//! hundred.
//!
//! So an end to which nothing seems to have come sends something without an effect: a host an RDMA
//! WRITE of nothing, which has the target poll; a target an RDMA READ of nothing, whose answer is
//! what it lacks.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use super::ffi;
use super::sends::Sends;
use super::waits::Waits;

/// After how long a host does so, and a target, which a host of ebof has nudged by then.
//
// Deviation: a responder sends nothing before something has come (RFC 5044, section 7.1.2), because
// until then the initiator may take it for a part of the answer. Soft-iWARP, which this is for, has
// taken the answer long before.
const HOST_PERIOD: Duration = Duration::from_secs(1);
const TARGET_PERIOD: Duration = Duration::from_secs(3);

/// How often, where nothing comes.
const TIMES: u64 = 3;

/// The nudges of a connection to which nothing has come: it is dropped with the first message.
pub(super) struct Nudge {
    /// In the queue pair's [`Waits`], until this is dropped.
    timer: OwnedFd,
    is_host: bool,
    sent: u64,
}

impl Nudge {
    /// The connection is established. `None`: without nudges, it is as good as soft-iWARP is.
    pub(super) fn start(waits: &Waits, is_host: bool) -> Option<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK).ok()?;
        let period = if is_host { HOST_PERIOD } else { TARGET_PERIOD };
        let period = Timespec { tv_sec: period.as_secs().cast_signed(), tv_nsec: 0 };
        let set = Itimerspec { it_interval: period, it_value: period };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &set).ok()?;
        waits.add_timer(&timer).ok()?;
        Some(Self { timer, is_host, sent: 0 })
    }

    /// The timer has expired: posts a nudge if one is due. `None`: there are no more of them.
    pub(super) fn post(mut self, sends: &mut Sends) -> Option<Self> {
        // How often it has expired is of no interest.
        let _ = rustix::io::read(&self.timer, &mut [0; 8]);
        if !is_due(self.is_host, sends.posted(), self.sent) {
            return None;
        }
        // The last entry may be one that the owner counts on.
        if sends.room() > 1 {
            sends.post_nothing(if self.is_host { ffi::WR_RDMA_WRITE } else { ffi::WR_RDMA_READ });
            self.sent += 1;
        }
        Some(self)
    }
}

/// Whether a nudge is due when so much was posted to the send queue, among it so many nudges: a
/// host has sent its first message and nothing since, a target nothing.
fn is_due(is_host: bool, posted: u64, nudges: u64) -> bool {
    nudges < TIMES && posted - nudges == u64::from(is_host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_due_after_its_first_message_and_a_target_before_it() {
        for (is_host, posted, nudges, expected) in [
            (true, 0, 0, false),
            (true, 1, 0, true),
            (true, 3, 2, true),
            (true, 2, 0, false),
            (true, 4, 3, false),
            (false, 0, 0, true),
            (false, 1, 1, true),
            (false, 1, 0, false),
            (false, 3, 3, false),
        ] {
            assert_eq!(is_due(is_host, posted, nudges), expected, "{is_host} {posted} {nudges}");
        }
    }
}
