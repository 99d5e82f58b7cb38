//! `get-property`, `set-property`, `subsystem-reset`: the properties of a controller over a fabric,
//! by their offsets.

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
use crate::output::registers::{PROPERTIES, PropertyView};

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
        on_device(&self.device, Needs::Admin, &global, |device| self.on(device))
    }

    fn on(&self, device: &mut dyn Device) -> anyhow::Result<PropertyView> {
        let value = command::property(device, self.offset, bytes_of(self.offset))?;
        let value = value.ok_or_else(|| no_property(device, self.offset))?;
        Ok(PropertyView { verb: "get-property", offset: self.offset, value })
    }
}

/// Writes a property.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SetProperty {
    #[command(flatten)]
    device: DeviceArgs,
    /// Offset, as for get-property
    #[arg(short = 'O', long, value_name = "OFFSET", value_parser = number::parse::<u32>)]
    offset: u32,
    /// The value
    #[arg(short = 'V', long, value_name = "VALUE", value_parser = number::parse::<u64>)]
    value: u64,
}

impl SetProperty {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        on_device(&self.device, Needs::Admin, global, |device| self.on(device))
    }

    fn on(&self, device: &mut dyn Device) -> anyhow::Result<PropertyView> {
        command::admin(device, &set(self.offset, self.value)?, AdminData::None)?;
        Ok(PropertyView { verb: "set-property", offset: self.offset, value: self.value })
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
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct SubsystemReset {
    #[command(flatten)]
    device: DeviceArgs,
}

impl SubsystemReset {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        on_device(&self.device, Needs::Admin, global, |device| reset(device))
    }
}

fn reset(device: &mut dyn Device) -> anyhow::Result<Done> {
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
    use crate::device::fake::{Answer, Fake};
    use crate::output::View as _;
    use ebof_nvme::Status;

    #[test]
    fn a_subsystem_reset_is_not_sent_if_it_is_not_supported() {
        let mut fake = Fake::controller([Answer::ok()]);
        let error = reset(&mut fake).err().unwrap().to_string();
        assert!(error.contains("CAP.NSSRS is 0") && error.contains("`ebof reset nvme0`"), "{error}");
        assert_eq!(fake.asked.len(), 1, "only CAP was read");
    }

    #[test]
    fn a_subsystem_reset_writes_nvme_into_nssr() {
        // The completion's dword 1 has bits 63:32 of CAP.
        let mut fake = Fake::controller([Answer::ok().with_dw1(1 << 4)]);
        assert_eq!(reset(&mut fake).unwrap().text(false), "subsystem-reset: Success\n");
        let sqe = fake.last().sqe;
        assert_eq!((sqe.fctype(), sqe.cdw11.get(), sqe.cdw12.get()), (Some(0), 0x20, 0x4e56_4d65));
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
        let mut fake = Fake::controller([Answer::status(Status::INVALID_FIELD.dnr())]);
        let error = verb.on(&mut fake).err().unwrap().to_string();
        assert!(error.contains("no property at offset 0x20") && error.contains("0x14 (cc)"), "{error}");
        let view = verb.on(&mut Fake::controller([Answer::ok().with_dw0(0)])).unwrap();
        assert_eq!(view.text(false), "property: 0x20 (NVM Subsystem Reset), value: 0\n");
    }
}
