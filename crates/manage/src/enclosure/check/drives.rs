//! The checks of what a whole drive does: sanitizing, testing itself, taking firmware.

use std::fmt;

use super::Checks;
use crate::enclosure::drive_change::{SanitizeAction, SanitizeDrive, SelfTestKind};
use crate::enclosure::inventory::DriveObject;
use crate::enclosure::refusal::MistakeKind;

/// The most passes of an overwrite.
const PASSES_MAX: u8 = 16;

/// The firmware slots that a drive can have.
const SLOTS: std::ops::RangeInclusive<u8> = 1..=7;

impl<'i> Checks<'i> {
    /// A drive that is not being sanitized.
    pub(super) fn usable(&mut self, name: &str) -> Option<&'i DriveObject> {
        let before = self.mistakes.len();
        let drive = self.drive(name)?;
        if let Some(percent) = drive.sanitize_percent {
            let message = format!("the drive is being sanitized ({percent} %), and refuses this meanwhile");
            let advice = "wait for the end of that; `ebof target show` says how far it is";
            self.mistake(MistakeKind::Busy, &name, message, advice);
        }
        Some(drive).filter(|_| self.mistakes.len() == before)
    }

    /// Whether it is one, there or added by an earlier change; what is wrong otherwise is noted.
    pub(super) fn is_usable(&mut self, name: &str) -> bool {
        let before = self.mistakes.len();
        let _as_it_was = self.usable(name);
        self.mistakes.len() == before
    }

    /// A key can be destroyed only where there is one.
    pub(super) fn encrypts(&mut self, object: &dyn fmt::Display, drive: &DriveObject) {
        if !drive.encrypts {
            let advice =
                "erase it in another way; `encryption = true` of the drive in the configuration encrypts what is new";
            self.mistake(
                MistakeKind::Conflict,
                object,
                "the drive is not encrypted, and has no keys to destroy",
                advice,
            );
        }
    }

    pub(super) fn sanitize(&mut self, wanted: &SanitizeDrive) {
        let name = &wanted.drive;
        if let Some(drive) = self.usable(name) {
            if wanted.action == SanitizeAction::CryptoErase {
                self.encrypts(name, drive);
            }
            let protected = drive.namespaces.iter().find(|namespace| namespace.write_protected);
            if let Some(namespace) = protected.filter(|_| wanted.action != SanitizeAction::ExitFailure) {
                let message = format!("{} is write protected", namespace.name);
                let advice = format!("`ebof target set {} write-protect=off` removes the protection", namespace.name);
                self.mistake(MistakeKind::Conflict, name, message, advice);
            }
        }
        if let Some(passes) = wanted.passes.filter(|passes| !(1..=PASSES_MAX).contains(passes)) {
            let advice = format!("accepted: 1 to {PASSES_MAX}");
            self.mistake(MistakeKind::Value, name, format!("{passes} passes"), advice);
        }
        let of_overwrite = wanted.passes.is_some() || wanted.pattern.is_some() || wanted.invert;
        if of_overwrite && wanted.action != SanitizeAction::Overwrite {
            let message = format!("passes and patterns are for overwrite, not for {}", wanted.action.name());
            self.mistake(MistakeKind::Value, name, message, "leave them out, or overwrite");
        }
    }

    pub(super) fn self_test(&mut self, name: &str, kind: SelfTestKind) {
        let Some(drive) = self.usable(name) else { return };
        if let (Some(percent), false) = (drive.self_test_percent, kind == SelfTestKind::Abort) {
            let message = format!("the drive is testing itself ({percent} %)");
            let advice = format!("wait for its end, or end it: `ebof target self-test {name} --abort`");
            self.mistake(MistakeKind::Busy, &name, message, advice);
        }
    }

    pub(super) fn firmware(&mut self, drive: &str, slot: Option<u8>) {
        self.drive(drive);
        if let Some(slot) = slot.filter(|slot| !SLOTS.contains(slot)) {
            let advice = format!("accepted: {} to {}", SLOTS.start(), SLOTS.end());
            self.mistake(MistakeKind::Value, &drive, format!("firmware slot {slot}"), advice);
        }
    }
}
