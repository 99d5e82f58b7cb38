//! The commands of an Admin Queue: which a controller executes, and where.

mod ana;
mod drive;
mod feature;
pub(crate) mod identify;
pub(crate) mod lba_status;
pub(crate) mod log;
pub mod memory;

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use ebof_nvme::connect::Property;
use ebof_nvme::opcode::{FABRICS, admin, fabrics};
use ebof_nvme::{Cid, QueueId, Sqe, Status};

use crate::connect::authentication;
use crate::controller::property::{Effect, EnablingPhase};
use crate::controller::{Controller, Kind};
use crate::task::Task;
use crate::task::executing::Executing;
use crate::task::outcome::{Decision, Fault, Outcome, byte};

use identify::Look;

/// Takes a command.
pub(crate) fn submit(controller: &mut Controller, sqe: &Sqe) -> Outcome {
    if controller.association.is_memory_based() {
        // CC is a register there, and what the link makes of its writes comes another way
        // ([`set_property`]), with the identifier that hosts may not use.
        if sqe.opcode == FABRICS {
            return Err(Fault::at(Status::INVALID_OPCODE, byte::OPCODE));
        }
        if sqe.cid() == REGISTER_WRITE {
            return Err(Fault::field(byte::CID));
        }
    }
    if let Some(fctype) = sqe.fctype() {
        return fabrics_command(controller, sqe, fctype);
    }
    if controller.registers.phase != EnablingPhase::Ready {
        return Err(Fault::new(Status::COMMAND_SEQUENCE_ERROR));
    }
    // FUSE: no fused operations.
    if sqe.flags & 0x03 != 0 {
        return Err(Fault::field(byte::FLAGS));
    }
    if let Some(restriction) = drive::view_of(controller).and_then(|drive| drive.restriction) {
        restriction.check_admin(sqe.opcode, sqe.cdw10.get())?;
    }
    if let Kind::Io(subsystem) = &controller.kind {
        ana::check(subsystem, sqe)?;
    }
    match (sqe.opcode, &controller.kind) {
        (admin::GET_LOG_PAGE, _) => log::get_log_page(controller, sqe),
        (admin::IDENTIFY, Kind::Io(subsystem)) => {
            note_look(controller, sqe);
            identify::io_controller(&controller.association, subsystem, sqe)
        }
        (admin::IDENTIFY, Kind::Discovery(identity)) => {
            identify::discovery_controller(&controller.association, identity, sqe)
        }
        (admin::SET_FEATURES, _) => feature::set(controller, sqe),
        (admin::GET_FEATURES, _) => feature::get(controller, sqe),
        (admin::ASYNC_EVENT_REQUEST, _) => {
            let limit = controller.association.limits.async_events;
            controller.events.request(sqe.cid(), limit)
        }
        (admin::KEEP_ALIVE, _) => keep_alive(controller),
        (admin::ABORT, Kind::Io(_)) => abort(controller, sqe),
        // Which other controllers there are, only the registry knows.
        (admin::CROSS_CONTROLLER_RESET, Kind::Io(_)) if !controller.association.is_memory_based() => {
            Ok(Decision::Go(Task::Shared, 0))
        }
        (admin::GET_LBA_STATUS, Kind::Io(subsystem)) if subsystem.drive.is_some() => {
            lba_status::submit(&controller.association, subsystem, sqe)
        }
        (opcode, Kind::Io(_)) if memory::has(opcode) && controller.association.is_memory_based() => {
            memory::submit(controller, sqe)
        }
        (opcode, Kind::Io(subsystem)) if drive::decides(opcode) => match &subsystem.drive {
            Some(view) => drive::submit(controller, &Arc::clone(view), sqe),
            None => Err(Fault::at(Status::INVALID_OPCODE, byte::OPCODE)),
        },
        // Queue creation and deletion are prohibited on message-based transports; the rest is not
        // supported.
        _ => Err(Fault::at(Status::INVALID_OPCODE, byte::OPCODE)),
    }
}

/// The host identifies something: whether it waits for events when it first lists its namespaces,
/// and has no I/O queue. One that has listed them before may have been told of a change while its
/// I/O queues were being connected.
fn note_look(controller: &Controller, sqe: &Sqe) {
    let association = &controller.association;
    if !matches!(Look::from_command(sqe), Some(Look::List(_))) || association.has_listed.swap(true, Ordering::Relaxed) {
        return;
    }
    let has_queues = association.io_queues.load(Ordering::Relaxed) > 0;
    if !has_queues && controller.hears_of_namespaces() {
        association.lists_first.store(true, Ordering::Relaxed);
    }
}

/// The identifier of a command that a write of a register is (Base, Error Information: FFFFh names
/// no command, so that hosts should not use it).
pub const REGISTER_WRITE: Cid = Cid(0xffff);

/// A command that a write of CC is, where properties are registers.
pub(crate) fn register_write(offset: u32, value: u32) -> Sqe {
    Sqe { cid: REGISTER_WRITE.0.into(), ..Property::set(offset, value) }
}

/// Takes what [`register_write`] has made.
pub(crate) fn set_property(controller: &mut Controller, sqe: &Sqe) -> Outcome {
    property_set(controller, Property::decode(sqe))
}

/// Goes on with a command whose data has come.
pub(crate) fn resume(controller: &mut Controller, executing: &Executing, data: &[u8]) -> Outcome {
    match executing.opcode() {
        admin::SET_FEATURES => feature::set_data(controller, executing, data),
        opcode if drive::decides(opcode) => drive::resume(executing, data),
        opcode => unreachable!("no other command of an Admin Queue has parameter data: {opcode:02x}h"),
    }
}

fn fabrics_command(controller: &mut Controller, sqe: &Sqe, fctype: u8) -> Outcome {
    let property = Property::decode(sqe);
    match fctype {
        fabrics::PROPERTY_GET => controller.registers.read(property, &controller.association).map(Decision::Done),
        fabrics::PROPERTY_SET => property_set(controller, property),
        _ if authentication::is_one(sqe.opcode, fctype) && controller.association.proves => {
            authentication::submit(sqe, controller.association.admin_sgl())
        }
        // The queue exists already.
        fabrics::CONNECT => Err(Fault::new(Status::COMMAND_SEQUENCE_ERROR)),
        // Only I/O queues can be disconnected.
        fabrics::DISCONNECT => Err(Fault::new(Status::INVALID_QUEUE_TYPE)),
        _ => Err(Fault::at(Status::INVALID_OPCODE, byte::NSID)),
    }
}

fn property_set(controller: &mut Controller, property: Property) -> Outcome {
    let io = matches!(controller.kind, Kind::Io(_));
    let effect = controller.registers.write(property, io)?;
    let ready = &controller.association.ready;
    match effect {
        Effect::None => return Ok(Decision::Done(0)),
        Effect::Enabled => {
            ready.store(true, Ordering::Relaxed);
            return Ok(Decision::Done(0));
        }
        Effect::Shutdown { .. } => ready.store(false, Ordering::Relaxed),
        Effect::Reset => {
            ready.store(false, Ordering::Relaxed);
            controller.reset();
        }
    }
    // Which connections are I/O queues, only the registry knows.
    Ok(Decision::Go(Task::Shared, 0))
}

fn keep_alive(controller: &Controller) -> Outcome {
    // The timer was restarted when the command came, as by every other command.
    if controller.association.keep_alive_ms.load(Ordering::Relaxed) == 0 {
        return Err(Fault::new(Status::KEEP_ALIVE_INVALID));
    }
    Ok(Decision::Done(0))
}

/// SQID and CID of an Abort command.
pub(crate) fn abort_target(cdw10: u32) -> (QueueId, Cid) {
    let [a, b, c, d] = cdw10.to_le_bytes();
    (QueueId(u16::from_le_bytes([a, b])), Cid(u16::from_le_bytes([c, d])))
}

fn abort(controller: &mut Controller, sqe: &Sqe) -> Outcome {
    if controller.aborts >= usize::from(controller.association.limits.aborts) {
        return Err(Fault::transient(Status::ABORT_LIMIT_EXCEEDED));
    }
    let (queue, cid) = abort_target(sqe.cdw10.get());
    if queue.is_admin() && cid == REGISTER_WRITE && controller.association.is_memory_based() {
        // The write of a register is no command that the host knows of.
        return Ok(Decision::Done(1));
    }
    if queue.is_admin() && controller.events.abort(cid) {
        return Ok(Decision::Done(0));
    }
    Ok(Decision::Go(Task::Shared, 0))
}
