//! Makes the changes of a transaction on a thread of its own: all of them, or none.
//!
//! What the objects are is noted before; when a change fails, they are made that again. If the
//! program is killed in the middle, the next start does so (`before.rs`).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use ebof_drive::Request;
use ebof_drive::function::{FunctionId, Share};
use ebof_manage::api::Asker;
use ebof_manage::enclosure::{
    Change, FunctionName, NamespaceName, NewDrive, Phase, ShareObject, TaskError, Transaction, without_drive,
};
use ebof_nvme::Nsid;

use super::before::{Before, Remembered, set_share};
use super::inventory::share_of;
use super::namespaces::Created;
use super::relocate::DRAIN;
use super::step::{Failed, Step};
use super::{Running, namespaces, operations};
use crate::life::reload;

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
        let prepared = Before::for_changes(changes, actor).and_then(|before| {
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
            if let Err(failed) = make(&step, change) {
                let phase = failed.phase.unwrap_or(step.phase());
                failure = Some((at, phase, failed));
                break;
            }
            made += 1;
        }
        let last = changes.len().saturating_sub(1);
        let step = self.step(last);
        let end = || remembered.as_ref().map_or(Ok(()), |remembered| remembered.end_transaction(&step));
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
            if let Err(failed) = remove_drive(&step, new.name(), false) {
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
            if let Err(failed) = namespaces::withdraw(&step, created) {
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

/// Makes a change. If it fails, nothing has changed.
fn make(step: &Step<'_>, change: &Change) -> Result<(), Failed> {
    step.check()?;
    match change {
        Change::Assign { function, ports } => give_to(step, function, ports),
        Change::Move { function, to } => give_to(step, function, to),
        Change::Map { namespace, function } => map(step, namespace, function.as_ref()),
        Change::Weight { function, weight } => share(step, function, |share| ShareObject { weight: *weight, ..share }),
        Change::Limit { function, iops, bytes_per_second, minimum_iops } => {
            share(step, function, |share| share.with([*iops, *bytes_per_second, *minimum_iops]))
        }
        Change::ResetDrive { drive } => {
            let (_, actor) = step.drive(drive)?;
            step.at(Phase::Storing, 50, None);
            step.ask(&actor, Request::ResetPrimary)?;
            // Firmware that waits for a reset runs now.
            step.ask(&actor, Request::Reset).map(drop)
        }
        Change::AddDrive(new) => add_drive(step, new),
        Change::RemoveDrive { drive, surprise } => remove_drive(step, drive, *surprise),
        Change::CreateNamespace(new) => namespaces::create(step, new),
        Change::DeleteNamespace { namespace } => namespaces::delete(step, namespace),
        Change::AttachNamespace { namespace, to } => namespaces::attach(step, namespace, to),
        Change::DetachNamespace { namespace, from } => namespaces::detach(step, namespace, from),
        Change::WriteProtect { namespace, on } => namespaces::protect(step, namespace, *on),
        Change::SetAnaGroup { namespace, group } => namespaces::group(step, namespace, *group),
        Change::FormatNamespace(format) => namespaces::format(step, format),
        Change::SanitizeDrive(sanitize) => operations::sanitize(step, sanitize),
        Change::SelfTest { drive, kind } => operations::self_test(step, drive, *kind),
        Change::StageFirmware { drive, slot, image } => operations::stage(step, drive, *slot, image),
        Change::ActivateFirmware { drive, slot, when } => operations::activate(step, drive, *slot, *when),
    }
}

fn give_to(step: &Step<'_>, name: &FunctionName, ports: &BTreeSet<String>) -> Result<(), Failed> {
    step.relocation(name)?.give_to(ports)
}

fn share(step: &Step<'_>, name: &FunctionName, change: impl FnOnce(ShareObject) -> ShareObject) -> Result<(), Failed> {
    let (_, actor) = step.drive(&name.drive)?;
    let before = actor.view().functions.get(&name.number).map(|function| share_of(&function.share));
    step.at(Phase::Storing, 50, None);
    set_share(step, name, change(before.unwrap_or_else(|| share_of(&Share::default()))))
}

fn map(step: &Step<'_>, namespace: &NamespaceName, function: Option<&FunctionName>) -> Result<(), Failed> {
    let (_, actor) = step.drive(&namespace.drive)?;
    step.at(Phase::Storing, 50, None);
    let function = function.map(|function| FunctionId(function.number));
    step.ask(&actor, Request::Map(Nsid(namespace.nsid), function)).map(drop)
}

fn add_drive(step: &Step<'_>, new: &NewDrive) -> Result<(), Failed> {
    step.at(Phase::Configuring, 30, None);
    reload::apply_with(step.target(), &step.cause(), |current| {
        new.add_to(current).map_err(|mistakes| {
            let text: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            Failed::new(text.join("; "), "the configuration has changed meanwhile")
        })
    })?;
    let name = new.name();
    if step.target().is_kept() {
        return Ok(());
    }
    step.target().added().insert(name.to_owned());
    step.remark(&format!(
        "drive {name} is served until the next start or reload of the target: to keep it, describe it in the \
             configuration"
    ));
    Ok(())
}

/// Removes a drive. One that is pulled out fails its hosts' commands first.
fn remove_drive(step: &Step<'_>, name: &str, surprise: bool) -> Result<(), Failed> {
    let (nqn, _) = step.drive(name)?;
    if surprise {
        let state = step.target().in_force();
        let opened = state.devices.actors.iter().find(|opened| opened.config.name == name);
        opened.into_iter().for_each(|opened| opened.remover.remove());
        drop(state);
        tracing::warn!(drive = name, %nqn, "pulled out: commands of its hosts fail from now on");
    }
    step.at(Phase::Configuring, 30, None);
    let removed = reload::apply_with(step.target(), &step.cause(), |current| Ok(without_drive(current, name)));
    match removed {
        Ok(_) => {
            if !step.target().is_kept() && !step.target().added().remove(name) {
                let remark = format!(
                    "drive {name} is in the configuration, which the next start or reload of the target goes by: take it \
                     out there, too"
                );
                step.remark(&remark);
            }
            Ok(())
        }
        Err(failed) if surprise => Err(pulled_out(name, nqn.as_str(), failed)),
        Err(failed) => Err(failed),
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

#[cfg(test)]
mod tests {
    use ebof_manage::api::ApplyError;

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
