//! Log pages of drives: `persistent-event-log`, `telemetry-log`, `sanitize-log`, `endurance-log`,
//! `resv-notif-log`.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use ebof_nvme::Nsid;
use ebof_nvme::identify::field::lpa;
use ebof_nvme::log::{
    EnduranceGroupInformation, GetLogPage, Lid, PersistentEventHeader, SanitizeLog, TelemetryHeader,
    persistent_event_lsp, telemetry_lsp,
};

use super::Outcome;
use super::number;
use super::on_device::{RawBinary, Shown, on_device};
use crate::command;
use crate::device::{Device, DeviceArgs, Needs};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::done::Done;
use crate::output::endurance::endurance_view;
use crate::output::persistent::PersistentView;
use crate::output::reservation::notification_view;
use crate::output::sanitize::sanitize_view;
use crate::output::structure::StructureView;
use crate::output::{say, show};

/// Maximum size of a persistent event log.
const PERSISTENT_BYTES_MAX: u64 = 64 << 20;
/// Maximum size of telemetry data: a controller must not be able to fill the disk.
const TELEMETRY_BYTES_MAX: u64 = 4 << 30;
/// Bytes of telemetry data that are read before they are written to the file.
const TELEMETRY_CHUNK: u64 = 1 << 20;

/// The Persistent Event Log.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PersistentEventLog {
    #[command(flatten)]
    device: DeviceArgs,
    /// The action: 0 read the existing reporting context, 1 establish one and read, 2 release
    /// it [default: all three in turn]
    #[arg(short = 'a', long, value_name = "ACTION", value_parser = number::parse::<u8>)]
    action: Option<u8>,
    /// Number of bytes to read [default: all; with --action 1 none]
    #[arg(short = 'l', long, alias = "log_len", value_name = "BYTES", value_parser = number::parse_bytes, default_value = "0")]
    log_len: u64,
    #[command(flatten)]
    shown: Shown,
}

impl PersistentEventLog {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        if self.action.is_some_and(|action| action > persistent_event_lsp::RELEASE) {
            let message = "there is no such action";
            return Err(Failure::usage(message, "actions are 0 read, 1 establish and read, 2 release").into());
        }
        let mut device = self.device.open(Needs::Admin, global)?;
        let global = self.shown.apply(global);
        match self.run_on(&mut *device)? {
            Read::Log(data) => show(&global, &PersistentView { device: device.name().to_owned(), data })?,
            Read::Nothing(line) => show(&global, &Done::new("persistent-event-log", device.name(), line))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Read> {
        match self.action {
            Some(persistent_event_lsp::RELEASE) => {
                act(device, persistent_event_lsp::RELEASE)?;
                Ok(Read::Nothing("the reporting context is released"))
            }
            Some(persistent_event_lsp::ESTABLISH) if self.log_len == 0 => {
                act(device, persistent_event_lsp::ESTABLISH)?;
                Ok(Read::Nothing("a reporting context is established"))
            }
            Some(action) => {
                let header = act(device, action)?;
                self.read(device, &header)
            }
            None => {
                let header = act(device, persistent_event_lsp::ESTABLISH)?;
                let read = self.read(device, &header);
                let released = act(device, persistent_event_lsp::RELEASE);
                let read = read?;
                released?;
                Ok(read)
            }
        }
    }

    fn read(&self, device: &mut dyn Device, header: &PersistentEventHeader) -> anyhow::Result<Read> {
        let wanted = if self.log_len == 0 { header.tll.get() } else { self.log_len.min(header.tll.get()) };
        let bytes = usize::try_from(wanted).ok().filter(|_| wanted <= PERSISTENT_BYTES_MAX).ok_or_else(|| {
            let message = format!("the log has {wanted} bytes, which is more than is read at once");
            Failure::usage(message, format!("give --log-len at most {PERSISTENT_BYTES_MAX}"))
        })?;
        let mut data = vec![0; bytes.next_multiple_of(4)];
        command::read_log(device, Nsid::ALL, page(persistent_event_lsp::READ), &mut data)?;
        data.truncate(bytes);
        Ok(Read::Log(data))
    }
}

/// The result of reading the log.
#[derive(Debug)]
enum Read {
    Log(Vec<u8>),
    Nothing(&'static str),
}

fn page(action: u8) -> GetLogPage {
    GetLogPage { lsp: action, ..command::log_page(Lid::PERSISTENT_EVENT) }
}

/// Executes an action on the reporting context, and reads the header.
fn act(device: &mut dyn Device, action: u8) -> anyhow::Result<Box<PersistentEventHeader>> {
    command::log(device, Nsid::ALL, page(action))
}

/// Telemetry data, into a file.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TelemetryLog {
    #[command(flatten)]
    device: DeviceArgs,
    /// The file for the log page, with its header
    #[arg(short = 'O', long, value_name = "FILE")]
    output_file: PathBuf,
    /// 1: capture the controller's state now; 0: read the last capture
    #[arg(short = 'g', long, value_name = "0|1", value_parser = number::parse::<u32>, default_value = "1")]
    host_generate: u32,
    /// The controller-initiated data
    #[arg(short, long)]
    controller_init: bool,
    /// The last data area to read, 1 to 4
    #[arg(short, long, value_name = "AREA", default_value = "3", value_parser = clap::value_parser!(u8).range(1..=4))]
    data_area: u8,
    /// Retain the asynchronous event that pointed to the log page
    #[arg(short, long)]
    rae: bool,
    /// The last data area to capture, instead of --data-area; 0 leaves the choice to the controller
    #[arg(short, long, value_name = "AREA", value_parser = clap::value_parser!(u8).range(0..=4))]
    mcda: Option<u8>,
}

impl TelemetryLog {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        if self.mcda.is_some() && (self.controller_init || self.host_generate == 0) {
            let message = "--mcda is for a capture that the host asks for";
            return Err(Failure::usage(message, "leave --controller-init and --host-generate 0 away").into());
        }
        on_device(&self.device, Needs::Admin, global, |device| {
            let path = self.output_file.display();
            let mut file = File::create(&self.output_file).with_context(|| format!("making {path}"))?;
            let done =
                self.run_on(device, &mut |bytes| file.write_all(bytes).with_context(|| format!("writing {path}")))?;
            Ok(done.with("file", path.to_string()))
        })
    }

    fn run_on(
        &self,
        device: &mut dyn Device,
        write: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<Done> {
        let area = self.mcda.filter(|&area| area > 0).unwrap_or(self.data_area);
        if area == 4 {
            allow_area_4(device)?;
        }
        let lid = if self.controller_init { Lid::TELEMETRY_CONTROLLER } else { Lid::TELEMETRY_HOST };
        let page = GetLogPage { retain_event: true, ..command::log_page(lid) };
        let create = !self.controller_init && self.host_generate != 0;
        let lsp = telemetry_lsp::CREATE | self.mcda.unwrap_or(0) << telemetry_lsp::AREA_SHIFT;
        let first = GetLogPage { lsp: if create { lsp } else { 0 }, ..page };
        let header: Box<TelemetryHeader> = command::log(device, Nsid::ALL, first)?;
        let total = header.bytes_up_to(area);
        if total > TELEMETRY_BYTES_MAX {
            let message = format!("data area {area} ends after {total} bytes, which is more than is read");
            let advice = format!("give a lower --data-area; at most {TELEMETRY_BYTES_MAX} bytes are read");
            return Err(Failure::new("too-large", message, advice).into());
        }
        let mut offset = 0;
        let mut buffer = Vec::new();
        while offset < total {
            let bytes = (total - offset).min(TELEMETRY_CHUNK);
            buffer.resize(usize::try_from(bytes).unwrap_or(usize::MAX), 0);
            let retain_event = self.rae || !self.controller_init || offset + bytes < total;
            command::read_log(device, Nsid::ALL, GetLogPage { offset, retain_event, ..page }, &mut buffer)?;
            write(&buffer)?;
            offset += bytes;
        }
        let again: Box<TelemetryHeader> = command::log(device, Nsid::ALL, page)?;
        let generation = |header: &TelemetryHeader| {
            if self.controller_init { header.tcdgn } else { header.thdgn_or_tcs }
        };
        if generation(&header) != generation(&again) {
            let message = "the controller captured its state anew while it was read: the file is a mixture";
            return Err(Failure::new("changed", message, "run the verb again").into());
        }
        let line = format!("Success, {total} bytes of data areas 1 to {area}");
        let done = Done::new("telemetry-log", device.name(), &line).with("bytes", total).with("data_area", area);
        Ok(done.with("generation", generation(&header)).with("controller_initiated", self.controller_init))
    }
}

/// Tells the controller that this host supports data area 4, which is required for it (Host
/// Behavior Support, ETDAS).
fn allow_area_4(device: &mut dyn Device) -> anyhow::Result<()> {
    if command::identify_controller(device)?.lpa & lpa::TELEMETRY_AREA_4 == 0 {
        let message = format!("{} has no telemetry data area 4", device.name());
        return Err(Failure::usage(message, "give --data-area 1, 2 or 3").into());
    }
    command::change_host_behavior(device, |behavior| {
        if behavior.etdas == 0 {
            behavior.etdas = 1;
        }
    })
}

/// The Sanitize Status log.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SanitizeLogVerb {
    /// Retain the asynchronous event that pointed to the log page
    #[arg(short, long)]
    rae: bool,
}

impl SanitizeLogVerb {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<StructureView<SanitizeLog>> {
        let page = GetLogPage { retain_event: self.rae, ..command::log_page(Lid::SANITIZE_STATUS) };
        let data = command::log(device, Nsid::ALL, page)?;
        Ok(sanitize_view(device.name(), data))
    }
}

/// The Endurance Group Information log.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EnduranceLog {
    /// The endurance group
    #[arg(short, long, value_name = "ENDGID", value_parser = number::parse::<u16>, default_value = "1")]
    group_id: u16,
}

impl EnduranceLog {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<StructureView<EnduranceGroupInformation>> {
        let page = GetLogPage { lsi: self.group_id, ..command::log_page(Lid::ENDURANCE_GROUP) };
        let data = command::log(device, Nsid::ALL, page)?;
        Ok(endurance_view(device.name(), self.group_id, data))
    }
}

/// The Reservation Notification log.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ResvNotifLog {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    raw: RawBinary,
}

impl ResvNotifLog {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        on_device(&self.device, Needs::Admin, &self.raw.apply(global), |device| {
            if global.is_verbose() {
                say("reading this log takes the notification away");
            }
            let data = command::log(device, Nsid::ALL, command::log_page(Lid::RESERVATION_NOTIFICATION))?;
            Ok(notification_view(device.name(), data))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::verbs::line::parse;
    use ebof_nvme::identify::IdentifyController;
    use zerocopy::IntoBytes as _;

    fn gets(fake: &Fake) -> Vec<GetLogPage> {
        fake.asked.iter().map(|asked| GetLogPage::decode(&asked.sqe)).collect()
    }

    #[test]
    fn persistent_events_are_read_in_a_separate_context() {
        let header = PersistentEventHeader::new(0, 8000);
        let log = FakeAnswer::data(header.as_bytes());
        let mut fake = Fake::controller([log.clone(), log.clone()]);
        let verb: PersistentEventLog = parse("x nvme0");
        let Read::Log(data) = verb.run_on(&mut fake).unwrap() else { panic!("a log") };
        assert_eq!(data.len(), 8512);
        let gets = gets(&fake);
        assert_eq!(gets.iter().map(|get| get.lsp).collect::<Vec<_>>(), [1, 0, 0, 0, 2]);
        assert_eq!(gets.iter().map(|get| get.bytes).collect::<Vec<_>>(), [512, 4096, 4096, 320, 512]);

        let verb: PersistentEventLog = parse("x nvme0 -a 0 -l 600");
        let mut fake = Fake::controller([log.clone(), log]);
        let Read::Log(data) = verb.run_on(&mut fake).unwrap() else { panic!("a log") };
        assert_eq!((data.len(), fake.asked.len(), self::gets(&fake)[0].lsp), (600, 2, 0));
        let verb: PersistentEventLog = parse("x nvme0 --action 2");
        assert!(
            matches!(verb.run_on(&mut Fake::controller([])).unwrap(), Read::Nothing(line) if line.contains("released"))
        );
        let endless = FakeAnswer::data(PersistentEventHeader::new(0, u64::MAX).as_bytes());
        let verb: PersistentEventLog = parse("x nvme0 -a 0");
        assert!(verb.run_on(&mut Fake::controller([endless])).is_err());
    }

    fn telemetry(line: &str, fake: &mut Fake) -> (anyhow::Result<Done>, usize) {
        let mut written = 0;
        let verb: TelemetryLog = parse(line);
        let done = verb.run_on(fake, &mut |bytes| {
            written += bytes.len();
            Ok(())
        });
        (done, written)
    }

    #[test]
    fn telemetry_is_captured_and_read_up_to_the_area() {
        let mut header = TelemetryHeader::new(Lid::TELEMETRY_HOST, [1, 9, 20], 0);
        header.thdgn_or_tcs = 3;
        let answer = FakeAnswer::data(header.as_bytes());
        let mut fake = Fake::controller([answer.clone(), answer.clone(), FakeAnswer::ok(), answer.clone()]);
        let (done, written) = telemetry("x nvme0 -O file -d 2", &mut fake);
        assert!(done.is_ok());
        assert_eq!(written, 512 * 10);
        let gets = gets(&fake);
        assert_eq!(gets.iter().map(|get| (get.lid.0, get.lsp)).collect::<Vec<_>>(), [(7, 1), (7, 0), (7, 0), (7, 0)]);
        assert!(gets.iter().all(|get| get.retain_event));
        assert_eq!(gets[2].offset, 4096);

        header.thdgn_or_tcs = 4;
        let mut fake = Fake::controller([answer, FakeAnswer::ok(), FakeAnswer::data(header.as_bytes())]);
        assert!(telemetry("x nvme0 -O file -d 1 -g 0", &mut fake).0.unwrap_err().to_string().contains("mixture"));
        assert_eq!(self::gets(&fake)[0].lsp, 0);
    }

    #[test]
    fn the_controllers_capture_is_released_at_the_end() {
        let header = FakeAnswer::data(TelemetryHeader::new(Lid::TELEMETRY_CONTROLLER, [1, 1, 1], 1).as_bytes());
        let mut fake = Fake::controller([header.clone(), header.clone(), header.clone()]);
        telemetry("x nvme0 -O file -c", &mut fake).0.unwrap();
        assert_eq!(gets(&fake).iter().map(|get| get.retain_event).collect::<Vec<_>>(), [true, false, true]);

        let lpa = IdentifyController { lpa: lpa::TELEMETRY_AREA_4, ..IdentifyController::default() };
        let mut fake = Fake::controller([
            FakeAnswer::data(lpa.as_bytes()),
            FakeAnswer::ok(),
            FakeAnswer::ok(),
            header.clone(),
            header.clone(),
            header,
        ]);
        telemetry("x nvme0 -O file -c -d 4", &mut fake).0.unwrap();
        assert_eq!((fake.asked[2].sqe.opcode, fake.asked[2].data[1]), (0x09, 1));
        assert!(telemetry("x nvme0 -O file -d 4", &mut Fake::controller([])).0.is_err());

        let endless = FakeAnswer::data(TelemetryHeader::new(Lid::TELEMETRY_CONTROLLER, [1, 1, 1], u32::MAX).as_bytes());
        let mut fake =
            Fake::controller([FakeAnswer::data(lpa.as_bytes()), FakeAnswer::ok(), FakeAnswer::ok(), endless]);
        let (done, written) = telemetry("x nvme0 -O file -c -d 4", &mut fake);
        assert!(done.is_err() && written == 0);
    }
}
