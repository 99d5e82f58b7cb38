//! What a target is started with: a file, arguments, or its state directory; and what
//! configurations are stored in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use ebof_cli::{Failure, Kind};
use ebof_manage::api::{Asker, Cause, ConfigStore};
use ebof_manage::config::NO_STATE;
use ebof_manage::{Config, Diagnostics, Drive, Loaded, Plan};
use ebof_server::{Making, Target, backings};
use ebof_state::{StateDirectory, standard_path};

use super::{Args, configuration};
use crate::reload::generations::{Generations, Track, failure};
use crate::reload::{self, StartedWith};
use crate::rights::OwnPlaces;

/// What is to be served, where it comes from, and where it is stored.
pub(super) struct Basis {
    pub(super) config: Config,
    pub(super) remarks: Diagnostics,
    pub(super) started_with: StartedWith,
    pub(super) generations: Option<Arc<Generations>>,
    /// What is stored as the reason of the start.
    action: String,
    /// Whether the user has named the state directory.
    pub(super) is_named: bool,
}

impl Basis {
    /// Reads what `args` name.
    pub(super) fn read(args: &Args, kind: Kind) -> anyhow::Result<Self> {
        let (loaded, started_with, action) = match &args.config {
            Some(path) => {
                let action = format!("serve --config {}", path.display());
                (reload::read(path, kind)?, StartedWith::File(path.clone()), action)
            }
            None if args.drives.is_empty() && args.drive.is_empty() => return Self::of_state(args, kind),
            None => {
                let mut loaded = configuration::checked(&configuration::from_arguments(args)?)?;
                if let Ok(directory) = std::env::current_dir() {
                    loaded.config.rebase(&directory);
                }
                (loaded, StartedWith::Arguments, "serve".to_owned())
            }
        };
        let Loaded { config, remarks, .. } = loaded;
        let wanted = args.state.clone().or_else(|| config.target.state.clone());
        let generations = beside(wanted.as_deref())?;
        Ok(Self { config, remarks, started_with, generations, action, is_named: wanted.is_some() })
    }

    /// The state directory is what the target goes by.
    fn of_state(args: &Args, kind: Kind) -> anyhow::Result<Self> {
        configuration::without_drives(args)?;
        let directory = match args.state.as_deref() {
            Some(NO_STATE) => {
                let message = "there is nothing to serve: no drive, no configuration and no state directory";
                return Err(Failure::usage(message, "name drives, --config FILE, or --state DIR").into());
            }
            Some(path) => opened(&absolute(Path::new(path))?)?,
            None => opened(&standard()?)?,
        };
        let path = directory.path().to_owned();
        let imported = args.import.as_deref().map(|file| reload::read(file, kind)).transpose()?;
        let (generations, action) = match &args.import {
            None => (Generations::open(directory, Track::Source), "serve".to_owned()),
            Some(file) => {
                let action = format!("serve --import {}", file.display());
                (Generations::open_or_begin(directory, Track::Source), action)
            }
        };
        let generations = generations.map_err(|error| error.failure(&path))?;
        let (mut config, remarks) = match imported {
            Some(Loaded { config, remarks, .. }) => (config, remarks),
            None => {
                let stored = generations.configuration().map_err(|error| error.failure(&path))?;
                (stored.unwrap_or_default(), Diagnostics::default())
            }
        };
        config.target.threads = args.threads.or(config.target.threads);
        config.target.max_connections = args.max_connections.unwrap_or(config.target.max_connections);
        let generations = Some(Arc::new(generations));
        Ok(Self { config, remarks, started_with: StartedWith::State(path), generations, action, is_named: true })
    }

    /// Finishes or takes back what a process that has ended in the middle of a change has left of
    /// files, before they are opened.
    pub(super) fn finish_interrupted(&self) {
        let Some(generations) = &self.generations else { return };
        match generations.interrupted() {
            Ok(changes) if changes.is_empty() => return,
            Ok(changes) => {
                ebof_server::finish_interrupted(&changes, &self.config)
                    .iter()
                    .for_each(|line| tracing::warn!("{line}"));
            }
            // Nothing is served by it.
            Err(error) => tracing::warn!("what a change that was interrupted has left of files is not known: {error}"),
        }
        generations.forget();
    }

    /// Which files the start makes: what was served before is there, or is missed.
    pub(super) fn making(&self, create: bool) -> Making {
        let is_missing = |drive: &Drive| drive.path().is_some_and(|path| !Path::new(path).exists());
        match &self.generations {
            _ if create => Making::All,
            // A command line is written by who wants the file.
            None if matches!(self.started_with, StartedWith::Arguments) => Making::All,
            None => Making::Nothing,
            // The usual case: there is nothing to make. The configurations need not be read then.
            Some(_) if self.config.drives.is_empty() && !backings(&self.config).any(is_missing) => Making::All,
            Some(generations) => Making::all_but(&generations.stored()),
        }
    }

    /// Where the target has files of its own.
    pub(super) fn own<'a>(&'a self, args: &'a Args, control: Option<&str>) -> OwnPlaces<'a> {
        let configurations = args.config.iter().chain(&args.import).map(PathBuf::as_path).collect();
        let state = self.generations.as_ref().map(|generations| generations.path());
        OwnPlaces { configurations, state, control: crate::control::folder(control) }
    }

    /// The state directory, if the target has one.
    pub(super) fn directory(&self) -> Option<Arc<StateDirectory>> {
        self.generations.as_ref().map(|generations| Arc::clone(generations.directory()))
    }

    /// Stores what `target` was started with, and from now on what is in force. Where that is not
    /// possible, and nobody has asked for it, the target goes on without.
    pub(super) fn keep(&mut self, target: &Target, config: &Config) -> anyhow::Result<()> {
        let Some(generations) = &self.generations else { return Ok(()) };
        let before = generations.configuration().ok().flatten().unwrap_or_default();
        let plan = Plan::between(&before, config);
        let cause = Cause::new(Asker::Start, self.action.as_str());
        match generations.replace(generations.revision().as_ref(), config, &plan, &cause) {
            Ok(()) => {
                // The first and only one.
                let _set = target.store_in(Arc::clone(generations) as Arc<dyn ConfigStore>);
            }
            Err(error) if self.is_named => {
                let advice = "see to the state directory, or go without: `--state none`";
                return Err(Failure::new("io", format!("the configuration cannot be stored: {error}"), advice).into());
            }
            Err(error) => {
                tracing::warn!("configurations are not stored, and there is no way back to them: {error}");
                self.generations = None;
            }
        }
        Ok(())
    }
}

/// The state directory of a target that goes by something else. Without the default one it is
/// served all the same.
fn beside(wanted: Option<&str>) -> anyhow::Result<Option<Arc<Generations>>> {
    let directory = match wanted {
        Some(NO_STATE) => return Ok(None),
        Some(path) => opened(&absolute(Path::new(path))?)?,
        None => match standard().and_then(|path| opened(&path)) {
            Ok(directory) => directory,
            Err(error) => {
                let first = error.to_string();
                let first = first.lines().next().unwrap_or_default();
                tracing::warn!("configurations are not stored, and there is no way back to them: {first}");
                return Ok(None);
            }
        },
    };
    let path = directory.path().to_owned();
    match Generations::open_or_begin(directory, Track::Beside) {
        Ok(generations) => Ok(Some(Arc::new(generations))),
        Err(error) if wanted.is_some() => Err(error.failure(&path).into()),
        Err(error) => {
            tracing::warn!("configurations are not stored, and there is no way back to them: {error}");
            Ok(None)
        }
    }
}

fn standard() -> anyhow::Result<PathBuf> {
    standard_path().ok_or_else(|| {
        let advice = "name a directory: `--state DIR`";
        Failure::new("io", "neither $HOME nor $XDG_STATE_HOME say where the state directory is", advice).into()
    })
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).context("the working directory")
}

fn opened(path: &Path) -> anyhow::Result<Arc<StateDirectory>> {
    Ok(Arc::new(StateDirectory::open(path).map_err(|error| failure(&error))?))
}
