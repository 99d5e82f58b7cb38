//! The checks of drives: which there are, with what functions, and what a whole drive does:
//! sanitizing, testing itself, taking firmware.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::mistakes::Mistakes;
use crate::enclosure::drive_change::{SanitizeAction, SanitizeDrive, SelfTestKind};
use crate::enclosure::drives::NewDrive;
use crate::enclosure::inventory::{DriveObject, Inventory};
use crate::enclosure::name::FunctionName;
use crate::enclosure::refusal::MistakeKind;

/// The most passes of an overwrite.
const PASSES_MAX: u8 = 16;

/// The firmware slots that a drive can have.
const SLOTS: std::ops::RangeInclusive<u8> = 1..=7;

/// The drives that there are, and those that the changes so far add.
pub(super) struct CheckedDrives<'i> {
    inventory: &'i Inventory,
    /// By name.
    added: BTreeMap<String, Added>,
}

/// What is known of a drive before it is there.
struct Added {
    functions: u16,
    /// Whether there is nothing on it. What is in a file or on a block device is found out when it
    /// is opened.
    is_empty: bool,
}

impl From<&NewDrive> for Added {
    fn from(new: &NewDrive) -> Self {
        let functions = new.drive.get("functions").and_then(Value::as_u64).unwrap_or_default();
        let backing = new.drive.get("backing").and_then(Value::as_str).unwrap_or_default();
        let is_empty = backing.starts_with("mem:");
        Self { functions: u16::try_from(functions).unwrap_or(u16::MAX), is_empty }
    }
}

impl<'i> CheckedDrives<'i> {
    pub(super) fn new(inventory: &'i Inventory) -> Self {
        Self { inventory, added: BTreeMap::new() }
    }

    /// What else is wrong with a new drive is found out with the configuration
    /// ([`NewDrive::add_to`]).
    pub(super) fn check_new(&self, new: &NewDrive, out: &mut Mistakes) {
        let name = new.name();
        if self.added.contains_key(name) {
            out.note(MistakeKind::Conflict, &name, "the drive is added twice", "add it once");
        }
    }

    /// The changes that follow find it there.
    pub(super) fn add(&mut self, new: &NewDrive) {
        self.added.insert(new.name().to_owned(), Added::from(new));
    }

    /// The names of the drives that are added by the changes so far.
    pub(super) fn added(&self) -> impl Iterator<Item = &String> {
        self.added.keys()
    }

    /// Whether a drive is added by the changes so far, and if so, whether there is nothing on it.
    pub(super) fn is_added_empty(&self, name: &str) -> Option<bool> {
        self.added.get(name).map(|added| added.is_empty)
    }

    /// The drive as it was before the changes; it need not be there.
    pub(super) fn before(&self, name: &str) -> Option<&'i DriveObject> {
        self.inventory.drive(name)
    }

    /// The drive of this name, as it was before the changes. What is wrong with it is noted: there
    /// is nothing wrong with one that an earlier change adds.
    pub(super) fn drive(&self, name: &str, out: &mut Mistakes) -> Option<&'i DriveObject> {
        let found = self.inventory.drive(name);
        match found {
            None if self.added.contains_key(name) => {}
            None => {
                let names: Vec<&str> = self.inventory.drives.iter().map(|drive| drive.name.as_str()).collect();
                out.missing(name, "drive", &names);
            }
            Some(DriveObject { task: Some(task), .. }) => out.busy(&name, *task),
            Some(_) => {}
        }
        found
    }

    /// Whether there is such a function; what is wrong otherwise is noted.
    pub(super) fn function(&self, name: &FunctionName, out: &mut Mistakes) -> bool {
        let before = out.count();
        let Some(drive) = self.drive(&name.drive, out) else { return self.new_function(name, out) };
        let Some(function) = drive.functions.iter().find(|function| function.name == *name) else {
            let advice = match drive.functions.len() {
                0 => "the drive has no functions: `functions = N` in the configuration makes some".to_owned(),
                count => format!("drive {} has vf1 to vf{count}", drive.name),
            };
            out.note(MistakeKind::NotFound, name, "there is no such function", advice);
            return false;
        };
        if let (Some(task), None) = (function.task, drive.task) {
            out.busy(name, task);
        }
        out.count() == before
    }

    /// The same of a drive that an earlier change adds.
    fn new_function(&self, name: &FunctionName, out: &mut Mistakes) -> bool {
        let Some(added) = self.added.get(&name.drive) else { return false };
        if (1..=added.functions).contains(&name.number) {
            return true;
        }
        let advice = match added.functions {
            0 => "`functions` of the drive that is added makes some".to_owned(),
            count => format!("drive {} will have vf1 to vf{count}", name.drive),
        };
        out.note(MistakeKind::NotFound, name, "there will be no such function", advice);
        false
    }

    /// Whether it has a primary controller to reset.
    pub(super) fn reset(&self, name: &str, out: &mut Mistakes) {
        if let Some(drive) = self.drive(name, out)
            && drive.functions.is_empty()
        {
            let advice = "`functions` of the drive in the configuration makes some";
            let message = "the drive has no functions, and so no primary controller to reset";
            out.note(MistakeKind::Conflict, &name, message, advice);
        }
    }

    /// A drive that is not being sanitized.
    pub(super) fn usable(&self, name: &str, out: &mut Mistakes) -> Option<&'i DriveObject> {
        let before = out.count();
        let drive = self.drive(name, out)?;
        if let Some(percent) = drive.sanitize_percent {
            let message = format!("the drive is being sanitized ({percent} %), and refuses this meanwhile");
            let advice = "wait for the end of that; `ebof target show` says how far it is";
            out.note(MistakeKind::Busy, &name, message, advice);
        }
        Some(drive).filter(|_| out.count() == before)
    }

    /// Whether it is one, there or added by an earlier change; what is wrong otherwise is noted.
    pub(super) fn is_usable(&self, name: &str, out: &mut Mistakes) -> bool {
        let before = out.count();
        let _as_it_was = self.usable(name, out);
        out.count() == before
    }

    pub(super) fn sanitize(&self, wanted: &SanitizeDrive, out: &mut Mistakes) {
        let name = &wanted.drive;
        if let Some(drive) = self.usable(name, out) {
            if wanted.action == SanitizeAction::CryptoErase {
                check_encrypts(name, drive, out);
            }
            let protected = drive.namespaces.iter().find(|namespace| namespace.write_protected);
            if let Some(namespace) = protected.filter(|_| wanted.action != SanitizeAction::ExitFailure) {
                let message = format!("{} is write protected", namespace.name);
                let advice = format!("`ebof target set {} write-protect=off` removes the protection", namespace.name);
                out.note(MistakeKind::Conflict, name, message, advice);
            }
        }
        if let Some(passes) = wanted.passes.filter(|passes| !(1..=PASSES_MAX).contains(passes)) {
            let advice = format!("accepted: 1 to {PASSES_MAX}");
            out.note(MistakeKind::Value, name, format!("{passes} passes"), advice);
        }
        let of_overwrite = wanted.passes.is_some() || wanted.pattern.is_some() || wanted.invert;
        if of_overwrite && wanted.action != SanitizeAction::Overwrite {
            let message = format!("passes and patterns are for overwrite, not for {}", wanted.action.name());
            out.note(MistakeKind::Value, name, message, "leave them out, or overwrite");
        }
    }

    pub(super) fn self_test(&self, name: &str, kind: SelfTestKind, out: &mut Mistakes) {
        let Some(drive) = self.usable(name, out) else { return };
        if let (Some(percent), false) = (drive.self_test_percent, kind == SelfTestKind::Abort) {
            let message = format!("the drive is testing itself ({percent} %)");
            let advice = format!("wait for its end, or end it: `ebof target self-test {name} --abort`");
            out.note(MistakeKind::Busy, &name, message, advice);
        }
    }

    pub(super) fn firmware(&self, drive: &str, slot: Option<u8>, out: &mut Mistakes) {
        self.drive(drive, out);
        if let Some(slot) = slot.filter(|slot| !SLOTS.contains(slot)) {
            let advice = format!("accepted: {} to {}", SLOTS.start(), SLOTS.end());
            out.note(MistakeKind::Value, &drive, format!("firmware slot {slot}"), advice);
        }
    }
}

/// A key can be destroyed only where there is one.
pub(super) fn check_encrypts(object: &dyn fmt::Display, drive: &DriveObject, out: &mut Mistakes) {
    if !drive.encrypts {
        let advice =
            "erase it in another way; `encryption = true` of the drive in the configuration encrypts what is new";
        out.note(MistakeKind::Conflict, object, "the drive is not encrypted, and has no keys to destroy", advice);
    }
}
