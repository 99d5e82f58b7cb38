//! Log pages: `get-log`, `smart-log`, `error-log`, `fw-log`, `effects-log`,
//! `fid-support-effects-log`, `changed-ns-list-log`, `changed-alloc-ns-list-log`,
//! `supported-log-pages`.

use std::process::ExitCode;

use ebof_nvme::Nsid;
use ebof_nvme::identify::Csi;
use ebof_nvme::log::{ChangedNamespaces, ErrorInformation, FirmwareSlots, GetLogPage, Lid, SmartHealth};
use zerocopy::{FromBytes, FromZeros as _, IntoBytes};

use super::Outcome;
use super::number;
use super::on_device::{RawBinary, Shown, on_device};
use crate::command;
use crate::device::{Device, DeviceArgs, Needs};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::effects::{EffectsView, FeatureEffectsView, SupportedView};
use crate::output::health::{ErrorLogView, firmware_view, smart_view};
use crate::output::lists::changed_view;
use crate::output::raw::log_view;
use crate::output::structure::StructureView;
use crate::output::{say, show_list};

/// Maximum number of bytes that `get-log` reads: more than the size of any log page of fixed size.
const LOG_BYTES_MAX: u64 = 64 << 20;

/// Any log page, as bytes.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GetLog {
    #[command(flatten)]
    device: DeviceArgs,
    /// The log page (LID)
    #[arg(short = 'i', long, value_name = "LID", value_parser = number::parse::<u8>)]
    log_id: u8,
    /// Number of bytes to read
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = number::parse_bytes)]
    log_len: u64,
    /// The namespace [default: the controller]
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
    /// Offset of the first byte in the log page
    #[arg(short = 'L', long, value_name = "OFFSET", value_parser = number::parse_bytes, default_value = "0")]
    lpo: u64,
    /// Log Specific Parameter
    #[arg(short = 's', long, value_name = "LSP", value_parser = number::parse::<u8>, default_value = "0")]
    lsp: u8,
    /// Log Specific Identifier
    #[arg(short = 'S', long, value_name = "LSI", value_parser = number::parse::<u16>, default_value = "0")]
    lsi: u16,
    /// Retain the asynchronous event that pointed to the log page
    #[arg(short = 'r', long)]
    rae: bool,
    /// UUID Index
    #[arg(short = 'U', long, value_name = "INDEX", value_parser = number::parse::<u8>, default_value = "0")]
    uuid_index: u8,
    /// I/O command set
    #[arg(short = 'y', long, value_name = "CSI", value_parser = number::parse::<u8>, default_value = "0")]
    csi: u8,
    /// The offset counts entries, not bytes
    #[arg(short = 'O', long = "ot")]
    offset_type: bool,
    /// Bytes that one command reads
    #[arg(short = 'x', long, value_name = "BYTES", value_parser = number::parse_bytes, default_value = "4096")]
    xfer_len: u64,
    #[command(flatten)]
    raw: RawBinary,
}

impl GetLog {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let bytes = self.bytes()?;
        on_device(&self.device, Needs::Admin, &self.raw.apply(global), |device| {
            let mut data = vec![0; bytes];
            command::read_log(device, self.namespace_id.map_or(Nsid::ALL, Nsid), self.page(), &mut data)?;
            Ok(log_view(device.name(), Lid(self.log_id), self.lpo, data))
        })
    }

    fn bytes(&self) -> Result<usize, Failure> {
        let advice = format!("give --log-len a multiple of 4 from 4 to {LOG_BYTES_MAX}");
        if self.log_len == 0 || !self.log_len.is_multiple_of(4) || self.log_len > LOG_BYTES_MAX {
            return Err(Failure::usage(format!("{} bytes of a log page cannot be read", self.log_len), advice));
        }
        if self.xfer_len == 0 || !self.xfer_len.is_multiple_of(4) {
            let message = format!("one command cannot read {} bytes", self.xfer_len);
            return Err(Failure::usage(message, "give --xfer-len a multiple of 4"));
        }
        if !self.offset_type && !self.lpo.is_multiple_of(4) {
            return Err(Failure::usage("a log page cannot be read from there", "give --lpo a multiple of 4"));
        }
        usize::try_from(self.log_len).map_err(|_too_large| Failure::usage("too many bytes", advice))
    }

    fn page(&self) -> GetLogPage {
        GetLogPage {
            lid: Lid(self.log_id),
            lsp: self.lsp,
            retain_event: self.rae,
            bytes: self.xfer_len,
            lsi: self.lsi,
            offset: self.lpo,
            index_offset: self.offset_type,
            uuid_index: self.uuid_index,
            csi: Csi(self.csi),
        }
    }
}

/// SMART / Health Information.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SmartLog {
    /// The namespace [default: the controller]
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
}

impl SmartLog {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<StructureView<SmartHealth>> {
        // As in nvme-cli, DEVICE's namespace is not used: few controllers have a log for each.
        let nsid = self.namespace_id.map_or(Nsid::ALL, Nsid);
        let data = command::log(device, nsid, command::log_page(Lid::SMART_HEALTH))?;
        Ok(smart_view(device.name(), nsid, data))
    }
}

/// Error Information.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ErrorLog {
    #[command(flatten)]
    device: DeviceArgs,
    /// Number of entries, at most as many as the controller has
    #[arg(short = 'e', long, value_name = "ENTRIES", value_parser = number::parse::<u16>, default_value = "64")]
    log_entries: u16,
    #[command(flatten)]
    shown: Shown,
}

impl ErrorLog {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        if self.log_entries == 0 {
            return Err(Failure::usage("0 entries are none", "give --log-entries 1 or more").into());
        }
        on_device(&self.device, Needs::Admin, &self.shown.apply(global), |device| {
            let kept = command::identify_controller(device)?.error_log_entries();
            let count = usize::from(self.log_entries.min(kept));
            let mut entries = vec![ErrorInformation::new_zeroed(); count];
            command::read_log(device, Nsid::ALL, command::log_page(Lid::ERROR_INFORMATION), entries.as_mut_bytes())?;
            Ok(ErrorLogView { device: device.name().to_owned(), entries })
        })
    }
}

/// Reads a log page of the controller without parameters.
fn read<T: FromBytes + IntoBytes>(device: &mut dyn Device, lid: Lid) -> anyhow::Result<Box<T>> {
    command::log(device, Nsid::ALL, command::log_page(lid))
}

/// Firmware Slot Information.
pub(crate) fn firmware((): &(), device: &mut dyn Device) -> anyhow::Result<StructureView<FirmwareSlots>> {
    let data = read(device, Lid::FIRMWARE_SLOTS)?;
    Ok(firmware_view(device.name(), data))
}

/// Changed Allocated Namespace List.
pub(crate) fn changed_allocated((): &(), device: &mut dyn Device) -> anyhow::Result<StructureView<ChangedNamespaces>> {
    let data = read(device, Lid::CHANGED_ALLOCATED_NAMESPACES)?;
    Ok(changed_view("changed-alloc-ns-list-log", device.name(), data))
}

/// Feature Identifiers Supported and Effects.
pub(crate) fn features((): &(), device: &mut dyn Device) -> anyhow::Result<FeatureEffectsView> {
    let data = read(device, Lid::FEATURE_EFFECTS)?;
    Ok(FeatureEffectsView { device: device.name().to_owned(), data })
}

/// Supported Log Pages.
pub(crate) fn supported((): &(), device: &mut dyn Device) -> anyhow::Result<SupportedView> {
    let data = read(device, Lid::SUPPORTED_LOG_PAGES)?;
    Ok(SupportedView { device: device.name().to_owned(), data })
}

/// Changed Namespace List. Reading it clears it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ChangedNsListLog {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    shown: Shown,
}

impl ChangedNsListLog {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        on_device(&self.device, Needs::Admin, &self.shown.apply(global), |device| {
            if global.is_verbose() {
                say("reading this log clears it");
            }
            let data = read(device, Lid::CHANGED_NAMESPACES)?;
            Ok(changed_view("changed-ns-list-log", device.name(), data))
        })
    }
}

/// Commands Supported and Effects.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EffectsLog {
    #[command(flatten)]
    device: DeviceArgs,
    /// The I/O command set
    #[arg(short = 'c', long, value_name = "CSI", value_parser = number::parse::<u8>, default_value = "0")]
    csi: u8,
    #[command(flatten)]
    shown: Shown,
}

impl EffectsLog {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let global = self.shown.apply(global);
        let mut device = self.device.open(Needs::Admin, &global)?;
        let page = GetLogPage { csi: Csi(self.csi), ..command::log_page(Lid::COMMAND_EFFECTS) };
        let data = command::log(&mut *device, Nsid::ALL, page)?;
        show_list(&global, &EffectsView { data, csi: self.csi })?;
        Ok(ExitCode::SUCCESS)
    }
}
