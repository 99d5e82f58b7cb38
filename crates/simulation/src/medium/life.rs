//! A medium from when it is opened to when it is closed, killed or cut off.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use ebof_backend::{Device, Io};
use ebof_clock::Clock;
use ebof_medium::{Medium, Options, Stepper, Store, open_stepped};

use super::world::CAPACITY;
use crate::disk::Disk;
use crate::rig;
use crate::rig::drive;
use crate::story::{Failure, fail};

/// Requests of hosts at a time.
const ENTRIES: u32 = 64;

/// It is killed by being dropped: the threads first, as they are declared.
pub(super) struct Life {
    stepper: Stepper,
    pub(super) medium: Medium,
    /// Of the hosts' requests.
    pub(super) io: Io,
    clock: Clock,
    /// The owner's state: how often it has committed.
    pub(super) state: Arc<AtomicU64>,
    pub(super) is_damaged: bool,
}

impl Life {
    pub(super) fn open(disk: &Arc<Disk>, clock: &Clock, tolerant: bool) -> Result<Self, Failure> {
        let is_new = disk.image().pages() == 0;
        let options = Options {
            create: is_new.then_some(CAPACITY),
            zeroed: is_new,
            id: [7; 16],
            io: disk.io_factory(None),
            clock: clock.clone(),
            read_only_if_damaged: tolerant,
            ..Options::default()
        };
        let backing = Arc::clone(disk) as Arc<dyn Device>;
        let (opened, stepper) = open_stepped(backing, &options).map_err(|error| Failure(error.to_string()))?;
        let commits = commits(opened.snapshot.as_deref(), &opened.changes)?;
        let state = Arc::new(AtomicU64::new(commits));
        let io = Io::external(ENTRIES, Box::new(|| false));
        let is_damaged = opened.damage.is_some();
        let mut life = Self { medium: opened.medium, stepper, io, clock: clock.clone(), state, is_damaged };
        if !is_damaged {
            let kept = Arc::clone(&life.state);
            let set = life.ask(move |store| {
                store.set_snapshot(Box::new(move || kept.load(Ordering::SeqCst).to_le_bytes().to_vec()));
            });
            life.stepper.turn();
            if set.try_recv().is_err() {
                return fail("the drive's thread does not take what it is asked for first");
            }
        }
        Ok(life)
    }

    /// Leaves work with the drive's thread.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> T + Send + 'static,
    ) -> mpsc::Receiver<T> {
        let (sender, receiver) = mpsc::channel();
        self.medium.run(Box::new(move |store| {
            let _gone = sender.send(work(store));
        }));
        receiver
    }
}

impl rig::Life for Life {
    fn parts(&self) -> usize {
        drive::PARTS
    }

    fn turn(&mut self, part: usize) {
        drive::turn(&mut self.stepper, part, self.clock.now());
    }

    fn due(&mut self) -> Option<Instant> {
        if drive::is_busy(&mut self.stepper) { Some(self.clock.now()) } else { self.stepper.due() }
    }

    fn is_over(&self) -> bool {
        self.stepper.is_over()
    }
}

/// How often the owner has committed: each time three changes, of which the first and the last have
/// the number.
fn commits(snapshot: Option<&[u8]>, changes: &[Vec<u8>]) -> Result<u64, Failure> {
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    let mut commits = snapshot.map_or(0, word);
    let numbers: Vec<u64> = changes.iter().filter(|change| change.len() == 8).map(|change| word(change)).collect();
    for pair in numbers.chunks(2) {
        if pair != [commits + 1; 2] {
            return fail(format!("changes {pair:?} after {commits}: they come in order, and together"));
        }
        commits += 1;
    }
    Ok(commits)
}
