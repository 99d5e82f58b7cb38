//! Zeroes what was given back, in the background, on a thread of its own: a file system or a disk may take its time to take storage
//! back, and the drive's thread has others to serve.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use ebof_backend::{Class, Engine, Error, Operation, Vital};

use crate::disk::Disk;
use crate::shared::{Message, Shared};
use crate::thin::refused;

/// Ranges that are zeroed at the same time: a file system has writes to a file wait for those before them.
const TOGETHER: usize = 4;

/// Extents that nobody else has, and where they are on the medium (offset and length).
pub(crate) struct Load {
    pub(crate) extents: Vec<u32>,
    pub(crate) ranges: Vec<(u64, u64)>,
}

/// Starts the thread; it ends when the sender is dropped.
pub(crate) fn start(shared: &Arc<Shared>, engine: Engine) -> std::io::Result<(mpsc::Sender<Load>, JoinHandle<()>)> {
    let shared = Arc::clone(shared);
    let (sender, loads) = mpsc::channel();
    let run = move || run(&shared, engine, &loads);
    Ok((sender, std::thread::Builder::new().name("ebof-zero".to_owned()).spawn(run)?))
}

fn run(shared: &Arc<Shared>, engine: Engine, loads: &mpsc::Receiver<Load>) {
    // Extents that are never zeroed would be lost to the drive.
    let _vital = Vital::new();
    let mut disk = Disk::new(Arc::clone(&shared.base), engine);
    if let Err(error) = &disk {
        tracing::warn!("what is given back is zeroed when it is needed: {error}");
    }
    for Load { extents, ranges } in loads {
        let zeroed = match &mut disk {
            Ok(disk) => zero(disk, &ranges),
            Err(_) => Err(refused(&Operation::Flush, Class::MediumWrite, "there is no I/O for it: see the log")),
        };
        if let Err(error) = &zeroed {
            shared.saw(error);
        }
        shared.post(Message::Zeroed(extents, zeroed));
    }
}

fn zero(disk: &mut Disk, ranges: &[(u64, u64)]) -> Result<(), Error> {
    for some in ranges.chunks(TOGETHER) {
        disk.zero(some.iter().copied(), true)?;
    }
    // Before one of them can be in the journal, it must not come back with its old bytes after a power loss; and that it was taken
    // from where it was must not be forgotten.
    disk.flush()
}
