//! What waits to be sent, again or for the first time: for how long, how often, and when it has
//! failed.
//!
//! Sends nothing, and knows no queue and no controller: who sends asks a [`Requeue`] for the next
//! command, and tells it what became of the last one. So one may serve several queues, whichever
//! controllers they belong to. Which statuses are retried is in `command/retry.rs`; the retries of
//! calls that wait for one command are in `requeue/recovery.rs`.

pub(crate) mod recovery;
pub(crate) mod verdict;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_clock::Clock;
use ebof_nvme::Status;

use crate::command::retry::Retries;
use crate::error::state::State;
use crate::options::Options;
use crate::shared::fence::Fence;
use verdict::PathVerdict;

/// Interval of checks while commands wait: for a reconnect, and for those that are delayed.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A command that can wait in a [`Requeue`].
pub trait Requeued {
    /// How often it was retried because of its status.
    fn retries(&mut self) -> &mut Retries;
}

/// Commands that wait to be sent: for a connection, for room in a queue, for the end of a pause
/// after a status that is retried, or for a path.
///
/// It has no maximum: whoever submits limits how many commands there are.
pub struct Requeue<C> {
    clock: Clock,
    /// How long commands wait for a connection; `None`: until the controller is given up.
    fast_io_fail: Option<Duration>,
    /// How long a command waits for a path; `None`: for ever.
    path_loss: Option<Duration>,
    /// To be sent as soon as there is a connection, in order.
    waiting: VecDeque<C>,
    /// To be sent again at a time, in the order of their completions.
    delayed: Vec<Delayed<C>>,
    /// To be sent again once the controller that had them executes them no more.
    held: Vec<(Arc<Fence>, C)>,
    lost_since: Option<Instant>,
    /// The changes of paths for which commands were tried again.
    path_changes: u64,
}

struct Delayed<C> {
    due: Instant,
    command: C,
    /// It waits for a connection, without a limit of its own.
    is_parked: bool,
}

/// Why no path takes commands to a namespace, while paths to others may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// One that is connected refuses them, or its queue is on its way.
    Refused,
    /// All that lead there are lost, the last of them since then.
    Lost(Instant),
    /// All that lead there were given up.
    Dead,
}

impl<C: Requeued> Requeue<C> {
    /// With the limits and the clock of `options`. `path_changes` is what
    /// [`Controller::path_changes`](crate::Controller::path_changes) says now.
    #[must_use]
    pub fn new(options: &Options, path_changes: u64) -> Self {
        Self {
            clock: options.clock.clone(),
            fast_io_fail: options.fast_io_fail_tmo,
            path_loss: options.path_loss_tmo,
            waiting: VecDeque::new(),
            delayed: Vec::new(),
            held: Vec::new(),
            lost_since: None,
            path_changes,
        }
    }

    /// How many commands wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len() + self.delayed.len() + self.held.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.delayed.is_empty() && self.held.is_empty()
    }

    /// Whether a new command has to wait behind others: those that are delayed do not count.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The command is sent after all others that wait.
    pub fn push(&mut self, command: C) {
        self.waiting.push_back(command);
    }

    /// The command that [`Requeue::pop`] gave, or a new one, could not be sent: it is the next.
    pub fn put_back(&mut self, command: C) {
        self.waiting.push_front(command);
    }

    /// The command is sent again after a pause, if `status`, with which it has completed, is one
    /// that is retried, and not too often.
    ///
    /// # Errors
    /// The command, which has failed.
    pub fn delay(&mut self, mut command: C, status: Status) -> Result<(), C> {
        let now = self.clock.now();
        match command.retries().next(status, now, self.path_loss) {
            Some(pause) => {
                self.delayed.push(Delayed { due: now + pause, command, is_parked: false });
                Ok(())
            }
            None => Err(command),
        }
    }

    /// The command came back, and waits as `verdict` says.
    ///
    /// # Errors
    /// The command, which has failed.
    pub fn keep(&mut self, command: C, verdict: PathVerdict) -> Result<(), C> {
        match verdict {
            PathVerdict::Elsewhere => self.push(command),
            PathVerdict::Later(status) => return self.delay(command, status),
            PathVerdict::Lost(fence) => {
                self.note_loss();
                match fence {
                    None => self.push(command),
                    Some(fence) => self.hold(command, fence),
                }
            }
            PathVerdict::Failed => return Err(command),
        }
        Ok(())
    }

    /// As [`Requeue::keep`], for a command that was not sent: it keeps its turn.
    ///
    /// # Errors
    /// The command, which has failed.
    pub fn keep_unsent(&mut self, command: C, verdict: PathVerdict) -> Result<(), C> {
        match verdict {
            PathVerdict::Elsewhere => self.put_back(command),
            PathVerdict::Lost(_) => {
                self.note_loss();
                self.put_back(command);
            }
            PathVerdict::Later(_) | PathVerdict::Failed => return self.keep(command, verdict),
        }
        Ok(())
    }

    /// No path takes the command, because of `outage`. It waits apart, so that those to other
    /// namespaces go on: for a path that is connected as long as its status says, for one that is
    /// lost for `fast_io_fail_tmo`.
    ///
    /// # Errors
    /// The command, which has failed.
    pub fn park(&mut self, command: C, outage: Outage) -> Result<(), C> {
        let now = self.clock.now();
        let is_over = match outage {
            Outage::Refused => return self.delay(command, Status::ANA_INACCESSIBLE),
            Outage::Lost(since) => {
                let lost_for = now.saturating_duration_since(since);
                self.fast_io_fail.is_some_and(|limit| lost_for >= limit)
            }
            Outage::Dead => true,
        };
        if is_over {
            return Err(command);
        }
        self.delayed.push(Delayed { due: now + CHECK_INTERVAL, command, is_parked: true });
        Ok(())
    }

    /// The command was lost on its way, and is sent again when `fence` is over
    /// ([`Lanes::judge`](crate::Lanes::judge)).
    pub fn hold(&mut self, command: C, fence: Arc<Fence>) {
        if fence.is_over(self.clock.now()) {
            return self.push(command);
        }
        self.held.push((fence, command));
    }

    /// The commands whose pause is over wait for their turn, and those that wait for a path if
    /// `path_changes` says that one has changed.
    pub fn end_pauses(&mut self, path_changes: impl FnOnce() -> u64) {
        if self.delayed.is_empty() && self.held.is_empty() {
            return;
        }
        let now = self.clock.now();
        self.waiting.extend(self.held.extract_if(.., |(fence, _)| fence.is_over(now)).map(|(_, command)| command));
        let path_changes = path_changes();
        let path_changed = std::mem::replace(&mut self.path_changes, path_changes) != path_changes;
        let is_over = |delayed: &mut Delayed<C>| {
            let waits_for_path = delayed.is_parked || delayed.command.retries().is_on_path();
            delayed.due <= now || path_changed && waits_for_path
        };
        self.waiting.extend(self.delayed.extract_if(.., is_over).map(|delayed| delayed.command));
    }

    /// The next command to send. It is sent, or comes back by [`Requeue::put_back`].
    pub fn pop(&mut self) -> Option<C> {
        self.waiting.pop_front()
    }

    /// All commands: they have failed.
    pub fn take_all(&mut self) -> impl Iterator<Item = C> + use<C> {
        let delayed = std::mem::take(&mut self.delayed).into_iter().map(|delayed| delayed.command);
        let held = std::mem::take(&mut self.held).into_iter().map(|(_, command)| command);
        std::mem::take(&mut self.waiting).into_iter().chain(delayed).chain(held)
    }

    /// There is no connection. Only the first time counts, until [`Requeue::is_given_up`] finds
    /// one.
    pub fn note_loss(&mut self) {
        self.lost_since.get_or_insert_with(|| self.clock.now());
    }

    /// Whether there was no connection when it was last asked for.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost_since.is_some()
    }

    /// Whether commands fail at once: the controller is gone, or was lost for `fast_io_fail_tmo`.
    /// `state` is the controller's; if it is live, the loss is over.
    pub fn is_given_up(&mut self, state: impl FnOnce() -> State) -> bool {
        let Some(since) = self.lost_since else { return false };
        match state() {
            State::Live => {
                self.lost_since = None;
                false
            }
            State::Reconnecting => {
                let lost_for = self.clock.now().saturating_duration_since(since);
                self.fast_io_fail.is_some_and(|limit| lost_for >= limit)
            }
            State::Disconnected | State::Dead => true,
        }
    }

    /// When to look again, at the latest; `None` if nothing waits.
    #[must_use]
    pub fn check_after(&self) -> Option<Duration> {
        (!self.is_empty()).then_some(CHECK_INTERVAL)
    }
}

impl<C> std::fmt::Debug for Requeue<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requeue")
            .field("waiting", &self.waiting.len())
            .field("delayed", &self.delayed.len())
            .field("held", &self.held.len())
            .field("lost_since", &self.lost_since)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use ebof_nvme::Nqn;

    use super::*;

    #[derive(Debug)]
    struct Numbered {
        number: u32,
        retries: Retries,
    }

    impl Requeued for Numbered {
        fn retries(&mut self) -> &mut Retries {
            &mut self.retries
        }
    }

    fn numbered(number: u32) -> Numbered {
        Numbered { number, retries: Retries::default() }
    }

    fn requeue(fast_io_fail: Option<u64>) -> (Clock, Requeue<Numbered>) {
        let mut options = Options::new("127.0.0.1", 4420, Nqn::parse("nqn.2014-08.org.example:a").unwrap());
        options.clock = Clock::simulated(1);
        options.fast_io_fail_tmo = fast_io_fail.map(Duration::from_secs);
        options.path_loss_tmo = Some(Duration::from_secs(2));
        (options.clock.clone(), Requeue::new(&options, 7))
    }

    fn next(requeue: &mut Requeue<Numbered>) -> Option<u32> {
        requeue.pop().map(|command| command.number)
    }

    #[test]
    fn commands_are_sent_in_their_order_and_one_without_room_is_the_next() {
        let (_, mut requeue) = requeue(None);
        assert_eq!((requeue.is_empty(), requeue.check_after()), (true, None));
        (1..=3).for_each(|number| requeue.push(numbered(number)));
        let first = requeue.pop().unwrap();
        assert_eq!((first.number, requeue.len()), (1, 2));
        requeue.put_back(first);
        assert!(requeue.has_waiting() && requeue.check_after() == Some(CHECK_INTERVAL));
        assert_eq!([next(&mut requeue), next(&mut requeue), next(&mut requeue)], [Some(1), Some(2), Some(3)]);
        assert!(requeue.is_empty() && next(&mut requeue).is_none());
    }

    #[test]
    fn a_command_is_delayed_longer_each_time_and_fails_after_a_few_times() {
        let (clock, mut requeue) = requeue(None);
        let mut command = numbered(1);
        for pause_ms in [20, 40, 80, 160, 320] {
            requeue.delay(command, Status::INTERNAL_ERROR).unwrap();
            assert_eq!((requeue.len(), requeue.has_waiting()), (1, false), "new ones need not wait for it");
            clock.advance(Duration::from_millis(pause_ms - 1));
            requeue.end_pauses(|| 7);
            assert!(next(&mut requeue).is_none());
            clock.advance(Duration::from_millis(1));
            requeue.end_pauses(|| 8);
            command = requeue.pop().expect("the pause is over");
        }
        let failed = requeue.delay(command, Status::INTERNAL_ERROR).unwrap_err();
        assert_eq!((failed.number, requeue.len()), (1, 0));
        assert!(requeue.delay(numbered(2), Status::INVALID_FIELD).is_err(), "it would be the same again");
    }

    // @test paths.late-writes
    #[test]
    fn what_was_lost_is_held_until_its_controller_executes_it_no_more() {
        let (clock, mut requeue) = requeue(None);
        let fences = [2, 3].map(|seconds| Arc::new(Fence::new(Duration::from_secs(seconds))));
        fences.iter().for_each(|fence| fence.lose(clock.now()));
        requeue.hold(numbered(1), Arc::clone(&fences[0]));
        requeue.hold(numbered(2), Arc::clone(&fences[1]));
        requeue.push(numbered(3));
        assert_eq!((requeue.len(), requeue.check_after()), (3, Some(CHECK_INTERVAL)));
        requeue.end_pauses(|| 8);
        assert_eq!([next(&mut requeue), next(&mut requeue)], [Some(3), None], "others need not wait for it");
        // It was reset through another path.
        fences[1].lift();
        requeue.end_pauses(|| 8);
        assert_eq!([next(&mut requeue), next(&mut requeue)], [Some(2), None]);
        clock.advance(Duration::from_secs(2));
        requeue.end_pauses(|| 8);
        assert_eq!([next(&mut requeue), next(&mut requeue)], [Some(1), None]);
        requeue.hold(numbered(4), Arc::clone(&fences[0]));
        assert_eq!(next(&mut requeue), Some(4), "that time is over");
        requeue.hold(numbered(5), Arc::default());
        assert_eq!(requeue.take_all().map(|command| command.number).collect::<Vec<_>>(), [5]);
    }

    #[test]
    fn a_change_of_paths_ends_the_pauses_of_those_that_wait_for_one() {
        let (clock, mut requeue) = requeue(None);
        requeue.delay(numbered(1), Status::INTERNAL_ERROR).unwrap();
        requeue.delay(numbered(2), Status::ANA_INACCESSIBLE).unwrap();
        requeue.end_pauses(|| 7);
        assert!(!requeue.has_waiting(), "nothing has changed since it was made");
        requeue.end_pauses(|| 8);
        assert_eq!((next(&mut requeue), next(&mut requeue)), (Some(2), None));
        clock.advance(Duration::from_millis(20));
        requeue.end_pauses(|| 8);
        assert_eq!(next(&mut requeue), Some(1));
        // For as long as `path_loss_tmo` says.
        let mut patient = numbered(3);
        for _ in 0..8 {
            requeue.delay(patient, Status::ANA_TRANSITION).unwrap();
            clock.advance(Duration::from_millis(250));
            requeue.end_pauses(|| 8);
            patient = requeue.pop().unwrap();
        }
        assert!(requeue.delay(patient, Status::ANA_TRANSITION).is_err());
    }

    #[test]
    fn commands_wait_for_a_connection_as_long_as_the_options_allow() {
        let (clock, mut requeue) = requeue(Some(5));
        assert!(!requeue.is_given_up(|| unreachable!("nobody has found it lost")));
        requeue.push(numbered(1));
        requeue.delay(numbered(2), Status::INTERNAL_ERROR).unwrap();
        requeue.note_loss();
        clock.advance(Duration::from_millis(4_999));
        requeue.note_loss();
        assert!(!requeue.is_given_up(|| State::Reconnecting) && requeue.is_lost());
        clock.advance(Duration::from_millis(1));
        assert!(requeue.is_given_up(|| State::Reconnecting), "the first loss counts");
        assert!(!requeue.is_given_up(|| State::Live) && !requeue.is_lost());
        requeue.note_loss();
        assert!(!requeue.is_given_up(|| State::Reconnecting), "this is another loss");
        assert!(requeue.is_given_up(|| State::Dead) && requeue.is_given_up(|| State::Disconnected));
        assert_eq!(requeue.take_all().map(|command| command.number).collect::<Vec<_>>(), [1, 2]);
        assert!(requeue.is_empty());
    }

    // @test paths.fast-io-fail
    #[test]
    fn a_namespace_whose_paths_are_lost_is_waited_for_apart_from_others() {
        let (clock, mut requeue) = requeue(Some(5));
        let lost = Outage::Lost(clock.now());
        requeue.park(numbered(1), lost).unwrap();
        assert!(!requeue.has_waiting() && !requeue.is_lost(), "others need not wait for it");
        requeue.end_pauses(|| 8);
        assert_eq!(next(&mut requeue), Some(1), "a path has changed");
        // Longer than `path_loss_tmo`: nothing is said of the access.
        for _ in 0..49 {
            requeue.park(numbered(1), lost).unwrap();
            clock.advance(CHECK_INTERVAL);
            requeue.end_pauses(|| 8);
            assert_eq!(next(&mut requeue), Some(1));
        }
        requeue.park(numbered(1), lost).unwrap();
        clock.advance(CHECK_INTERVAL);
        let failed = requeue.park(numbered(2), lost).unwrap_err();
        assert_eq!((failed.number, requeue.len()), (2, 1), "also what comes later, at once");
        assert!(requeue.park(numbered(3), Outage::Dead).is_err());
        requeue.park(numbered(4), Outage::Refused).unwrap();
        assert_eq!(requeue.take_all().map(|command| command.number).collect::<Vec<_>>(), [1, 4]);
    }

    #[test]
    fn commands_wait_as_the_verdict_says() {
        let (clock, mut requeue) = requeue(None);
        requeue.push(numbered(1));
        requeue.keep(numbered(2), PathVerdict::Elsewhere).unwrap();
        requeue.keep_unsent(numbered(3), PathVerdict::Elsewhere).unwrap();
        assert!(!requeue.is_lost());
        let fence = Arc::new(Fence::new(Duration::from_secs(1)));
        fence.lose(clock.now());
        requeue.keep(numbered(4), PathVerdict::Lost(Some(fence))).unwrap();
        requeue.keep(numbered(5), PathVerdict::Later(Status::INTERNAL_ERROR)).unwrap();
        requeue.keep_unsent(numbered(6), PathVerdict::Lost(None)).unwrap();
        assert!(requeue.is_lost() && requeue.keep(numbered(7), PathVerdict::Failed).is_err());
        let sent = |requeue: &mut Requeue<Numbered>| std::iter::from_fn(|| next(requeue)).collect::<Vec<_>>();
        assert_eq!(sent(&mut requeue), [6, 3, 1, 2], "one that was not sent keeps its turn");
        clock.advance(Duration::from_secs(1));
        requeue.end_pauses(|| 7);
        assert_eq!(sent(&mut requeue), [4, 5]);
    }

    #[test]
    fn without_a_limit_commands_wait_until_the_controller_is_given_up() {
        let (clock, mut requeue) = requeue(None);
        requeue.note_loss();
        clock.advance(Duration::from_secs(1_000_000));
        assert!(!requeue.is_given_up(|| State::Reconnecting));
        assert!(requeue.is_given_up(|| State::Dead));
    }
}
