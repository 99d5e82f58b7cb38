//! The commands that a drive decides: checked here as far as possible without the drive, then
//! handed on as what the drive understands ([`Task::Drive`]), and answered with what it says
//! ([`Queue::answer`](crate::Queue::answer)).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ebof_drive::{LogQuery, Refusal, Request, View};
use ebof_nvme::firmware::{Commit, Download};
use ebof_nvme::identify::{ControllerList, Csi, IDENTIFY_BYTES, field};
use ebof_nvme::log::{GetLogPage, Lid};
use ebof_nvme::media;
use ebof_nvme::namespace::{AttachmentSelect, ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::opcode::{Direction, admin};
use ebof_nvme::virtualization::VirtualizationManagement;
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::FromBytes;

use crate::association::Association;
use crate::controller::Controller;
use crate::model::Subsystem;
use crate::task::executing::Executing;
use crate::task::outcome::{Decision, Detail, Fault, Outcome, byte};
use crate::task::{DriveTask, Task};

/// Whether the Admin Queue of a subsystem with a drive takes the command.
pub(crate) fn decides(opcode: u8) -> bool {
    matches!(
        opcode,
        admin::NAMESPACE_MANAGEMENT
            | admin::NAMESPACE_ATTACHMENT
            | admin::FIRMWARE_DOWNLOAD
            | admin::FIRMWARE_COMMIT
            | admin::DEVICE_SELF_TEST
            | admin::FORMAT_NVM
            | admin::SANITIZE
            | admin::VIRTUALIZATION_MANAGEMENT
    )
}

/// Takes a command.
pub(crate) fn submit(controller: &Controller, drive: &View, sqe: &Sqe) -> Outcome {
    let association = &controller.association;
    let subsystem = controller.subsystem().expect("a controller with a drive has a subsystem");
    if !is_offered(drive, sqe.opcode) || sqe.opcode == admin::VIRTUALIZATION_MANAGEMENT && drive.functions.is_empty() {
        return Err(Fault::at(Status::INVALID_OPCODE, byte::OPCODE));
    }
    // A self-test reads what the host may read, and changes nothing.
    let everyone = sqe.opcode == admin::DEVICE_SELF_TEST;
    if !everyone && !is_manager(association, subsystem) {
        return Err(Fault::new(Status::OPERATION_DENIED));
    }
    match sqe.opcode {
        admin::NAMESPACE_MANAGEMENT => manage(association, drive, sqe),
        admin::NAMESPACE_ATTACHMENT => attach(association, drive, sqe),
        admin::FIRMWARE_DOWNLOAD => download(association, sqe),
        admin::FIRMWARE_COMMIT => {
            association.admin_sgl().at_least(sqe, Direction::HostToController, 0)?;
            let request = Request::Commit(Commit::decode(sqe));
            Ok(Decision::Go(Task::Drive(Box::new(DriveTask::new(request))), 0))
        }
        admin::DEVICE_SELF_TEST | admin::FORMAT_NVM | admin::SANITIZE => media(association, drive, sqe),
        admin::VIRTUALIZATION_MANAGEMENT => {
            association.admin_sgl().at_least(sqe, Direction::HostToController, 0)?;
            let request = Request::Virtualize(VirtualizationManagement::decode(sqe));
            Ok(Decision::Go(Task::Drive(Box::new(DriveTask::new(request))), 0))
        }
        opcode => unreachable!("not one of those that `decides` names: {opcode:02x}h"),
    }
}

/// Whether the host manages the drive: it has to have reached it through the drive's own subsystem.
pub(crate) fn is_manager(association: &Association, subsystem: &Subsystem) -> bool {
    let listed = |drive: &Arc<View>| drive.managers.contains(association.host.as_str());
    subsystem.function.is_none() && subsystem.drive.as_ref().is_some_and(listed)
}

/// Whether the firmware that runs has the command.
fn is_offered(drive: &View, opcode: u8) -> bool {
    match opcode {
        admin::DEVICE_SELF_TEST => drive.personality.device_self_test,
        admin::FORMAT_NVM => drive.personality.format,
        admin::SANITIZE => drive.personality.sanitize,
        _ => true,
    }
}

/// Device Self-test, Format NVM and Sanitize: everything of them stands in the command.
fn media(association: &Association, drive: &View, sqe: &Sqe) -> Outcome {
    association.admin_sgl().at_least(sqe, Direction::HostToController, 0)?;
    let nsid = sqe.nsid();
    let request = match sqe.opcode {
        admin::DEVICE_SELF_TEST => {
            // NSID 0 is the drive without its namespaces.
            if nsid != Nsid::NONE {
                check_nsid(drive, nsid)?;
            }
            Request::SelfTest(media::SelfTest::decode(sqe).code, nsid)
        }
        admin::FORMAT_NVM => {
            check_nsid(drive, nsid)?;
            Request::Format(nsid, media::Format::decode(sqe))
        }
        _ => Request::Sanitize(media::Sanitize::decode(sqe)),
    };
    Ok(Decision::Go(Task::Drive(Box::new(DriveTask::new(request))), 0))
}

/// Goes on with a command whose data has come.
pub(crate) fn resume(executing: &Executing, data: &[u8]) -> Outcome {
    let request = match executing.opcode() {
        admin::NAMESPACE_MANAGEMENT => created(data)?,
        admin::FIRMWARE_DOWNLOAD => Request::Download(u64::from(executing.cdw11()) * 4, data.to_vec()),
        _ => attached(executing, data)?,
    };
    Ok(Decision::Go(Task::Drive(Box::new(DriveTask::new(request))), executing.length()))
}

/// Get Log Page of a page that the drive keeps, checked as far as all pages are.
pub(crate) fn log(controller: &mut Controller, log: &GetLogPage, nsid: Nsid, length: u32) -> Decision {
    let GetLogPage { lid, lsp, retain_event, bytes, lsi, offset, .. } = *log;
    if !retain_event {
        controller.events.log_read(lid);
        // A host that has read about the group has seen what its entry in the aggregate log is
        // about.
        controller.group_event &= lid != Lid::ENDURANCE_GROUP;
    }
    let request = LogQuery {
        lid,
        parameter: lsp,
        identifier: lsi,
        nsid,
        offset,
        bytes,
        retain: retain_event,
        thresholds: controller.features.thresholds(),
        transport: controller.association.port.trtype.0,
    };
    Decision::Go(Task::Drive(Box::new(DriveTask::new(Request::Log(request)))), length)
}

fn download(association: &Association, sqe: &Sqe) -> Outcome {
    let bytes = Download::decode(sqe).bytes;
    if bytes > association.limits.transfer_bytes.into() {
        return Err(Fault::field(byte::CDW10));
    }
    let length = association.admin_sgl().at_least(sqe, Direction::HostToController, bytes)?;
    Ok(Decision::Go(Task::Receive, length))
}

fn manage(association: &Association, drive: &View, sqe: &Sqe) -> Outcome {
    let NamespaceManagement { select, csi } = NamespaceManagement::decode(sqe);
    match select {
        ManagementSelect::Create => {
            if csi != Csi::NVM {
                return Err(Fault::at(Status::COMMAND_SET_NOT_SUPPORTED, byte::CDW11 + 3));
            }
            // NSID is reserved, and nvme-cli sends 0.
            if sqe.nsid() != Nsid::NONE {
                return Err(Fault::field(byte::NSID));
            }
            parameters(association, sqe)
        }
        ManagementSelect::Delete => {
            check_nsid(drive, sqe.nsid())?;
            association.admin_sgl().at_least(sqe, Direction::HostToController, 0)?;
            let request = Request::Delete(sqe.nsid());
            Ok(Decision::Go(Task::Drive(Box::new(DriveTask::new(request))), 0))
        }
        ManagementSelect::Reserved(_) => Err(Fault::field(byte::CDW10)),
    }
}

fn attach(association: &Association, drive: &View, sqe: &Sqe) -> Outcome {
    if let AttachmentSelect::Reserved(_) = AttachmentSelect::decode(sqe) {
        return Err(Fault::field(byte::CDW10));
    }
    if sqe.nsid() == Nsid::ALL {
        return Err(Fault::field(byte::NSID));
    }
    check_nsid(drive, sqe.nsid())?;
    parameters(association, sqe)
}

/// Fetches the 4096 bytes of the command's data.
fn parameters(association: &Association, sqe: &Sqe) -> Outcome {
    let length = association.admin_sgl().at_least(sqe, Direction::HostToController, IDENTIFY_BYTES as u64)?;
    Ok(Decision::Go(Task::Receive, length))
}

fn check_nsid(drive: &View, nsid: Nsid) -> Result<(), Fault> {
    if nsid == Nsid::ALL || nsid.names_one() && nsid.0 <= drive.profile.namespaces {
        return Ok(());
    }
    Err(Fault::at(Status::INVALID_NAMESPACE, byte::NSID))
}

fn created(data: &[u8]) -> Result<Request, Fault> {
    let data = NewNamespace::ref_from_bytes(data).map_err(|_| Fault::new(Status::DATA_SGL_LENGTH_INVALID))?;
    // Neither NVM sets nor placement handles, one endurance group.
    let sets = data.nvmsetid.get() != 0 || data.endgid.get() > 1;
    let unknown = data.nmic & !field::nmic::SHARED != 0 || data.lbstm.get() != 0 || data.nphndls.get() != 0;
    if sets || unknown {
        return Err(Fault::new(Status::INVALID_FIELD));
    }
    if data.dps & !(field::dps::TYPE_MASK | field::dps::FIRST_BYTES) != 0 {
        return Err(Fault::new(Status::INVALID_FIELD));
    }
    Ok(Request::Create(ebof_drive::NewNamespace {
        blocks: data.nsze.get(),
        capacity_blocks: data.ncap.get(),
        format: data.format_index(),
        metadata_extended: data.metadata_extended(),
        protection: ebof_drive::Protection {
            kind: data.dps & field::dps::TYPE_MASK,
            first: data.dps & field::dps::FIRST_BYTES != 0,
        },
        shared: data.nmic & field::nmic::SHARED != 0,
        ana_group: data.anagrpid.get(),
    }))
}

fn attached(executing: &Executing, data: &[u8]) -> Result<Request, Fault> {
    let list = ControllerList::ref_from_bytes(data).map_err(|_| Fault::new(Status::DATA_SGL_LENGTH_INVALID))?;
    let controllers: Vec<_> = list.legal().map_err(Fault::new)?.collect();
    let attach = executing.cdw10() & 0x0f == 0;
    let nsid = executing.nsid();
    Ok(if attach { Request::Attach(nsid, controllers) } else { Request::Detach(nsid, controllers) })
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        let detail = Detail::Information(refusal.information);
        Self { status: refusal.status, detail, location: refusal.location }
    }
}

/// The drive of a controller's subsystem.
pub(crate) fn view_of(controller: &Controller) -> Option<&Arc<View>> {
    controller.subsystem()?.drive.as_ref()
}
