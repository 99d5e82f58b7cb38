//! `nvm-id-ctrl`, `nvm-id-ns`, `cmdset-ind-id-ns`, `id-ns-granularity`, `list-endgrp`: the smaller
//! Identify data structures.

use ebof_nvme::identify::Cns;

use super::Outcome;
use super::on_device::{NamespaceArgs, Shown, on_device};
use crate::command::{self, Identify};
use crate::device::{DeviceArgs, Needs};
use crate::global::Global;
use crate::output::identify_more::{
    EnduranceGroupsView, GranularityView, IndependentView, NvmControllerView, NvmNamespaceView,
};

/// A data structure about a controller.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OfController {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    shown: Shown,
}

impl OfController {
    /// Data specific to the NVM command set.
    pub(crate) fn nvm(self, global: &Global) -> Outcome {
        on_device(&self.device, Needs::Admin, &self.shown.apply(global), |device| {
            let data = command::identify(device, Identify::new(Cns::IOCS_CONTROLLER))?;
            Ok(NvmControllerView { data })
        })
    }

    /// Granularities of namespaces.
    pub(crate) fn granularity(self, global: &Global) -> Outcome {
        on_device(&self.device, Needs::Admin, &self.shown.apply(global), |device| {
            let data = command::identify(device, Identify::new(Cns::NAMESPACE_GRANULARITY_LIST))?;
            Ok(GranularityView { data })
        })
    }

    /// Endurance groups.
    pub(crate) fn endurance_groups(self, global: &Global) -> Outcome {
        on_device(&self.device, Needs::Admin, &self.shown.apply(global), |device| {
            let data = command::identify(device, Identify::new(Cns::ENDURANCE_GROUP_LIST))?;
            Ok(EnduranceGroupsView { data })
        })
    }
}

/// A data structure about a namespace.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct OfNamespace {
    #[command(flatten)]
    namespace: NamespaceArgs,
    #[command(flatten)]
    shown: Shown,
}

impl OfNamespace {
    /// Data specific to the NVM command set.
    pub(crate) fn nvm(self, global: &Global) -> Outcome {
        self.namespace.on_namespace(Needs::Admin, &self.shown.apply(global), |device, nsid| {
            let namespace = command::identify_namespace(device, nsid)?;
            let data = command::identify(device, Identify::of(Cns::IOCS_NAMESPACE, nsid))?;
            let formats = namespace.lba_formats().len();
            let in_use = namespace.format_index();
            Ok(NvmNamespaceView { nsid, data, formats, in_use })
        })
    }

    /// Data independent of I/O command sets.
    pub(crate) fn independent(self, global: &Global) -> Outcome {
        self.namespace.on_namespace(Needs::Admin, &self.shown.apply(global), |device, nsid| {
            let data = command::identify(device, Identify::of(Cns::INDEPENDENT_NAMESPACE, nsid))?;
            Ok(IndependentView { nsid, data })
        })
    }
}
