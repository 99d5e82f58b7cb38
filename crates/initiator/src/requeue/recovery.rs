//! The retries of a call that waits for one command, or for the parts of one transfer: whether
//! another attempt is made, and when. Which statuses are retried is in `command/retry.rs`.

use std::time::{Duration, Instant};

use crate::command::retry::Retries;
use crate::command::troubles::Trouble;
use crate::error::Error;
use crate::options::Options;
use crate::shared::SharedController;
use crate::wait::Waiter;

/// Pauses after a loss: the first, doubled up to the last where the state is asked for repeatedly.
const LOSS_PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextAttempt {
    /// Another one after this pause.
    After(Duration),
    /// Another one when the controller is live, unless that is after the deadline.
    OnceLive { deadline: Option<Instant> },
    /// None: the call has failed.
    Never,
}

/// What a call has been through.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    retries: Retries,
    /// When it first found no connection.
    failing_since: Option<Instant>,
    /// Its queue cannot be connected: the controller's generation, and since when.
    refused: Option<(u64, Instant)>,
    loss_pause: Option<Duration>,
}

impl Recovery {
    /// Whether the transfer is to be split again at once: the controller's limit has become smaller
    /// with a reconnect.
    pub(crate) fn is_to_be_split(&mut self, error: &Error) -> bool {
        matches!(error, Error::TooLarge { .. }) && self.retries.once_more().is_some()
    }

    /// What follows an attempt that failed with `error` at `now`.
    pub(crate) fn after(&mut self, error: &Error, now: Instant, options: &Options) -> NextAttempt {
        if let Some(pause) = error.status().and_then(|status| self.retries.next(status, now, options.path_loss_tmo)) {
            return NextAttempt::After(pause);
        }
        if !error.is_connection() {
            return NextAttempt::Never;
        }
        let since = *self.failing_since.get_or_insert(now);
        // A limit beyond the end of time is none.
        NextAttempt::OnceLive { deadline: options.fast_io_fail_tmo.and_then(|limit| since.checked_add(limit)) }
    }

    /// The pause before the state is asked for again after a loss: longer each time.
    pub(crate) fn next_loss_pause(&mut self) -> Duration {
        let [first, last] = LOSS_PAUSES;
        *self.loss_pause.insert(self.loss_pause.map_or(first, |pause| (pause * 2).min(last)))
    }

    /// Whether a live controller has let the call have no queue for as long as a lost one would be
    /// waited for. Nobody else gives up then: the controller itself is there.
    fn is_refused_too_long(&mut self, error: &Error, generation: u64, now: Instant, limit: Option<Duration>) -> bool {
        if !matches!(error, Error::Connect(_)) {
            self.refused = None;
            return false;
        }
        let since = match self.refused {
            Some((of, since)) if of == generation => since,
            _ => now,
        };
        self.refused = Some((generation, since));
        limit.is_some_and(|limit| now.saturating_duration_since(since) >= limit)
    }

    /// Waits until the command can be sent again.
    ///
    /// # Errors
    /// `error`, if the call has failed.
    pub(crate) async fn wait(&mut self, error: Error, shared: &SharedController, waiter: &Waiter) -> Result<(), Error> {
        let deadline = match self.after(&error, waiter.time.now(), &shared.options) {
            NextAttempt::After(pause) => {
                shared.troubles.note(Trouble::Repeated);
                waiter.sleep(pause, None).await;
                return Ok(());
            }
            NextAttempt::OnceLive { deadline } => deadline,
            NextAttempt::Never => return Err(error),
        };
        let is_over = deadline.is_some_and(|deadline| waiter.time.now() >= deadline);
        if is_over || !shared.live(waiter, deadline).await {
            return Err(error);
        }
        let now = waiter.time.now();
        if self.is_refused_too_long(&error, shared.generation(), now, shared.options.ctrl_loss_tmo) {
            return Err(error);
        }
        // The background thread may not have noticed the loss yet, and the state still be live.
        waiter.sleep(self.next_loss_pause(), None).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ebof_nvme::{Nqn, Status};

    use super::*;
    use crate::error::Loss;
    use crate::error::connect_error::{ConnectError, ConnectErrorKind};

    fn options(fast_io_fail_tmo: Option<Duration>) -> Options {
        let options = Options::new("127.0.0.1", 4420, Nqn::parse("nqn.2014-08.org.example:a").unwrap());
        Options { fast_io_fail_tmo, ..options }
    }

    #[test]
    fn a_status_is_retried_a_few_times_and_a_loss_until_the_deadline() {
        let options = options(Some(Duration::from_secs(5)));
        let (mut recovery, now) = (Recovery::default(), Instant::now());
        let busy = Error::Status { command: "Read", status: Status::INTERNAL_ERROR };
        for pause_ms in [20, 40, 80, 160, 320] {
            let pause = Duration::from_millis(pause_ms);
            assert_eq!(recovery.after(&busy, now, &options), NextAttempt::After(pause));
        }
        assert_eq!(recovery.after(&busy, now, &options), NextAttempt::Never);
        // Losses do not count among them, and all have the deadline of the first.
        let lost = Error::Lost(Loss::KeepAlive);
        for passed in [0, 4, 60] {
            let at = now + Duration::from_secs(passed);
            let deadline = Some(now + Duration::from_secs(5));
            assert_eq!(recovery.after(&lost, at, &options), NextAttempt::OnceLive { deadline });
        }
        let pauses = std::array::from_fn(|_| recovery.next_loss_pause().as_millis());
        assert_eq!(pauses, [5, 10, 20, 40, 80, 100, 100]);
    }

    #[test]
    fn what_no_connection_changes_has_failed_and_endless_limits_are_none() {
        let now = Instant::now();
        let unaligned = Error::Unaligned { bytes: 1, block_bytes: 512 };
        assert_eq!(Recovery::default().after(&unaligned, now, &options(None)), NextAttempt::Never);
        for limit in [None, Some(Duration::MAX)] {
            let next = Recovery::default().after(&Error::Lost(Loss::KeepAlive), now, &options(limit));
            assert_eq!(next, NextAttempt::OnceLive { deadline: None });
        }
    }

    #[test]
    fn a_queue_that_a_live_controller_refuses_is_awaited_as_long_as_a_lost_controller() {
        let kind = ConnectErrorKind::AuthenticationRequired;
        let refused = Error::from(ConnectError::new(kind, options(None).tried(1)));
        let (mut recovery, began, limit) = (Recovery::default(), Instant::now(), Duration::from_secs(10));
        let mut is_over = |error: &Error, generation, passed_s| {
            let now = began + Duration::from_secs(passed_s);
            recovery.is_refused_too_long(error, generation, now, Some(limit))
        };
        assert_eq!([0, 9, 10].map(|passed_s| is_over(&refused, 1, passed_s)), [false, false, true]);
        // It is another wait after a reconnect, and after a queue that was there and was lost.
        assert_eq!([10, 19, 20].map(|passed_s| is_over(&refused, 3, passed_s)), [false, false, true]);
        assert!(!is_over(&Error::Lost(Loss::Closed), 3, 20) && !is_over(&refused, 3, 21));
        assert!(!recovery.is_refused_too_long(&refused, 3, began + 100 * limit, None), "there is no limit");
    }

    #[test]
    fn a_transfer_is_split_again_a_few_times_only() {
        let mut recovery = Recovery::default();
        assert!(!recovery.is_to_be_split(&Error::Lost(Loss::KeepAlive)));
        let split = std::iter::repeat_with(|| recovery.is_to_be_split(&Error::TooLarge { bytes: 1 }));
        assert_eq!(split.take_while(|&again| again).count(), 5);
    }
}
