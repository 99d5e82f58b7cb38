//! Get Log Page: its dwords, and what the Log Specific Parameter of the log pages says.

use crate::command::Sqe;
use crate::command::opcode::admin;
use crate::identify::Csi;
use crate::log::Lid;
use crate::name::id::Nsid;

/// Get Log Page, dwords 10 to 14. NVMe Base 2.1, section of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetLogPage {
    /// Which log page.
    pub lid: Lid,
    /// Log Specific Parameter (LSP), 0 to 127.
    pub lsp: u8,
    /// Retain Asynchronous Event (RAE): reading does not clear the event.
    pub retain_event: bool,
    /// Number of Dwords (NUMD), in bytes: 4 to 2^34.
    pub bytes: u64,
    /// Log Specific Identifier (LSI), of the Endurance Group Information its group.
    pub lsi: u16,
    /// Log Page Offset (LPO), bytes, or entries where `index_offset`. Its two low bits are 0, or
    /// the command is refused.
    pub offset: u64,
    /// Offset Type (OT): `offset` counts entries.
    pub index_offset: bool,
    /// UUID Index, 0 to 127; 0 is none.
    pub uuid_index: u8,
    /// Command Set Identifier (CSI).
    pub csi: Csi,
}

impl GetLogPage {
    /// The first `bytes` of `lid`, which clears its event.
    #[must_use]
    pub const fn new(lid: Lid, bytes: u64) -> Self {
        Self {
            lid,
            lsp: 0,
            retain_event: false,
            bytes,
            lsi: 0,
            offset: 0,
            index_offset: false,
            uuid_index: 0,
            csi: Csi::NVM,
        }
    }

    /// From dwords 10 to 14; reserved bits are ignored.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let [lid, lsp, numdl @ ..] = sqe.cdw10.to_bytes();
        let [numdu_low, numdu_high, lsi @ ..] = sqe.cdw11.to_bytes();
        let numd = u32::from_le_bytes([numdl[0], numdl[1], numdu_low, numdu_high]);
        let [uuid_index, _, kind, csi] = sqe.cdw14.to_bytes();
        Self {
            lid: Lid(lid),
            lsp: lsp & 0x7f,
            retain_event: lsp & 0x80 != 0,
            bytes: (u64::from(numd) + 1) * 4,
            lsi: u16::from_le_bytes(lsi),
            offset: u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32,
            index_offset: kind & 0x80 != 0,
            uuid_index: uuid_index & 0x7f,
            csi: Csi(csi),
        }
    }

    /// The command for `nsid`; `bytes` is rounded down to dwords and cut to what the field holds.
    #[must_use]
    pub fn encode(self, nsid: Nsid) -> Sqe {
        let numd = u32::try_from((self.bytes / 4).saturating_sub(1)).unwrap_or(u32::MAX).to_le_bytes();
        let lsp = self.lsp & 0x7f | u8::from(self.retain_event) << 7;
        let lsi = self.lsi.to_le_bytes();
        let [a, b, c, d, e, f, g, h] = self.offset.to_le_bytes();
        Sqe::new(admin::GET_LOG_PAGE)
            .with_nsid(nsid)
            .with_cdw(10, u32::from_le_bytes([self.lid.0, lsp, numd[0], numd[1]]))
            .with_cdw(11, u32::from_le_bytes([numd[2], numd[3], lsi[0], lsi[1]]))
            .with_cdw(12, u32::from_le_bytes([a, b, c, d]))
            .with_cdw(13, u32::from_le_bytes([e, f, g, h]))
            .with_cdw(14, u32::from_le_bytes([self.uuid_index & 0x7f, 0, u8::from(self.index_offset) << 7, self.csi.0]))
    }
}

/// LSP of Telemetry Host-Initiated (07h).
pub mod telemetry_lsp {
    /// Create Telemetry Host-Initiated Data: capture the state of the controller anew.
    pub const CREATE: u8 = 1 << 0;
    /// Where the Maximum Created Data Area (MCDA, three bits) begins; 0 leaves it to the
    /// controller.
    pub const AREA_SHIFT: u32 = 1;
}

/// LSP of the Persistent Event Log (0Dh), bits 1:0: the Action.
pub mod persistent_event_lsp {
    /// Mask of the action.
    pub const ACTION_MASK: u8 = 3;
    /// Read from the reporting context that is there.
    pub const READ: u8 = 0;
    /// Establish a reporting context, and read.
    pub const ESTABLISH: u8 = 1;
    /// Release the reporting context; nothing is read.
    pub const RELEASE: u8 = 2;
    /// Establish a reporting context and read the header, which has the generation number.
    pub const ESTABLISH_HEADER: u8 = 3;
}

/// LSP of Asymmetric Namespace Access (0Ch).
pub mod ana_lsp {
    /// Return Groups Only (RGO): descriptors without their namespaces.
    pub const GROUPS_ONLY: u8 = 1 << 0;
}

/// LSP of Cross-Controller Reset (1Eh).
pub mod cross_controller_reset_lsp {
    /// Remove Completed (RMC): entries that this reading has returned are removed, except those of
    /// resets that are in progress.
    pub const REMOVE_COMPLETED: u8 = 1 << 0;
}
