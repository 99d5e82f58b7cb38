//! The management of the box while it runs: who has what, and tasks that change it
//! ([0062](../../../docs/adr/0062-management-of-the-box.md)).
//!
//! `tasks` remembers what is being changed, `carry` makes the changes of a transaction or none,
//! `relocate` moves a function from one port to another, `inventory` says what there is. What is
//! legal is decided in `ebof_manage::enclosure`, and by the drives.

mod ask;
mod before;
mod carry;
mod claims;
mod details;
mod images;
mod inventory;
mod namespaces;
mod operations;
mod relocate;
mod sensors;
mod step;
mod tasks;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ebof_manage::Target as _;
use ebof_manage::api::Asker;
use ebof_manage::enclosure::{
    CHANGES_MAX, Change, ChangePlan, DriveDetails, Enclosure, IMAGES_MAX, Inventory, Mistake, MistakeKind, NewDrive,
    Refused, StoredImage, Task, Transaction, check,
};

use crate::life::serve::Target;
use crate::shared::reports;
use carry::Carrier;
use images::Images;
use tasks::{NotBegun, Tasks};

/// Manages what a running target has.
#[derive(Clone)]
pub struct RunningEnclosure(Arc<Running>);

struct Running {
    target: Arc<Target>,
    tasks: Tasks,
    images: Images,
    /// Held from the checks of a transaction until its task has begun.
    beginning: Mutex<()>,
    observer: Option<Observer>,
}

/// Is called with every step of a task, on the task's thread, before the step is taken.
pub type Observer = Box<dyn Fn(&Task) + Send + Sync>;

impl Running {
    fn observe(&self, id: u64) {
        if let Some(observer) = &self.observer
            && let Some(task) = self.tasks.wait(id, None, Duration::ZERO)
        {
            observer(&task);
        }
    }
}

impl RunningEnclosure {
    /// Manages `target`.
    #[must_use]
    pub fn new(target: Arc<Target>) -> Self {
        Self::with(target, None)
    }

    /// The same; every step of a task is told.
    #[must_use]
    pub fn observed(target: Arc<Target>, observer: Observer) -> Self {
        Self::with(target, Some(observer))
    }

    fn with(target: Arc<Target>, observer: Option<Observer>) -> Self {
        let shared = Arc::clone(&target.shared);
        let tasks = Tasks::new(target.shared.clock.clone(), Box::new(move |task| reports::task(&shared, task)));
        Self(Arc::new(Running { target, tasks, images: Images::default(), beginning: Mutex::default(), observer }))
    }
}

impl Enclosure for RunningEnclosure {
    fn inventory(&self) -> Inventory {
        inventory::collect(&self.0.target, &self.0.tasks)
    }

    fn begin_for(&self, transaction: Transaction, by: &Asker) -> Result<Task, Refused> {
        let _alone = self.0.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        let task = loop {
            // What a task changes between the checks and the claims would not have been checked.
            let ended = self.0.tasks.ended();
            let inventory = self.inventory();
            let checked = check(&inventory, &transaction);
            let mut mistakes = checked.err().map(|refused| refused.mistakes).unwrap_or_default();
            if transaction.changes.len() <= CHANGES_MAX {
                mistakes.extend(self.mistakes_of_new_drives(&transaction));
                mistakes.extend(self.missing_images(&transaction));
            }
            if !mistakes.is_empty() {
                return Err(Refused { mistakes });
            }
            if let Some(planned) = &transaction.revision
                && *planned != ChangePlan::new(&inventory, &transaction.changes).revision
            {
                return Err(outdated());
            }
            let claims = claims::collect(&inventory, &transaction.changes);
            match self.0.tasks.begin((transaction.changes.clone(), by), claims, ended) {
                Ok(task) => break task,
                Err(NotBegun::Outdated) => {}
                Err(NotBegun::TooMany) => return Err(too_many()),
                Err(NotBegun::Taken(taken)) => return Err(too_busy(&taken)),
            }
        };
        let carrier = Carrier::new(Arc::clone(&self.0), task.id, transaction, by.clone());
        let id = task.id;
        let spawned = std::thread::Builder::new().name("ebof-task".to_owned()).spawn(move || carrier.run());
        if let Err(error) = spawned {
            self.0.tasks.end(id, Err(carry::not_begun(&error)));
        }
        Ok(self.0.tasks.wait(id, None, Duration::ZERO).unwrap_or(task))
    }

    fn tasks(&self) -> Vec<Task> {
        self.0.tasks.all()
    }

    fn task(&self, id: u64, known: Option<u64>, wait: Duration) -> Option<Task> {
        self.0.tasks.wait(id, known, wait)
    }

    fn drive_details(&self, drive: &str) -> Option<DriveDetails> {
        let state = self.0.target.in_force();
        let opened = state.devices.actors.iter().find(|opened| opened.config.name == drive)?.clone();
        drop(state);
        Some(details::collect(&self.0.target, &opened))
    }

    fn store_image(&self, bytes: &[u8]) -> Result<StoredImage, Refused> {
        self.0.images.store(bytes)
    }
}

impl RunningEnclosure {
    /// The firmware images that a transaction names and nobody has handed over.
    fn missing_images(&self, transaction: &Transaction) -> Vec<Mistake> {
        let missing = |(at, change): (usize, &Change)| match change {
            Change::StageFirmware { image, .. } if self.0.images.find(image).is_none() => Some(Mistake {
                kind: MistakeKind::NotFound,
                change: Some(at),
                object: image.chars().filter(|c| !c.is_control()).take(64).collect(),
                message: "there is no such firmware image".to_owned(),
                advice: format!("hand it over again: the target keeps the last {IMAGES_MAX}, until it ends"),
            }),
            _ => None,
        };
        transaction.changes.iter().enumerate().filter_map(missing).collect()
    }

    /// What is wrong with the drives that a transaction adds.
    fn mistakes_of_new_drives(&self, transaction: &Transaction) -> Vec<Mistake> {
        let new = |(at, change): (usize, &'_ Change)| match change {
            Change::AddDrive(new) => Some((at, new.clone())),
            _ => None,
        };
        let new: Vec<(usize, NewDrive)> = transaction.changes.iter().enumerate().filter_map(new).collect();
        if new.is_empty() {
            return Vec::new();
        }
        // Each beside the ones before it.
        let mut config = self.0.target.config();
        let mut mistakes = Vec::new();
        for (at, new) in new {
            match new.add_to(&config) {
                Ok(with) => config = with,
                Err(found) => {
                    mistakes.extend(found.into_iter().map(|mistake| Mistake { change: Some(at), ..mistake }));
                }
            }
        }
        mistakes
    }
}

impl fmt::Debug for RunningEnclosure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningEnclosure").finish_non_exhaustive()
    }
}

/// Hosts have come or gone since whoever asks has looked.
fn outdated() -> Refused {
    let message = "the changes would not do what was planned any more: other hosts notice them, or other data are lost";
    Refused::because(MistakeKind::Outdated, message, "nothing was changed: look at the plan again")
}

fn too_many() -> Refused {
    let message = format!("{} tasks are running", tasks::RUNNING_MAX);
    Refused::because(MistakeKind::Busy, message, "wait for the end of one: `ebof target tasks`")
}

/// Tasks that are in the way.
fn too_busy(taken: &[(String, u64)]) -> Refused {
    let mistake = |(object, task): &(String, u64)| Mistake {
        kind: MistakeKind::Busy,
        change: None,
        object: object.clone(),
        message: format!("task {task} is changing it"),
        advice: format!("`ebof target tasks {task} --wait` waits for its end"),
    };
    Refused { mistakes: taken.iter().map(mistake).collect() }
}
