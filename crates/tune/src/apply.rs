//! Changing settings, and undoing it.
//!
//! Before the first change the record has all of them with their old values, so that what a process
//! that was killed has changed can be undone: a knob that still has its old value was not reached.

use std::io;

use rustix::io::Errno;

use crate::knob::Knob;
use crate::machine::Machine;
use crate::record::{ChangeRecord, RecordError};
use crate::report::Report;

/// What became of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingStep {
    /// Where it is.
    pub knob: Knob,
    /// The value before; `None` if it could not be read.
    pub from: Option<String>,
    /// The value that it was to have.
    pub to: String,
    /// What became of it.
    pub outcome: StepOutcome,
}

/// What became of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// It has the value.
    Done,
    /// The kernel has made another value of it.
    Adjusted {
        /// The one that it has.
        found: String,
    },
    /// It had the value already. Only of undoing.
    Already,
    /// Somebody else has changed it since, and it was left alone. Only of undoing.
    Kept {
        /// The value that it has.
        found: String,
    },
    /// It does not exist any more. Only of undoing.
    Gone,
    /// The hardware, its driver or the kernel does not have it: it stays as it is, and that is no
    /// failure.
    Unavailable {
        /// Why not.
        reason: String,
    },
    /// It was refused.
    Failed {
        /// The system's answer, or what was read back.
        reason: String,
    },
}

impl StepOutcome {
    /// Its name, for programs and for people. Stable.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Adjusted { .. } => "adjusted",
            Self::Already => "already",
            Self::Kept { .. } => "kept",
            Self::Gone => "gone",
            Self::Unavailable { .. } => "unavailable",
            Self::Failed { .. } => "failed",
        }
    }
}

/// Changes what differs, in the report's order. A setting that is refused does not stop the others.
/// `now_s` is the time in seconds since 1970.
///
/// # Errors
/// The record cannot be stored. If that is so before the first change, nothing is changed.
pub fn apply(
    machine: &dyn Machine,
    report: &Report,
    record: &mut ChangeRecord,
    now_s: u64,
) -> Result<Vec<SettingStep>, RecordError> {
    let is_new: Vec<bool> = report.differing().map(|(knob, ..)| record.find(knob).is_none()).collect();
    if is_new.is_empty() {
        return Ok(Vec::new());
    }
    for (knob, old, new) in report.differing() {
        record.note(knob, old, new, now_s);
    }
    record.store()?;
    let mut steps = Vec::new();
    for ((knob, old, new), is_new) in report.differing().zip(is_new) {
        let outcome = change(machine, knob, old, new);
        match &outcome {
            StepOutcome::Failed { .. } | StepOutcome::Unavailable { .. }
                if is_new && knob.read(machine).is_ok_and(|value| value == old) =>
            {
                record.forget(knob);
            }
            StepOutcome::Adjusted { found } => record.note(knob, old, found, now_s),
            // The first value is back.
            StepOutcome::Done if record.changes().iter().any(|change| change.knob == *knob && change.old == new) => {
                record.forget(knob);
            }
            _ => {}
        }
        steps.push(SettingStep { knob: knob.clone(), from: Some(old.to_owned()), to: new.to_owned(), outcome });
    }
    record.store()?;
    Ok(steps)
}

/// Gives everything in the record its old value again, in reverse order, unless it has another one
/// than it was given here. What is refused stays in the record.
///
/// # Errors
/// The record cannot be stored.
pub fn undo(machine: &dyn Machine, record: &mut ChangeRecord) -> Result<Vec<SettingStep>, RecordError> {
    let mut steps = Vec::new();
    for change in record.changes().to_vec().into_iter().rev() {
        let found = change.knob.read(machine);
        let outcome = match &found {
            Ok(found) if *found == change.old => StepOutcome::Already,
            Ok(found) if change.set.contains(found) => self::change(machine, &change.knob, found, &change.old),
            Ok(found) => StepOutcome::Kept { found: found.clone() },
            Err(error) if error.kind() == io::ErrorKind::NotFound => StepOutcome::Gone,
            Err(error) => StepOutcome::Failed { reason: explain(error) },
        };
        if !matches!(outcome, StepOutcome::Failed { .. } | StepOutcome::Unavailable { .. }) {
            record.forget(&change.knob);
        }
        steps.push(SettingStep { knob: change.knob, from: found.ok(), to: change.old, outcome });
    }
    record.store()?;
    Ok(steps)
}

/// Gives a knob another value, and looks what it has then.
fn change(machine: &dyn Machine, knob: &Knob, old: &str, new: &str) -> StepOutcome {
    if let Err(error) = knob.write(machine, new) {
        return refusal(knob, &error);
    }
    // systemd has answered when the service has changed; its process may follow a moment later.
    if matches!(knob, Knob::Irqbalance) {
        return StepOutcome::Done;
    }
    match knob.read(machine) {
        Ok(found) if found == new => StepOutcome::Done,
        Ok(found) if found == old => StepOutcome::Failed { reason: format!("accepted without an effect: still {old}") },
        Ok(found) => StepOutcome::Adjusted { found },
        Err(error) => {
            StepOutcome::Failed { reason: format!("it was written, and cannot be read: {}", explain(&error)) }
        }
    }
}

fn refusal(knob: &Knob, error: &io::Error) -> StepOutcome {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    match (knob, errno) {
        // kernel/irq/proc.c: the interrupt's cores are managed.
        (Knob::Interrupt { .. }, Some(Errno::IO)) => {
            StepOutcome::Unavailable { reason: "the kernel spreads this interrupt itself".to_owned() }
        }
        // The driver's set_coalesce of virtio_net and others, without the feature.
        (Knob::AdaptiveRx { .. }, Some(Errno::OPNOTSUPP | Errno::INVAL)) => {
            StepOutcome::Unavailable { reason: format!("this adapter's driver does not have it ({error})") }
        }
        _ => StepOutcome::Failed { reason: explain(error) },
    }
}

/// An error of the system in words, with what to do about the usual ones.
pub(crate) fn explain(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ACCESS | Errno::PERM) => format!("{error}: root may"),
        Some(Errno::ROFS) => format!("{error}: a container cannot, its host can"),
        _ => error.to_string(),
    }
}
