//! The reservation commands of an I/O queue. Who is registered and who holds what, the drive
//! decides; here the commands are read, and Reservation Report is answered from what the drive has
//! shown.

use alloc::boxed::Box;

use ebof_drive::Request;
use ebof_drive::reservation::{Access, Command, Right};
use ebof_nvme::opcode::{Direction, nvm};
use ebof_nvme::reservation::{Acquire, AcquireKeys, Register, RegisterKeys, Release, ReleaseKey, Report};
use ebof_nvme::{ControllerId, HostId, Sqe, Status};
use zerocopy::FromBytes;

use crate::association::Association;
use crate::model::{Namespace, Subsystem};
use crate::task::executing::Executing;
use crate::task::outcome::{Decision, Fault, Outcome, byte};
use crate::task::{DriveTask, Task};

/// Whether it is a command of this module.
pub(crate) fn is_one(opcode: u8) -> bool {
    matches!(
        opcode,
        nvm::RESERVATION_REGISTER | nvm::RESERVATION_REPORT | nvm::RESERVATION_ACQUIRE | nvm::RESERVATION_RELEASE
    )
}

/// Refuses what a reservation of another host forbids.
pub(crate) fn check(namespace: &Namespace, access: Access) -> Result<(), Fault> {
    if namespace.right.allows(access) {
        return Ok(());
    }
    Err(match namespace.right {
        Right::Barred(status) | Right::ReadForNow(status) => Fault::transient(status),
        Right::Free | Right::Full | Right::ReadOnly | Right::Nothing => Fault::new(Status::RESERVATION_CONFLICT),
    })
}

/// The same for Flush, which is executed while the drive is sanitized. One of a host that may mean
/// another object is not: that what it wrote there is on the medium would be untrue. Nor is one
/// that is to take another path.
pub(crate) fn check_flush(namespace: &Namespace) -> Result<(), Fault> {
    match namespace.right {
        Right::Barred(status)
            if !status.is(Status::FORMAT_IN_PROGRESS)
                && !status.is(Status::NAMESPACE_NOT_READY)
                && !status.is_path_related() =>
        {
            Ok(())
        }
        Right::Free | Right::Full | Right::ReadOnly | Right::Nothing | Right::Barred(_) | Right::ReadForNow(_) => {
            check(namespace, Access::Write)
        }
    }
}

/// Takes a command.
pub(crate) fn submit(association: &Association, namespace: &Namespace, sqe: &Sqe) -> Outcome {
    // Only drives remember reservations.
    if namespace.provision.is_none() {
        return Err(Fault::at(Status::INVALID_OPCODE, byte::OPCODE));
    }
    if let Right::Barred(status) | Right::ReadForNow(status) = namespace.right {
        return Err(Fault::transient(status));
    }
    // RHII: Base, "Reservations": a host without an identifier has no part in them, whatever it
    // asks for.
    if association.host_id() == HostId::default() {
        return Err(Fault::new(Status::HOST_ID_NOT_INITIALIZED));
    }
    let sgl = association.io_sgl();
    if sqe.opcode == nvm::RESERVATION_REPORT {
        let wanted = Report::decode(sqe).bytes;
        if wanted > association.limits.transfer_bytes.into() {
            return Err(Fault::field(byte::CDW10));
        }
        let length = sgl.at_least(sqe, Direction::ControllerToHost, wanted)?;
        // Which controllers hosts have now, only the registry knows.
        return Ok(Decision::Go(Task::Shared, length));
    }
    let bytes =
        if sqe.opcode == nvm::RESERVATION_RELEASE { size_of::<ReleaseKey>() } else { size_of::<RegisterKeys>() };
    let length = sgl.at_least(sqe, Direction::HostToController, bytes as u64)?;
    Ok(Decision::Go(Task::Receive, length))
}

/// Goes on with a command whose keys have come.
pub(crate) fn resume(executing: &Executing, data: &[u8]) -> Outcome {
    let sqe = Sqe::new(executing.opcode()).with_nsid(executing.nsid()).with_cdw(10, executing.cdw10());
    let wrong = || Fault::new(Status::DATA_SGL_LENGTH_INVALID);
    let command = match executing.opcode() {
        nvm::RESERVATION_REGISTER => {
            let keys = RegisterKeys::read_from_bytes(data).map_err(|_| wrong())?;
            Command::Register(Register::decode(&sqe), keys)
        }
        nvm::RESERVATION_ACQUIRE => {
            let keys = AcquireKeys::read_from_bytes(data).map_err(|_| wrong())?;
            Command::Acquire(Acquire::decode(&sqe), keys)
        }
        _ => {
            let key = ReleaseKey::read_from_bytes(data).map_err(|_| wrong())?;
            Command::Release(Release::decode(&sqe), key)
        }
    };
    let request = Request::Reserve(executing.nsid(), command);
    Ok(Decision::Go(Task::Drive(Box::new(DriveTask::new(request))), executing.length()))
}

/// Answers Reservation Report.
pub(crate) fn report(
    subsystem: &Subsystem,
    executing: &Executing,
    controller_of: impl Fn(HostId) -> Option<ControllerId>,
) -> Outcome {
    let namespace =
        subsystem.namespaces.find(executing.nsid()).ok_or(Fault::at(Status::INVALID_NAMESPACE, byte::NSID))?;
    let kept = namespace.provision.as_ref().and_then(|provision| provision.reservations.as_deref());
    let none = ebof_drive::reservation::Reservations::none();
    let mut data = kept.unwrap_or(&none).report(executing.cdw11() & 1 != 0, controller_of)?;
    // What the host has no room for it asks for again.
    data.truncate(executing.length() as usize);
    Ok(Decision::Go(Task::Reply(data), executing.length()))
}
