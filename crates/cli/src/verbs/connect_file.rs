//! `connect-all --connections`: connects what a file names, once or until it succeeds.
//!
//! With `--retry` it is what a machine runs at boot: all entries are tried at the same time, and a
//! target that is away is tried again and again, while whoever waits for the first round
//! (`READY=1`) goes on.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::Outcome;
use super::connections::{self, ConnectionRow, Sort};
use super::everything::Everything;
use super::neighbours;
use super::persistent::{HeldService, Persistent};
use super::services::{DiscoveryService, NamedSubsystem, Places, Rules};
use crate::failure;
use crate::global::Global;
use crate::output::connections::ConnectAllView;
use crate::output::text::safe;
use crate::output::{View as _, say, show};
use crate::supervisor::Supervisor;

/// How long a supervisor waits for the first round: targets that do not answer must not hold up a
/// boot.
const READY_AFTER: Duration = Duration::from_secs(15);

/// The time between two attempts: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// What to connect, and how.
pub(super) struct FromFile {
    pub(super) path: PathBuf,
    /// Only the entries with these names.
    pub(super) only: Vec<String>,
    /// Whether to go on until everything is connected.
    pub(super) retry: bool,
    pub(super) owner: Option<String>,
}

/// An entry that was tried, and the outcome.
type Tried = (usize, anyhow::Result<ConnectAllView>);

impl FromFile {
    pub(super) fn run(self, global: &Global) -> Outcome {
        let places = Places::default();
        let (entries, mut wrong) = connections::read(&self.path, &places)?;
        wrong.0.extend(Rules::read(&places).1.0);
        wrong.tell();
        let mut entries = connections::chosen(entries, &self.only, &self.path)?;
        for entry in &mut entries {
            // What the file says of it is more special.
            entry.fabric.owner = entry.fabric.owner.take().or_else(|| self.owner.clone());
        }
        let (sender, tried) = channel();
        let is_held =
            |entry: &ConnectionRow| self.retry && entry.sort == Sort::Discovery && entry.fabric.is_persistent();
        let held: Vec<HeldService> = entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| is_held(entry))
            .map(|(number, entry)| hold(number, entry, &sender))
            .collect();
        let holder = (!held.is_empty()).then(|| {
            let persistent = Persistent::new(global);
            let thread = std::thread::Builder::new().name("ebof-persistent".to_owned());
            thread.spawn(move || persistent.run(held, 0)).context("starting a thread for discovery services")
        });
        for (number, entry) in entries.iter().cloned().enumerate().filter(|(_, entry)| !is_held(entry)) {
            let (sender, global, retry) = (sender.clone(), global.clone(), self.retry);
            let thread = std::thread::Builder::new().name("ebof-connect".to_owned());
            thread
                .spawn(move || pursue(number, &entry, retry, &global, &sender))
                .context("starting a thread that connects")?;
        }
        drop(sender);
        let names = entries.into_iter().map(|entry| entry.name).collect();
        let round = Round::new(names, Supervisor::of_environment(), self.retry);
        // With --retry it is a unit at boot, whose failure would disconnect what is right.
        let wrong = if self.retry { Vec::new() } else { wrong.0 };
        let view = round.follow(&tried, &self.path).with_wrong(wrong);
        show(global, &view)?;
        if let Some(holder) = holder {
            // Until a signal ends it.
            let failed = || anyhow::anyhow!("holding discovery services has failed");
            match holder?.join().unwrap_or_else(|_| Err(failed()))? {}
        }
        Ok(if view.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// An entry that is held, and tells what becomes of its first log.
fn hold(number: usize, entry: &ConnectionRow, tell: &Sender<Tried>) -> HeldService {
    let ConnectionRow { fabric, listed, place, .. } = entry.clone();
    let place = place.or_else(|| Some(entry.name.clone()));
    let tell = tell.clone();
    let first_log = move |outcome| {
        // Nobody listens where the boot has gone on.
        let _unheard = tell.send((number, outcome));
    };
    HeldService {
        service: DiscoveryService { fabric, listed, place },
        front: entry.front,
        first_log: Some(Box::new(first_log)),
    }
}

/// Tries an entry until it succeeds, or once.
fn pursue(number: usize, entry: &ConnectionRow, retry: bool, global: &Global, tell: &Sender<Tried>) {
    let (mut delay, longest) = RETRY;
    loop {
        let outcome = attempt(entry, global);
        let is_over = !retry || outcome.as_ref().is_ok_and(|view| view.failed.is_empty());
        if tell.send((number, outcome)).is_err() || is_over {
            return;
        }
        std::thread::sleep(delay);
        delay = (delay * 2).min(longest);
    }
}

fn attempt(entry: &ConnectionRow, global: &Global) -> anyhow::Result<ConnectAllView> {
    // They may have changed since the last attempt.
    let (rules, _) = Rules::read(&Places::default());
    let mut run = Everything::new(entry.front, rules, global);
    let ConnectionRow { fabric, listed, place, .. } = entry.clone();
    let place = place.unwrap_or_else(|| entry.name.clone());
    match entry.sort {
        Sort::Subsystem => run.follow_services(Vec::new(), &[NamedSubsystem { fabric, place }], global)?,
        Sort::Discovery => {
            let services = if fabric.mdns {
                neighbours::find(&fabric)?
            } else {
                vec![DiscoveryService { fabric, listed, place: Some(place) }]
            };
            run.follow_services(services, &[], global)?;
        }
    }
    Ok(run.into_view())
}

/// What has become of the entries so far.
struct Round {
    names: Vec<String>,
    /// What each said last: `None` before its first attempt, a text if it failed, an empty one if
    /// it succeeded.
    last: Vec<Option<String>>,
    supervisor: Supervisor,
    retry: bool,
    is_ready: bool,
    view: ConnectAllView,
}

impl Round {
    fn new(names: Vec<String>, supervisor: Supervisor, retry: bool) -> Self {
        let last = vec![None; names.len()];
        Self { names, last, supervisor, retry, is_ready: false, view: ConnectAllView::default() }
    }

    /// Takes the outcomes until there are no more.
    fn follow(mut self, tried: &Receiver<Tried>, path: &Path) -> ConnectAllView {
        if self.names.is_empty() {
            say(&format!("{}: nothing to connect", path.display()));
        }
        let deadline = Instant::now() + READY_AFTER;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let next = if self.is_ready {
                tried.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                tried.recv_timeout(left)
            };
            match next {
                Ok((number, outcome)) => self.take(number, outcome),
                Err(RecvTimeoutError::Timeout) => self.is_ready = true,
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.is_ready |= self.last.iter().all(Option::is_some);
            self.tell();
        }
        self.is_ready = true;
        self.tell();
        self.view
    }

    fn tell(&self) {
        let done = self.last.iter().filter(|last| last.as_deref() == Some("")).count();
        let status = format!("{done} of {} connected", self.names.len());
        if self.is_ready { self.supervisor.ready(&status) } else { self.supervisor.status(&status) }
    }

    fn take(&mut self, number: usize, outcome: anyhow::Result<ConnectAllView>) {
        let name = safe(&self.names[number]);
        let (view, problem) = match outcome {
            Ok(mut view) if self.retry && !view.failed.is_empty() => {
                let failed: Vec<String> =
                    view.failed.drain(..).map(|(nqn, error)| format!("{nqn}: {}", failure::text(&error))).collect();
                (view, failed.join("\n"))
            }
            Ok(view) => (view, String::new()),
            Err(error) if self.retry => (ConnectAllView::default(), failure::text(&error)),
            Err(error) => {
                let failed = vec![(self.names[number].clone(), error)];
                (ConnectAllView { failed, ..ConnectAllView::default() }, String::new())
            }
        };
        let before = self.last[number].replace(problem.clone());
        if !problem.is_empty() && before.as_ref() != Some(&problem) {
            say(&format!("{name}: {problem}\n  it is tried again until it succeeds"));
        }
        if problem.is_empty() && before.is_some() {
            say(&format!("{name}: connected at last: {}", view.text(false).trim_end()));
        }
        self.view.connected.extend(view.connected);
        // What was connected by an earlier attempt is no news.
        if before.is_none() {
            self.view.skipped.extend(view.skipped);
        }
        self.view.failed.extend(view.failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(names: &[&str], retry: bool) -> Round {
        Round::new(names.iter().map(|&name| name.to_owned()).collect(), Supervisor::none(), retry)
    }

    #[test]
    fn an_entry_that_fails_at_first_is_no_failure_with_retry() {
        let mut round = round(&["a", "b"], true);
        round.take(0, Err(anyhow::anyhow!("refused")));
        assert_eq!((round.last[0].as_deref(), round.last[1].as_deref()), (Some("refused"), None));
        let skipped = vec![("nqn.x".to_owned(), "already connected".to_owned())];
        round.take(0, Ok(ConnectAllView { skipped, ..ConnectAllView::default() }));
        assert_eq!(round.last[0].as_deref(), Some(""));
        assert!(round.view.failed.is_empty() && round.view.skipped.is_empty());
        let failed = vec![("nqn.y".to_owned(), anyhow::anyhow!("no route"))];
        round.take(1, Ok(ConnectAllView { failed, ..ConnectAllView::default() }));
        assert_eq!(round.last[1].as_deref(), Some("nqn.y: no route"));
        assert!(round.view.failed.is_empty(), "it is tried again");
    }

    #[test]
    fn without_retry_a_failure_is_one() {
        let mut round = round(&["a"], false);
        round.take(0, Err(anyhow::anyhow!("refused")));
        assert_eq!(round.view.failed.len(), 1);
        let (sender, tried) = channel::<Tried>();
        drop(sender);
        let view = round.follow(&tried, Path::new("c.toml"));
        assert_eq!(view.failed[0].0, "a");
    }
}
