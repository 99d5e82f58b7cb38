//! A function goes from one port to another, as steps that can be watched and taken back.
//!
//! ```text
//! stopping   no more hosts are admitted; those that there are are told to leave
//! draining   their commands end; what has not ended in time is aborted
//! storing    the drive stores the new port: from here on a new start finds it there
//! binding    the function is shown at the new port, if that still exists; or
//! going back the drive stores the old port, and the function is shown there
//! ```

use std::sync::Arc;
use std::time::Duration;

use ebof_drive::function::{Function, FunctionId};
use ebof_drive::{Placement, PortNames, Request};
use ebof_manage::enclosure::{FunctionName, Phase};
use ebof_nvme::{Nqn, Nsid};

use super::step::{Failed, Step};
use crate::drives::DriveActor;
use crate::shared::mailbox::Message;

/// How long commands of hosts may take to end, if a transaction does not say.
pub(super) const DRAIN: Duration = Duration::from_secs(10);

/// How long aborted commands may take to end.
const ABORT: Duration = Duration::from_secs(10);

/// How often it is looked whether commands have ended.
const LOOK: Duration = Duration::from_millis(1);

/// A function that is being changed.
pub(super) struct Relocation<'c> {
    pub(super) step: &'c Step<'c>,
    pub(super) name: &'c FunctionName,
    pub(super) actor: Arc<DriveActor>,
    /// The NQN of the function's subsystem.
    pub(super) nqn: Nqn,
    /// The NQN of the drive's own subsystem.
    pub(super) drive: Nqn,
}

/// Hosts are kept from its function until this is dropped, however the task ends.
struct Withheld<'r>(&'r Relocation<'r>);

impl Drop for Withheld<'_> {
    fn drop(&mut self) {
        let Self(Relocation { step, drive, nqn, .. }) = self;
        step.drives().show_again(drive, nqn, &**step.shared());
    }
}

impl Relocation<'_> {
    fn id(&self) -> FunctionId {
        FunctionId(self.name.number)
    }

    /// As it is now.
    pub(super) fn function(&self) -> Function {
        self.actor.view().functions.get(&self.name.number).cloned().unwrap_or_default()
    }

    /// Gives the function to `port`, or to none. If that fails, it is where it was before.
    pub(super) fn give_to(&self, port: Option<&str>) -> Result<(), Failed> {
        let before = self.function();
        let ports = PortNames::new(port)
            .map_err(|error| Failed::new(error.to_string(), "choose another port (`ebof target show`)"))?;
        if before.ports == ports && (port.is_none() || before.online) {
            return Ok(());
        }
        self.step.at(Phase::Stopping, 5, None);
        let _withheld = self.withhold();
        let done = self.empty().and_then(|()| self.store(&before, &ports)).and_then(|()| self.bind(port));
        done.map_err(|failed| self.go_back(&before, failed))
    }

    /// Keeps hosts from the function.
    fn withhold(&self) -> Withheld<'_> {
        self.step.drives().withhold(&self.nqn, &**self.step.shared());
        Withheld(self)
    }

    /// Waits until no host has anything of the function any more.
    fn empty(&self) -> Result<(), Failed> {
        // Also where nobody is there any more by now: each step of a task is told.
        self.step.at(Phase::Draining, 20, None);
        if self.drains(Phase::Draining, 20, self.step.drain)? {
            return Ok(());
        }
        let left = self.step.controllers(&self.nqn);
        tracing::warn!(function = %self.name, controllers = left.len(), "commands did not end in time, and are aborted");
        for queue in left.iter().flat_map(|controller| &controller.queues) {
            self.step.shared().post(queue.handle, Message::Cancel { handle: queue.handle, nsid: Nsid::ALL });
        }
        if self.drains(Phase::Aborting, 40, ABORT)? {
            return Ok(());
        }
        let left = self.step.controllers(&self.nqn).len();
        let message = format!("commands of {left} controllers are still at the drive's device");
        Err(Failed::new(message, "look at the device below the drive"))
    }

    /// Whether all commands end within `limit`.
    fn drains(&self, phase: Phase, percent: u8, limit: Duration) -> Result<bool, Failed> {
        let clock = &self.step.shared().settings.environment.clock;
        let end = clock.now() + limit;
        let mut told = usize::MAX;
        loop {
            let left = self.step.controllers(&self.nqn).len();
            if left == 0 {
                return Ok(true);
            }
            if left != told {
                let detail = format!("{left} controller{} to leave", if left == 1 { " has" } else { "s have" });
                self.step.at(phase, percent, Some(detail));
                told = left;
            }
            if clock.now() >= end {
                return Ok(false);
            }
            self.step.check()?;
            clock.sleep(LOOK);
        }
    }

    /// Stores the new port. An offline function that gets one goes online, with the resources of a
    /// function by default if it has none. All of that is one record of the drive.
    fn store(&self, before: &Function, ports: &PortNames) -> Result<(), Failed> {
        self.step.at(Phase::Storing, 60, None);
        let mut to = Placement { ports: ports.clone(), ..Placement::from(before) };
        if !ports.is_empty() && !before.online {
            for resource in [&mut to.queues, &mut to.interrupts].into_iter().filter(|resource| **resource == 0) {
                *resource = Function::RESOURCES_EACH;
            }
            to.online = true;
        }
        self.place(to)
    }

    /// Makes sure that the port is still there.
    fn bind(&self, port: Option<&str>) -> Result<(), Failed> {
        self.step.at(Phase::Binding, 80, None);
        let advice = "choose another port (`ebof target show`)";
        match port {
            Some(port) if self.step.target().port(port).is_none() => {
                Err(Failed::new(format!("port {port} is gone"), advice))
            }
            Some(port) if !self.step.drives().is_free_for(port, &self.nqn) => {
                Err(Failed::new(format!("port {port} cannot have it: it was changed meanwhile"), advice))
            }
            _ => Ok(()),
        }
    }

    fn go_back(&self, before: &Function, mut failed: Failed) -> Failed {
        failed.phase = Some(self.step.phase());
        if self.step.is_undecided.get() {
            return failed;
        }
        self.step.at(Phase::GoingBack, 90, None);
        match self.restore(&Placement::from(before)) {
            Ok(()) => failed.advice.push_str("; the function is what it was before"),
            Err(error) => failed.remains.push(format!("{}: {}", self.name, error.message())),
        }
        failed
    }

    /// Makes the function what it was before.
    pub(super) fn put_back(&self, before: &Placement) -> Result<(), Failed> {
        if Placement::from(&self.function()) == *before {
            return Ok(());
        }
        let _withheld = self.withhold();
        self.empty().and_then(|()| self.restore(before))
    }

    fn restore(&self, before: &Placement) -> Result<(), Failed> {
        if Placement::from(&self.function()) == *before { Ok(()) } else { self.place(before.clone()) }
    }

    fn place(&self, to: Placement) -> Result<(), Failed> {
        self.step.ask(&self.actor, Request::Place(self.id(), to)).map(drop)
    }
}
