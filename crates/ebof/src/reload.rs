//! Changes of the configuration of the target that is served: SIGHUP and SIGUSR1, and what the
//! control socket is asked for.
//!
//! They are made on a thread of its own, one after the other, so that a slow file system or drive
//! blocks neither the thread that waits for signals nor the one that serves the control socket.
//! The configurations that were in force before are in `reload/generations.rs`.

pub(crate) mod generations;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::Context as _;
use ebof_cli::output::say;
use ebof_cli::{Kind, Supervisor};
use ebof_manage::api::{
    Applied, ApplyError, Asker, CONFIGURATION_SCHEMA, Cause, Planned, PlannedChange, Revision, Source,
};
use ebof_manage::edit::Edits;
use ebof_manage::enclosure::Refused;
use ebof_manage::load::Objection;
use ebof_manage::{Config, Diagnostic, Diagnostics, Loaded, Plan, Severity, Target as _};
use ebof_server::Target;
use tokio::sync::oneshot;

use crate::doors::Doors;
use crate::rights::Confined;

use generations::Generations;

/// The most changes that wait for their turn, beside signals and edits. Each is as large as a
/// configuration.
const WAITING_MAX: usize = 64;

/// The most edits that wait for their turn.
const EDITS_WAITING_MAX: usize = 256;

/// How often an edit is made again if a task or a host has changed the configuration meanwhile.
const ATTEMPTS_MAX: usize = 64;

/// The request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGHUP: read the configuration file again.
    Reload,
    /// SIGUSR1: look for devices that have grown.
    Rescan,
}

/// What is to be done.
enum Request {
    Signal(Signal),
    /// As SIGHUP.
    Reload(Asker, Answer),
    Apply(Box<Loaded>, Seen, Cause, Answer),
    Edit(Edits, Revision, Cause, Answer),
}

/// The plan that somebody has looked at.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// What it starts from.
    pub(crate) revision: Revision,
    /// What it would do, and to whom ([`Planned::promise`]); `None`: that does not matter.
    pub(crate) promise: Option<String>,
}

impl From<Revision> for Seen {
    fn from(revision: Revision) -> Self {
        Self { revision, promise: None }
    }
}

/// The changes that were made, and the remarks about the text.
type Made = (Plan, Diagnostics);

/// Tells who asked; one that has gone away gets nothing done any more.
type Answer = oneshot::Sender<Result<Applied, Refusal>>;

/// Why a configuration was refused.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The text has errors.
    Text(Diagnostics),
    /// The file cannot be read.
    Unreadable(anyhow::Error),
    /// The edits cannot be made to what is in force.
    Edits(Refused),
    /// It takes away what it does not mention.
    Objection(Objection),
    /// Other hosts would notice it than the plan says.
    Hosts,
    /// Management cannot be reached where it says.
    Doors(String),
    /// It names what the target has given up.
    Rights(String),
    /// It could not be applied.
    Apply(ApplyError),
    /// Too many changes wait already.
    Busy,
}

/// Which requests of signals are pending. A second one of the same kind has no further effect.
#[derive(Default)]
struct Pending([AtomicBool; 2]);

/// Sends requests to the thread that makes changes.
pub(crate) struct Reloads {
    requests: Sender<Request>,
    pending: Arc<Pending>,
    waiting: Arc<AtomicUsize>,
    waiting_edits: Arc<AtomicUsize>,
    started_with: StartedWith,
    generations: Option<Arc<Generations>>,
    doors: Arc<Doors>,
    target: Arc<Target>,
    /// What was in force at the start.
    began: Revision,
}

/// What the target was started with.
#[derive(Clone, Debug)]
pub(crate) enum StartedWith {
    /// A file.
    File(PathBuf),
    /// Arguments.
    Arguments,
    /// The state directory.
    State(PathBuf),
}

/// The thread that makes changes.
struct Reloader {
    target: Arc<Target>,
    started_with: StartedWith,
    generations: Option<Arc<Generations>>,
    requests: Receiver<Request>,
    pending: Arc<Pending>,
    waiting: Arc<AtomicUsize>,
    waiting_edits: Arc<AtomicUsize>,
    supervisor: Arc<Supervisor>,
    doors: Arc<Doors>,
    confined: Confined,
}

/// Reads the configuration in a file. Paths in it that are relative begin at its directory.
pub(crate) fn read(path: &Path, kind: Kind) -> anyhow::Result<Loaded> {
    let mut loaded = ebof_cli::load_configuration(path, kind)?;
    // Absolute, so that the configuration in force means the same wherever it is read.
    let whole = std::path::absolute(path).context("the working directory")?;
    loaded.config.rebase(whole.parent().unwrap_or(Path::new("/")));
    Ok(loaded)
}

impl StartedWith {
    fn read(path: &Path) -> Result<Loaded, Refusal> {
        read(path, Kind::Regular).map_err(|error| match error.downcast::<Diagnostics>() {
            Ok(diagnostics) => Refusal::Text(diagnostics),
            Err(error) => Refusal::Unreadable(error),
        })
    }

    /// What it is, compared with what is in force.
    pub(crate) fn compared(&self, target: &Target) -> Source {
        let path = match self {
            Self::File(path) => path,
            Self::Arguments => return Source::Arguments,
            Self::State(path) => return Source::State { path: path.display().to_string() },
        };
        let (differs, problem) = match Self::read(path) {
            Ok(loaded) => (Some(!target.plan(&loaded.config).is_empty()), None),
            Err(refusal) => (None, Some(refusal.to_string())),
        };
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        Source::File { path: path.display().to_string(), differs, problem }
    }
}

impl Reloads {
    /// Starts the thread. `generations` are what `target` stores its configurations in, `confined`
    /// says what it may open; the supervisor is told of reloads.
    pub(crate) fn start(
        started_with: StartedWith,
        generations: Option<Arc<Generations>>,
        confined: Confined,
        target: Arc<Target>,
        supervisor: Arc<Supervisor>,
    ) -> anyhow::Result<Self> {
        let (reloads, mut reloader) = Self::without_thread(started_with, generations, target);
        reloader.supervisor = supervisor;
        reloader.confined = confined;
        let thread = std::thread::Builder::new().name("ebof-reload".to_owned());
        thread.spawn(move || reloader.run()).context("starting the thread that changes the configuration")?;
        Ok(reloads)
    }

    fn without_thread(
        started_with: StartedWith,
        generations: Option<Arc<Generations>>,
        target: Arc<Target>,
    ) -> (Self, Reloader) {
        let (sender, requests) = channel();
        let pending = Arc::<Pending>::default();
        let waiting = Arc::<AtomicUsize>::default();
        let waiting_edits = Arc::<AtomicUsize>::default();
        let (doors, began) = (Arc::<Doors>::default(), Revision::from_config(&target.config()));
        let reloader = Reloader {
            target: Arc::clone(&target),
            doors: Arc::clone(&doors),
            started_with: started_with.clone(),
            generations: generations.clone(),
            requests,
            pending: Arc::clone(&pending),
            waiting: Arc::clone(&waiting),
            waiting_edits: Arc::clone(&waiting_edits),
            supervisor: Arc::new(Supervisor::none()),
            confined: Confined::default(),
        };
        let reloads =
            Self { requests: sender, pending, waiting, waiting_edits, started_with, generations, doors, target, began };
        (reloads, reloader)
    }

    /// Where the target is managed over the network.
    pub(crate) fn doors(&self) -> &Arc<Doors> {
        &self.doors
    }

    /// Whether what was in force at the start still is.
    pub(crate) fn is_as_started(&self) -> bool {
        Revision::from_config(&self.target.config()) == self.began
    }

    /// What the target was started with.
    pub(crate) fn started_with(&self) -> &StartedWith {
        &self.started_with
    }

    /// What configurations are stored in; `None` where they are not.
    pub(crate) fn generations(&self) -> Option<&Arc<Generations>> {
        self.generations.as_ref()
    }

    /// Sends the request of a signal without waiting.
    pub(crate) fn signal(&self, signal: Signal) {
        if !self.pending.0[signal as usize].swap(true, Ordering::SeqCst) {
            // The thread runs until the process ends.
            let _sent = self.requests.send(Request::Signal(signal));
        }
    }

    /// Does what SIGHUP does.
    ///
    /// # Errors
    /// Why the configuration is refused.
    pub(crate) async fn reload(&self, by: Asker) -> Result<Applied, Refusal> {
        ask(&self.requests, &self.waiting, WAITING_MAX, |answer| Request::Reload(by, answer)).await
    }

    /// Applies a configuration, if what was seen of it still holds when its turn comes.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) async fn apply(&self, desired: Loaded, seen: impl Into<Seen>, cause: Cause) -> Result<Applied, Refusal> {
        let seen = seen.into();
        let request = |answer| Request::Apply(Box::new(desired), seen, cause, answer);
        ask(&self.requests, &self.waiting, WAITING_MAX, request).await
    }

    /// Makes edits when their turn comes. What others have changed since `planned` is no conflict
    /// if the edits do what was promised of them all the same.
    ///
    /// # Errors
    /// Why they are refused.
    pub(crate) async fn edit(&self, edits: Edits, planned: Revision, cause: Cause) -> Result<Applied, Refusal> {
        let request = |answer| Request::Edit(edits, planned, cause, answer);
        ask(&self.requests, &self.waiting_edits, EDITS_WAITING_MAX, request).await
    }
}

async fn ask(
    requests: &Sender<Request>,
    waiting: &AtomicUsize,
    most: usize,
    request: impl FnOnce(Answer) -> Request,
) -> Result<Applied, Refusal> {
    if waiting.fetch_add(1, Ordering::SeqCst) >= most {
        waiting.fetch_sub(1, Ordering::SeqCst);
        return Err(Refusal::Busy);
    }
    let (answer, answered) = oneshot::channel();
    let _sent = requests.send(request(answer));
    // The thread runs until the process ends.
    answered.await.unwrap_or(Err(Refusal::Busy))
}

impl Reloader {
    fn run(&self) {
        while let Ok(request) = self.requests.recv() {
            self.serve(request);
        }
    }

    fn serve(&self, request: Request) {
        match request {
            Request::Signal(signal) => {
                self.pending.0[signal as usize].store(false, Ordering::SeqCst);
                // The log tells.
                let _made = match signal {
                    Signal::Reload => self
                        .report_to_supervisor(|| self.reload("SIGHUP", Asker::Signal { signal: "SIGHUP".to_owned() })),
                    Signal::Rescan => self.rescan(&Asker::Signal { signal: "SIGUSR1".to_owned() }),
                };
            }
            Request::Reload(by, answer) => {
                self.answer(&self.waiting, answer, || self.report_to_supervisor(|| self.reload("reload", by)));
            }
            Request::Apply(desired, seen, cause, answer) => {
                self.answer(&self.waiting, answer, || self.make(Ok(*desired), Some(&seen), &cause));
            }
            Request::Edit(edits, planned, cause, answer) => {
                self.answer(&self.waiting_edits, answer, || self.edit(&edits, &planned, &cause));
            }
        }
    }

    /// The supervisor sees when a reload begins and ends, and what became of it.
    fn report_to_supervisor(&self, reload: impl FnOnce() -> Result<Made, Refusal>) -> Result<Made, Refusal> {
        self.supervisor.reloading();
        let outcome = reload();
        let summary = crate::notify::summary(&self.target);
        match &outcome {
            Ok(_) => self.supervisor.ready(&summary),
            Err(refusal) => self.supervisor.ready(&format!("{summary}; the last reload was refused: {refusal}")),
        }
        outcome
    }

    fn answer(&self, waiting: &AtomicUsize, answer: Answer, work: impl FnOnce() -> Result<Made, Refusal>) {
        waiting.fetch_sub(1, Ordering::SeqCst);
        if answer.is_closed() {
            return;
        }
        let applied = work().map(|(plan, remarks)| Applied {
            schema: CONFIGURATION_SCHEMA,
            revision: Revision::from_config(&self.target.config()),
            plan: PlannedChange::all(&plan),
            source: self.started_with.compared(&self.target),
            generation: self.generations.as_ref().and_then(|generations| generations.current()),
            remarks,
        });
        // Who has gone away meanwhile finds in the log what was done.
        let _told = answer.send(applied);
    }

    /// Reads the configuration again, and applies what can change without a restart.
    fn reload(&self, why: &str, by: Asker) -> Result<Made, Refusal> {
        let StartedWith::File(path) = &self.started_with else {
            say(&format!(
                "{why}: there is no configuration file to read again; looking at the sizes of what is served"
            ));
            return self.rescan(&by);
        };
        self.make(StartedWith::read(path), None, &Cause::new(by, "reload"))
    }

    /// Looks for files and block devices that have grown.
    fn rescan(&self, by: &Asker) -> Result<Made, Refusal> {
        let outcome = self.target.rescan().map_err(Refusal::Apply);
        report(&outcome, by, "nothing has changed", "nothing has grown");
        outcome.map(|plan| (plan, Diagnostics::default()))
    }

    /// Puts a configuration in force, if what was seen of it still holds.
    fn make(&self, loaded: Result<Loaded, Refusal>, planned: Option<&Seen>, cause: &Cause) -> Result<Made, Refusal> {
        let remarks = loaded.as_ref().map(|loaded| loaded.remarks.clone()).unwrap_or_default();
        let outcome = loaded.and_then(|loaded| self.replace(loaded, planned, cause));
        report(&outcome, &cause.by, "the configuration stays as it was", "the configuration has not changed");
        // Also if it was refused: they may say why.
        remarks.items.iter().for_each(log);
        outcome.map(|plan| (plan, remarks))
    }

    /// Makes edits to what is in force.
    fn edit(&self, edits: &Edits, planned: &Revision, cause: &Cause) -> Result<Made, Refusal> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let current = self.target.config();
            let revision = Revision::from_config(&current);
            let edited = self.edited(edits, planned, &current, &revision);
            let is_refused = edited.is_err();
            match self.make(edited, Some(&revision.into()), cause) {
                // Tasks and hosts change it, too.
                Err(Refusal::Apply(ApplyError::Outdated { .. })) if !is_refused && attempts < ATTEMPTS_MAX => {}
                made => return made,
            }
        }
    }

    /// What edits make of what is in force, if that is what was promised.
    fn edited(
        &self,
        edits: &Edits,
        planned: &Revision,
        current: &Config,
        revision: &Revision,
    ) -> Result<Loaded, Refusal> {
        let outdated = || {
            let (planned, current) = (planned.clone(), revision.clone());
            Refusal::Apply(ApplyError::Outdated { planned, current })
        };
        let is_planned = revision == planned;
        if !is_planned && edits.promise.is_none() {
            return Err(outdated());
        }
        let loaded = edits.made_to(current).map_err(|refused| match is_planned {
            true => Refusal::Edits(refused),
            // Edits of what is not there any more are outdated, and not wrong.
            false => outdated(),
        })?;
        let Some(promise) = &edits.promise else { return Ok(loaded) };
        let now = Planned::new(current, loaded.config.clone(), &self.target.status(), Diagnostics::default());
        if now.promise == *promise { Ok(loaded) } else { Err(outdated()) }
    }

    fn replace(&self, loaded: Loaded, seen: Option<&Seen>, cause: &Cause) -> Result<Plan, Refusal> {
        let current = self.target.config();
        let planned = seen.map(|seen| &seen.revision);
        // What speaks against an outdated plan is that it is outdated.
        let is_current = planned.is_none_or(|planned| *planned == Revision::from_config(&current));
        if let Some(objection) = loaded.objection(&current).filter(|_| is_current) {
            return Err(Refusal::Objection(objection));
        }
        if let Some(promise) = seen.and_then(|seen| seen.promise.as_ref()).filter(|_| is_current) {
            let config = loaded.config.clone();
            let now = Planned::new(&current, config, &self.target.status(), Diagnostics::default());
            if now.promise != *promise {
                return Err(Refusal::Hosts);
            }
        }
        if is_current {
            self.confined.check(&loaded.config).map_err(Refusal::Rights)?;
        }
        let moves = match is_current {
            true => Some(self.doors.prepare(&current.target, &loaded.config.target).map_err(Refusal::Doors)?),
            false => None,
        };
        let plan = self.target.apply_for(cause, planned, loaded.config).map_err(Refusal::Apply)?;
        if let Some(moves) = moves {
            self.doors.make(moves);
        }
        Ok(plan)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(diagnostics) => diagnostics.fmt(f),
            // The chain, in one line.
            Self::Unreadable(error) => write!(f, "{error:#}"),
            Self::Edits(refused) => refused.fmt(f),
            Self::Objection(objection) => objection.fmt(f),
            Self::Hosts => f.write_str("other hosts would notice the change now than the plan says"),
            Self::Doors(why) | Self::Rights(why) => f.write_str(why),
            Self::Apply(error) => error.fmt(f),
            Self::Busy => f.write_str("too many changes of the configuration wait for others to end"),
        }
    }
}

fn log(remark: &Diagnostic) {
    let Diagnostic { severity, file, line, column, message, help, .. } = remark;
    let help = help.as_ref().map(|help| format!("; {help}")).unwrap_or_default();
    match severity {
        Severity::Note => tracing::info!("{file}:{line}:{column}: {severity}: {message}{help}"),
        _ => tracing::warn!("{file}:{line}:{column}: {severity}: {message}{help}"),
    }
}

/// Logs what was done, and for whom.
fn report(outcome: &Result<Plan, Refusal>, by: &Asker, failed: &str, unchanged: &str) {
    match outcome {
        Ok(plan) if plan.is_empty() => tracing::info!(%by, "{unchanged}"),
        Ok(plan) => plan.changes.iter().for_each(|change| tracing::info!(%by, "{change}")),
        Err(Refusal::Apply(error @ ApplyError::Incomplete { .. })) => {
            tracing::error!(%by, "only a part of the configuration that there was is in force: {error}");
        }
        // Whoever asked is told, and nothing is wrong with the target.
        Err(error @ (Refusal::Apply(ApplyError::Outdated { .. }) | Refusal::Edits(_) | Refusal::Hosts)) => {
            tracing::info!(%by, "{failed}: {error:#}");
        }
        Err(error) => tracing::error!(%by, "{failed}: {error:#}"),
    }
}

#[cfg(test)]
mod tests;
