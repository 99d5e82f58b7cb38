//! `nvm-id-ctrl`, `nvm-id-ns`, `cmdset-ind-id-ns`, `id-ns-granularity`, `list-endgrp`, `id-iocs`,
//! `id-uuid`: the smaller Identify data structures.

use ebof_nvme::identify::Cns;
use zerocopy::{FromBytes, IntoBytes};

use super::Outcome;
use super::number;
use super::on_device::{NamespaceArgs, Shown, on_device};
use crate::command;
use crate::device::query::Identify;
use crate::device::{DeviceArgs, Needs};
use crate::global::Global;
use crate::output::View;
use crate::output::command_sets::{command_sets_view, uuids_view};
use crate::output::identify_more::{
    endurance_groups_view, granularity_view, independent_view, nvm_controller_view, nvm_namespace_view,
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
    fn identify<T: FromBytes + IntoBytes, V: View>(&self, global: &Global, cns: Cns, view: fn(Box<T>) -> V) -> Outcome {
        on_device(&self.device, Needs::Admin, &self.shown.apply(global), |device| {
            Ok(view(command::identify(device, Identify::new(cns))?))
        })
    }

    /// Data specific to the NVM command set.
    pub(crate) fn nvm(self, global: &Global) -> Outcome {
        self.identify(global, Cns::IOCS_CONTROLLER, nvm_controller_view)
    }

    /// Granularities of namespaces.
    pub(crate) fn granularity(self, global: &Global) -> Outcome {
        self.identify(global, Cns::NAMESPACE_GRANULARITY_LIST, granularity_view)
    }

    /// UUIDs of vendor specific information.
    pub(crate) fn uuids(self, global: &Global) -> Outcome {
        self.identify(global, Cns::UUID_LIST, uuids_view)
    }

    /// Endurance groups.
    pub(crate) fn endurance_groups(self, global: &Global) -> Outcome {
        self.identify(global, Cns::ENDURANCE_GROUP_LIST, endurance_groups_view)
    }
}

/// The combinations of I/O command sets.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct IdIocs {
    #[command(flatten)]
    device: DeviceArgs,
    /// The controller that is asked about [default: the one that answers]
    #[arg(short, long, value_name = "CNTLID", value_parser = number::parse::<u16>, default_value = "0xffff")]
    controller_id: u16,
    #[command(flatten)]
    shown: Shown,
}

impl IdIocs {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        on_device(&self.device, Needs::Admin, &self.shown.apply(global), |device| {
            let what = Identify { cntid: self.controller_id, ..Identify::new(Cns::IO_COMMAND_SETS) };
            Ok(command_sets_view(command::identify(device, what)?))
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
            Ok(nvm_namespace_view(nsid, data, formats, in_use))
        })
    }

    /// Data independent of I/O command sets.
    pub(crate) fn independent(self, global: &Global) -> Outcome {
        self.namespace.on_namespace(Needs::Admin, &self.shown.apply(global), |device, nsid| {
            let data = command::identify(device, Identify::of(Cns::INDEPENDENT_NAMESPACE, nsid))?;
            Ok(independent_view(nsid, data))
        })
    }
}
