//! The block devices behind the namespaces, by the identifier that the model uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use ebof_backend::Device;
use ebof_fabrics::DeviceId;

/// Names for devices, each given out once; whoever has a clone gives out of the same.
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
