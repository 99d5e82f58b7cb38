//! One call that blocks over several paths: what it has been through, what follows an attempt that
//! failed, and how long it waits. What is sent, and over which path, is in
//! `initiator/controller/paths/calls.rs`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::calls::PathNamespace;
use super::path::{Path, PathId};
use crate::command::fate::Fate;
use crate::command::retry::Retry;
use crate::command::troubles::Trouble;
use crate::controller::namespace::FailedAttempt;
use crate::error::Error;
use crate::requeue::Outage;
use crate::requeue::recovery::{NextAttempt, Recovery};
use crate::requeue::verdict::{OtherPaths, PathVerdict};
use crate::shared::fence::Fence;

/// How long a longest pause is, while something is waited for that may not be announced.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A call, and what it has been through.
pub(super) struct PathCall<'n> {
    namespace: &'n PathNamespace,
    command: &'static str,
    fate: Fate,
    recovery: Recovery,
    /// Paths over which it failed since the last pause.
    failed: Vec<PathId>,
    /// Since when controllers that are live let it have no queue.
    refused_since: Option<Instant>,
    last: Option<Error>,
}

/// The path of an attempt that failed, among the others.
struct OnPath<'n> {
    namespace: &'n PathNamespace,
    id: PathId,
    fence: Option<Arc<Fence>>,
}

impl OtherPaths for OnPath<'_> {
    fn refuse(&mut self) -> bool {
        self.namespace.refuse(self.id)
    }

    fn may_come_back(&self) -> bool {
        self.namespace.may_come_back(self.id)
    }

    fn fence(&self) -> Option<Arc<Fence>> {
        self.fence.clone()
    }
}

impl<'n> PathCall<'n> {
    pub(super) fn new(namespace: &'n PathNamespace, command: &'static str, fate: Fate) -> Self {
        Self {
            namespace,
            command,
            fate,
            recovery: Recovery::default(),
            failed: Vec::new(),
            refused_since: None,
            last: None,
        }
    }

    /// The command's name in the specification.
    pub(super) fn command(&self) -> &'static str {
        self.command
    }

    /// The paths over which it is not tried before the next pause.
    pub(super) fn failed(&self) -> &[PathId] {
        &self.failed
    }

    fn now(&self) -> Instant {
        self.namespace.options().clock.now()
    }

    /// Waits until another attempt may be made, after one that has failed over `path`. `seen` is
    /// what the bell had said before. Returns whether the command may have been executed.
    ///
    /// # Errors
    /// The call has failed.
    pub(super) fn after(&mut self, path: &Path, failed: FailedAttempt, seen: u64) -> Result<bool, Error> {
        let FailedAttempt { error, fence } = failed;
        if self.recovery.is_to_be_split(&error) {
            return Ok(false);
        }
        let mut others = OnPath { namespace: self.namespace, id: path.id, fence };
        let verdict = PathVerdict::of_error(&error, self.fate, &mut others);
        if !matches!(verdict, PathVerdict::Lost(_)) {
            self.refused_since = None;
        }
        let troubles = &path.controller.shared().troubles;
        match verdict {
            PathVerdict::Failed => Err(error),
            PathVerdict::Elsewhere => {
                troubles.note(Trouble::Repeated);
                Ok(false)
            }
            PathVerdict::Later(status) => {
                let error = Error::Status { command: self.command, status };
                let next = self.recovery.after(&error, self.now(), self.namespace.options());
                let NextAttempt::After(pause) = next else { return Err(error) };
                troubles.note(Trouble::Repeated);
                self.last = Some(error);
                if Retry::from_status(status) == Retry::Path {
                    self.namespace.inner().bell.wait(seen, Some(pause));
                } else {
                    std::thread::sleep(pause);
                }
                Ok(false)
            }
            PathVerdict::Lost(fence) => {
                troubles.note(Trouble::Repeated);
                self.failed.push(path.id);
                let may_be_done = error.is_fate_unknown();
                self.after_loss(error, fence)?;
                Ok(may_be_done)
            }
        }
    }

    fn after_loss(&mut self, error: Error, fence: Option<Arc<Fence>>) -> Result<(), Error> {
        let now = self.now();
        let is_refused = matches!(error, Error::Connect(_));
        let refused_since = self.refused_since.filter(|_| is_refused).unwrap_or(now);
        self.refused_since = is_refused.then_some(refused_since);
        let limit = self.namespace.options().ctrl_loss_tmo;
        if limit.is_some_and(|limit| is_refused && now.saturating_duration_since(refused_since) >= limit) {
            return Err(error);
        }
        self.last = Some(error);
        fence.map_or(Ok(()), |fence| self.wait_for(&fence))
    }

    /// Waits until the lost controller executes nothing any more.
    fn wait_for(&mut self, fence: &Fence) -> Result<(), Error> {
        loop {
            let seen = self.namespace.inner().bell.rung();
            let now = self.now();
            if fence.is_over(now) {
                return Ok(());
            }
            self.check_outage()?;
            let until_end = fence.ends_at().map(|end| end.saturating_duration_since(now));
            let pause = self.recovery.next_loss_pause().min(until_end.unwrap_or(LOOK_INTERVAL));
            self.namespace.inner().bell.wait(seen, Some(pause));
        }
    }

    /// Each path that is there has failed just now.
    pub(super) fn pause(&mut self, seen: u64) {
        self.failed.clear();
        let pause = self.recovery.next_loss_pause();
        self.namespace.inner().bell.wait(seen, Some(pause));
    }

    /// No path has a connection: waits for one.
    pub(super) fn wait_for_path(&mut self, seen: u64) -> Result<(), Error> {
        self.check_outage()?;
        self.pause(seen);
        Ok(())
    }

    /// Whether it is worth waiting for a path.
    fn check_outage(&mut self) -> Result<(), Error> {
        let is_over = match self.namespace.outage() {
            Outage::Refused => false,
            Outage::Lost(since) => {
                let lost_for = self.now().saturating_duration_since(since);
                self.namespace.options().fast_io_fail_tmo.is_some_and(|limit| lost_for >= limit)
            }
            Outage::Dead => true,
        };
        if !is_over {
            return Ok(());
        }
        let not_connected = || self.namespace.subsystem().controller().shared().not_connected();
        Err(self.last.take().unwrap_or_else(not_connected))
    }
}
