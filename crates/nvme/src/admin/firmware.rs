//! Firmware Image Download and Firmware Commit: their dwords. What an image is, the controller
//! knows.
//!
//! NVMe Base 2.1, "Firmware Commit command", "Firmware Image Download command".

use crate::command::Sqe;
use crate::command::opcode::admin;
use crate::table::values;

/// Firmware Image Download, dwords 10 and 11: which piece of the image the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    /// Offset (OFST) in bytes, a multiple of 4 below 2^34.
    pub offset: u64,
    /// Length (NUMD) in bytes, a multiple of 4 from 4 to 2^34.
    pub bytes: u64,
}

impl Download {
    /// From dwords 10 and 11.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        Self { offset: u64::from(sqe.cdw11.get()) * 4, bytes: (u64::from(sqe.cdw10.get()) + 1) * 4 }
    }

    /// The command; both numbers are rounded down to dwords and cut to what the fields hold.
    #[must_use]
    pub fn encode(self) -> Sqe {
        let dwords = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        Sqe::new(admin::FIRMWARE_DOWNLOAD)
            .with_cdw(10, dwords((self.bytes / 4).saturating_sub(1)))
            .with_cdw(11, dwords(self.offset / 4))
    }
}

/// Firmware Commit, dword 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Commit Action (CA).
    pub action: CommitAction,
    /// Firmware Slot (FS), 1 to 7; 0 leaves it to the controller.
    pub slot: u8,
    /// Boot Partition ID (BPID), 0 or 1.
    pub boot_partition: u8,
}

impl Commit {
    /// From dword 10; reserved bits are ignored.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let [low, _, _, high] = sqe.cdw10.to_bytes();
        Self { action: CommitAction::decode(low >> 3), slot: low & 7, boot_partition: high >> 7 }
    }

    /// The command; `slot` is taken modulo 8, `boot_partition` modulo 2.
    #[must_use]
    pub fn encode(self) -> Sqe {
        let low = self.slot & 7 | self.action.encode() << 3;
        let cdw10 = u32::from_le_bytes([low, 0, 0, self.boot_partition << 7]);
        Sqe::new(admin::FIRMWARE_COMMIT).with_cdw(10, cdw10)
    }
}

values! {
    /// Commit Action (CA).
    pub enum CommitAction, 3 bits {
        /// The downloaded image goes into the slot and is not activated.
        Replace = 0, "replace the image in the slot, without activating it";
        /// The downloaded image goes into the slot and is activated at the next reset.
        ReplaceAndActivate = 1, "replace the image in the slot, activate it at the next reset";
        /// The image in the slot is activated at the next reset.
        Activate = 2, "activate the slot at the next reset";
        /// The image in the slot, replaced by a downloaded one if there is one, is activated at
        /// once.
        ActivateNow = 3, "activate the slot at once";
        /// The downloaded image replaces the boot partition.
        ReplaceBootPartition = 6, "replace the boot partition";
        /// The boot partition becomes the active one.
        ActivateBootPartition = 7, "activate the boot partition";
    }
}

/// Dword 0 of the completion of Firmware Commit: Multiple Update Detected, where FRMW announces it.
pub mod multiple_update {
    /// The image overlapped one that another host downloaded through an Admin queue.
    pub const FIRMWARE_ADMIN: u32 = 1 << 0;
    /// The image overlapped one that came through a Management Endpoint.
    pub const FIRMWARE_MANAGEMENT: u32 = 1 << 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_commands_have_the_layout_of_the_specification() {
        let piece = Download { offset: 0x2000, bytes: 0x1000 };
        let sqe = piece.encode();
        assert_eq!((sqe.opcode, sqe.cdw10.get(), sqe.cdw11.get()), (0x11, 0x3ff, 0x800));
        assert_eq!(Download::decode(&sqe), piece);
        assert_eq!(Download { offset: 3, bytes: 3 }.encode().cdw10.get(), 0);
        assert_eq!(Download { offset: u64::MAX, bytes: u64::MAX }.encode().cdw11.get(), u32::MAX);
        let commit = Commit { action: CommitAction::ActivateNow, slot: 2, boot_partition: 1 };
        let sqe = commit.encode();
        assert_eq!((sqe.opcode, sqe.cdw10.get()), (0x10, 0x8000_001a));
        assert_eq!(Commit::decode(&sqe), commit);
    }

    proptest! {
        #[test]
        fn any_dword_decodes_and_its_defined_bits_round_trip(cdw10 in any::<u32>(), cdw11 in any::<u32>()) {
            let sqe = Sqe::new(0).with_cdw(10, cdw10).with_cdw(11, cdw11);
            prop_assert_eq!(Commit::decode(&sqe).encode().cdw10.get(), cdw10 & 0x8000_003f);
            let again = Download::decode(&sqe).encode();
            prop_assert_eq!((again.cdw10.get(), again.cdw11.get()), (cdw10, cdw11));
        }
    }
}
