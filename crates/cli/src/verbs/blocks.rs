//! I/O commands without user data: `write-zeroes`, `write-uncor`, `verify`, `flush`,
//! `dsm`.

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
use super::on_device::{NamespaceArgs, NamespaceOption};
use super::tags::TagArgs;
use crate::command;
use crate::device::query::Identify;
use crate::device::{Device, Needs};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::done::Done;

/// Blocks of a namespace.
#[derive(Clone, Debug, clap::Args)]
struct Blocks {
    #[command(flatten)]
    namespace: NamespaceOption,
    /// The first block
    #[arg(short, long, value_name = "LBA", value_parser = number::parse::<u64>, default_value = "0")]
    start_block: u64,
    /// Number of blocks less one, as on the wire: 0 is one block
    #[arg(short = 'c', long, value_name = "NLB", value_parser = number::parse::<u16>, default_value = "0")]
    block_count: u16,
    /// Force Unit Access
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

/// What a verb does with blocks.
struct Action {
    verb: &'static str,
    opcode: u8,
    directive: Directive,
    deallocate: bool,
    /// Whether the namespace may be in use on this machine.
    may_use: bool,
}

impl Blocks {
    fn run_on(&self, device: &mut dyn Device, action: &Action) -> anyhow::Result<Done> {
        let &Action { verb, opcode, directive, deallocate, may_use } = action;
        let nsid = self.namespace.nsid(device)?;
        refuse_in_use(verb, device, nsid, may_use)?;
        let range = BlockRange {
            fua: self.force_unit_access,
            limited_retry: self.limited_retry,
            prinfo: self.prinfo & 0xf,
            deallocate,
            ..BlockRange::new(self.start_block, u32::from(self.block_count) + 1)
        };
        let sqe = self.tags.apply(device, nsid, range.encode(opcode, nsid))?;
        let sqe = directive.apply(sqe)?;
        command::io(device, &sqe, AdminData::None)?;
        let done = Done::new(verb, device.name(), "Success").with("nsid", nsid.0).with("start_block", range.slba);
        Ok(done.with("blocks", range.blocks))
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
    /// Proceed even if a block device of this machine is in use
    #[arg(long)]
    force: bool,
}

impl WriteZeroes {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        let action = Action {
            verb: "write-zeroes",
            opcode: nvm::WRITE_ZEROES,
            directive: self.directive,
            deallocate: self.deac,
            may_use: self.force,
        };
        self.blocks.run_on(device, &action)
    }
}

/// Verifies that blocks can be read, without transferring them.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    blocks: Blocks,
}

impl Verify {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        let action = Action {
            verb: "verify",
            opcode: nvm::VERIFY,
            directive: Directive::default(),
            deallocate: false,
            may_use: true,
        };
        self.blocks.run_on(device, &action)
    }
}

/// Marks blocks as unreadable.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WriteUncor {
    #[command(flatten)]
    namespace: NamespaceOption,
    /// The first block
    #[arg(short, long, value_name = "LBA", value_parser = number::parse::<u64>, default_value = "0")]
    start_block: u64,
    /// Number of blocks less one, as on the wire: 0 is one block
    #[arg(short = 'c', long, value_name = "NLB", value_parser = number::parse::<u16>, default_value = "0")]
    block_count: u16,
    #[command(flatten)]
    directive: Directive,
    /// Proceed even if a block device of this machine is in use
    #[arg(long)]
    force: bool,
}

impl WriteUncor {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        let nsid = self.namespace.nsid(device)?;
        refuse_in_use("write-uncor", device, nsid, self.force)?;
        let range = BlockRange::new(self.start_block, u32::from(self.block_count) + 1);
        let sqe = self.directive.apply(range.encode(nvm::WRITE_UNCORRECTABLE, nsid))?;
        command::io(device, &sqe, AdminData::None)?;
        let done = Done::new("write-uncor", device.name(), "Success").with("nsid", nsid.0);
        Ok(done.with("start_block", range.slba).with("blocks", range.blocks))
    }
}

/// Makes all written data durable.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Flush {
    /// The namespace, if DEVICE does not name one; 0xffffffff for all
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
}

impl Flush {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        // As nvme-cli: a controller's flush is for all its namespaces.
        let nsid = self.namespace_id.map(Nsid).or_else(|| device.nsid()).unwrap_or(Nsid::ALL);
        let mut nsids = vec![nsid];
        if nsid == Nsid::ALL {
            let broadcast = command::identify_controller(device)?.vwc & vwc::FLUSH_BROADCAST;
            if broadcast != vwc::FLUSH_BROADCAST {
                // The controller does not support a Flush of all namespaces: send one for each.
                let list: Box<NamespaceList> =
                    command::identify(device, Identify::for_namespace(Cns::ACTIVE_NAMESPACE_LIST, Nsid::NONE))?;
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
    namespace: NamespaceArgs,
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
    /// Proceed even if a block device of this machine is in use
    #[arg(long)]
    force: bool,
}

impl Dsm {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let ranges = self.ranges()?;
        self.namespace.on_namespace(Needs::Io, global, |device, nsid| {
            // Only deallocating destroys data: the other attributes are hints.
            let deallocate = self.cdw11.map_or(self.ad, |attributes| attributes & DEALLOCATE != 0);
            refuse_in_use("dsm", &*device, nsid, self.force || !deallocate)?;
            let count = u16::try_from(ranges.len()).unwrap_or(u16::MAX);
            let command =
                DsmCommand { ranges: count, deallocate: self.ad, integral_write: self.idw, integral_read: self.idr };
            let mut sqe = command.encode(nsid);
            if let Some(attributes) = self.cdw11 {
                sqe = sqe.with_cdw(11, attributes);
            }
            command::io(device, &sqe, AdminData::FromHost(ranges.as_bytes()))?;
            let done = Done::new("dsm", device.name(), "Success").with("nsid", nsid.0).with("ranges", count);
            Ok(done.with("deallocate", deallocate))
        })
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
