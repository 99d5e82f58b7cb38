//! Waiting for the answer of a target, and what ends it otherwise.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::connect_error::ConnectErrorKind as Kind;
use crate::error::{Error, Loss};
use crate::options::Options;
use crate::wait::{Cancel, wait};

/// Why waiting for an answer ended without one.
#[derive(Debug)]
pub(crate) enum Stop {
    TimedOut,
    Cancelled,
    Lost(Loss),
    Failed(Error),
    System(Errno),
}

impl Stop {
    /// As the failure of a step of connecting by `options`.
    pub(crate) fn into_kind(self, options: &Options) -> Kind {
        match self {
            Self::Cancelled => Kind::Cancelled,
            Self::TimedOut => Kind::TimedOut { after_ms: u64::from(options.connect_timeout_ms) },
            Self::System(errno) => Kind::System { action: "waiting for an answer", errno },
            Self::Lost(Loss::Network(errno)) => Kind::Closed { errno: Some(errno) },
            Self::Lost(Loss::Protocol(violation)) => Kind::Protocol { violation: violation.to_string() },
            Self::Lost(Loss::Terminated(termination)) => Kind::Terminated(termination),
            Self::Lost(_) => Kind::Closed { errno: None },
            Self::Failed(Error::Lost(loss)) => Self::Lost(loss).into_kind(options),
            Self::Failed(error) => Kind::Protocol { violation: error.to_string() },
        }
    }

    /// As the failure of a command that had `time`.
    pub(crate) fn into_error(self, time: Duration) -> Error {
        match self {
            Self::TimedOut => Error::Timeout { after_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX) },
            Self::Cancelled => Error::Lost(Loss::Requested),
            Self::Lost(loss) => Error::Lost(loss),
            Self::Failed(error) => error,
            Self::System(errno) => Error::System { action: "waiting for an answer", errno },
        }
    }
}

/// Sleeps until `descriptor` is readable, or writable where that is `blocked`.
pub(crate) fn await_ready(
    descriptor: BorrowedFd<'_>,
    blocked: bool,
    deadline: Instant,
    cancel: &Cancel,
) -> Result<(), Stop> {
    let Some(rest) = deadline.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) else {
        return Err(Stop::TimedOut);
    };
    let interest = if blocked { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut fds = [PollFd::new(&descriptor, interest), PollFd::new(cancel, PollFlags::IN)];
    wait(&mut fds, Some(rest)).map_err(Stop::System)?;
    if cancel.is_set() { Err(Stop::Cancelled) } else { Ok(()) }
}
