//! Commands of controllers whose queues are in the host's memory (NVMe over PCIe): creation and
//! deletion of I/O queues, shadow doorbells.
//!
//! It knows which queues exist and what is wrong with a command. The rings themselves, their heads
//! and tails and the memory that they are in are the link's.

use core::sync::atomic::Ordering;

use ebof_nvme::opcode::admin;
use ebof_nvme::property::Cap;
use ebof_nvme::{QueueId, Sqe, Status};

use crate::association::Association;
use crate::controller::Controller;
use crate::task::outcome::{Decision, Fault, Outcome, byte};
use crate::task::{RingTask, Task};

/// Interrupt vectors that a controller has at most: as many as fit into the table of a function.
pub const VECTORS_MAX: u16 = 128;

/// Bytes of a page of the host's memory: CC.MPS can be nothing else.
const PAGE_BYTES: u64 = 4096;

/// Interrupt vectors of a controller: one for each Completion Queue, and no more than its function
/// has.
pub(crate) fn vectors(controller: &Controller) -> u16 {
    let of_function = controller.subsystem().and_then(|subsystem| subsystem.function.as_ref());
    let most = of_function.map_or(VECTORS_MAX, |function| function.interrupts.min(VECTORS_MAX));
    controller.association.max_io_queues().saturating_add(1).min(most)
}

/// CAP of a controller with queues of so many entries.
#[must_use]
pub fn capabilities(queue_entries: u16, ready_timeout_ms: u32) -> Cap {
    crate::controller::property::cap_of(queue_entries, ready_timeout_ms, true)
}

/// Takes one of these commands.
pub(crate) fn submit(controller: &mut Controller, sqe: &Sqe) -> Outcome {
    match sqe.opcode {
        admin::CREATE_IO_CQ => create_completion(controller, sqe),
        admin::CREATE_IO_SQ => create_submission(controller, sqe),
        admin::DELETE_IO_CQ => delete_completion(controller, sqe),
        admin::DELETE_IO_SQ => {
            let id = queue_id(sqe);
            let rings = &mut controller.rings;
            let is_there = !rings.being_created.contains(&id) && rings.submission.remove(&id).is_some();
            match is_there {
                // Which connection it is, only the registry knows.
                true => Ok(Decision::Go(Task::Shared, 0)),
                false => Err(Fault::at(Status::INVALID_QUEUE_ID, byte::CDW10)),
            }
        }
        _ => shadow_doorbells(sqe),
    }
}

/// Whether an opcode is one of them.
pub(crate) fn has(opcode: u8) -> bool {
    matches!(
        opcode,
        admin::CREATE_IO_CQ
            | admin::CREATE_IO_SQ
            | admin::DELETE_IO_CQ
            | admin::DELETE_IO_SQ
            | admin::DOORBELL_BUFFER_CONFIG
    )
}

/// QID of a command that creates or deletes a queue.
pub(crate) fn queue_id(sqe: &Sqe) -> u16 {
    let [a, b, ..] = sqe.cdw10.to_bytes();
    u16::from_le_bytes([a, b])
}

/// QID, entries and place of a queue that is to be created, if there can be such a one: of those of
/// its kind, so many are `granted`.
fn new_queue(
    association: &Association,
    sqe: &Sqe,
    granted: u32,
    exists: impl Fn(u16) -> bool,
) -> Result<(u16, u16, u64), Fault> {
    let id = queue_id(sqe);
    if id == 0 || u32::from(id) > granted || exists(id) {
        return Err(Fault::at(Status::INVALID_QUEUE_ID, byte::CDW10));
    }
    let [_, _, c, d] = sqe.cdw10.to_bytes();
    // QSIZE is 0's based, and a queue has two entries at least.
    let entries = u16::from_le_bytes([c, d]).checked_add(1);
    let entries = entries.filter(|entries| (2..=association.max_queue_entries()).contains(entries));
    let entries = entries.ok_or(Fault::at(Status::INVALID_QUEUE_SIZE, byte::CDW10 + 2))?;
    // CAP.CQR: queues are contiguous (PC).
    if sqe.cdw11.get() & 1 == 0 {
        return Err(Fault::field(byte::CDW11));
    }
    Ok((id, entries, page(sqe, 0)?))
}

/// PRP entry 1 or 2 as the address of a page.
fn page(sqe: &Sqe, at: usize) -> Result<u64, Fault> {
    if sqe.flags & Sqe::PSDT_MASK != 0 {
        return Err(Fault::field(byte::FLAGS));
    }
    let ebof_nvme::DataLocation::Prp { first, second } = sqe.data_pointer().decode() else {
        return Err(Fault::field(byte::FLAGS));
    };
    let (address, place) = [(first, byte::SGL_ADDRESS), (second, byte::SGL_LENGTH)][at & 1];
    if address % PAGE_BYTES == 0 { Ok(address) } else { Err(Fault::at(Status::PRP_OFFSET_INVALID, place)) }
}

fn create_completion(controller: &mut Controller, sqe: &Sqe) -> Outcome {
    let vectors = vectors(controller);
    let association = &controller.association;
    let rings = &mut controller.rings;
    let granted = association.granted_completion_queues.load(Ordering::Relaxed);
    let (id, entries, base) = new_queue(association, sqe, granted, |id| rings.completion.contains_key(&id))?;
    let [_, _, c, d] = sqe.cdw11.to_bytes();
    let vector = u16::from_le_bytes([c, d]);
    // Base, Create I/O Completion Queue, IV: also where interrupts are not enabled.
    if vector >= vectors {
        return Err(Fault::at(Status::INVALID_INTERRUPT_VECTOR, byte::CDW11 + 2));
    }
    let vector = (sqe.cdw11.get() & 2 != 0).then_some(vector);
    rings.completion.insert(id, entries);
    let task = RingTask::CreateCompletionQueue { id: QueueId(id), entries, base, vector };
    Ok(Decision::Go(Task::Rings(task), 0))
}

fn create_submission(controller: &mut Controller, sqe: &Sqe) -> Outcome {
    let association = &controller.association;
    let rings = &mut controller.rings;
    let granted = association.granted_queues.load(Ordering::Relaxed);
    let (id, entries, base) = new_queue(association, sqe, granted, |id| rings.submission.contains_key(&id))?;
    let [_, _, c, d] = sqe.cdw11.to_bytes();
    let completion = u16::from_le_bytes([c, d]);
    let granted = association.granted_completion_queues.load(Ordering::Relaxed);
    if completion == 0 || u32::from(completion) > granted {
        return Err(Fault::at(Status::INVALID_QUEUE_ID, byte::CDW11 + 2));
    }
    if !rings.completion.contains_key(&completion) {
        return Err(Fault::at(Status::COMPLETION_QUEUE_INVALID, byte::CDW11 + 2));
    }
    rings.submission.insert(id, completion);
    rings.being_created.insert(id);
    let task = RingTask::CreateSubmissionQueue { id: QueueId(id), entries, base, completion: QueueId(completion) };
    Ok(Decision::Go(Task::Rings(task), 0))
}

fn delete_completion(controller: &mut Controller, sqe: &Sqe) -> Outcome {
    let rings = &mut controller.rings;
    let id = queue_id(sqe);
    if !rings.completion.contains_key(&id) {
        return Err(Fault::at(Status::INVALID_QUEUE_ID, byte::CDW10));
    }
    if rings.submission.values().any(|&completion| completion == id) {
        return Err(Fault::at(Status::INVALID_QUEUE_DELETION, byte::CDW10));
    }
    rings.completion.remove(&id);
    Ok(Decision::Go(Task::Rings(RingTask::DeleteCompletionQueue { id: QueueId(id) }), 0))
}

/// Doorbell Buffer Config.
fn shadow_doorbells(sqe: &Sqe) -> Outcome {
    let doorbells = page(sqe, 0)?;
    let event_indexes = page(sqe, 1)?;
    Ok(Decision::Go(Task::Rings(RingTask::ShadowDoorbells { doorbells, event_indexes }), 0))
}
