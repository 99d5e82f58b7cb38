//! `security-send` and `security-recv`, without interpretation of the security protocols.

use std::path::PathBuf;

use ebof_initiator::AdminData;
use ebof_nvme::Nsid;
use ebof_nvme::opcode::admin;
use ebof_nvme::security::Security;

use super::Outcome;
use super::number;
use super::on_device::{RawBinary, on_device};
use crate::command;
use crate::device::{Device, DeviceArgs, Needs};
use crate::failure::Failure;
use crate::file;
use crate::global::Global;
use crate::output::done::Done;
use crate::output::raw::security_view;

/// Maximum data of one command.
const BYTES_MAX: u32 = 1 << 20;

/// The arguments of both commands.
#[derive(Clone, Debug, clap::Args)]
struct Protocol {
    #[command(flatten)]
    device: DeviceArgs,
    /// The namespace [default: none]
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
    /// Security protocol; with security-recv, 0 lists the supported ones
    #[arg(short = 'p', long, value_name = "SECP", value_parser = number::parse::<u8>, default_value = "0")]
    secp: u8,
    /// Security protocol specific field
    #[arg(short = 's', long, value_name = "SPSP", value_parser = number::parse::<u16>, default_value = "0")]
    spsp: u16,
    /// NVMe security specific field
    #[arg(short = 'N', long, value_name = "NSSF", value_parser = number::parse::<u8>, default_value = "0")]
    nssf: u8,
}

impl Protocol {
    fn nsid(&self, device: &dyn Device) -> Nsid {
        self.namespace_id.map(Nsid).or_else(|| device.nsid()).unwrap_or(Nsid::NONE)
    }

    fn security(&self, bytes: u32) -> Security {
        Security { protocol: self.secp, specific: self.spsp, nvme_specific: self.nssf, bytes }
    }
}

/// Sends data of a security protocol.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SecuritySend {
    #[command(flatten)]
    protocol: Protocol,
    /// The file with the data
    #[arg(short = 'f', long, value_name = "FILE")]
    file: PathBuf,
    /// Transfer length in bytes [default: the file's]
    #[arg(short = 't', long, value_name = "BYTES", value_parser = number::parse::<u32>, default_value = "0")]
    tl: u32,
}

impl SecuritySend {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let data = file::read(&self.file, "the data", BYTES_MAX.into(), file::Kind::Any)?;
        on_device(&self.protocol.device, Needs::Admin, global, |device| self.run_on(device, data))
    }

    fn run_on(&self, device: &mut dyn Device, mut data: Vec<u8>) -> anyhow::Result<Done> {
        let length = u32::try_from(data.len()).ok().filter(|&length| length > 0 && length.max(self.tl) <= BYTES_MAX);
        let Some(length) = length else {
            let message = format!("{} bytes cannot be sent at once", data.len());
            return Err(Failure::usage(message, format!("1 to {BYTES_MAX} bytes can")).into());
        };
        let length = if self.tl == 0 { length } else { self.tl };
        data.resize(length as usize, 0);
        let sqe = self.protocol.security(length).encode(admin::SECURITY_SEND, self.protocol.nsid(device));
        command::admin(device, &sqe, AdminData::FromHost(&data))?;
        Ok(Done::new("security-send", device.name(), "Success").with("secp", self.protocol.secp).with("bytes", length))
    }
}

/// Receives data of a security protocol.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SecurityRecv {
    #[command(flatten)]
    protocol: Protocol,
    /// Bytes to receive
    #[arg(short = 'x', long, value_name = "BYTES", value_parser = number::parse::<u32>)]
    size: u32,
    /// Allocation length in the command [default: --size]
    #[arg(short = 't', long, value_name = "BYTES", value_parser = number::parse::<u32>)]
    al: Option<u32>,
    #[command(flatten)]
    raw: RawBinary,
}

impl SecurityRecv {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        on_device(&self.protocol.device, Needs::Admin, &self.raw.apply(global), |device| self.run_on(device))
    }

    fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        if !(1..=BYTES_MAX).contains(&self.size) {
            let message = format!("{} bytes cannot be received at once", self.size);
            return Err(Failure::usage(message, format!("give --size 1 to {BYTES_MAX}")).into());
        }
        let mut data = vec![0; self.size as usize];
        let security = self.protocol.security(self.al.unwrap_or(self.size));
        let sqe = security.encode(admin::SECURITY_RECEIVE, self.protocol.nsid(device));
        command::admin(device, &sqe, AdminData::ToHost(&mut data))?;
        Ok(security_view(device.name(), self.protocol.secp, self.protocol.spsp, data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::output::View as _;
    use crate::verbs::line::parse;
    use ebof_nvme::Status;

    #[test]
    fn both_are_sent_as_nvme_cli_does() {
        let verb: SecuritySend = parse("x nvme0 -f file -p 0xe9 -s 0x0102 -N 3 -t 8");
        let mut fake = Fake::controller([]);
        verb.run_on(&mut fake, vec![5; 4]).unwrap();
        assert_eq!(
            (fake.last().sqe.opcode, fake.last().sqe.cdw10.get(), fake.last().sqe.cdw11.get()),
            (0x81, 0xe901_0203, 8)
        );
        assert_eq!(fake.last().data, [5, 5, 5, 5, 0, 0, 0, 0]);
        assert!(verb.run_on(&mut fake, Vec::new()).is_err());

        let verb: SecurityRecv = parse("x nvme0 -x 16 -p 0");
        let mut fake = Fake::controller([FakeAnswer::data(&[1, 2])]);
        let view = verb.run_on(&mut fake).unwrap();
        assert_eq!((fake.last().sqe.opcode, fake.last().sqe.cdw11.get(), fake.last().room), (0x82, 16, 16));
        assert_eq!(view.binary().map(|bytes| bytes[..2].to_vec()), Some(vec![1, 2]));
        assert!(parse::<SecurityRecv>("x nvme0 -x 0").run_on(&mut fake).is_err());
    }

    #[test]
    fn a_controller_without_security_commands_is_reported() {
        let mut fake = Fake::controller([FakeAnswer::status(Status::INVALID_OPCODE.dnr())]);
        let error = parse::<SecurityRecv>("x nvme0 -x 16").run_on(&mut fake).err().unwrap().to_string();
        assert!(error.contains("Security Receive") && error.contains("oacs"), "{error}");
    }
}
