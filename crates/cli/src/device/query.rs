//! What explanations of a refused command ask the device: an answer, or none. Commands of verbs,
//! whose failure is explained itself, are in `command`.

use ebof_initiator::AdminData;
use ebof_nvme::connect::Property;
use ebof_nvme::identify::{Cns, IdentifyController, IdentifyNamespace};
use ebof_nvme::opcode::admin as opcode;
use ebof_nvme::property::{Cap, offset};
use ebof_nvme::{Nsid, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use super::Device;

/// The arguments of Identify.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identify {
    /// The data structure.
    pub(crate) cns: Cns,
    /// The namespace, or the start of a list.
    pub(crate) nsid: Nsid,
    /// The controller, or the start of a list.
    pub(crate) cntid: u16,
    /// The I/O command set.
    pub(crate) csi: u8,
}

impl Identify {
    /// A data structure of the controller.
    pub(crate) const fn new(cns: Cns) -> Self {
        Self { cns, nsid: Nsid::NONE, cntid: 0, csi: 0 }
    }

    /// A data structure of a namespace.
    pub(crate) const fn for_namespace(cns: Cns, nsid: Nsid) -> Self {
        Self { cns, nsid, cntid: 0, csi: 0 }
    }

    /// The command.
    pub(crate) fn encode(self) -> Sqe {
        Sqe::new(opcode::IDENTIFY)
            .with_nsid(self.nsid)
            .with_cdw(10, u32::from(self.cns.0) | u32::from(self.cntid) << 16)
            .with_cdw(11, u32::from(self.csi) << 24)
    }
}

/// An Identify data structure.
pub(crate) fn identify<T: FromBytes + IntoBytes>(device: &mut dyn Device, what: Identify) -> Option<Box<T>> {
    let mut data = Box::new(T::new_zeroed());
    let cqe = device.admin(&what.encode(), AdminData::ToHost(data.as_mut_bytes())).ok()?;
    cqe.status().is_success().then_some(data)
}

/// Identify Controller.
pub(crate) fn controller(device: &mut dyn Device) -> Option<Box<IdentifyController>> {
    identify(device, Identify::new(Cns::CONTROLLER))
}

/// Identify Namespace of an active namespace.
pub(crate) fn namespace(device: &mut dyn Device, nsid: Nsid) -> Option<Box<IdentifyNamespace>> {
    let data: Box<IdentifyNamespace> = identify(device, Identify::for_namespace(Cns::NAMESPACE, nsid))?;
    (data.nsze.get() > 0).then_some(data)
}

/// The smallest memory page, in bytes, which is the unit of limits; of a controller without
/// Capabilities the smallest that there is.
pub(crate) fn page_min_bytes(device: &mut dyn Device) -> Option<u64> {
    let cqe = device.admin(&Property::get(offset::CAP, 8), AdminData::None).ok()?;
    if cqe.status().is(Status::INVALID_FIELD) {
        return Some(4096);
    }
    cqe.status().is_success().then(|| Cap(cqe.result()).page_min_bytes())
}

/// The maximum transfer size of a command in bytes, if the controller has a limit.
pub(crate) fn max_transfer_bytes(device: &mut dyn Device) -> Option<u64> {
    let page_bytes = page_min_bytes(device)?;
    controller(device)?.max_transfer_bytes(page_bytes)
}
