//! `primary-ctrl-caps`, `list-secondary`, `virt-mgmt`: functions of a drive and their resources.

use ebof_initiator::AdminData;
use ebof_nvme::identify::Cns;
use ebof_nvme::virtualization::{
    PrimaryCapabilities, ResourceType, SecondaryControllerList, VirtualizationAction, VirtualizationManagement,
};
use ebof_nvme::{ControllerId, Nsid};

use super::number;
use crate::command;
use crate::device::Device;
use crate::device::query::Identify;
use crate::output::done::Done;
use crate::output::functions::{primary_view, secondary_view, virtualized_view};
use crate::output::structure::StructureView;

/// Primary controller capabilities.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PrimaryCtrlCaps {
    /// The controller
    #[arg(short, long, value_name = "CNTLID", value_parser = number::parse::<u16>, default_value = "0")]
    cntlid: u16,
}

impl PrimaryCtrlCaps {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<StructureView<PrimaryCapabilities>> {
        let what = Identify::new(Cns::PRIMARY_CONTROLLER_CAPABILITIES);
        Ok(primary_view(command::identify(device, Identify { cntid: self.cntlid, ..what })?))
    }
}

/// Secondary controllers.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ListSecondary {
    /// The first controller to list
    #[arg(short, long, value_name = "CNTLID", value_parser = number::parse::<u16>, default_value = "0")]
    #[arg(visible_alias = "cntlid")]
    cntid: u16,
    /// Entries to show at most
    #[arg(short = 'e', long, value_name = "N", value_parser = number::parse::<u8>, default_value = "127")]
    num_entries: u8,
    /// The NSID of the command, which controllers ignore
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>, default_value = "0")]
    namespace_id: u32,
}

impl ListSecondary {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<StructureView<SecondaryControllerList>> {
        let what = Identify::for_namespace(Cns::SECONDARY_CONTROLLER_LIST, Nsid(self.namespace_id));
        let data = command::identify(device, Identify { cntid: self.cntid, ..what })?;
        Ok(secondary_view(data, self.num_entries.into()))
    }
}

/// Resources and states.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct VirtMgmt {
    /// The controller: 0 is the primary, a secondary one has the number of its function
    #[arg(short, long, value_name = "CNTLID", value_parser = number::parse::<u16>, default_value = "0")]
    cntlid: u16,
    /// The type of resource: 0 queues (VQ), 1 interrupts (VI)
    #[arg(short, long, value_name = "TYPE", value_parser = resource, default_value = "0")]
    rt: ResourceType,
    /// 1: flexible resources of the primary from its next reset on; 7: take a secondary offline; 8:
    /// assign resources to one that is offline; 9: take it online
    #[arg(short, long, value_name = "ACTION", value_parser = action, default_value = "0")]
    act: VirtualizationAction,
    /// The number of resources
    #[arg(short = 'n', long, value_name = "N", value_parser = number::parse::<u16>, default_value = "0")]
    nr: u16,
}

impl VirtMgmt {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<Done> {
        let cntlid = ControllerId(self.cntlid);
        let command = VirtualizationManagement { cntlid, resource: self.rt, action: self.act, count: self.nr };
        let cqe = command::admin(device, &command.encode(), AdminData::None)?;
        let [low, high, ..] = cqe.dw0.to_bytes();
        Ok(virtualized_view(device.name(), u16::from_le_bytes([low, high])))
    }
}

/// A type of resource, three bits.
fn resource(text: &str) -> Result<ResourceType, String> {
    field(text, 7).map(ResourceType::decode)
}

/// An action, four bits.
fn action(text: &str) -> Result<VirtualizationAction, String> {
    field(text, 15).map(VirtualizationAction::decode)
}

fn field(text: &str, most: u8) -> Result<u8, String> {
    let number = number::parse::<u8>(text)?;
    if number <= most { Ok(number) } else { Err(format!("the field of the command has at most {most}")) }
}

#[cfg(test)]
mod tests {
    use ebof_nvme::Status;
    use ebof_nvme::virtualization::SecondaryController;
    use zerocopy::IntoBytes as _;

    use super::*;
    use crate::device::fake::{Fake, FakeAnswer};
    use crate::output::View as _;
    use crate::verbs::line::{parse_on as parse, try_parse_on as try_parse};

    #[test]
    fn virtualization_management_is_sent_as_by_nvme_cli() {
        let verb: VirtMgmt = parse("x nvme0 -c 3 -r 1 -a 8 -n 0x109");
        let mut fake = Fake::controller([FakeAnswer::ok().with_dw0(0x109)]);
        let text = verb.run_on(&mut fake).unwrap().text(false);
        assert_eq!(text, "success, Number of Controller Resources Modified (NRM):0x109\n");
        let asked = fake.last().sqe;
        assert_eq!((asked.opcode, asked.cdw10.get(), asked.cdw11.get()), (0x1c, 0x0003_0108, 0x109));
        // What does not fit into the field is not cut off.
        for wrong in ["x nvme0 -a 17", "x nvme0 -r 8", "x nvme0 -n 65536"] {
            assert!(try_parse::<VirtMgmt>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_refusal_says_what_to_look_at() {
        for (status, advice) in [
            (Status::INVALID_CONTROLLER_ID, "ebof list-secondary nvme0"),
            (Status::INVALID_SECONDARY_STATE, "offline (-a 7)"),
            (Status::INVALID_CONTROLLER_RESOURCES, "vqfrsm"),
            (Status::INVALID_RESOURCE_ID, "vqrfap"),
            (Status::OPERATION_DENIED, "may not manage nvme0"),
        ] {
            let verb: VirtMgmt = parse("x nvme0 -c 1 -a 9");
            let error = verb.run_on(&mut Fake::controller([FakeAnswer::status(status)])).err().unwrap().to_string();
            assert!(error.contains(advice), "{error}");
        }
    }

    #[test]
    fn a_list_begins_at_a_controller_and_has_a_length() {
        let entry = |scid: u16| SecondaryController { scid: scid.into(), ..SecondaryController::default() };
        let list = SecondaryControllerList::new((2..=5).map(entry));
        let verb: ListSecondary = parse("x nvme0 --cntlid 2 -e 1");
        let mut fake = Fake::controller([FakeAnswer::data(list.as_bytes())]);
        let text = verb.run_on(&mut fake).unwrap().text(false);
        assert!(text.contains("Identifiers           : 4\n") && text.matches("SCEntry").count() == 1, "{text}");
        assert_eq!(fake.last().sqe.cdw10.get(), 0x0002_0015);
    }
}
