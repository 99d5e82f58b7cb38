//! Firmware of a drive: its slots, the running image, and how a host downloads, commits and
//! activates another one.
//!
//! An image contains no code: it gives the drive another revision and another [`Personality`]. The
//! format of images is in `image`, the download of their pieces in `download`.
//!
//! NVMe Base 2.1, "Firmware Update Process", "Firmware Commit command", "Firmware Slot
//! Information".

mod download;
mod image;
#[cfg(test)]
mod tests;

use alloc::collections::BTreeMap;
use alloc::string::String;

use ebof_nvme::Status;
use ebof_nvme::firmware::{Commit, CommitAction};
use ebof_nvme::log::FirmwareSlots;
use serde::{Deserialize, Serialize};

pub use download::Download;
pub use image::{Image, ImageError, Personality};

use crate::request::Refusal;

/// Bytes of an image at most.
pub const IMAGE_BYTES_MAX: usize = 1 << 20;

/// The product that images for drives are made for.
pub const PRODUCT: &str = "ebof-drive";

/// FWUG in bytes: offset and length of every piece of an image are multiples of it.
pub const GRANULARITY_BYTES: usize = 4096;

/// Slots that a drive can have at most.
pub const SLOTS_MAX: u8 = 7;

/// The firmware slots of a drive, and the running image.
///
/// As long as slot 1 was never written, it contains the built-in image ([`Limits::builtin`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Firmware {
    /// The contents of slots that were committed to.
    slots: BTreeMap<u8, Content>,
    /// The slot that the running image came from.
    active: u8,
    /// The running image, if its slot was overwritten since.
    running: Option<Content>,
    /// The slot that is activated at the next reset.
    next: Option<u8>,
    /// The slot that was written last, 0 for none.
    written: u8,
}

/// The contents of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Content {
    /// Firmware Revision, 1 to 8 characters of ASCII.
    pub revision: String,
    /// How the drive behaves while it runs.
    pub personality: Personality,
}

/// What the drive's profile and the program define.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Slots, 1 to [`SLOTS_MAX`].
    pub slots: u8,
    /// Slot 1 cannot be written.
    pub slot_1_read_only: bool,
    /// The product that images must be made for.
    pub product: String,
    /// The built-in image.
    pub builtin: Content,
}

/// The result of a Firmware Commit that is not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The new state.
    pub next: Firmware,
    /// Success, or Firmware Activation Requires Controller Level Reset: the image is in its slot,
    /// and waits.
    pub status: Status,
    /// Dword 0 of the completion: Multiple Update Detected.
    pub dword0: u32,
    /// Another image runs from now on.
    pub activated: bool,
    /// The slot that was used.
    pub slot: u8,
    /// Revision of the image concerned.
    pub revision: String,
}

impl Firmware {
    /// Decides on a Firmware Commit. The download ends with it, also if it is refused:
    /// [`Download::finish`].
    ///
    /// # Errors
    /// Invalid Firmware Slot, Invalid Firmware Image, Command Sequence Error, Invalid Field in
    /// Command.
    pub fn commit(&self, download: &Download, commit: &Commit, limits: &Limits) -> Result<Done, Refusal> {
        let writes = match commit.action {
            CommitAction::Replace | CommitAction::ReplaceAndActivate => true,
            CommitAction::Activate => false,
            CommitAction::ActivateNow => !download.is_empty(),
            // There are no boot partitions.
            CommitAction::ReplaceBootPartition | CommitAction::ActivateBootPartition | CommitAction::Reserved(_) => {
                return Err(Refusal::at(Status::INVALID_FIELD, COMMIT_BYTE));
            }
        };
        let slot = if commit.slot == 0 { self.choose(writes, limits) } else { commit.slot };
        if slot > limits.slots || writes && slot == 1 && limits.slot_1_read_only {
            return Err(Refusal::at(Status::INVALID_FIRMWARE_SLOT, COMMIT_BYTE));
        }
        // The running image would be lost at the next power loss without anything being activated.
        if commit.action == CommitAction::Replace && slot == self.active && limits.slots > 1 {
            return Err(Refusal::new(Status::COMMAND_SEQUENCE_ERROR));
        }
        let content = if writes {
            self.downloaded(download, limits)?
        } else {
            self.content(slot, limits).cloned().ok_or(INVALID_IMAGE)?
        };
        let revision = content.revision.clone();
        let mut next = self.clone();
        let mut status = Status::SUCCESS;
        let mut activated = false;
        match commit.action {
            CommitAction::Replace => {}
            CommitAction::ActivateNow if content.personality.needs_reset_from(&self.running(limits).personality) => {
                status = Status::FIRMWARE_NEEDS_RESET;
                next.next = Some(slot);
            }
            CommitAction::ActivateNow => activated = true,
            _ => next.next = Some(slot),
        }
        if writes {
            next.write(slot, content, limits);
        }
        if activated {
            next.active = slot;
            next.running = None;
            next.next = None;
        }
        Ok(Done { next, status, dword0: download.overlap(), activated, slot, revision })
    }

    /// The state after a reset, if the reset activates another image; all controllers share it. A
    /// power loss is a reset.
    #[must_use]
    pub fn at_reset(&self, limits: &Limits) -> Option<Self> {
        let active = self.next.unwrap_or(self.active);
        let loadable = active <= limits.slots && self.content(active, limits).is_some();
        // If the image cannot be loaded, the running or the built-in one stays.
        let active = if loadable { active } else { self.active.min(limits.slots) };
        let after = Self { active, running: None, next: None, ..self.clone() };
        (after != *self).then_some(after)
    }

    /// The running image: its revision is FR of Identify Controller.
    #[must_use]
    pub fn running<'a>(&'a self, limits: &'a Limits) -> &'a Content {
        self.running.as_ref().or_else(|| self.content(self.active, limits)).unwrap_or(&limits.builtin)
    }

    /// The slot that the running image came from.
    #[must_use]
    pub fn active_slot(&self) -> u8 {
        self.active
    }

    /// The slot that is activated at the next reset.
    #[must_use]
    pub fn pending_slot(&self) -> Option<u8> {
        // Overwriting the active slot is a pending activation, too (Base, "Firmware Update
        // Process").
        self.next.or_else(|| self.running.as_ref().map(|_| self.active))
    }

    /// Firmware Slot Information.
    #[must_use]
    pub fn page(&self, limits: &Limits) -> FirmwareSlots {
        let mut page = FirmwareSlots::default();
        page.set_slots(self.active, self.pending_slot().unwrap_or(0));
        for slot in 1..=limits.slots.min(SLOTS_MAX) {
            if let Some(content) = self.content(slot, limits) {
                page.set_revision(slot, &content.revision);
            }
        }
        page
    }

    fn content<'a>(&'a self, slot: u8, limits: &'a Limits) -> Option<&'a Content> {
        self.slots.get(&slot).or((slot == 1).then_some(&limits.builtin))
    }

    /// The slot if the host leaves it to the drive: to write, an empty one, else one that is
    /// neither active nor pending; to activate, the one that was written last.
    fn choose(&self, writes: bool, limits: &Limits) -> u8 {
        if !writes {
            return if self.written == 0 { self.active } else { self.written };
        }
        let writable = || (1..=limits.slots).filter(|&slot| slot != 1 || !limits.slot_1_read_only);
        let empty = || writable().find(|&slot| self.content(slot, limits).is_none());
        let spare = || writable().find(|&slot| slot != self.active && self.next != Some(slot));
        empty().or_else(spare).or_else(|| writable().next_back()).unwrap_or(1)
    }

    fn downloaded(&self, download: &Download, limits: &Limits) -> Result<Content, Refusal> {
        let image = download.image().ok_or(INVALID_IMAGE)?;
        let image = Image::decode(image).map_err(|_| INVALID_IMAGE)?;
        if image.product != limits.product {
            return Err(INVALID_IMAGE);
        }
        Ok(Content { revision: image.revision, personality: image.personality })
    }

    fn write(&mut self, slot: u8, content: Content, limits: &Limits) {
        if slot == self.active && self.running.is_none() {
            self.running = Some(self.running(limits).clone());
        }
        self.slots.insert(slot, content);
        self.written = slot;
    }
}

impl Default for Firmware {
    fn default() -> Self {
        Self { slots: BTreeMap::new(), active: 1, running: None, next: None, written: 0 }
    }
}

impl Limits {
    /// FRMW of Identify Controller: slot 1 read only, number of slots, activation without a reset,
    /// detection of several updates.
    #[must_use]
    pub fn frmw(&self) -> u8 {
        u8::from(self.slot_1_read_only) | (self.slots & 7) << 1 | 1 << 4 | 1 << 5
    }
}

const INVALID_IMAGE: Refusal = Refusal::new(Status::INVALID_FIRMWARE_IMAGE);

/// Offset of dword 10 in Firmware Commit.
const COMMIT_BYTE: u8 = 40;
