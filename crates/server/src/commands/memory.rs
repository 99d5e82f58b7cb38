//! Data that devices move to and from the host's memory themselves, where a link has it.

use ebof_fabrics::TransferKind;
use ebof_nvme::Status;
use ebof_region::Way;

use crate::commands::command::Command;
use crate::drives::device::DeviceTable;
use crate::link::{Link, Mapping};

/// For a command of a ring, beside so many others: has its device use the host's memory, where the
/// link has it, in few pieces, and the device can. Otherwise the command takes a buffer, and waits
/// for one.
///
/// # Errors
/// The command's data are nowhere: the status that it ends with.
pub(crate) fn map(
    command: &mut Command,
    under_way: usize,
    link: &mut Link,
    devices: &DeviceTable,
) -> Result<(), Status> {
    let length = command.length;
    if command.task.takes_data() {
        // They were not received with the command, as those of other transports.
        link.charge(length as usize);
    }
    let device = command.device().and_then(|device| devices.device(device));
    match command.mapped_way() {
        Some(way) => match link.map(&command.pointer, length, way) {
            Mapping::None => Ok(()),
            Mapping::Mapped(memory) => {
                let pieces = memory.as_shared().map_or(0, <[_]>::len);
                let is_used = pieces <= pieces_max(under_way) && device.is_none_or(|device| device.uses(&memory));
                command.mapped = is_used.then_some(memory);
                Ok(())
            }
            Mapping::Refused(status) => Err(status),
        },
        None if command.task.takes_data() => link.check(&command.pointer, length, Way::FromHost),
        None if command.transfer_kind() == Some(TransferKind::Read) => {
            link.check(&command.pointer, length, Way::ToHost)
        }
        None => Ok(()),
    }
}

/// Pieces of memory that a command has while a device uses them, at most, beside so many others
/// under way.
///
/// Buffers have budgets, these lists have none: the host decides how many commands are under way
/// and how its memory is divided, and a piece is 24 bytes of ours. The n-th of the commands that
/// are under way began beside n - 1 others or more, so it has [`PIECES`] / n at most, and all of
/// them together have less than [`PIECES`] * (1 + ln(n)): 12 000 in a queue of 1023 (280 KiB), and
/// 150 MB in all the 511 queues of a host. One with few commands under way loses nothing by that.
fn pieces_max(under_way: usize) -> usize {
    (PIECES / (under_way + 1)).clamp(2, COMMAND_PIECES)
}

/// Shared by the commands of a queue.
const PIECES: usize = 2048;

/// Of one command: 1 MiB in pages of 4 KiB that are not next to each other, and begins within one.
const COMMAND_PIECES: usize = 257;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_all_commands_of_a_queue_are_bounded() {
        let all = |commands: usize| (0..commands).map(pieces_max).sum::<usize>();
        assert_eq!(pieces_max(0), 257);
        assert_eq!(pieces_max(63), 32);
        assert!(all(1023) < 12_000, "{}", all(1023));
    }
}
