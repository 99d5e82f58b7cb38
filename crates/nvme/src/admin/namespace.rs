//! Namespace Management and Namespace Attachment: the dwords of the commands and the data structure
//! of a host that wants a namespace. What a controller makes of them is decided elsewhere.
//!
//! NVMe Base 2.1, "Namespace Management command", "Namespace Attachment command"; NVM Command Set
//! 1.1, "Namespace Management command".

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::Sqe;
use crate::command::opcode::admin;
use crate::identify::Csi;
use crate::name::id::Nsid;
use crate::table::values;

/// Namespace Management, dwords 1, 10 and 11. NSID names the namespace to delete (FFFFFFFFh all of
/// them) and is 0 where one is created; the identifier of the new namespace comes back in dword 0
/// of the completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceManagement {
    /// Select (SEL): what is to be done.
    pub select: ManagementSelect,
    /// Command Set Identifier (CSI) of the namespace that is created; reserved for delete.
    pub csi: Csi,
}

impl NamespaceManagement {
    /// From dwords 10 and 11; reserved bits are ignored.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let [sel, ..] = sqe.cdw10.to_bytes();
        let [_, _, _, csi] = sqe.cdw11.to_bytes();
        Self { select: ManagementSelect::decode(sel), csi: Csi(csi) }
    }

    /// The command about `nsid`.
    #[must_use]
    pub fn encode(self, nsid: Nsid) -> Sqe {
        Sqe::new(admin::NAMESPACE_MANAGEMENT)
            .with_nsid(nsid)
            .with_cdw(10, u32::from(self.select.encode()))
            .with_cdw(11, u32::from(self.csi.0) << 24)
    }
}

values! {
    /// Select (SEL) of Namespace Management.
    pub enum ManagementSelect, 4 bits {
        /// Create; the data is a `NewNamespace`.
        Create = 0;
        /// Delete; without data.
        Delete = 1;
    }
}

/// Host Software Specified Fields of Namespace Management, Create: 4096 bytes at the places of
/// Identify Namespace. NVMe Base 2.1, "Namespace Management - Host Software Specified Fields"; NVM
/// Command Set 1.1, figure of that name.
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NewNamespace {
    /// Namespace Size, blocks.
    pub nsze: U64,
    /// Namespace Capacity, blocks; below NSZE for thin provisioning.
    pub ncap: U64,
    /// Reserved.
    pub rsvd16: [u8; 10],
    /// Formatted LBA Size, as in Identify Namespace: `format_index`, `metadata_extended`.
    pub flbas: u8,
    /// Reserved.
    pub rsvd27: [u8; 2],
    /// End-to-end Data Protection Type Settings: `identify::field::dps`.
    pub dps: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities: `identify::field::nmic`.
    pub nmic: u8,
    /// Reserved.
    pub rsvd31: [u8; 61],
    /// ANA Group Identifier; 0 leaves it to the controller.
    pub anagrpid: U32,
    /// Reserved.
    pub rsvd96: [u8; 4],
    /// NVM Set Identifier; 0 leaves it to the controller.
    pub nvmsetid: U16,
    /// Endurance Group Identifier; 0 leaves it to the controller.
    pub endgid: U16,
    /// Reserved.
    pub rsvd104: [u8; 280],
    /// Logical Block Storage Tag Mask.
    pub lbstm: U64,
    /// Number of Placement Handles.
    pub nphndls: U16,
    /// Reserved.
    pub rsvd394: [u8; 105],
    /// Fields of I/O command sets that extend the NVM command set; zeros for itself.
    pub iocs: [u8; 13],
    /// Placement Handle Associated Reclaim Unit Handles.
    pub phndl: [U16; 128],
    /// Reserved.
    pub rsvd768: [u8; 3328],
}

const _: () = assert!(size_of::<NewNamespace>() == 4096);

impl NewNamespace {
    /// A namespace of `blocks` blocks, all of them backed by capacity, in format 0, private.
    #[must_use]
    pub fn new(blocks: u64) -> Self {
        Self { nsze: blocks.into(), ncap: blocks.into(), ..Self::default() }
    }

    /// The LBA format wanted, 0 to 63, as if the host knew more than 16 of them.
    #[must_use]
    pub const fn format_index(&self) -> u8 {
        (self.flbas & 0x0f) | (self.flbas >> 1 & 0x30)
    }

    /// Sets FLBAS to format `index` (modulo 64), with metadata at the end of each block if
    /// `extended`.
    pub fn set_format(&mut self, index: u8, extended: bool) {
        self.flbas = (index & 0x0f) | (index & 0x30) << 1 | u8::from(extended) << 4;
    }

    /// Whether metadata is to be transferred at the end of each block.
    #[must_use]
    pub const fn metadata_extended(&self) -> bool {
        self.flbas & 0x10 != 0
    }

    /// Whether less capacity than size is asked for.
    #[must_use]
    pub fn is_thin(&self) -> bool {
        self.ncap.get() < self.nsze.get()
    }
}

impl Default for NewNamespace {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

/// Select (SEL) of Namespace Attachment, dword 10 bits 3:0. The data is a `ControllerList`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachmentSelect {
    /// 0: attach to the controllers of the list.
    Attach,
    /// 1: detach from them.
    Detach,
    /// 2 to 15: what no specification names yet.
    Reserved(u8),
}

impl AttachmentSelect {
    /// From dword 10; reserved bits are ignored.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        match sqe.cdw10.to_bytes()[0] & 0x0f {
            0 => Self::Attach,
            1 => Self::Detach,
            reserved => Self::Reserved(reserved),
        }
    }

    /// The command about `nsid`; FFFFFFFFh with detach is every namespace.
    #[must_use]
    pub fn encode(self, nsid: Nsid) -> Sqe {
        let sel = match self {
            Self::Attach => 0,
            Self::Detach => 1,
            Self::Reserved(reserved) => u32::from(reserved & 0x0f),
        };
        Sqe::new(admin::NAMESPACE_ATTACHMENT).with_nsid(nsid).with_cdw(10, sel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;
    use proptest::prelude::*;

    #[test]
    fn the_commands_have_the_layout_of_the_specification() {
        let create = NamespaceManagement { select: ManagementSelect::Create, csi: Csi::ZONED };
        let sqe = create.encode(Nsid::NONE);
        assert_eq!((sqe.opcode, sqe.nsid(), sqe.cdw10.get(), sqe.cdw11.get()), (0x0d, Nsid(0), 0, 0x0200_0000));
        assert_eq!(NamespaceManagement::decode(&sqe), create);
        let delete = NamespaceManagement { select: ManagementSelect::Delete, csi: Csi::NVM };
        assert_eq!(delete.encode(Nsid(5)).cdw10.get(), 1);
        let detach = AttachmentSelect::Detach.encode(Nsid(3));
        assert_eq!((detach.opcode, detach.nsid(), detach.cdw10.get()), (0x15, Nsid(3), 1));
        assert_eq!(AttachmentSelect::decode(&detach), AttachmentSelect::Detach);
    }

    #[test]
    fn the_host_data_have_identify_namespaces_offsets() {
        assert_eq!(offset_of!(NewNamespace, flbas), 26);
        assert_eq!(offset_of!(NewNamespace, dps), 29);
        assert_eq!(offset_of!(NewNamespace, anagrpid), 92);
        assert_eq!(offset_of!(NewNamespace, nvmsetid), 100);
        assert_eq!(offset_of!(NewNamespace, endgid), 102);
        assert_eq!(offset_of!(NewNamespace, lbstm), 384);
        assert_eq!(offset_of!(NewNamespace, iocs), 499);
        assert_eq!(offset_of!(NewNamespace, phndl), 512);
        let mut new = NewNamespace::new(0x100);
        assert!(!new.is_thin());
        new.ncap.set(0x80);
        new.set_format(17, true);
        assert!(new.is_thin() && new.metadata_extended());
        assert_eq!((new.flbas, new.format_index()), (0x31, 17));
    }

    proptest! {
        #[test]
        fn any_dword_decodes_and_its_defined_bits_round_trip(cdw10 in any::<u32>(), cdw11 in any::<u32>()) {
            let sqe = Sqe::new(admin::NAMESPACE_MANAGEMENT).with_cdw(10, cdw10).with_cdw(11, cdw11);
            let again = NamespaceManagement::decode(&sqe).encode(Nsid(1));
            prop_assert_eq!((again.cdw10.get(), again.cdw11.get()), (cdw10 & 0x0f, cdw11 & 0xff00_0000));
            prop_assert_eq!(AttachmentSelect::decode(&sqe).encode(Nsid(1)).cdw10.get(), cdw10 & 0x0f);
        }
    }
}
