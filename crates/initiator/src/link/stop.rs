//! Waiting for an answer of the target, and what can interrupt it.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::connect_error::ConnectErrorKind as Kind;
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
            Self::Lost(loss) | Self::Failed(Error::Lost(loss)) => of_loss(loss),
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

/// Why a connection cannot be used that is lost already.
pub(crate) fn of_loss(loss: Loss) -> Kind {
    match loss {
        Loss::Network(errno) => Kind::Closed { errno: Some(errno) },
        Loss::Protocol(violation) | Loss::HeaderDigest(violation) => {
            Kind::Protocol { violation: violation.to_string() }
        }
        Loss::Terminated(termination) => Kind::Terminated(termination),
        Loss::Rdma(_) | Loss::RdmaEvent(_) | Loss::RdmaCall { .. } => Kind::RdmaFailed { reason: loss.to_string() },
        Loss::Closed | Loss::KeepAlive | Loss::CommandTimeout | Loss::Association | Loss::Requested => {
            Kind::Closed { errno: None }
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

#[cfg(test)]
mod tests {
    use ebof_nvme::Nqn;
    use ebof_verbs::WorkStatus;

    use super::*;
    use crate::error::connect_error::ConnectError;

    #[test]
    fn an_rdma_connection_that_fails_before_it_is_used_names_what_failed() {
        let options = Options::new("127.0.0.1", 4420, Nqn::discovery());
        for (loss, reason) in [
            (Loss::Rdma(WorkStatus::RetryExceeded), "RDMA work failed: the other end does not answer"),
            (Loss::RdmaEvent("the RDMA device was removed"), "the RDMA device was removed"),
            (
                Loss::RdmaCall { call: "ibv_post_send", errno: Errno::NOMEM },
                "ibv_post_send: ENOMEM (Cannot allocate memory)",
            ),
        ] {
            let error = ConnectError::new(of_loss(loss), options.tried(0));
            assert_eq!((error.kind().name(), error.answer().as_str()), ("rdma-failed", reason));
            assert!(error.is_transient());
        }
    }
}
