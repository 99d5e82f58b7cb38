//! `boot-part-log`: the contents of a boot partition, by its log page.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use ebof_nvme::Nsid;
use ebof_nvme::log::{GetLogPage, Lid};

use super::number;
use crate::command;
use crate::device::Device;
use crate::output::done::Done;

/// Bytes before the partition's in the log page.
const HEADER_BYTES: usize = 16;
/// The unit of BPSZ.
const UNIT_BYTES: u64 = 128 << 10;
/// Bytes that are written to the file at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Reads a boot partition.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct BootPartLog {
    /// The boot partition: 0 or 1
    #[arg(short = 's', long, value_name = "LSP", value_parser = number::parse::<u8>, default_value = "0")]
    lsp: u8,
    /// The file for its contents
    #[arg(short = 'f', long, value_name = "FILE")]
    output_file: PathBuf,
}

impl BootPartLog {
    pub(crate) fn run(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        let path = self.output_file.display();
        let mut file = None;
        let done = self.run_on(device, &mut |bytes| {
            // Made when there is something for it.
            let file = match &mut file {
                Some(file) => file,
                None => file.insert(File::create(&self.output_file).with_context(|| format!("making {path}"))?),
            };
            file.write_all(bytes).with_context(|| format!("writing {path}"))
        })?;
        Ok(done.with("file", path.to_string()))
    }

    fn run_on(
        &self,
        device: &mut dyn Device,
        write: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Done> {
        let page = GetLogPage { lsp: self.lsp, ..command::log_page(Lid::BOOT_PARTITION) };
        let mut header = [0; HEADER_BYTES];
        command::read_log(device, Nsid::ALL, page, &mut header)?;
        let info = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let total = u64::from(info & 0x7fff) * UNIT_BYTES;
        let mut buffer = vec![0; CHUNK_BYTES];
        // BPSZ has 15 bits: 4 GiB at most.
        for offset in (0..total).step_by(CHUNK_BYTES) {
            let at = GetLogPage { offset: HEADER_BYTES as u64 + offset, ..page };
            command::read_log(device, Nsid::ALL, at, &mut buffer)?;
            write(&buffer)?;
        }
        let line = format!("Success, {total} bytes of boot partition {}", self.lsp & 1);
        let done = Done::new("boot-part-log", device.name(), &line).with("count", header[0]);
        Ok(done.with("abpid", info >> 31).with("bpsz", info & 0x7fff).with("bytes", total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::verbs::line::parse_on as parse;
    use ebof_nvme::Status;

    #[test]
    fn a_partition_is_read_behind_its_header() {
        let mut header = [0; 16];
        header[0] = 0x15;
        header[4..8].copy_from_slice(&(1_u32 << 31 | 1).to_le_bytes());
        let verb: BootPartLog = parse("x nvme0 -f out -s 1");
        let mut fake = Fake::controller([FakeAnswer::data(&header)]);
        let mut written = 0;
        verb.run_on(&mut fake, &mut |bytes| {
            written += bytes.len();
            Ok(())
        })
        .unwrap();
        assert_eq!(written, 128 << 10);
        let gets: Vec<GetLogPage> = fake.asked.iter().map(|asked| GetLogPage::decode(&asked.sqe)).collect();
        assert_eq!((gets[0].lid, gets[0].lsp, gets[0].bytes), (Lid::BOOT_PARTITION, 1, 16));
        assert_eq!((gets[1].offset, gets.last().unwrap().offset), (16, 16 + (128 << 10) - 4096));
    }

    #[test]
    fn a_controller_without_one_is_told_and_no_file_is_made() {
        let verb: BootPartLog = parse("x nvme0 -f out");
        let mut fake = Fake::controller([FakeAnswer::status(Status::INVALID_LOG_PAGE.dnr())]);
        let error = verb.run_on(&mut fake, &mut |_| panic!("nothing to write")).err().unwrap().to_string();
        assert!(error.contains("no log page 0x15") && error.contains("supported-log-pages"), "{error}");
    }
}
