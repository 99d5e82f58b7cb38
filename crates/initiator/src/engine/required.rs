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

#[cfg(test)]
mod tests {
    use ebof_nvme::connect::Property;

    use super::*;

    /// A success with fewer is none: what was in the buffer before is not what the controller says.
    #[test]
    fn data_are_required_where_answers_have_a_length() {
        let log = |lid: Lid| Sqe::new(admin::GET_LOG_PAGE).with_cdw(10, u32::from(lid.0) | 127 << 16);
        for (strict, sqe, to_host, required) in [
            (true, Sqe::new(nvm::READ), true, 512),
            (true, Sqe::new(nvm::WRITE), false, 512),
            (true, Sqe::new(nvm::RESERVATION_REPORT), true, 0),
            (false, Sqe::new(admin::IDENTIFY), true, 512),
            (false, log(Lid::SMART_HEALTH), true, 512),
            (false, log(Lid::PERSISTENT_EVENT), true, 0),
            (false, Sqe::new(admin::GET_FEATURES), true, 1),
            (false, Sqe::new(admin::SET_FEATURES), false, 0),
            (false, Sqe::new(0xc0), true, 0),
            (false, Sqe::new(0xbf), true, 1),
            (false, Property::get(0, 4), true, 0),
        ] {
            assert_eq!(required_bytes(strict, &sqe, 512, to_host), required, "{strict} {sqe:?}");
        }
        assert_eq!(required_bytes(false, &Sqe::new(admin::GET_FEATURES), 0, true), 0);
    }
}
