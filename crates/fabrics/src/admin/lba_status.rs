//! Get LBA Status: which blocks of a drive's namespace are marked bad, and which are allocated. The
//! target looks; here the command is checked, and the list is made.
//!
//! NVM Command Set, "Get LBA Status command".

use alloc::vec::Vec;

use ebof_nvme::lba_status::{CompletionCondition, GetLbaStatus, StatusAction, status_list};
use ebof_nvme::opcode::Direction;
use ebof_nvme::{Sqe, Status};

use crate::admin::identify;
use crate::association::Association;
use crate::model::Subsystem;
use crate::task::outcome::{Decision, Fault, Outcome, byte};
use crate::task::{LbaStatusQuery, Task};

/// Takes a command.
pub(crate) fn submit(association: &Association, subsystem: &Subsystem, sqe: &Sqe) -> Outcome {
    let namespace = identify::named(subsystem, sqe.nsid())?.ok_or(Fault::field(byte::NSID))?;
    // Only drives know such things.
    if namespace.provision.is_none() {
        return Err(Fault::at(Status::INVALID_OPCODE, byte::OPCODE));
    }
    let get = GetLbaStatus::decode(sqe);
    let allocated = match get.action {
        StatusAction::ALLOCATED => true,
        // There is nothing to be found by scanning that is not known: both are the same.
        StatusAction::SCAN | StatusAction::TRACKED => false,
        _ => return Err(Fault::field(byte::CDW13 + 3)),
    };
    if get.bytes < HEADER_BYTES || get.bytes > association.limits.transfer_bytes.into() {
        return Err(Fault::field(byte::CDW12));
    }
    // RL of 0 reaches to the end.
    let rest = namespace.blocks.checked_sub(get.slba).filter(|&rest| rest > 0);
    let rest = rest.ok_or(Fault::at(Status::LBA_OUT_OF_RANGE, byte::CDW10))?;
    let blocks = if get.blocks == 0 { rest } else { get.blocks.into() };
    if blocks > rest {
        return Err(Fault::at(Status::LBA_OUT_OF_RANGE, byte::CDW13));
    }
    let length = association.admin_sgl().at_least(sqe, Direction::ControllerToHost, get.bytes)?;
    let ranges_max = usize::try_from((get.bytes - HEADER_BYTES) / ENTRY_BYTES).expect("no more than a transfer");
    let range = get.slba..get.slba + blocks;
    let query = LbaStatusQuery { device: namespace.device, range, allocated, ranges_max };
    Ok(Decision::Go(Task::LbaStatus(query), length))
}

/// The bytes of the list for a command with so many of them: the ranges (first block, blocks) that
/// were found, and whether all of what was asked for was looked at. What there is no room for is
/// left out, and the host told.
pub(crate) fn list(length: usize, ranges: &[(u64, u64)], complete: bool) -> Vec<u8> {
    let step = u64::from(u32::MAX);
    let pieces = ranges.iter().flat_map(|&(first, blocks)| {
        (0..blocks.div_ceil(step)).map(move |at| (first + at * step, (blocks - at * step).min(step)))
    });
    let entries: Vec<_> =
        pieces.map(|(first, blocks)| (first, u32::try_from(blocks).expect("cut to that"), 0)).collect();
    let condition = if complete { CompletionCondition::Complete } else { CompletionCondition::Incomplete };
    let mut data = status_list(&entries, condition, length);
    data.resize(length, 0);
    data
}

/// Bytes of the list's header and of a descriptor.
const HEADER_BYTES: u64 = 8;
const ENTRY_BYTES: u64 = 16;
