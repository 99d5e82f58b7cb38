//! Zeroes what was given back, in the background, on a thread of its own: a file system or a disk
//! may take its time to take storage back, and the drive's thread has others to serve.

use std::sync::Arc;

use ebof_backend::{Class, Error, Operation};

use crate::Options;
use crate::disk::Disk;
use crate::shared::{Message, Shared};
use crate::thin::refused;

/// Ranges that are zeroed at the same time: a file system has writes to a file wait for those
/// before them.
const TOGETHER: usize = 4;

/// Extents that nobody else has, and where they are on the medium (offset and length).
pub(crate) struct ZeroRequest {
    pub(crate) extents: Vec<u32>,
    pub(crate) ranges: Vec<(u64, u64)>,
}

/// Zeroes extents that were given back, load by load.
pub(crate) struct Zeroing {
    shared: Arc<Shared>,
    /// `None` where there is no I/O to be had for it.
    disk: Option<Disk>,
}

impl Zeroing {
    /// To be made on the thread that uses it.
    pub(crate) fn new(shared: &Arc<Shared>, options: &Options) -> Self {
        let disk = Disk::new(Arc::clone(&shared.base), &options.io, &shared.clock);
        let disk = disk.inspect_err(|error| tracing::warn!("what is given back is zeroed when it is needed: {error}"));
        Self { shared: Arc::clone(shared), disk: disk.ok() }
    }

    /// Zeroes extents, durably, and tells the drive's thread.
    pub(crate) fn zero(&mut self, ZeroRequest { extents, ranges }: ZeroRequest) {
        let zeroed = match &mut self.disk {
            Some(disk) => zero(disk, &ranges),
            None => Err(refused(&Operation::Flush, Class::MediumWrite, "there is no I/O for it: see the log")),
        };
        if let Err(error) = &zeroed {
            self.shared.saw(error);
        }
        self.shared.post(Message::Zeroed(extents, zeroed));
    }
}

fn zero(disk: &mut Disk, ranges: &[(u64, u64)]) -> Result<(), Error> {
    for some in ranges.chunks(TOGETHER) {
        disk.zero(some.iter().copied(), true)?;
    }
    // Before one of them can be in the journal, it must not come back with its old bytes after a
    // power loss; and that it was taken from where it was must not be forgotten.
    disk.flush()
}
