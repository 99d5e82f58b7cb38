//! What is on a drive's medium and belongs to no namespace: it is removed as soon as that works.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ebof_drive::VolumeId;
use ebof_medium::Store;

use super::log::DriveLog;
use crate::observe::log_limit::{Kind, LogSubject};

/// Names on the medium that belong to no namespace any more, and could not be removed yet.
#[derive(Default)]
pub(super) struct Leftovers {
    volumes: Mutex<BTreeSet<VolumeId>>,
}

impl Leftovers {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<VolumeId>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, volumes: impl IntoIterator<Item = VolumeId>) {
        self.lock().extend(volumes);
    }

    /// It was removed, or is a namespace's again.
    pub(super) fn forget(&self, volume: VolumeId) {
        self.lock().remove(&volume);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Removes them from the medium; `false` if something is left, which is tried again
    /// ([`Jobs::start`](super::jobs::Jobs::start)).
    pub(super) fn remove(&self, store: &mut Store, log: &DriveLog) -> bool {
        let mut left = self.lock();
        left.retain(|&volume| match store.remove(volume) {
            Ok(()) | Err(ebof_medium::Error::Unknown(_)) => false,
            Err(error) => {
                if let Some(more) = log.may_log(LogSubject::Volume(volume), Kind::NotRemoved) {
                    let instance = volume.0;
                    tracing::error!(drive = log.name(), instance, "left on the medium for now: {error}{more}");
                }
                true
            }
        });
        left.is_empty()
    }
}

/// What is on the medium and belongs to no namespace was being made or removed when the drive
/// ended.
pub(super) fn remove_orphans(
    store: &mut Store,
    on_medium: Vec<VolumeId>,
    known: &[VolumeId],
    log: &DriveLog,
) -> Result<(), ebof_medium::Error> {
    if store.is_read_only() {
        return Ok(());
    }
    for orphan in on_medium.into_iter().filter(|volume| !known.contains(volume)) {
        tracing::info!(drive = log.name(), instance = orphan.0, "removing what was left half made or half removed");
        store.remove(orphan)?;
    }
    Ok(())
}
