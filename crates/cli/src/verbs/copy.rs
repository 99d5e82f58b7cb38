//! `copy`: the controller copies blocks, within a namespace or from other ones.

use ebof_initiator::AdminData;
use ebof_nvme::Nsid;
use ebof_nvme::copy::{Copy, CopyFormat, CopySource};

use super::Outcome;
use super::guard::refuse_in_use;
use super::number::{self, List};
use super::on_device::on_device;
use crate::command;
use crate::device::{Device, DeviceArgs, Needs, namespace_of};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::done::Done;

/// Copies ranges of blocks.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CopyBlocks {
    #[command(flatten)]
    device: DeviceArgs,
    /// The destination's namespace, if DEVICE does not name one
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
    /// First block of the destination
    #[arg(short = 'd', long, value_name = "LBA", value_parser = number::parse::<u64>, default_value = "0")]
    sdlba: u64,
    /// First block of each source range, separated by commas
    #[arg(short = 's', long, value_name = "LIST", value_parser = number::list::<u64>)]
    slbs: List<u64>,
    /// Number of blocks of each source range **less one**, as on the wire, separated by commas
    #[arg(short = 'b', long, value_name = "LIST", value_parser = number::list::<u16>)]
    blocks: List<u16>,
    /// Namespace of each source range, separated by commas; formats 2 and 3
    #[arg(short = 'N', long, value_name = "LIST", value_parser = number::list::<u32>)]
    snsids: Option<List<u32>>,
    /// Source options of each range, separated by commas: 0x8000 is fast copy only; formats 2 and 3
    #[arg(short = 'O', long, value_name = "LIST", value_parser = number::list::<u16>)]
    sopts: Option<List<u16>>,
    /// Limited Retry
    #[arg(short = 'l', long)]
    limited_retry: bool,
    /// Force Unit Access: to the medium
    #[arg(short = 'f', long)]
    force_unit_access: bool,
    /// Protection information field of the destination (PRINFOW)
    #[arg(short = 'p', long, value_name = "PRINFO", value_parser = number::parse::<u8>, default_value = "0")]
    prinfow: u8,
    /// Protection information field of the sources (PRINFOR)
    #[arg(short = 'P', long, value_name = "PRINFO", value_parser = number::parse::<u8>, default_value = "0")]
    prinfor: u8,
    /// Initial reference tag of the destination
    #[arg(short = 'r', long, value_name = "TAG", value_parser = number::parse::<u32>, default_value = "0")]
    ref_tag: u32,
    /// Expected reference tag of each source range, separated by commas
    #[arg(short = 'R', long, value_name = "LIST", value_parser = number::list::<u32>)]
    expected_ref_tags: Option<List<u32>>,
    /// Application tag of the destination
    #[arg(short = 'a', long, value_name = "TAG", value_parser = number::parse::<u16>, default_value = "0")]
    app_tag: u16,
    /// Expected application tag of each source range, separated by commas
    #[arg(short = 'A', long, value_name = "LIST", value_parser = number::list::<u16>)]
    expected_app_tags: Option<List<u16>>,
    /// Application tag mask of the destination
    #[arg(short = 'm', long, value_name = "MASK", value_parser = number::parse::<u16>, default_value = "0")]
    app_tag_mask: u16,
    /// Expected application tag mask of each source range, separated by commas
    #[arg(short = 'M', long, value_name = "LIST", value_parser = number::list::<u16>)]
    expected_app_tag_masks: Option<List<u16>>,
    /// Directive type
    #[arg(short = 'T', long, value_name = "TYPE", value_parser = number::parse::<u8>, default_value = "0")]
    dir_type: u8,
    /// Directive specific value
    #[arg(short = 'S', long, value_name = "VALUE", value_parser = number::parse::<u16>, default_value = "0")]
    dir_spec: u16,
    /// Descriptor format of the ranges: 0 and 1 within the namespace, 2 and 3 from any; 1 and 3 for
    /// guards of 32 and 64 bits [default: 0, 2 with --snsids]
    #[arg(short = 'F', long = "format", value_name = "FORMAT", value_parser = number::parse::<u8>)]
    descriptor_format: Option<u8>,
    /// Proceed even if a block device of this machine is in use
    #[arg(long)]
    force: bool,
}

impl CopyBlocks {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let (format, sources) = self.sources()?;
        on_device(&self.device, Needs::Io, global, |device| self.run_on(device, format, &sources))
    }

    fn sources(&self) -> Result<(CopyFormat, Vec<CopySource>), Failure> {
        let named = self.snsids.is_some();
        let number = self.descriptor_format.unwrap_or(if named { 2 } else { 0 });
        let Some(format) = CopyFormat::decode(number) else {
            return Err(Failure::usage(format!("there is no descriptor format {number}"), "formats are 0 to 3"));
        };
        if format.names_namespace() != named {
            return Err(Failure::usage(
                format!("format {number} and --snsids do not go together"),
                "formats 2 and 3 need the namespace of each source range (--snsids), 0 and 1 take none",
            ));
        }
        let count = self.slbs.0.len();
        let lengths = [
            Some(self.blocks.0.len()),
            length(self.snsids.as_ref()),
            length(self.sopts.as_ref()),
            length(self.expected_ref_tags.as_ref()),
            length(self.expected_app_tags.as_ref()),
            length(self.expected_app_tag_masks.as_ref()),
        ];
        if count == 0 || count > 256 || lengths.iter().flatten().any(|&other| other != count) {
            return Err(Failure::usage(
                "the lists do not make ranges",
                "give --slbs, --blocks and each other list equally many numbers, 1 to 256",
            ));
        }
        Ok((format, (0..count).map(|index| self.source(index)).collect()))
    }

    fn source(&self, index: usize) -> CopySource {
        let mut source = CopySource {
            nsid: Nsid(pick(self.snsids.as_ref(), index)),
            slba: self.slbs.0.get(index).copied().unwrap_or_default(),
            blocks: self.blocks.0.get(index).map_or(1, |&blocks| u32::from(blocks) + 1),
            fast_only: pick(self.sopts.as_ref(), index) & 0x8000 != 0,
            application_tag: pick(self.expected_app_tags.as_ref(), index),
            application_mask: pick(self.expected_app_tag_masks.as_ref(), index),
            ..CopySource::default()
        };
        let tag: u32 = pick(self.expected_ref_tags.as_ref(), index);
        match self.descriptor_format {
            // Formats 1 and 3 have the tag big endian at the end of the field.
            Some(1 | 3) => source.expected_tags[6..].copy_from_slice(&tag.to_be_bytes()),
            _ => source.set_reference_tag(tag),
        }
        source
    }

    fn run_on(&self, device: &mut dyn Device, format: CopyFormat, sources: &[CopySource]) -> anyhow::Result<Done> {
        let nsid = namespace_of(device, self.namespace_id)?;
        refuse_in_use("copy", device, nsid, self.force)?;
        if format.names_namespace() {
            enable_format(device, format)?;
        }
        let mut data = Vec::new();
        sources.iter().for_each(|source| source.encode(format, &mut data));
        let ranges = u16::try_from(sources.len()).unwrap_or(u16::MAX);
        let copy = Copy {
            slba: self.sdlba,
            ranges,
            format: format.encode(),
            read_protection: self.prinfor & 0x0f,
            write_protection: self.prinfow & 0x0f,
            directive: self.dir_type & 0x0f,
            directive_specific: self.dir_spec,
            fua: self.force_unit_access,
            limited_retry: self.limited_retry,
            reference_tag: self.ref_tag,
            application_tag: self.app_tag,
            application_mask: self.app_tag_mask,
            ..Copy::default()
        };
        command::io(device, &copy.encode(nsid), AdminData::FromHost(&data))?;
        let blocks: u64 = sources.iter().map(|source| u64::from(source.blocks)).sum();
        let done = Done::new("copy", device.name(), "Success").with("nsid", nsid.0).with("sdlba", self.sdlba);
        Ok(done.with("ranges", ranges).with("blocks", blocks).with("format", format.encode()))
    }
}

/// Tells the controller that this host supports `format`, which is required for formats 2h and 3h
/// (Host Behavior Support, CDFE).
fn enable_format(device: &mut dyn Device, format: CopyFormat) -> anyhow::Result<()> {
    let bit = 1 << format.encode();
    command::change_host_behavior(device, |behavior| behavior.cdfe.set(behavior.cdfe.get() | bit))
}

fn length<T>(list: Option<&List<T>>) -> Option<usize> {
    list.map(|list| list.0.len())
}

fn pick<T: Default + Clone>(list: Option<&List<T>>, index: usize) -> T {
    list.and_then(|list| list.0.get(index).cloned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::verbs::line;
    use ebof_nvme::Status;

    fn parse(line: &str) -> CopyBlocks {
        line::parse(line)
    }

    fn run(line: &str, fake: &mut Fake) -> anyhow::Result<Done> {
        let verb = parse(line);
        let (format, sources) = verb.sources()?;
        verb.run_on(fake, format, &sources)
    }

    #[test]
    fn ranges_of_the_namespace_are_format_0() {
        let mut fake = Fake::namespace(1, []);
        run("x nvme0n1 -d 0x100 -s 0,8 -b 7,0 -f -R 5,6", &mut fake).unwrap();
        assert_eq!(fake.asked.len(), 1);
        let copy = Copy::decode(&fake.last().sqe);
        assert_eq!((copy.slba, copy.ranges, copy.format, copy.fua), (0x100, 2, 0, true));
        let sources = CopySource::decode_all(CopyFormat::Format0, &fake.last().data);
        assert_eq!((sources[0].blocks, sources[1].slba, sources[1].blocks), (8, 8, 1));
        assert_eq!(sources[1].reference_tag(), 6);
    }

    #[test]
    fn ranges_of_other_namespaces_are_format_2_and_enable_it_first() {
        let mut fake = Fake::namespace(1, []);
        run("x nvme0n1 -s 0 -b 7 -N 2 -O 0x8000", &mut fake).unwrap();
        let opcodes: Vec<u8> = fake.asked.iter().map(|asked| asked.sqe.opcode).collect();
        assert_eq!(opcodes, [0x0a, 0x09, 0x19]);
        assert_eq!((fake.asked[1].sqe.cdw10.get(), &fake.asked[1].data[4..6]), (0x16, &[4, 0][..]));
        let source = CopySource::decode(CopyFormat::Format2, &fake.last().data).unwrap();
        assert_eq!((source.nsid, source.fast_only, source.blocks), (Nsid(2), true, 8));
    }

    #[test]
    fn lists_that_do_not_form_ranges_are_refused() {
        for line in [
            "x n -s 0 -b 1,2",
            "x n -s 0 -b 1 -N 1,2",
            "x n -s 0 -b 1 -F 2",
            "x n -s 0 -b 1 -F 0 -N 1",
            "x n -s 0 -b 1 -F 4",
        ] {
            assert!(parse(line).sources().is_err(), "{line}");
        }
    }

    #[test]
    fn a_status_is_named_by_the_nvm_command_set() {
        let mut fake = Fake::namespace(1, [FakeAnswer::status(Status::COMMAND_SIZE_LIMIT_EXCEEDED.dnr())]);
        let error = run("x nvme0n1 -s 0 -b 0", &mut fake).err().unwrap().to_string();
        assert!(error.contains("Command Size Limit Exceeded") && error.contains("id-ns"), "{error}");
    }
}
