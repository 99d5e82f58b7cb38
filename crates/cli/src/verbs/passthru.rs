//! `admin-passthru` and `io-passthru`: any command by its fields, without interpretation.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use ebof_initiator::AdminData;
use ebof_nvme::opcode::{admin, admin_name, nvm, nvm_name};
use ebof_nvme::{Nsid, Sqe};

use super::Outcome;
use super::guard::refuse_in_use;
use super::number;
use crate::command;
use crate::device::{Device, DeviceArgs, Needs};
use crate::failure::Failure;
use crate::global::{Global, OutputFormat};
use crate::output::passthru::PassthruView;
use crate::output::{say, show};

/// Dataset Management, Attribute - Deallocate (AD).
const DEALLOCATE: u32 = 1 << 2;
/// Maximum data of one command: the limit of attach daemons.
const DATA_BYTES_MAX: u32 = 16 << 20;

/// A command by its fields.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Passthru {
    #[command(flatten)]
    device: DeviceArgs,
    /// Opcode
    #[arg(short = 'O', long, value_name = "OPCODE", value_parser = number::parse::<u8>)]
    opcode: u8,
    /// Flags (FUSE); the transport sets PSDT
    #[arg(short, long, value_name = "FLAGS", value_parser = number::parse::<u8>, default_value = "0")]
    flags: u8,
    /// Bytes 2 and 3 of the command: over a fabric the command identifier, therefore only 0
    #[arg(short = 'R', long, value_name = "RSVD", value_parser = number::parse::<u16>, default_value = "0")]
    rsvd: u16,
    /// Namespace identifier [default: for an I/O command DEVICE's namespace, otherwise 0]
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
    #[command(flatten)]
    dwords: Dwords,
    /// Bytes of data, at most 16Mi
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = number::parse_bytes, default_value = "0")]
    data_len: u64,
    #[arg(short = 'm', long, hide = true, value_parser = number::parse_bytes)]
    metadata_len: Option<u64>,
    #[arg(short = 'M', long, hide = true)]
    metadata: Option<String>,
    /// File to read the data from, or to write them to [default: standard input or output]
    #[arg(short, long, value_name = "FILE")]
    input_file: Option<PathBuf>,
    /// Data are sent to the controller [default: according to bit 0 of the opcode]
    #[arg(short, long, conflicts_with = "read")]
    write: bool,
    /// Data are received from the controller [default: according to bit 1 of the opcode]
    #[arg(short, long)]
    read: bool,
    /// Initial value of each byte of the data, also beyond the end of a shorter file
    #[arg(short, long, value_name = "BYTE", value_parser = number::parse::<u8>, default_value = "0")]
    prefill: u8,
    /// Print received data as bytes, as -o binary
    #[arg(short = 'b', long)]
    raw_binary: bool,
    /// Print the command before it is sent
    #[arg(short, long, visible_alias = "show-cmd")]
    show_command: bool,
    /// Print the latency of the command
    #[arg(short = 'T', long)]
    latency: bool,
    /// Send a command that destroys data, or may, although this machine uses the namespace
    #[arg(long)]
    force: bool,
}

/// The command dwords that the options give.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
struct Dwords {
    /// Command dword 2
    #[arg(short = '2', long, value_name = "DWORD", value_parser = number::parse::<u32>, default_value = "0")]
    cdw2: u32,
    /// Command dword 3
    #[arg(short = '3', long, value_name = "DWORD", value_parser = number::parse::<u32>, default_value = "0")]
    cdw3: u32,
    /// Command dword 10
    #[arg(short = '4', long, value_name = "DWORD", value_parser = number::parse::<u32>, default_value = "0")]
    cdw10: u32,
    /// Command dword 11
    #[arg(short = '5', long, value_name = "DWORD", value_parser = number::parse::<u32>, default_value = "0")]
    cdw11: u32,
    /// Command dword 12
    #[arg(short = '6', long, value_name = "DWORD", value_parser = number::parse::<u32>, default_value = "0")]
    cdw12: u32,
    /// Command dword 13
    #[arg(short = '7', long, value_name = "DWORD", value_parser = number::parse::<u32>, default_value = "0")]
    cdw13: u32,
    /// Command dword 14
    #[arg(short = '8', long, value_name = "DWORD", value_parser = number::parse::<u32>, default_value = "0")]
    cdw14: u32,
    /// Command dword 15
    #[arg(short = '9', long, value_name = "DWORD", value_parser = number::parse::<u32>, default_value = "0")]
    cdw15: u32,
}

/// The direction of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    None,
    ToHost,
    FromHost,
}

impl Passthru {
    /// Sends an admin command.
    pub(crate) fn admin(self, global: &Global) -> Outcome {
        self.run(true, global)
    }

    /// Sends an I/O command.
    pub(crate) fn io(self, global: &Global) -> Outcome {
        self.run(false, global)
    }

    fn run(&self, admin: bool, global: &Global) -> Outcome {
        let direction = self.direction()?;
        let needs = if admin { Needs::Admin } else { Needs::Io };
        let mut device = self.device.open_for_any(needs, global)?;
        let mut data = match direction {
            Direction::FromHost => self.input()?,
            Direction::ToHost => vec![self.prefill; self.length()?],
            Direction::None => Vec::new(),
        };
        let sqe = self.command(&*device, admin);
        if let Some(nsid) = destroys(&sqe, admin) {
            refuse_in_use(verb(admin), &*device, nsid, self.force)?;
        }
        if self.show_command {
            say(&crate::output::passthru::command_text(&sqe, data.len()));
        }
        let view = self.send(&mut *device, admin, &sqe, direction, &mut data)?;
        let mut global = global.clone();
        if self.raw_binary {
            global.format = OutputFormat::Binary;
        }
        match (&self.input_file, direction) {
            (Some(path), Direction::ToHost) => {
                std::fs::write(path, &view.data).with_context(|| format!("writing {}", path.display()))?;
                say(view.line().trim_end());
            }
            (_, Direction::ToHost) if global.format != OutputFormat::Json => {
                show(&global, &view)?;
                say(view.line().trim_end());
            }
            _ => show(&global, &view)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn send(
        &self,
        device: &mut dyn Device,
        admin: bool,
        sqe: &Sqe,
        direction: Direction,
        data: &mut Vec<u8>,
    ) -> anyhow::Result<PassthruView> {
        let transferred = match direction {
            Direction::None => AdminData::None,
            Direction::ToHost => AdminData::ToHost(data),
            Direction::FromHost => AdminData::FromHost(data),
        };
        let start = Instant::now();
        let cqe =
            if admin { command::admin(device, sqe, transferred)? } else { command::io(device, sqe, transferred)? };
        let verb = verb(admin);
        if self.latency {
            say(&format!(" latency: {verb}: {} us", start.elapsed().as_micros()));
        }
        let name = if admin { admin_name(sqe.opcode) } else { nvm_name(sqe.opcode) };
        let data = if direction == Direction::ToHost { std::mem::take(data) } else { Vec::new() };
        Ok(PassthruView {
            verb,
            device: device.name().to_owned(),
            opcode: sqe.opcode,
            name,
            result: cqe.result(),
            data,
        })
    }

    fn direction(&self) -> Result<Direction, Failure> {
        if self.metadata_len.is_some() || self.metadata.is_some() {
            return Err(Failure::unsupported(
                "over a fabric metadata has no buffer of its own",
                "where a namespace has metadata, it stands at the end of each block: count it in --data-len",
            ));
        }
        if self.rsvd != 0 {
            let advice = "leave --rsvd away: over a fabric the command identifier is there";
            return Err(Failure::unsupported(format!("--rsvd {:#x} cannot be sent", self.rsvd), advice));
        }
        if self.length()? == 0 {
            return match &self.input_file {
                Some(_) => Err(Failure::usage("--input-file, and no data", "say how many bytes with --data-len")),
                None => Ok(Direction::None),
            };
        }
        match (self.write, self.read, self.opcode & 3) {
            (true, ..) => Ok(Direction::FromHost),
            (_, true, _) => Ok(Direction::ToHost),
            (_, _, 1) => Ok(Direction::FromHost),
            (_, _, 2) => Ok(Direction::ToHost),
            _ => Err(Failure::usage(
                format!("opcode {:#04x} does not say where its data go", self.opcode),
                "give --write (to the controller) or --read (from it)",
            )),
        }
    }

    fn length(&self) -> Result<usize, Failure> {
        let bytes = u32::try_from(self.data_len).ok().filter(|&bytes| bytes <= DATA_BYTES_MAX);
        bytes.map(|bytes| bytes as usize).ok_or_else(|| {
            Failure::usage(
                format!("--data-len {}: one command has at most 16Mi", self.data_len),
                "use several commands",
            )
        })
    }

    /// The data for the controller, padded with --prefill to --data-len.
    fn input(&self) -> anyhow::Result<Vec<u8>> {
        let length = self.length()?;
        let mut data = Vec::new();
        match &self.input_file {
            Some(path) => {
                let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
                file.take(length as u64)
                    .read_to_end(&mut data)
                    .with_context(|| format!("reading {}", path.display()))?;
            }
            None => {
                let input = std::io::stdin().lock().take(length as u64).read_to_end(&mut data);
                input.context("reading standard input")?;
            }
        }
        data.resize(length, self.prefill);
        Ok(data)
    }

    fn command(&self, device: &dyn Device, admin: bool) -> Sqe {
        let named = if admin { None } else { device.nsid() };
        let nsid = self.namespace_id.map(Nsid).or(named).unwrap_or(Nsid::NONE);
        let dwords = &self.dwords;
        let mut sqe = Sqe::new(self.opcode).with_nsid(nsid);
        // PSDT cannot be chosen: over a fabric data are described by SGLs.
        sqe.flags |= self.flags & 0x3f;
        (sqe.cdw2, sqe.cdw3) = (dwords.cdw2.into(), dwords.cdw3.into());
        let sqe = sqe.with_cdw(10, dwords.cdw10).with_cdw(11, dwords.cdw11).with_cdw(12, dwords.cdw12);
        sqe.with_cdw(13, dwords.cdw13).with_cdw(14, dwords.cdw14).with_cdw(15, dwords.cdw15)
    }
}

const fn verb(admin: bool) -> &'static str {
    if admin { "admin-passthru" } else { "io-passthru" }
}

/// The namespace whose data a command destroys, or may: what an unknown command does is not known.
fn destroys(sqe: &Sqe, admin: bool) -> Option<Nsid> {
    let select = sqe.cdw10.get() & 0xf;
    let is_harmless = if admin {
        match sqe.opcode {
            admin::FORMAT_NVM | admin::SANITIZE => false,
            // NVMe Base 2.1, Namespace Management and Namespace Attachment: SEL, 1 deletes and
            // detaches.
            admin::NAMESPACE_MANAGEMENT | admin::NAMESPACE_ATTACHMENT => select != 1,
            opcode => admin_name(opcode).is_some(),
        }
    } else {
        // Dataset Management: only Attribute Deallocate changes data.
        let harmless = [nvm::FLUSH, nvm::READ, nvm::COMPARE, nvm::VERIFY, nvm::CANCEL, nvm::IO_MANAGEMENT_RECEIVE];
        let reservations =
            [nvm::RESERVATION_REGISTER, nvm::RESERVATION_REPORT, nvm::RESERVATION_ACQUIRE, nvm::RESERVATION_RELEASE];
        let deallocates = sqe.cdw11.get() & DEALLOCATE != 0;
        let keeps = sqe.opcode == nvm::DATASET_MANAGEMENT && !deallocates;
        keeps || harmless.contains(&sqe.opcode) || reservations.contains(&sqe.opcode)
    };
    let all = sqe.nsid() == Nsid::NONE || sqe.opcode == admin::SANITIZE && admin;
    (!is_harmless).then_some(if all { Nsid::ALL } else { sqe.nsid() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::output::View as _;
    use crate::verbs::line;
    use ebof_nvme::Status;

    fn parse(line: &str) -> Passthru {
        line::parse(line)
    }

    #[test]
    fn every_field_is_sent_as_given() {
        let line = "x nvme0n1 -O 0xc1 -f 0x3 -n 7 -2 2 -3 3 -4 10 -5 11 -6 12 -7 13 -8 14 -9 0xf -l 8 -p 0xaa -w";
        let verb = parse(line);
        let mut fake = Fake::namespace(1, [FakeAnswer::ok().with_dw0(5)]);
        let sqe = verb.command(&fake, true);
        assert_eq!((sqe.opcode, sqe.flags, sqe.nsid()), (0xc1, 0x43, Nsid(7)));
        let dwords = [sqe.cdw2, sqe.cdw3, sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15];
        assert_eq!(dwords.map(|dword| dword.get()), [2, 3, 10, 11, 12, 13, 14, 15]);
        let mut data = vec![1, 2];
        let view = verb.send(&mut fake, true, &sqe, Direction::FromHost, &mut data).unwrap();
        assert_eq!((fake.last().data.as_slice(), view.result), ([1, 2].as_slice(), 5));
        assert_eq!(view.text(false), "admin-passthru: Success, result: 0x5\n");
    }

    #[test]
    fn what_may_destroy_data_is_known() {
        let destroyed = |line: &str, admin: bool| destroys(&parse(line).command(&Fake::namespace(7, []), admin), admin);
        for line in ["-O 6", "-O 2 -n 1", "-O 0x0d -4 0", "-O 0x15 -4 0 -n 1", "-O 9", "-O 0x11"] {
            assert_eq!(destroyed(&format!("x nvme0n7 {line}"), true), None, "{line}");
        }
        let admin = [("-O 0x80 -n 3", Nsid(3)), ("-O 0x84", Nsid::ALL), ("-O 0x0d -4 1 -n 3", Nsid(3))];
        for (line, nsid) in admin.into_iter().chain([("-O 0x15 -4 1 -n 3", Nsid(3)), ("-O 0xc1", Nsid::ALL)]) {
            assert_eq!(destroyed(&format!("x nvme0n7 {line}"), true), Some(nsid), "{line}");
        }
        for line in ["-O 0", "-O 2", "-O 5", "-O 0xc", "-O 0xd", "-O 0xe", "-O 9 -5 3"] {
            assert_eq!(destroyed(&format!("x nvme0n7 {line}"), false), None, "{line}");
        }
        for line in ["-O 1", "-O 4", "-O 8", "-O 9 -5 4", "-O 0x19", "-O 0x81"] {
            assert_eq!(destroyed(&format!("x nvme0n7 {line}"), false), Some(Nsid(7)), "{line}");
        }
    }

    #[test]
    fn the_opcode_determines_the_data_direction_unless_an_option_does() {
        let direction = |line: &str| parse(line).direction();
        assert_eq!(direction("x n -O 6 -l 4096").unwrap(), Direction::ToHost);
        assert_eq!(direction("x n -O 1 -l 512").unwrap(), Direction::FromHost);
        assert_eq!(direction("x n -O 0").unwrap(), Direction::None);
        assert_eq!(direction("x n -O 0xc0 -l 4 -r").unwrap(), Direction::ToHost);
        for line in ["x n -O 0xc0 -l 4", "x n -O 2 -l 17Mi", "x n -O 2 -l 8 -m 8", "x n -O 2 -R 1", "x n -O 2 -i f"] {
            assert!(direction(line).is_err(), "{line}");
        }
        assert!(line::try_parse::<Passthru>("x n -O 2 -r -w").is_err());
        assert!(line::try_parse::<Passthru>("x n").is_err());
    }

    #[test]
    fn an_io_command_is_for_the_given_namespace() {
        let fake = Fake::namespace(3, []);
        assert_eq!(parse("x n -O 0").command(&fake, false).nsid(), Nsid(3));
        assert_eq!(parse("x n -O 0").command(&fake, true).nsid(), Nsid(0));
        let mut fake = Fake::namespace(3, [FakeAnswer::status(Status::INVALID_OPCODE.dnr())]);
        let verb = parse("x n -O 0x7e");
        let sqe = verb.command(&fake, false);
        let error = verb.send(&mut fake, false, &sqe, Direction::None, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("Invalid Command Opcode"), "{error}");
    }
}
