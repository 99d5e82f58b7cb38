//! Opens a drive, on threads of its own or without any.
//!
//! The folder has what finds or makes the drive, what runs its threads or takes their place, and
//! the handle that the owner gets.

pub(crate) mod find;
pub(crate) mod medium;
pub(crate) mod stepper;
pub(crate) mod threads;

use std::sync::Arc;

use ebof_backend::Device;

use crate::disk::Disk;
use crate::event_loop::work::WorkQueue;
use crate::open::find::find;
use crate::open::medium::Medium;
use crate::open::stepper::Stepper;
use crate::store::Store;
use crate::thin::shared::Shared;
use crate::{Damage, OpenError, Options};

/// A medium that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The handle of the drive's thread.
    pub medium: Medium,
    /// The owner's state in the last checkpoint
    /// ([`Store::set_snapshot`](crate::Store::set_snapshot)); `None` if it has none.
    pub snapshot: Option<Vec<u8>>,
    /// The changes committed since then, in order.
    pub changes: Vec<Vec<u8>>,
    /// Whether it was closed in order. `true` for a new drive.
    pub was_clean: bool,
    /// Whether it was made just now.
    pub created: bool,
    /// Blocks with checksums that may have been written and were not flushed when it ended: they
    /// are verified in the background, and taken as they are ([`Notice::Mended`](crate::Notice)) if
    /// no checksum matches.
    pub in_flux: u64,
    /// Damage that makes it read-only, see [`Options::read_only_if_damaged`].
    pub damage: Option<Damage>,
}

/// Opens the drive on `backing`, or makes it, and starts its threads.
///
/// # Errors
/// Says what is wrong with the medium and what to do.
pub fn open(backing: Arc<dyn Device>, options: Options) -> Result<Opened, OpenError> {
    threads::start(backing, options)
}

/// The same without threads: their work is done on the caller's, by calls of the [`Stepper`], with
/// the clock and the I/O of the options. No method of [`Medium`] waits then.
///
/// # Errors
/// As [`open`].
pub fn open_stepped(backing: Arc<dyn Device>, options: &Options) -> Result<(Opened, Stepper), OpenError> {
    let (store, ready) = ready(backing, options)?;
    let medium = Medium::without_thread(Arc::clone(&ready.shared), Arc::clone(&ready.work));
    let stepper = Stepper::new(store, Arc::clone(&ready.work), options);
    Ok((ready.opened(medium), stepper))
}

/// What the drive's thread reports when the drive is open.
pub(crate) struct Ready {
    pub(crate) shared: Arc<Shared>,
    pub(crate) work: Arc<WorkQueue>,
    snapshot: Option<Vec<u8>>,
    changes: Vec<Vec<u8>>,
    was_clean: bool,
    created: bool,
    in_flux: u64,
    damage: Option<Damage>,
}

impl Ready {
    pub(crate) fn opened(self, medium: Medium) -> Opened {
        let Self { shared: _, work: _, snapshot, changes, was_clean, created, in_flux, damage } = self;
        Opened { medium, snapshot, changes, was_clean, created, in_flux, damage }
    }
}

/// Opens the drive, on the thread that is to serve it.
pub(crate) fn ready(backing: Arc<dyn Device>, options: &Options) -> Result<(Store, Ready), OpenError> {
    let device = backing.describe();
    let disk = Disk::new(backing, &options.io, &options.clock);
    let mut disk = disk.map_err(|source| OpenError::Device { device, source })?;
    let found = find(&mut disk, options)?;
    if let Some(damage) = &found.mended {
        let device = disk.base().describe();
        tracing::error!(
            device,
            "the drive is damaged: {damage}. The checkpoint and the journal before it lead to the same state: nothing is \
             lost, and a new checkpoint is written"
        );
    }
    if found.lost.is_some() {
        disk.set_read_only();
    }
    let changes = found.changes.clone();
    let state = found.state.clone();
    let was_clean = found.was_clean;
    let created = found.created;
    let damage = found.lost.as_ref().map(|lost| lost.damage.clone());
    let store = Store::restore(disk, found, options)?;
    let in_flux = store.order.tags.ambiguous().map(|(_, mask)| mask.count() as u64).sum();
    let shared = Arc::clone(&store.order.shared);
    let work = WorkQueue::new(Arc::clone(&shared));
    let snapshot = (!state.is_empty()).then_some(state);
    Ok((store, Ready { shared, work, snapshot, changes, was_clean, created, in_flux, damage }))
}
