//! `read`, `write` and `compare`: one command with data, as in nvme-cli.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use ebof_initiator::AdminData;
use ebof_nvme::Nsid;
use ebof_nvme::identify::{Cns, IdentifyNamespace, NvmNamespace, ProtectionFormat, ProtectionType};
use ebof_nvme::io::BlockRange;
use ebof_nvme::opcode::nvm;
use ebof_nvme::protection::prinfo as prinfo_bits;

use super::Outcome;
use super::directive::Directive;
use super::guard::refuse_in_use;
use super::number;
use super::on_device::NamespaceArgs;
use super::tags::TagArgs;
use crate::command;
use crate::device::query::Identify;
use crate::device::{Device, Needs};
use crate::failure::Failure;
use crate::global::{Global, OutputFormat};
use crate::output::done::Done;
use crate::output::passthru::command_text;
use crate::output::{print, say, show};

/// Maximum number of blocks of one command.
const BLOCKS_MAX: u64 = 65_536;

/// A command with data.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Transfer {
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// The first block
    #[arg(short, long, value_name = "LBA", value_parser = number::parse::<u64>, default_value = "0")]
    start_block: u64,
    /// Number of blocks less one, as on the wire: 0 is one block
    /// [default: as many as the data need]
    #[arg(short = 'c', long, value_name = "NLB", value_parser = number::parse::<u16>)]
    block_count: Option<u16>,
    /// Bytes of data
    #[arg(short = 'z', long, value_name = "BYTES", value_parser = number::parse_bytes)]
    data_size: Option<u64>,
    /// File to read the data from, or to write them to [default: standard input or output]
    #[arg(short = 'd', long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Force Unit Access
    #[arg(short = 'f', long)]
    force_unit_access: bool,
    /// Limited Retry
    #[arg(short = 'l', long)]
    limited_retry: bool,
    /// Protection information field (PRINFO)
    #[arg(short = 'p', long, value_name = "PRINFO", value_parser = number::parse::<u8>, default_value = "0")]
    prinfo: u8,
    /// Print the latency of the command
    #[arg(short = 't', long)]
    latency: bool,
    /// Print the command before it is sent
    #[arg(short = 'V', long)]
    show_command: bool,
    /// Write even if a block device of this machine is in use
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    tags: TagArgs,
    #[command(flatten)]
    directive: Directive,
    /// Dataset management: access frequency (bits 3:0), access latency (5:4), sequential (6),
    /// incompressible (7)
    #[arg(short = 'D', long, value_name = "DSM", value_parser = number::parse::<u8>, default_value = "0")]
    dsm: u8,
    #[command(flatten)]
    metadata: Metadata,
}

/// Largest supported block: buffers are allocated in blocks, and the controller is not trusted.
const BLOCK_BYTES_MAX: u32 = 1 << 20;
/// Maximum data of one command. The controller enforces its own limit.
const BUFFER_BYTES_MAX: usize = 256 << 20;

/// Options of nvme-cli for metadata in a separate buffer, which message-based transports do not
/// support.
#[derive(Clone, Debug, clap::Args)]
struct Metadata {
    #[arg(short = 'y', long, hide = true)]
    metadata_size: Option<String>,
    #[arg(short = 'M', long, hide = true)]
    metadata: Option<String>,
}

impl Metadata {
    fn refuse(&self) -> Result<(), Failure> {
        if self.metadata_size.is_none() && self.metadata.is_none() {
            return Ok(());
        }
        Err(Failure::unsupported(
            "over a fabric metadata has no buffer of its own",
            "where a namespace has metadata, it stands at the end of each block: give blocks and metadata in one file",
        ))
    }
}

/// Bytes of each block in the data of a command, including metadata. If `generated`, the controller
/// inserts and strips protection information of `protection_bytes`, unless there is other metadata
/// (NVM Command Set, "Protection Information and Read Commands": PRACT).
///
/// # Errors
/// The format cannot be used over a fabric.
fn transfer_bytes(
    nsid: Nsid,
    namespace: &IdentifyNamespace,
    generated: bool,
    protection_bytes: u32,
) -> Result<u32, Failure> {
    let metadata = u32::from(namespace.format().ms.get());
    let unusable = |message: String| {
        let advice = "use a namespace without metadata, or with metadata at the end of each block (`ebof id-ns`)";
        Failure::unsupported(message, advice)
    };
    let Some(block) = namespace.format().block_bytes() else {
        return Err(unusable(format!("namespace {nsid} has a format that does not exist")));
    };
    if block > BLOCK_BYTES_MAX {
        let message = format!("the controller says that blocks of namespace {nsid} have {block} bytes");
        return Err(unusable(format!("{message}: more than the {BLOCK_BYTES_MAX} that are believed")));
    }
    let stripped = generated && namespace.protection() != ProtectionType::None && metadata == protection_bytes;
    if metadata == 0 || stripped {
        return Ok(block);
    }
    if !namespace.metadata_extended() {
        let message = format!("namespace {nsid} has metadata in a buffer of its own, which no fabric carries");
        return Err(unusable(message));
    }
    block.checked_add(metadata).ok_or_else(|| unusable(format!("the blocks of namespace {nsid} are too large")))
}

/// Bytes of a block's protection information; without a report of the controller, for 16-bit
/// guards.
fn protection_bytes(device: &mut dyn Device, nsid: Nsid, namespace: &IdentifyNamespace) -> u32 {
    let extended = command::identify::<NvmNamespace>(device, Identify::for_namespace(Cns::IOCS_NAMESPACE, nsid));
    match extended.map(|data| data.protection_format(namespace.format_index())) {
        Ok(ProtectionFormat::Guard32 | ProtectionFormat::Guard64) => 16,
        Ok(ProtectionFormat::Guard16 | ProtectionFormat::Qualified) | Err(_) => 8,
    }
}

impl Transfer {
    /// Reads blocks.
    pub(crate) fn read(self, global: &Global) -> Outcome {
        if self.data.is_none() && global.format == OutputFormat::Json {
            let message = "blocks and JSON cannot both go to standard output";
            return Err(Failure::usage(message, "give a file for the blocks: --data FILE").into());
        }
        let (mut device, block_bytes) = self.open(global)?;
        let size = self.data_size.or_else(|| self.block_count.is_none().then_some(u64::from(block_bytes)));
        let range = self.range(size, block_bytes)?;
        let mut buffer = vec![0; buffer_bytes(&range, block_bytes)?];
        self.run("read", nvm::READ, range, AdminData::ToHost(&mut buffer), &mut *device)?;
        let wanted = size.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(buffer.len());
        buffer.truncate(wanted);
        match &self.data {
            Some(path) => {
                std::fs::write(path, &buffer).with_context(|| format!("writing {}", path.display()))?;
                self.report("read", range, buffer.len(), &*device, global)?;
            }
            None => {
                print(&buffer)?;
                say("read: Success");
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Writes blocks.
    pub(crate) fn write(self, global: &Global) -> Outcome {
        self.send("write", nvm::WRITE, global)
    }

    /// Compares blocks with data.
    pub(crate) fn compare(self, global: &Global) -> Outcome {
        self.send("compare", nvm::COMPARE, global)
    }

    fn send(self, verb: &'static str, opcode: u8, global: &Global) -> Outcome {
        let (mut device, block_bytes) = self.open(global)?;
        let passes = self.force || opcode != nvm::WRITE;
        refuse_in_use(verb, &*device, self.namespace.nsid(&*device)?, passes)?;
        let limit = (BLOCKS_MAX * u64::from(block_bytes)).min(BUFFER_BYTES_MAX as u64 + 1);
        let blocks_bytes = self.block_count.map(|count| (u64::from(count) + 1) * u64::from(block_bytes));
        let wanted = self.data_size.or(blocks_bytes);
        let data = self.input(wanted.unwrap_or(limit))?;
        if data.is_empty() {
            let message = format!("there are no data to {verb}");
            return Err(Failure::usage(message, "give them in a file (--data FILE) or on standard input").into());
        }
        let range = self.range(Some(wanted.unwrap_or(data.len() as u64)), block_bytes)?;
        let mut buffer = data;
        let bytes = buffer_bytes(&range, block_bytes)?;
        if buffer.len() < bytes {
            say(&format!("{verb}: {} bytes of data are filled up with zeros to {bytes}", buffer.len()));
        }
        buffer.resize(bytes, 0);
        self.run(verb, opcode, range, AdminData::FromHost(&buffer), &mut *device)?;
        self.report(verb, range, bytes, &*device, global)?;
        Ok(ExitCode::SUCCESS)
    }

    fn open(&self, global: &Global) -> anyhow::Result<(Box<dyn Device>, u32)> {
        self.metadata.refuse()?;
        let mut device = self.namespace.device.open(Needs::Io, global)?;
        let nsid = self.namespace.nsid(&*device)?;
        let namespace = command::identify_namespace(&mut *device, nsid)?;
        let generated = self.prinfo & prinfo_bits::ACTION != 0;
        let protection = if generated { protection_bytes(&mut *device, nsid, &namespace) } else { 0 };
        let block_bytes = transfer_bytes(nsid, &namespace, generated, protection)?;
        Ok((device, block_bytes))
    }

    /// The range of blocks for `bytes` of data and the options.
    fn range(&self, bytes: Option<u64>, block_bytes: u32) -> Result<BlockRange, Failure> {
        let needed = bytes.map(|bytes| bytes.div_ceil(u64::from(block_bytes)));
        let blocks = match (self.block_count, needed) {
            (Some(count), Some(needed)) if needed > u64::from(count) + 1 => {
                let message = format!(
                    "{needed} blocks of {block_bytes} bytes hold the data, and --block-count names {}",
                    u64::from(count) + 1
                );
                return Err(Failure::usage(
                    message,
                    "--block-count is one less than the number of blocks; it may be left away",
                ));
            }
            (Some(count), _) => u64::from(count) + 1,
            (None, needed) => needed.unwrap_or(1),
        };
        let blocks = u32::try_from(blocks).ok().filter(|&blocks| (1..=BLOCKS_MAX).contains(&u64::from(blocks)));
        let blocks = blocks.ok_or_else(|| {
            let limit = BLOCKS_MAX * u64::from(block_bytes);
            Failure::usage(
                "one command cannot carry that much data",
                format!("1 to {limit} bytes, and what the controller's MDTS allows; use several"),
            )
        })?;
        let range = BlockRange::new(self.start_block, blocks);
        Ok(BlockRange {
            fua: self.force_unit_access,
            limited_retry: self.limited_retry,
            prinfo: self.prinfo & 0xf,
            ..range
        })
    }

    /// Reads at most `limit` bytes of data.
    fn input(&self, limit: u64) -> anyhow::Result<Vec<u8>> {
        let mut data = Vec::new();
        match &self.data {
            Some(path) => {
                let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
                file.take(limit).read_to_end(&mut data).with_context(|| format!("reading {}", path.display()))?;
            }
            None => {
                std::io::stdin().lock().take(limit).read_to_end(&mut data).context("reading standard input")?;
            }
        }
        Ok(data)
    }

    /// Runs the command.
    fn run(
        &self,
        verb: &str,
        opcode: u8,
        range: BlockRange,
        data: AdminData<'_>,
        device: &mut dyn Device,
    ) -> anyhow::Result<()> {
        let nsid = self.namespace.nsid(device)?;
        let sqe = self.tags.apply(device, nsid, range.encode(opcode, nsid))?;
        let sqe = self.directive.apply(sqe)?;
        let sqe = sqe.with_cdw(13, sqe.cdw13.get() | u32::from(self.dsm));
        if self.show_command {
            let bytes = match &data {
                AdminData::None => 0,
                AdminData::ToHost(buffer) => buffer.len(),
                AdminData::FromHost(bytes) => bytes.len(),
            };
            say(&command_text(&sqe, bytes));
        }
        let start = std::time::Instant::now();
        command::io(device, &sqe, data)?;
        if self.latency {
            say(&format!(" latency: {verb}: {} us", start.elapsed().as_micros()));
        }
        Ok(())
    }

    fn report(
        &self,
        verb: &'static str,
        range: BlockRange,
        bytes: usize,
        device: &dyn Device,
        global: &Global,
    ) -> anyhow::Result<()> {
        let nsid = self.namespace.nsid(device)?;
        let done = Done::new(verb, device.name(), "Success")
            .with("nsid", nsid.0)
            .with("start_block", range.slba)
            .with("blocks", range.blocks)
            .with("data_size", bytes as u64);
        show(global, &done.with("data", self.data.as_ref().map(|path| path.display().to_string())))
    }
}

fn buffer_bytes(range: &BlockRange, block_bytes: u32) -> Result<usize, Failure> {
    let bytes = u64::from(range.blocks) * u64::from(block_bytes);
    usize::try_from(bytes).ok().filter(|&bytes| bytes <= BUFFER_BYTES_MAX).ok_or_else(|| {
        let message = format!("{} blocks of {block_bytes} bytes are more than one command can carry", range.blocks);
        Failure::usage(
            message,
            format!("at most {BUFFER_BYTES_MAX} bytes, and what the controller's MDTS allows; use several"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ebof_nvme::identify::LbaFormat;

    // @test hostile.target
    #[test]
    fn metadata_are_sent_with_their_block_unless_the_controller_inserts_them() {
        let namespace = |metadata: u16, flbas, dps| {
            let mut namespace = IdentifyNamespace { flbas, dps, ..IdentifyNamespace::default() };
            namespace.lbaf[0] = LbaFormat { ms: metadata.into(), lbads: 12, rp: 0 };
            namespace
        };
        let bytes = |namespace, generated| transfer_bytes(Nsid(1), &namespace, generated, 8).ok();
        assert_eq!(bytes(namespace(0, 0, 0), false), Some(4096));
        assert_eq!(bytes(namespace(8, 0x10, 1), false), Some(4104));
        assert_eq!(bytes(namespace(8, 0x10, 1), true), Some(4096));
        assert_eq!(bytes(namespace(16, 0x10, 1), true), Some(4112));
        assert_eq!(bytes(namespace(8, 0x10, 0), true), Some(4104));
        assert_eq!(bytes(namespace(8, 0, 1), false), None);
        assert_eq!(bytes(IdentifyNamespace::default(), false), None);
        // A controller that claims blocks of 2 GiB gets nothing filled up to that.
        let mut absurd = namespace(0, 0, 0);
        absurd.lbaf[0].lbads = 31;
        assert!(transfer_bytes(Nsid(1), &absurd, false, 8).unwrap_err().to_string().contains("2147483648"));
        absurd.lbaf[0].lbads = 20;
        assert_eq!(bytes(absurd, false), Some(1 << 20));
        assert!(buffer_bytes(&BlockRange::new(0, 65_536), 1 << 20).is_err());
    }
}
