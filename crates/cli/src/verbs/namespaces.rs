//! `create-ns`, `delete-ns`, `attach-ns`, `detach-ns`: management of a drive's namespaces.

use ebof_attach::usage::LocalDevice;
use ebof_initiator::AdminData;
use ebof_nvme::identify::{Cns, ControllerList, Csi, IdentifyNamespace, LbaFormat, NamespaceGranularityList, field};
use ebof_nvme::namespace::{AttachmentSelect, ManagementSelect, NamespaceManagement, NewNamespace};
use ebof_nvme::{ControllerId, Nsid};
use zerocopy::IntoBytes as _;

use super::guard::{confirm_loss, refuse_in_use};
use super::number::{self, Amount, Blocks, List};
use super::on_device::NamespaceOption;
use crate::command;
use crate::device::query::Identify;
use crate::device::{Device, namespace_of};
use crate::failure::Failure;
use crate::output::managed::Managed;
use crate::output::say;

/// Creates a namespace.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CreateNs {
    /// Size in blocks (NSZE)
    #[arg(short = 's', long, value_name = "BLOCKS", value_parser = number::parse_blocks)]
    nsze: Option<Blocks>,
    /// Capacity in blocks (NCAP); less than the size makes a thin namespace [default: the size]
    #[arg(short = 'c', long, value_name = "BLOCKS", value_parser = number::parse_blocks)]
    ncap: Option<Blocks>,
    /// Size in bytes, as in 100G or 1.5T (powers of 1000; Gi, Ti of 1024); without a unit, in
    /// blocks
    #[arg(short = 'S', long, value_name = "SIZE", value_parser = number::parse_si, conflicts_with = "nsze")]
    nsze_si: Option<Amount>,
    /// Capacity in bytes, as --nsze-si
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = number::parse_si, conflicts_with = "ncap")]
    ncap_si: Option<Amount>,
    /// Format: index of the LBA format in bits 6:5 and 3:0, bit 4 for metadata at the end of each
    /// block [default: 0]
    #[arg(short = 'f', long, value_name = "FLBAS", value_parser = number::parse::<u8>)]
    flbas: Option<u8>,
    /// Block size in bytes, without metadata, instead of --flbas
    #[arg(short = 'b', long, value_name = "BYTES", value_parser = number::parse_bytes, conflicts_with = "flbas")]
    block_size: Option<u64>,
    /// End-to-end data protection: type 0 to 3, and bit 3 for the first bytes of the metadata
    #[arg(short = 'd', long, value_name = "DPS", value_parser = number::parse::<u8>, default_value = "0")]
    dps: u8,
    /// Sharing: 0 is private, 1 may be attached to several controllers
    #[arg(short = 'm', long, value_name = "NMIC", value_parser = number::parse::<u8>, default_value = "0")]
    nmic: u8,
    /// ANA group; 0 leaves the choice to the controller
    #[arg(short = 'a', long, value_name = "ID", value_parser = number::parse::<u32>, default_value = "0")]
    anagrp_id: u32,
    /// NVM set; 0 leaves the choice to the controller
    #[arg(short = 'i', long, value_name = "ID", value_parser = number::parse::<u16>, default_value = "0")]
    nvmset_id: u16,
    /// Endurance group; 0 leaves the choice to the controller
    #[arg(short = 'e', long, value_name = "ID", value_parser = number::parse::<u16>, default_value = "0")]
    endg_id: u16,
    /// I/O command set: 0 is NVM
    #[arg(short = 'y', long, value_name = "CSI", value_parser = number::parse::<u8>, default_value = "0")]
    csi: u8,
    /// Logical block storage tag mask
    #[arg(short = 'l', long, value_name = "MASK", value_parser = number::parse::<u64>, default_value = "0")]
    lbstm: u64,
    /// Number of placement handles
    #[arg(short = 'n', long, value_name = "N", value_parser = number::parse::<u16>, default_value = "0")]
    nphndls: u16,
    /// Reclaim unit handles of the placement handles, separated by commas
    #[arg(short = 'p', long, value_name = "LIST", value_parser = number::list::<u16>)]
    phndls: Option<List<u16>>,
}

impl CreateNs {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Managed> {
        let new = self.wanted(device)?;
        let create = NamespaceManagement { select: ManagementSelect::Create, csi: Csi(self.csi) };
        let cqe = command::admin(device, &create.encode(Nsid::NONE), AdminData::FromHost(new.as_bytes()))?;
        let created = Managed::new("create-ns", device.name(), cqe.dw0.get());
        Ok(created.with("nsze", new.nsze.get()).with("ncap", new.ncap.get()).with("flbas", new.flbas))
    }

    fn wanted(&self, device: &mut dyn Device) -> anyhow::Result<NewNamespace> {
        let flbas = match self.block_size {
            Some(bytes) => format_of(device, bytes)?,
            None => self.flbas.unwrap_or(0),
        };
        let (size, capacity) = self.blocks(device, flbas)?;
        let handles = self.phndls.as_ref().map(|list| list.0.as_slice()).unwrap_or_default();
        if handles.len() != usize::from(self.nphndls) || handles.len() > 128 {
            let message = format!("--nphndls says {}, and --phndls has {}", self.nphndls, handles.len());
            return Err(
                Failure::usage(message, "give as many reclaim unit handles as --nphndls says, at most 128").into()
            );
        }
        let mut new = NewNamespace {
            nsze: size.into(),
            ncap: capacity.into(),
            flbas,
            dps: self.dps,
            nmic: self.nmic,
            anagrpid: self.anagrp_id.into(),
            nvmsetid: self.nvmset_id.into(),
            endgid: self.endg_id.into(),
            lbstm: self.lbstm.into(),
            nphndls: self.nphndls.into(),
            ..NewNamespace::default()
        };
        for (slot, &handle) in new.phndl.iter_mut().zip(handles) {
            slot.set(handle);
        }
        Ok(new)
    }

    /// Size and capacity in blocks.
    fn blocks(&self, device: &mut dyn Device, flbas: u8) -> anyhow::Result<(u64, u64)> {
        let bytes = |amount| matches!(amount, Some(Amount::Bytes(_)));
        let geometry =
            if bytes(self.nsze_si) || bytes(self.ncap_si) { Some(Geometry::read(device, flbas)?) } else { None };
        let blocks = |amount, pick: fn(&Geometry) -> u64| match (amount, &geometry) {
            (Amount::Blocks(blocks), _) => Some(blocks),
            (Amount::Bytes(bytes), Some(geometry)) => Some(geometry.blocks(bytes, pick(geometry))),
            (Amount::Bytes(_), None) => None,
        };
        for (option, in_bytes, given) in [("--nsze", "-S", self.nsze), ("--ncap", "-C", self.ncap)] {
            if let Some(Blocks { count, has_unit: true }) = given {
                say(&format!("note: {option} is in blocks: {count} of them; {in_bytes} takes a size in bytes"));
            }
        }
        let given = |blocks: Option<Blocks>| blocks.map(|blocks| blocks.count);
        let size =
            given(self.nsze).or_else(|| self.nsze_si.and_then(|size| blocks(size, |geometry| geometry.size_bytes)));
        let capacity =
            given(self.ncap).or_else(|| self.ncap_si.and_then(|size| blocks(size, |geometry| geometry.capacity_bytes)));
        let size = size.or(capacity).ok_or_else(|| {
            Failure::usage(
                "nothing says how large the namespace is to be",
                "give --nsze (blocks) or --nsze-si (as in 100G); `ebof id-ctrl` shows what is free as unvmcap",
            )
        })?;
        Ok((size, capacity.unwrap_or(size)))
    }
}

/// Sizes for the conversion from bytes to blocks.
struct Geometry {
    /// Bytes of a block, with its metadata.
    block_bytes: u64,
    /// Granularity of sizes, bytes.
    size_bytes: u64,
    /// Granularity of capacities, bytes.
    capacity_bytes: u64,
}

impl Geometry {
    fn read(device: &mut dyn Device, flbas: u8) -> anyhow::Result<Self> {
        let common = common_namespace(device)?;
        let index = usize::from((flbas & 0x0f) | (flbas >> 1 & 0x30));
        let format = common.lba_formats().get(index).copied();
        let Some((format, data_bytes)) = format.and_then(|format| Some((format, format.block_bytes()?))) else {
            let message = format!("there is no LBA format {index}");
            return Err(Failure::usage(message, formats_advice(device.name(), &common)).into());
        };
        let mut geometry =
            Self { block_bytes: u64::from(data_bytes) + u64::from(format.ms.get()), size_bytes: 1, capacity_bytes: 1 };
        let attributes = command::identify_controller(device)?.ctratt.get();
        if attributes & field::ctratt::NAMESPACE_GRANULARITY != 0 {
            let list: Box<NamespaceGranularityList> =
                command::identify(device, Identify::new(Cns::NAMESPACE_GRANULARITY_LIST))?;
            if let Some(granularity) = list.of_format(index) {
                geometry.size_bytes = granularity.nszeg.get().max(1);
                geometry.capacity_bytes = granularity.ncapg.get().max(1);
            }
        }
        Ok(geometry)
    }

    /// The number of blocks for `bytes`, rounded up to the granularity.
    fn blocks(&self, bytes: u64, granularity: u64) -> u64 {
        bytes.checked_next_multiple_of(granularity).unwrap_or(bytes) / self.block_bytes
    }
}

/// The common properties of all namespaces: the supported formats.
fn common_namespace(device: &mut dyn Device) -> anyhow::Result<Box<IdentifyNamespace>> {
    command::identify(device, Identify::for_namespace(Cns::NAMESPACE, Nsid::ALL)).map_err(|error| {
        let managed =
            command::identify_controller(device).map(|data| data.oacs.get() & field::oacs::NAMESPACE_MANAGEMENT);
        if !matches!(managed, Ok(0)) {
            return error;
        }
        let message = format!("{} does not manage namespaces: its target offers fixed ones", device.name());
        let advice =
            "namespaces are created on a drive that hosts manage: `ebof serve --drive name=d0,backing=PATH,size=SIZE`";
        Failure::unsupported(message, advice).into()
    })
}

/// The format of `bytes` bytes without metadata, as FLBAS.
fn format_of(device: &mut dyn Device, bytes: u64) -> anyhow::Result<u8> {
    let common = common_namespace(device)?;
    match plain_format(&common, bytes) {
        Some(index) => Ok((index & 0x0f) | (index & 0x30) << 1),
        None => {
            let message = format!("there is no LBA format of {bytes} bytes without metadata");
            Err(Failure::usage(message, formats_advice(device.name(), &common)).into())
        }
    }
}

/// Index of the first format of `bytes` bytes without metadata.
pub(super) fn plain_format(namespace: &IdentifyNamespace, bytes: u64) -> Option<u8> {
    let fits = |format: &LbaFormat| format.ms.get() == 0 && format.block_bytes().map(u64::from) == Some(bytes);
    namespace.lba_formats().iter().position(fits).and_then(|index| u8::try_from(index).ok())
}

/// Advice for a format that does not exist: lists the supported ones.
pub(super) fn formats_advice(device: &str, namespace: &IdentifyNamespace) -> String {
    let format = |(index, format): (usize, &LbaFormat)| {
        let bytes = format.block_bytes()?;
        let metadata = match format.ms.get() {
            0 => String::new(),
            metadata => format!("+{metadata}"),
        };
        Some(format!("{index}: {bytes}{metadata}"))
    };
    let formats: Vec<String> = namespace.lba_formats().iter().enumerate().filter_map(format).collect();
    format!("{device} has these formats (bytes, and bytes of metadata): {}", formats.join(", "))
}

/// Deletes a namespace.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DeleteNs {
    /// The namespace, if DEVICE does not name one; 0xffffffff for all
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
    /// Do not ask, and proceed even if a block device of this machine is in use
    #[arg(long)]
    force: bool,
}

impl DeleteNs {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Managed> {
        let nsid = namespace_of(device, self.namespace_id)?;
        let what = if nsid == Nsid::ALL { "every namespace".to_owned() } else { format!("namespace {nsid}") };
        let warning = format!("Deleting takes {what} of {} and its data away for ever.", device.name());
        confirm_loss("delete-ns", &warning, device, nsid, self.force)?;
        let delete = NamespaceManagement { select: ManagementSelect::Delete, csi: Csi::NVM };
        command::admin(device, &delete.encode(nsid), AdminData::None)?;
        Ok(Managed::new("delete-ns", device.name(), nsid.0))
    }
}

/// A namespace and controllers.
#[derive(Clone, Debug, clap::Args)]
struct Attachment {
    #[command(flatten)]
    namespace: NamespaceOption,
    /// Controllers, separated by commas [default: DEVICE's own]
    #[arg(short, long, value_name = "LIST", value_parser = number::list::<u16>)]
    controllers: Option<List<u16>>,
}

/// Attaches a namespace.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AttachNs {
    #[command(flatten)]
    attachment: Attachment,
    /// Do not wait for the block device of a connected DEVICE
    #[arg(long)]
    no_wait: bool,
}

impl AttachNs {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Managed> {
        let done = self.attachment.run_on("attach-ns", AttachmentSelect::Attach, device)?;
        let Some(disks) = device.attached().map(|controller| format!("{controller}n")).filter(|_| !self.no_wait) else {
            return Ok(done);
        };
        // The namespace is in the target's list already, so that a rescan finds it without waiting
        // for the event.
        if let Err(error) = device.rescan() {
            say(&format!("the namespace is attached, and its block device is not there yet: {error}"));
            return Ok(done);
        }
        let nsid = self.attachment.namespace.nsid(device)?;
        // The subsystem may be connected more than once: ignore block devices of other connections.
        let own = |local: &LocalDevice| Nsid(local.nsid) == nsid && local.name.starts_with(&disks);
        let found = device.local_devices()?.into_iter().filter(own);
        Ok(found.fold(done, |done, local| done.with_block_device(&local.name, &local.path)))
    }
}

/// Detaches a namespace.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DetachNs {
    #[command(flatten)]
    attachment: Attachment,
    /// Proceed even if a block device of this machine is in use
    #[arg(long)]
    force: bool,
}

impl DetachNs {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Managed> {
        let nsid = self.attachment.namespace.nsid(device)?;
        refuse_in_use("detach-ns", device, nsid, self.force)?;
        self.attachment.run_on("detach-ns", AttachmentSelect::Detach, device)
    }
}

impl Attachment {
    fn run_on(&self, verb: &'static str, select: AttachmentSelect, device: &mut dyn Device) -> anyhow::Result<Managed> {
        let nsid = self.namespace.nsid(device)?;
        let mut controllers = match &self.controllers {
            Some(list) => list.0.clone(),
            None => vec![command::identify_controller(device)?.cntlid.get()],
        };
        controllers.sort_unstable();
        controllers.dedup();
        let list = ControllerList::starting_at(ControllerId(0), controllers.iter().copied().map(ControllerId));
        if usize::from(list.num.get()) != controllers.len() {
            let message = "that is no list of controllers";
            return Err(
                Failure::usage(message, "give at most 2047 controllers from 0 to 0xffef; `ebof list-ctrl`").into()
            );
        }
        command::admin(device, &select.encode(nsid), AdminData::FromHost(list.as_bytes()))?;
        Ok(Managed::new(verb, device.name(), nsid.0).with("controllers", controllers))
    }
}

#[cfg(test)]
mod tests;
