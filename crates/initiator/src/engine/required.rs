//! How many bytes a successful command has to transfer, by opcode. Knows nothing of connections.

use ebof_nvme::Sqe;
use ebof_nvme::log::{GetLogPage, Lid};
use ebof_nvme::opcode::{admin, nvm};

/// Bytes of `length` that have to be transferred for success. With fewer, the caller would take the
/// previous contents of its buffer for the controller's data.
#[inline]
pub(super) fn required_bytes(strict: bool, sqe: &Sqe, length: u32, to_host: bool) -> u32 {
    if !strict {
        return required_by_admin(sqe, length, to_host);
    }
    // The length of a report depends on the number of registrants.
    if sqe.opcode == nvm::RESERVATION_REPORT { 0 } else { length }
}

#[cold]
fn required_by_admin(sqe: &Sqe, length: u32, to_host: bool) -> u32 {
    const VENDOR: u8 = 0xc0;
    match sqe.opcode {
        _ if !to_host => 0,
        // Get Log Page also carries actions on the reporting context, which have no data.
        admin::GET_LOG_PAGE if GetLogPage::decode(sqe).lid == Lid::PERSISTENT_EVENT => 0,
        admin::IDENTIFY | admin::GET_LOG_PAGE => length,
        // Answers to these may be shorter than the buffer.
        opcode if opcode >= VENDOR || sqe.fctype().is_some() => 0,
        _ => length.min(1),
    }
}
