//! The block devices behind the namespaces, by the identifier that the model uses, what is
//! asked of them, and what their errors are to hosts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use ebof_backend::{Buffer, Class, Device, Operation, Segments};
use ebof_fabrics::{DeviceId, Extent, TransferKind};
use ebof_nvme::Status;

use crate::observe::stats::Kind;

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
    /// Sorted by identifier, not indexed: identifiers are not used again, and a host that formats
    /// namespaces uses up any number of them.
    devices: Vec<(DeviceId, Arc<dyn Device>)>,
}

impl DeviceTable {
    pub(crate) fn new(devices: impl IntoIterator<Item = (DeviceId, Arc<dyn Device>)>) -> Self {
        let mut devices: Vec<_> = devices.into_iter().collect();
        devices.sort_unstable_by_key(|(id, _)| *id);
        Self { devices }
    }

    #[inline]
    pub(crate) fn device(&self, id: DeviceId) -> Option<&Arc<dyn Device>> {
        let at = self.devices.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(&self.devices[at].1)
    }
}

/// Why a command has memory: it takes a buffer before anything else, or has the host's memory
/// mapped, and gives neither away before it asks its device.
const HAS_MEMORY: &str = "a transfer has memory until it goes to its device";

/// What a device is asked for.
///
/// # Panics
/// The memory for it is missing.
pub(crate) fn operation(kind: TransferKind, extent: &Extent, memory: Option<Segments>) -> Operation {
    let Extent { offset_bytes: offset, length_bytes, deallocate, fua, .. } = *extent;
    let len = length_bytes as usize;
    match (kind, memory) {
        (TransferKind::Read | TransferKind::Compare | TransferKind::Verify, memory) => {
            Operation::Read { offset, len, data: memory.expect(HAS_MEMORY) }
        }
        (TransferKind::Write, memory) => Operation::Write { offset, len, data: memory.expect(HAS_MEMORY), fua },
        // With a buffer, where blocks have protection information: zeros with theirs.
        (TransferKind::WriteZeroes, Some(data)) => Operation::Write { offset, len, data, fua },
        (TransferKind::WriteZeroes, None) => {
            Operation::WriteZeroes { offset, len: length_bytes.into(), deallocate, fua }
        }
        (TransferKind::WriteUncorrectable, _) => unreachable!("the drive marks blocks, and no device"),
    }
}

/// The buffer of what a device is not asked for after all.
pub(crate) fn buffer_of(operation: Operation) -> Option<Buffer> {
    match operation {
        Operation::Read { data, .. } | Operation::Write { data, .. } => Segments::into_buffer(data),
        Operation::Flush | Operation::WriteZeroes { .. } | Operation::Deallocate { .. } => None,
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

#[cfg(test)]
mod tests {
    use ebof_backend::Memory;

    use super::*;

    #[test]
    fn a_table_has_as_many_entries_as_devices_however_many_there_were() {
        let devices: Vec<Arc<dyn Device>> =
            (1..4).map(|mib| Arc::new(Memory::new(mib << 20, 512, false)) as _).collect();
        let ids = [DeviceId(900_000), DeviceId(7), DeviceId(1_000_000)];
        let table = DeviceTable::new(ids.into_iter().zip(devices.iter().cloned()));
        assert_eq!(table.devices.len(), 3);
        for (id, device) in ids.into_iter().zip(&devices) {
            assert!(table.device(id).is_some_and(|found| Arc::ptr_eq(found, device)));
        }
        assert!([0, 8, 900_001, u32::MAX].into_iter().all(|id| table.device(DeviceId(id)).is_none()));
    }
}
