//! What the backing device has failed at is tried again until it works, and its owner is told of
//! both.

use crate::Notice;
use crate::fault::BackingFault;
use crate::jobs::{Job, Progress};
use crate::store::Store;

/// How soon it is tried whether something works again; later where that takes long, so that a
/// medium that is dying slowly does not keep the drive's thread from everything else: a twentieth
/// of its time at most.
const TRY_MS: u64 = 500;
const TRY_MS_MAX: u64 = 60_000;
const SHARE: u64 = 20;

/// Tries what has failed, until all of it works.
pub(crate) struct RetryFaults;

impl Job for RetryFaults {
    fn step(&mut self, store: &mut Store) -> Progress {
        let began = store.shared.clock.now();
        store.look();
        let mut works = Vec::new();
        for fault in store.disk.faults.next_tries() {
            let again = match fault {
                BackingFault::Read => store.disk.reads_again(),
                BackingFault::Space | BackingFault::Write => {
                    let written = store.write_somewhere();
                    written.unwrap_or_else(|| store.disk.faults.is_quiet(fault, began))
                }
            };
            if again {
                store.shared.notify(Notice::Works(fault));
                works.push(fault);
            }
        }
        store.disk.faults.tried(&works);
        if !store.disk.faults.is_any() {
            return Progress::Done;
        }
        let took_ms = u64::try_from((store.shared.clock.now() - began).as_millis()).unwrap_or(u64::MAX);
        Progress::Later(took_ms.saturating_mul(SHARE).clamp(TRY_MS, TRY_MS_MAX))
    }
}
