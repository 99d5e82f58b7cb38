//! The job that tries again what the backing device has failed at, until it works, and notifies the
//! owner.

use crate::Notice;
use crate::disk::fault::BackingFault;
use crate::store::Store;
use crate::store::jobs::{Job, Progress};

/// Pause between two tries. It is longer if a try takes long, so that a slowly dying medium takes
/// at most one part in [`TIME_SHARE`] of the drive's thread.
const PAUSE_MS: u64 = 500;
const PAUSE_MS_MAX: u64 = 60_000;
const TIME_SHARE: u64 = 20;

/// Tries what has failed, until all of it works.
pub(crate) struct RetryFaults;

impl Job for RetryFaults {
    fn step(&mut self, store: &mut Store) -> Progress {
        let began = store.order.shared.clock.now();
        store.check_faults();
        let mut works = Vec::new();
        for fault in store.order.disk.faults.due_for_retry() {
            let again = match fault {
                BackingFault::Read => store.order.disk.can_read_again(),
                BackingFault::Space | BackingFault::Write => {
                    let written = store.order.probe_write();
                    written.unwrap_or_else(|| store.order.disk.faults.is_quiet(fault, began))
                }
            };
            if again {
                store.order.shared.notify(Notice::Works(fault));
                works.push(fault);
            }
        }
        store.order.disk.faults.clear(&works);
        if !store.order.disk.faults.is_any() {
            return Progress::Done;
        }
        let took_ms = u64::try_from((store.order.shared.clock.now() - began).as_millis()).unwrap_or(u64::MAX);
        Progress::Later(took_ms.saturating_mul(TIME_SHARE).clamp(PAUSE_MS, PAUSE_MS_MAX))
    }
}
