//! The record of what was changed, from which it is undone. It belongs to a boot, like the settings
//! themselves.

use std::io;
use std::path::Path;

use ebof_state::{StateDirectory, StateError, StoreError};
use serde::{Deserialize, Serialize};

use crate::knob::Knob;
use crate::machine::Machine;

/// The most changes that are recorded: several for each core of a large machine.
pub const CHANGES_MAX: usize = 1 << 14;
/// The most values that are remembered of a knob, the newest.
const VALUES_MAX: usize = 4;
/// The longest value: `tcp_rmem` and masks of thousands of cores are shorter.
const VALUE_BYTES_MAX: usize = 4096;

const FILE: &str = "tuned.json";
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// One setting that was changed, or was about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// Where it is.
    pub knob: Knob,
    /// The value before the first change.
    pub old: String,
    /// The values that it was given here since, the newest last.
    pub set: Vec<String>,
    /// When it was changed first, in seconds since 1970.
    pub at_s: u64,
}

impl Recorded {
    /// Whether its values can be values of the kernel.
    fn is_sound(&self) -> bool {
        let is_sound = |value: &String| value.len() <= VALUE_BYTES_MAX && !value.contains(char::is_control);
        is_sound(&self.old) && self.set.iter().all(is_sound)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// The boot that the values belong to.
    boot: String,
    /// In the order in which they were made.
    changes: Vec<Recorded>,
}

/// The record, in a directory that this process has for itself meanwhile.
#[derive(Debug)]
pub struct ChangeRecord {
    directory: StateDirectory,
    boot: String,
    changes: Vec<Recorded>,
    /// How many changes an earlier boot had.
    outdated: usize,
}

/// Why there is no record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The directory or the file cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// It is not stored, or it is not known whether it is.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Which boot this is cannot be told.
    #[error("reading {BOOT}: {0}")]
    Boot(io::Error),
    /// The file has something else in it.
    #[error("{path} is no record of this version of ebof: {why}")]
    Foreign {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// There are more changes than a record holds.
    #[error("{0} changes are more than the {CHANGES_MAX} that are recorded")]
    TooMany(usize),
}

impl RecordError {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::State(StateError::InUse { .. }) => "another `ebof tune` runs: wait until it has ended".into(),
            Self::State(error) => error.advice(),
            Self::Store(error) => error.advice(),
            Self::Boot(_) => "settings are changed only where /proc is mounted".into(),
            Self::Foreign { path, .. } => {
                format!("look at it, restore by hand what it names, and move it away (`mv {path} {path}.old`)")
            }
            Self::TooMany(_) => "choose an interface (--interface) and a device (--device)".into(),
        }
    }
}

impl ChangeRecord {
    /// Opens the record in a directory, which is made if there is none.
    ///
    /// # Errors
    /// The directory is another user's, or in use; the record is damaged.
    pub fn open(directory: &Path, machine: &dyn Machine) -> Result<Self, RecordError> {
        Self::open_in(StateDirectory::open(directory)?, machine)
    }

    /// Opens the record in a directory that this process has.
    ///
    /// # Errors
    /// The record is damaged.
    pub fn open_in(directory: StateDirectory, machine: &dyn Machine) -> Result<Self, RecordError> {
        let boot = machine.read(BOOT).map_err(RecordError::Boot)?.trim().to_owned();
        let mut record = Self { directory, boot, changes: Vec::new(), outdated: 0 };
        let Some(bytes) = record.directory.read(FILE)? else { return Ok(record) };
        let foreign =
            |why: String| RecordError::Foreign { path: record.directory.path_of(FILE).display().to_string(), why };
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| foreign(error.to_string()))?;
        if stored.boot != record.boot {
            record.outdated = stored.changes.len();
            return Ok(record);
        }
        if stored.changes.len() > CHANGES_MAX || stored.changes.iter().any(|change| !change.is_sound()) {
            return Err(foreign("a value has control characters, or there are too many".to_owned()));
        }
        record.changes = stored.changes;
        Ok(record)
    }

    /// The changes of this boot, in the order in which they were made.
    #[must_use]
    pub fn changes(&self) -> &[Recorded] {
        &self.changes
    }

    /// How many changes there were in an earlier boot, which are undone by the new one.
    #[must_use]
    pub const fn outdated(&self) -> usize {
        self.outdated
    }

    pub(crate) fn find(&self, knob: &Knob) -> Option<usize> {
        self.changes.iter().position(|change| change.knob == *knob)
    }

    /// Notes that a knob is about to get a value. The value before the first change stays.
    pub(crate) fn note(&mut self, knob: &Knob, old: &str, new: &str, now_s: u64) {
        let index = self.find(knob).unwrap_or(self.changes.len());
        if index == self.changes.len() {
            let (knob, old) = (knob.clone(), old.to_owned());
            self.changes.push(Recorded { knob, old, set: Vec::new(), at_s: now_s });
        }
        if let Some(change) = self.changes.get_mut(index)
            && change.set.last().is_none_or(|last| last != new)
        {
            change.set.push(new.to_owned());
            let surplus = change.set.len().saturating_sub(VALUES_MAX);
            change.set.drain(..surplus);
        }
    }

    /// Takes a change out.
    pub(crate) fn forget(&mut self, knob: &Knob) {
        self.changes.retain(|change| change.knob != *knob);
    }

    /// Stores the record, or removes its file if it is empty.
    pub(crate) fn store(&mut self) -> Result<(), RecordError> {
        if self.changes.len() > CHANGES_MAX {
            return Err(RecordError::TooMany(self.changes.len()));
        }
        self.outdated = 0;
        if self.changes.is_empty() {
            let _was_there = self.directory.remove(FILE)?;
            return Ok(());
        }
        let stored = Stored { boot: self.boot.clone(), changes: self.changes.clone() };
        let path = || self.directory.path_of(FILE).display().to_string();
        let foreign = |error: serde_json::Error| RecordError::Foreign { path: path(), why: error.to_string() };
        let bytes = serde_json::to_vec(&stored).map_err(foreign)?;
        Ok(self.directory.replace(FILE, &bytes)?)
    }
}
