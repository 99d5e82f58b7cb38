//! `fw-download` and `fw-commit`: a new firmware image for the drive.

use std::path::PathBuf;

use ebof_initiator::AdminData;
use ebof_nvme::Status;
use ebof_nvme::firmware::{Commit, CommitAction, Download, multiple_update};

use super::Outcome;
use super::number;
use super::on_device::on_device;
use crate::command;
use crate::device::{Device, DeviceArgs, Needs};
use crate::failure::Failure;
use crate::file;
use crate::global::Global;
use crate::output::done::Done;
use crate::output::say;

/// Maximum size of an image.
const IMAGE_BYTES_MAX: u64 = 1 << 30;
/// How often a refused piece is sent, unless the status has Do Not Retry.
const TRIES: u32 = 3;

/// Sends a firmware image in pieces.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FwDownload {
    #[command(flatten)]
    device: DeviceArgs,
    /// The file with the image
    #[arg(short = 'f', long, value_name = "FILE")]
    fw: PathBuf,
    /// Bytes of a piece, a multiple of 4 [default: the controller's granularity (FWUG), or 4096]
    #[arg(short = 'x', long, value_name = "BYTES", value_parser = number::parse_bytes, default_value = "0")]
    xfer: u64,
    /// Offset of the file in the image, in dwords
    #[arg(short = 'O', long, value_name = "DWORDS", value_parser = number::parse::<u32>, default_value = "0")]
    offset: u32,
    /// Report the progress
    #[arg(short, long)]
    progress: bool,
    /// Continue if the controller reports overlapping pieces
    #[arg(short, long)]
    ignore_ovr: bool,
}

impl FwDownload {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let image = self.image()?;
        on_device(&self.device, Needs::Admin, global, |device| self.run_on(device, &image))
    }

    fn image(&self) -> anyhow::Result<Vec<u8>> {
        let image = file::read(&self.fw, "the firmware image", IMAGE_BYTES_MAX, file::Kind::Any)?;
        if image.is_empty() || !image.len().is_multiple_of(4) {
            let message = format!("{} has {} bytes, which is no firmware image", self.fw.display(), image.len());
            return Err(Failure::usage(message, "an image is a multiple of 4 bytes, 1 GiB at most").into());
        }
        Ok(image)
    }

    fn run_on(&self, device: &mut dyn Device, image: &[u8]) -> anyhow::Result<Done> {
        let piece_bytes = self.piece_bytes(device)?;
        let begin = u64::from(self.offset) * 4;
        let mut sent = 0;
        for piece in image.chunks(piece_bytes) {
            self.send(device, begin + sent, piece)?;
            sent += piece.len() as u64;
            if self.progress {
                say(&format!("fw-download: {sent} of {} bytes, {}%", image.len(), sent * 100 / image.len() as u64));
            }
        }
        let line = if device.name().contains("://") {
            // A download is discarded with the controller that received it.
            format!(
                "Success, {sent} bytes, which end with this connection; `ebof fw-commit {} -f {}` sends and commits over one",
                device.name(),
                self.fw.display()
            )
        } else {
            format!("Success, {sent} bytes; `ebof fw-commit {}` puts them into a slot", device.name())
        };
        let done = Done::new("fw-download", device.name(), &line).with("bytes", sent).with("offset", begin);
        Ok(done.with("piece_bytes", piece_bytes as u64))
    }

    fn piece_bytes(&self, device: &mut dyn Device) -> anyhow::Result<usize> {
        let bytes = match self.xfer {
            0 => match command::identify_controller(device)?.fwug {
                // FWUG: 0 is not reported, FFh is no restriction.
                0 | 0xff => 4096,
                units => u64::from(units) * 4096,
            },
            bytes => bytes,
        };
        let usable = usize::try_from(bytes).ok().filter(|bytes| bytes.is_multiple_of(4));
        usable.ok_or_else(|| {
            Failure::usage(format!("pieces cannot have {bytes} bytes"), "give --xfer a multiple of 4").into()
        })
    }

    fn send(&self, device: &mut dyn Device, offset: u64, piece: &[u8]) -> anyhow::Result<()> {
        let sqe = Download { offset, bytes: piece.len() as u64 }.encode();
        let mut left = TRIES;
        loop {
            left -= 1;
            let Err(error) = command::admin(device, &sqe, AdminData::FromHost(piece)) else { return Ok(()) };
            let status = error.downcast_ref::<Failure>().and_then(Failure::status);
            let overlaps = status.is_some_and(|status| status.is(Status::OVERLAPPING_RANGE));
            if overlaps && self.ignore_ovr {
                return Ok(());
            }
            let again = status.is_some_and(|status| !status.is_dnr()) && !overlaps;
            if left == 0 || !again {
                return Err(error.context(format!("the piece of {} bytes at {offset}", piece.len())));
            }
        }
    }
}

/// Puts a downloaded image into a slot, and activates it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FwCommit {
    #[command(flatten)]
    device: DeviceArgs,
    /// The slot, 1 to 7; 0 leaves the choice to the controller
    #[arg(short, long, value_name = "SLOT", value_parser = number::parse::<u8>, default_value = "0")]
    slot: u8,
    /// The action: 0 replace, 1 replace and activate at the next reset, 2 activate the slot at the
    /// next reset, 3 activate at once, 6 and 7 for boot partitions
    #[arg(short, long, value_name = "ACTION", value_parser = number::parse::<u8>, default_value = "0")]
    action: u8,
    /// Boot partition, 0 or 1
    #[arg(short, long, value_name = "ID", value_parser = number::parse::<u8>, default_value = "0")]
    bpid: u8,
    /// Send this image first, over the same connection: images that were sent over closed
    /// connections are discarded
    #[arg(short = 'f', long, value_name = "FILE")]
    fw: Option<PathBuf>,
}

impl FwCommit {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        self.check()?;
        let download = self.fw.clone().map(|fw| {
            let device = self.device.clone();
            FwDownload { device, fw, xfer: 0, offset: 0, progress: false, ignore_ovr: false }
        });
        let image = download.as_ref().map(FwDownload::image).transpose()?;
        on_device(&self.device, Needs::Admin, global, |device| {
            if let (Some(download), Some(image)) = (download, image) {
                download.run_on(device, &image)?;
            }
            self.run_on(device)
        })
    }

    fn check(&self) -> Result<(), Failure> {
        if self.slot > 7 {
            return Err(Failure::usage(
                format!("there is no slot {}", self.slot),
                "slots are 1 to 7; `ebof fw-log` shows them",
            ));
        }
        if self.action > 7 || matches!(CommitAction::decode(self.action), CommitAction::Reserved(_)) {
            return Err(Failure::usage(
                format!("there is no commit action {}", self.action),
                "actions are 0, 1, 2, 3, 6 and 7",
            ));
        }
        if self.bpid > 1 {
            return Err(Failure::usage(format!("there is no boot partition {}", self.bpid), "it is 0 or 1"));
        }
        Ok(())
    }

    fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        let action = CommitAction::decode(self.action);
        let commit = Commit { action, slot: self.slot, boot_partition: self.bpid };
        let (reset, dw0) = match command::admin(device, &commit.encode(), AdminData::None) {
            Ok(cqe) => (None, cqe.dw0.get()),
            Err(error) => (Some(needed_reset(&error).ok_or(error)?), 0),
        };
        let mut line = format!("Success committing firmware action:{} slot:{}", self.action, self.slot);
        if let Some(reset) = reset {
            line += &format!(", but the firmware runs only after a {reset} reset");
        } else if matches!(action, CommitAction::ReplaceAndActivate | CommitAction::Activate) {
            line += &format!("; `ebof reset {}` activates it", device.name());
        }
        if dw0 & (multiple_update::FIRMWARE_ADMIN | multiple_update::FIRMWARE_MANAGEMENT) != 0 {
            line += "; another host was sending an image at the same time: compare the revision in `ebof fw-log`";
        }
        let done = Done::new("fw-commit", device.name(), &line).with("action", self.action).with("slot", self.slot);
        Ok(done.with("bpid", self.bpid).with("requires_reset", reset).with("multiple_update", dw0))
    }
}

/// The reset that a committed image needs, if that is why the controller returned an error.
fn needed_reset(error: &anyhow::Error) -> Option<&'static str> {
    let status = error.downcast_ref::<Failure>()?.status()?;
    let resets = [
        (Status::FIRMWARE_NEEDS_CONVENTIONAL_RESET, "conventional"),
        (Status::FIRMWARE_NEEDS_SUBSYSTEM_RESET, "NVM subsystem"),
        (Status::FIRMWARE_NEEDS_RESET, "controller level"),
    ];
    resets.iter().find(|(other, _)| status.is(*other)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::output::View as _;
    use crate::verbs::line::parse;
    use ebof_nvme::identify::IdentifyController;
    use zerocopy::IntoBytes as _;

    fn controller(fwug: u8) -> FakeAnswer {
        FakeAnswer::data(IdentifyController { fwug, ..IdentifyController::default() }.as_bytes())
    }

    #[test]
    fn an_image_is_sent_in_pieces_of_the_controllers_granularity() {
        let image: Vec<u8> = (0..20_000_u32).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let verb: FwDownload = parse("x nvme0 -f image -O 16");
        let mut fake = Fake::controller([controller(2)]);
        let view = verb.run_on(&mut fake, &image).unwrap();
        let pieces: Vec<_> =
            fake.asked[1..].iter().map(|asked| (Download::decode(&asked.sqe), asked.data.len())).collect();
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[1], (Download { offset: 64 + 8192, bytes: 8192 }, 8192));
        assert_eq!(pieces[2], (Download { offset: 64 + 16_384, bytes: 3616 }, 3616));
        let sent: Vec<u8> = fake.asked[1..].iter().flat_map(|asked| asked.data.clone()).collect();
        assert_eq!(sent, image);
        assert!(view.text(false).contains("fw-commit nvme0"));
        let verb: FwDownload = parse("x nvme0 -f image -x 6");
        assert!(verb.run_on(&mut Fake::controller([]), &image).is_err());
    }

    #[test]
    fn a_failed_piece_is_retried_unless_dnr_is_set() {
        let image = [0; 8];
        let verb: FwDownload = parse("x nvme0 -f image -x 4");
        let mut fake = Fake::controller([FakeAnswer::status(Status::INTERNAL_ERROR)]);
        verb.run_on(&mut fake, &image).unwrap();
        assert_eq!(fake.asked.len(), 3);
        let mut fake = Fake::controller([FakeAnswer::ok(), FakeAnswer::status(Status::OVERLAPPING_RANGE.dnr())]);
        let error = verb.run_on(&mut fake, &image).err().unwrap();
        assert_eq!(fake.asked.len(), 2);
        let text = crate::failure::text(&error);
        assert!(text.contains("the piece of 4 bytes at 4") && text.contains("Overlapping Range"), "{text}");
        let verb: FwDownload = parse("x nvme0 -f image -x 4 -i");
        let mut fake = Fake::controller([FakeAnswer::status(Status::OVERLAPPING_RANGE.dnr())]);
        assert!(verb.run_on(&mut fake, &image).is_ok());
    }

    #[test]
    fn a_commit_that_waits_for_a_reset_is_a_success() {
        let verb: FwCommit = parse("x nvme0 -s 2 -a 3");
        assert!(verb.check().is_ok());
        let mut fake = Fake::controller([FakeAnswer::status(Status::FIRMWARE_NEEDS_RESET)]);
        let view = verb.run_on(&mut fake).unwrap();
        assert_eq!((fake.last().sqe.opcode, fake.last().sqe.cdw10.get()), (0x10, 0x1a));
        assert!(view.text(false).ends_with("runs only after a controller level reset\n"));
        let mut fake = Fake::controller([FakeAnswer::status(Status::INVALID_FIRMWARE_IMAGE.dnr())]);
        let error = verb.run_on(&mut fake).err().unwrap().to_string();
        assert!(error.contains("Invalid Firmware Image") && error.contains("fw-download"), "{error}");
        for line in ["x n -s 8", "x n -a 4", "x n -a 8", "x n -b 2"] {
            assert!(parse::<FwCommit>(line).check().is_err(), "{line}");
        }
    }
}
