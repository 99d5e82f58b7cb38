//! `format` and `sanitize`, which destroy the data of namespaces.

use std::time::Duration;

use ebof_initiator::AdminData;
use ebof_nvme::Nsid;
use ebof_nvme::identify::{Cns, IdentifyNamespace, ProtectionType, field};
use ebof_nvme::media::{Format, Sanitize, SanitizeAction, SecureErase};

use super::Outcome;
use super::guard::confirm_loss;
use super::namespaces::{formats_advice, plain_format};
use super::number;
use super::on_device::on_device;
use crate::command;
use crate::device::query::Identify;
use crate::device::{Device, DeviceArgs, Needs};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::done::Done;

/// Default time limit of a format, as in nvme-cli.
const FORMAT_TIME: Duration = Duration::from_secs(600);

/// Formats namespaces.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FormatNvm {
    #[command(flatten)]
    device: DeviceArgs,
    /// The namespace, if DEVICE does not name one; 0xffffffff for all
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
    /// Index of the LBA format, 0 to 63 [default: the one in use; 0 for all namespaces]
    #[arg(short, long, value_name = "INDEX", value_parser = number::parse::<u8>)]
    lbaf: Option<u8>,
    /// Block size in bytes, without metadata, instead of --lbaf
    #[arg(short, long, value_name = "BYTES", value_parser = number::parse_bytes, conflicts_with = "lbaf")]
    block_size: Option<u64>,
    /// Secure erase: 0 none, 1 user data, 2 cryptographic
    #[arg(short, long, value_name = "SES", value_parser = number::parse::<u8>, default_value = "0")]
    ses: u8,
    /// Protection information: type 0 to 3
    #[arg(short = 'i', long, value_name = "TYPE", value_parser = number::parse::<u8>, default_value = "0")]
    pi: u8,
    /// Protection information location: 0 last, 1 first bytes of the metadata
    #[arg(short = 'p', long, value_name = "PIL", value_parser = number::parse::<u8>, default_value = "0")]
    pil: u8,
    /// Metadata: 0 in a separate buffer, 1 at the end of each block
    #[arg(short, long, value_name = "MSET", value_parser = number::parse::<u8>, default_value = "0")]
    ms: u8,
    /// Reset the controller afterwards
    #[arg(short, long)]
    reset: bool,
    /// Do not ask, and proceed even if a block device of this machine is in use
    #[arg(long)]
    force: bool,
}

impl FormatNvm {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        self.check()?;
        on_device(&self.device, Needs::Admin, global, |device| self.run_on(device))
    }

    fn check(&self) -> Result<(), Failure> {
        let limits = [
            ("--lbaf", self.lbaf.unwrap_or(0), 63),
            ("--ses", self.ses, 7),
            ("--pi", self.pi, 7),
            ("--pil", self.pil, 1),
            ("--ms", self.ms, 1),
        ];
        match limits.iter().find(|(_, value, most)| value > most) {
            Some((name, value, most)) => {
                Err(Failure::usage(format!("{name} cannot be {value}"), format!("it is 0 to {most}")))
            }
            None => Ok(()),
        }
    }

    fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        let nsid = self.target(device)?;
        let lba_format = self.lba_format(device, nsid)?;
        let format = Format {
            lba_format,
            metadata_extended: self.ms == 1,
            protection: ProtectionType::decode(self.pi),
            protection_first: self.pil == 1,
            erase: SecureErase::decode(self.ses),
        };
        let what = if nsid == Nsid::ALL { "all namespaces".to_owned() } else { format!("namespace {nsid}") };
        let warning = format!("Format takes the data of {what} of {} away for ever.", device.name());
        confirm_loss("format", &warning, device, nsid, self.force)?;
        device.allow(FORMAT_TIME);
        command::admin(device, &format.encode(nsid), AdminData::None)?;
        if self.reset {
            device.reset()?;
        } else if device.attached().is_some() {
            device.rescan()?;
        }
        let line = format!("Success formatting namespace:{:x}", nsid.0);
        let done = Done::new("format", device.name(), &line).with("nsid", nsid.0).with("lbaf", lba_format);
        Ok(done.with("ses", self.ses).with("pi", self.pi).with("pil", self.pil).with("ms", self.ms))
    }

    /// The namespace that will be affected: all of them if the controller cannot format a single
    /// one.
    fn target(&self, device: &mut dyn Device) -> anyhow::Result<Nsid> {
        let attributes = command::identify_controller(device)?.fna;
        let all = field::fna::FORMAT_ALL | if self.ses == 0 { 0 } else { field::fna::ERASE_ALL };
        if attributes & all != 0 && attributes & field::fna::NO_BROADCAST == 0 {
            return Ok(Nsid::ALL);
        }
        let nsid = self.namespace_id.map(Nsid).or_else(|| device.nsid()).filter(|&nsid| nsid != Nsid::NONE);
        nsid.ok_or_else(|| {
            let message = format!("{} names a controller, and a format is of a namespace", device.name());
            Failure::usage(
                message,
                "say which with --namespace-id; -n 0xffffffff formats all of them: the data of all are lost",
            )
            .into()
        })
    }

    fn lba_format(&self, device: &mut dyn Device, nsid: Nsid) -> anyhow::Result<u8> {
        if let Some(index) = self.lbaf {
            return Ok(index);
        }
        if nsid == Nsid::ALL && self.block_size.is_none() {
            return Ok(0);
        }
        let namespace = if nsid == Nsid::ALL {
            command::identify(device, Identify::for_namespace(Cns::NAMESPACE, nsid))?
        } else {
            command::identify_namespace(device, nsid)?
        };
        let namespace: Box<IdentifyNamespace> = namespace;
        let Some(bytes) = self.block_size else {
            return Ok(u8::try_from(namespace.format_index()).unwrap_or(0));
        };
        plain_format(&namespace, bytes).ok_or_else(|| {
            let message = format!("there is no LBA format of {bytes} bytes without metadata");
            Failure::usage(message, formats_advice(device.name(), &namespace)).into()
        })
    }
}

/// Starts a sanitize operation, or exits failure mode.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SanitizeNvm {
    #[command(flatten)]
    device: DeviceArgs,
    /// The action: 1 exit-failure, 2 start-block-erase, 3 start-overwrite, 4 start-crypto-erase, 5
    /// exit-media-verification
    #[arg(short = 'a', long, value_name = "ACTION", value_parser = sanitize_action)]
    sanact: SanitizeAction,
    /// No deallocation afterwards
    #[arg(short = 'd', long)]
    no_dealloc: bool,
    /// Overwrite: invert the pattern between passes
    #[arg(short = 'i', long)]
    oipbp: bool,
    /// Overwrite: number of passes, 1 to 15, 0 for 16
    #[arg(short = 'n', long, value_name = "N", value_parser = number::parse::<u8>)]
    owpass: Option<u8>,
    /// Allow unrestricted exit from failure mode (AUSE)
    #[arg(short = 'u', long)]
    ause: bool,
    /// Overwrite: the 32-bit pattern
    #[arg(short = 'p', long, value_name = "PATTERN", value_parser = number::parse::<u32>)]
    ovrpat: Option<u32>,
    /// Enter the media verification state afterwards
    #[arg(short = 'e', long)]
    emvs: bool,
    /// Do not ask, and proceed even if a block device of this machine is in use
    #[arg(long)]
    force: bool,
}

/// Reads a sanitize action by nvme-cli's names or numbers.
pub(super) fn sanitize_action(text: &str) -> Result<SanitizeAction, String> {
    match text {
        "exit-failure" | "1" => Ok(SanitizeAction::ExitFailure),
        "start-block-erase" | "block-erase" | "2" => Ok(SanitizeAction::BlockErase),
        "start-overwrite" | "overwrite" | "3" => Ok(SanitizeAction::Overwrite),
        "start-crypto-erase" | "crypto-erase" | "4" => Ok(SanitizeAction::CryptoErase),
        "exit-media-verification" | "5" => Ok(SanitizeAction::ExitVerification),
        _ => match number::parse::<u8>(text) {
            Ok(number @ 1..=5) => Ok(SanitizeAction::decode(number)),
            _ => Err("want 1 exit-failure, 2 start-block-erase, 3 start-overwrite, 4 start-crypto-erase or 5 \
                      exit-media-verification"
                .to_owned()),
        },
    }
}

impl SanitizeNvm {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        self.check()?;
        on_device(&self.device, Needs::Admin, global, |device| self.run_on(device))
    }

    fn check(&self) -> Result<(), Failure> {
        let exits = matches!(self.sanact, SanitizeAction::ExitFailure | SanitizeAction::ExitVerification);
        if exits && (self.ause || self.no_dealloc || self.emvs) {
            let message = format!("--ause, --no-dealloc and --emvs start something, {} does not", self.sanact.name());
            return Err(Failure::usage(message, "leave them away"));
        }
        let overwrites = self.sanact == SanitizeAction::Overwrite;
        if !overwrites && (self.owpass.is_some() || self.oipbp || self.ovrpat.is_some()) {
            return Err(Failure::usage(
                "--owpass, --oipbp and --ovrpat are for an overwrite",
                "leave them away, or give --sanact start-overwrite",
            ));
        }
        if self.owpass.is_some_and(|passes| passes > 15) {
            return Err(Failure::usage("an overwrite has at most 16 passes", "give --owpass 1 to 15, or 0 for 16"));
        }
        Ok(())
    }

    fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        let passes = match (self.sanact, self.owpass) {
            (SanitizeAction::Overwrite, None) => 1,
            (_, passes) => passes.unwrap_or(0),
        };
        let sanitize = Sanitize {
            action: self.sanact,
            allow_unrestricted_exit: self.ause,
            overwrite_passes: passes,
            invert_pattern: self.oipbp,
            no_deallocate: self.no_dealloc,
            enter_verification: self.emvs,
            pattern: self.ovrpat.unwrap_or(0),
        };
        if !matches!(self.sanact, SanitizeAction::ExitFailure | SanitizeAction::ExitVerification) {
            let action = self.sanact.name();
            let warning = format!(
                "Sanitize ({action}) takes the data of the whole drive behind {} away for ever.",
                device.name()
            );
            confirm_loss("sanitize", &warning, device, Nsid::ALL, self.force)?;
        }
        command::admin(device, &sanitize.encode(), AdminData::None)?;
        let line = format!("Success, {}; `ebof sanitize-log {}` shows how it goes", self.sanact.name(), device.name());
        let done = Done::new("sanitize", device.name(), &line).with("sanact", self.sanact.encode());
        Ok(done.with("action", self.sanact.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::output::View as _;
    use crate::verbs::line::{parse, try_parse};
    use ebof_nvme::Status;
    use ebof_nvme::identify::{IdentifyController, LbaFormat};
    use zerocopy::IntoBytes as _;

    fn controller(fna: u8) -> FakeAnswer {
        FakeAnswer::data(IdentifyController { fna, ..IdentifyController::default() }.as_bytes())
    }

    fn namespace() -> FakeAnswer {
        let mut namespace = IdentifyNamespace { nsze: 8.into(), nlbaf: 1, flbas: 1, ..IdentifyNamespace::default() };
        namespace.lbaf[0] = LbaFormat::data_only(9);
        namespace.lbaf[1] = LbaFormat::data_only(12);
        FakeAnswer::data(namespace.as_bytes())
    }

    #[test]
    fn a_format_is_sent_as_nvme_cli_does() {
        let verb: FormatNvm = parse("x nvme0n1 -l 0x12 -s 2 -i 3 -p 1 -m 1 --force");
        let mut fake = Fake::namespace(1, [controller(0)]);
        let view = verb.run_on(&mut fake).unwrap();
        assert_eq!(
            (fake.last().sqe.opcode, fake.last().sqe.nsid(), fake.last().sqe.cdw10.get()),
            (0x80, Nsid(1), 0x1572)
        );
        assert_eq!(view.text(false), "format: Success formatting namespace:1\n");
    }

    #[test]
    fn a_format_keeps_settings_that_are_not_given() {
        let verb: FormatNvm = parse("x nvme0n1 --force");
        let mut fake = Fake::namespace(1, [controller(0), namespace()]);
        verb.run_on(&mut fake).unwrap();
        assert_eq!(fake.last().sqe.cdw10.get(), 1);
        let verb: FormatNvm = parse("x nvme0n1 -b 512 --force --reset");
        let mut fake = Fake::namespace(1, [controller(0), namespace()]);
        verb.run_on(&mut fake).unwrap();
        assert_eq!((fake.last().sqe.cdw10.get(), fake.resets), (0, 1));
        let verb: FormatNvm = parse("x nvme0n1 -b 1024 --force");
        let error = verb.run_on(&mut Fake::namespace(1, [controller(0), namespace()])).err().unwrap();
        assert!(error.to_string().contains("0: 512, 1: 4096"), "{error}");
    }

    #[test]
    fn a_controller_that_formats_all_namespaces_gets_the_broadcast_nsid() {
        let verb: FormatNvm = parse("x nvme0n1 --force");
        let mut fake = Fake::namespace(1, [controller(field::fna::FORMAT_ALL)]);
        verb.run_on(&mut fake).unwrap();
        assert_eq!((fake.last().sqe.nsid(), fake.last().sqe.cdw10.get()), (Nsid::ALL, 0));
        let verb: FormatNvm = parse("x nvme0 --force");
        assert!(verb.run_on(&mut Fake::controller([controller(0)])).is_err());
    }

    fn only_looks(fake: &Fake) -> bool {
        fake.asked.iter().all(|asked| asked.sqe.opcode == ebof_nvme::opcode::admin::IDENTIFY)
    }

    #[test]
    fn mounted_devices_are_neither_formatted_nor_sanitized() {
        let mounted = || Fake::namespace(1, [controller(0)]).with_local_device(1, Some("/mnt"));
        let mut fake = mounted();
        let error = parse::<FormatNvm>("x nvme0n1 -l 0").run_on(&mut fake).err().unwrap().to_string();
        assert!(error.contains("format: nvme0n1 is in use") && error.contains("mounted at /mnt"), "{error}");
        assert!(only_looks(&fake));
        let mut fake = mounted();
        let error = parse::<SanitizeNvm>("x nvme0n1 -a 2").run_on(&mut fake).err().unwrap().to_string();
        assert!(error.contains("sanitize: nvme0n1 is in use") && only_looks(&fake), "{error}");
        let mut fake = mounted();
        parse::<FormatNvm>("x nvme0n1 -l 0 --force").run_on(&mut fake).unwrap();
        assert_eq!(fake.last().sqe.opcode, 0x80);
    }

    // @test output.confirmation
    #[test]
    fn without_a_terminal_a_format_needs_force() {
        let verb: FormatNvm = parse("x nvme0n1 -l 0");
        let mut fake = Fake::namespace(1, [controller(0)]);
        let error = verb.run_on(&mut fake).err().unwrap().to_string();
        assert!(error.contains("Nothing was done") && error.contains("--force"), "{error}");
        assert!(only_looks(&fake));
        let verb: SanitizeNvm = parse("x nvme0 -a 2");
        let mut fake = Fake::controller([]);
        assert!(verb.run_on(&mut fake).is_err() && only_looks(&fake));
    }

    #[test]
    fn values_out_of_range_are_refused_before_anything_is_sent() {
        for line in ["x n -l 64", "x n -s 8", "x n -i 8", "x n -p 2", "x n -m 2"] {
            assert!(parse::<FormatNvm>(line).check().is_err(), "{line}");
        }
        for line in ["x n -a 1 -u", "x n -a 5 -d", "x n -a 2 -n 1", "x n -a 3 -n 16", "x n -a 4 -p 1"] {
            assert!(parse::<SanitizeNvm>(line).check().is_err(), "{line}");
        }
        assert!(try_parse::<SanitizeNvm>("x n -a 6").is_err());
    }

    #[test]
    fn a_sanitize_is_sent_as_nvme_cli_does() {
        let verb: SanitizeNvm = parse("x nvme0 -a start-overwrite -n 3 -i -p 0xdeadbeef -u -d --force");
        assert!(verb.check().is_ok());
        let mut fake = Fake::controller([]);
        verb.run_on(&mut fake).unwrap();
        assert_eq!(
            (fake.last().sqe.opcode, fake.last().sqe.cdw10.get(), fake.last().sqe.cdw11.get()),
            (0x84, 0x33b, 0xdead_beef)
        );
        let verb: SanitizeNvm = parse("x nvme0 -a exit-failure");
        verb.run_on(&mut fake).unwrap();
        assert_eq!(fake.last().sqe.cdw10.get(), 1);
        let mut fake = Fake::controller([FakeAnswer::status(Status::SANITIZE_IN_PROGRESS.dnr())]);
        let error = verb.run_on(&mut fake).err().unwrap().to_string();
        assert!(error.contains("sanitize-log nvme0"), "{error}");
    }
}
