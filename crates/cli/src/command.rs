//! Commands of verbs: builds and sends them, and turns their status into an error with an
//! explanation.

pub(crate) mod explain;

use ebof_initiator::AdminData;
use ebof_nvme::connect::Property;
use ebof_nvme::feature::{Fid, GetFeature, HostBehaviorSupport, Select, SetFeature};
use ebof_nvme::identify::{Cns, IdentifyController, IdentifyNamespace};
use ebof_nvme::log::{GetLogPage, Lid};
use ebof_nvme::opcode::{admin as opcode, admin_name, fabrics_name, nvm_name};
use ebof_nvme::{Cqe, Nsid, Sqe, Status};
use zerocopy::{FromBytes, FromZeros as _, IntoBytes};

use crate::device::Device;
use crate::device::query::Identify;
use crate::failure::Failure;

/// Bytes of a log page that one command reads, as in nvme-cli: every controller supports that.
const LOG_CHUNK_BYTES: u64 = 4096;

/// Sends an admin command.
///
/// # Errors
/// There is no response, or its status is not success; the error explains the status.
pub(crate) fn admin(device: &mut dyn Device, sqe: &Sqe, data: AdminData<'_>) -> anyhow::Result<Cqe> {
    let cqe = device.admin(sqe, data)?;
    if cqe.status().is_success() {
        return Ok(cqe);
    }
    let name = match sqe.fctype() {
        Some(fctype) => fabrics_name(fctype),
        None => admin_name(sqe.opcode),
    };
    let meaning = explain::admin_command(device, sqe, cqe.status());
    Err(Failure::refused(name.unwrap_or("Admin command"), cqe.status(), meaning).into())
}

/// Sends an I/O command.
///
/// # Errors
/// As [`admin`].
pub(crate) fn io(device: &mut dyn Device, sqe: &Sqe, data: AdminData<'_>) -> anyhow::Result<Cqe> {
    let bytes = match &data {
        AdminData::None => 0,
        AdminData::ToHost(buffer) => buffer.len(),
        AdminData::FromHost(buffer) => buffer.len(),
    };
    let cqe = device.io(sqe, data)?;
    let status = cqe.status();
    if status.is_success() {
        return Ok(cqe);
    }
    let name = nvm_name(sqe.opcode).unwrap_or("I/O command");
    let facts = explain::Facts::gather(device, sqe, status, bytes);
    Err(Failure::refused_io(name, status, explain::io(device.name(), sqe, status, &facts)).into())
}

/// Reads an Identify data structure.
///
/// # Errors
/// As [`admin`].
pub(crate) fn identify<T: FromBytes + IntoBytes>(device: &mut dyn Device, what: Identify) -> anyhow::Result<Box<T>> {
    let mut data = Box::new(T::new_zeroed());
    admin(device, &what.encode(), AdminData::ToHost(data.as_mut_bytes()))?;
    Ok(data)
}

/// Reads Identify Controller.
///
/// # Errors
/// As [`admin`].
pub(crate) fn identify_controller(device: &mut dyn Device) -> anyhow::Result<Box<IdentifyController>> {
    identify(device, Identify::new(Cns::CONTROLLER))
}

/// Reads Identify Namespace of an active namespace.
///
/// # Errors
/// As [`admin`]; also if the controller returns zeros, because there is no such namespace.
pub(crate) fn identify_namespace(device: &mut dyn Device, nsid: Nsid) -> anyhow::Result<Box<IdentifyNamespace>> {
    let data: Box<IdentifyNamespace> = identify(device, Identify::for_namespace(Cns::NAMESPACE, nsid))?;
    if data.nsze.get() == 0 {
        let meaning = explain::no_namespace(device.name(), nsid);
        return Err(Failure::new("no-such-namespace", format!("namespace {nsid} is not active"), meaning).into());
    }
    Ok(data)
}

/// Get Log Page of the whole of `lid`, for [`read_log`].
pub(crate) const fn log_page(lid: Lid) -> GetLogPage {
    GetLogPage::new(lid, LOG_CHUNK_BYTES)
}

/// Reads `data.len()` bytes (a multiple of 4) of a log page from `page.offset`, in as many commands
/// of at most `page.bytes` as it takes; the event is retained until the last one.
///
/// # Errors
/// As [`admin`].
pub(crate) fn read_log(device: &mut dyn Device, nsid: Nsid, page: GetLogPage, data: &mut [u8]) -> anyhow::Result<()> {
    // The offset counts entries, so that the log page cannot be split by bytes.
    let one = page.index_offset || page.bytes >= data.len() as u64;
    let chunk_bytes = if one { data.len() } else { usize::try_from(page.bytes).unwrap_or(usize::MAX) }.max(4);
    let chunks = data.len().div_ceil(chunk_bytes);
    for (index, chunk) in data.chunks_mut(chunk_bytes).enumerate() {
        let last = index + 1 == chunks;
        let piece = GetLogPage {
            bytes: chunk.len() as u64,
            offset: page.offset.saturating_add((index * chunk_bytes) as u64),
            retain_event: page.retain_event || !last,
            ..page
        };
        admin(device, &piece.encode(nsid), AdminData::ToHost(chunk))?;
    }
    Ok(())
}

/// Reads a log page whose size is known.
///
/// # Errors
/// As [`admin`].
pub(crate) fn log<T: FromBytes + IntoBytes>(
    device: &mut dyn Device,
    nsid: Nsid,
    page: GetLogPage,
) -> anyhow::Result<Box<T>> {
    let mut data = Box::new(T::new_zeroed());
    read_log(device, nsid, page, data.as_mut_bytes())?;
    Ok(data)
}

/// Sends Get Features with dwords 11 and 14; returns dword 0 of the completion.
///
/// # Errors
/// As [`admin`].
pub(crate) fn get_feature(
    device: &mut dyn Device,
    feature: GetFeature,
    nsid: Nsid,
    [cdw11, cdw14]: [u32; 2],
    data: &mut [u8],
) -> anyhow::Result<u32> {
    let sqe = Sqe::new(opcode::GET_FEATURES).with_nsid(nsid).with_cdw(10, feature.encode());
    let sqe = sqe.with_cdw(11, cdw11).with_cdw(14, cdw14);
    let data = if data.is_empty() { AdminData::None } else { AdminData::ToHost(data) };
    Ok(admin(device, &sqe, data)?.dw0.get())
}

/// Sends Set Features with dwords 11, 12 and 14; returns dword 0 of the completion.
///
/// # Errors
/// As [`admin`].
pub(crate) fn set_feature(
    device: &mut dyn Device,
    feature: SetFeature,
    nsid: Nsid,
    [cdw11, cdw12, cdw14]: [u32; 3],
    data: &[u8],
) -> anyhow::Result<u32> {
    let sqe = Sqe::new(opcode::SET_FEATURES).with_nsid(nsid).with_cdw(10, feature.encode());
    let sqe = sqe.with_cdw(11, cdw11).with_cdw(12, cdw12).with_cdw(14, cdw14);
    let data = if data.is_empty() { AdminData::None } else { AdminData::FromHost(data) };
    Ok(admin(device, &sqe, data)?.dw0.get())
}

/// Changes the Host Behavior Support feature, which tells the controller what this host supports.
/// Sends nothing if `change` leaves it as it is.
///
/// # Errors
/// As [`admin`].
pub(crate) fn change_host_behavior(
    device: &mut dyn Device,
    change: impl FnOnce(&mut HostBehaviorSupport),
) -> anyhow::Result<()> {
    let fid = Fid::HOST_BEHAVIOR_SUPPORT;
    let current = GetFeature { fid, select: Select::Current };
    let mut behavior = HostBehaviorSupport::new_zeroed();
    get_feature(device, current, Nsid::NONE, [0; 2], behavior.as_mut_bytes())?;
    let before = behavior.as_bytes().to_vec();
    change(&mut behavior);
    if behavior.as_bytes() != before {
        let feature = SetFeature { fid, save: false };
        set_feature(device, feature, Nsid::NONE, [0; 3], behavior.as_bytes())?;
    }
    Ok(())
}

/// Reads a property of 4 or 8 bytes; `None` if the controller does not have it.
///
/// # Errors
/// As [`admin`].
pub(crate) fn property(device: &mut dyn Device, offset: u32, bytes: u8) -> anyhow::Result<Option<u64>> {
    let sqe = Property::get(offset, bytes);
    let cqe = device.admin(&sqe, AdminData::None)?;
    let status = cqe.status();
    if status.is_success() {
        return Ok(Some(if bytes == 8 { cqe.result() } else { cqe.dw0.get().into() }));
    }
    if status.is(Status::INVALID_FIELD) {
        return Ok(None);
    }
    let meaning = explain::admin_command(device, &sqe, status);
    Err(Failure::refused("Property Get", status, meaning).into())
}
