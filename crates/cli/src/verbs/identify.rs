//! `id-ctrl`, `id-ns`, `list-ns`, `list-ctrl`, `ns-descs`: Identify data of a controller and its
//! namespaces.

use ebof_nvme::Nsid;
use ebof_nvme::identify::{Cns, ControllerList, NamespaceList};

use super::Outcome;
use super::number;
use super::on_device::{NamespaceOption, Shown, on_device};
use crate::command;
use crate::device::query::Identify;
use crate::device::{Device, DeviceArgs, Needs, namespace_of};
use crate::global::Global;
use crate::output::controller::controller_view;
use crate::output::lists::{controller_list_view, namespace_list_view};
use crate::output::namespace::{DescriptorsView, namespace_view};
use crate::output::structure::StructureView;

/// Identify Controller.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct IdCtrl {
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    shown: Shown,
    /// Also show the vendor specific area
    #[arg(short = 'V', long)]
    vendor_specific: bool,
}

impl IdCtrl {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        on_device(&self.device, Needs::Admin, &self.shown.apply(global), |device| {
            let data = command::identify_controller(device)?;
            Ok(controller_view(data, self.vendor_specific))
        })
    }
}

/// Identify Namespace.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct IdNs {
    #[command(flatten)]
    device: DeviceArgs,
    /// The namespace, if DEVICE does not name one; 0xffffffff shows what all have in common
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
    #[command(flatten)]
    shown: Shown,
    /// Also show the vendor specific area
    #[arg(short = 'V', long)]
    vendor_specific: bool,
    /// Include namespaces that are not attached (CNS 11h)
    #[arg(short, long)]
    force: bool,
}

impl IdNs {
    pub(crate) fn run(self, global: &Global) -> Outcome {
        on_device(&self.device, Needs::Admin, &self.shown.apply(global), |device| {
            let nsid = namespace_of(&*device, self.namespace_id)?;
            let data = if self.force {
                command::identify(device, Identify::for_namespace(Cns::ALLOCATED_NAMESPACE, nsid))?
            } else if nsid == Nsid::ALL {
                // The common properties of all namespaces have size 0.
                command::identify(device, Identify::for_namespace(Cns::NAMESPACE, nsid))?
            } else {
                command::identify_namespace(device, nsid)?
            };
            Ok(namespace_view(nsid, data, self.vendor_specific))
        })
    }
}

/// Active namespaces.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ListNs {
    /// The first namespace to list
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>, default_value = "1")]
    namespace_id: u32,
    /// Only those of an I/O command set
    #[arg(short = 'y', long, value_name = "CSI", value_parser = number::parse::<u8>)]
    csi: Option<u8>,
    /// Include namespaces that are not attached
    #[arg(short, long)]
    all: bool,
}

impl ListNs {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<StructureView<NamespaceList>> {
        let cns = match (self.csi, self.all) {
            (None, false) => Cns::ACTIVE_NAMESPACE_LIST,
            (None, true) => Cns::ALLOCATED_NAMESPACE_LIST,
            (Some(_), false) => Cns::IOCS_ACTIVE_NAMESPACE_LIST,
            (Some(_), true) => Cns::IOCS_ALLOCATED_NAMESPACE_LIST,
        };
        // The command lists what is above its NSID.
        let after = Nsid(self.namespace_id.saturating_sub(1));
        let what = Identify { csi: self.csi.unwrap_or_default(), ..Identify::for_namespace(cns, after) };
        Ok(namespace_list_view(command::identify(device, what)?))
    }
}

/// Controllers.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ListCtrl {
    /// The first controller to list
    #[arg(short, long, value_name = "CNTLID", value_parser = number::parse::<u16>, default_value = "0")]
    cntid: u16,
    /// Only those that the namespace is attached to
    #[arg(short, long, value_name = "NSID", value_parser = number::parse::<u32>)]
    namespace_id: Option<u32>,
}

impl ListCtrl {
    pub(crate) fn run_on(&self, device: &mut dyn Device) -> anyhow::Result<StructureView<ControllerList>> {
        let what = match self.namespace_id {
            Some(nsid) => Identify::for_namespace(Cns::NAMESPACE_CONTROLLER_LIST, Nsid(nsid)),
            None => Identify::new(Cns::CONTROLLER_LIST),
        };
        Ok(controller_list_view(command::identify(device, Identify { cntid: self.cntid, ..what })?))
    }
}

/// Namespace identification descriptors.
pub(crate) fn ns_descs(namespace: &NamespaceOption, device: &mut dyn Device) -> anyhow::Result<DescriptorsView> {
    let nsid = namespace.nsid(device)?;
    let data = command::identify(device, Identify::for_namespace(Cns::NAMESPACE_ID_DESCRIPTORS, nsid))?;
    Ok(DescriptorsView { nsid, data })
}
