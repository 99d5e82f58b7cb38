//! `ocp smart-add-log`: the health of a drive of the Open Compute Project (Datacenter NVMe SSD
//! Specification, SMART / Health Information Extended log).

use ebof_nvme::identify::Cns;
use ebof_nvme::log::{GetLogPage, Lid};
use ebof_nvme::{Nsid, Status};

use super::Outcome;
use super::on_device::{Shown, on_device};
use crate::command;
use crate::device::query::Identify;
use crate::device::{Device, DeviceArgs, Needs};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::command_sets::UuidList;
use crate::output::ocp::{OcpSmart, ocp_smart_view};
use crate::output::structure::StructureView;

/// The log page, a vendor specific one, so that only its GUID tells what it is.
const LID: Lid = Lid(0xc0);
/// The GUID as the page has it.
const GUID: [u8; 16] = [0xc5, 0xaf, 0x10, 0x28, 0xea, 0xbf, 0xf2, 0xa4, 0x9c, 0x4f, 0x6f, 0x7c, 0xc9, 0x14, 0xd5, 0xaf];
/// The UUID under which controllers with several vendor specific definitions have it.
const UUID: [u8; 16] = [0xc1, 0x94, 0xd5, 0x5b, 0xe0, 0x94, 0x47, 0x94, 0xa2, 0x1d, 0x29, 0x99, 0x8f, 0x56, 0xbe, 0x6f];

/// Log pages of the Open Compute Project.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Ocp {
    #[command(subcommand)]
    page: Page,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Page {
    /// Show the extended SMART / Health Information log
    SmartAddLog(SmartAddLog),
}

/// SMART / Health Information Extended.
#[derive(Clone, Debug, clap::Args)]
struct SmartAddLog {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    shown: Shown,
}

impl Ocp {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        let Page::SmartAddLog(log) = self.page;
        on_device(&log.device, Needs::Admin, &log.shown.apply(global), smart)
    }
}

fn smart(device: &mut dyn Device) -> anyhow::Result<StructureView<OcpSmart>> {
    let uuid_index = uuid_index(device);
    let mut data: Box<OcpSmart> = Box::new([0; 512]);
    let page = GetLogPage { uuid_index, ..GetLogPage::new(LID, 512) };
    let read = device.admin(&page.encode(Nsid::ALL), ebof_initiator::AdminData::ToHost(&mut *data))?;
    let status = read.status();
    if !status.is_success() && !status.is(Status::INVALID_LOG_PAGE) && !status.is(Status::INVALID_FIELD) {
        return Err(Failure::refused("Get Log Page", status, None).into());
    }
    if !status.is_success() || data[496..] != GUID {
        let name = device.name();
        let advice = format!("`ebof smart-log {name}` and `ebof endurance-log {name}` show what every drive has");
        let why = if status.is_success() { "is another vendor's" } else { "does not exist" };
        let message = format!("{name} is no drive of the Open Compute Project: its log page C0h {why}");
        return Err(Failure::unsupported(message, advice).into());
    }
    Ok(ocp_smart_view(device.name(), data))
}

/// The index of the project's UUID in the controller's list; 0 without one.
fn uuid_index(device: &mut dyn Device) -> u8 {
    let list = command::identify::<UuidList>(device, Identify::new(Cns::UUID_LIST));
    let position = list.ok().and_then(|list| list.iter().position(|entry| entry.uuid == UUID));
    position.and_then(|position| u8::try_from(position + 1).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::output::View as _;

    fn page() -> [u8; 512] {
        let mut page = [0; 512];
        page[0] = 5;
        page[32] = 3;
        page[120] = 97;
        page[494] = 3;
        page[496..].copy_from_slice(&GUID);
        page
    }

    #[test]
    fn a_page_with_the_guid_is_shown() {
        let mut list = [0; 4096];
        list[32 + 16..64].copy_from_slice(&[9; 16]);
        list[64 + 16..96].copy_from_slice(&UUID);
        let mut fake = Fake::controller([FakeAnswer::data(&list), FakeAnswer::data(&page())]);
        let view = smart(&mut fake).unwrap();
        assert_eq!(fake.last().sqe.cdw14.get() & 0x7f, 2, "the UUID's index");
        let json: serde_json::Value = serde_json::from_str(&view.json(false).to_text().unwrap()).unwrap();
        assert_eq!(json["Physical media units written"], serde_json::json!({"hi": 0, "lo": 5}));
        assert_eq!((&json["Bad user nand blocks - Raw"], &json["Percent free blocks"]), (&3.into(), &97.into()));
        assert_eq!(json["Log page GUID"], "0xafd514c97c6f4f9ca4f2bfea2810afc5");
        assert!(view.text(false).contains("Percent free blocks"), "{}", view.text(false));
    }

    #[test]
    fn other_drives_are_told_from_them() {
        let none = || FakeAnswer::status(Status::INVALID_FIELD.dnr());
        let mut other = page();
        other[500] = 0;
        for answer in [FakeAnswer::status(Status::INVALID_LOG_PAGE.dnr()), FakeAnswer::data(&other)] {
            let error = smart(&mut Fake::controller([none(), answer])).err().unwrap().to_string();
            assert!(error.contains("no drive of the Open Compute Project"), "{error}");
        }
    }
}
