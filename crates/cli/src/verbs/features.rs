//! `get-feature` and `set-feature`.

use std::path::PathBuf;

use ebof_nvme::Nsid;
use ebof_nvme::feature::{self as nvme, Fid, Select};

use super::Outcome;
use super::number;
use super::on_device::on_device;
use crate::command;
use crate::device::{Device, DeviceArgs, Needs, namespace_of};
use crate::failure::Failure;
use crate::file;
use crate::global::Global;
use crate::output::features::{FeatureView, feature_set_view};

/// Maximum size of a feature's data structure.
const DATA_BYTES_MAX: usize = 4096;

/// A feature's value.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GetFeature {
    /// The feature (FID)
    #[arg(short = 'f', long, value_name = "FID", value_parser = number::parse::<u8>)]
    feature_id: u8,
    /// The value to show: 0 current, 1 default, 2 saved, 3 supported capabilities
    #[arg(short = 's', long, value_name = "SEL", value_parser = select, default_value = "0")]
    sel: Select,
    /// The namespace
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
    /// Size of the feature's data structure in bytes
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = number::parse_bytes)]
    data_len: Option<u64>,
    /// Dword 11
    #[arg(short = 'c', long, value_name = "DWORD", value_parser = number::parse::<u32>)]
    cdw11: Option<u32>,
    /// UUID Index
    #[arg(short = 'U', long, value_name = "INDEX", value_parser = number::parse::<u8>, default_value = "0")]
    uuid_index: u8,
}

impl GetFeature {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<FeatureView> {
        let fid = Fid(self.feature_id);
        let nsid = feature_namespace(device, fid, self.namespace_id)?;
        let bytes = match self.data_len {
            Some(bytes) => usize::try_from(bytes).ok().filter(|&bytes| bytes <= DATA_BYTES_MAX).ok_or_else(|| {
                Failure::usage(format!("no feature has {bytes} bytes of data"), format!("at most {DATA_BYTES_MAX}"))
            })?,
            None if self.sel == Select::Supported => 0,
            None => data_bytes(fid),
        };
        let mut data = vec![0; bytes];
        let feature = nvme::GetFeature { fid, select: self.sel };
        let dwords = [self.cdw11.unwrap_or_else(|| default_cdw11(fid)), u32::from(self.uuid_index & 0x7f)];
        let value = command::get_feature(device, feature, nsid, dwords, &mut data)?;
        Ok(FeatureView { fid, select: self.sel, value, data })
    }
}

/// Changes a feature.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SetFeature {
    #[command(flatten)]
    device: DeviceArgs,
    /// The feature (FID)
    #[arg(short = 'f', long, value_name = "FID", value_parser = number::parse::<u8>)]
    feature_id: u8,
    /// The value: dword 11
    #[arg(short = 'V', long, value_name = "DWORD", value_parser = number::parse::<u32>, default_value_if("data", clap::builder::ArgPredicate::IsPresent, "0"))]
    value: u32,
    /// Dword 12
    #[arg(short = 'c', long, value_name = "DWORD", value_parser = number::parse::<u32>, default_value = "0")]
    cdw12: u32,
    /// The namespace
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
    /// UUID Index
    #[arg(short = 'U', long, value_name = "INDEX", value_parser = number::parse::<u8>, default_value = "0")]
    uuid_index: u8,
    /// Size of the feature's data structure in bytes
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = number::parse_bytes)]
    data_len: Option<u64>,
    /// The file with the data structure
    #[arg(short = 'd', long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Save the value over resets and power cycles
    #[arg(short = 's', long)]
    save: bool,
}

impl SetFeature {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let fid = Fid(self.feature_id);
        let data = self.read_data(fid)?;
        on_device(&self.device, Needs::Admin, global, |device| {
            let nsid = feature_namespace(&*device, fid, self.namespace_id)?;
            let dwords = [self.value, self.cdw12, u32::from(self.uuid_index & 0x7f)];
            let feature = nvme::SetFeature { fid, save: self.save };
            let result = command::set_feature(device, feature, nsid, dwords, &data)?;
            Ok(feature_set_view(fid, self.value, self.save, result))
        })
    }

    fn read_data(&self, fid: Fid) -> anyhow::Result<Vec<u8>> {
        let wanted = match self.data_len {
            Some(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
            None => data_bytes(fid),
        };
        let Some(path) = &self.data else {
            if wanted == 0 {
                return Ok(Vec::new());
            }
            let message = format!("feature {:#04x} has a data structure of {wanted} bytes", fid.0);
            return Err(Failure::usage(message, "give it in a file: --data FILE").into());
        };
        let data = file::read(path, "the data", DATA_BYTES_MAX as u64, file::Kind::Any)?;
        let wanted = if wanted == 0 { data.len() } else { wanted };
        if data.len() != wanted || wanted > DATA_BYTES_MAX {
            let message = format!("{} has {} bytes, and the feature takes {wanted}", path.display(), data.len());
            let advice = format!("give a file of that length, or the length with --data-len; at most {DATA_BYTES_MAX}");
            return Err(Failure::usage(message, advice).into());
        }
        Ok(data)
    }
}

fn select(text: &str) -> Result<Select, String> {
    match text {
        "current" => Ok(Select::Current),
        "default" => Ok(Select::Default),
        "saved" => Ok(Select::Saved),
        "supported" | "cap" => Ok(Select::Supported),
        number => match number::parse::<u8>(number)? {
            value @ 0..=7 => Ok(Select::decode(value)),
            _ => Err("want 0 to 3, or current, default, saved or supported".to_owned()),
        },
    }
}

/// The namespace of a feature: 0 for features of the controller.
fn feature_namespace(device: &dyn Device, fid: Fid, option: Option<u32>) -> Result<Nsid, Failure> {
    let of_a_namespace = [
        Fid::LBA_RANGE_TYPE,
        Fid::ERROR_RECOVERY,
        Fid::RESERVATION_NOTIFICATION_MASK,
        Fid::RESERVATION_PERSISTENCE,
        Fid::WRITE_PROTECTION,
    ];
    if of_a_namespace.contains(&fid) {
        return namespace_of(device, option);
    }
    Ok(option.map_or(Nsid::NONE, Nsid))
}

/// Size of a feature's data structure in bytes.
fn data_bytes(fid: Fid) -> usize {
    match fid {
        Fid::LBA_RANGE_TYPE => 4096,
        Fid::TIMESTAMP => 8,
        Fid::HOST_BEHAVIOR_SUPPORT => 512,
        Fid::HOST_IDENTIFIER => 16,
        _ => 0,
    }
}

/// Over fabrics the host identifier always has 128 bits (EXHID).
fn default_cdw11(fid: Fid) -> u32 {
    u32::from(fid == Fid::HOST_IDENTIFIER)
}
