//! Where a task is in a transaction: what it tells, the target that it changes, and what it asks of
//! drives. What each change does is in the files beside.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ebof_drive::{Answer, FunctionId, Request};
use ebof_fabrics::ControllerInfo;
use ebof_manage::api::{ApplyError, Asker, Cause};
use ebof_manage::enclosure::{FunctionName, Phase};
use ebof_nvme::Nqn;

use super::Running;
use super::ask::{AGAIN, BEGIN, FORGET, ask, ask_looking};
use super::namespaces::Created;
use super::relocate::Relocation;
use crate::drives::{DriveActor, Drives};
use crate::life::serve::Target;
use crate::shared::Shared;

/// Where a task is.
pub(super) struct Step<'c> {
    pub(super) running: &'c Running,
    pub(super) id: u64,
    pub(super) by: &'c Asker,
    pub(super) change: usize,
    pub(super) changes: usize,
    /// How long commands of hosts may take to end.
    pub(super) drain: Duration,
    pub(super) phase: Cell<Phase>,
    pub(super) percent: Cell<u8>,
    /// The target is stopping while a drive is at something: nobody knows whether that is made, and
    /// the next start decides.
    pub(super) is_undecided: &'c Cell<bool>,
    /// The drives that the transaction adds: they do not remember it.
    pub(super) added: Vec<&'c str>,
    /// The name by which the other drives remember the transaction, if they do.
    pub(super) transaction: Option<&'c str>,
    /// The namespaces that were created so far.
    pub(super) created: &'c RefCell<Vec<Created>>,
}

/// Why a change was not made.
pub(super) struct Failed {
    pub(super) message: String,
    pub(super) advice: String,
    /// Where it failed; `None` is where the task is.
    pub(super) phase: Option<Phase>,
    /// What could not be taken back.
    pub(super) remains: Vec<String>,
}

impl Step<'_> {
    /// Notes how far the change is: so many of a hundred.
    pub(super) fn at(&self, phase: Phase, percent: u8, detail: Option<String>) {
        self.phase.set(phase);
        self.percent.set(percent);
        let overall = (self.change * 100 + usize::from(percent)) / self.changes.max(1);
        let overall = u8::try_from(overall.min(99)).unwrap_or(99);
        self.running.tasks.advance(self.id, self.change, phase, overall, detail);
        self.running.observe(self.id);
    }

    /// Notes what is to be known beside that.
    pub(super) fn tell(&self, detail: String) {
        self.at(self.phase.get(), self.percent.get(), Some(detail));
    }

    /// Notes the name of what was made.
    pub(super) fn add_made(&self, name: String) {
        self.running.tasks.add_made(self.id, name);
    }

    /// Notes what is to be known about what was done.
    pub(super) fn remark(&self, remark: &str) {
        self.running.tasks.remark(self.id, remark);
    }

    /// The bytes of a firmware image that was handed over.
    pub(super) fn image(&self, id: &str) -> Option<Arc<[u8]>> {
        self.running.images.find(id)
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Why the configuration changes, if it does.
    pub(super) fn cause(&self) -> Cause {
        Cause::new(self.by.clone(), format!("task {}", self.id))
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    pub(super) fn target(&self) -> &Target {
        &self.running.target
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.running.target.shared
    }

    pub(super) fn drives(&self) -> &Drives {
        &self.shared().drives
    }

    /// An error if the target is stopping.
    pub(super) fn check(&self) -> Result<(), Failed> {
        if self.shared().stopping.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Failed::new("the target is stopping", "see what it is with `ebof target show` when it is up"));
        }
        Ok(())
    }

    /// The controllers of a subsystem, those included that are ending.
    pub(super) fn controllers(&self, nqn: &Nqn) -> Vec<ControllerInfo> {
        self.shared().registry().controllers().filter(|controller| controller.subsystem == *nqn).collect()
    }

    /// The NQN of a drive's subsystem, and its actor.
    pub(super) fn drive(&self, name: &str) -> Result<(Nqn, Arc<DriveActor>), Failed> {
        let state = self.target().in_force();
        let opened = state.devices.actors.iter().find(|opened| opened.config.name == name);
        let opened = opened.ok_or_else(|| Failed::new(format!("drive {name} is gone"), "it was removed meanwhile"))?;
        Ok((opened.subsystem.nqn.clone(), Arc::clone(&opened.actor)))
    }

    pub(super) fn relocation<'s>(&'s self, name: &'s FunctionName) -> Result<Relocation<'s>, Failed> {
        let (drive, actor) = self.drive(&name.drive)?;
        let nqn = ebof_fabrics::function_nqn(&drive, FunctionId(name.number)).ok_or_else(|| {
            Failed::new("it cannot have a subsystem of its own", "give the drive a shorter NQN, not one of a UUID")
        })?;
        Ok(Relocation { step: self, name, actor, nqn, drive })
    }

    /// Has a drive do something for the box, and waits for that.
    ///
    /// # Errors
    /// The drive has not done it; or the target is stopping, and the step is undecided.
    pub(super) fn ask(&self, actor: &Arc<DriveActor>, request: Request) -> Result<Answer, Failed> {
        let what = request.name();
        let mut is_told = false;
        ask(actor, request, |_| {
            if !std::mem::replace(&mut is_told, true) {
                let name = actor.name();
                tracing::error!(task = self.id(), drive = name, "the drive does not come to an end with this: {what}");
                self.tell(format!("drive {name} was asked to {what}, and its device does not answer: look at that"));
            }
            self.check().inspect_err(|_| self.is_undecided.set(true))
        })
    }

    /// Has a drive do something that takes long, and tells how far it is: `progress` gives a
    /// percentage and words, once there is something to tell.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(super) fn ask_watching(
        &self,
        actor: &Arc<DriveActor>,
        request: Request,
        look: Duration,
        progress: impl Fn(&Arc<DriveActor>) -> Option<(u8, String)>,
    ) -> Result<Answer, Failed> {
        let what = request.name();
        let mut told = None;
        ask_looking(actor, request, look, look, |elapsed| {
            let now = progress(actor);
            if now.is_none() && elapsed >= BEGIN && told.is_none() {
                let name = actor.name();
                tracing::error!(task = self.id(), drive = name, "the drive does not come to an end with this: {what}");
                self.tell(format!("drive {name} was asked to {what}, and its device does not answer: look at that"));
                told = Some(0);
            }
            if let Some((percent, words)) = now
                && told.replace(percent) != Some(percent)
            {
                self.at(Phase::Working, percent, Some(words));
            }
            self.check().inspect_err(|_| self.is_undecided.set(true))
        })
    }

    /// Has a drive store that a transaction is over. If it cannot for a while, it does so later.
    pub(super) fn forget(&self, actor: &Arc<DriveActor>, transaction: &str) {
        let began = Instant::now();
        while let Err(failed) = self.ask(actor, Request::End(transaction.to_owned())) {
            if self.check().is_err() {
                return;
            }
            if began.elapsed() >= FORGET {
                let (drive, why) = (actor.name(), failed.message());
                tracing::error!(drive, transaction, "it cannot be stored yet that the transaction is over: {why}");
                return actor.store_end_later(transaction);
            }
            std::thread::sleep(AGAIN);
        }
    }
}

impl Failed {
    pub(super) fn new(message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { message: message.into(), advice: advice.into(), phase: None, remains: Vec::new() }
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn advice(&self) -> &str {
        &self.advice
    }
}

impl From<ApplyError> for Failed {
    fn from(error: ApplyError) -> Self {
        match &error {
            ApplyError::Incomplete { lost, .. } => {
                let advice = "the target serves what it did before, but for that: see its log";
                Self { remains: lost.clone(), ..Self::new(error.to_string(), advice) }
            }
            _ => Self::new(error.to_string(), "the target serves what it did before"),
        }
    }
}
