//! `dir-send` and `dir-receive`: directives of a namespace or a controller (NVMe Base, Directives).

use std::path::PathBuf;

use ebof_initiator::AdminData;
use ebof_nvme::opcode::admin;
use ebof_nvme::{Nsid, Sqe};

use super::Outcome;
use super::number;
use super::on_device::{Shown, on_device};
use crate::command;
use crate::device::{Device, DeviceArgs, Needs};
use crate::failure::Failure;
use crate::file;
use crate::global::Global;
use crate::output::directive::DirectiveView;

/// Maximum data of one command.
const BYTES_MAX: u32 = 1 << 20;
/// Directive types.
const IDENTIFY: u8 = 0;
const STREAMS: u8 = 1;
/// Directive operations.
const ENABLE: u8 = 1;
const PARAMETERS: u8 = 1;
const STATUS: u8 = 2;
const ALLOCATE: u8 = 3;

/// What both commands take.
#[derive(Clone, Debug, clap::Args)]
struct Operation {
    #[command(flatten)]
    device: DeviceArgs,
    /// The namespace, if DEVICE does not name one [default: none]
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
    /// Bytes of data [default: what the operation has]
    #[arg(short = 'l', long, value_name = "BYTES", value_parser = number::parse::<u32>, default_value = "0")]
    data_len: u32,
    /// Directive type: 0 Identify, 1 Streams, 2 Data Placement
    #[arg(short = 'D', long, value_name = "TYPE", value_parser = number::parse::<u8>, default_value = "0")]
    dir_type: u8,
    /// Directive specific value (DSPEC)
    #[arg(short = 'S', long, value_name = "VALUE", value_parser = number::parse::<u16>, default_value = "0")]
    dir_spec: u16,
    /// Directive operation: that of the type
    #[arg(short = 'O', long, value_name = "OPERATION", value_parser = number::parse::<u8>, default_value = "0")]
    dir_oper: u8,
    #[command(flatten)]
    shown: Shown,
}

impl Operation {
    fn check(&self, known: &[(u8, u8, &str)], default_bytes: u32) -> Result<u32, Failure> {
        if !known.iter().any(|&(kind, operation, _)| (kind, operation) == (self.dir_type, self.dir_oper)) {
            let message = format!("there is no operation {} of directive type {}", self.dir_oper, self.dir_type);
            let list = known.iter().map(|(kind, operation, what)| format!("-D {kind} -O {operation} {what}"));
            return Err(Failure::usage(message, format!("give {}", list.collect::<Vec<_>>().join(", "))));
        }
        let bytes = if self.data_len == 0 { default_bytes } else { self.data_len };
        if bytes > BYTES_MAX || !bytes.is_multiple_of(4) {
            let message = format!("{bytes} bytes cannot be transferred at once");
            return Err(Failure::usage(message, format!("give --data-len a multiple of 4, at most {BYTES_MAX}")));
        }
        Ok(bytes)
    }

    /// The command, for `bytes` of data.
    fn encode(&self, opcode: u8, nsid: Nsid, bytes: u32) -> Sqe {
        // Directive Send and Receive: NUMD is 0's based, and 0 also where there are no data.
        let numd = (bytes / 4).saturating_sub(1);
        let cdw11 = u32::from(self.dir_oper) | u32::from(self.dir_type) << 8 | u32::from(self.dir_spec) << 16;
        Sqe::new(opcode).with_nsid(nsid).with_cdw(10, numd).with_cdw(11, cdw11)
    }

    fn nsid(&self, device: &dyn Device) -> Nsid {
        self.namespace_id.map(Nsid).or_else(|| device.nsid()).unwrap_or(Nsid::NONE)
    }

    fn view(&self, verb: &'static str, device: &dyn Device, result: u32, data: Vec<u8>) -> DirectiveView {
        let nsid = self.nsid(device);
        DirectiveView { verb, kind: self.dir_type, operation: self.dir_oper, spec: self.dir_spec, nsid, result, data }
    }
}

/// Sends a directive.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DirSend {
    #[command(flatten)]
    operation: Operation,
    /// Identify: the directive type to enable or disable
    #[arg(short = 'T', long, value_name = "TYPE", value_parser = number::parse::<u8>, default_value = "0")]
    target_dir: u8,
    /// Identify: 1 enables, 0 disables
    #[arg(short = 'e', long, value_name = "0|1", value_parser = number::parse::<u16>, default_value = "0")]
    endir: u16,
    /// The file with the data
    #[arg(short, long, value_name = "FILE")]
    input_file: Option<PathBuf>,
}

const SENDS: [(u8, u8, &str); 3] = [
    (IDENTIFY, ENABLE, "(enable a directive)"),
    (STREAMS, 1, "(release an identifier)"),
    (STREAMS, 2, "(release resources)"),
];

impl DirSend {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let data = match &self.input_file {
            Some(file) => file::read(file, "the data", BYTES_MAX.into(), file::Kind::Any)?,
            None => Vec::new(),
        };
        on_device(&self.operation.device, Needs::Admin, &self.operation.shown.apply(global), |device| {
            self.run_on(device, data)
        })
    }

    fn run_on(&self, device: &mut dyn Device, mut data: Vec<u8>) -> anyhow::Result<DirectiveView> {
        let bytes = self.operation.check(&SENDS, 0)?;
        if bytes > 0 && data.is_empty() {
            return Err(Failure::usage("--data-len without data", "give --input-file, too").into());
        }
        data.truncate(bytes as usize);
        data.resize(bytes as usize, 0);
        let enable = self.operation.dir_type == IDENTIFY;
        if enable && self.target_dir == 0 {
            let advice = "give --target-dir 1 (Streams) or 2 (Data Placement)";
            return Err(Failure::usage("which directive is enabled is not said", advice).into());
        }
        let cdw12 = if enable { u32::from(self.target_dir) << 8 | u32::from(self.endir & 1) } else { 0 };
        let nsid = self.operation.nsid(device);
        let sqe = self.operation.encode(admin::DIRECTIVE_SEND, nsid, bytes).with_cdw(12, cdw12);
        let data_out = if data.is_empty() { AdminData::None } else { AdminData::FromHost(&data) };
        let result = command::admin(device, &sqe, data_out)?.dw0.get();
        Ok(self.operation.view("dir-send", device, result, Vec::new()))
    }
}

/// Reads about a directive.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DirReceive {
    #[command(flatten)]
    operation: Operation,
    /// Streams, operation 3: how many streams are asked for
    #[arg(short = 'r', long, value_name = "N", value_parser = number::parse::<u16>, default_value = "0")]
    req_resource: u16,
}

const RECEIVES: [(u8, u8, &str); 4] = [
    (IDENTIFY, PARAMETERS, "(parameters)"),
    (STREAMS, PARAMETERS, "(parameters)"),
    (STREAMS, STATUS, "(open streams)"),
    (STREAMS, ALLOCATE, "(allocate streams)"),
];

impl DirReceive {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        on_device(&self.operation.device, Needs::Admin, &self.operation.shown.apply(global), |device| {
            self.run_on(device)
        })
    }

    fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<DirectiveView> {
        let default_bytes = match (self.operation.dir_type, self.operation.dir_oper) {
            (IDENTIFY, PARAMETERS) => 4096,
            (STREAMS, PARAMETERS) => 32,
            (STREAMS, STATUS) => 128 << 10,
            _ => 0,
        };
        let bytes = self.operation.check(&RECEIVES, default_bytes)?;
        let allocates = (self.operation.dir_type, self.operation.dir_oper) == (STREAMS, ALLOCATE);
        let cdw12 = if allocates { self.req_resource.into() } else { 0 };
        let nsid = self.operation.nsid(device);
        let sqe = self.operation.encode(admin::DIRECTIVE_RECEIVE, nsid, bytes).with_cdw(12, cdw12);
        let mut data = vec![0; bytes as usize];
        let room = if data.is_empty() { AdminData::None } else { AdminData::ToHost(&mut data) };
        let result = command::admin(device, &sqe, room)?.dw0.get();
        Ok(self.operation.view("dir-receive", device, result, data))
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
        let verb: DirReceive = parse("x nvme0n1 -D 1 -O 1 -n 2");
        let mut fake = Fake::controller([FakeAnswer::data(&[8, 0, 4]).with_dw0(7)]);
        let text = verb.run_on(&mut fake).unwrap().text(true);
        let sqe = fake.last().sqe;
        assert_eq!((sqe.opcode, sqe.nsid(), sqe.cdw10.get(), sqe.cdw11.get()), (0x1a, Nsid(2), 7, 0x0101));
        assert!(text.contains("result 0x7") && text.contains("Max Streams Limit (MSL)"), "{text}");

        let verb: DirReceive = parse("x nvme0n1 -D 1 -O 3 -r 4");
        let mut fake = Fake::namespace(1, [FakeAnswer::ok().with_dw0(4)]);
        verb.run_on(&mut fake).unwrap();
        let sqe = fake.last().sqe;
        assert_eq!((sqe.nsid(), sqe.cdw10.get(), sqe.cdw12.get(), fake.last().room), (Nsid(1), 0, 4, 0));

        let verb: DirSend = parse("x nvme0n1 -D 0 -O 1 -T 1 -e 1");
        let mut fake = Fake::namespace(1, []);
        verb.run_on(&mut fake, Vec::new()).unwrap();
        let sqe = fake.last().sqe;
        assert_eq!((sqe.opcode, sqe.cdw11.get(), sqe.cdw12.get()), (0x19, 1, 0x101));
    }

    #[test]
    fn what_does_not_exist_is_said_and_nothing_is_sent() {
        let mut fake = Fake::namespace(1, []);
        for line in ["x nvme0n1 -D 0 -O 9", "x nvme0n1 -D 7 -O 1"] {
            let error = parse::<DirReceive>(line).run_on(&mut fake).err().unwrap().to_string();
            assert!(error.contains("there is no operation") && error.contains("-D 1 -O 2"), "{error}");
        }
        assert!(parse::<DirSend>("x nvme0n1 -O 1").run_on(&mut fake, Vec::new()).is_err(), "no --target-dir");
        assert!(fake.asked.is_empty());
        let mut fake = Fake::namespace(1, [FakeAnswer::status(Status::INVALID_OPCODE.dnr())]);
        let error = parse::<DirReceive>("x nvme0n1 -O 1").run_on(&mut fake).err().unwrap().to_string();
        assert!(error.contains("it has no directives") && error.contains("bit 5 of oacs"), "{error}");
    }
}
