//! What the objects of a transaction were before it, so that they can be made that again: exactly,
//! and also by the next start if this process ends in between.
//!
//! ```text
//!             every drive remembers      the first one forgets    all have forgotten
//! (nothing) ------------------> unfinished -----------------> made ------------> (nothing)
//!                                   |  the others, then the first one,
//!                                   |  take back and forget
//!                                   v
//!                               (nothing)
//! ```
//! The first drive decides: as long as it remembers the transaction, that is taken back, wherever
//! it was interrupted. What each drive remembers is in its own journal.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ebof_drive::{Attachments, FunctionId, Placement, Request, Share, Unfinished};
use ebof_manage::enclosure::{Change, FunctionName, NamespaceName, ShareObject};
use ebof_nvme::Nsid;

use super::ask::ask;
use super::inventory::share_of;
use super::namespaces;
use super::step::{Failed, Step};
use crate::drives::DriveActor;

/// The objects of a transaction as they were, by drive.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    drives: BTreeMap<String, Unfinished>,
}

/// A transaction that its drives remember, the one that decides first.
pub(super) struct Remembered {
    id: String,
    drives: Vec<Arc<DriveActor>>,
    /// It is made, or taken back, or left to the next start.
    is_settled: Cell<bool>,
}

impl Before {
    /// The objects of these changes as they are now; `actor` gives a drive's.
    ///
    /// # Errors
    /// Those of `actor`.
    pub(super) fn for_changes(
        changes: &[Change],
        actor: impl Fn(&str) -> Result<Arc<DriveActor>, Failed>,
    ) -> Result<Self, Failed> {
        let mut before = Self::default();
        let mut added = BTreeSet::new();
        for change in changes {
            // What the transaction adds goes as a whole if it is taken back.
            if let Change::AddDrive(new) = change {
                added.insert(new.name());
            }
            if change.drive().is_some_and(|drive| added.contains(drive)) {
                continue;
            }
            if let Some(function) = change.function() {
                let found = actor(&function.drive)?.view().functions.get(&function.number).cloned();
                let of_drive = before.drives.entry(function.drive.clone()).or_default();
                of_drive.functions.insert(function.number, found.unwrap_or_default());
            }
            if let Some(namespace) = attached_by(change) {
                let found = attachments(&*actor(&namespace.drive)?, namespace);
                let of_drive = before.drives.entry(namespace.drive.clone()).or_default();
                of_drive.namespaces.insert(namespace.nsid, found.unwrap_or_default());
            }
            if let Change::WriteProtect { namespace, .. } = change {
                let found = protected(&*actor(&namespace.drive)?, namespace);
                let of_drive = before.drives.entry(namespace.drive.clone()).or_default();
                of_drive.protected.extend(found.map(|protected| (namespace.nsid, protected)));
            }
            if let Change::SetAnaGroup { namespace, .. } = change {
                let found = ana_group(&*actor(&namespace.drive)?, namespace);
                let of_drive = before.drives.entry(namespace.drive.clone()).or_default();
                of_drive.groups.extend(found.map(|group| (namespace.nsid, group)));
            }
            if let Change::CreateNamespace(new) = change {
                // What was not there has not been anything; the drive notes what it creates.
                drop(actor(&new.drive)?);
                before.drives.entry(new.drive.clone()).or_default();
            }
        }
        Ok(before)
    }

    /// What of it these changes are about.
    pub(super) fn part(&self, changes: &[Change]) -> Self {
        let is_function = |drive: &str, number: u16| {
            let is_it = |name: &FunctionName| name.drive == drive && name.number == number;
            changes.iter().any(|change| change.function().is_some_and(is_it))
        };
        let is_namespace = |drive: &str, nsid: u32| {
            let is_it = |name: &NamespaceName| name.drive == drive && name.nsid == nsid;
            changes.iter().any(|change| change.namespace().is_some_and(is_it))
        };
        let mut part = self.clone();
        for (drive, unfinished) in &mut part.drives {
            unfinished.functions.retain(|&number, _| is_function(drive, number));
            unfinished.namespaces.retain(|&nsid, _| is_namespace(drive, nsid));
            unfinished.protected.retain(|&nsid, _| is_namespace(drive, nsid));
            unfinished.groups.retain(|&nsid, _| is_namespace(drive, nsid));
        }
        part
    }

    /// Has the drives remember the transaction until it is over.
    ///
    /// # Errors
    /// One of them cannot; then none does.
    pub(super) fn remember(self, id: String, step: &Step<'_>) -> Result<Remembered, Failed> {
        let mut remembered = Remembered { id, drives: Vec::new(), is_settled: Cell::new(false) };
        let mut decider = None;
        for (name, unfinished) in self.drives {
            let begun = step.drive(&name).and_then(|(_, actor)| {
                let decider = *decider.get_or_insert_with(|| actor.view().uuid);
                let unfinished = Unfinished { decider, ..unfinished };
                let begin = Request::Begin(remembered.id.clone(), unfinished);
                // Before it is asked: that it refuses does not say that it stored nothing.
                remembered.drives.push(Arc::clone(&actor));
                step.ask(&actor, begin).map_err(|failed| cannot_remember(&name, &actor, &failed))
            });
            if let Err(failed) = begun {
                match step.is_undecided.get() {
                    true => remembered.leave(),
                    false => remembered.forget(step),
                }
                return Err(failed);
            }
        }
        Ok(remembered)
    }

    /// Makes the objects what they were. Gives what could not be made that, with the reason.
    pub(super) fn restore(&self, step: &Step<'_>) -> Vec<String> {
        let mut remains = Vec::new();
        let mut note = |name: String, failed: Failed| {
            remains.push(format!("{name}: {}", failed.message()));
            remains.extend(failed.remains);
        };
        for (drive, unfinished) in &self.drives {
            // Those that give resources back go first.
            let (online, offline): (Vec<_>, Vec<_>) =
                unfinished.functions.iter().partition(|(_, function)| function.online);
            for (&number, before) in offline.into_iter().chain(online) {
                let name = FunctionName { drive: drive.clone(), number };
                let placed = step.relocation(&name).and_then(|it| it.put_back(&Placement::from(before)));
                let shared = set_share(step, &name, share_of(&before.share));
                for failed in [placed, shared].into_iter().filter_map(Result::err) {
                    note(name.to_string(), failed);
                }
            }
            for (&nsid, before) in &unfinished.namespaces {
                let name = NamespaceName { drive: drive.clone(), nsid };
                if let Err(failed) = attach_again(step, &name, before) {
                    note(name.to_string(), failed);
                }
            }
            for (&nsid, &before) in &unfinished.protected {
                let name = NamespaceName { drive: drive.clone(), nsid };
                if let Err(failed) = namespaces::protect(step, &name, before) {
                    note(name.to_string(), failed);
                }
            }
            for (&nsid, &before) in &unfinished.groups {
                let name = NamespaceName { drive: drive.clone(), nsid };
                if let Err(failed) = namespaces::group(step, &name, before) {
                    note(name.to_string(), failed);
                }
            }
        }
        remains
    }
}

/// Why a drive does not remember a transaction.
fn cannot_remember(name: &str, actor: &DriveActor, failed: &Failed) -> Failed {
    let message = format!("drive {name} cannot remember the transaction: {}", failed.message());
    let is_full = actor.unfinished().len() >= Unfinished::MAX;
    let advice = if is_full { "wait for the end of other tasks (`ebof target tasks`)" } else { failed.advice() };
    Failed::new(message, advice)
}

impl Remembered {
    /// The transaction is made: from here on it is not taken back any more.
    ///
    /// # Errors
    /// The drive that decides cannot store that.
    pub(super) fn end_transaction(&self, step: &Step<'_>) -> Result<(), Failed> {
        let Some((first, others)) = self.drives.split_first() else { return Ok(()) };
        step.ask(first, Request::End(self.id.clone()))?;
        self.is_settled.set(true);
        // If the target ends before, the next start looks at the first.
        others.iter().for_each(|actor| step.forget(actor, &self.id));
        Ok(())
    }

    /// The transaction was taken back, or did not begin.
    pub(super) fn forget(&self, step: &Step<'_>) {
        self.is_settled.set(true);
        self.drives.iter().rev().for_each(|actor| step.forget(actor, &self.id));
    }

    /// Nobody knows what became of it: the next start decides.
    pub(super) fn leave(&self) {
        self.is_settled.set(true);
    }
}

impl Drop for Remembered {
    /// The task has panicked: its drives take back themselves what it made, the one that decides
    /// last.
    fn drop(&mut self) {
        if self.is_settled.get() {
            return;
        }
        for actor in self.drives.iter().rev() {
            let slow = |_| Err(Failed::new("its device does not answer", "look at that"));
            if let Err(failed) = ask(actor, Request::Undo(self.id.clone()), slow) {
                let (drive, why) = (actor.name(), failed.message());
                tracing::error!(drive, transaction = self.id, "the next start takes the transaction back: {why}");
                return;
            }
        }
    }
}

/// The namespace whose attachments a change is about.
fn attached_by(change: &Change) -> Option<&NamespaceName> {
    match change {
        Change::Map { namespace, .. }
        | Change::AttachNamespace { namespace, .. }
        | Change::DetachNamespace { namespace, .. } => Some(namespace),
        _ => None,
    }
}

fn protected(actor: &DriveActor, name: &NamespaceName) -> Option<bool> {
    let view = actor.view();
    let (_, found) = view.namespaces.iter().find(|(nsid, _)| nsid.0 == name.nsid)?;
    Some(found.write_protected)
}

fn ana_group(actor: &DriveActor, name: &NamespaceName) -> Option<u32> {
    let view = actor.view();
    let (_, found) = view.namespaces.iter().find(|(nsid, _)| nsid.0 == name.nsid)?;
    Some(found.ana_group)
}

fn attachments(actor: &DriveActor, name: &NamespaceName) -> Option<Attachments> {
    let view = actor.view();
    let (_, found) = view.namespaces.iter().find(|(nsid, _)| nsid.0 == name.nsid)?;
    Some(Attachments::from(found))
}

/// Attaches a namespace to whom it was attached before. Who has it and is not to have it loses it
/// first: then its commands have ended when others get it.
fn attach_again(step: &Step<'_>, name: &NamespaceName, before: &Attachments) -> Result<(), Failed> {
    let (_, actor) = step.drive(&name.drive)?;
    let now = attachments(&actor, name);
    let now = now.ok_or_else(|| Failed::new("the namespace is gone", "it was deleted meanwhile"))?;
    for to in [now.common(before), before.clone()] {
        step.ask(&actor, Request::AttachExactly(Nsid(name.nsid), to))?;
    }
    Ok(())
}

/// Sets the share of a function, if it is another one.
pub(super) fn set_share(step: &Step<'_>, name: &FunctionName, to: ShareObject) -> Result<(), Failed> {
    let (_, actor) = step.drive(&name.drive)?;
    let now = actor.view().functions.get(&name.number).map(|function| share_of(&function.share));
    if now == Some(to) {
        return Ok(());
    }
    let ShareObject { weight, iops, bytes_per_second, minimum_iops } = to;
    let share = Share { weight, iops, bytes_per_second, minimum_iops };
    step.ask(&actor, Request::SetShare(FunctionId(name.number), share)).map(drop)
}

#[cfg(test)]
mod tests {
    use ebof_drive::{Function, PortNames};
    use ebof_manage::load;

    use super::*;
    use crate::environment::settings::Settings;
    use crate::life::serve::Target;
    use crate::life::startup::OpenDrive;
    use crate::life::unfinished::finish;

    fn target() -> Target {
        let drive = |name: &str| {
            format!(
                "[[drives]]\nname = \"{name}\"\nbacking = \"mem:64Mi\"\nfunctions = 2\n\
                 [[subsystems]]\nnqn = \"nqn.2014-08.org.example:{name}\"\nallow_any_host = true\ndrive = \"{name}\"\n"
            )
        };
        let port = "[[ports]]\nname = \"a\"\nlisten = \"tcp://127.0.0.1:0\"\n";
        let config = load("a.toml", &format!("{port}{}{}", drive("d0"), drive("d1"))).unwrap().config;
        Target::start(config, Settings { threads: Some(1), pin: false, ..Settings::default() }).unwrap()
    }

    fn told(drive: &OpenDrive, request: Request) {
        assert!(ask(&drive.actor, request, |_| Ok(())).is_ok());
    }

    /// Two drives in the middle of a transaction, which the first one decides.
    fn interrupted() -> (Target, Vec<OpenDrive>) {
        let target = target();
        let drives = target.in_force().devices.actors.clone();
        let decider = drives[0].actor.view().uuid;
        let functions = [(1, Function::default())].into();
        let before = Unfinished { decider, functions, ..Unfinished::default() };
        let after = Placement { queues: 2, interrupts: 1, online: true, ports: PortNames::new(["a"]).unwrap() };
        for drive in &drives {
            told(drive, Request::Begin("t".into(), before.clone()));
            told(drive, Request::Place(FunctionId(1), after.clone()));
        }
        (target, drives)
    }

    fn made(drives: &[OpenDrive]) -> Vec<bool> {
        assert!(drives.iter().all(|drive| drive.actor.unfinished().is_empty()));
        drives.iter().map(|drive| drive.actor.view().functions[&1].online).collect()
    }

    #[test]
    fn the_first_drive_decides_what_becomes_of_a_transaction() {
        let (_target, drives) = interrupted();
        finish(&drives, &[]);
        assert_eq!(made(&drives), [false, false]);
        finish(&drives, &[]);
        let (_target, drives) = interrupted();
        told(&drives[0], Request::End("t".into()));
        finish(&drives, &[]);
        assert_eq!(made(&drives), [true, true]);
    }

    #[test]
    fn a_drive_that_comes_later_learns_what_the_first_one_knows() {
        let (_target, drives) = interrupted();
        told(&drives[0], Request::End("t".into()));
        finish(&drives[1..], &drives[..1]);
        assert_eq!(made(&drives), [true, true]);
        let (_target, drives) = interrupted();
        finish(&drives[1..], &[]);
        assert_eq!(made(&drives[1..]), [false], "nobody knows: it is taken back");
        finish(&drives[..1], &drives[1..]);
        assert_eq!(made(&drives), [false, false]);
    }
}
