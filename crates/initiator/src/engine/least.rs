//! How much data a success has to come with, for the commands that say so. Knows opcodes, and
//! nothing of connections.

use ebof_nvme::Sqe;
use ebof_nvme::log::{GetLogPage, Lid};
use ebof_nvme::opcode::{admin, nvm};

/// Bytes of `length` that have to be transferred for success; the rest of a buffer would be taken
/// for what the controller said.
#[inline]
pub(super) fn least(strict: bool, sqe: &Sqe, length: u32, to_host: bool) -> u32 {
    if !strict {
        return least_of_admin(sqe, length, to_host);
    }
    // A report is as long as there are registrants, whatever its buffer would hold.
    if sqe.opcode == nvm::RESERVATION_REPORT { 0 } else { length }
}

#[cold]
fn least_of_admin(sqe: &Sqe, length: u32, to_host: bool) -> u32 {
    const VENDOR: u8 = 0xc0;
    match sqe.opcode {
        _ if !to_host => 0,
        // Actions on its reporting context come in Get Log Page too, and have no data.
        admin::GET_LOG_PAGE if GetLogPage::decode(sqe).lid == Lid::PERSISTENT_EVENT => 0,
        admin::IDENTIFY | admin::GET_LOG_PAGE => length,
        // What these have to say may be shorter than the room for it.
        opcode if opcode >= VENDOR || sqe.fctype().is_some() => 0,
        _ => length.min(1),
    }
}
