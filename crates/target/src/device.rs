//! The block devices behind the namespaces, by the identifier that the model uses.

use std::collections::HashMap;
use std::sync::Arc;

use ebof_backend::Device;
use ebof_fabrics::DeviceId;

/// Every device that is served; replaced as a whole when namespaces come and go.
#[derive(Debug, Default)]
pub(crate) struct DeviceTable {
    devices: HashMap<DeviceId, Arc<dyn Device>>,
}

impl DeviceTable {
    pub(crate) fn new(devices: impl IntoIterator<Item = (DeviceId, Arc<dyn Device>)>) -> Self {
        Self { devices: devices.into_iter().collect() }
    }

    pub(crate) fn device(&self, id: DeviceId) -> Option<&Arc<dyn Device>> {
        self.devices.get(&id)
    }
}
