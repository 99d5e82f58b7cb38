//! The checks of a transaction against what there is: all mistakes at once. Each change is checked
//! against what the ones before it would leave.

mod drives;
mod functions;
mod mistakes;
mod namespaces;

use super::change::{CHANGES_MAX, Change, Rate, Transaction};
use super::inventory::{Inventory, ShareObject};
use super::refusal::{MistakeKind, Refused};

use drives::CheckedDrives;
use functions::CheckedFunctions;
use mistakes::Mistakes;
use namespaces::CheckedNamespaces;

/// The longest that commands may be waited for.
const DRAIN_MS_MAX: u64 = 600_000;

/// Checks a transaction against what there is.
///
/// # Errors
/// All mistakes.
pub fn check(inventory: &Inventory, transaction: &Transaction) -> Result<(), Refused> {
    let mut checks = Checks {
        drives: CheckedDrives::new(inventory),
        functions: CheckedFunctions::new(inventory),
        namespaces: CheckedNamespaces::new(inventory),
        mistakes: Mistakes::default(),
    };
    checks.check_transaction(transaction);
    for (at, change) in transaction.changes.iter().take(CHANGES_MAX).enumerate() {
        checks.mistakes.begin(at);
        checks.change(change);
    }
    let mistakes = checks.mistakes.into_list();
    if mistakes.is_empty() { Ok(()) } else { Err(Refused { mistakes }) }
}

/// What there would be after the changes so far, and what is wrong with them.
struct Checks<'i> {
    drives: CheckedDrives<'i>,
    functions: CheckedFunctions<'i>,
    namespaces: CheckedNamespaces,
    mistakes: Mistakes,
}

impl Checks<'_> {
    fn check_transaction(&mut self, transaction: &Transaction) {
        let count = transaction.changes.len();
        if count == 0 {
            self.mistakes.note(MistakeKind::Value, &"", "there is no change", "name at least one");
        }
        if count > CHANGES_MAX {
            let advice = format!("accepted: at most {CHANGES_MAX} in one transaction");
            self.mistakes.note(MistakeKind::Value, &"", format!("there are {count} changes"), advice);
        }
        if transaction.drain_ms.is_some_and(|ms| ms > DRAIN_MS_MAX) {
            let advice = format!("accepted: up to {DRAIN_MS_MAX} ms");
            self.mistakes.note(MistakeKind::Value, &"", "commands would be waited for too long", advice);
        }
        // An image is stored and activated by one request.
        if count > 1
            && !transaction.changes.iter().all(Change::is_of_firmware)
            && let Some(change) = transaction.changes.iter().find(|change| !change.is_reversible())
        {
            let message = format!("`{change}` cannot be taken back if another change fails");
            self.mistakes.note(MistakeKind::Conflict, &"", message, "make it in a transaction of its own");
        }
    }

    fn change(&mut self, change: &Change) {
        let Self { drives, functions, namespaces, mistakes: out } = self;
        match change {
            Change::Assign { function, ports } => functions.assign(function, ports, drives, out),
            Change::Move { function, to } => functions.moved(function, to, drives, out),
            Change::Map { namespace, function } => namespaces.map(namespace, function.as_ref(), drives, out),
            Change::Weight { function, weight } => functions.weight(function, *weight, drives, out),
            Change::Limit { function, iops, bytes_per_second, minimum_iops } => {
                functions.limit(function, [*iops, *bytes_per_second, *minimum_iops], drives, out);
            }
            Change::ResetDrive { drive } => drives.reset(drive, out),
            Change::AddDrive(new) => {
                drives.check_new(new, out);
                functions.give_ports(new, drives, out);
                drives.add(new);
            }
            Change::RemoveDrive { drive, .. } => drop(drives.drive(drive, out)),
            Change::CreateNamespace(new) => namespaces.create(new, drives, out),
            Change::DeleteNamespace { namespace } => namespaces.delete(namespace, drives, out),
            Change::AttachNamespace { namespace, to } => namespaces.attach(namespace, to, drives, out),
            Change::DetachNamespace { namespace, from } => namespaces.detach(namespace, from, drives, out),
            Change::WriteProtect { namespace, on } => namespaces.protect(namespace, *on, drives, out),
            Change::SetAnaGroup { namespace, group } => namespaces.group(namespace, *group, drives, out),
            Change::FormatNamespace(format) => namespaces.format(format, drives, out),
            Change::SanitizeDrive(sanitize) => drives.sanitize(sanitize, out),
            Change::SelfTest { drive, kind } => drives.self_test(drive, *kind, out),
            Change::StageFirmware { drive, slot, .. } => drives.firmware(drive, *slot, out),
            Change::ActivateFirmware { drive, slot, .. } => drives.firmware(drive, Some(*slot), out),
        }
    }
}

impl ShareObject {
    /// That of a function nobody has changed.
    const NEW: Self = Self { weight: 1, iops: None, bytes_per_second: None, minimum_iops: None };

    /// The share after a change of its limits: IOPS, bytes in a second, minimum.
    #[must_use]
    pub fn with(self, [iops, bytes_per_second, minimum_iops]: [Option<Rate>; 3]) -> Self {
        let or = |new: Option<Rate>, old| new.map_or(old, |Rate(new)| new);
        Self {
            weight: self.weight,
            iops: or(iops, self.iops),
            bytes_per_second: or(bytes_per_second, self.bytes_per_second),
            minimum_iops: or(minimum_iops, self.minimum_iops),
        }
    }
}
