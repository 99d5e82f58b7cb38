//! The drive as its thread decides with it: a change is in the journal before the drive has it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ebof_clock::Clock;
use ebof_drive::{Change, DecisionInput, Drive};
use ebof_medium::Store;

/// A drive whose changes are durable.
pub(super) struct DurableDrive {
    /// Its checkpoints have it as long as there are any, whoever holds this.
    drive: Arc<Mutex<Drive>>,
    clock: Clock,
    opened: Instant,
}

impl DurableDrive {
    /// A drive that is opened now.
    pub(super) fn new(drive: Drive, clock: Clock) -> Self {
        Self { drive: Arc::new(Mutex::new(drive)), opened: clock.now(), clock }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Drive> {
        self.drive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What returns the state for a checkpoint.
    pub(super) fn snapshot(&self) -> Box<dyn Fn() -> Vec<u8>> {
        let drive = Arc::clone(&self.drive);
        Box::new(move || drive.lock().unwrap_or_else(PoisonError::into_inner).state().to_bytes())
    }

    /// Time and randomness for a decision.
    pub(super) fn input(&self) -> DecisionInput {
        let mut entropy = [0; 32];
        // The identity of the drive came from there when it was made or opened.
        self.clock.fill(&mut entropy).expect("a system that had random bytes has more");
        for half in entropy.chunks_exact_mut(16) {
            let random: [u8; 16] = half.try_into().expect("chunks of 16");
            half.copy_from_slice(uuid::Builder::from_random_bytes(random).as_uuid().as_bytes());
        }
        DecisionInput {
            unix_ms: u64::try_from(self.clock.unix_time().as_millis()).unwrap_or(u64::MAX),
            uptime_ms: u64::try_from(self.clock.now().saturating_duration_since(self.opened).as_millis())
                .unwrap_or(u64::MAX),
            entropy,
        }
    }

    /// Makes changes durable, then applies them to the drive.
    pub(super) fn commit(&self, store: &mut Store, changes: Vec<Change>) -> Result<(), ebof_medium::Error> {
        self.commit_and(store, changes, |_| {})
    }

    /// The same; `then` is called before anybody can look at the drive with these changes.
    pub(super) fn commit_and(
        &self,
        store: &mut Store,
        changes: Vec<Change>,
        then: impl FnOnce(&Drive),
    ) -> Result<(), ebof_medium::Error> {
        if changes.is_empty() {
            return Ok(());
        }
        // A damaged drive is not written: its counters and controllers are forgotten
        // with its end.
        if !store.is_read_only() {
            let bytes: Vec<Vec<u8>> = changes.iter().map(Change::to_bytes).collect();
            store.commit(&bytes.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        }
        let mut drive = self.lock();
        changes.into_iter().for_each(|change| drive.apply(change));
        then(&drive);
        Ok(())
    }
}
