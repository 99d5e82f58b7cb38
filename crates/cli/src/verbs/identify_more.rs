//! `nvm-id-ctrl`, `nvm-id-ns`, `cmdset-ind-id-ns`, `id-ns-granularity`, `list-endgrp`, `id-iocs`,
//! `id-uuid`: the smaller Identify data structures.

use ebof_nvme::identify::{
    Cns, EnduranceGroupList, IndependentNamespace, IoCommandSets, NamespaceGranularityList, NvmController, NvmNamespace,
};

use super::number;
use super::on_device::NamespaceOption;
use crate::command;
use crate::device::Device;
use crate::device::query::Identify;
use crate::output::command_sets::{UuidList, command_sets_view, uuids_view};
use crate::output::identify_more::{
    endurance_groups_view, granularity_view, independent_view, nvm_controller_view, nvm_namespace_view,
};
use crate::output::structure::StructureView;

/// Data of a controller that are specific to the NVM command set.
pub(crate) fn nvm_controller((): &(), device: &mut dyn Device) -> anyhow::Result<StructureView<NvmController>> {
    Ok(nvm_controller_view(command::identify(device, Identify::new(Cns::IOCS_CONTROLLER))?))
}

/// Granularities of namespaces.
pub(crate) fn granularity((): &(), device: &mut dyn Device) -> anyhow::Result<StructureView<NamespaceGranularityList>> {
    Ok(granularity_view(command::identify(device, Identify::new(Cns::NAMESPACE_GRANULARITY_LIST))?))
}

/// UUIDs of vendor specific information.
pub(crate) fn uuids((): &(), device: &mut dyn Device) -> anyhow::Result<StructureView<UuidList>> {
    Ok(uuids_view(command::identify(device, Identify::new(Cns::UUID_LIST))?))
}

/// Endurance groups.
pub(crate) fn endurance_groups((): &(), device: &mut dyn Device) -> anyhow::Result<StructureView<EnduranceGroupList>> {
    Ok(endurance_groups_view(command::identify(device, Identify::new(Cns::ENDURANCE_GROUP_LIST))?))
}

/// The combinations of I/O command sets.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct IdIocs {
    /// The controller that is asked about [default: the one that answers]
    #[arg(short, long, value_name = "CNTLID", value_parser = number::parse::<u16>, default_value = "0xffff")]
    controller_id: u16,
}

impl IdIocs {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<StructureView<IoCommandSets>> {
        let what = Identify { cntid: self.controller_id, ..Identify::new(Cns::IO_COMMAND_SETS) };
        Ok(command_sets_view(command::identify(device, what)?))
    }
}

/// Data of a namespace that are specific to the NVM command set.
pub(crate) fn nvm_namespace(
    namespace: &NamespaceOption,
    device: &mut dyn Device,
) -> anyhow::Result<StructureView<NvmNamespace>> {
    let nsid = namespace.nsid(device)?;
    let namespace = command::identify_namespace(device, nsid)?;
    let data = command::identify(device, Identify::for_namespace(Cns::IOCS_NAMESPACE, nsid))?;
    let formats = namespace.lba_formats().len();
    let in_use = namespace.format_index();
    Ok(nvm_namespace_view(nsid, data, formats, in_use))
}

/// Data of a namespace that are independent of I/O command sets.
pub(crate) fn independent(
    namespace: &NamespaceOption,
    device: &mut dyn Device,
) -> anyhow::Result<StructureView<IndependentNamespace>> {
    let nsid = namespace.nsid(device)?;
    let data = command::identify(device, Identify::for_namespace(Cns::INDEPENDENT_NAMESPACE, nsid))?;
    Ok(independent_view(nsid, data))
}
