//! `get-lba-status`: blocks that are allocated, or may be unrecoverable.

use ebof_initiator::AdminData;
use ebof_nvme::lba_status::{GetLbaStatus, StatusAction};

use super::number;
use super::on_device::NamespaceOption;
use crate::command;
use crate::device::Device;
use crate::failure::Failure;
use crate::output::lba_status::LbaStatusView;

/// Maximum number of bytes that are read.
const BYTES_MAX: u64 = 16 << 20;

/// Shows the status of blocks.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GetLbaStatusVerb {
    #[command(flatten)]
    namespace: NamespaceOption,
    /// The first block
    #[arg(short, long, value_name = "LBA", value_parser = number::parse::<u64>, default_value = "0")]
    start_lba: u64,
    /// Maximum number of dwords to return, less one [default: 4 KiB]
    #[arg(short, long, value_name = "DWORDS", value_parser = number::parse::<u32>, default_value = "1023")]
    max_dw: u32,
    /// The action: 0x02 allocated, 0x10 scan for blocks that may be unrecoverable, 0x11 tracked
    /// ones
    #[arg(short, long, value_name = "ATYPE", value_parser = status_action)]
    action: StatusAction,
    /// Number of blocks; 0 is up to the end of the namespace
    #[arg(short = 'l', long, value_name = "BLOCKS", value_parser = number::parse::<u16>, default_value = "0")]
    range_len: u16,
}

/// Reads an action type by name or number.
fn status_action(text: &str) -> Result<StatusAction, String> {
    match text {
        "allocated" => Ok(StatusAction::ALLOCATED),
        "scan" => Ok(StatusAction::SCAN),
        "tracked" => Ok(StatusAction::TRACKED),
        _ => match number::parse(text) {
            Ok(0) | Err(_) => Err("want 0x02 (allocated), 0x10 (scan) or 0x11 (tracked)".to_owned()),
            Ok(action) => Ok(StatusAction(action)),
        },
    }
}

impl GetLbaStatusVerb {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<LbaStatusView> {
        let nsid = self.namespace.nsid(device)?;
        let bytes = (u64::from(self.max_dw) + 1) * 4;
        let length = usize::try_from(bytes).ok().filter(|_| (8..=BYTES_MAX).contains(&bytes)).ok_or_else(|| {
            let advice = format!("give --max-dw 1 to {}", BYTES_MAX / 4 - 1);
            Failure::usage(format!("{bytes} bytes of status cannot be read"), advice)
        })?;
        let get = GetLbaStatus { slba: self.start_lba, bytes, blocks: self.range_len, action: self.action };
        let mut data = vec![0; length];
        command::admin(device, &get.encode(nsid), AdminData::ToHost(&mut data))?;
        Ok(LbaStatusView { nsid, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::output::View as _;
    use crate::verbs::line;
    use ebof_nvme::lba_status::{CompletionCondition, status_list};

    #[test]
    fn the_status_is_requested_as_by_nvme_cli() {
        let parse = |line: &str| line::try_parse_on::<GetLbaStatusVerb>(line);
        let list = status_list(&[(0x10, 8, 0)], CompletionCondition::Complete, 64);
        let mut fake = Fake::namespace(1, [FakeAnswer::data(&list)]);
        let verb = parse("x nvme0n1 -s 0x10 -m 15 -a 0x11 -l 8").unwrap();
        let text = verb.run_on(&mut fake).unwrap().text(false);
        let sqe = &fake.last().sqe;
        assert_eq!((sqe.opcode, sqe.cdw10.get(), sqe.cdw12.get(), sqe.cdw13.get()), (0x86, 0x10, 15, 0x1100_0008));
        assert!(text.contains("{ DSLBA: 0x00000000000010, NLB: 0x000008, Status: 0 }"), "{text}");
        assert!(parse("x nvme0n1 -a 0").is_err() && parse("x nvme0n1").is_err());
        assert!(parse("x nvme0n1 -a scan -m 0").unwrap().run_on(&mut fake).is_err());
    }
}
