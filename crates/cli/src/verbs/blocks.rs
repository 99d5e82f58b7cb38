//! I/O commands without data of the user's: `write-zeroes`, `write-uncor`, `verify`, `flush`,
//! `dsm`.

use std::process::ExitCode;

use ebof_initiator::AdminData;
use ebof_nvme::identify::field::vwc;
use ebof_nvme::identify::{Cns, NamespaceList};
use ebof_nvme::io::{BlockRange, Dsm as DsmCommand, DsmRange};
use ebof_nvme::opcode::nvm;
use ebof_nvme::{Nsid, Sqe};
use zerocopy::IntoBytes as _;

use super::Outcome;
use super::directive::Directive;
use super::guard::refuse_in_use;
use super::number::{self, List};
use super::tags::TagArgs;
use crate::command::{self, Identify};
use crate::device::{Device, DeviceArgs, Needs, namespace_of};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::done::Done;
use crate::output::show;

/// Blocks, and the namespace they are of.
#[derive(Clone, Debug, clap::Args)]
struct Blocks {
    #[command(flatten)]
    device: DeviceArgs,
    /// Which namespace, where DEVICE does not say
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
    /// The first block
    #[arg(short, long, value_name = "LBA", value_parser = number::parse::<u64>, default_value = "0")]
    start_block: u64,
    /// Number of blocks less one, as on the wire: 0 is one block
    #[arg(short = 'c', long, value_name = "NLB", value_parser = number::parse::<u16>, default_value = "0")]
    block_count: u16,
    /// Force Unit Access: from and to the medium
    #[arg(short = 'f', long)]
    force_unit_access: bool,
    /// Limited Retry
    #[arg(short = 'l', long)]
    limited_retry: bool,
    /// Protection information field (PRINFO)
    #[arg(short = 'p', long, value_name = "PRINFO", value_parser = number::parse::<u8>, default_value = "0")]
    prinfo: u8,
    #[command(flatten)]
    tags: TagArgs,
}

impl Blocks {
    /// Runs the command; one that `writes` leaves devices alone that this machine uses.
    fn run(
        &self,
        (verb, opcode): (&'static str, u8),
        directive: Directive,
        (deallocate, writes): (bool, bool),
        global: &Global,
    ) -> Outcome {
        let mut device = self.device.open(Needs::Io, global)?;
        let nsid = namespace_of(&*device, self.namespace_id)?;
        refuse_in_use(verb, &*device, nsid, !writes)?;
        let range = BlockRange {
            fua: self.force_unit_access,
            limited_retry: self.limited_retry,
            prinfo: self.prinfo & 0xf,
            deallocate,
            ..BlockRange::new(self.start_block, u32::from(self.block_count) + 1)
        };
        let sqe = self.tags.apply(&mut *device, nsid, range.encode(opcode, nsid))?;
        let sqe = directive.apply(sqe)?;
        command::io(&mut *device, &sqe, AdminData::None)?;
        let done = Done::new(verb, device.name(), "Success").with("nsid", nsid.0).with("start_block", range.slba);
        show(global, &done.with("blocks", range.blocks))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes zeros without sending them.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WriteZeroes {
    #[command(flatten)]
    blocks: Blocks,
    #[command(flatten)]
    directive: Directive,
    /// The blocks may be deallocated
    #[arg(short, long)]
    deac: bool,
    /// Also when a block device of this machine is in use
    #[arg(long)]
    force: bool,
}

impl WriteZeroes {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        self.blocks.run(("write-zeroes", nvm::WRITE_ZEROES), self.directive, (self.deac, !self.force), global)
    }
}

/// Has the controller read blocks without sending them.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    blocks: Blocks,
}

impl Verify {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        self.blocks.run(("verify", nvm::VERIFY), Directive::default(), (false, false), global)
    }
}

/// Marks blocks as unreadable.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WriteUncor {
    #[command(flatten)]
    device: DeviceArgs,
    /// Which namespace, where DEVICE does not say
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
    /// The first block
    #[arg(short, long, value_name = "LBA", value_parser = number::parse::<u64>, default_value = "0")]
    start_block: u64,
    /// Number of blocks less one, as on the wire: 0 is one block
    #[arg(short = 'c', long, value_name = "NLB", value_parser = number::parse::<u16>, default_value = "0")]
    block_count: u16,
    #[command(flatten)]
    directive: Directive,
    /// Also when a block device of this machine is in use
    #[arg(long)]
    force: bool,
}

impl WriteUncor {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let mut device = self.device.open(Needs::Io, global)?;
        let nsid = namespace_of(&*device, self.namespace_id)?;
        refuse_in_use("write-uncor", &*device, nsid, self.force)?;
        let range = BlockRange::new(self.start_block, u32::from(self.block_count) + 1);
        let sqe = self.directive.apply(range.encode(nvm::WRITE_UNCORRECTABLE, nsid))?;
        command::io(&mut *device, &sqe, AdminData::None)?;
        let done = Done::new("write-uncor", device.name(), "Success").with("nsid", nsid.0);
        show(global, &done.with("start_block", range.slba).with("blocks", range.blocks))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Brings everything written to the medium.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flush {
    #[command(flatten)]
    device: DeviceArgs,
    /// Which namespace, where DEVICE does not say; 0xffffffff for all
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
}

impl Flush {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let mut device = self.device.open(Needs::Io, global)?;
        show(global, &self.on(&mut *device)?)?;
        Ok(ExitCode::SUCCESS)
    }

    fn on(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        // As nvme-cli: a controller's flush is for all its namespaces.
        let nsid = self.namespace_id.map(Nsid).or_else(|| device.nsid()).unwrap_or(Nsid::ALL);
        let mut nsids = vec![nsid];
        if nsid == Nsid::ALL {
            let broadcast = command::identify_controller(device)?.vwc & vwc::FLUSH_BROADCAST;
            if broadcast != vwc::FLUSH_BROADCAST {
                // It takes no Flush for all of them: they get one each.
                let list: Box<NamespaceList> =
                    command::identify(device, Identify::of(Cns::ACTIVE_NAMESPACE_LIST, Nsid::NONE))?;
                nsids = list.iter().collect();
            }
        }
        for nsid in nsids {
            command::io(device, &Sqe::new(nvm::FLUSH).with_nsid(nsid), AdminData::None)?;
        }
        Ok(Done::new("flush", device.name(), "Success").with("nsid", nsid.0))
    }
}

/// AD in dword 11 of Dataset Management.
const DEALLOCATE: u32 = 1 << 2;

/// Dataset Management.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Dsm {
    #[command(flatten)]
    device: DeviceArgs,
    /// Which namespace, where DEVICE does not say
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
    /// Context attributes of each range, separated by commas
    #[arg(short = 'a', long, value_name = "LIST", value_parser = number::list::<u32>)]
    ctx_attrs: Option<List<u32>>,
    /// Number of blocks of each range, separated by commas
    #[arg(short = 'b', long, value_name = "LIST", value_parser = number::list::<u32>)]
    blocks: List<u32>,
    /// First block of each range, separated by commas
    #[arg(short = 's', long, value_name = "LIST", value_parser = number::list::<u64>)]
    slbs: List<u64>,
    /// Deallocate the ranges (AD)
    #[arg(short = 'd', long)]
    ad: bool,
    /// Integral dataset for write (IDW)
    #[arg(short = 'w', long)]
    idw: bool,
    /// Integral dataset for read (IDR)
    #[arg(short = 'r', long)]
    idr: bool,
    /// All attributes of dword 11, in place of --ad, --idw and --idr
    #[arg(short = 'c', long, value_name = "DWORD", value_parser = number::parse::<u32>, conflicts_with_all = ["ad", "idw", "idr"])]
    cdw11: Option<u32>,
    /// Also when a block device of this machine is in use
    #[arg(long)]
    force: bool,
}

impl Dsm {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let ranges = self.ranges()?;
        let mut device = self.device.open(Needs::Io, global)?;
        let nsid = namespace_of(&*device, self.namespace_id)?;
        // Only deallocating takes data away: the other attributes are hints.
        let deallocate = self.cdw11.map_or(self.ad, |attributes| attributes & DEALLOCATE != 0);
        refuse_in_use("dsm", &*device, nsid, self.force || !deallocate)?;
        let count = u16::try_from(ranges.len()).unwrap_or(u16::MAX);
        let command =
            DsmCommand { ranges: count, deallocate: self.ad, integral_write: self.idw, integral_read: self.idr };
        let mut sqe = command.encode(nsid);
        if let Some(attributes) = self.cdw11 {
            sqe = sqe.with_cdw(11, attributes);
        }
        command::io(&mut *device, &sqe, AdminData::FromHost(ranges.as_bytes()))?;
        let done = Done::new("dsm", device.name(), "Success").with("nsid", nsid.0).with("ranges", count);
        show(global, &done.with("deallocate", deallocate))?;
        Ok(ExitCode::SUCCESS)
    }

    fn ranges(&self) -> Result<Vec<DsmRange>, Failure> {
        let blocks = &self.blocks.0;
        let slbs = &self.slbs.0;
        let attributes = self.ctx_attrs.as_ref().map(|list| list.0.as_slice()).unwrap_or_default();
        if blocks.len() != slbs.len() || !(attributes.is_empty() || attributes.len() == slbs.len()) || slbs.len() > 256
        {
            return Err(Failure::usage(
                format!("{} first blocks and {} numbers of blocks do not make ranges", slbs.len(), blocks.len()),
                "give --slbs, --blocks and, if at all, --ctx-attrs equally many numbers, at most 256",
            ));
        }
        let range = |(index, (&slba, &nlb)): (usize, (&u64, &u32))| DsmRange {
            cattr: attributes.get(index).copied().unwrap_or_default().into(),
            nlb: nlb.into(),
            slba: slba.into(),
        };
        Ok(slbs.iter().zip(blocks).enumerate().map(range).collect())
    }
}
