//! A function goes from some ports to others, as steps that can be watched and taken back.
//!
//! ```text
//! stopping   no more hosts are admitted; those that there are are told to leave
//! draining   their commands end; what has not ended in time is aborted
//! storing    the drive stores the new ports: from here on a new start finds it there
//! binding    the function is shown at the new ports, if they still exist; or
//! going back the drive stores the old ports, and the function is shown there
//! ```
//!
//! Where the function keeps a port, only the hosts at the others leave: they are told that its
//! namespaces are inaccessible there, and take another path, before their connections are closed.
//! From one fabric port to another one it is the same if some of its hosts would learn of the new
//! port (they have a discovery controller): it is at both until they have come.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_drive::function::{Function, FunctionId};
use ebof_drive::{Placement, PortNames, Request};
use ebof_fabrics::{ControllerInfo, Counts, PortId};
use ebof_manage::enclosure::{FunctionName, Phase};
use ebof_nvme::{Nqn, Nsid};

use super::step::{Failed, Step};
use crate::drives::{DriveActor, Withheld};
use crate::shared::mailbox::Message;

/// How long commands of hosts may take to end, if a transaction does not say.
pub(super) const DRAIN: Duration = Duration::from_secs(10);

/// How long aborted commands may take to end.
const ABORT: Duration = Duration::from_secs(10);

/// How long hosts that have a discovery controller may take to come to a new port.
const JOIN: Duration = Duration::from_secs(5);

/// How long hosts may take to use another path, once they are told that one is inaccessible.
const LEAVE: Duration = Duration::from_secs(1);

/// For how long a path has had no command if its host uses another one.
const UNUSED: Duration = Duration::from_millis(50);

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
struct ShownAgain<'r>(&'r Relocation<'r>);

impl Drop for ShownAgain<'_> {
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

    /// Gives the function to these ports, or to none. If that fails, it is where it was before.
    pub(super) fn give_to(&self, ports: &BTreeSet<String>) -> Result<(), Failed> {
        let before = self.function();
        let ports = PortNames::new(ports)
            .map_err(|error| Failed::new(error.to_string(), "choose other ports (`ebof target show`)"))?;
        if before.ports == ports && (ports.is_empty() || before.online) {
            return Ok(());
        }
        self.step.at(Phase::Stopping, 5, None);
        if before.online && (before.ports.overlaps(&ports) || self.is_followed(&before.ports, &ports)) {
            return self.shift_to(&before, &ports);
        }
        let _shown_again = ShownAgain(self);
        self.withhold(Withheld::All);
        let done = self.empty(None).and_then(|()| self.store(&before, &ports)).and_then(|()| self.bind(&ports));
        done.map_err(|failed| self.go_back(&before, failed))
    }

    /// Gives an online function to these ports, where only those leave who are at none of them.
    fn shift_to(&self, before: &Function, ports: &PortNames) -> Result<(), Failed> {
        let drives = self.step.drives();
        let left = drives.port_ids(before.ports.iter().filter(|port| !ports.contains(port)));
        let is_new = |port: &&str| !before.ports.contains(port) && self.is_fabric(port);
        let joined = drives.port_ids(ports.iter().filter(is_new));
        let _shown_again = (!left.is_empty()).then(|| ShownAgain(self));
        let left_them = if left.is_empty() { Ok(()) } else { self.leave(&left, &joined) };
        let done = left_them.and_then(|()| {
            self.step.at(Phase::Storing, 60, None);
            self.step.ask(&self.actor, Request::Shift(self.id(), ports.clone())).map(drop)
        });
        done.and_then(|()| self.bind(ports)).map_err(|failed| self.go_back(before, failed))
    }

    /// Has hosts leave some ports for others, of which it is at `joined` from now on.
    fn leave(&self, left: &BTreeSet<PortId>, joined: &BTreeSet<PortId>) -> Result<(), Failed> {
        let none = BTreeSet::new;
        if !joined.is_empty() {
            self.withhold(ports_but(joined, none(), none()));
            self.step.tell("hosts that are told of the new port may come to it".to_owned());
            self.await_followers(left)?;
        }
        self.withhold(ports_but(joined, left.clone(), none()));
        self.step.tell("hosts take another path".to_owned());
        self.let_go(left)?;
        self.withhold(ports_but(joined, none(), left.clone()));
        self.empty(Some(left))
    }

    fn is_fabric(&self, port: &str) -> bool {
        self.step.target().port(port).is_some_and(|port| port.config.listen.is_network())
    }

    /// Whether the function goes from fabric ports to others that some of its hosts would learn of.
    fn is_followed(&self, from: &PortNames, to: &PortNames) -> bool {
        let all = from.iter().chain(to.iter()).all(|port| self.is_fabric(port));
        all && !to.is_empty() && !from.is_empty() && !self.followers().is_empty()
    }

    /// The hosts of the function that have a discovery controller: it tells them of new ports.
    fn followers(&self) -> BTreeSet<Nqn> {
        let registry = self.step.shared().registry();
        let discovering = registry.controllers().filter(|controller| controller.discovery);
        let discovering: BTreeSet<Nqn> = discovering.map(|controller| controller.host).collect();
        drop(registry);
        let own = self.step.controllers(&self.nqn).into_iter().map(|controller| controller.host);
        own.filter(|host| discovering.contains(host)).collect()
    }

    /// Waits until hosts that would learn of new ports are at a port that is not left.
    fn await_followers(&self, left: &BTreeSet<PortId>) -> Result<(), Failed> {
        let followers = self.followers();
        self.wait(JOIN.min(self.step.drain), || {
            let have_paths = self.hosts_but_at(left);
            followers.iter().all(|host| have_paths.contains(host))
        })
    }

    /// Waits until hosts with another path use it instead of those that are inaccessible now.
    fn let_go(&self, left: &BTreeSet<PortId>) -> Result<(), Failed> {
        let have_paths = self.hosts_but_at(left);
        let clock = &self.step.shared().settings.environment.clock;
        let (mut last, mut since): (_, Instant) = (self.commands_at(left, &have_paths), clock.now());
        if last.is_none() {
            return Ok(());
        }
        self.wait(LEAVE, || {
            let now = self.commands_at(left, &have_paths);
            if now != last {
                (last, since) = (now, clock.now());
            }
            clock.now() >= since + UNUSED
        })
    }

    /// The hosts that have I/O queues at ports beside these.
    fn hosts_but_at(&self, left: &BTreeSet<PortId>) -> BTreeSet<Nqn> {
        let others = self.step.controllers(&self.nqn).into_iter();
        let others = others.filter(|controller| !left.contains(&controller.port) && controller.queues.len() > 1);
        others.map(|controller| controller.host).collect()
    }

    /// The I/O commands that these hosts have sent to these ports; `None` if none of them is there.
    fn commands_at(&self, ports: &BTreeSet<PortId>, hosts: &BTreeSet<Nqn>) -> Option<u64> {
        let theirs = self.step.controllers(&self.nqn).into_iter();
        let theirs = theirs.filter(|controller| ports.contains(&controller.port) && hosts.contains(&controller.host));
        let of_one = |controller: ControllerInfo| {
            let io = controller.queues.iter().filter(|queue| !queue.id.is_admin());
            let commands = |counts: &Counts| counts.read_commands + counts.write_commands + counts.other_commands;
            io.map(|queue| commands(&queue.counts)).sum::<u64>()
        };
        theirs.map(of_one).reduce(|one, other| one + other)
    }

    /// Waits until something is so, but not for longer than `limit`.
    fn wait(&self, limit: Duration, mut is_so: impl FnMut() -> bool) -> Result<(), Failed> {
        let clock = &self.step.shared().settings.environment.clock;
        let end = clock.now() + limit;
        while !is_so() && clock.now() < end {
            self.step.check()?;
            clock.sleep(LOOK);
        }
        Ok(())
    }

    /// Keeps hosts from the function, until a [`ShownAgain`] is dropped.
    fn withhold(&self, what: Withheld) {
        self.step.drives().withhold(&self.nqn, what, &**self.step.shared());
    }

    /// The controllers that hosts have of it, at these ports or at all.
    fn controllers(&self, at: Option<&BTreeSet<PortId>>) -> Vec<ControllerInfo> {
        let mut all = self.step.controllers(&self.nqn);
        all.retain(|controller| at.is_none_or(|ports| ports.contains(&controller.port)));
        all
    }

    /// Waits until no host has anything of the function any more, at these ports or at all.
    fn empty(&self, at: Option<&BTreeSet<PortId>>) -> Result<(), Failed> {
        // Also where nobody is there any more by now: each step of a task is told.
        self.step.at(Phase::Draining, 20, None);
        if self.drains(at, Phase::Draining, 20, self.step.drain)? {
            return Ok(());
        }
        let left = self.controllers(at);
        tracing::warn!(function = %self.name, controllers = left.len(), "commands did not end in time, and are aborted");
        for queue in left.iter().flat_map(|controller| &controller.queues) {
            self.step.shared().post(queue.handle, Message::Cancel { handle: queue.handle, nsid: Nsid::ALL });
        }
        if self.drains(at, Phase::Aborting, 40, ABORT)? {
            return Ok(());
        }
        let left = self.controllers(at).len();
        let message = format!("commands of {left} controllers are still at the drive's device");
        Err(Failed::new(message, "look at the device below the drive"))
    }

    /// Whether all commands end within `limit`.
    fn drains(
        &self,
        at: Option<&BTreeSet<PortId>>,
        phase: Phase,
        percent: u8,
        limit: Duration,
    ) -> Result<bool, Failed> {
        let clock = &self.step.shared().settings.environment.clock;
        let end = clock.now() + limit;
        let mut told = usize::MAX;
        loop {
            let left = self.controllers(at).len();
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

    /// Stores the new ports. An offline function that gets one goes online, with the resources of a
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

    /// Makes sure that the ports are still there.
    fn bind(&self, ports: &PortNames) -> Result<(), Failed> {
        self.step.at(Phase::Binding, 80, None);
        let advice = "choose another port (`ebof target show`)";
        for port in ports.iter() {
            if self.step.target().port(port).is_none() {
                return Err(Failed::new(format!("port {port} is gone"), advice));
            }
            if !self.step.drives().is_free_for(port, &self.nqn) {
                return Err(Failed::new(format!("port {port} cannot have it: it was changed meanwhile"), advice));
            }
        }
        Ok(())
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
        let now = self.function();
        if now.online && before.online && now.ports.overlaps(&before.ports) {
            return self.shift_back(&now.ports, before);
        }
        let _shown_again = ShownAgain(self);
        self.withhold(Withheld::All);
        self.empty(None).and_then(|()| self.restore(before))
    }

    fn restore(&self, before: &Placement) -> Result<(), Failed> {
        if Placement::from(&self.function()) == *before { Ok(()) } else { self.place(before.clone()) }
    }

    /// The same, where hosts at ports that it has before and after lose nothing.
    fn shift_back(&self, now: &PortNames, before: &Placement) -> Result<(), Failed> {
        let left = self.step.drives().port_ids(now.iter().filter(|port| !before.ports.contains(port)));
        let _shown_again = ShownAgain(self);
        self.withhold(ports_but(&BTreeSet::new(), BTreeSet::new(), left.clone()));
        self.empty(Some(&left)).and_then(|()| self.restore(before))
    }

    /// One record of the drive. Where only ports are other ones, and one stays, nothing is lost.
    fn place(&self, to: Placement) -> Result<(), Failed> {
        let now = Placement::from(&self.function());
        let is_shift = now.online && now.ports.overlaps(&to.ports);
        let is_shift = is_shift && Placement { ports: to.ports.clone(), ..now } == to;
        let request = if is_shift { Request::Shift(self.id(), to.ports) } else { Request::Place(self.id(), to) };
        self.step.ask(&self.actor, request).map(drop)
    }
}

fn ports_but(joined: &BTreeSet<PortId>, leaving: BTreeSet<PortId>, left: BTreeSet<PortId>) -> Withheld {
    Withheld::Ports { joined: joined.clone(), leaving, left }
}
