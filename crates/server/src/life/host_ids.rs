//! The thread that stores which hosts have proven which host identifiers: another host cannot take
//! one over while the target is away. Hosts do not wait for it.

use std::time::Duration;

use crate::environment::remembered::{TextStore, store_host_ids};
use crate::shared::Shared;

/// How often it looks whether there is something new.
const INTERVAL: Duration = Duration::from_secs(1);

/// Stores them until the target ends, and then the last ones.
pub(crate) fn keep(shared: &Shared, store: &dyn TextStore) {
    let mut stored = Stored::default();
    while shared.sampler.wait(INTERVAL) {
        stored.follow(shared, store);
    }
    stored.follow(shared, store);
}

/// What is stored.
#[derive(Default)]
struct Stored {
    /// The number of changes that it has.
    changes: u64,
    has_failed: bool,
}

impl Stored {
    /// Stores what there is, unless it is stored. What fails is tried again the next time, and told
    /// once.
    fn follow(&mut self, shared: &Shared, store: &dyn TextStore) {
        let Some((changes, proven)) = shared.registry().host_ids_after(self.changes) else { return };
        match store_host_ids(store, &proven) {
            Ok(()) => (self.changes, self.has_failed) = (changes, false),
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::error!("which hosts have proven their host identifiers cannot be stored: {error}");
                }
            }
        }
    }
}
