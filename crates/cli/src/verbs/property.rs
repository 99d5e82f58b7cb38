//! `get-property`, `set-property`, `get-reg`, `set-reg`, `subsystem-reset`: the properties of a
//! controller over a fabric, by their offsets and names.

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use ebof_initiator::AdminData;
use ebof_nvme::Sqe;
use ebof_nvme::connect::Property;
use ebof_nvme::property::offset;

use super::Outcome;
use super::number;
use super::on_device::on_device;
use crate::command;
use crate::device::{Device, DeviceArgs, Needs};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::done::Done;
use crate::output::registers::{PROPERTIES, PropertyView, ReadRegistersView};

/// `NVMe` in ASCII: the value that resets the subsystem (Base, NSSR.NSSRC).
const RESET_WORD: u32 = 0x4e56_4d65;
/// CAP.NSSRS: the subsystem can be reset.
const CAP_NSSRS: u64 = 1 << 36;

/// Reads a property.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GetProperty {
    #[command(flatten)]
    device: DeviceArgs,
    /// Offset: CAP is 0x0, VS 0x8, CC 0x14, CSTS 0x1c, NSSR 0x20, CRTO 0x68
    #[arg(short = 'O', long, value_name = "OFFSET", value_parser = number::parse::<u32>)]
    offset: u32,
    /// Explain each bit, as -v
    #[arg(short = 'H', long)]
    human_readable: bool,
}

impl GetProperty {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let mut global = global.clone();
        global.verbose = global.verbose.max(u8::from(self.human_readable));
        on_device(&self.device, Needs::Admin, &global, |device| self.run_on(device))
    }

    fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<PropertyView> {
        let value = command::property(device, self.offset, bytes_of(self.offset))?;
        let value = value.ok_or_else(|| no_property(device, self.offset))?;
        Ok(PropertyView { verb: "get-property", offset: self.offset, value })
    }
}

/// Writes a property.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SetProperty {
    /// Offset, as for get-property
    #[arg(short = 'O', long, value_name = "OFFSET", value_parser = number::parse::<u32>)]
    offset: u32,
    /// The value
    #[arg(short = 'V', long, value_name = "VALUE", value_parser = number::parse::<u64>)]
    value: u64,
}

impl SetProperty {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<PropertyView> {
        command::admin(device, &set(self.offset, self.value)?, AdminData::None)?;
        Ok(PropertyView { verb: "set-property", offset: self.offset, value: self.value })
    }
}

/// The registers that a property's name may stand for: name, offset (Base, Controller Properties).
const REGISTERS: [(&str, u32); 28] = [
    ("cap", 0x00),
    ("vs", 0x08),
    ("intms", 0x0c),
    ("intmc", 0x10),
    ("cc", 0x14),
    ("csts", 0x1c),
    ("nssr", 0x20),
    ("aqa", 0x24),
    ("asq", 0x28),
    ("acq", 0x30),
    ("cmbloc", 0x38),
    ("cmbsz", 0x3c),
    ("bpinfo", 0x40),
    ("bprsel", 0x44),
    ("bpmbl", 0x48),
    ("cmbmsc", 0x50),
    ("cmbsts", 0x58),
    ("cmbebs", 0x5c),
    ("cmbswtp", 0x60),
    ("nssd", 0x64),
    ("crto", 0x68),
    ("pmrcap", 0xe00),
    ("pmrctl", 0xe04),
    ("pmrsts", 0xe08),
    ("pmrebs", 0xe0c),
    ("pmrswtp", 0xe10),
    ("pmrmscl", 0xe14),
    ("pmrmscu", 0xe18),
];

/// Registers that cannot be written.
const READ_ONLY: [&str; 13] = [
    "cap", "vs", "cmbloc", "cmbsz", "bpinfo", "cmbsts", "cmbebs", "cmbswtp", "crto", "pmrcap", "pmrsts", "pmrebs",
    "pmrswtp",
];

/// An option for each register, as nvme-cli has them.
fn named_registers(command: Command, takes_value: bool) -> Command {
    let written = REGISTERS.into_iter().filter(|(name, _)| !takes_value || !READ_ONLY.contains(name));
    written.fold(command, |command, (name, offset)| {
        let argument = Arg::new(name).long(name).conflicts_with("offset").help(format!("That at {offset:#x}"));
        command.arg(if takes_value {
            argument.value_name("VALUE").value_parser(number::parse::<u64>)
        } else {
            argument.action(ArgAction::SetTrue)
        })
    })
}

/// Properties by name.
#[derive(Clone, Debug, Default)]
struct Named<const WRITES: bool>(Vec<(u32, u64)>);

impl<const WRITES: bool> FromArgMatches for Named<WRITES> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut named = Vec::new();
        for (name, offset) in REGISTERS {
            if WRITES {
                let value = matches.try_get_one::<u64>(name).ok().flatten();
                named.extend(value.map(|value| (offset, *value)));
            } else if matches.get_flag(name) {
                named.push((offset, 0));
            }
        }
        Ok(Self(named))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<const WRITES: bool> clap::Args for Named<WRITES> {
    fn augment_args(command: Command) -> Command {
        named_registers(command, WRITES)
    }

    fn augment_args_for_update(command: Command) -> Command {
        named_registers(command, WRITES)
    }
}

/// Reads properties by their names.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GetReg {
    #[command(flatten)]
    device: DeviceArgs,
    /// Offset, as for get-property
    #[arg(short = 'O', long, value_name = "OFFSET", value_parser = number::parse::<u32>)]
    offset: Option<u32>,
    /// Explain each bit, as -v
    #[arg(short = 'H', long)]
    human_readable: bool,
    #[command(flatten)]
    named: Named<false>,
}

impl GetReg {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let mut global = global.clone();
        global.verbose = global.verbose.max(u8::from(self.human_readable));
        on_device(&self.device, Needs::Admin, &global, |device| self.run_on(device))
    }

    fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<ReadRegistersView> {
        let named = self.named.0.iter().map(|(offset, _)| *offset);
        let offsets: Vec<u32> = self.offset.into_iter().chain(named).collect();
        if offsets.is_empty() {
            let advice = "give --offset or a name, such as --csts; `ebof show-regs` shows all";
            return Err(Failure::usage("which property is not said", advice).into());
        }
        let mut values = Vec::new();
        for offset in offsets {
            let value = command::property(device, offset, bytes_of(offset))?;
            values.push((offset, symbol(offset), value.ok_or_else(|| no_property(device, offset))?));
        }
        Ok(ReadRegistersView { values })
    }
}

fn symbol(offset: u32) -> &'static str {
    REGISTERS.iter().find(|(_, known)| *known == offset).map_or("unknown", |(name, _)| name)
}

/// Writes a property by its name.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SetReg {
    /// Offset, as for get-property
    #[arg(short = 'O', long, value_name = "OFFSET", value_parser = number::parse::<u32>, requires = "value")]
    offset: Option<u32>,
    /// The value of the property at --offset
    #[arg(short = 'V', long, value_name = "VALUE", value_parser = number::parse::<u64>, requires = "offset")]
    value: Option<u64>,
    /// As two halves of 32 bits: of registers in memory; a property is written at once
    #[arg(short = 'm', long)]
    mmio32: bool,
    #[command(flatten)]
    named: Named<true>,
}

impl SetReg {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<PropertyView> {
        let mut writes = self.named.0.clone();
        writes.extend(self.offset.zip(self.value));
        let [(offset, value)] = writes[..] else {
            let what =
                if writes.is_empty() { "no property is named" } else { "only one property is written at a time" };
            return Err(Failure::usage(what, "give --offset and --value, or a name, such as --cc 0x460001").into());
        };
        if self.mmio32 {
            let advice = "leave --mmio32 away";
            return Err(
                Failure::usage("a controller over a fabric has properties, no registers in memory", advice).into()
            );
        }
        command::admin(device, &set(offset, value)?, AdminData::None)?;
        Ok(PropertyView { verb: "set-reg", offset, value })
    }
}

/// The command that writes a property, with the property's size.
fn set(offset: u32, value: u64) -> Result<Sqe, Failure> {
    let low = value & 0xffff_ffff;
    let high = value >> 32;
    let half = |half: u64| u32::try_from(half).unwrap_or_default();
    let sqe = Property::set(offset, half(low));
    match bytes_of(offset) {
        8 => Ok(sqe.with_cdw(10, 1).with_cdw(13, half(high))),
        _ if high == 0 => Ok(sqe),
        _ => Err(Failure::usage(
            format!("--value {value:#x} has more than 32 bits"),
            "the property at that offset has 32",
        )),
    }
}

/// Size in bytes of the property at an offset (Base, Controller Properties).
fn bytes_of(offset: u32) -> u8 {
    // CAP, ASQ, ACQ, BPMBL and CMBMSC.
    if matches!(offset, 0x00 | 0x28 | 0x30 | 0x48 | 0x50) { 8 } else { 4 }
}

fn no_property(device: &dyn Device, offset: u32) -> anyhow::Error {
    let message = format!("{} has no property at offset {offset:#x}", device.name());
    let known: Vec<String> = PROPERTIES.iter().map(|(offset, name, ..)| format!("{offset:#x} ({name})")).collect();
    let advice = format!("`ebof show-regs {}` shows those it has, of {}", device.name(), known.join(", "));
    Failure::new("no-such-property", message, advice).into()
}

/// Resets the whole subsystem.
pub(crate) fn reset((): &(), device: &mut dyn Device) -> anyhow::Result<Done> {
    let cap = command::property(device, offset::CAP, 8)?.unwrap_or(0);
    if cap & CAP_NSSRS == 0 {
        let message = format!("{} has no NVM Subsystem Reset: CAP.NSSRS is 0. Nothing was sent", device.name());
        let advice =
            format!("`ebof reset {}` resets the controller; other hosts' controllers stay as they are", device.name());
        return Err(Failure::unsupported(message, advice).into());
    }
    command::admin(device, &Property::set(offset::NSSR, RESET_WORD), AdminData::None)?;
    Ok(Done::new("subsystem-reset", device.name(), "Success"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::output::View as _;
    use ebof_nvme::Status;

    #[test]
    fn a_subsystem_reset_is_not_sent_if_it_is_not_supported() {
        let mut fake = Fake::controller([FakeAnswer::ok()]);
        let error = reset(&(), &mut fake).err().unwrap().to_string();
        assert!(error.contains("CAP.NSSRS is 0") && error.contains("`ebof reset nvme0`"), "{error}");
        assert_eq!(fake.asked.len(), 1, "only CAP was read");
    }

    #[test]
    fn a_subsystem_reset_writes_nvme_into_nssr() {
        // The completion's dword 1 has bits 63:32 of CAP.
        let mut fake = Fake::controller([FakeAnswer::ok().with_dw1(1 << 4)]);
        assert_eq!(reset(&(), &mut fake).unwrap().text(false), "subsystem-reset: Success\n");
        let sqe = fake.last().sqe;
        assert_eq!((sqe.fctype(), sqe.cdw11.get(), sqe.cdw12.get()), (Some(0), 0x20, 0x4e56_4d65));
    }

    #[test]
    fn registers_are_read_and_written_by_name() {
        let verb: GetReg = crate::verbs::line::parse("x nvme0 --csts --cap");
        let mut fake = Fake::controller([FakeAnswer::ok().with_dw0(0xff).with_dw1(1), FakeAnswer::ok().with_dw0(1)]);
        let view = verb.run_on(&mut fake).unwrap();
        let json = view.json(false).to_text().unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["register: 0x1c"], serde_json::json!([{"name": "csts", "value": 1}]));
        assert_eq!(json["register: 0x00"], serde_json::json!([{"name": "cap", "value": 0x1_0000_00ff_u64}]));
        let verb: SetReg = crate::verbs::line::parse_on("x nvme0 --cc 0x460001");
        let mut fake = Fake::controller([]);
        verb.run_on(&mut fake).unwrap();
        assert_eq!((fake.last().sqe.cdw11.get(), fake.last().sqe.cdw12.get()), (0x14, 0x46_0001));
        let mut fake = Fake::controller([]);
        for line in ["x nvme0", "x nvme0 --cc 1 --csts 2", "x nvme0 -O 0x14 -V 1 -m"] {
            assert!(crate::verbs::line::parse_on::<SetReg>(line).run_on(&mut fake).is_err(), "{line}");
        }
        assert!(crate::verbs::line::parse::<GetReg>("x nvme0").run_on(&mut fake).is_err());
        assert!(fake.asked.is_empty());
        assert!(crate::verbs::line::try_parse_on::<SetReg>("x nvme0 --cap 1").is_err(), "it is read only");
        let mut absent = Fake::controller([FakeAnswer::status(Status::INVALID_FIELD.dnr())]);
        let error =
            crate::verbs::line::parse::<GetReg>("x nvme0 --pmrcap").run_on(&mut absent).err().unwrap().to_string();
        assert!(error.contains("no property at offset 0xe00"), "{error}");
    }

    #[test]
    fn a_property_is_written_in_its_size() {
        let sqe = set(0x14, 0x46_0001).unwrap();
        assert_eq!((sqe.cdw10.get(), sqe.cdw11.get(), sqe.cdw12.get(), sqe.cdw13.get()), (0, 0x14, 0x46_0001, 0));
        let sqe = set(0x28, 0x1_0000_0002).unwrap();
        assert_eq!((sqe.cdw10.get(), sqe.cdw12.get(), sqe.cdw13.get()), (1, 2, 1));
        assert!(set(0x14, 1 << 32).is_err());
    }

    #[test]
    fn an_unknown_property_is_reported_with_the_known_ones() {
        let verb: GetProperty = crate::verbs::line::parse("x nvme0 -O 0x20");
        let mut fake = Fake::controller([FakeAnswer::status(Status::INVALID_FIELD.dnr())]);
        let error = verb.run_on(&mut fake).err().unwrap().to_string();
        assert!(error.contains("no property at offset 0x20") && error.contains("0x14 (cc)"), "{error}");
        let view = verb.run_on(&mut Fake::controller([FakeAnswer::ok().with_dw0(0)])).unwrap();
        assert_eq!(view.text(false), "property: 0x20 (NVM Subsystem Reset), value: 0\n");
    }
}
