//! Cross-Controller Reset: which instance of a controller is meant, the dwords of the command, and
//! what its completion says. Its log page is in `log`; whom a controller resets, and when that is
//! done, is decided elsewhere.
//!
//! NVMe Base 2.3, "Cross-Controller Reset command" (TP8028).

use super::{Cqe, Sqe};
use crate::id::ControllerId;
use crate::opcode::admin;

/// One of the controllers that have had an identifier, one after the other: what a host that wants
/// it reset has to know, so that it does not hit its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ControllerInstance {
    /// Controller ID (CNTLID); as the one that is to be reset the Impacted Controller ID (ICID).
    pub id: ControllerId,
    /// Controller Instance Uniquifier (CIU).
    pub uniquifier: u8,
    /// Controller Instance Random Number (CIRN).
    pub random: u64,
}

impl ControllerInstance {
    /// Whom Cross-Controller Reset is about: dwords 10, 12 and 13; reserved bits are ignored.
    #[must_use]
    pub fn decode(sqe: &Sqe) -> Self {
        let [low, high, uniquifier, _] = sqe.cdw10.to_bytes();
        let random = u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32;
        Self { id: ControllerId(u16::from_le_bytes([low, high])), uniquifier, random }
    }

    /// The command that asks another controller of the subsystem to reset this one. It has no data,
    /// and no namespace. `is_reset_at_once` tells what its successful completion means.
    #[must_use]
    pub fn reset_command(self) -> Sqe {
        let [low, high] = self.id.0.to_le_bytes();
        let [a, b, c, d, e, f, g, h] = self.random.to_le_bytes();
        Sqe::new(admin::CROSS_CONTROLLER_RESET)
            .with_cdw(10, u32::from_le_bytes([low, high, self.uniquifier, 0]))
            .with_cdw(12, u32::from_le_bytes([a, b, c, d]))
            .with_cdw(13, u32::from_le_bytes([e, f, g, h]))
    }
}

/// Dword 0 of a successful completion: Immediate Reset Successful (IRS). The controller is reset,
/// and none of its commands is executed any more.
pub const IMMEDIATE_RESET: u32 = 1 << 0;

/// Whether a successful completion says that the reset is done; otherwise it has been accepted, and
/// the log page will say how it went.
#[must_use]
pub fn is_reset_at_once(cqe: &Cqe) -> bool {
    cqe.dw0.get() & IMMEDIATE_RESET != 0
}
