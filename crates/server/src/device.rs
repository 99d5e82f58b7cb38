//! The block devices behind the namespaces, by the identifier that the model uses, and what their
//! errors are to hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use ebof_backend::{Class, Device};
use ebof_fabrics::DeviceId;
use ebof_nvme::Status;

use crate::stats::Kind;

/// Identifiers for devices, each given out once. Clones share the counter.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceIds(Arc<AtomicU32>);

impl DeviceIds {
    pub(crate) fn next(&self) -> DeviceId {
        DeviceId(self.0.fetch_add(1, Relaxed) + 1)
    }
}

/// Every device that is served; replaced as a whole when namespaces come and go.
#[derive(Debug, Default)]
pub(crate) struct DeviceTable {
    /// By identifier: they are given out in order and never again, so the table stays small.
    devices: Vec<Option<Arc<dyn Device>>>,
}

impl DeviceTable {
    pub(crate) fn new(devices: impl IntoIterator<Item = (DeviceId, Arc<dyn Device>)>) -> Self {
        let mut table = Vec::new();
        for (id, device) in devices {
            let at = id.0 as usize;
            if table.len() <= at {
                table.resize(at + 1, None);
            }
            table[at] = Some(device);
        }
        Self { devices: table }
    }

    pub(crate) fn device(&self, id: DeviceId) -> Option<&Arc<dyn Device>> {
        self.devices.get(id.0 as usize)?.as_ref()
    }
}

/// What a device's error is to the host.
pub(crate) fn status_of(error: &ebof_backend::Error, kind: Kind) -> Status {
    match error.class() {
        Class::OutOfSpace => Status::CAPACITY_EXCEEDED.dnr(),
        Class::ReadOnly => Status::NAMESPACE_WRITE_PROTECTED.dnr(),
        Class::OutOfRange => Status::LBA_OUT_OF_RANGE.dnr(),
        Class::MediumRead => Status::UNRECOVERED_READ_ERROR,
        Class::MediumWrite => Status::WRITE_FAULT,
        Class::Busy => Status::COMMAND_INTERRUPTED,
        Class::Aborted => Status::ABORT_REQUESTED,
        Class::Unsupported => Status::INVALID_FIELD.dnr(),
        Class::Gone if kind == Kind::Read => Status::UNRECOVERED_READ_ERROR,
        Class::Gone => Status::WRITE_FAULT,
        Class::Invalid | Class::Internal => Status::INTERNAL_ERROR,
    }
}
