//! `resv-register`, `resv-acquire`, `resv-release`, `resv-report`: reservations of a namespace. The
//! names of nvme-cli's options are those of the specification.

use ebof_initiator::AdminData;
use ebof_nvme::reservation::{
    Acquire, AcquireAction, AcquireKeys, PersistenceChange, Register, RegisterAction, RegisterKeys, Release,
    ReleaseAction, ReleaseKey, Report, ReservationStatus, ReservationType,
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::Outcome;
use super::number;
use super::on_device::{NamespaceArgs, NamespaceOption, on_device};
use crate::command;
use crate::device::{Device, Needs};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::done::Done;
use crate::output::reservation::ReportView;

/// Parses one of several words, or its number.
macro_rules! words {
    ($name:ident, $type:ty, $($word:literal | $number:literal => $value:expr),* $(,)?) => {
        fn $name(text: &str) -> Result<$type, String> {
            match text {
                $($word | $number => Ok($value),)*
                _ => Err(concat!("want ", $($number, " (", $word, ") "),*).trim_end().to_owned()),
            }
        }
    };
}

words!(register_action, RegisterAction,
    "register" | "0" => RegisterAction::Register,
    "unregister" | "1" => RegisterAction::Unregister,
    "replace" | "2" => RegisterAction::Replace,
);
words!(persistence, PersistenceChange,
    "keep" | "0" => PersistenceChange::None,
    "clear" | "2" => PersistenceChange::Clear,
    "persist" | "3" => PersistenceChange::Set,
);
words!(acquire_action, AcquireAction,
    "acquire" | "0" => AcquireAction::Acquire,
    "preempt" | "1" => AcquireAction::Preempt,
    "preempt-and-abort" | "2" => AcquireAction::PreemptAndAbort,
);
words!(release_action, ReleaseAction,
    "release" | "0" => ReleaseAction::Release,
    "clear" | "1" => ReleaseAction::Clear,
);

/// Reads a reservation type: its number, or the words in short.
fn reservation_type(text: &str) -> Result<ReservationType, String> {
    const WORDS: [&str; 6] = [
        "write-exclusive",
        "exclusive-access",
        "write-exclusive-reg-only",
        "exclusive-access-reg-only",
        "write-exclusive-all-regs",
        "exclusive-access-all-regs",
    ];
    let word = WORDS.iter().position(|word| *word == text).and_then(|at| ReservationType::ALL.get(at).copied());
    let number = number::parse::<u8>(text).ok().and_then(ReservationType::decode);
    word.or(number).ok_or_else(|| format!("want 1 to 6: {}", WORDS.join(", ")))
}

/// Registers, unregisters or replaces this host's key.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ResvRegister {
    #[command(flatten)]
    namespace: NamespaceOption,
    /// The key that is registered now
    #[arg(short, long, value_name = "KEY", value_parser = number::parse::<u64>, default_value = "0")]
    crkey: u64,
    /// The new key
    #[arg(short = 'k', long, value_name = "KEY", value_parser = number::parse::<u64>, default_value = "0")]
    nrkey: u64,
    /// The action: 0 register, 1 unregister, 2 replace
    #[arg(short, long, value_name = "ACTION", value_parser = register_action, default_value = "0")]
    rrega: RegisterAction,
    /// Persist through power loss: 0 keep, 2 clear, 3 persist
    #[arg(short = 'p', long, value_name = "CHANGE", value_parser = persistence, default_value = "0")]
    cptpl: PersistenceChange,
    /// Ignore the existing key
    #[arg(short, long)]
    iekey: bool,
}

impl ResvRegister {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        let nsid = self.namespace.nsid(device)?;
        let register = Register { action: self.rrega, ignore_existing_key: self.iekey, persistence: self.cptpl };
        let keys = RegisterKeys { crkey: self.crkey.into(), nrkey: self.nrkey.into() };
        command::io(device, &register.encode(nsid), AdminData::FromHost(keys.as_bytes()))?;
        let done = Done::new("resv-register", device.name(), "Success").with("nsid", nsid.0);
        Ok(done.with("crkey", self.crkey).with("nrkey", self.nrkey).with("iekey", self.iekey))
    }
}

/// Acquires a reservation, or takes it from others.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ResvAcquire {
    #[command(flatten)]
    namespace: NamespaceOption,
    /// This host's key
    #[arg(short, long, value_name = "KEY", value_parser = number::parse::<u64>, default_value = "0")]
    crkey: u64,
    /// The key of the registrants to preempt
    #[arg(short, long, value_name = "KEY", value_parser = number::parse::<u64>, default_value = "0")]
    prkey: u64,
    /// Reservation type: 1 to 6, or write-exclusive, exclusive-access, write-exclusive-reg-only,
    /// ...
    #[arg(short = 't', long, value_name = "TYPE", value_parser = reservation_type)]
    rtype: ReservationType,
    /// The action: 0 acquire, 1 preempt, 2 preempt-and-abort
    #[arg(short = 'a', long, value_name = "ACTION", value_parser = acquire_action, default_value = "0")]
    racqa: AcquireAction,
    /// Ignore the existing key; controllers of NVMe 1.3 and later refuse it
    #[arg(short, long)]
    iekey: bool,
}

impl ResvAcquire {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        let nsid = self.namespace.nsid(device)?;
        let rtype = self.rtype.encode();
        let acquire = Acquire { action: self.racqa, ignore_existing_key: self.iekey, rtype };
        let keys = AcquireKeys { crkey: self.crkey.into(), prkey: self.prkey.into() };
        command::io(device, &acquire.encode(nsid), AdminData::FromHost(keys.as_bytes()))?;
        let line = format!("Success, {}", self.rtype.name());
        let done = Done::new("resv-acquire", device.name(), &line).with("nsid", nsid.0).with("rtype", rtype);
        Ok(done.with("crkey", self.crkey).with("prkey", self.prkey).with("iekey", self.iekey))
    }
}

/// Releases a reservation, or clears it and all registrants.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ResvRelease {
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// This host's key
    #[arg(short, long, value_name = "KEY", value_parser = number::parse::<u64>, default_value = "0")]
    crkey: u64,
    /// Reservation type that is held, to release it: as for resv-acquire
    #[arg(short = 't', long, value_name = "TYPE", value_parser = reservation_type)]
    rtype: Option<ReservationType>,
    /// The action: 0 release, 1 clear
    #[arg(short = 'a', long, value_name = "ACTION", value_parser = release_action, default_value = "0")]
    rrela: ReleaseAction,
    /// Ignore the existing key; controllers of NVMe 1.3 and later refuse it
    #[arg(short, long)]
    iekey: bool,
}

impl ResvRelease {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        if self.rrela == ReleaseAction::Release && self.rtype.is_none() {
            let message = "releasing needs the type of the reservation";
            return Err(Failure::usage(message, "give --rtype; `ebof resv-report --eds` shows it as rtype").into());
        }
        on_device(&self.namespace.device, Needs::Io, global, |device| self.run_on(device))
    }

    fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        let nsid = self.namespace.nsid(device)?;
        let rtype = self.rtype.map_or(0, ReservationType::encode);
        let release = Release { action: self.rrela, ignore_existing_key: self.iekey, rtype };
        let key = ReleaseKey { crkey: self.crkey.into() };
        command::io(device, &release.encode(nsid), AdminData::FromHost(key.as_bytes()))?;
        let done = Done::new("resv-release", device.name(), "Success").with("nsid", nsid.0).with("rtype", rtype);
        Ok(done.with("crkey", self.crkey).with("iekey", self.iekey))
    }
}

/// Shows the registrants of a namespace and the reservation.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ResvReport {
    #[command(flatten)]
    namespace: NamespaceOption,
    /// Number of dwords to read, less one [default: all]
    #[arg(short = 'd', long, value_name = "DWORDS", value_parser = number::parse::<u32>)]
    numd: Option<u32>,
    /// The extended data structure, with 128-bit host identifiers; always used over fabrics
    #[arg(short, long)]
    eds: bool,
}

/// Maximum size of a report: 65535 registrants of 64 bytes, and the header.
const REPORT_BYTES_MAX: u64 = 64 * 65_536;
/// Initial size of the buffer for a report, for 63 registrants.
const REPORT_BYTES: u64 = 4096;

impl ResvReport {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<ReportView> {
        let nsid = self.namespace.nsid(device)?;
        // Hosts over fabrics have 128-bit identifiers, and must use the extended data structure.
        let extended = true;
        let mut data = Vec::new();
        let mut bytes = self.numd.map_or(REPORT_BYTES, |numd| (u64::from(numd) + 1) * 4);
        loop {
            let length = usize::try_from(bytes).ok().filter(|_| bytes <= REPORT_BYTES_MAX).ok_or_else(|| {
                Failure::usage("that is more than a report can take", "give --numd at most 0xfffff, or leave it away")
            })?;
            data.resize(length, 0);
            command::io(device, &Report { bytes, extended }.encode(nsid), AdminData::ToHost(&mut data))?;
            let count = ReservationStatus::read_from_prefix(&data).map_or(0, |(status, _)| status.regstrnt.get());
            let needed = 64 * (u64::from(count) + 1);
            if needed <= bytes || self.numd.is_some() {
                data.truncate(usize::try_from(needed).map_or(length, |needed| needed.min(length)));
                return Ok(ReportView { nsid, data, extended });
            }
            bytes = needed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::output::View as _;
    use crate::verbs::line::{parse_on as parse, try_parse_on as try_parse};
    use ebof_nvme::reservation::{ReportedRegistrant, report};
    use ebof_nvme::{ControllerId, Status};

    #[test]
    fn keys_and_actions_are_sent_as_nvme_cli_does() {
        let verb: ResvRegister = parse("x nvme0n1 --crkey 1 --nrkey 0xabcd --rrega 2 --cptpl 3 --iekey");
        let mut fake = Fake::namespace(1, []);
        verb.run_on(&mut fake).unwrap();
        assert_eq!((fake.last().sqe.opcode, fake.last().sqe.cdw10.get()), (0x0d, 0xc000_000a));
        assert_eq!(fake.last().data, [1, 0, 0, 0, 0, 0, 0, 0, 0xcd, 0xab, 0, 0, 0, 0, 0, 0]);

        let verb: ResvAcquire = parse("x nvme0n1 -c 1 -p 2 -t write-exclusive-reg-only -a preempt");
        verb.run_on(&mut fake).unwrap();
        assert_eq!((fake.last().sqe.opcode, fake.last().sqe.cdw10.get()), (0x11, 0x0301));
        assert_eq!(fake.last().data, [1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);

        let verb: ResvRelease = crate::verbs::line::parse("x nvme0n1 -c 1 -a 1");
        verb.run_on(&mut fake).unwrap();
        assert_eq!((fake.last().sqe.opcode, fake.last().sqe.cdw10.get()), (0x15, 1));
        assert_eq!(fake.last().data, [1, 0, 0, 0, 0, 0, 0, 0]);
        assert!(try_parse::<ResvAcquire>("x nvme0n1 -t 7").is_err());
    }

    #[test]
    fn a_report_is_read_with_its_full_length() {
        let registrant = ReportedRegistrant { controller: ControllerId(1), holder: false, key: 5, host_id: [7; 16] };
        let whole = report(1, None, false, &vec![registrant; 100], true);
        let mut fake = Fake::namespace(1, [FakeAnswer::data(&whole), FakeAnswer::data(&whole)]);
        let verb: ResvReport = parse("x nvme0n1 --eds");
        let view = verb.run_on(&mut fake).unwrap();
        assert_eq!((fake.asked.len(), fake.last().room, fake.last().sqe.cdw11.get()), (2, 6464, 1));
        assert_eq!(view.binary().map(<[u8]>::len), Some(6464));
        assert!(view.text(false).contains("regstrnt  : 100"));

        let verb: ResvReport = parse("x nvme0n1 -d 63");
        let mut fake = Fake::namespace(1, [FakeAnswer::data(&whole)]);
        assert_eq!(verb.run_on(&mut fake).unwrap().binary().map(<[u8]>::len), Some(256));
        let verb: ResvReport = parse("x nvme0n1 -d 0xffffffff");
        assert!(verb.run_on(&mut fake).is_err());
    }

    #[test]
    fn a_conflict_is_reported_with_how_to_find_the_holder() {
        let verb: ResvAcquire = parse("x nvme0n1 -c 1 -t 1");
        let mut fake = Fake::namespace(1, [FakeAnswer::status(Status::RESERVATION_CONFLICT.dnr())]);
        let error = verb.run_on(&mut fake).err().unwrap().to_string();
        assert!(error.starts_with("Reservation Acquire: the controller answered Reservation Conflict"), "{error}");
        assert!(error.contains("resv-report nvme0n1"), "{error}");
    }
}
