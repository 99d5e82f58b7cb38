//! Makes the changes of a transaction on a thread of its own: all of them, or none.
//!
//! What the objects are is noted before; when a change fails, they are made that again. If the
//! program is killed in the middle, the next start does so (`before.rs`).

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use ebof_drive::Request;
use ebof_drive::function::{FunctionId, Share};
use ebof_fabrics::ControllerInfo;
use ebof_manage::api::{ApplyError, Asker, Cause};
use ebof_manage::enclosure::{
    Change, FunctionName, NamespaceName, NewDrive, Phase, ShareObject, TaskError, Transaction, without_drive,
};
use ebof_nvme::{Nqn, Nsid};

use super::Running;
use super::before::{Before, Remembered};
use super::inventory::share_of;
use super::namespaces::Created;
use super::relocate::{DRAIN, Relocation};
use crate::drives::{DriveActor, Drives};
use crate::life::reload;
use crate::life::serve::Target;
use crate::shared::Shared;

/// A transaction that is being carried out.
pub(super) struct Carrier {
    running: Arc<Running>,
    id: u64,
    transaction: Transaction,
    by: Asker,
    is_undecided: Cell<bool>,
    /// The name by which drives remember it, if they do.
    name: OnceCell<String>,
    /// The namespaces that it has created so far.
    created: RefCell<Vec<Created>>,
}

/// Where a task is.
pub(super) struct Step<'c> {
    running: &'c Running,
    id: u64,
    by: &'c Asker,
    change: usize,
    changes: usize,
    /// How long commands of hosts may take to end.
    pub(super) drain: Duration,
    phase: Cell<Phase>,
    percent: Cell<u8>,
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
    message: String,
    pub(super) advice: String,
    /// Where it failed; `None` is where the task is.
    pub(super) phase: Option<Phase>,
    /// What could not be taken back.
    pub(super) remains: Vec<String>,
}

/// The failure of a task whose thread could not be started.
pub(super) fn not_begun(error: &io::Error) -> TaskError {
    TaskError {
        change: 0,
        phase: Phase::Waiting,
        message: format!("a thread for it cannot be started: {error}"),
        advice: "nothing was changed; see the limits of the process".to_owned(),
        remains: Vec::new(),
    }
}

/// The failure of a task that did not come to its end.
fn panicked() -> TaskError {
    TaskError {
        change: 0,
        phase: Phase::Ended,
        message: "an error in the program ended it: see the panic in the target's log".to_owned(),
        advice: "see what was changed with `ebof target show`".to_owned(),
        remains: Vec::new(),
    }
}

impl Carrier {
    pub(super) fn new(running: Arc<Running>, id: u64, transaction: Transaction, by: Asker) -> Self {
        let (is_undecided, name, created) = (Cell::new(false), OnceCell::new(), RefCell::default());
        Self { running, id, transaction, by, is_undecided, name, created }
    }

    pub(super) fn run(self) {
        // A task that nobody ends would have its objects for ever.
        let outcome = catch_unwind(AssertUnwindSafe(|| self.carry_out())).unwrap_or_else(|_| Err(panicked()));
        match &outcome {
            Ok(()) => {
                let by = &self.by;
                self.transaction.changes.iter().for_each(|change| tracing::info!(task = self.id, %by, "{change}"));
            }
            Err(error) => tracing::error!(task = self.id, phase = %error.phase, "{error}"),
        }
        self.running.tasks.end(self.id, outcome);
        self.running.observe(self.id);
    }

    fn carry_out(&self) -> Result<(), TaskError> {
        let changes = &self.transaction.changes;
        let actor = |name: &str| {
            let (_, actor) = self.step(0).drive(name)?;
            if actor.owed_ends().is_empty() {
                return Ok(actor);
            }
            let message = format!("drive {name} could not store yet that an earlier transaction is over");
            Err(Failed::new(message, "look at the device below the drive, and try again"))
        };
        let prepared = Before::of(changes, actor).and_then(|before| {
            // A single change is one record of its drive.
            let several = changes.len() > 1;
            let remember = || before.clone().remember(self.name.get_or_init(|| self.new_name()).clone(), &self.step(0));
            let remembered = several.then(remember).transpose()?;
            Ok((before, remembered))
        });
        let (before, remembered) = prepared.map_err(|failed| self.failed(0, Phase::Waiting, failed))?;
        let (mut made, mut failure) = (0, None);
        for (at, change) in changes.iter().enumerate() {
            let step = self.step(at);
            if let Err(failed) = step.make(change) {
                let phase = failed.phase.unwrap_or(step.phase());
                failure = Some((at, phase, failed));
                break;
            }
            made += 1;
        }
        let last = changes.len().saturating_sub(1);
        let step = self.step(last);
        let end = || remembered.as_ref().map_or(Ok(()), |remembered| remembered.made(&step));
        let failure = failure.or_else(|| Some((last, Phase::Storing, end().err()?)));
        let Some((at, phase, mut failed)) = failure else { return Ok(()) };
        if self.is_undecided.get() {
            remembered.iter().for_each(Remembered::leave);
            return Err(self.failed(at, phase, failed));
        }
        for left in self.take_back(made, at, &before) {
            if !failed.remains.contains(&left) {
                failed.remains.push(left);
            }
        }
        remembered.iter().for_each(|remembered| remembered.forget(&step));
        Err(self.failed(at, phase, failed))
    }

    /// A name by which drives can remember it: no other transaction has it.
    fn new_name(&self) -> String {
        let mut random = [0; 16];
        let clock = &self.running.target.shared.settings.environment.clock;
        // Without randomness the time has to do.
        if clock.fill(&mut random).is_err() {
            random = clock.unix_time().as_nanos().to_le_bytes();
        }
        format!("{:032x}", u128::from_le_bytes(random))
    }

    fn step(&self, change: usize) -> Step<'_> {
        Step {
            running: &self.running,
            id: self.id,
            by: &self.by,
            change,
            changes: self.transaction.changes.len(),
            drain: self.transaction.drain_ms.map_or(DRAIN, Duration::from_millis),
            phase: Cell::new(Phase::Waiting),
            percent: Cell::new(0),
            is_undecided: &self.is_undecided,
            added: self.transaction.changes.iter().filter_map(added_by).collect(),
            transaction: self.name.get().map(String::as_str),
            created: &self.created,
        }
    }

    /// Makes what the changes up to the one that failed were about what it was before. That one may
    /// have been stored: a drive whose device does not answer says so after it has. Gives what is
    /// left.
    fn take_back(&self, made: usize, failed: usize, before: &Before) -> Vec<String> {
        let mut remains = Vec::new();
        let changes = &self.transaction.changes;
        for (at, change) in changes.iter().enumerate().take(made).rev() {
            if change.is_of_firmware() {
                remains.push(format!("it was done, and stays: {change}"));
            }
            let Change::AddDrive(new) = change else { continue };
            let step = self.step(at);
            step.at(Phase::GoingBack, 95, None);
            if let Err(failed) = step.remove(new.name(), false) {
                remains.push(format!("drive {} stays: {}", new.name(), failed.message));
                remains.extend(failed.remains);
            }
        }
        let step = self.step(failed);
        step.at(Phase::GoingBack, 95, None);
        remains.extend(before.part(changes.get(..=failed).unwrap_or_default()).restore(&step));
        let added: Vec<&str> = changes.iter().take(made).filter_map(added_by).collect();
        // What was on a drive that was added has gone with it.
        let mut created = self.created.take();
        created.retain(|created| !added.contains(&created.name.drive.as_str()));
        for created in created.iter().rev() {
            if let Err(failed) = step.withdraw(created) {
                remains.push(format!("{} stays: {}", created.name, failed.message));
            }
        }
        remains
    }

    fn failed(&self, at: usize, phase: Phase, failed: Failed) -> TaskError {
        let Failed { message, advice, remains, .. } = failed;
        let message = match self.transaction.changes.get(at) {
            Some(change) => format!("cannot {change}: {message}"),
            None => message,
        };
        TaskError { change: at, phase, message, advice, remains }
    }
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
    pub(super) fn made(&self, name: String) {
        self.running.tasks.made(self.id, name);
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
    fn cause(&self) -> Cause {
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

    /// Makes a change. If it fails, nothing has changed.
    fn make(&self, change: &Change) -> Result<(), Failed> {
        self.check()?;
        match change {
            Change::Assign { function, port } => self.give_to(function, port.as_deref()),
            Change::Move { function, to } => self.give_to(function, Some(to)),
            Change::Map { namespace, function } => self.map(namespace, function.as_ref()),
            Change::Weight { function, weight } => {
                self.share(function, |share| ShareObject { weight: *weight, ..share })
            }
            Change::Limit { function, iops, bytes_per_second, minimum_iops } => {
                self.share(function, |share| share.with([*iops, *bytes_per_second, *minimum_iops]))
            }
            Change::ResetDrive { drive } => {
                let (_, actor) = self.drive(drive)?;
                self.at(Phase::Storing, 50, None);
                self.ask(&actor, Request::ResetPrimary)?;
                // Firmware that waits for a reset runs now.
                self.ask(&actor, Request::Reset).map(drop)
            }
            Change::AddDrive(new) => self.add(new),
            Change::RemoveDrive { drive, surprise } => self.remove(drive, *surprise),
            Change::CreateNamespace(new) => self.create_namespace(new),
            Change::DeleteNamespace { namespace } => self.delete_namespace(namespace),
            Change::AttachNamespace { namespace, to } => self.attach(namespace, to),
            Change::DetachNamespace { namespace, from } => self.detach(namespace, from),
            Change::WriteProtect { namespace, on } => self.protect(namespace, *on),
            Change::FormatNamespace(format) => self.format(format),
            Change::SanitizeDrive(sanitize) => self.sanitize(sanitize),
            Change::SelfTest { drive, kind } => self.self_test(drive, *kind),
            Change::StageFirmware { drive, slot, image } => self.stage(drive, *slot, image),
            Change::ActivateFirmware { drive, slot, when } => self.activate(drive, *slot, *when),
        }
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

    fn give_to(&self, name: &FunctionName, port: Option<&str>) -> Result<(), Failed> {
        self.relocation(name)?.give_to(port)
    }

    fn share(&self, name: &FunctionName, change: impl FnOnce(ShareObject) -> ShareObject) -> Result<(), Failed> {
        let (_, actor) = self.drive(&name.drive)?;
        let before = actor.view().functions.get(&name.number).map(|function| share_of(&function.share));
        self.at(Phase::Storing, 50, None);
        self.set_share(name, change(before.unwrap_or_else(|| share_of(&Share::default()))))
    }

    fn map(&self, namespace: &NamespaceName, function: Option<&FunctionName>) -> Result<(), Failed> {
        let (_, actor) = self.drive(&namespace.drive)?;
        self.at(Phase::Storing, 50, None);
        let function = function.map(|function| FunctionId(function.number));
        self.ask(&actor, Request::Map(Nsid(namespace.nsid), function)).map(drop)
    }

    fn add(&self, new: &NewDrive) -> Result<(), Failed> {
        self.at(Phase::Configuring, 30, None);
        reload::apply_with(self.target(), &self.cause(), |current| {
            new.add_to(current).map_err(|mistakes| {
                let text: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
                Failed::new(text.join("; "), "the configuration has changed meanwhile")
            })
        })?;
        let name = new.name();
        if self.target().is_kept() {
            return Ok(());
        }
        self.target().added().insert(name.to_owned());
        self.running.tasks.remark(
            self.id,
            &format!(
                "drive {name} is served until the next start or reload of the target: to keep it, describe it in the \
                 configuration"
            ),
        );
        Ok(())
    }

    /// Removes a drive. One that is pulled out fails its hosts' commands first.
    fn remove(&self, name: &str, surprise: bool) -> Result<(), Failed> {
        let (nqn, _) = self.drive(name)?;
        if surprise {
            let state = self.target().in_force();
            let opened = state.devices.actors.iter().find(|opened| opened.config.name == name);
            opened.into_iter().for_each(|opened| opened.remover.remove());
            drop(state);
            tracing::warn!(drive = name, %nqn, "pulled out: commands of its hosts fail from now on");
        }
        self.at(Phase::Configuring, 30, None);
        let removed = reload::apply_with(self.target(), &self.cause(), |current| Ok(without_drive(current, name)));
        match removed {
            Ok(_) => {
                if !self.target().is_kept() && !self.target().added().remove(name) {
                    let remark = format!(
                        "drive {name} is in the configuration, which the next start or reload of the target goes by: take it \
                         out there, too"
                    );
                    self.running.tasks.remark(self.id, &remark);
                }
                Ok(())
            }
            Err(failed) if surprise => Err(pulled_out(name, nqn.as_str(), failed)),
            Err(failed) => Err(failed),
        }
    }
}

/// The name of the drive that a change adds.
fn added_by(change: &Change) -> Option<&str> {
    match change {
        Change::AddDrive(new) => Some(new.name()),
        _ => None,
    }
}

/// The failure of the second half of a drive's surprise removal: the first one cannot be taken
/// back.
fn pulled_out(name: &str, nqn: &str, failed: Failed) -> Failed {
    let mut remains = failed.remains;
    remains.insert(0, format!("drive {name} is pulled out: all commands to it fail, and the target still shows it"));
    let advice = format!(
        "`ebof target remove drive {name} --surprise` tries again to take it from what the target shows; to have the drive \
         back, remove it and add it again (`ebof target add drive name={name},backing=PATH --nqn {nqn}`), or start the target again"
    );
    Failed { remains, advice, ..failed }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_is_pulled_out_and_still_shown_is_said_to_be_both() {
        let error = ApplyError::NeedsRestart { changes: Vec::new() };
        let failed = pulled_out("d1", "nqn.2014-08.org.example:d1", Failed::from(error));
        assert!(failed.remains[0].starts_with("drive d1 is pulled out"), "{:?}", failed.remains);
        assert!(
            failed.advice.contains("remove drive d1 --surprise")
                && failed.advice.contains("--nqn nqn.2014-08.org.example:d1")
        );
        assert!(!failed.advice.contains("serves what it did"));
    }
}
