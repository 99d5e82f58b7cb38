//! Commands as verbs need them: built, run, and their status turned into an error that says what it means here.

use ebof_initiator::AdminData;
use ebof_nvme::connect::Property;
use ebof_nvme::feature::{Fid, GetFeature, Select, SetFeature};
use ebof_nvme::identify::{Cns, IdentifyController, IdentifyNamespace};
use ebof_nvme::log::Lid;
use ebof_nvme::opcode::{admin as opcode, admin_name, fabrics_name, nvm_name};
use ebof_nvme::property::{Cap, offset};
use ebof_nvme::{Cqe, Nsid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use crate::device::Device;
use crate::explain;
use crate::failure::Failure;

/// Bytes of a log page that one command reads, as nvme-cli does it: what every controller takes.
const LOG_CHUNK_BYTES: usize = 4096;

/// Runs an admin command that has to succeed.
///
/// # Errors
/// No answer, or a status other than success with its meaning.
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

/// Runs an I/O command that has to succeed.
///
/// # Errors
/// No answer, or a status other than success with its meaning.
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

/// What Identify is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identify {
    /// Which structure.
    pub(crate) cns: Cns,
    /// The namespace, or where a list begins.
    pub(crate) nsid: Nsid,
    /// The controller, or where a list begins.
    pub(crate) cntid: u16,
    /// The I/O command set.
    pub(crate) csi: u8,
}

impl Identify {
    /// A structure that is about no namespace.
    pub(crate) const fn new(cns: Cns) -> Self {
        Self { cns, nsid: Nsid::NONE, cntid: 0, csi: 0 }
    }

    /// A structure about a namespace.
    pub(crate) const fn of(cns: Cns, nsid: Nsid) -> Self {
        Self { cns, nsid, cntid: 0, csi: 0 }
    }

    fn encode(self) -> Sqe {
        Sqe::new(opcode::IDENTIFY)
            .with_nsid(self.nsid)
            .with_cdw(10, u32::from(self.cns.0) | u32::from(self.cntid) << 16)
            .with_cdw(11, u32::from(self.csi) << 24)
    }
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
/// As [`admin`]; also where the controller answers with zeros, which means that there is no such namespace.
pub(crate) fn identify_namespace(device: &mut dyn Device, nsid: Nsid) -> anyhow::Result<Box<IdentifyNamespace>> {
    let data: Box<IdentifyNamespace> = identify(device, Identify::of(Cns::NAMESPACE, nsid))?;
    if data.nsze.get() == 0 {
        let meaning = explain::no_namespace(device.name(), nsid);
        return Err(Failure::new("no-such-namespace", format!("namespace {nsid} is not active"), meaning).into());
    }
    Ok(data)
}

/// The most bytes that one command may transfer; `None` where the controller sets no limit.
///
/// # Errors
/// As [`admin`].
pub(crate) fn max_transfer_bytes(device: &mut dyn Device) -> anyhow::Result<Option<u64>> {
    let cap = property(device, offset::CAP, 8)?.map_or(4096, |cap| Cap(cap).page_min_bytes());
    Ok(identify_controller(device)?.max_transfer_bytes(cap))
}

/// What Get Log Page is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPage {
    /// Which log page.
    pub(crate) lid: Lid,
    /// The namespace; FFFFFFFFh is the controller.
    pub(crate) nsid: Nsid,
    /// Where in the page to begin.
    pub(crate) offset: u64,
    /// Log Specific Parameter, 7 bits.
    pub(crate) lsp: u8,
    /// Log Specific Identifier.
    pub(crate) lsi: u16,
    /// Retain Asynchronous Event: reading does not clear it.
    pub(crate) retain_event: bool,
    /// UUID Index, 7 bits.
    pub(crate) uuid_index: u8,
    /// I/O command set.
    pub(crate) csi: u8,
    /// Offset Type: `offset` counts entries.
    pub(crate) index_offset: bool,
    /// Bytes that one command reads; 0 for what every controller takes.
    pub(crate) chunk_bytes: usize,
}

impl LogPage {
    /// A whole log page of the controller.
    pub(crate) const fn new(lid: Lid) -> Self {
        Self {
            lid,
            nsid: Nsid::ALL,
            offset: 0,
            lsp: 0,
            lsi: 0,
            retain_event: false,
            uuid_index: 0,
            csi: 0,
            index_offset: false,
            chunk_bytes: 0,
        }
    }

    /// The command for `bytes` (a multiple of 4, not 0) at `offset`.
    fn encode(&self, offset: u64, bytes: usize, retain_event: bool) -> Sqe {
        let dwords = u32::try_from(bytes / 4).unwrap_or(u32::MAX).saturating_sub(1);
        let (low, high) = (offset & 0xffff_ffff, offset >> 32);
        let half = |half: u64| u32::try_from(half).unwrap_or_default();
        Sqe::new(opcode::GET_LOG_PAGE)
            .with_nsid(self.nsid)
            .with_cdw(
                10,
                u32::from(self.lid.0)
                    | u32::from(self.lsp & 0x7f) << 8
                    | u32::from(retain_event) << 15
                    | (dwords & 0xffff) << 16,
            )
            .with_cdw(11, dwords >> 16 | u32::from(self.lsi) << 16)
            .with_cdw(12, half(low))
            .with_cdw(13, half(high))
            .with_cdw(
                14,
                u32::from(self.uuid_index & 0x7f) | u32::from(self.index_offset) << 23 | u32::from(self.csi) << 24,
            )
    }
}

/// Reads `data.len()` bytes (a multiple of 4) of a log page, in as many commands as it takes; the event is retained until
/// the last one.
///
/// # Errors
/// As [`admin`].
pub(crate) fn read_log(device: &mut dyn Device, page: &LogPage, data: &mut [u8]) -> anyhow::Result<()> {
    let chunk_bytes = match page.chunk_bytes {
        // Entries cannot be cut at bytes.
        _ if page.index_offset => data.len().max(4),
        0 => LOG_CHUNK_BYTES,
        bytes => bytes,
    };
    let chunks = data.len().div_ceil(chunk_bytes);
    for (index, chunk) in data.chunks_mut(chunk_bytes).enumerate() {
        let last = index + 1 == chunks;
        let at = page.offset + (index * chunk_bytes) as u64;
        let sqe = page.encode(at, chunk.len(), page.retain_event || !last);
        admin(device, &sqe, AdminData::ToHost(chunk))?;
    }
    Ok(())
}

/// Reads a log page whose size is known.
///
/// # Errors
/// As [`admin`].
pub(crate) fn log<T: FromBytes + IntoBytes>(device: &mut dyn Device, page: &LogPage) -> anyhow::Result<Box<T>> {
    let mut data = Box::new(T::new_zeroed());
    read_log(device, page, data.as_mut_bytes())?;
    Ok(data)
}

/// Runs Get Features; returns dword 0.
///
/// # Errors
/// As [`admin`].
pub(crate) fn get_feature(
    device: &mut dyn Device,
    (fid, select): (Fid, Select),
    nsid: Nsid,
    (cdw11, cdw14): (u32, u32),
    data: &mut [u8],
) -> anyhow::Result<u32> {
    let sqe = Sqe::new(opcode::GET_FEATURES).with_nsid(nsid).with_cdw(10, GetFeature { fid, select }.encode());
    let sqe = sqe.with_cdw(11, cdw11).with_cdw(14, cdw14);
    let data = if data.is_empty() { AdminData::None } else { AdminData::ToHost(data) };
    Ok(admin(device, &sqe, data)?.dw0.get())
}

/// Runs Set Features; returns dword 0. `dwords` are 11, 12 and 14.
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

/// Reads a property of 4 or 8 bytes; `None` where the controller does not have it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn get_log_page_is_encoded_as_nvme_cli_sends_it() {
        let page = LogPage { lsp: 1, lsi: 2, uuid_index: 3, csi: 4, ..LogPage::new(Lid::DISCOVERY) };
        let sqe = page.encode(0x1_0000_0400, 0x8_0000, true);
        assert_eq!(sqe.cdw10.get(), 0xffff_8170);
        assert_eq!(sqe.cdw11.get(), 0x0002_0001);
        assert_eq!((sqe.cdw12.get(), sqe.cdw13.get(), sqe.cdw14.get()), (0x400, 1, 0x0400_0003));
        assert_eq!(sqe.nsid(), Nsid::ALL);
    }
}
