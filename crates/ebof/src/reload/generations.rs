//! The configurations that are and were in force, in the state directory
//! ([0070](../../../docs/adr/0070-state-directory.md)).
//!
//! Each is a file of its own, `configuration-N.toml`; `configuration.json` lists them, and says
//! which one is in force. A generation counts when the list has it: its file is written before. So
//! a list that is damaged, or a file that is missing, is an error, and never a reason to go by what
//! was in force before. A target that goes by a file or by arguments has a history of its own
//! beside that (`served.json`, `served-N.toml`), so that one that goes by the directory never
//! serves what another one was tried with.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ebof_cli::Failure;
use ebof_manage::api::{
    Cause, ConfigStore, ConfigStoreError, FileChange, Generation, HISTORY_SCHEMA, History, Outdated, Revision,
};
use ebof_manage::load::load_as;
use ebof_manage::{Config, FileFormat, Plan};
use ebof_state::{StateDirectory, StateError, StoreError};

/// What the files of a history are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Track {
    /// That of targets which go by the directory.
    Source,
    /// That of targets which go by something else.
    Beside,
}

impl Track {
    fn stem(self) -> &'static str {
        match self {
            Self::Source => "configuration",
            Self::Beside => "served",
        }
    }

    /// The list: `configuration.json`.
    fn list(self) -> String {
        format!("{}.json", self.stem())
    }

    /// Changes of files that are under way: `configuration-changes.json`.
    fn changes(self) -> String {
        format!("{}-changes.json", self.stem())
    }

    /// A configuration: `configuration-12.toml`.
    fn file(self, number: u64) -> String {
        format!("{}-{number}.toml", self.stem())
    }

    /// The number of the configuration that has this name.
    fn number(self, name: &str) -> Option<u64> {
        name.strip_prefix(self.stem())?.strip_prefix('-')?.strip_suffix(".toml")?.parse().ok()
    }
}

/// The configurations that a target has had, and the one in force.
pub(crate) struct Generations {
    directory: Arc<StateDirectory>,
    history: Mutex<History>,
    track: Track,
}

/// Why the stored configurations cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// A file is damaged, missing, or not what it should be.
    Damaged {
        /// The file.
        name: String,
        /// What is wrong, with its path.
        message: String,
    },
    /// Something else.
    State(StateError),
    /// It cannot be stored what they are, or it is not known whether it is.
    Store(StoreError),
}

/// Why a configuration cannot be stored.
#[derive(Debug)]
struct NotKept(String);

impl Generations {
    /// What `directory` has.
    ///
    /// # Errors
    /// The list is damaged, or missing while there are generations.
    pub(crate) fn open(directory: Arc<StateDirectory>, track: Track) -> Result<Self, Unusable> {
        let history = match read_list(&directory, track)? {
            Some(history) => history,
            None => new_list(&directory, track)?,
        };
        let generations = Self { directory, history: Mutex::new(history), track };
        generations.clean_up();
        Ok(generations)
    }

    /// The same where the target is started with something else: what is damaged is set aside, and
    /// the history begins anew, or goes on without the generation in force.
    ///
    /// # Errors
    /// It cannot be set aside, or the directory cannot be used.
    pub(crate) fn open_or_begin(directory: Arc<StateDirectory>, track: Track) -> Result<Self, Unusable> {
        let generations = match Self::open(Arc::clone(&directory), track) {
            Err(Unusable::Damaged { name, message }) => {
                set_aside(&directory, &name, &message)?;
                // The files that are there stay, for whoever needs them.
                let names = directory.names().map_err(Unusable::State)?;
                let last = names.iter().filter_map(|name| track.number(name)).max().unwrap_or_default();
                write_list(&directory, track, &History { last, ..History::default() })?;
                Self::open(directory, track)?
            }
            other => other?,
        };
        // Or what is stored next would be taken for it.
        while let Err(error) = generations.configuration() {
            let Unusable::Damaged { name, message } = error else { return Err(error) };
            set_aside(&generations.directory, &name, &message)?;
            let mut list = generations.list();
            list.generations.pop();
            write_list(&generations.directory, track, &list)?;
        }
        Ok(generations)
    }

    /// Where they are, with what else a target stores.
    pub(crate) const fn directory(&self) -> &Arc<StateDirectory> {
        &self.directory
    }

    /// The path of that.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// All of them.
    pub(crate) fn history(&self) -> History {
        self.list().clone()
    }

    /// The number of the one in force.
    pub(crate) fn current(&self) -> Option<u64> {
        self.list().current().map(|it| it.generation)
    }

    /// The configuration in force; `None` if there never was one.
    ///
    /// # Errors
    /// It is damaged or missing.
    pub(crate) fn configuration(&self) -> Result<Option<Config>, Unusable> {
        let current = self.list().current().cloned();
        current.map(|generation| self.read(&generation)).transpose()
    }

    /// The configuration of a generation.
    ///
    /// # Errors
    /// It is damaged or missing.
    pub(crate) fn read(&self, generation: &Generation) -> Result<Config, Unusable> {
        let name = self.track.file(generation.generation);
        let list = self.track.list();
        let path = self.directory.path_of(&name);
        let damaged = |message: String| Unusable::Damaged { name: name.clone(), message };
        let content = read_file(&self.directory, &name)?;
        let content = content.ok_or_else(|| {
            damaged(format!("the state file {} is missing, and {list} says that it is there", path.display()))
        })?;
        let wrong = |why: String| damaged(format!("the state file {}: {why}", path.display()));
        let text = String::from_utf8(content).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
        let loaded = load_as(FileFormat::Toml, &path.display().to_string(), &text);
        let config = loaded.map_err(|diagnostics| wrong(format!("it is not understood: {diagnostics}")))?.config;
        let revision = Revision::from_config(&config);
        if revision == generation.revision {
            return Ok(config);
        }
        Err(wrong(format!("it has revision {revision}, and {list} says {}", generation.revision)))
    }

    /// The changes of files that a process which has ended in between had begun.
    ///
    /// # Errors
    /// What was noted is damaged.
    pub(crate) fn interrupted(&self) -> Result<Vec<FileChange>, Unusable> {
        let name = self.track.changes();
        let Some(content) = read_file(&self.directory, &name)? else { return Ok(Vec::new()) };
        serde_json::from_slice(&content).map_err(|error| {
            let message = format!("the state file {}: {error}", self.directory.path_of(&name).display());
            Unusable::Damaged { name, message }
        })
    }

    fn list(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the file of a change that was interrupted: the list does not have it yet.
    fn clean_up(&self) {
        let history = self.history();
        let names = self.directory.names().unwrap_or_default();
        let is_left = |name: &String| self.track.number(name).is_some_and(|number| number > history.last);
        names.iter().filter(|name| is_left(name)).for_each(|name| self.remove(name));
    }

    fn remove(&self, name: &str) {
        if let Err(error) = self.directory.remove(name) {
            tracing::warn!("a configuration that is not needed any more stays: {error}");
        }
    }
}

impl ConfigStore for Generations {
    fn revision(&self) -> Option<Revision> {
        self.list().current().map(|it| it.revision.clone())
    }

    /// What is stored already is not a new generation.
    fn replace(
        &self,
        seen: Option<&Revision>,
        config: &Config,
        plan: &Plan,
        cause: &Cause,
    ) -> Result<(), ConfigStoreError> {
        let revision = Revision::from_config(config);
        let mut list = self.list();
        let stored = list.current().map(|current| &current.revision);
        if stored == Some(&revision) {
            return Ok(());
        }
        if stored != seen {
            let outdated = Outdated { stored: stored.cloned(), seen: seen.cloned() };
            return Err(ConfigStoreError::NotStored(outdated.into()));
        }
        let text = config.to_toml().map_err(|error| ConfigStoreError::NotStored(error.into()))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let (next, gone) = list.with(revision, text.len() as u64, now_ms, plan, cause);
        let number = next.current().map(|it| it.generation).unwrap_or_default();
        let name = self.track.file(number);
        let stored = self.directory.replace(&name, text.as_bytes());
        // Whatever has become of a file that the list does not have, it does not count.
        let stored = stored.map_err(|error| ConfigStoreError::NotStored(NotKept::new(&error)));
        let listed = stored.and_then(|()| {
            self.directory.replace(&self.track.list(), &encoded(&next)).map_err(|error| not_kept(&error))
        });
        if let Err(error) = listed {
            // Where the list may have it, this does nothing before the old list could be put back.
            let _gone = self.directory.remove(&name);
            return Err(error);
        }
        *list = next;
        drop(list);
        gone.into_iter().for_each(|number| self.remove(&self.track.file(number)));
        Ok(())
    }

    fn intend(&self, changes: &[FileChange]) -> Result<(), ConfigStoreError> {
        let text = serde_json::to_vec_pretty(changes).map_err(|error| ConfigStoreError::NotStored(error.into()))?;
        self.directory.replace(&self.track.changes(), &text).map_err(|error| not_kept(&error))
    }

    fn forget(&self) {
        if let Err(error) = self.directory.remove(&self.track.changes()) {
            tracing::warn!("what was noted of a change that has ended stays: {error}");
        }
    }

    fn is_source(&self) -> bool {
        self.track == Track::Source
    }

    fn stored(&self) -> Vec<Config> {
        let read = |generation: &Generation| match self.read(generation) {
            Ok(config) => Some(config),
            Err(error) => {
                tracing::warn!("what was served once is not known from a configuration that cannot be read: {error}");
                None
            }
        };
        self.history().generations.iter().filter_map(read).collect()
    }
}

impl NotKept {
    fn new(error: &StoreError) -> Box<Self> {
        Box::new(Self(format!("{error}; {}", error.advice())))
    }
}

fn not_kept(error: &StoreError) -> ConfigStoreError {
    let why = NotKept::new(error);
    match error {
        StoreError::NotStored(_) => ConfigStoreError::NotStored(why),
        StoreError::Unknown { .. } => ConfigStoreError::Unknown(why),
    }
}

fn encoded(history: &History) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(history).expect("plain values become JSON");
    text.push(b'\n');
    text
}

fn read_file(directory: &StateDirectory, name: &str) -> Result<Option<Vec<u8>>, Unusable> {
    directory.read(name).map_err(|error| match error {
        StateError::Damaged { .. } | StateError::TooLarge { .. } | StateError::Kind { .. } => {
            Unusable::Damaged { name: name.to_owned(), message: error.to_string() }
        }
        other => Unusable::State(other),
    })
}

fn read_list(directory: &StateDirectory, track: Track) -> Result<Option<History>, Unusable> {
    let name = track.list();
    let Some(content) = read_file(directory, &name)? else { return Ok(None) };
    let wrong = |why: String| {
        let message = format!("the state file {}: {why}", directory.path_of(&name).display());
        Unusable::Damaged { name: name.clone(), message }
    };
    let history: History =
        serde_json::from_slice(&content).map_err(|error| wrong(format!("it is not understood: {error}")))?;
    if history.schema != HISTORY_SCHEMA {
        return Err(wrong(format!(
            "it has schema {}, and this version of ebof knows {HISTORY_SCHEMA}",
            history.schema
        )));
    }
    let is_rising = history.generations.windows(2).all(|pair| pair[0].generation < pair[1].generation);
    if is_rising { Ok(Some(history)) } else { Err(wrong("its generations are not in order".to_owned())) }
}

/// The list of a directory that has none: nothing was ever in force. It is stored at once, so that
/// a list that was lost is not taken for one that never was.
fn new_list(directory: &StateDirectory, track: Track) -> Result<History, Unusable> {
    let names = directory.names().map_err(Unusable::State)?;
    if let Some(name) = names.iter().find(|name| track.number(name).is_some()) {
        let list = track.list();
        let (missing, there) = (directory.path_of(&list), directory.path_of(name));
        let message = format!("the state file {} is missing, and {} is there", missing.display(), there.display());
        return Err(Unusable::Damaged { name: list, message });
    }
    let history = History::default();
    write_list(directory, track, &history)?;
    Ok(history)
}

fn write_list(directory: &StateDirectory, track: Track, history: &History) -> Result<(), Unusable> {
    directory.replace(&track.list(), &encoded(history)).map_err(Unusable::Store)
}

fn set_aside(directory: &StateDirectory, name: &str, message: &str) -> Result<(), Unusable> {
    let is_missing = matches!(directory.read(name), Ok(None));
    if is_missing {
        tracing::error!("{message}: the target does not need it now, and goes on without");
        return Ok(());
    }
    let aside = directory.set_aside(name).map_err(Unusable::Store)?;
    tracing::error!("{message}: the target does not need it now, and has set it aside as {}", aside.display());
    Ok(())
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { message, .. } => f.write_str(message),
            Self::State(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl Error for Unusable {}

impl fmt::Display for NotKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for NotKept {}

/// As the error of a verb.
pub(crate) fn failure(error: &StateError) -> Failure {
    let kind = match error {
        StateError::InUse { .. } => "in-use",
        StateError::Damaged { .. } => "damaged-state",
        _ => "io",
    };
    directory_failure(kind, error.to_string(), &error.advice())
}

fn directory_failure(kind: &'static str, message: String, advice: &str) -> Failure {
    let advice = format!("{advice}; `--state DIR`, or `state` in [target], names a directory; `none` goes without");
    Failure::new(kind, message, advice)
}

impl Unusable {
    /// As the error of a start that would go by it.
    pub(crate) fn failure(&self, directory: &Path) -> Failure {
        let path = directory.display();
        match self {
            Self::State(error) | Self::Store(StoreError::NotStored(error)) => failure(error),
            Self::Store(error @ StoreError::Unknown { .. }) => {
                directory_failure("io", error.to_string(), &error.advice())
            }
            Self::Damaged { name, message } => {
                let advice = format!(
                    "no older configuration is served unless you say so: restore {path}/{name} from a backup; or `ebof serve \
                     --import FILE`, where FILE is a configuration of yours or an older {path}/configuration-N.toml, sets aside \
                     what is damaged and goes on with FILE; or `ebof serve --config FILE` goes by FILE and leaves {path} as it is"
                );
                Failure::new("damaged-state", format!("{message}; the target is not started"), advice)
            }
        }
    }
}

#[cfg(test)]
mod tests;
