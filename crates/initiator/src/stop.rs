//! Waiting for an answer of the target, and what can interrupt it.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::connect_error::ConnectErrorKind as Kind;
use crate::error::{Error, Loss};
use crate::options::Options;
use crate::wait::{Cancel, Waiter, Watch};

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
    /// As the error of a step of connecting by `options`.
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

    /// As the error of a command with time-out `time`.
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

/// Waits until a link has something to receive, or can send.
pub(crate) async fn await_ready(
    watch: Watch<'_>,
    deadline: Instant,
    waiter: &Waiter,
    cancel: Option<&Cancel>,
) -> Result<(), Stop> {
    if waiter.time.now() >= deadline {
        return Err(Stop::TimedOut);
    }
    let waker = cancel.map(Cancel::waker);
    waiter.wait(Some(watch), waker.as_slice(), Some(deadline)).await.map_err(Stop::System)?;
    if cancel.is_some_and(Cancel::is_set) { Err(Stop::Cancelled) } else { Ok(()) }
}
