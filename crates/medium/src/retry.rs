//! What the backing device has failed at is tried again until it works, and its owner is told of
//! both.

use crate::Notice;
use crate::jobs::{Job, Progress};
use crate::store::Store;
use crate::trouble::Trouble;

/// How soon it is tried whether something works again; later where that takes long, so that a
/// medium that is dying slowly does not keep the drive's thread from everything else: a twentieth
/// of its time at most.
const TRY_MS: u64 = 500;
const TRY_MS_MAX: u64 = 60_000;
const SHARE: u64 = 20;

/// Tries what has failed, until all of it works.
pub(crate) struct Try;

impl Job for Try {
    fn step(&mut self, store: &mut Store) -> Progress {
        let began = store.shared.clock.now();
        store.look();
        let mut works = Vec::new();
        for trouble in store.disk.troubles.next_tries() {
            let again = match trouble {
                Trouble::Read => store.disk.reads_again(),
                Trouble::Space | Trouble::Write => {
                    let written = store.write_somewhere();
                    written.unwrap_or_else(|| store.disk.troubles.is_quiet(trouble, began))
                }
            };
            if again {
                store.shared.tell(Notice::Works(trouble));
                works.push(trouble);
            }
        }
        store.disk.troubles.tried(&works);
        if !store.disk.troubles.is_any() {
            return Progress::Done;
        }
        let took_ms = u64::try_from((store.shared.clock.now() - began).as_millis()).unwrap_or(u64::MAX);
        Progress::Later(took_ms.saturating_mul(SHARE).clamp(TRY_MS, TRY_MS_MAX))
    }
}
