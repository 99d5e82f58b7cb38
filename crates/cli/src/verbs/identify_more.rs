//! `nvm-id-ctrl`, `nvm-id-ns`, `cmdset-ind-id-ns`, `id-ns-granularity`, `list-endgrp`: the smaller
//! Identify data structures.

use std::process::ExitCode;

use ebof_nvme::identify::Cns;

use super::Outcome;
use super::identify::Shown;
use super::number;
use crate::command::{self, Identify};
use crate::device::{DeviceArgs, Needs, namespace_of};
use crate::global::Global;
use crate::output::identify_more::{
    EnduranceGroupsView, GranularityView, IndependentView, NvmControllerView, NvmNamespaceView,
};
use crate::output::show;

/// A data structure about a controller.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OfController {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    shown: Shown,
}

impl OfController {
    /// What is specific to the NVM command set.
    pub(crate) fn nvm(self, global: &Global) -> Outcome {
        let mut device = self.device.open(Needs::Admin, global)?;
        let data = command::identify(&mut *device, Identify::new(Cns::IOCS_CONTROLLER))?;
        show(&self.shown.apply(global), &NvmControllerView { data })?;
        Ok(ExitCode::SUCCESS)
    }

    /// Granularities of namespaces.
    pub(crate) fn granularity(self, global: &Global) -> Outcome {
        let mut device = self.device.open(Needs::Admin, global)?;
        let data = command::identify(&mut *device, Identify::new(Cns::NAMESPACE_GRANULARITY_LIST))?;
        show(&self.shown.apply(global), &GranularityView { data })?;
        Ok(ExitCode::SUCCESS)
    }

    /// Endurance groups.
    pub(crate) fn endurance_groups(self, global: &Global) -> Outcome {
        let mut device = self.device.open(Needs::Admin, global)?;
        let data = command::identify(&mut *device, Identify::new(Cns::ENDURANCE_GROUP_LIST))?;
        show(&self.shown.apply(global), &EnduranceGroupsView { data })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A data structure about a namespace.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OfNamespace {
    #[command(flatten)]
    device: DeviceArgs,
    /// Which namespace, where DEVICE does not say
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
    #[command(flatten)]
    shown: Shown,
}

impl OfNamespace {
    /// What is specific to the NVM command set.
    pub(crate) fn nvm(self, global: &Global) -> Outcome {
        let mut device = self.device.open(Needs::Admin, global)?;
        let nsid = namespace_of(&*device, self.namespace_id)?;
        let namespace = command::identify_namespace(&mut *device, nsid)?;
        let data = command::identify(&mut *device, Identify::of(Cns::IOCS_NAMESPACE, nsid))?;
        let formats = namespace.lba_formats().len();
        let in_use = namespace.format_index();
        show(&self.shown.apply(global), &NvmNamespaceView { nsid, data, formats, in_use })?;
        Ok(ExitCode::SUCCESS)
    }

    /// What is independent of I/O command sets.
    pub(crate) fn independent(self, global: &Global) -> Outcome {
        let mut device = self.device.open(Needs::Admin, global)?;
        let nsid = namespace_of(&*device, self.namespace_id)?;
        let data = command::identify(&mut *device, Identify::of(Cns::INDEPENDENT_NAMESPACE, nsid))?;
        show(&self.shown.apply(global), &IndependentView { nsid, data })?;
        Ok(ExitCode::SUCCESS)
    }
}
