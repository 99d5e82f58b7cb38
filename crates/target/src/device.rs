//! The block devices behind the namespaces, by the identifier that the model uses.

use std::sync::Arc;

use ebof_backend::Device;
use ebof_fabrics::DeviceId;

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
