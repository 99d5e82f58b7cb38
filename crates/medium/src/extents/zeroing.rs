//! Zeroes freed extents in the background, on a thread of its own: a file system or a disk may take
//! long to deallocate, and the drive's thread serves others meanwhile.

use std::sync::Arc;

use ebof_backend::{Class, Error, Operation};

use crate::Options;
use crate::disk::Disk;
use crate::thin::refused;
use crate::thin::shared::{Message, Shared};

/// Ranges that are zeroed at the same time. Few: on a file, later writes wait for them.
const RANGES_AT_ONCE: usize = 4;

/// Free extents to be zeroed. They are not allocated meanwhile.
pub(crate) struct ZeroRequest {
    pub(crate) extents: Vec<u32>,
    /// Where they are on the medium: offset and length in bytes.
    pub(crate) ranges: Vec<(u64, u64)>,
}

/// Zeroes freed extents, request by request.
pub(crate) struct Zeroing {
    shared: Arc<Shared>,
    /// `None` if it has no I/O: then nothing can be zeroed in the background.
    disk: Option<Disk>,
}

impl Zeroing {
    /// To be made on the thread that uses it.
    pub(crate) fn new(shared: &Arc<Shared>, options: &Options) -> Self {
        let disk = Disk::new(Arc::clone(&shared.base), &options.io, &shared.clock);
        let disk = disk.inspect_err(|error| tracing::warn!("what is given back is zeroed when it is needed: {error}"));
        Self { shared: Arc::clone(shared), disk: disk.ok() }
    }

    /// Zeroes extents, durably, and sends the result to the drive's thread.
    pub(crate) fn zero(&mut self, ZeroRequest { extents, ranges }: ZeroRequest) {
        let zeroed = match &mut self.disk {
            Some(disk) => zero(disk, &ranges),
            None => Err(refused(&Operation::Flush, Class::MediumWrite, "there is no I/O for it: see the log")),
        };
        if let Err(error) = &zeroed {
            self.shared.record_failure(error);
        }
        // When the drive is closed, the next incarnation takes them for dirty.
        let _ended = self.shared.post(Message::Zeroed(extents, zeroed));
    }
}

fn zero(disk: &mut Disk, ranges: &[(u64, u64)]) -> Result<(), Error> {
    for some in ranges.chunks(RANGES_AT_ONCE) {
        disk.zero(some.iter().copied(), true)?;
    }
    // Before an extent can be allocated again: a power loss must bring back neither its old bytes
    // nor its old mapping.
    disk.flush()
}
